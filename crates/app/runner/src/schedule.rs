//! Runs the trials of a study in turn: each is durable before the next starts.
//!
//! Invariants: a failed trial does not prevent others; recordings of a stopped trial are kept.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Instant;

use archive::{RunWriter, StackRecord, TrialOutcome, TrialRecord};
use stats::TrialResult;
use study::{Execution as Kind, Plan, Source, Study, Trial};
use validate::PredictionError;

use crate::RunnerError;
use crate::context::{Execution, Executor, RunContext};
use crate::estimate::{estimate, trial_seconds};
use crate::options::Options;
use crate::reached::Reached;
use crate::record::{headline, record};
use crate::watch::{Event, Watcher};

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Every trial finished.
    Complete,
    /// Stopped by the user; finished trials and the complete intervals of the stopped one are kept.
    Interrupted,
    /// Every trial was run, but a target failed in some.
    Failed,
}

/// A run that ended.
#[derive(Debug)]
pub struct RunEnd {
    /// The run folder.
    pub path: PathBuf,
    /// How the run ended.
    pub ending: Ending,
    /// Number of trials in this execution.
    pub ran: u32,
    /// The study has objectives.
    pub asks: bool,
}

/// The trials of a run, and what is known of ended ones.
pub(crate) struct Schedule<'a> {
    pub study: &'a Study,
    pub plan: &'a Plan,
    pub options: &'a Options<'a>,
    pub archive: RunWriter,
    /// Header records of the stacks.
    pub stacks: Vec<StackRecord>,
    /// Trials failed before this run was resumed.
    pub failed_before: bool,
    /// Rates that finished trials reached.
    pub reached: Reached,
    /// Results of trials that ran together with an earlier one, by their numbers.
    pub together: BTreeMap<u32, Result<TrialResult, RunnerError>>,
    /// Why the emulated drives of trials could not be attached.
    pub not_attached: Vec<RunnerError>,
}

impl<'a> Schedule<'a> {
    pub fn new(
        (study, plan): (&'a Study, &'a Plan),
        options: &'a Options<'a>,
        archive: RunWriter,
        stacks: Vec<StackRecord>,
    ) -> Self {
        let (reached, together, not_attached) = Default::default();
        let failed_before = false;
        Self {
            study,
            plan,
            options,
            archive,
            stacks,
            failed_before,
            reached,
            together,
            not_attached,
        }
    }

    /// Runs the missing trials.
    pub fn run(
        mut self,
        executor: &mut dyn Executor,
        watcher: &mut dyn Watcher,
    ) -> Result<RunEnd, RunnerError> {
        *self.options.run.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(self.archive.path().to_owned());
        let (study, plan) = (self.study, self.plan);
        let missing: Vec<&Trial> =
            plan.trials.iter().filter(|trial| !self.archive.has(trial.number)).collect();
        let mut left: f64 = missing.iter().map(|trial| trial_seconds(trial)).sum();
        let prepare =
            estimate(study, plan).seconds - plan.trials.iter().map(trial_seconds).sum::<f64>();
        let done = u32::try_from(plan.trials.len() - missing.len()).unwrap_or(u32::MAX);
        let folder = self.archive.path().to_owned();
        let seconds = left + prepare;
        watcher.event(&Event::Started { folder: &folder, study, plan, done, seconds });
        let mut ending = if self.failed_before { Ending::Failed } else { Ending::Complete };
        let mut ran = 0;
        for trial in missing {
            // A trial that ended together with an earlier one is recorded, also after a stop.
            let has_ended = self.together.contains_key(&trial.number);
            if self.is_stopping() && !has_ended {
                ending = Ending::Interrupted;
                continue;
            }
            ran += 1;
            let began = Instant::now();
            let result = self.result(trial, began, executor, watcher)?;
            left -= trial_seconds(trial);
            // Undone during the trial: its result is not a failure of its target.
            let result = result.filter(|_| !self.options.abort.load(Ordering::SeqCst));
            let recorded = result.and_then(|result| record(self.context(began), trial, result));
            let Some(record) = recorded else {
                ending = Ending::Interrupted;
                if self.together.is_empty() {
                    break;
                }
                continue;
            };
            self.archive.write_trial(&record)?;
            self.reached.note(&record);
            watcher.event(&Event::TrialEnded {
                trial,
                headline: &self.headline(trial, &record),
                took: began.elapsed(),
                seconds_left: left.max(0.0),
            });
            record.result.said().for_each(|note| watcher.event(&Event::Note(&note)));
            match record.outcome {
                TrialOutcome::Partial => ending = Ending::Interrupted,
                TrialOutcome::Failed if ending == Ending::Complete => ending = Ending::Failed,
                _ => {}
            }
            if record.outcome == TrialOutcome::Partial && self.together.is_empty() {
                break;
            }
        }
        // Nothing else was planned: there is nothing to show.
        if self.not_attached.len() == plan.trials.len()
            && let Some(error) = self.not_attached.pop()
        {
            return Err(error);
        }
        let asks = study.experiment.iter().any(|one| !one.objectives.is_empty());
        Ok(RunEnd { path: folder, ending, ran, asks })
    }

    fn is_stopping(&self) -> bool {
        self.options.stop.load(Ordering::Relaxed)
    }

    fn context(&self, began: Instant) -> RunContext<'_> {
        RunContext {
            study: self.study,
            plan: self.plan,
            options: self.options,
            archive: &self.archive,
            began,
        }
    }

    /// The result of a trial; `None` if it was stopped before anything was recorded.
    fn result(
        &mut self,
        trial: &Trial,
        began: Instant,
        executor: &mut dyn Executor,
        watcher: &mut dyn Watcher,
    ) -> Result<Option<TrialResult>, RunnerError> {
        if let Some(result) = self.together.remove(&trial.number) {
            return self.or_not_attached(result).map(Some);
        }
        // With its offered load; without one it fails, and others run.
        let (known, offered) = match self.reached.offer(self.plan, trial) {
            Ok(known) => known,
            Err(reason) => {
                return Ok(Some(TrialResult { failure: Some(reason), ..TrialResult::default() }));
            }
        };
        if trial.execution() != Kind::Race {
            watcher.event(&Event::TrialStarted { trial: &known });
        }
        let result = match executor.run(self.context(began), &known, watcher) {
            Ok(Execution::Stopped) => return Ok(None),
            Ok(Execution::Ended(result)) => Ok(*result),
            Ok(Execution::Together(results)) => {
                self.together.extend(results);
                match self.together.remove(&trial.number) {
                    Some(result) => result,
                    None => return Ok(None),
                }
            }
            Err(error) => Err(error),
        };
        let mut result = self.or_not_attached(result)?;
        result.notes.extend(offered);
        Ok(Some(result))
    }

    /// A trial whose emulated drive could not be attached fails, and others run; any other error ends the
    /// run.
    fn or_not_attached(
        &mut self,
        result: Result<TrialResult, RunnerError>,
    ) -> Result<TrialResult, RunnerError> {
        match result {
            Err(error @ RunnerError::NotAttached { .. }) => {
                let failure = Some(error.failure());
                self.not_attached.push(error);
                Ok(TrialResult { failure, ..TrialResult::default() })
            }
            other => other,
        }
    }

    /// The result of a trial in one line; a prediction with its expected error.
    fn headline(&self, trial: &Trial, record: &TrialRecord) -> String {
        let stack = self.stacks.iter().find(|stack| stack.name == record.stack);
        match stack.filter(|_| record.source == Source::Predicted) {
            Some(stack) => {
                let worth = match record.result.is_host_bound() {
                    true => PredictionError::HostBound,
                    false => analysis::worth_of(stack, self.study, trial, "iops"),
                };
                format!("{} (predicted; rate: {})", headline(record), worth.brief())
            }
            None => headline(record),
        }
    }
}
