//! The client loop on a scripted session: every engine inherits its bugs.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crosspoint_engine::{
    Completion, Ended, EngineError, ErrorKind, Finished, Seat, Session, Setting, Starter, Submit,
    TrialSpec, Wait, drive, run_clients,
};
use observe::Control;
use stats::{Recorded, Timeline};
use units::Nanos;
use workload::{Client, Issue, KvAction, KvOp, OpClass, OpId, Outcome, SqlOp, Step, Workload};

/// Issues this many operations, a fixed number at a time, and records how they ended.
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

/// A mock session that completes operations as scripted; asynchronously if it has more than one lane.
struct Scripted<Op = KvOp> {
    room: usize,
    flight: VecDeque<OpId>,
    answers: Box<dyn FnMut() -> Ended + Send>,
    op: PhantomData<Op>,
}

impl<Op> Scripted<Op> {
    fn new(room: usize, answers: impl FnMut() -> Ended + Send + 'static) -> Self {
        Self { room, flight: VecDeque::new(), answers: Box::new(answers), op: PhantomData }
    }
}

impl<Op: Recorded> Session for Scripted<Op> {
    type Op = Op;

    fn capacity(&self) -> usize {
        8
    }

    fn submit(&mut self, issue: &Issue<Op>) -> Submit {
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
    alone(spec, Counted::client(operations, 4), session)
}

/// Runs one client on a session.
fn alone<Op, W>(spec: &TrialSpec, client: Client<W>, session: Scripted<Op>) -> Outcomes
where
    Op: Recorded + Send,
    W: Workload<Op = Op> + Send,
{
    let stop = AtomicBool::new(false);
    let control = Control { stop: &stop, progress: None, keep: None };
    let setting = Setting { spec, control: &control, ready: &|| (), watch: None };
    let body = move |seat: Seat<'_>| {
        let mut session = session;
        Ok((drive(seat, &mut session, client)?, ()))
    };
    run_clients(setting, vec![Starter { body, background: false, recorded: true }])
}

fn counts(finished: &Finished<()>) -> (u64, u64) {
    let all = &finished.result.recording.intervals;
    let ops = all.iter().map(|one| one.counts().ops).sum();
    (ops, finished.result.recording.errors())
}

/// Operations that are lost or counted twice would make rates wrong, with synchronous and asynchronous
/// engines alike.
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
        let conflict = run(&spec(), ErrorKind::Retryable).unwrap();
        assert_eq!((counts(&conflict), conflict.retried), ((99, 1), 0), "nobody repeats it");
        assert!(conflict.result.failure.is_some());
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

/// Transactions of one statement, each repeated until it is committed.
struct Statements {
    left: u32,
}

impl Workload for Statements {
    type Op = SqlOp;

    fn next(&mut self, now: Nanos) -> Step<SqlOp> {
        let (class, text) = (OpClass::PointSelect, units::Seed(0));
        let op =
            SqlOp { class, table: 1, row: 1, other: 1, amount: 0, text, first: true, last: true };
        match self.left {
            0 => Step::Finished,
            _ => Step::Issue(Issue { id: OpId(0), op, intended: now }),
        }
    }

    fn completed(&mut self, _: OpId, outcome: Outcome, _: Nanos) {
        self.left -= u32::from(outcome == Outcome::Done);
    }
}

/// A transaction that is retried after a deadlock must not count as failed.
#[test]
fn a_transaction_that_is_retried_has_not_failed() {
    let classes = vec![OpClass::PointSelect, OpClass::Transaction];
    let workload = Statements { left: 99 };
    let client = Client { workload, classes, open_loop: false, recorded: true };
    let session = Scripted::<SqlOp>::new(0, tenth(ErrorKind::Retryable));
    let finished = alone(&spec(), client, session).unwrap();
    assert_eq!((counts(&finished), finished.retried), ((99, 0), 1));
    assert_eq!(finished.result.failure, None);
}

/// Operations scheduled every 0.1 ms, one at a time; the first is issued however late.
struct Scheduled {
    next: u64,
    end: Nanos,
    busy: bool,
}

impl Scheduled {
    fn client(end: Nanos) -> Client<Self> {
        let workload = Self { next: 0, end, busy: false };
        Client { workload, classes: vec![OpClass::Read], open_loop: true, recorded: true }
    }

    fn due(&self) -> Nanos {
        Nanos::from_micros(100 * self.next)
    }
}

impl Workload for Scheduled {
    type Op = KvOp;

    fn next(&mut self, now: Nanos) -> Step<KvOp> {
        let intended = self.due();
        match () {
            () if intended >= self.end || (now >= self.end && self.next > 0) => Step::Finished,
            () if self.busy => Step::WaitCompletion,
            () if intended > now => Step::WaitUntil(intended),
            () => {
                (self.next, self.busy) = (self.next + 1, true);
                let (class, action) = (OpClass::Read, KvAction::Get);
                let op = KvOp { class, action, record: 0, generation: 0 };
                Step::Issue(Issue { id: OpId(0), op, intended })
            }
        }
    }

    fn completed(&mut self, _: OpId, _: Outcome, _: Nanos) {
        self.busy = false;
    }

    fn missed(&mut self, until: Nanos) -> u64 {
        self.end.min(until).get().div_ceil(100_000).saturating_sub(self.next)
    }
}

/// Takes `time` for the operation at index `at`.
fn stall(at: u32, time: Duration) -> impl FnMut() -> Ended + Send {
    let mut count = 0;
    move || {
        let began = Instant::now();
        while count == at && began.elapsed() < time {
            std::hint::spin_loop();
        }
        count += 1;
        Ok(0)
    }
}

/// Counted from its issue, a request that waited behind a stall would look fast (coordinated omission).
#[test]
fn a_stall_is_charged_to_every_operation_that_was_due_in_it() {
    let end = Nanos::from_millis(10);
    for room in [0, 1] {
        let session = Scripted::new(room, stall(0, Duration::from_millis(5)));
        let finished = alone(&spec(), Scheduled::client(end), session).unwrap();
        let recording = finished.result.recording;
        let total = recording.total(Some(OpClass::Read));
        // Those due in the first 4 ms waited for 1 ms at least, or were missed on a busy machine.
        let waited = total.latency.count_between(1_000_000, u64::MAX);
        let missed = recording.missed_arrivals;
        assert!(waited + missed >= 40, "{waited} waited, {missed} missed");
        assert_eq!(total.counts.ops + recording.missed_arrivals, 100, "each is done or missed");
        assert!(total.service.value_at_quantile(0.5) <= total.latency.value_at_quantile(0.5));
    }
}

/// A schedule that falls behind permanently does not offer the requested load and must end the trial.
#[test]
fn an_operation_that_is_issued_too_late_ends_the_trial() {
    let spec = TrialSpec { max_lag: Some(Nanos::from_millis(2)), ..spec() };
    let session = Scripted::new(0, stall(3, Duration::from_millis(20)));
    let finished = alone(&spec, Scheduled::client(Nanos::from_secs(1)), session).unwrap();
    let failure = finished.result.failure.unwrap();
    assert!(failure.contains("the load was not kept up"), "{failure}");
    assert!(finished.result.recording.missed_arrivals > 0);
}

/// Latencies of the warm-up would be mixed into those of the measured time.
#[test]
fn what_was_due_in_the_warm_up_is_carried_and_not_counted() {
    let measure = Nanos::from_secs(3600);
    let timeline =
        Timeline { warm_up: Nanos::from_millis(2), measure, interval: Nanos::from_millis(1) };
    let spec = TrialSpec { timeline, ..spec() };
    // The first is due at 0 ms and ends in the measured time.
    let session = Scripted::new(0, stall(0, Duration::from_millis(5)));
    let finished = alone(&spec, Scheduled::client(Nanos::from_millis(30)), session).unwrap();
    let recording = finished.result.recording;
    assert!(recording.carried[OpClass::Read].counts.ops >= 1);
    let due = recording.due(Some(OpClass::Read)).ops;
    let missed = recording.missed_of(Some(OpClass::Read));
    assert_eq!(due + missed, 280, "from 2.0 to 29.9 ms");
}

/// Data that fails its check is no result, whatever the engine answered.
#[test]
fn data_that_fails_its_check_ends_the_trial() {
    let verified = AtomicBool::new(false);
    let stop = AtomicBool::new(false);
    let control = Control { stop: &stop, progress: None, keep: None };
    let spec = spec();
    let setting = Setting { spec: &spec, control: &control, ready: &|| (), watch: None };
    let body = |seat: Seat<'_>| {
        let mut session = Verified(Scripted::new(0, || Ok(0)), &verified);
        Ok((drive(seat, &mut session, Counted::client(100, 1))?, ()))
    };
    let clients = vec![Starter { body, background: false, recorded: true }];
    let error = run_clients(setting, clients).map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
}

/// A session whose second operation read wrong data.
struct Verified<'a>(Scripted, &'a AtomicBool);

impl Session for Verified<'_> {
    type Op = KvOp;

    fn capacity(&self) -> usize {
        self.0.capacity()
    }

    fn submit(&mut self, issue: &Issue<KvOp>) -> Submit {
        self.0.submit(issue)
    }

    fn poll(&mut self, wait: Wait, done: &mut Vec<Completion>) -> Result<(), EngineError> {
        self.0.poll(wait, done)
    }

    fn verify(&mut self, _: &Issue<KvOp>) -> Result<(), EngineError> {
        match self.1.swap(true, Ordering::Relaxed) {
            false => Ok(()),
            true => Err(EngineError::corruption(3, "it is missing")),
        }
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

/// Background load without an end of its own must end with the measured clients.
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
    // Intervals that pass while the client has no CPU are empty.
    let used = finished.result.recording.intervals.iter();
    let used = used.filter(|one| one.tallies.iter().next().is_some()).count();
    assert!(used <= 2, "{used}: one interval, and its rest");
}
