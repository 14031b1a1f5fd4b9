//! Key-value trials: load, put out of the page cache, measure.
//!
//! Each trial loads a database of its own, so trials do not depend on each other. Invariant: the
//! directory is empty before and removed afterwards, unless data was wrong. What it is not: a
//! comparison of engines at unequal durability; the promise of each is noted.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

use archive::{CounterSample, LoadRecord};
use kv::{Engine, KvError, Options, Spec, evict, residency};
use kv_lmdb::Lmdb;
use kv_rocksdb::RocksDb;
use observe::{BlockDevice, Control, DiskCounters, Usage};
use sql_sqlite::Sqlite;
use stack::MemoryUse;
use stats::Recording;
use study::{Engine as EngineName, Experiment, KvJob, OnError, Trial};
use units::Seed;

/// A database of which less is in the page cache starts cold.
const RESIDENT_MAX: f64 = 0.01;

/// What a key-value trial gave.
pub(crate) struct KvResult {
    pub load: LoadRecord,
    pub recording: Recording,
    pub counters: Vec<CounterSample>,
    pub failure: Option<String>,
    pub usage: Usage,
    pub disk: Option<DiskCounters>,
    pub path: String,
    pub notes: Vec<String>,
}

/// Told how many records are in.
pub(crate) type LoadStep<'a> = &'a (dyn Fn(u64) + Sync);

/// Runs one trial in the empty directory `dir`; `None` when it was stopped while loading.
pub(crate) fn run(
    dir: &Path,
    experiment: &Experiment,
    (trial, job): (&Trial, &KvJob),
    (seed, control): (Seed, &Control<'_>),
    loading: LoadStep<'_>,
) -> Result<Option<KvResult>, KvError> {
    let spec = Spec {
        records: job.records,
        value_size: usize::try_from(job.value_size.get()).unwrap_or(0),
        readers: job.readers,
        load_batch: job.load_batch,
        timeline: trial.timeline,
        seed,
        stop_on_error: experiment.on_error == OnError::Stop,
    };
    match job.engine {
        EngineName::Lmdb => run_engine::<Lmdb>(dir, job, &spec, control, loading),
        EngineName::Rocksdb => run_engine::<RocksDb>(dir, job, &spec, control, loading),
        EngineName::Sqlite => run_engine::<Sqlite>(dir, job, &spec, control, loading),
    }
}

fn run_engine<E: Engine>(
    dir: &Path,
    job: &KvJob,
    spec: &Spec,
    control: &Control<'_>,
    loading: LoadStep<'_>,
) -> Result<Option<KvResult>, KvError> {
    let options = Options {
        durability: job.durability,
        expected: job.data(),
        sessions: job.readers + 1,
        memory: job.memory.bytes(job.data()),
    };
    let device = BlockDevice::under(dir);
    let disk_now = || device.as_ref().and_then(BlockDevice::counters);

    let (disk_before, usage_before, began) = (disk_now(), Usage::now(), Instant::now());
    let engine = E::open(dir, &options)?;
    let whole = kv::load(&engine, spec, &mut |done| {
        loading(done);
        !control.stopping()
    })?;
    let (wall, usage) = (began.elapsed(), Usage::now().since(&usage_before));
    engine.close()?;
    if !whole {
        return Ok(None);
    }
    let cold = evict(dir).and_then(|()| residency(dir));
    let load = LoadRecord {
        records: job.records,
        wall_ns: u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX),
        usage,
        disk: difference(disk_before, disk_now()),
        db_bytes: allocated_bytes(dir),
    };
    let mut notes =
        vec![format!("durability {}: {}", job.durability.word(), E::promise(job.durability))];
    match cold {
        Ok(left) if left.share() <= RESIDENT_MAX => {
            notes.push("database put out of the page cache before the clients started".into());
        }
        Ok(left) => notes.push(format!(
            "started warm: {:.1} % of the database was still resident",
            left.share() * 100.0
        )),
        Err(error) => {
            notes.push(format!("started warm: the page cache kept the database ({error})"));
        }
    }

    let engine = E::open(dir, &options)?;
    let (disk_before, usage_before) = (disk_now(), Usage::now());
    let measured = kv::measure(&engine, spec, control);
    let usage = Usage::now().since(&usage_before);
    let disk = difference(disk_before, disk_now());
    notes.extend(engine.notes());
    if let Ok(warm) = residency(dir) {
        let (share, whole) = (warm.share() * 100.0, warm.whole);
        notes.push(format!("{share:.0} % of the database ({whole}) was resident at the end"));
    }
    engine.close()?;
    let measured = measured?;
    let path = E::version();
    let (recording, failure) = (measured.recording, measured.failure);
    let counters = measured.samples.into_iter().map(|sample| CounterSample {
        at_ns: sample.at.get(),
        values: sample.values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
    });
    let counters = counters.collect();
    Ok(Some(KvResult { load, recording, counters, failure, usage, disk, path, notes }))
}

/// Keeps the files of a database in `to`. They are copied where they can not be moved: a file system that
/// was made for them goes with the run.
pub(crate) fn keep(from: &Path, to: &Path) -> std::io::Result<()> {
    if fs::rename(from, to).is_ok() {
        return Ok(());
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// What must be said of a memory limit.
pub(crate) fn memory_note(job: &KvJob, used: MemoryUse) -> String {
    let times = job.data().get() as f64 / used.limit.get().max(1) as f64;
    let peak = used.peak.map_or_else(String::new, |peak| format!(", at most {peak} used"));
    let met = used.met.map_or_else(String::new, |met| format!(", limit met {met} times"));
    format!(
        "memory limited to {} with the page cache: the records are {times:.1} times that{peak}{met}",
        used.limit
    )
}

pub(crate) fn difference(
    before: Option<DiskCounters>,
    after: Option<DiskCounters>,
) -> Option<DiskCounters> {
    Some(after?.since(&before?))
}

/// Bytes that the files of a directory occupy on disk, holes not counted.
fn allocated_bytes(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|file| file.blocks() * 512).sum()
}
