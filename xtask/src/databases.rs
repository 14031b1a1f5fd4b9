//! What the database driver itself costs: the same lookups on an engine that does nothing and on real ones.
//!
//! Invariant: one reader, everything cached, so that the driver's share is as large as it gets. What it is
//! not: a test; machines differ.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use kv::{Engine, KvError, KvSpec, Options, Session, load, measure};
use observe::Control;
use stats::Timeline;
use study::Durability;
use units::{Bytes, Nanos, Seed};
use workload::{KvClient, KvRole, ValueShape, Values};

/// Records of the engine that does nothing: two digits of the key name one, and all fit the second-level
/// cache, so that looking them up costs next to nothing.
const NOTHING: u64 = 256;
const VALUE: usize = 400;
const RECORDS: u64 = 1_000_000;

/// An engine that has every value at hand.
struct Nothing(Vec<Vec<u8>>);

struct NothingSession<'a>(&'a [Vec<u8>]);

impl Engine for Nothing {
    type Session<'a> = NothingSession<'a>;

    fn open(_place: &Path, _options: &Options) -> Result<Self, KvError> {
        let values = Values::new(ValueShape::of(VALUE), Seed(1));
        let value = |record| {
            let mut value = Vec::new();
            values.fill(record, 0, &mut value);
            value
        };
        Ok(Self((0..NOTHING).map(value).collect()))
    }

    fn session(&self) -> Result<NothingSession<'_>, KvError> {
        Ok(NothingSession(&self.0))
    }

    fn close(self) -> Result<(), KvError> {
        Ok(())
    }

    fn version() -> String {
        "nothing".into()
    }

    fn promise(_durability: Durability) -> &'static str {
        "nothing"
    }
}

impl Session for NothingSession<'_> {
    fn get(&mut self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool, KvError> {
        let digit = |at: usize| usize::from(key[at] & 15) + usize::from(key[at] >> 6) * 9;
        seen(&self.0[digit(14) << 4 | digit(15)]);
        Ok(true)
    }

    fn put(&mut self, _key: &[u8], _value: &[u8]) -> Result<(), KvError> {
        Ok(())
    }

    fn delete(&mut self, _key: &[u8]) -> Result<(), KvError> {
        Ok(())
    }

    fn put_batch(
        &mut self,
        next: &mut dyn FnMut(&mut Vec<u8>, &mut Vec<u8>) -> bool,
    ) -> Result<(), KvError> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        while next(&mut key, &mut value) {}
        Ok(())
    }

    fn scan(
        &mut self,
        _from: &[u8],
        _seen: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), KvError> {
        Ok(())
    }
}

/// CPU per operation, ns, of `role` over a loaded database of `records`.
fn cpu<E: Engine>(records: u64, role: KvRole) -> Result<f64, KvError> {
    let failed = |error: std::io::Error| KvError::Engine {
        engine: "bench",
        action: "make a directory",
        reason: error.to_string(),
    };
    let dir = std::env::temp_dir().join(format!("crosspoint-speed-{}", std::process::id()));
    std::fs::create_dir_all(&dir).map_err(failed)?;
    let options = Options {
        durability: Durability::None,
        expected: Bytes(records * (VALUE as u64 + 16)),
        sessions: 1,
        memory: None,
        bulk: false,
        write_map: false,
        read_ahead: false,
        map_size: None,
        settings: "block_based_table_factory={block_cache=1073741824}".into(),
    };
    let spec = KvSpec {
        records,
        key_size: 16,
        values: ValueShape::of(VALUE),
        load_batch: 1000,
        timeline: Timeline {
            warm_up: Nanos::from_secs(2),
            measure: Nanos::from_secs(3),
            interval: Nanos::from_millis(500),
        },
        seed: Seed(1),
        stop_on_error: true,
    };
    let engine = E::open(&dir, &options)?;
    load(&engine, &spec, None, &mut |_| true)?;
    let stop = AtomicBool::new(false);
    let before = observe::usage();
    let clients = KvClient::all(&[role], records, spec.timeline.end(), spec.seed);
    let control = Control { stop: &stop, progress: None, keep: None };
    let measured = measure(&engine, &spec, clients, None, &control)?;
    let cpu = observe::usage().since(&before).cpu();
    engine.close()?;
    std::fs::remove_dir_all(&dir).map_err(failed)?;
    let ops: u64 = measured.recording.intervals.iter().map(|one| one.counts().ops).sum();
    Ok(cpu.get() as f64 / ops.max(1) as f64)
}

/// Prints the table.
///
/// # Errors
/// What an engine said.
pub fn table() -> Result<(), String> {
    let text = |error: KvError| error.to_string();
    println!("cached lookups of {VALUE} B, one reader, CPU per operation");
    let own = cpu::<Nothing>(NOTHING, KvRole::READER).map_err(text)?;
    println!("{:<10} {own:>8.0} ns", "driver");
    let share = |name: &str, whole: f64| {
        println!("{name:<10} {whole:>8.0} ns, of which the driver {:.1} %", own / whole * 100.0);
    };
    share("lmdb", cpu::<kv_lmdb::Lmdb>(RECORDS, KvRole::READER).map_err(text)?);
    share("rocksdb", cpu::<kv_rocksdb::RocksDb>(RECORDS, KvRole::READER).map_err(text)?);
    share("sqlite", cpu::<sql_sqlite::Sqlite>(RECORDS, KvRole::READER).map_err(text)?);
    Ok(())
}
