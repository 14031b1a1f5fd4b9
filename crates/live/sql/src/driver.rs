//! Client threads that drive a SQL engine, and the thread that watches it.
//!
//! A thread a connection, each with its own session and recorder. Invariants: all clients start together
//! and share one time origin; a transaction that the server gave up is counted and begun again; a lost
//! connection ends the trial. What it is not: loading.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, OnceLock};
use std::time::{Duration, Instant};

use observe::{Control, Counter, Sampled, sample};
use stats::{Recorder, Recording, Timeline};
use study::{SqlChange, SqlDialect, SqlJob};
use units::{Nanos, Seed};
use workload::{Arrivals, Outcome, Spacing, SqlClient, SqlPlan, Step, Workload};

use crate::engine::{Engine, Session, SqlError};
use crate::recording::Open;

/// A SQL trial.
#[derive(Debug, Clone)]
pub struct Spec {
    /// What the clients do.
    pub plan: SqlPlan,
    /// Connections.
    pub threads: u32,
    /// Phases and interval.
    pub timeline: Timeline,
    /// Seed of rows and texts.
    pub seed: Seed,
    /// End the trial at the first failed statement that the server did not just give up.
    pub stop_on_error: bool,
    /// Variables that are set on the way.
    pub changes: Vec<SqlChange>,
}

/// What the clients of a job do until `end`.
#[must_use]
pub fn plan_of(job: &SqlJob, end: Nanos) -> SqlPlan {
    SqlPlan {
        dialect: match job.dialect {
            SqlDialect::Sysbench05 => workload::SqlDialect::Sysbench05,
            SqlDialect::Sysbench10 => workload::SqlDialect::Sysbench10,
        },
        mix: job.workload.mix(),
        tables: job.tables,
        rows: job.rows,
        range_size: u64::from(job.range_size),
        keys: job.keys.distribution(),
        arrivals: match job.rate {
            Some(rate) => Arrivals::open(Spacing::Poisson, rate),
            None => Arrivals::CLOSED,
        },
        transactions: job.transactions,
        end,
    }
}

/// What a trial gave.
#[derive(Debug, Default)]
pub struct Measured {
    /// The time series by class.
    pub recording: Recording,
    /// The first failure's words, if any.
    pub failure: Option<String>,
    /// Counters over time.
    pub samples: Vec<Sampled>,
    /// What was set on the way, or why not.
    pub notes: Vec<String>,
    /// Transactions that the server gave up and that were begun again.
    pub given_up: u64,
}

/// Least time between samples of counters.
const SAMPLE_EVERY: Duration = Duration::from_millis(250);
/// Failures of one client after which it does not go on, whatever the study says.
const FAILURES_MAX: u32 = 1000;

struct Shared<'a> {
    spec: &'a Spec,
    control: &'a Control<'a>,
    tickets: Arc<AtomicU64>,
    start: Barrier,
    /// The common origin of time, read by whoever passes the barrier first.
    origin: OnceLock<Instant>,
    failed: AtomicBool,
    given_up: AtomicU64,
}

struct ClientEnd {
    recording: Recording,
    failure: Option<String>,
    client: SqlClient,
}

/// Runs the clients. `ready` is called once all are connected, and the clients begin when it returns;
/// `watch` gives counters beside the engine's own.
///
/// # Errors
/// When a client can not connect; what fails later is data.
pub fn measure<E: Engine>(
    engine: &E,
    spec: &Spec,
    control: &Control<'_>,
    ready: &(dyn Fn() + Sync),
    watch: &mut (dyn FnMut() -> Vec<Counter> + Send),
) -> Result<Measured, SqlError> {
    let shared = Shared {
        spec,
        control,
        tickets: Arc::default(),
        start: Barrier::new(spec.threads as usize + 1),
        origin: OnceLock::new(),
        failed: AtomicBool::new(false),
        given_up: AtomicU64::new(0),
    };
    let shared = &shared;
    let done = AtomicBool::new(false);
    let (results, (samples, notes)) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| observed(engine, shared, &done, watch));
        let threads: Vec<_> = (0..spec.threads)
            .map(|index| scope.spawn(move || run_client(engine, shared, index)))
            .collect();
        // The clients are connected once all have come to the barrier for the first time.
        shared.start.wait();
        if !shared.failed.load(Ordering::Relaxed) {
            ready();
        }
        shared.start.wait();
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        done.store(true, Ordering::Relaxed);
        watcher.thread().unpark();
        (results, watcher.join().unwrap_or_default())
    });
    let mut measured = Measured { samples, notes, ..Measured::default() };
    let mut last = None;
    for result in results {
        let panicked = |_| SqlError::Lost("a client's thread panicked; please report this".into());
        let end = result.map_err(panicked)??;
        measured.recording.merge(&end.recording);
        measured.failure = measured.failure.or(end.failure);
        last = Some(end.client);
    }
    measured.recording.missed_arrivals = last.map_or(0, |mut client| client.missed());
    measured.given_up = shared.given_up.load(Ordering::Relaxed);
    Ok(measured)
}

/// Samples counters, and sets what is to be set, until the clients are done.
fn observed<E: Engine>(
    engine: &E,
    shared: &Shared<'_>,
    done: &AtomicBool,
    watch: &mut (dyn FnMut() -> Vec<Counter> + Send),
) -> (Vec<Sampled>, Vec<String>) {
    let mut notes = Vec::new();
    let mut due: Vec<&SqlChange> = shared.spec.changes.iter().collect();
    due.sort_by_key(|change| std::cmp::Reverse(change.at));
    let mut read = |now: Nanos| {
        while let Some(change) = due.pop_if(|change| change.at <= now) {
            notes.push(match engine.set(&change.set) {
                Ok(()) => format!("set {} at {now}", change.set),
                Err(error) => format!("{} could not be set at {now}: {error}", change.set),
            });
        }
        let mut counters = engine.counters();
        counters.extend(watch());
        counters
    };
    let every = Duration::from(shared.spec.timeline.interval).max(SAMPLE_EVERY);
    let samples = sample(&mut read, every, &shared.origin, done);
    (samples, notes)
}

fn run_client<E: Engine>(
    engine: &E,
    shared: &Shared<'_>,
    index: u32,
) -> Result<ClientEnd, SqlError> {
    let session = engine.session(true);
    if session.is_err() {
        shared.failed.store(true, Ordering::Relaxed);
    }
    // Every client passes both barriers, even one that can not go on, so that none waits for ever.
    shared.start.wait();
    shared.start.wait();
    let origin = *shared.origin.get_or_init(Instant::now);
    let mut session = session?;
    let spec = shared.spec;
    let tickets = Arc::clone(&shared.tickets);
    let mut client = SqlClient::new(spec.plan.clone(), tickets, spec.seed, index);
    let mut recorder = recorder_of(spec);
    let (mut open, mut trouble) = (Open::default(), Trouble::default());
    let (mut now, mut all_done) = (Nanos::from(origin.elapsed()), false);
    'trial: while !shared.failed.load(Ordering::Relaxed) {
        let issue = match client.next(now) {
            Step::Issue(issue) => Some(issue),
            Step::WaitUntil(due) => {
                let left = due.since(now).get().min(spec.timeline.interval.get());
                std::thread::sleep(Duration::from_nanos(left));
                None
            }
            Step::WaitCompletion | Step::Finished => {
                all_done = now < spec.timeline.end();
                break;
            }
        };
        let issued = now;
        let result = issue.map(|issue| (issue, session.perform(&issue.op)));
        now = Nanos::from(origin.elapsed());
        while let Some(summary) = recorder.poll(now) {
            shared.control.tell(index, summary);
            if shared.control.stopping() {
                break 'trial;
            }
        }
        let Some((issue, result)) = result else { continue };
        let outcome = match result {
            Ok(()) => Outcome::Done,
            Err(error) => trouble.outcome(shared, &mut session, &error),
        };
        open.record(&mut recorder, &issue, (issued, now), outcome);
        client.completed(issue.id, outcome, now);
    }
    let recording = if all_done { recorder.finish_early(now) } else { recorder.finish(now) };
    Ok(ClientEnd { recording, failure: trouble.first, client })
}

fn recorder_of(spec: &Spec) -> Recorder {
    let classes = spec.plan.mix.classes();
    if spec.plan.arrivals.is_open() {
        Recorder::with_service(spec.timeline, &classes)
    } else {
        Recorder::new(spec.timeline, &classes)
    }
}

/// What went wrong for one client.
#[derive(Default)]
struct Trouble {
    /// The first failure's words.
    first: Option<String>,
    count: u32,
}

impl Trouble {
    /// What a statement that failed means: the transaction begins again, or the trial ends.
    fn outcome<S: Session>(
        &mut self,
        shared: &Shared<'_>,
        session: &mut S,
        error: &SqlError,
    ) -> Outcome {
        let mut over = false;
        if error.gave_up() {
            shared.given_up.fetch_add(1, Ordering::Relaxed);
        } else {
            self.count += 1;
            self.first.get_or_insert_with(|| error.to_string());
            let lost = matches!(error, SqlError::Lost(_));
            over = shared.spec.stop_on_error || lost || self.count >= FAILURES_MAX;
        }
        if !over && let Err(error) = session.roll_back() {
            self.first.get_or_insert_with(|| error.to_string());
            over = true;
        }
        if over {
            shared.failed.store(true, Ordering::Relaxed);
        }
        Outcome::Failed(error.code())
    }
}
