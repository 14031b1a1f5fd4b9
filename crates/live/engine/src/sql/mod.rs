//! SQL trials on any engine: loading sysbench's tables, and driving their clients.
//!
//! If results can be awaited together there are as many threads as CPUs; otherwise one per connection. A
//! transaction that the engine rolled back is counted and retried; a lost connection ends the trial.

mod connections;
mod load;
mod ring;
mod text;

use std::time::Duration;

use observe::{Control, Counter};
use stats::TrialResult;
use study::SqlChange;
use workload::{Client, Lanes, SqlOp, Workload};

use crate::{
    EngineError, SAMPLE_EVERY, Seat, Setting, SqlEngine, Starter, Statements, TrialSpec, drive,
    run_clients,
};
use connections::Connections;

pub use load::{LOAD_BATCH, load};
pub use text::{prepared_text, texts_of, write_text};

/// Counter name for transactions that the engine rolled back and that were retried.
pub const RETRIED: &str = "transactions_given_up";

/// A SQL trial.
#[derive(Debug, Clone)]
pub struct SqlSpec {
    /// Phases and end conditions.
    pub trial: TrialSpec,
    /// Variables to set during the trial.
    pub changes: Vec<SqlChange>,
}

impl SqlSpec {
    /// Failures of one thread after which a trial ends, whatever the study says.
    pub const FAILURES_MAX: u32 = 1000;
}

/// Runs the clients. `ready` is called once all are connected, and they begin when it returns; `watch` reads
/// counters besides the engine's own.
///
/// # Errors
/// If a client cannot connect; later failures are data.
pub fn measure<E: SqlEngine, W: Workload<Op = SqlOp> + Send>(
    engine: &E,
    spec: &SqlSpec,
    clients: Vec<Client<W>>,
    control: &Control<'_>,
    ready: &(dyn Fn() + Sync),
    watch: &mut (dyn FnMut() -> Vec<Counter> + Send),
) -> Result<TrialResult, EngineError> {
    let starter = |clients: Vec<Client<W>>| Starter {
        background: false,
        recorded: true,
        body: move |seat: Seat<'_>| {
            let own: Result<Vec<_>, _> = clients.iter().map(|_| engine.connect(true)).collect();
            let mut session = Connections::new(own?)?;
            Ok((drive(seat, &mut session, Lanes::of(clients))?, ()))
        },
    };
    let starters = threads_of(engine, clients)?.into_iter().map(starter).collect();
    let mut due: Vec<&SqlChange> = spec.changes.iter().collect();
    due.sort_by_key(|change| std::cmp::Reverse(change.at));
    let mut notes = Vec::new();
    let mut read = |now| {
        while let Some(change) = due.pop_if(|change| change.at <= now) {
            for pair in change.set.split(';').filter(|pair| !pair.is_empty()) {
                notes.push(match engine.set(pair) {
                    Ok(()) => format!("set {pair} at {now}"),
                    Err(error) => format!("{pair} could not be set at {now}: {error}"),
                });
            }
        }
        let mut counters = engine.counters();
        counters.extend(watch());
        counters
    };
    let every = Duration::from(spec.trial.timeline.interval).max(SAMPLE_EVERY);
    let setting = Setting { spec: &spec.trial, control, ready, watch: Some((&mut read, every)) };
    let finished = run_clients(setting, starters)?;
    let mut result = finished.result;
    result.notes = notes;
    result.totals.insert(RETRIED.to_owned(), finished.retried as f64);
    Ok(result)
}

/// The clients of each thread.
fn threads_of<E: SqlEngine, W>(
    engine: &E,
    mut clients: Vec<Client<W>>,
) -> Result<Vec<Vec<Client<W>>>, EngineError> {
    let together = engine.connect(false)?.descriptor().is_some();
    let count = clients.len();
    let threads = if together { count.min(observe::cpus() as usize) } else { count };
    // From the last thread on, so that each takes the rest.
    let mut split: Vec<_> =
        (0..threads).rev().map(|thread| clients.split_off(count * thread / threads)).collect();
    split.reverse();
    Ok(split)
}
