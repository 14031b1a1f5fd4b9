//! Shared by executors: the context of a trial, and how one is run.
//!
//! Invariant: nothing here runs a trial.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use archive::{RunWriter, StackRecord, TrialOutcome, TrialRecord};
use stats::TrialResult;
use study::{Experiment, Job, Plan, Stack, Study, Trial};
use units::{Nanos, Seed};
use worker::Waiting;

use crate::RunnerError;
use crate::estimate::deadline;
use crate::options::Options;
use crate::watch::Watcher;

/// Minimum planned duration of a trial with a journal; shorter ones are run again.
const JOURNALED: Nanos = Nanos::from_secs(60);

/// Time limit for stopping, in addition to two intervals: an engine flushes its data.
const STOP_GRACE: Duration = Duration::from_secs(15);

/// Carries out trials: by measuring, emulating or predicting them, or, in tests, from a script.
pub(crate) trait Executor {
    /// Runs a trial.
    ///
    /// # Errors
    /// [`RunnerError::NotAttached`] fails the trial; any other error ends the run.
    fn run(
        &mut self,
        run: RunContext<'_>,
        trial: &Trial,
        watcher: &mut dyn Watcher,
    ) -> Result<Execution, RunnerError>;

    /// Stacks as recorded in the run's header.
    fn stack_records(&self, _study: &Study) -> Vec<StackRecord> {
        Vec::new()
    }

    /// Checks that a run with the stacks `begun` in its header can be resumed.
    fn check_resume(&self, _study: &Study, _begun: &[StackRecord]) -> Result<(), RunnerError> {
        Ok(())
    }
}

/// Result of running a trial.
#[derive(Debug)]
pub(crate) enum Execution {
    /// Stopped before anything was recorded.
    Stopped,
    Ended(Box<TrialResult>),
    /// Ended together with other trials, listed by number; its own result is among them.
    Together(Vec<(u32, Result<TrialResult, RunnerError>)>),
}

impl From<Option<TrialResult>> for Execution {
    fn from(result: Option<TrialResult>) -> Self {
        result.map_or(Self::Stopped, |result| Self::Ended(Box::new(result)))
    }
}

/// The run that a trial belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunContext<'a> {
    pub study: &'a Study,
    pub plan: &'a Plan,
    pub options: &'a Options<'a>,
    pub archive: &'a RunWriter,
    /// Start of the running trial; racers start together.
    pub began: Instant,
}

impl<'a> RunContext<'a> {
    pub fn stopping(&self) -> bool {
        self.options.stop.load(Ordering::Relaxed)
    }

    /// Starts the journal of a trial that is too long to lose in a kill.
    pub fn begin_journal(&self, trial: &Trial) -> Result<Option<PathBuf>, RunnerError> {
        if trial.timeline.end() < JOURNALED {
            return Ok(None);
        }
        let known = self.known(trial, TrialResult::default(), TrialOutcome::Partial);
        Ok(Some(self.archive.begin_trial(&known)?))
    }

    /// Deadlines after which a trial's process is killed.
    pub fn waiting(&self, trial: &Trial, experiment: &Experiment) -> Waiting<'a> {
        let interval = Duration::from(trial.timeline.interval);
        Waiting {
            stop: self.options.stop,
            deadline: deadline(trial, experiment, 0.0).saturating_sub(self.began.elapsed()),
            grace: STOP_GRACE.saturating_add(interval.saturating_mul(2)),
        }
    }

    /// The stack and the experiment of a trial, and its seed.
    pub fn parts(&self, trial: &Trial) -> (&'a Stack, &'a Experiment, Seed) {
        let study = self.study;
        let by_name = |stack: &&Stack| stack.name == trial.stack;
        let stack = study.stack.iter().find(by_name).expect("invariant: planned stack exists");
        let experiment = study.experiment.iter().find(|one| one.name == trial.experiment);
        let experiment = experiment.expect("invariant: planned experiment exists");
        (stack, experiment, seed_of(study, trial))
    }

    /// The record of a trial with this outcome.
    pub fn known(&self, trial: &Trial, outcome: TrialResult, ended: TrialOutcome) -> TrialRecord {
        let study::Parameters { mut point, defaults } = trial.job.parameters();
        let owned = |(name, value): study::Parameter| (name.into_owned(), value);
        if let Job::Act(job) = &trial.job
            && job.phase == study::ActPhase::Act
        {
            // The actual number of threads, also if the configuration leaves it to the machine.
            point.retain(|(name, _)| name != "service_threads");
            point.push((
                "service_threads".into(),
                study::service_threads(job, observe::cpus()).to_string(),
            ));
        }
        TrialRecord {
            number: trial.number,
            slug: trial.slug(),
            experiment: trial.experiment.clone(),
            stack: trial.stack.clone(),
            engine: trial.job.engine().to_owned(),
            source: trial.source,
            point: point.into_iter().map(owned).collect(),
            defaults: defaults.into_iter().map(owned).collect(),
            job: trial.job_hash(),
            repetition: trial.repetition,
            outcome: ended,
            result: outcome,
        }
    }
}

/// Seed of a trial of `study`.
pub(crate) fn seed_of(study: &Study, trial: &Trial) -> Seed {
    Seed(u64::from(study.seed)).derive(&trial.experiment, u64::from(trial.repetition))
}
