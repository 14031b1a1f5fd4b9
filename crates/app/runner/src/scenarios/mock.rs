//! A mock executor: a study, a script of its trials' outcomes, and the resulting run.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use archive::{Run, StackRecord, TrialOutcome};
use observe::Progress;
use stack::{Journal, StackError};
use stats::{Interval, Phase, Recording, Spread, Summary, TrialResult};
use study::{Study, Trial};
use tempfile::TempDir;
use units::{Bytes, Nanos};
use workload::OpClass;

use crate::context::{Execution, Executor, RunContext};
use crate::execute::{execute_on, resume};
use crate::options::Options;
use crate::watch::{Event, Watcher};
use crate::{RunEnd, RunnerError};

/// Outcome of a trial.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Completes with this number of operations.
    Complete(u64),
    /// Ends after half of the measured time.
    Half,
    /// Ends before anything was measured.
    Nothing,
    /// Its target fails, with this reason.
    Fail(&'static str),
    /// It was stopped before anything was recorded.
    Stopped,
    /// Its emulated drive cannot be attached.
    NotAttached,
    /// Finds data that was never written.
    WrongData,
    /// The user stops the run during the trial; then this outcome.
    Stop(Box<Step>),
    /// Everything is undone under the trial; then this outcome.
    Abort(Box<Step>),
    /// Ends together with all others of its race, each by the script.
    Race,
}

/// Ends as planned, with 100 operations.
pub(super) const DONE: Step = Step::Complete(100);

/// A study that is run by a script, in its own folder.
pub(super) struct Scenario {
    dir: TempDir,
    study: String,
    again: bool,
    pub stop: AtomicBool,
    pub abort: AtomicBool,
    pub state: PathBuf,
    pub out: PathBuf,
    /// Why the executor refuses the plan, or to resume a run.
    pub refuses: Option<&'static str>,
}

/// The resulting run.
#[derive(Debug)]
pub(super) struct Came {
    pub end: Result<RunEnd, RunnerError>,
    /// Trials that the executor ran, as `stack/experiment/repetition`.
    pub ran: Vec<String>,
    /// Events that a watcher received, one word each.
    pub events: Vec<String>,
    /// Rates given to block jobs.
    pub rates: Vec<u64>,
}

impl Scenario {
    /// A study with stacks `a` and `b` and one experiment.
    pub fn two_stacks() -> Self {
        Self::of(&study_text(&["a", "b"], &["first"], ""))
    }

    pub fn of(study: &str) -> Self {
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let dir = dir.expect("a scratch directory");
        Self {
            study: study.to_owned(),
            again: false,
            stop: AtomicBool::new(false),
            abort: AtomicBool::new(false),
            state: dir.path().join("state"),
            out: dir.path().join("runs/run"),
            refuses: None,
            dir,
        }
    }

    /// Also repeats failed trials when it resumes.
    pub fn repeating_failed(mut self) -> Self {
        self.again = true;
        self
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Runs the study; `script` gives the outcome of each trial.
    pub fn run(&self, script: impl FnMut(&Trial) -> Step) -> Came {
        self.play(script, |mock, options, watcher| {
            execute_on(&self.study, options, watcher, |_, _, _| match self.refuses {
                Some(reason) => Err(refusal(reason)),
                None => Ok(Box::new(mock)),
            })
        })
    }

    /// Resumes the run.
    pub fn resume(&self, script: impl FnMut(&Trial) -> Step) -> Came {
        self.stop.store(false, Ordering::Relaxed);
        self.abort.store(false, Ordering::Relaxed);
        self.play(script, |mut mock, options, watcher| {
            resume(&self.out, self.again)?.on(&mut mock, options, watcher)
        })
    }

    fn play<'s, S: FnMut(&Trial) -> Step + 's>(
        &'s self,
        script: S,
        go: impl FnOnce(Mock<'s, S>, &Options<'_>, &mut Watching<'_>) -> Result<RunEnd, RunnerError>,
    ) -> Came {
        let journal = Journal::new(&self.state, |_, _, _| Ok(()));
        let folder = Mutex::new(None);
        let options = Options {
            only: None,
            load_generators: Vec::new(),
            out: Some(self.out.clone()),
            confirmed: Vec::new(),
            here: None,
            noise: Default::default(),
            own_disk: Default::default(),
            journal: &journal,
            version: "0",
            build: "test",
            run: &folder,
            stop: &self.stop,
            abort: &self.abort,
            guard: || None,
            give_up: |_, reason| panic!("given up: {reason}"),
        };
        // The executor is moved into the run; the log is not.
        let log = Rc::<RefCell<Log>>::default();
        let mock = Mock { scenario: self, script, log: Rc::clone(&log) };
        let mut events = Vec::new();
        let end = go(mock, &options, &mut Watching(&mut events));
        if let Ok(end) = &end {
            assert_eq!(
                folder.lock().unwrap().as_ref(),
                Some(&end.path),
                "whoever leaves knows where the run is"
            );
        }
        let Log { ran, rates } = log.take();
        Came { end, ran, events, rates }
    }

    /// The run, read back.
    pub fn read(&self) -> Run {
        Run::read(&self.out, engines::list()).expect("the run reads")
    }

    /// Numbers and outcomes of the trials in the archive.
    pub fn outcomes(&self) -> Vec<(u32, TrialOutcome)> {
        self.read().trials.iter().map(|trial| (trial.number, trial.outcome)).collect()
    }

    /// Why a trial in the archive failed.
    pub fn failure(&self, number: u32) -> String {
        let trials = self.read().trials;
        let trial = trials.into_iter().find(|trial| trial.number == number).expect("a trial");
        trial.result.failure.unwrap_or_default()
    }
}

/// A study of predicted block jobs with 100 ms of measured time; `more` is added to each experiment.
pub(super) fn study_text(stacks: &[&str], experiments: &[&str], more: &str) -> String {
    let mut text = "schema = 1\nname = \"s\"\n".to_owned();
    for stack in stacks {
        text.push_str(&format!("[[stack]]\nname = \"{stack}\"\ndevice = \"file\"\n"));
    }
    for experiment in experiments {
        text.push_str(&format!(
            "[[experiment]]\nname = \"{experiment}\"\nwarm_up = \"0s\"\nmeasure = \"100ms\"\n\
             interval = \"10ms\"\n{more}\n[experiment.block]\n"
        ));
    }
    text
}

/// A race of a SQL job on these stacks.
pub(super) fn race_text(stacks: &[&str]) -> String {
    let text = study_text(stacks, &["race"], "repeat = 2");
    text.replace(
        "[experiment.block]\n",
        "[experiment.sql]\nrows = 100\ntables = 1\nthreads = 1\nrace = true\ntransactions = 1000\n",
    )
}

pub(super) fn refusal(reason: &str) -> RunnerError {
    let (device, reason, next) = ("d".to_owned(), reason.to_owned(), "next".to_owned());
    StackError::refused(&device, reason, next).into()
}

#[derive(Debug, Default)]
struct Log {
    ran: Vec<String>,
    rates: Vec<u64>,
}

struct Mock<'s, S> {
    scenario: &'s Scenario,
    script: S,
    log: Rc<RefCell<Log>>,
}

impl<S: FnMut(&Trial) -> Step> Mock<'_, S> {
    fn execution(
        &mut self,
        step: Step,
        run: RunContext<'_>,
        trial: &Trial,
    ) -> Result<Execution, RunnerError> {
        let ended = |result| Ok(Execution::Ended(Box::new(result)));
        match step {
            Step::Complete(ops) => ended(measured(trial.timeline.measure, ops)),
            Step::Half => ended(measured(Nanos(trial.timeline.measure.get() / 2), 50)),
            Step::Nothing => ended(TrialResult::default()),
            Step::Fail(reason) => {
                let part = measured(Nanos(trial.timeline.measure.get() / 2), 50);
                ended(TrialResult { failure: Some(reason.to_owned()), ..part })
            }
            Step::Stopped => Ok(Execution::Stopped),
            Step::NotAttached => Err(RunnerError::NotAttached {
                device: "model:x".into(),
                reason: "too fast".into(),
                next: "scale".into(),
                scale: None,
            }),
            Step::WrongData => Err(RunnerError::WrongData {
                trial: trial.slug(),
                reason: "block 7".into(),
                evidence: PathBuf::from("evidence"),
            }),
            Step::Stop(step) => {
                self.scenario.stop.store(true, Ordering::Relaxed);
                self.execution(*step, run, trial)
            }
            Step::Abort(step) => {
                self.scenario.stop.store(true, Ordering::Relaxed);
                self.scenario.abort.store(true, Ordering::SeqCst);
                self.execution(*step, run, trial)
            }
            Step::Race => {
                let racers = run.plan.trials.iter().filter(|one| trial.races_with(one));
                let mut results = Vec::new();
                for racer in racers.filter(|one| !run.archive.has(one.number)) {
                    let step = (self.script)(racer);
                    let step = if matches!(step, Step::Race) { DONE } else { step };
                    match self.execution(step, run, racer) {
                        Ok(Execution::Ended(result)) => results.push((racer.number, Ok(*result))),
                        Ok(_) => {}
                        Err(error @ RunnerError::NotAttached { .. }) => {
                            results.push((racer.number, Err(error)));
                        }
                        Err(error) => return Err(error),
                    }
                }
                let stopped = results.is_empty();
                Ok(if stopped { Execution::Stopped } else { Execution::Together(results) })
            }
        }
    }
}

impl<S: FnMut(&Trial) -> Step> Executor for Mock<'_, S> {
    fn run(
        &mut self,
        run: RunContext<'_>,
        trial: &Trial,
        watcher: &mut dyn Watcher,
    ) -> Result<Execution, RunnerError> {
        {
            let mut log = self.log.borrow_mut();
            log.ran.push(format!("{}/{}/{}", trial.stack, trial.experiment, trial.repetition));
            if let study::Job::Block(job) = &trial.job {
                log.rates.push(job.rate().get());
            }
        }
        watcher.event(&Event::Preparing { stack: &trial.stack, done: Bytes(1), of: Bytes(2) });
        watcher.event(&Event::Interval { trial, progress: &progress() });
        let step = (self.script)(trial);
        self.execution(step, run, trial)
    }

    fn stack_records(&self, study: &Study) -> Vec<StackRecord> {
        let record =
            |stack: &study::Stack| StackRecord { name: stack.name.clone(), ..Default::default() };
        study.stack.iter().map(record).collect()
    }

    fn check_resume(&self, _: &Study, begun: &[StackRecord]) -> Result<(), RunnerError> {
        assert!(!begun.is_empty(), "the header's stacks are compared");
        self.scenario.refuses.map_or(Ok(()), |reason| Err(refusal(reason)))
    }
}

/// An interval that a client has finished.
fn progress() -> Progress {
    let (end, spread) = (Nanos(1), Spread::default());
    let (ops, latency_sum) = (1, Nanos(1));
    let summary = Summary { phase: Phase::Measure, end, seconds: 1.0, ops, latency_sum, spread };
    Progress { client: 0, summary }
}

/// A recording of `ops` reads in `time`.
fn measured(time: Nanos, ops: u64) -> TrialResult {
    let mut interval = Interval::empty(Phase::Measure, Nanos::ZERO, time);
    interval.tallies.of(OpClass::Read).counts.ops = ops;
    interval.tallies.of(OpClass::Transaction).counts.ops = ops;
    let recording = Recording { intervals: vec![interval], ..Recording::default() };
    TrialResult { recording, ..TrialResult::default() }
}

struct Watching<'a>(&'a mut Vec<String>);

impl Watcher for Watching<'_> {
    fn event(&mut self, event: &Event<'_>) {
        self.0.push(match event {
            Event::Started { done, seconds, .. } => {
                assert!(*seconds >= 0.0, "{seconds}");
                format!("started {done}")
            }
            Event::Preparing { .. } => "preparing".into(),
            Event::TrialStarted { trial } => format!("begin {}", trial.number),
            Event::Loading { .. } => "loading".into(),
            Event::Interval { trial, .. } => format!("interval {}", trial.number),
            Event::TrialEnded { trial, headline, seconds_left, .. } => {
                let said = if *headline == "failed" { " failed" } else { "" };
                format!("end {}{said} left {seconds_left:.1}", trial.number)
            }
            Event::Note(note) => format!("note {note}"),
        });
    }
}
