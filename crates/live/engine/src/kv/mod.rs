//! Key-value trials on any engine: loading a database, and driving it.
//!
//! One thread per client, with its own access to the engine. Every value read is checked against possible
//! writes; a wrong one ends the trial.

mod ledger;
mod operations;
mod page_cache;

use observe::Control;
use stats::TrialResult;
use units::Seed;
use workload::{Client, KvOp, ValueShape, Values, Workload, write_key};

use crate::{
    EngineError, KeyValue, KeyValueEngine, SAMPLE_EVERY, Setting, Starter, TrialSpec, drive,
    run_clients,
};
use operations::KvSession;

pub use ledger::{Checked, Ledger};
pub use page_cache::{Residency, evict, residency};

/// A key-value trial.
#[derive(Debug, Clone)]
pub struct KvSpec {
    /// Records in the database.
    pub records: u64,
    /// Bytes of a key.
    pub key_size: usize,
    /// Sizes and contents of values.
    pub values: ValueShape,
    /// Records per transaction while loading.
    pub load_batch: u32,
    /// Phases and end conditions.
    pub trial: TrialSpec,
    /// Seed of values.
    pub seed: Seed,
}

/// Loads records `0..records` in key order and logs each transaction in `ledger`. `step` gets the number
/// loaded and returns whether to continue; returns whether all are loaded.
///
/// # Errors
/// The engine's own message.
pub fn load<E: KeyValueEngine>(
    engine: &E,
    spec: &KvSpec,
    ledger: Option<&Ledger>,
    step: &mut dyn FnMut(u64) -> bool,
) -> Result<bool, EngineError> {
    let values = Values::new(spec.values, spec.seed);
    let mut access = engine.access()?;
    let mut record = 0;
    while record < spec.records {
        let end = spec.records.min(record + u64::from(spec.load_batch.max(1)));
        access.put_batch(&mut |key, value| {
            if record == end {
                return false;
            }
            key.resize(spec.key_size, 0);
            write_key(record, key);
            values.fill(record, 0, value);
            record += 1;
            true
        })?;
        if let Some(ledger) = ledger {
            ledger.loaded(record)?;
        }
        if !step(record) {
            return Ok(record == spec.records);
        }
    }
    Ok(true)
}

/// Runs the clients on a database and notes acknowledged updates in `ledger`.
///
/// # Errors
/// [`crate::ErrorKind::Corruption`] at the first wrong value, or when a client could not start; failures
/// during the trial are data.
pub fn measure<E: KeyValueEngine, W: Workload<Op = KvOp> + Send>(
    engine: &E,
    spec: &KvSpec,
    clients: Vec<Client<W>>,
    ledger: Option<&Ledger>,
    control: &Control<'_>,
) -> Result<TrialResult, EngineError> {
    let values = Values::new(spec.values, spec.seed);
    let values = &values;
    let starter = |client: Client<W>| Starter {
        background: false,
        recorded: client.recorded,
        body: move |seat: crate::Seat<'_>| {
            let mut session = KvSession::new(engine.access()?, values, ledger, spec.key_size);
            Ok((drive(seat, &mut session, client)?, ()))
        },
    };
    let mut watch = |_| engine.counters();
    let setting = Setting {
        spec: &spec.trial,
        control,
        ready: &|| (),
        watch: Some((&mut watch, SAMPLE_EVERY)),
    };
    Ok(run_clients(setting, clients.into_iter().map(starter).collect())?.result)
}
