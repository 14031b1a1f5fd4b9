//! The measured client loop, shared by all engines and workloads.
//!
//! A thread takes operations from its workload, submits them to its session, collects completions and records
//! them. The clock is read once after each synchronous operation and once per batch of completions. Nothing
//! is allocated, locked or logged after warm-up.

use std::sync::atomic::Ordering;

use observe::Clock;
use stats::{Recorded, Recorder, Recording};
use units::Nanos;
use workload::{Client, Issue, Outcome, Step, Workload};

use crate::session::{Completion, Ended, Session, Submit, Wait};
use crate::spent::Reading;
use crate::trial::{ClientEnd, Seat, Trial};
use crate::{EngineError, ErrorKind};

/// Sleeps until shortly before something is due in `left`, at most `interval`; the caller polls the clock for
/// the last `spin`.
fn rest(left: Nanos, interval: Nanos, spin: Nanos) {
    let sleep = left.min(interval);
    if sleep > spin {
        std::thread::sleep((sleep - spin).into());
    } else {
        std::hint::spin_loop();
    }
}

struct Driver<'a, Op: Recorded> {
    trial: &'a Trial<'a>,
    number: u32,
    recorded: bool,
    clock: Clock,
    recorder: Recorder,
    parts: Op::Parts,
    /// A stop was requested; takes effect at the end of an interval.
    stopped: bool,
    failures: u32,
    first_failure: Option<String>,
    /// Wrong data: becomes the result of the trial.
    fatal: Option<EngineError>,
}

/// Runs one client to its end. All clients of a trial start together; see [`Trial`].
///
/// # Errors
/// Corruption, or a session that can no longer collect completions. Failed operations are data, not errors.
pub fn drive<S, W>(
    seat: Seat<'_>,
    session: &mut S,
    client: Client<W>,
) -> Result<ClientEnd<W>, EngineError>
where
    S: Session,
    W: Workload<Op = S::Op>,
{
    let recorder = Recorder::of(&client, seat.trial().spec.timeline);
    let Client { mut workload, classes, recorded, .. } = client;
    let (trial, number, background) = (seat.trial(), seat.number(), seat.is_background());
    let clock = seat.start();
    let usage = observe::thread_usage();
    // One client counts for the server.
    let spent = || if recorded { Reading::of_thread(number == 0) } else { Reading::None };
    let before = spent();
    let mut driver: Driver<'_, S::Op> = Driver {
        trial,
        number,
        recorded,
        clock,
        recorder,
        parts: Default::default(),
        stopped: false,
        failures: 0,
        first_failure: None,
        fatal: None,
    };
    let now = driver.run(session, &mut workload)?;
    // Bounded by operations, and all of them are done.
    let early = !driver.over() && now < trial.spec.timeline.end();
    let busy = observe::thread_usage().since(&usage).cpu().as_secs_f64();
    let busy = busy / now.as_secs_f64().max(1e-9);
    let spent = spent().since(&before);
    let Driver { mut recorder, first_failure: failure, fatal, .. } = driver;
    let shares = recorder.due_shares(&classes);
    if recorded {
        trial.control.leave(&mut recorder, number, now);
    }
    let recording = if early { recorder.finish_early(now) } else { recorder.finish(now) };
    trial.left(background);
    if let Some(fatal) = fatal {
        return Err(fatal);
    }
    let recording = if recorded { recording } else { Recording::default() };
    let workload = recorded.then_some((workload, shares));
    Ok(ClientEnd { recording, failure, workload, at: now, busy, spent })
}

impl<Op: Recorded> Driver<'_, Op> {
    #[inline]
    fn over(&self) -> bool {
        self.stopped || self.trial.is_over()
    }

    /// Ends the intervals that are over by `now`.
    #[inline]
    fn roll(&mut self, now: Nanos) {
        while let Some(summary) = self.recorder.poll(now) {
            let control = self.trial.control;
            control.tell(self.number, summary);
            if self.recorded {
                control.keep(&mut self.recorder, self.number, now);
            }
            self.stopped |= control.stopping();
        }
    }

    /// The loop; returns the time at its end.
    fn run<S, W>(&mut self, session: &mut S, workload: &mut W) -> Result<Nanos, EngineError>
    where
        S: Session<Op = Op>,
        W: Workload<Op = Op>,
    {
        let interval = self.trial.spec.timeline.interval;
        let (capacity, spin) = (session.capacity(), session.spin());
        let mut flight: Vec<Option<(Issue<Op>, Nanos)>> = vec![None; capacity];
        let mut done: Vec<Completion> = Vec::with_capacity(capacity);
        let mut in_flight = 0usize;
        // An operation that the session had no room for.
        let mut held: Option<Issue<Op>> = None;
        let mut now = self.clock.now();
        self.roll(now);
        loop {
            let mut due = None;
            while !self.over() {
                let issue = match held.take() {
                    Some(issue) => issue,
                    None => match workload.next(now) {
                        Step::Issue(issue) => issue,
                        Step::WaitUntil(until) => {
                            due = Some(until);
                            break;
                        }
                        Step::WaitCompletion | Step::Finished => break,
                    },
                };
                self.trial.watch_lag(issue.intended, now);
                match session.submit(&issue) {
                    Submit::Done(ended) => {
                        let times = (now, self.clock.now());
                        now = times.1;
                        self.roll(now);
                        self.complete(session, workload, (&issue, times), ended);
                    }
                    Submit::Queued => {
                        flight[issue.id.0 as usize] = Some((issue, now));
                        in_flight += 1;
                    }
                    Submit::Full => {
                        held = Some(issue);
                        break;
                    }
                }
            }
            if in_flight == 0 {
                let Some(due) = due else { return Ok(now) };
                rest(due.since(now), interval, spin);
                now = self.clock.now();
                self.roll(now);
                continue;
            }
            if session.abandons() && self.over() {
                return Ok(now);
            }
            let wait = Wait { due_in: due.map(|due| due.since(now)), interval };
            if let Err(error) = session.poll(wait, &mut done) {
                self.trial.end();
                return Err(error);
            }
            now = self.clock.now();
            self.roll(now);
            for Completion { id, ended } in done.drain(..) {
                let slot = flight.get_mut(id.0 as usize).and_then(Option::take);
                let Some((issue, issued)) = slot else { continue };
                in_flight -= 1;
                self.complete(session, workload, (&issue, (issued, now)), ended);
            }
        }
    }

    /// Records an operation issued and completed at these times, verifies its data and notifies the workload.
    #[inline]
    fn complete<S, W>(
        &mut self,
        session: &mut S,
        workload: &mut W,
        (issue, times): (&Issue<Op>, (Nanos, Nanos)),
        ended: Ended,
    ) where
        S: Session<Op = Op>,
        W: Workload<Op = Op>,
    {
        let (outcome, bytes) = match ended {
            Ok(bytes) => (Outcome::Done, bytes),
            Err(error) if Op::RETRIES && error.kind() == ErrorKind::Retryable => {
                self.trial.retried.fetch_add(1, Ordering::Relaxed);
                (Outcome::Retried, 0)
            }
            Err(error) => {
                let code = error.code();
                self.failed(&issue.op, error);
                (Outcome::Failed(code), 0)
            }
        };
        Op::record(&mut self.parts, &mut self.recorder, issue, times, (outcome, bytes));
        if outcome == Outcome::Done
            && let Err(error) = session.verify(issue)
        {
            self.failed(&issue.op, error);
        }
        workload.completed(issue.id, outcome, times.1);
    }

    /// Handles a failed operation.
    #[cold]
    fn failed(&mut self, op: &Op, error: EngineError) {
        let spec = self.trial.spec;
        match error.kind() {
            ErrorKind::Corruption | ErrorKind::Lost => {
                self.fatal.get_or_insert(error);
                self.trial.end();
            }
            kind => {
                self.failures = self.failures.saturating_add(1);
                let many = spec.failures_max.is_some_and(|most| self.failures >= most);
                let ends = spec.stop_on_error || kind == ErrorKind::Disconnected || many;
                let described = match &error {
                    // Recorded with its position; it fails the trial only if it ends it.
                    EngineError::Os(_) if !ends => None,
                    EngineError::Os(_) => {
                        Some(format!("{} at byte {}: {error}", op.class().word(), op.position()))
                    }
                    EngineError::Described(_) => Some(error.to_string()),
                };
                self.first_failure = self.first_failure.take().or(described);
                if ends {
                    self.trial.end();
                }
            }
        }
    }
}
