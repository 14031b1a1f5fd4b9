//! A key-value trial: load, evicted from the page cache, measure; or fill and measure that.
//!
//! Invariant: the place is empty before. What it is not: a comparison of engines at unequal durability; the
//! promise of each is noted.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

use archive::TrialMessage;
use kv::{Checked, Engine, KvError, KvSpec, Ledger, Options, evict, residency};
use observe::{BlockDevice, Control, HostCpu};
use stats::{DiskCounters, Limit, LoadRecord, Timeline, TrialResult, Usage};
use study::{Durability, KvJob, KvWorkload, kv_roles, value_shape};
use units::{Bytes, Nanos, Seed};
use workload::{Client, KvClient, Values};

use crate::protocol::{CheckRequest, TrialRequest};

/// A database of which less is in the page cache starts cold.
const RESIDENT_MAX: f64 = 0.01;
/// A fill ends with its last record, not with time; longer than this none is waited for.
const FILL_MAX: Nanos = Nanos::from_secs(48 * 3600);
/// Shortest interval of a fill's time series.
const FILL_INTERVAL: Nanos = Nanos::from_millis(250);
fn spec_of(request: &TrialRequest) -> KvSpec {
    let job = &request.job;
    let timeline = if job.workload.fills() {
        let interval = Nanos(request.interval_ns).max(FILL_INTERVAL);
        Timeline { warm_up: Nanos::ZERO, measure: FILL_MAX, interval }
    } else {
        Timeline {
            warm_up: Nanos(request.warm_up_ns),
            measure: Nanos(request.measure_ns),
            interval: Nanos(request.interval_ns),
        }
    };
    KvSpec {
        records: job.records,
        key_size: job.key_size as usize,
        values: value_shape(job),
        load_batch: job.load_batch,
        timeline,
        seed: Seed(request.seed),
        stop_on_error: request.stop_on_error,
    }
}

fn clients_of(job: &KvJob, spec: &KvSpec) -> Vec<Client<KvClient>> {
    let roles = kv_roles(job);
    let scheduled = roles.iter().all(|role| role.arrivals.is_open());
    let until = if scheduled { spec.timeline.until() } else { spec.timeline.end().into() };
    KvClient::all(&roles, spec.records, until, spec.seed)
}

pub(crate) fn options_of(job: &KvJob) -> Options {
    Options {
        durability: job.durability,
        expected: job.data(),
        sessions: job.clients(),
        memory: job.memory.bytes(job.data()),
        bulk: job.workload == KvWorkload::BulkLoad,
        write_map: job.write_map,
        read_ahead: job.read_ahead,
        map_size: job.map_size,
        settings: job.options.clone(),
    }
}

/// What was used, and served by the device, since it was made.
pub(crate) struct Meter<'a> {
    device: Option<&'a BlockDevice>,
    disk: Option<DiskCounters>,
    usage: Usage,
    host: HostCpu,
    began: Instant,
}

impl<'a> Meter<'a> {
    pub fn start(device: Option<&'a BlockDevice>) -> Self {
        let disk = device.and_then(BlockDevice::counters);
        let (usage, host) = (observe::usage(), HostCpu::now());
        Self { device, disk, usage, host, began: Instant::now() }
    }

    /// What the host's processors say of the time since then, in which `engine` was used by another process
    /// of the engine.
    pub fn host_limit(&self, engine: Nanos) -> Option<Limit> {
        let own = observe::usage().since(&self.usage).cpu() + engine;
        let shares = HostCpu::now().busy_since(&self.host, own, self.began.elapsed().into());
        shares.and_then(Limit::of_host)
    }

    /// Nanoseconds of wall time, what this process used, what the device served.
    pub fn read(&self) -> (u64, Usage, Option<DiskCounters>) {
        let wall = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let usage = observe::usage().since(&self.usage);
        let now = self.device.and_then(BlockDevice::counters);
        let disk = now.zip(self.disk).map(|(now, before)| now.since(&before));
        (wall, usage, disk)
    }
}

/// Runs a trial and gives its record as a line; `None` when it was stopped while loading.
pub(crate) fn run<E: Engine>(
    request: &TrialRequest,
    control: &Control<'_>,
    loading: &mut dyn FnMut(u64),
) -> Result<Option<Box<TrialMessage>>, KvError> {
    let (job, place, spec) = (&request.job, request.place.as_path(), spec_of(request));
    let ledger = request.ledger.as_ref().map(|path| Ledger::create(path, place, job.records));
    let ledger = ledger.transpose().map_err(|error| KvError::Engine {
        engine: "ledger",
        action: "make the log of acknowledged updates",
        reason: error.to_string(),
    })?;
    let device = BlockDevice::under(place);
    let mut notes =
        vec![format!("durability {}: {}", job.durability.word(), E::promise(job.durability))];
    let mut totals = Vec::new();
    let (load, measured, usage, disk) = if job.workload.fills() {
        let places = (device.as_ref(), control);
        filled::<E>(request, &spec, places, (&mut notes, &mut totals))?
    } else {
        let engine = E::open(place, &options_of(job))?;
        let meter = Meter::start(device.as_ref());
        let whole = kv::load(&engine, &spec, ledger.as_ref(), &mut |count| {
            loading(count);
            !control.stopping()
        })?;
        let (wall_ns, usage, _) = meter.read();
        let of_device = engine.bytes_of_device();
        engine.close()?;
        if !whole {
            return Ok(None);
        }
        if job.cold_start {
            cool(place, &mut notes);
        }
        let (_, _, disk) = meter.read();
        let db_bytes = of_device.map_or_else(|| allocated_bytes(place), Bytes::get);
        let (records, user_bytes) = (job.records, job.data().get());
        let load = LoadRecord { records, wall_ns, usage, disk, db_bytes, user_bytes };
        let engine = E::open(place, &options_of(job))?;
        let meter = Meter::start(device.as_ref());
        let mut measured =
            kv::measure(&engine, &spec, clients_of(job, &spec), ledger.as_ref(), control);
        let (_, usage, disk) = meter.read();
        if let Ok(measured) = &mut measured {
            measured.limits.extend(meter.host_limit(Nanos::ZERO));
        }
        conclude(&engine, place, &mut notes);
        totals = engine.totals();
        engine.close()?;
        (load, measured?, usage, disk)
    };
    let result = TrialResult {
        path: E::version(),
        notes,
        usage: Some(usage),
        disk,
        load: Some(load),
        totals: totals.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        ..measured
    };
    let message = TrialMessage::of_result(result).map_err(|error| {
        let reason = error.to_string();
        KvError::Engine { engine: "archive", action: "write the record", reason }
    })?;
    Ok(Some(Box::new(message)))
}

type Filled = (LoadRecord, TrialResult, Usage, Option<DiskCounters>);

/// A trial that fills the database: what is measured is also its load.
fn filled<E: Engine>(
    request: &TrialRequest,
    spec: &KvSpec,
    (device, control): (Option<&BlockDevice>, &Control<'_>),
    (notes, totals): (&mut Vec<String>, &mut Vec<(&'static str, f64)>),
) -> Result<Filled, KvError> {
    let (job, place) = (&request.job, request.place.as_path());
    let engine = E::open(place, &options_of(job))?;
    let meter = Meter::start(device);
    let measured = kv::measure(&engine, spec, clients_of(job, spec), None, control)?;
    let (wall_ns, usage, _) = meter.read();
    *totals = engine.totals();
    if job.workload == KvWorkload::BulkLoad && !control.stopping() {
        let compacting = Meter::start(device);
        engine.compact()?;
        let (wall, ..) = compacting.read();
        notes.push(format!("compacted in {} after the load", Nanos(wall)));
    }
    conclude(&engine, place, notes);
    let of_device = engine.bytes_of_device();
    engine.close()?;
    if job.cold_start {
        cool(place, notes);
    }
    let (_, _, disk) = meter.read();
    let db_bytes = of_device.map_or_else(|| allocated_bytes(place), Bytes::get);
    let (records, user_bytes) = (job.records, job.data().get());
    let load = LoadRecord { records, wall_ns, usage, disk, db_bytes, user_bytes };
    Ok((load, measured, usage, disk))
}

/// Puts a closed database out of the page cache, and says whether it went.
fn cool(place: &Path, notes: &mut Vec<String>) {
    notes.push(match evict(place).and_then(|()| residency(place)) {
        Ok(left) if left.share() <= RESIDENT_MAX => {
            "database evicted from the page cache after the load".into()
        }
        Ok(left) => format!(
            "started warm: {:.1} % of the database was still resident",
            left.share() * 100.0
        ),
        Err(error) => format!("started warm: the page cache kept the database ({error})"),
    });
}

/// What is said of an engine before it is closed.
fn conclude<E: Engine>(engine: &E, place: &Path, notes: &mut Vec<String>) {
    notes.extend(engine.notes());
    if let Ok(warm) = residency(place) {
        let whole = engine.bytes_of_device().unwrap_or(warm.whole);
        let share = warm.resident.get() as f64 / whole.get().max(1) as f64;
        notes.push(format!(
            "{:.0} % of the database ({whole}) was resident at the end",
            share.min(1.0) * 100.0
        ));
    }
}

/// Opens the database of a trial that ended early and holds it against the ledger; gives what was found in
/// words.
pub(crate) fn check<E: Engine>(request: &CheckRequest) -> Result<String, KvError> {
    let failed = |error: std::io::Error| KvError::Engine {
        engine: "ledger",
        action: "read the log of acknowledged updates",
        reason: error.to_string(),
    };
    let job = &request.job;
    let (ledger, noted) = Ledger::open(&request.ledger).map_err(failed)?;
    let place = request.place.clone().unwrap_or(noted);
    if !place.exists() {
        return Err(failed(std::io::Error::other(format!("{} is gone", place.display()))));
    }
    let engine = E::open(&place, &options_of(job))?;
    let values = Values::new(value_shape(job), Seed(request.seed));
    let checked = ledger.check(&engine, &values, job.key_size as usize)?;
    engine.close()?;
    let Checked { records, updated, lost } = checked;
    let what = format!("{records} records with {updated} acknowledged updates");
    match (lost, job.durability) {
        (0, _) => Ok(format!("{what}: all are there")),
        (lost, Durability::None) => {
            Ok(format!("{what}: {lost} are lost, which durability none allows"))
        }
        (count, durability) => Err(KvError::Lost { count, durability: durability.word() }),
    }
}

/// Bytes that the files of a directory occupy on disk, holes not counted.
fn allocated_bytes(place: &Path) -> u64 {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|file| file.blocks() * 512).sum()
}
