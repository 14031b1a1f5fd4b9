//! Overhead of the database driver: the same lookups by the driver and by a bare loop, on an engine that does
//! nothing and on real ones.
//!
//! Invariant: one reader, everything cached, so that the driver's share is as large as possible. Not a test;
//! machines differ.

use std::sync::atomic::AtomicBool;

use engine::kv::{KvSpec, load, measure};
use engine::{Engine, EngineError, KeyValue, KeyValueEngine, Place, TrialSpec};
use observe::Control;
use stats::Timeline;
use study::{Descriptor, Durability, KvJob, Operations, OptionValue};
use units::{Nanos, Seed};
use workload::{
    Client, KEY_DIGITS, KvClient, KvRole, Outcome, Step, ValueShape, Values, Workload, write_key,
};

/// Records of the null engine: few enough for the second-level cache, so that a lookup costs next to nothing.
const NOTHING: u64 = 256;
const VALUE: usize = 400;
const RECORDS: u64 = 1_000_000;

/// An engine with every value in memory.
struct Nothing(Vec<Vec<u8>>);

struct NothingAccess<'a>(&'a [Vec<u8>]);

static NOTHING_ENGINE: Descriptor = Descriptor {
    install: "",
    durability: ["nothing"; 3],
    power_cuts: None,
    ..Descriptor::new("nothing", "nothing", Operations::KeyValue)
};

impl Engine for Nothing {
    const DESCRIPTOR: &'static Descriptor = &NOTHING_ENGINE;

    type Job = KvJob;

    fn probe(_: Option<&KvJob>) -> Result<String, EngineError> {
        Ok("nothing".into())
    }

    fn open(_: &Place, _: &KvJob) -> Result<Self, EngineError> {
        let values = Values::new(ValueShape::of(VALUE), Seed(1));
        let value = |record| {
            let mut value = Vec::new();
            values.fill(record, 0, &mut value);
            value
        };
        Ok(Self((0..NOTHING).map(value).collect()))
    }

    fn version(&self) -> String {
        "nothing".into()
    }
}

impl KeyValueEngine for Nothing {
    type Access<'a> = NothingAccess<'a>;

    fn access(&self) -> Result<NothingAccess<'_>, EngineError> {
        Ok(NothingAccess(&self.0))
    }
}

impl KeyValue for NothingAccess<'_> {
    fn get(&mut self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool, EngineError> {
        let digit = |at: usize| usize::from(key[at] & 15) + usize::from(key[at] >> 6) * 9;
        seen(&self.0[digit(14) << 4 | digit(15)]);
        Ok(true)
    }

    fn put(&mut self, _key: &[u8], _value: &[u8]) -> Result<(), EngineError> {
        Ok(())
    }

    fn delete(&mut self, _key: &[u8]) -> Result<(), EngineError> {
        Ok(())
    }

    fn put_batch(
        &mut self,
        next: &mut dyn FnMut(&mut Vec<u8>, &mut Vec<u8>) -> bool,
    ) -> Result<(), EngineError> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        while next(&mut key, &mut value) {}
        Ok(())
    }

    fn scan(
        &mut self,
        _from: &[u8],
        _seen: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), EngineError> {
        Ok(())
    }
}

/// CPU per lookup, ns: medians of the rounds.
#[derive(Clone, Copy)]
struct Cpu {
    /// With the driver: generates keys, checks values, takes and counts times.
    driven: f64,
    /// With a bare loop: keys prepared, reads the first byte of each value.
    bare: f64,
    /// CPU time of a driver round over the bare round before it: the median and its 97 % interval over
    /// independent rounds.
    more: f64,
    more_within: (f64, f64),
}

/// Rounds of both, alternating, so that both of a pair see the same background load.
const ROUNDS: usize = 21;
/// Ranks (from 0) of 21 sorted values between which their median lies in 97 of 100 cases (binomial).
const MEDIAN_WITHIN: (usize, usize) = (5, 15);
/// Lookups of a bare round.
const BARE: usize = 1_000_000;
/// Length of the long driver trial. Costs per trial (threads, histograms) occur in both lengths and cancel;
/// what remains is the cost per operation.
const LONG: Nanos = Nanos::from_millis(1000);
const SHORT: Nanos = Nanos::from_millis(50);

/// CPU per lookup by both, over a loaded database of `records`.
fn cpu<E: KeyValueEngine>(records: u64) -> Result<Cpu, EngineError> {
    let failed = |error: std::io::Error| EngineError::failed("bench", "make a directory", error);
    let dir = std::env::temp_dir().join(format!("crosspoint-speed-{}", std::process::id()));
    std::fs::create_dir_all(&dir).map_err(failed)?;
    let timeline =
        Timeline { warm_up: Nanos::ZERO, measure: LONG, interval: Nanos(LONG.get() / 5) };
    let spec = KvSpec {
        records,
        key_size: KEY_DIGITS,
        values: ValueShape::of(VALUE),
        load_batch: 1000,
        trial: TrialSpec { timeline, stop_on_error: true, failures_max: None, max_lag: None },
        seed: Seed(1),
    };
    let engine = E::open(&Place::Directory(dir.clone()), &KvJob { records, ..job::<E>() })?;
    load(&engine, &spec, None, &mut |_| true)?;
    let keys = keys(&spec);
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        without.push(bare(&engine, &keys)?);
        with.push(driven(&engine, &spec)?);
    }
    engine.close()?;
    std::fs::remove_dir_all(&dir).map_err(failed)?;
    let more = sorted(with.iter().zip(&without).map(|(with, without)| with - without).collect());
    Ok(Cpu {
        driven: sorted(with)[ROUNDS / 2],
        bare: sorted(without)[ROUNDS / 2],
        more: more[ROUNDS / 2],
        more_within: (more[MEDIAN_WITHIN.0], more[MEDIAN_WITHIN.1]),
    })
}

/// A job without durability whose database fits the block cache.
fn job<E: KeyValueEngine>() -> KvJob {
    let cached = "block_based_table_factory={block_cache=1073741824}".to_owned();
    let job = contract::key_value::job::<E>(Durability::None);
    KvJob { options: job.options.with("settings", OptionValue::Text(cached)), ..job }
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

fn clients(spec: &KvSpec) -> Vec<Client<KvClient>> {
    KvClient::all(&[KvRole::READER], spec.records, spec.trial.timeline.end(), spec.seed)
}

/// The keys that the driver's client looks up first.
fn keys(spec: &KvSpec) -> Vec<[u8; KEY_DIGITS]> {
    let mut clients = clients(spec);
    let client = &mut clients[0].workload;
    let lookups = std::iter::from_fn(|| {
        let Step::Issue(issue) = client.next(Nanos::ZERO) else { return None };
        client.completed(issue.id, Outcome::Done, Nanos::ZERO);
        let mut key = [0; KEY_DIGITS];
        write_key(issue.op.record, &mut key);
        Some(key)
    });
    lookups.take(BARE).collect()
}

fn bare<E: KeyValueEngine>(engine: &E, keys: &[[u8; KEY_DIGITS]]) -> Result<f64, EngineError> {
    let mut access = engine.access()?;
    let before = observe::thread_usage();
    for key in keys {
        access.get(key, &mut |bytes| {
            std::hint::black_box(bytes.first());
        })?;
    }
    Ok(observe::thread_usage().since(&before).cpu().get() as f64 / keys.len() as f64)
}

fn driven<E: KeyValueEngine>(engine: &E, spec: &KvSpec) -> Result<f64, EngineError> {
    let short = Timeline { warm_up: Nanos::ZERO, measure: SHORT, interval: Nanos(SHORT.get() / 5) };
    let shorter = TrialSpec { timeline: short, ..spec.trial.clone() };
    let short = trial(engine, &KvSpec { trial: shorter, ..spec.clone() })?;
    let long = trial(engine, spec)?;
    Ok((long.0 - short.0) / (long.1 - short.1).max(1.0))
}

/// CPU time, ns, and operations of a trial.
fn trial<E: KeyValueEngine>(engine: &E, spec: &KvSpec) -> Result<(f64, f64), EngineError> {
    let stop = AtomicBool::new(false);
    let control = Control { stop: &stop, progress: None, keep: None };
    let before = observe::usage();
    let measured = measure(engine, spec, clients(spec), None, &control)?;
    let cpu = observe::usage().since(&before).cpu();
    let ops: u64 = measured.recording.intervals.iter().map(|one| one.counts().ops).sum();
    Ok((cpu.get() as f64, ops as f64))
}

fn main() -> Result<(), String> {
    let text = |error: EngineError| error.to_string();
    println!("cached lookups of {VALUE} B, one reader, CPU per lookup");
    println!(
        "{:<10} {:>8} {:>8} {:>8} {:>8}  97 % of it",
        "", "bare", "driven", "more", "of driven"
    );
    let row = |name: &str, cpu: Cpu| {
        let Cpu { driven, bare, more, more_within: (low, high) } = cpu;
        let of = |part: f64| part / driven * 100.0;
        println!(
            "{name:<10} {bare:>5.0} ns {driven:>5.0} ns {more:>5.0} ns {:>6.1} %  {:.1} to {:.1} %",
            of(more),
            of(low),
            of(high)
        );
    };
    row("nothing", cpu::<Nothing>(NOTHING).map_err(text)?);
    row("lmdb", cpu::<engine_lmdb::Lmdb>(RECORDS).map_err(text)?);
    row("rocksdb", cpu::<engine_rocksdb::RocksDb>(RECORDS).map_err(text)?);
    row("sqlite", cpu::<engine_sqlite::Sqlite>(RECORDS).map_err(text)?);
    Ok(())
}
