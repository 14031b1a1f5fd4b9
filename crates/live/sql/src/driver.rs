//! A SQL trial: its clients in threads, and the thread that watches the engine.
//!
//! Where results can be waited for together, there are as many threads as processors; else a thread a
//! connection. Invariants: all clients start together and share one time origin; a transaction that the
//! server rolled back is counted and retried; a lost connection ends the trial. What it is not: loading.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, OnceLock};
use std::time::Duration;

use observe::{Clock, Control, Counter, sample};
use stats::{CounterSample, TrialResult};
use study::SqlChange;
use units::Nanos;
use workload::{Client, OpClass, SqlOp, Workload};

use crate::client_thread;
use crate::engine::{Engine, Session, SqlError};
use crate::shared::{SqlShared, SqlSpec};

/// Name of the transactions that the server rolled back and that were retried, in the totals of a result.
pub const GIVEN_UP: &str = "transactions_given_up";

/// Least time between samples of counters.
const SAMPLE_EVERY: Duration = Duration::from_millis(250);

/// Runs the clients. `ready` is called once all are connected, and the clients begin when it returns;
/// `watch` gives counters beside the engine's own.
///
/// # Errors
/// When a client cannot connect; what fails later is data.
pub fn measure<E: Engine, W: Workload<Op = SqlOp> + Send>(
    engine: &E,
    spec: &SqlSpec,
    clients: Vec<Client<W>>,
    control: &Control<'_>,
    ready: &(dyn Fn() + Sync),
    watch: &mut (dyn FnMut() -> Vec<Counter> + Send),
) -> Result<TrialResult, SqlError> {
    let threads = threads_of(engine, clients)?;
    let shared = SqlShared {
        spec,
        control,
        start: Barrier::new(threads.len() + 1),
        clock: OnceLock::new(),
        failed: AtomicBool::new(false),
        given_up: AtomicU64::new(0),
    };
    let shared = &shared;
    Clock::prepare();
    control.expect(u32::try_from(threads.len()).unwrap_or(u32::MAX));
    let done = AtomicBool::new(false);
    let (results, (samples, notes)) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| observed(engine, shared, &done, watch));
        let threads: Vec<_> = (0..)
            .zip(threads)
            .map(|thread| scope.spawn(move || client_thread::run(engine, shared, thread)))
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
    let mut measured = TrialResult { counters: samples, notes, ..TrialResult::default() };
    let mut ends = Vec::with_capacity(results.len());
    for result in results {
        let panicked = |_| SqlError::Lost("a client's thread panicked; please report this".into());
        let end = result.map_err(panicked)??;
        measured.recording.merge(&end.recording);
        measured.failure = measured.failure.or(end.failure);
        ends.push((end.clients, end.at));
    }
    let lost = control.take_back(&mut measured.recording);
    let trouble = shared.clock.get().and_then(|clock| clock.trouble());
    measured.failure = measured.failure.or(lost).or(trouble);
    let over = ends.iter().map(|(_, at)| *at).max().unwrap_or_default();
    let shares = measured.recording.due_shares(&[OpClass::Transaction]);
    for client in ends.iter_mut().flat_map(|(clients, _)| clients) {
        measured.recording.missed_by(&shares, client, (&spec.timeline, over));
    }
    let given_up = shared.given_up.load(Ordering::Relaxed);
    measured.totals.insert(GIVEN_UP.to_owned(), given_up as f64);
    Ok(measured)
}

/// The clients of each thread.
fn threads_of<E: Engine, W>(
    engine: &E,
    mut clients: Vec<Client<W>>,
) -> Result<Vec<Vec<Client<W>>>, SqlError> {
    let together = engine.session(false)?.descriptor().is_some();
    let count = clients.len();
    let threads = if together { count.min(observe::cpus() as usize) } else { count };
    // From the last thread on, so that each takes what is left at the end.
    let mut split: Vec<_> =
        (0..threads).rev().map(|thread| clients.split_off(count * thread / threads)).collect();
    split.reverse();
    Ok(split)
}

/// Samples counters, and sets what is to be set, until the clients are done.
fn observed<E: Engine>(
    engine: &E,
    shared: &SqlShared<'_>,
    done: &AtomicBool,
    watch: &mut (dyn FnMut() -> Vec<Counter> + Send),
) -> (Vec<CounterSample>, Vec<String>) {
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
    let samples = sample(&mut read, every, &shared.clock, done);
    (samples, notes)
}
