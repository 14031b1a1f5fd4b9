//! Running a plan: each trial prepared, run, observed and made durable before the next.
//!
//! Invariants: a trial that is in the archive is never run again; on every way out the undo journal
//! is played. What it is not: parallel; trials would disturb each other.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use archive::{FORMAT, Keeper, RunHeader, RunWriter, StackRecord, TrialOutcome, TrialRecord};
use block::OwnCost;
use observe::{BlockDevice, Provenance};
use stack::{Journal, check_directory};
use stats::{DiskCounters, TrialResult};
use study::{DeviceName, Experiment, Job, Plan, Source, Stack, Study, Trial, parse, plan};
use units::{Bytes, Nanos, Seed};
use worker::Waiting;

use crate::ahead::{Ahead, seed_of};
use crate::devices::{Opened, Targets};
use crate::estimate::{deadline, estimate, fill_seconds, trial_seconds};
use crate::reached::Reached;
use crate::record::headline;
use crate::servers::Loaded;
use crate::sql_trial::SqlTrial;
use crate::watch::{Event, Watcher};
use crate::watched::{Overdue, watched};
use crate::{RunnerError, measured};

/// Trials that are planned to run for so long are kept in a journal; shorter ones are repeated.
const JOURNALED: Nanos = Nanos::from_secs(60);

/// What the caller decides about a run.
#[derive(Debug)]
pub struct Options<'a> {
    /// Run folder to make; `runs/STUDY-TIME` when none.
    pub out: Option<PathBuf>,
    /// Identities of the devices whose data may be lost.
    pub confirmed: Vec<String>,
    /// Where undo journals are kept.
    pub journal: &'a Journal,
    /// Version of the program.
    pub version: &'a str,
    /// How it was built.
    pub build: &'a str,
    /// Set from outside to stop at the end of the current interval.
    pub stop: &'a AtomicBool,
    /// Set from outside before everything is undone under a trial: what it gives then is not recorded.
    pub abort: &'a AtomicBool,
    /// Called when a trial neither ends nor can be ended, as on a device that does not answer; ends the
    /// program.
    pub give_up: fn(&Journal, &str),
}

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
}

/// A run folder that was opened to go on with.
#[derive(Debug)]
pub struct Resumed {
    writer: RunWriter,
    study: Study,
    plan: Plan,
    stacks: Vec<StackRecord>,
}

/// Opens a run folder to go on with it; `again`: failed trials run again.
///
/// # Errors
/// When it is no run, is damaged beyond its trials, or belongs to another plan.
pub fn resume(path: &Path, again: bool) -> Result<Resumed, RunnerError> {
    if path.is_dir() {
        check_directory(path)?;
    }
    let (writer, header, study) = RunWriter::resume(path, again)?;
    let plan = plan(&study);
    let now = u32::try_from(plan.trials.len()).unwrap_or(u32::MAX);
    if header.trials_planned != now {
        let planned = header.trials_planned;
        return Err(RunnerError::OtherPlan { path: path.into(), planned, now });
    }
    Ok(Resumed { writer, study, plan, stacks: header.stacks })
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
        let targets =
            Targets::check(&self.study, &self.plan, options.journal, &automatic, confirmed)?;
        let finished = archive::Run::read(self.writer.path())?;
        let planned = (&self.study, &self.plan);
        let mut runner = Runner::new(planned, options, targets, (self.writer, self.stacks));
        finished.trials.iter().for_each(|trial| runner.reached.note(trial));
        runner.failed_before =
            finished.trials.iter().any(|trial| trial.outcome == TrialOutcome::Failed);
        runner.run(watcher)
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
    let plan = plan(&study);
    let now = jiff::Zoned::now();
    let named = format!("{}-{}", study.name, now.strftime("%Y%m%d-%H%M%S"));
    let path = options.out.clone().unwrap_or_else(|| free_name(Path::new("runs"), &named));
    if path.join("run.json").exists() {
        return Err(RunnerError::OutputExists(path));
    }
    let automatic = parent_of(&path);
    std::fs::create_dir_all(&automatic).map_err(stack::StackError::io("create", &automatic))?;
    check_directory(if path.is_dir() { &path } else { &automatic })?;
    let confirmed = &options.confirmed;
    let targets = Targets::check(&study, &plan, options.journal, &automatic, confirmed)?;
    let skip =
        |skip: &study::Skip| format!("{} on {}: {}", skip.experiment, skip.stack, skip.reason);
    let header = RunHeader {
        format: FORMAT,
        study: study.name.clone(),
        started: now.strftime("%Y-%m-%d %H:%M:%S %Z").to_string(),
        provenance: Provenance::read(options.version, options.build),
        stacks: targets.records(&study, Seed(u64::from(study.seed))),
        trials_planned: u32::try_from(plan.trials.len()).unwrap_or(u32::MAX),
        skipped: plan.skipped.iter().map(skip).collect(),
        sums: true,
    };
    let writer = RunWriter::create(&path, text, &study, &header)?;
    Runner::new((&study, &plan), options, targets, (writer, header.stacks)).run(watcher)
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

/// Time that a trial has to stop in, besides two intervals: an engine writes what it holds.
const STOP_GRACE: Duration = Duration::from_secs(15);

pub(crate) struct Runner<'a> {
    study: &'a Study,
    pub(crate) plan: &'a Plan,
    pub(crate) options: &'a Options<'a>,
    pub(crate) targets: Targets<'a>,
    pub(crate) writer: RunWriter,
    /// What the header says of the stacks.
    stacks: Vec<StackRecord>,
    /// Our own cost an operation, measured before the first block trial.
    own_cost: Option<OwnCost>,
    /// When the trial that is going on began; the racers of a race begin together.
    began: Instant,
    /// Trials failed before this run was resumed.
    failed_before: bool,
    /// Rates that finished trials reached.
    reached: Reached,
    /// Predictions that were made before their turn.
    ahead: Ahead,
    /// Tables that SQL trials left, by stack.
    pub(crate) loaded: BTreeMap<String, Loaded>,
    /// Outcomes of races whose turn is still to come, by the trial's number.
    raced: BTreeMap<u32, TrialResult>,
}

impl<'a> Runner<'a> {
    fn new(
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
        }
    }

    fn run(mut self, watcher: &mut dyn Watcher) -> Result<RunEnd, RunnerError> {
        let plan = self.plan;
        let missing: Vec<&Trial> =
            plan.trials.iter().filter(|trial| !self.writer.has(trial.number)).collect();
        let mut left: f64 = missing.iter().map(|trial| trial_seconds(trial)).sum();
        let whole = estimate(self.study, plan).seconds;
        let prepare = whole - plan.trials.iter().map(trial_seconds).sum::<f64>();
        let done = u32::try_from(plan.trials.len() - missing.len()).unwrap_or(u32::MAX);
        watcher.event(&Event::Started { plan, done, seconds: left + prepare });
        let mut ending = if self.failed_before { Ending::Failed } else { Ending::Complete };
        let mut ran = 0;
        for trial in missing {
            if self.stopping() {
                ending = Ending::Interrupted;
                break;
            }
            ran += 1;
            self.began = Instant::now();
            let (known, offered) = self.reached.offer(plan, trial)?;
            let outcome = self.trial(&known, watcher)?.map(|mut outcome| {
                outcome.notes.extend(offered);
                outcome
            });
            left -= trial_seconds(trial);
            // Its server and its file system were taken away under it: that is no failure of theirs.
            let outcome = outcome.filter(|_| !self.options.abort.load(Ordering::SeqCst));
            let Some(record) = outcome.and_then(|outcome| self.record(trial, outcome)) else {
                ending = Ending::Interrupted;
                break;
            };
            if record.outcome == TrialOutcome::Failed {
                ending = Ending::Failed;
            }
            self.writer.write_trial(&record)?;
            self.reached.note(&record);
            watcher.event(&Event::TrialEnded {
                trial,
                headline: &self.headline(&record),
                took: self.began.elapsed(),
                seconds_left: left.max(0.0),
            });
            for note in record.result.said() {
                watcher.event(&Event::Note(&note));
            }
            if record.outcome == TrialOutcome::Partial {
                ending = Ending::Interrupted;
                break;
            }
        }
        Ok(RunEnd { path: self.writer.path().to_owned(), ending, ran })
    }

    /// The result of a trial in one line; a prediction with what it is worth.
    fn headline(&self, record: &TrialRecord) -> String {
        let stack = self.stacks.iter().find(|stack| stack.name == record.stack);
        match stack.filter(|_| record.source == Source::Predicted) {
            Some(stack) => {
                format!("{} (predicted, {})", headline(record), stack.worth(&record.point).1)
            }
            None => headline(record),
        }
    }

    pub(crate) fn stopping(&self) -> bool {
        self.options.stop.load(Ordering::Relaxed)
    }

    /// The journal of a trial that runs for so long that a kill must not lose it.
    pub(crate) fn begin_journal(&self, trial: &Trial) -> Result<Option<PathBuf>, RunnerError> {
        if trial.timeline.end() < JOURNALED {
            return Ok(None);
        }
        let known = self.known(trial, TrialResult::default(), TrialOutcome::Partial);
        Ok(Some(self.writer.begin_trial(&known)?))
    }

    /// When the process of a trial is ended that does not end.
    pub(crate) fn waiting(&self, trial: &Trial, experiment: &Experiment) -> Waiting<'a> {
        let interval = Duration::from(trial.timeline.interval);
        Waiting {
            stop: self.options.stop,
            deadline: deadline(trial, experiment, 0.0).saturating_sub(self.began.elapsed()),
            grace: STOP_GRACE.saturating_add(interval.saturating_mul(2)),
        }
    }

    /// The stack and the experiment of a trial, and its seed.
    pub(crate) fn parts(&self, trial: &Trial) -> (&'a Stack, &'a Experiment, Seed) {
        let study = self.study;
        let by_name = |stack: &&Stack| stack.name == trial.stack;
        let stack = study.stack.iter().find(by_name).expect("invariant: planned stack exists");
        let experiment = study.experiment.iter().find(|one| one.name == trial.experiment);
        let experiment = experiment.expect("invariant: planned experiment exists");
        (stack, experiment, seed_of(study, trial))
    }

    /// Runs one trial; `None` when it was stopped before anything was recorded.
    fn trial(
        &mut self,
        trial: &Trial,
        watcher: &mut dyn Watcher,
    ) -> Result<Option<TrialResult>, RunnerError> {
        let study = self.study;
        if let Some(outcome) = self.raced.remove(&trial.number) {
            return Ok(Some(outcome));
        }
        let (stack, experiment, seed) = self.parts(trial);
        if matches!(&trial.job, Job::Sql(job) if job.race) {
            let Some(outcomes) = self.race(trial, watcher)? else { return Ok(None) };
            self.raced.extend(outcomes);
            return Ok(self.raced.remove(&trial.number));
        }
        watcher.event(&Event::TrialStarted { trial });
        match &trial.job {
            Job::Sql(job) => self.sql(SqlTrial { stack, experiment, trial, job, seed }, watcher),
            Job::Kv(job) => self.kv(stack, experiment, (trial, job), seed, watcher),
            Job::Block(_) | Job::Act(_) => match self.targets.profile(stack) {
                Some(profile) => {
                    let others = |other: &Trial| {
                        let stack = study.stack.iter().find(|stack| stack.name == other.stack)?;
                        let profile = self.targets.profile(stack)?;
                        (!self.writer.has(other.number)).then_some((stack, profile))
                    };
                    let result =
                        self.ahead.take((study, self.plan), (trial, stack, profile), &others);
                    result.map(Some).map_err(|reason| RunnerError::Environment {
                        stack: stack.name.clone(),
                        reason,
                        next: "crosspoint plan STUDY".into(),
                    })
                }
                None => self.block(stack, experiment, trial, seed, watcher),
            },
        }
    }

    fn block(
        &mut self,
        stack: &Stack,
        experiment: &Experiment,
        trial: &Trial,
        seed: Seed,
        watcher: &mut dyn Watcher,
    ) -> Result<Option<TrialResult>, RunnerError> {
        let stop = self.options.stop;
        let mut step = |done: Bytes| {
            watcher.event(&Event::Preparing { stack: &stack.name, done, of: stack.size });
            !stop.load(Ordering::Relaxed)
        };
        let Some(Opened { files, paths }) = self.targets.open(stack, &mut step)? else {
            return Ok(None);
        };
        let devices: Vec<BlockDevice> =
            paths.iter().filter_map(|path| BlockDevice::under(path)).collect();
        let own_cost = *self.own_cost.get_or_insert_with(block::own_cost);
        let ledger = self.writer.path().join(format!("{}.ledger", trial.slug()));
        let fills = match &trial.job {
            Job::Block(job) => job.precondition.map_or(0, |wanted| wanted.fills),
            Job::Act(job) => job.fills,
            Job::Kv(_) | Job::Sql(_) => 0,
        };
        let place = measured::Place {
            stack,
            experiment,
            files,
            fills: if fills > 0 && self.targets.owes_fill(stack) { fills } else { 0 },
            own_cost,
            ledger: &ledger,
            lasting: matches!(stack.device, DeviceName::Paths(_)),
        };
        let (disk, usage) = (counters_of(&devices), observe::usage());
        let prepare = fill_seconds(stack, place.fills);
        let overdue = Overdue {
            after: deadline(trial, experiment, prepare),
            grace: self.waiting(trial, experiment).grace,
            give_up: &|| self.give_up(trial, stack),
        };
        let journal = self.begin_journal(trial)?;
        let keeper = journal.as_deref().map(Keeper::start).transpose()?;
        let keep = keeper.as_ref().map(|keeper| keeper as &dyn observe::Keep);
        let result = watched((self.options.stop, &overdue, keep), trial, watcher, |control| {
            measured::run(place, trial, (seed, control))
        });
        let result = match result {
            Err(RunnerError::WrongBlock(corruption)) => {
                return Err(self.keep_evidence(trial, &corruption));
            }
            other => other?,
        };
        let Some(result) = result else { return Ok(None) };
        Ok(Some(TrialResult {
            usage: Some(observe::usage().since(&usage)),
            disk: difference(disk, counters_of(&devices)),
            ..result
        }))
    }

    /// Records that a trial did not end, and leaves: its threads wait for the device and cannot be ended.
    fn give_up(&self, trial: &Trial, stack: &Stack) {
        let reason = format!("{} does not answer: the trial did not end in its time", stack.name);
        if !self.stopping() {
            let outcome = TrialResult { failure: Some(reason.clone()), ..TrialResult::default() };
            let written =
                self.record(trial, outcome).map(|record| self.writer.write_apart(&record));
            if let Some(Err(error)) = written {
                let said = format!("{reason}; and it could not be recorded: {error}");
                (self.options.give_up)(self.options.journal, &said);
            }
        }
        (self.options.give_up)(self.options.journal, &reason);
    }

    /// Keeps a block that was wrong, and says where.
    fn keep_evidence(&self, trial: &Trial, corruption: &block::Corruption) -> RunnerError {
        let path = self.writer.path().join(format!("evidence-{}.bin", trial.slug()));
        let (trial, reason) = (trial.slug(), corruption.to_string());
        match std::fs::write(&path, &corruption.block) {
            Ok(()) => RunnerError::WrongData { trial, reason, evidence: path },
            Err(error) => stack::StackError::io("keep the evidence in", &path)(error).into(),
        }
    }
}

fn difference(before: Option<DiskCounters>, after: Option<DiskCounters>) -> Option<DiskCounters> {
    Some(after?.since(&before?))
}

/// Sum of the counters of devices; `None` when one of them has none.
fn counters_of(devices: &[BlockDevice]) -> Option<DiskCounters> {
    let counters: Option<Vec<DiskCounters>> = devices.iter().map(BlockDevice::counters).collect();
    let counters = counters.filter(|all| !all.is_empty())?;
    Some(counters.into_iter().fold(DiskCounters::default(), |sum, one| sum.plus(&one)))
}
