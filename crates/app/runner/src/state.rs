//! What all trials of a run share, and what every executor asks of it.
//!
//! Invariant: nothing here runs a trial.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use archive::{RunWriter, StackRecord, TrialOutcome, TrialRecord};
use block::OwnCost;
use stats::TrialResult;
use study::{Experiment, Job, Plan, Stack, Study, Trial};
use units::{Nanos, Seed};
use worker::Waiting;

use crate::RunnerError;
use crate::ahead::{Ahead, seed_of};
use crate::devices::Targets;
use crate::estimate::deadline;
use crate::options::Options;
use crate::reached::Reached;
use crate::servers::Loaded;

/// Trials that are planned to run for so long are kept in a journal; shorter ones are repeated.
const JOURNALED: Nanos = Nanos::from_secs(60);

/// Time that a trial has to stop in, besides two intervals: an engine writes what it holds.
const STOP_GRACE: Duration = Duration::from_secs(15);

pub(crate) struct Runner<'a> {
    pub study: &'a Study,
    pub plan: &'a Plan,
    pub options: &'a Options<'a>,
    pub targets: Targets<'a>,
    pub writer: RunWriter,
    /// What the header says of the stacks.
    pub stacks: Vec<StackRecord>,
    /// Our own cost per operation, measured before the first block trial.
    pub own_cost: Option<OwnCost>,
    /// When the trial that is going on began; the racers of a race begin together.
    pub began: Instant,
    /// Trials failed before this run was resumed.
    pub failed_before: bool,
    /// Rates that finished trials reached.
    pub reached: Reached,
    /// Predictions that were made before their turn.
    pub ahead: Ahead,
    /// Tables that SQL trials left, by stack.
    pub loaded: BTreeMap<String, Loaded>,
    /// Results of racers whose turn is still to come, by the trial's number.
    pub raced: BTreeMap<u32, TrialResult>,
    /// Why the emulated drives of trials could not be attached.
    pub refused: Vec<RunnerError>,
}

impl<'a> Runner<'a> {
    pub fn new(
        (study, plan): (&'a Study, &'a Plan),
        options: &'a Options<'a>,
        targets: Targets<'a>,
        (writer, stacks): (RunWriter, Vec<StackRecord>),
    ) -> Self {
        Self {
            study,
            plan,
            options,
            targets,
            writer,
            stacks,
            own_cost: None,
            began: Instant::now(),
            failed_before: false,
            reached: Reached::default(),
            ahead: Ahead::default(),
            loaded: BTreeMap::new(),
            raced: BTreeMap::new(),
            refused: Vec::new(),
        }
    }

    pub fn stopping(&self) -> bool {
        self.options.stop.load(Ordering::Relaxed)
    }

    /// The journal of a trial that runs for so long that a kill must not lose it.
    pub fn begin_journal(&self, trial: &Trial) -> Result<Option<PathBuf>, RunnerError> {
        if trial.timeline.end() < JOURNALED {
            return Ok(None);
        }
        let known = self.known(trial, TrialResult::default(), TrialOutcome::Partial);
        Ok(Some(self.writer.begin_trial(&known)?))
    }

    /// When the process of a trial is ended that does not end.
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

    /// The record of a trial that ended so.
    pub fn known(&self, trial: &Trial, outcome: TrialResult, ended: TrialOutcome) -> TrialRecord {
        let study::Parameters { mut point, defaults } = trial.job.parameters();
        let owned = |(name, value): (&str, String)| (name.to_owned(), value);
        if let Job::Act(job) = &trial.job
            && job.phase == study::ActPhase::Act
        {
            // The number that ran, also where the configuration leaves it to the machine.
            point.retain(|(name, _)| *name != "service_threads");
            point.push((
                "service_threads",
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
