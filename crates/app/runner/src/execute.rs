//! Running a plan: each trial prepared, run, observed and made durable before the next.
//!
//! Invariants: a trial that is in the archive is never run again; on every way out the undo journal
//! is played. What it is not: parallel; trials would disturb each other.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Instant;

use archive::{FORMAT, RunHeader, RunWriter, StackRecord, TrialOutcome, TrialRecord};
use observe::Provenance;
use sim::Worth;
use stack::{check_before_making, check_directory};
use stats::TrialResult;
use study::{Execution, Job, Plan, Source, Stack, Study, Trial, parse, plan};
use units::Seed;

use crate::RunnerError;
use crate::devices::Targets;
use crate::emulated::CountingAnew;
use crate::estimate::{estimate, trial_seconds};
use crate::lacks::possible;
use crate::options::Options;
use crate::reached::Reached;
use crate::record::headline;
use crate::sql_trial::SqlTrial;
use crate::state::Runner;
use crate::watch::{Event, Watcher};

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Every trial is there.
    Complete,
    /// Stopped by the user; what there is, is kept.
    Interrupted,
    /// Every trial was run, but a target failed in some.
    Failed,
}

/// A run that ended.
#[derive(Debug)]
pub struct RunEnd {
    /// The run folder.
    pub path: PathBuf,
    /// How.
    pub ending: Ending,
    /// Trials that were run now.
    pub ran: u32,
    /// The study has objectives.
    pub asks: bool,
}

/// A run folder that was opened to go on with.
#[derive(Debug)]
pub struct Resumed {
    writer: RunWriter,
    study: Study,
    plan: Plan,
    stacks: Vec<StackRecord>,
    /// What its finished trials reached.
    reached: Reached,
    failed_before: bool,
}

/// Opens a run folder to go on with it; `again`: failed trials run again.
///
/// # Errors
/// When it is no run, is damaged beyond its trials, or belongs to another plan.
pub fn resume(path: &Path, again: bool) -> Result<Resumed, RunnerError> {
    if path.is_dir() {
        check_directory(path)?;
    }
    let (mut reached, mut failed_before) = (Reached::default(), false);
    let mut there = Vec::new();
    let (writer, header, study) = RunWriter::resume(path, again, |trial| {
        reached.note(trial);
        failed_before |= trial.outcome == TrialOutcome::Failed;
        there.push((trial.number, trial.slug.clone()));
    })?;
    let mut plan = plan(&study);
    plan.trials.retain(|trial| !header.left_out.contains(&trial.number));
    let now = u32::try_from(plan.trials.len()).unwrap_or(u32::MAX);
    if header.trials_planned != now {
        let planned = header.trials_planned;
        return Err(RunnerError::OtherPlan { path: path.into(), planned, now });
    }
    // A version that ordered stacks otherwise gave the numbers to other trials.
    let planned: HashMap<u32, String> =
        plan.trials.iter().map(|trial| (trial.number, trial.slug())).collect();
    if let Some((_, slug)) = there.iter().find(|(number, slug)| planned.get(number) != Some(slug)) {
        return Err(RunnerError::OtherOrder { path: path.into(), slug: slug.clone() });
    }
    Ok(Resumed { writer, study, plan, stacks: header.stacks, reached, failed_before })
}

impl Resumed {
    /// Runs what is missing.
    ///
    /// # Errors
    /// [`RunnerError`]; finished trials are kept.
    pub fn go_on(
        self,
        options: &Options<'_>,
        watcher: &mut dyn Watcher,
    ) -> Result<RunEnd, RunnerError> {
        let automatic = parent_of(self.writer.path());
        let confirmed = &options.confirmed;
        let targets = Targets::check(
            &self.study,
            &self.plan,
            options.journal,
            &automatic,
            (confirmed, options.here.as_ref()),
        )?;
        self.same_hosts(&targets)?;
        let planned = (&self.study, &self.plan);
        let mut runner = Runner::new(planned, options, targets, (self.writer, self.stacks));
        (runner.reached, runner.failed_before) = (self.reached, self.failed_before);
        runner.run(watcher)
    }
}

impl Resumed {
    /// Refuses to predict one part of a run on one host and the rest on another.
    fn same_hosts(&self, targets: &Targets<'_>) -> Result<(), RunnerError> {
        for stack in &self.study.stack {
            let begun = self.stacks.iter().find(|record| record.name == stack.name);
            // Older runs do not say.
            let begun = begun.filter(|record| !record.host_times.is_empty());
            let (Some(begun), Some(model)) = (begun, targets.model(stack)) else { continue };
            let cores = Some((model.host.cores, model.host.siblings));
            if begun.host_times != model.host.times() || begun.host_cores != cores {
                return Err(RunnerError::Environment {
                    stack: stack.name.clone(),
                    reason:
                        "this run was begun on another host or before `crosspoint calibrate`: its \
                             predictions would be of two hosts"
                            .into(),
                    next: "crosspoint run STUDY, anew".into(),
                });
            }
        }
        Ok(())
    }
}

/// Runs a study from its text.
///
/// # Errors
/// [`RunnerError`]; trials that were finished before are kept.
pub fn execute(
    text: &str,
    options: &Options<'_>,
    watcher: &mut dyn Watcher,
) -> Result<RunEnd, RunnerError> {
    let study = parse(text)?;
    let (plan, left_out) = possible(&study, plan(&study));
    let skipped: Vec<String> = plan.skipped.iter().map(skip_text).collect();
    if plan.trials.is_empty() {
        return Err(RunnerError::NothingToRun(skipped));
    }
    let now = jiff::Zoned::now();
    let named = named(&study.name, &now);
    let path = options.out.clone().unwrap_or_else(|| free_name(Path::new(RUNS), &named));
    if path.join("run.json").exists() {
        return Err(RunnerError::OutputExists(path));
    }
    let automatic = parent_of(&path);
    check_before_making(&path)?;
    options.journal.prepare()?;
    std::fs::create_dir_all(&automatic).map_err(stack::StackError::io("create", &automatic))?;
    let confirmed = &options.confirmed;
    let targets = Targets::check(
        &study,
        &plan,
        options.journal,
        &automatic,
        (confirmed, options.here.as_ref()),
    )?;
    let header = RunHeader {
        format: FORMAT,
        study: study.name.clone(),
        started: now.strftime("%Y-%m-%d %H:%M:%S %Z").to_string(),
        provenance: Provenance::read(options.version, options.build),
        stacks: targets.records(&study, Seed(u64::from(study.seed))),
        trials_planned: u32::try_from(plan.trials.len()).unwrap_or(u32::MAX),
        skipped,
        left_out,
        sums: true,
    };
    let writer = RunWriter::create(&path, text, &study, &header)?;
    Runner::new((&study, &plan), options, targets, (writer, header.stacks)).run(watcher)
}

fn skip_text(skip: &study::Skip) -> String {
    format!("{} on {}: {}", skip.experiment, skip.stack, skip.reason)
}

/// Where runs are, unless the user says so.
const RUNS: &str = "runs";

/// The folder that a run of `study` gets where the user names none.
#[must_use]
pub fn default_folder(study: &str) -> PathBuf {
    free_name(Path::new(RUNS), &named(study, &jiff::Zoned::now()))
}

fn named(study: &str, at: &jiff::Zoned) -> String {
    format!("{study}-{}", at.strftime("%Y%m%d-%H%M%S"))
}

/// A name in `dir` that nothing has yet: two runs may begin in one second.
fn free_name(dir: &Path, name: &str) -> PathBuf {
    let numbered = (2..).map(|number| dir.join(format!("{name}-{number}")));
    let mut names = std::iter::once(dir.join(name)).chain(numbered);
    names.find(|path| !path.exists()).unwrap_or_else(|| dir.join(name))
}

/// The directory that a run folder is in.
fn parent_of(run: &Path) -> PathBuf {
    match run.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

impl<'a> Runner<'a> {
    fn run(mut self, watcher: &mut dyn Watcher) -> Result<RunEnd, RunnerError> {
        let _ = self.options.run.set(self.writer.path().to_owned());
        let plan = self.plan;
        let missing: Vec<&Trial> =
            plan.trials.iter().filter(|trial| !self.writer.has(trial.number)).collect();
        let mut left: f64 = missing.iter().map(|trial| trial_seconds(trial)).sum();
        let whole = estimate(self.study, plan).seconds;
        let prepare = whole - plan.trials.iter().map(trial_seconds).sum::<f64>();
        let done = u32::try_from(plan.trials.len() - missing.len()).unwrap_or(u32::MAX);
        let (folder, study) = (self.writer.path().to_owned(), self.study);
        let seconds = left + prepare;
        watcher.event(&Event::Started { folder: &folder, study, plan, done, seconds });
        let mut ending = if self.failed_before { Ending::Failed } else { Ending::Complete };
        let mut ran = 0;
        for trial in missing {
            // What a race has given is recorded, also when it was stopped.
            if self.stopping() && !self.raced.contains_key(&trial.number) {
                ending = Ending::Interrupted;
                if self.raced.is_empty() {
                    break;
                }
                continue;
            }
            ran += 1;
            self.began = Instant::now();
            let outcome = match self.offered(trial, watcher) {
                Err(error) => Some(self.not_attached(error)?),
                Ok(outcome) => outcome,
            };
            left -= trial_seconds(trial);
            // Its server and its file system were taken away under it: that is no failure of theirs.
            let outcome = outcome.filter(|_| !self.options.abort.load(Ordering::SeqCst));
            let Some(record) = outcome.and_then(|outcome| self.record(trial, outcome)) else {
                ending = Ending::Interrupted;
                if self.raced.is_empty() {
                    break;
                }
                continue;
            };
            if record.outcome == TrialOutcome::Failed && ending == Ending::Complete {
                ending = Ending::Failed;
            }
            self.writer.write_trial(&record)?;
            self.reached.note(&record);
            watcher.event(&Event::TrialEnded {
                trial,
                headline: &self.headline(trial, &record),
                took: self.began.elapsed(),
                seconds_left: left.max(0.0),
            });
            for note in record.result.said() {
                watcher.event(&Event::Note(&note));
            }
            if record.outcome == TrialOutcome::Partial {
                ending = Ending::Interrupted;
                if self.raced.is_empty() {
                    break;
                }
            }
        }
        // Nothing else was planned: there is nothing to show.
        if self.refused.len() == plan.trials.len()
            && let Some(error) = self.refused.pop()
        {
            return Err(error);
        }
        let asks = self.study.experiment.iter().any(|one| !one.objectives.is_empty());
        Ok(RunEnd { path: self.writer.path().to_owned(), ending, ran, asks })
    }

    /// The result of a trial in one line; a prediction with what it is worth.
    fn headline(&self, trial: &Trial, record: &TrialRecord) -> String {
        let stack = self.stacks.iter().find(|stack| stack.name == record.stack);
        match stack.filter(|_| record.source == Source::Predicted) {
            Some(stack) => {
                let worth = match record.result.is_host_bound() {
                    true => Worth::HostBound,
                    false => analysis::worth_of(stack, self.study, trial, "iops"),
                };
                format!("{} (predicted; rate: {})", headline(record), worth.brief())
            }
            None => headline(record),
        }
    }

    /// The result of a trial whose emulated drive could not be attached: it has failed, others go on. Any
    /// other error ends the run.
    pub(crate) fn not_attached(&mut self, error: RunnerError) -> Result<TrialResult, RunnerError> {
        let RunnerError::NotAttached { device, reason, next } = &error else { return Err(error) };
        let failure = Some(format!("{device} is {reason}; next: {next}"));
        self.refused.push(error);
        Ok(TrialResult { failure, ..TrialResult::default() })
    }

    /// Runs one trial at the rate that it is to be offered; without one it has failed, and others go on.
    fn offered(
        &mut self,
        trial: &Trial,
        watcher: &mut dyn Watcher,
    ) -> Result<Option<TrialResult>, RunnerError> {
        let (known, offered) = match self.reached.offer(self.plan, trial) {
            Ok(known) => known,
            Err(reason) => {
                return Ok(Some(TrialResult { failure: Some(reason), ..TrialResult::default() }));
            }
        };
        let mut watching = CountingAnew::new(watcher, self.targets.servers.clone());
        let outcome = self.trial(&known, &mut watching)?;
        Ok(outcome.map(|mut outcome| {
            outcome.notes.extend(offered);
            self.add_served(&trial.stack, &mut outcome);
            outcome
        }))
    }

    /// Runs one trial; `None` when it was stopped before anything was recorded.
    fn trial(
        &mut self,
        trial: &Trial,
        watcher: &mut dyn Watcher,
    ) -> Result<Option<TrialResult>, RunnerError> {
        if let Some(result) = self.raced.remove(&trial.number) {
            return Ok(Some(result));
        }
        let (stack, experiment, seed) = self.parts(trial);
        let execution = trial.execution();
        if execution != Execution::Race {
            watcher.event(&Event::TrialStarted { trial });
        }
        match (execution, &trial.job) {
            (Execution::Virtual, _) => self.predicted(trial, stack),
            (Execution::Race, _) => {
                let Some(results) = self.race(trial, watcher)? else { return Ok(None) };
                self.raced.extend(results);
                Ok(self.raced.remove(&trial.number))
            }
            (_, Job::Sql(job)) => {
                self.sql(SqlTrial { stack, experiment, trial, job, seed }, watcher)
            }
            (_, Job::Kv(job)) => self.kv(stack, experiment, (trial, job), seed, watcher),
            (_, Job::Block(_) | Job::Act(_)) => self.block(stack, experiment, trial, seed, watcher),
        }
    }

    /// Adds what an emulated drive has delivered; what serving it took is nobody else's.
    fn add_served(&self, stack: &str, outcome: &mut TrialResult) {
        outcome.served = self.targets.served(stack);
        let faults = |own: &&Stack| own.name == stack && own.faults.is_some();
        if self.study.stack.iter().any(|own| faults(&own)) {
            outcome.notes.push("with planned faults of the emulated drive".into());
        }
        let Some(served) = outcome.served else {
            if self.targets.is_emulated(stack) {
                outcome.notes.push("what the emulated drive delivered is not known".into());
            }
            return;
        };
        let own = served.cpu_share / f64::from(observe::cpus().max(1));
        outcome.limits = outcome.limits.iter().filter_map(|limit| limit.without(own)).collect();
    }

    /// A trial in virtual time, with others that are still to come beside it.
    fn predicted(
        &mut self,
        trial: &Trial,
        stack: &Stack,
    ) -> Result<Option<TrialResult>, RunnerError> {
        let model_of = |stack: &Stack| self.targets.model(stack);
        let others = |other: &Trial| {
            let stack = self.study.stack.iter().find(|stack| stack.name == other.stack)?;
            let of = model_of(stack)?;
            (!self.writer.has(other.number)).then_some((stack, of))
        };
        let refused = |reason| RunnerError::Environment {
            stack: stack.name.clone(),
            reason,
            next: "crosspoint plan STUDY".into(),
        };
        let of = model_of(stack).ok_or_else(|| refused("it is no device model".into()))?;
        let of = (trial, stack, of);
        let result = self.ahead.take((self.study, self.plan), of, &others, self.options.stop);
        result.map_err(refused)
    }
}
