//! The client loop on a scripted session: every engine inherits what it does wrong.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use crosspoint_engine::{
    Completion, Ended, EngineError, ErrorKind, Finished, Seat, Session, Setting, Starter, Submit,
    TrialSpec, Wait, drive, run_clients,
};
use observe::Control;
use stats::Timeline;
use units::Nanos;
use workload::{Client, Issue, KvAction, KvOp, OpClass, OpId, Outcome, Step, Workload};

/// Issues this many operations, this many at a time, and notes how they ended.
#[derive(Debug)]
struct Counted {
    left: u32,
    free: Vec<u32>,
    depth: usize,
}

impl Counted {
    fn client(operations: u32, depth: u32) -> Client<Self> {
        let workload = Self { left: operations, free: (0..depth).collect(), depth: depth as usize };
        Client { workload, classes: vec![OpClass::Read], open_loop: false, recorded: true }
    }
}

impl Workload for Counted {
    type Op = KvOp;

    fn next(&mut self, now: Nanos) -> Step<KvOp> {
        if self.left == 0 {
            let done = self.free.len() == self.depth;
            return if done { Step::Finished } else { Step::WaitCompletion };
        }
        let Some(id) = self.free.pop() else { return Step::WaitCompletion };
        self.left -= 1;
        let (class, action) = (OpClass::Read, KvAction::Get);
        let op = KvOp { class, action, record: u64::from(self.left), generation: 0 };
        Step::Issue(Issue { id: OpId(id), op, intended: now })
    }

    fn completed(&mut self, id: OpId, _: Outcome, _: Nanos) {
        assert!(!self.free.contains(&id.0), "each operation is reported once");
        self.free.push(id.0);
    }
}

/// Answers from a script, later if it has room for more than one.
struct Scripted {
    room: usize,
    flight: VecDeque<OpId>,
    answers: Box<dyn FnMut() -> Ended + Send>,
}

impl Scripted {
    fn new(room: usize, answers: impl FnMut() -> Ended + Send + 'static) -> Self {
        Self { room, flight: VecDeque::new(), answers: Box::new(answers) }
    }
}

impl Session for Scripted {
    type Op = KvOp;

    fn capacity(&self) -> usize {
        8
    }

    fn submit(&mut self, issue: &Issue<KvOp>) -> Submit {
        if self.room == 0 {
            return Submit::Done((self.answers)());
        }
        if self.flight.len() == self.room {
            return Submit::Full;
        }
        self.flight.push_back(issue.id);
        Submit::Queued
    }

    fn poll(&mut self, _: Wait, done: &mut Vec<Completion>) -> Result<(), EngineError> {
        let id = self.flight.pop_front().expect("something is in flight");
        done.push(Completion { id, ended: (self.answers)() });
        Ok(())
    }
}

fn spec() -> TrialSpec {
    let measure = Nanos::from_secs(3600);
    let timeline = Timeline { warm_up: Nanos::ZERO, measure, interval: Nanos::from_millis(10) };
    TrialSpec { timeline, stop_on_error: false, failures_max: None, max_lag: None }
}

type Outcomes = Result<Finished<()>, EngineError>;

/// Runs one client of `operations` at depth 4 on a session.
fn one(spec: &TrialSpec, operations: u32, session: Scripted) -> Outcomes {
    let stop = AtomicBool::new(false);
    let control = Control { stop: &stop, progress: None, keep: None };
    let setting = Setting { spec, control: &control, ready: &|| (), watch: None };
    let body = move |seat: Seat<'_>| {
        let mut session = session;
        Ok((drive(seat, &mut session, Counted::client(operations, 4))?, ()))
    };
    run_clients(setting, vec![Starter { body, background: false, recorded: true }])
}

fn counts(finished: &Finished<()>) -> (u64, u64) {
    let all = &finished.result.recording.intervals;
    let ops = all.iter().map(|one| one.counts().ops).sum();
    (ops, finished.result.recording.errors())
}

/// Rates would be wrong by what is lost or counted twice, whichever way an engine answers.
#[test]
fn every_operation_is_counted_once_whether_it_ends_at_once_later_or_finds_no_room() {
    for room in [0, 1, 3, 8] {
        let finished = one(&spec(), 1000, Scripted::new(room, || Ok(7))).unwrap();
        assert_eq!(counts(&finished), (1000, 0), "room {room}");
        assert_eq!(finished.result.failure, None);
        let bytes: u64 =
            finished.result.recording.intervals.iter().map(|one| one.counts().bytes).sum();
        assert_eq!(bytes, 7000);
    }
}

/// An error of `kind` at the tenth operation.
fn tenth(kind: ErrorKind) -> impl FnMut() -> Ended + Send {
    let mut count = 0;
    move || {
        count += 1;
        if count != 10 {
            return Ok(0);
        }
        Err(match kind {
            ErrorKind::Disconnected => EngineError::disconnected("gone".into()),
            ErrorKind::Corruption => EngineError::corruption(3, "it is missing"),
            kind => EngineError::statement(kind, 1213, "words".into()),
        })
    }
}

/// A deadlock must not end a trial, a lost connection must; wrong data is no result at all.
#[test]
fn the_kind_of_an_error_decides_what_it_means() {
    for room in [0, 4] {
        let run = |spec: &TrialSpec, kind| one(spec, 100, Scripted::new(room, tenth(kind)));
        let retried = run(&spec(), ErrorKind::Retryable).unwrap();
        assert_eq!((counts(&retried), retried.retried), ((99, 1), 1));
        assert_eq!(retried.result.failure, None);
        let failed = run(&spec(), ErrorKind::Failed).unwrap();
        assert_eq!((counts(&failed), failed.retried), ((99, 1), 0), "it continues");
        assert_eq!(failed.result.failure.as_deref(), Some("error 1213: words"));
        let stops = TrialSpec { stop_on_error: true, ..spec() };
        let stopped = run(&stops, ErrorKind::Failed).unwrap();
        assert!(counts(&stopped).0 < 20 && stopped.result.failure.is_some(), "it stops");
        let lost = run(&spec(), ErrorKind::Disconnected).unwrap();
        assert!(counts(&lost).0 < 20, "nothing can be sent over a lost connection");
        let kind = run(&spec(), ErrorKind::Corruption).map(|_| ()).map_err(|error| error.kind());
        assert_eq!(kind, Err(ErrorKind::Corruption));
    }
}

/// A device that fails some operations is what fault studies measure; one that fails all ends them.
#[test]
fn numbered_errors_are_data_unless_they_end_the_trial() {
    let half = || {
        let mut count = 0;
        move || {
            count += 1;
            if count % 2 == 0 { Err(EngineError::Os(5)) } else { Ok(4096) }
        }
    };
    let finished = one(&spec(), 100, Scripted::new(0, half())).unwrap();
    assert_eq!((counts(&finished), finished.result.failure), ((50, 50), None));
    let few = TrialSpec { failures_max: Some(10), ..spec() };
    let finished = one(&few, 100, Scripted::new(0, half())).unwrap();
    assert_eq!(finished.result.recording.errors(), 10);
    let failure = finished.result.failure.unwrap();
    assert!(failure.contains("read at byte 80: Input/output error"), "{failure}");
}

/// A study would hang until its deadline if one client that cannot connect left the others waiting.
#[test]
fn a_client_that_cannot_start_ends_the_trial_of_all() {
    let stop = AtomicBool::new(false);
    let control = Control { stop: &stop, progress: None, keep: None };
    let (spec, started) = (spec(), AtomicBool::new(false));
    let ready = || started.store(true, Ordering::Relaxed);
    let setting = Setting { spec: &spec, control: &control, ready: &ready, watch: None };
    let client = |number: u32| Starter {
        background: false,
        recorded: true,
        body: move |seat: Seat<'_>| {
            if number == 1 {
                return Err(EngineError::refused("no server", "start it"));
            }
            let mut session = Scripted::new(0, || Ok(0));
            Ok((drive(seat, &mut session, Counted::client(u32::MAX, 1))?, ()))
        },
    };
    let error = run_clients(setting, (0..3).map(client).collect()).map(|_| ()).unwrap_err();
    assert_eq!((error.kind(), error.help()), (ErrorKind::Refused, Some("start it")));
    assert!(!started.into_inner(), "nobody is notified that all are connected");
}

/// Background load without an end of its own would run for ever after what is measured.
#[test]
fn background_load_ends_with_the_last_client_of_interest() {
    let stop = AtomicBool::new(false);
    let control = Control { stop: &stop, progress: None, keep: None };
    let spec = spec();
    let setting = Setting { spec: &spec, control: &control, ready: &|| (), watch: None };
    let client = |background: bool| Starter {
        background,
        recorded: !background,
        body: move |seat: Seat<'_>| {
            let operations = if background { u32::MAX } else { 100 };
            let client = Client { recorded: !background, ..Counted::client(operations, 1) };
            Ok((drive(seat, &mut Scripted::new(0, || Ok(0)), client)?, ()))
        },
    };
    let clients = [true, false, false].map(client).into_iter().collect();
    let finished = run_clients(setting, clients).unwrap();
    assert_eq!(counts(&finished), (200, 0), "background load is not recorded");
}

/// Ctrl-C takes effect at the end of an interval, not at the end of the trial.
#[test]
fn a_stop_request_ends_clients_that_have_no_end() {
    let stop = AtomicBool::new(true);
    let control = Control { stop: &stop, progress: None, keep: None };
    let spec = spec();
    let setting = Setting { spec: &spec, control: &control, ready: &|| (), watch: None };
    let body = |seat: Seat<'_>| {
        let mut session = Scripted::new(2, || Ok(0));
        Ok((drive(seat, &mut session, Counted::client(u32::MAX, 4))?, ()))
    };
    let finished =
        run_clients(setting, vec![Starter { body, background: false, recorded: true }]).unwrap();
    assert!(finished.result.recording.intervals.len() <= 2, "one interval, and its rest");
}
