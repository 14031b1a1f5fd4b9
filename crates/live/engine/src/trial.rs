//! A measured trial: its client threads, their common start, and their merged result.
//!
//! All clients open their sessions, then start together at one time origin. A thread that cannot start still
//! gives its seat back, so none waits forever.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use observe::waits::WaitReader;
use observe::{Clock, Control, Counter, sample};
use stats::{CounterSample, DueShares, Recording, Timeline, TrialResult};
use units::Nanos;
use workload::Workload;

use crate::EngineError;
use crate::spent::Spent;

/// Phases and end conditions of a trial.
#[derive(Debug, Clone)]
pub struct TrialSpec {
    /// Phases and interval.
    pub timeline: Timeline,
    /// End the trial at the first failed operation that is not retried.
    pub stop_on_error: bool,
    /// Failures of one thread that end the trial.
    pub failures_max: Option<u32>,
    /// End the trial when an operation is issued this long after it was due.
    pub max_lag: Option<Nanos>,
}

/// State shared by the client threads of a trial. Operations touch it by one relaxed load at most; it is
/// written only on failures and at the end.
#[derive(Debug)]
pub struct Trial<'a> {
    pub(crate) spec: &'a TrialSpec,
    pub(crate) control: &'a Control<'a>,
    /// The common origin of time, set when all clients are ready.
    clock: OnceLock<Clock>,
    over: AtomicBool,
    lag_ns: AtomicU64,
    pub(crate) retried: AtomicU64,
    /// Clients that are not background load and have not ended.
    foreground: AtomicU32,
}

impl Trial<'_> {
    /// Whether the trial is over: clients issue nothing more; a session may await or abandon what is in
    /// flight.
    #[inline]
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Ends the trial.
    pub fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn watch_lag(&self, intended: Nanos, now: Nanos) {
        if let Some(max) = self.spec.max_lag {
            let lag = now.since(intended);
            if lag > max {
                self.lag_ns.store(lag.get(), Ordering::Relaxed);
                self.end();
            }
        }
    }

    /// A client has ended; background load ends with the last other client.
    pub(crate) fn left(&self, background: bool) {
        if !background && self.foreground.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.end();
        }
    }
}

/// A client thread's place in a trial, until it starts. Dropped before that, it ends the trial.
#[derive(Debug)]
pub struct Seat<'a> {
    trial: &'a Trial<'a>,
    number: u32,
    background: bool,
    /// Held until the client is ready: the trial starts once every seat has dropped its sender.
    ready: Option<Sender<()>>,
}

impl<'a> Seat<'a> {
    /// The trial.
    #[must_use]
    pub fn trial(&self) -> &'a Trial<'a> {
        self.trial
    }

    /// Number of the client, from 0.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn is_background(&self) -> bool {
        self.background
    }

    /// Waits for the other clients and returns the common clock.
    pub(crate) fn start(mut self) -> Clock {
        self.ready = None;
        *self.trial.clock.wait()
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        if self.ready.is_some() {
            self.trial.end();
        }
    }
}

/// Result of one client thread.
#[derive(Debug)]
pub struct ClientEnd<W> {
    pub(crate) recording: Recording,
    pub(crate) failure: Option<String>,
    /// The workload and the distribution of its missed arrivals, if it is recorded.
    pub(crate) workload: Option<(W, DueShares)>,
    /// When it ended.
    pub(crate) at: Nanos,
    /// Share of its time that it spent on a CPU, 0 to 1.
    pub(crate) busy: f64,
    /// Where its time went, and that of the server's threads, if it is recorded and they were timed.
    pub(crate) spent: Spent,
}

/// A client thread to start.
pub struct Starter<F> {
    /// Opens its session and calls [`crate::drive`].
    pub body: F,
    /// It stops when all clients that are not background load have ended.
    pub background: bool,
    /// Its operations are recorded.
    pub recorded: bool,
}

/// Reads counters at an instant of the trial.
pub type Watch<'a> = &'a mut (dyn FnMut(Nanos) -> Vec<Counter> + Send);

/// Environment of a trial.
pub struct Setting<'a> {
    /// Phases and end conditions.
    pub spec: &'a TrialSpec,
    /// Stop requests, progress and the journal.
    pub control: &'a Control<'a>,
    /// Called once all clients are ready, before they start.
    pub ready: &'a (dyn Fn() + Sync),
    /// Reads counters, and the sampling interval.
    pub watch: Option<(Watch<'a>, Duration)>,
}

/// Shortest time between samples of counters.
pub const SAMPLE_EVERY: Duration = Duration::from_millis(250);

type Left<W, T> = Result<(ClientEnd<W>, T), EngineError>;

/// A finished trial.
#[derive(Debug)]
pub struct Finished<T> {
    /// Its result.
    pub result: TrialResult,
    /// Transactions that the engine rolled back and that were retried.
    pub retried: u64,
    /// Largest share of its time that a client thread spent on a CPU.
    pub busy: f64,
    /// Other return values of the threads, in order.
    pub left: Vec<T>,
}

/// Runs client threads to their end.
///
/// # Errors
/// A client could not start, read wrong data, or cannot continue.
pub fn run_clients<W, T, F>(
    setting: Setting<'_>,
    clients: Vec<Starter<F>>,
) -> Result<Finished<T>, EngineError>
where
    W: Workload + Send,
    T: Send,
    F: FnOnce(Seat<'_>) -> Left<W, T> + Send,
{
    let Setting { spec, control, ready, watch } = setting;
    let count = |wanted: fn(&Starter<F>) -> bool| {
        u32::try_from(clients.iter().filter(|one| wanted(one)).count()).unwrap_or(u32::MAX)
    };
    let trial = Trial {
        spec,
        control,
        clock: OnceLock::new(),
        over: AtomicBool::new(false),
        lag_ns: AtomicU64::new(0),
        retried: AtomicU64::new(0),
        foreground: AtomicU32::new(count(|one| !one.background)),
    };
    Clock::prepare();
    // Maps the counters before the clients start.
    let _ = WaitReader::of_this_process();
    control.expect(count(|one| one.recorded));
    let (left, counters) = threads(&trial, ready, watch, clients);
    let mut result = TrialResult { counters, ..TrialResult::default() };
    let (mut ends, mut others, mut busy) = (Vec::new(), Vec::new(), 0.0f64);
    for one in left {
        let (end, other) = one?;
        result.recording.merge(&end.recording);
        result.failure = result.failure.or(end.failure);
        busy = busy.max(end.busy);
        for (name, time) in end.spent.totals() {
            *result.totals.entry(name).or_default() += time;
        }
        others.push(other);
        ends.push((end.workload, end.at));
    }
    let over = ends.iter().map(|(_, at)| *at).max().unwrap_or_default();
    for (mut workload, shares) in ends.into_iter().filter_map(|(workload, _)| workload) {
        result.recording.missed_by(&shares, &mut workload, (&spec.timeline, over));
    }
    let lost = control.take_back(&mut result.recording);
    let lag = trial.lag_ns.load(Ordering::Relaxed);
    let behind = (lag > 0).then(|| {
        let lag = Nanos(lag);
        format!("the load was not kept up: stopped when an operation was issued {lag} late")
    });
    let trouble = trial.clock.get().and_then(|clock| clock.trouble());
    result.failure = result.failure.or(behind).or(lost).or(trouble);
    let retried = trial.retried.load(Ordering::Relaxed);
    Ok(Finished { result, retried, busy, left: others })
}

/// Spawns the threads, lets them begin together, and joins them and the sampler.
fn threads<W, T, F>(
    trial: &Trial<'_>,
    ready: &(dyn Fn() + Sync),
    watch: Option<(Watch<'_>, Duration)>,
    clients: Vec<Starter<F>>,
) -> (Vec<Left<W, T>>, Vec<CounterSample>)
where
    W: Workload + Send,
    T: Send,
    F: FnOnce(Seat<'_>) -> Left<W, T> + Send,
{
    let done = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sampler = watch.map(|(read, every)| {
            scope.spawn(move || sample(&mut |now| read(now), every, &trial.clock, done))
        });
        let (mut threads, mut refused) = (Vec::with_capacity(clients.len()), None);
        let (sender, all_ready) = channel();
        for (number, Starter { body, background, .. }) in (0u32..).zip(clients) {
            let seat = Seat { trial, number, background, ready: Some(sender.clone()) };
            match std::thread::Builder::new().spawn_scoped(scope, move || body(seat)) {
                Ok(thread) => threads.push(thread),
                // Dropping the closure and its seat ended the trial.
                Err(error) => {
                    let reason = format!("{error}; {number} threads are running");
                    refused = Some(EngineError::failed("client", "start a thread", reason));
                    break;
                }
            }
        }
        drop(sender);
        let _ = all_ready.recv();
        // All have their sessions.
        if !trial.is_over() {
            ready();
        }
        // Asked while it waited for others.
        if trial.control.stopping() {
            trial.end();
        }
        let _ = trial.clock.set(Clock::start());
        let panicked = |_| {
            EngineError::failed("client", "run a client thread", "it panicked; please report this")
        };
        let left = threads.into_iter().map(|thread| thread.join().map_err(panicked)?);
        let left = left.chain(refused.map(Err)).collect();
        done.store(true, Ordering::Relaxed);
        let counters = sampler.map(|sampler| {
            sampler.thread().unpark();
            sampler.join().unwrap_or_default()
        });
        (left, counters.unwrap_or_default())
    })
}
