//! A key-value trial: load, evict from the page cache, measure; or fill and measure the fill. The directory
//! or device must be empty.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

use archive::TrialMessage;
use engine::kv::{Checked, KvSpec, Ledger, evict, load, measure, residency};
use engine::{EngineError, KeyValueEngine, Place};
use observe::{BlockDevice, Control, HostCpu};
use stats::{DiskCounters, Limit, LoadRecord, Served, ServedKind, Timeline, TrialResult, Usage};
use study::{Durability, KvJob, KvWorkload, kv_roles, value_shape};
use units::{Bytes, Nanos, Seed};
use vtime::Totals;
use workload::{Client, KvClient, Values};

use crate::protocol::{CheckRequest, TrialRequest};

/// Resident share below which a database starts cold.
const RESIDENT_MAX: f64 = 0.01;
/// Deadline of a fill, which ends with its last record and not with time.
const FILL_MAX: Nanos = Nanos::from_secs(48 * 3600);
/// Shortest interval of a fill's time series.
const FILL_INTERVAL: Nanos = Nanos::from_millis(250);

fn spec_of(request: &TrialRequest) -> KvSpec {
    let job = &request.job;
    let mut trial = request.parameters.spec(None);
    if job.workload.fills() {
        let interval = trial.timeline.interval.max(FILL_INTERVAL);
        trial.timeline = Timeline { warm_up: Nanos::ZERO, measure: FILL_MAX, interval };
    }
    KvSpec {
        records: job.records,
        key_size: job.key_size as usize,
        values: value_shape(job),
        load_batch: job.load_batch,
        trial,
        seed: Seed(request.parameters.seed),
    }
}

fn clients_of(job: &KvJob, spec: &KvSpec) -> Vec<Client<KvClient>> {
    let (roles, timeline) = (kv_roles(job), &spec.trial.timeline);
    let scheduled = roles.iter().all(|role| role.arrivals.is_open());
    let until = if scheduled { timeline.until() } else { timeline.end().into() };
    KvClient::all(&roles, spec.records, until, spec.seed)
}

fn open<E: KeyValueEngine>(place: &Path, job: &KvJob) -> Result<E, EngineError> {
    E::open(&Place::Directory(place.to_owned()), job)
}

/// Resource usage of this process and the device since creation.
pub(crate) struct Meter<'a> {
    device: Option<&'a BlockDevice>,
    disk: Option<DiskCounters>,
    usage: Usage,
    host: HostCpu,
    began: Instant,
}

impl<'a> Meter<'a> {
    pub fn start(device: Option<&'a BlockDevice>) -> Self {
        let disk = counters(device);
        let (usage, host) = (observe::usage(), HostCpu::now());
        Self { device, disk, usage, host, began: Instant::now() }
    }

    /// Host CPU limits since then; `engine` is CPU used by another process of the engine.
    pub fn host_limit(&self, engine: Nanos) -> Option<Limit> {
        let own = observe::usage().since(&self.usage).cpu() + engine;
        let shares = HostCpu::now().busy_since(&self.host, own, self.began.elapsed().into());
        shares.and_then(Limit::of_host)
    }

    /// Wall time in nanoseconds, usage of this process, counters of the device.
    pub fn read(&self) -> (u64, Usage, Option<DiskCounters>) {
        let wall = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let usage = observe::usage().since(&self.usage);
        let now = counters(self.device);
        let disk = now.zip(self.disk).map(|(now, before)| now.since(&before));
        (wall, usage, disk)
    }
}

/// Counters of the drive: the modelled one in a simulation.
fn counters(device: Option<&BlockDevice>) -> Option<DiskCounters> {
    let Some(totals) = vtime::totals() else { return device.and_then(BlockDevice::counters) };
    let ([reads, read_bytes, reading], [writes, write_bytes, writing]) =
        (totals.reads, totals.writes);
    Some(DiskCounters {
        reads,
        read_bytes,
        writes,
        write_bytes,
        reading_ms: reading / 1_000_000,
        writing_ms: writing / 1_000_000,
        flushing_ms: totals.flushes[1] / 1_000_000,
    })
}

/// Adds the latencies that the modelled drive of a simulation served since `before`, and their stages:
/// requested equals served by construction, and only means are known.
pub(crate) fn add_served(result: &mut TrialResult, before: Option<Totals>) {
    let Some((before, now)) = before.zip(vtime::totals()) else { return };
    let kind = |requests: u64, time: u64| {
        let mean = time / requests.max(1);
        ServedKind {
            requests,
            requested_mean_ns: mean,
            requested_p50_ns: mean,
            requested_p99_ns: mean,
            delivered_mean_ns: mean,
            delivered_p50_ns: mean,
            delivered_p99_ns: mean,
        }
    };
    let of = |now: [u64; 3], before: [u64; 3]| kind(now[0] - before[0], now[2] - before[2]);
    result.totals.extend(now.stages_since(&before).totals());
    result.served = Some(Served {
        scale: 1,
        reads: of(now.reads, before.reads),
        writes: of(now.writes, before.writes),
        flushes: kind(now.flushes[0] - before.flushes[0], now.flushes[1] - before.flushes[1]),
        ..Served::default()
    });
}

/// Runs a trial and returns its record as a line; `None` if stopped while loading.
pub(crate) fn run<E: KeyValueEngine>(
    request: &TrialRequest,
    control: &Control<'_>,
    loading: &mut dyn FnMut(u64),
) -> Result<Option<Box<TrialMessage>>, EngineError> {
    let (job, place, spec) = (&request.job, request.place.as_path(), spec_of(request));
    let ledger = request.ledger.as_ref().map(|path| Ledger::create(path, place, job.records));
    let ledger = ledger.transpose().map_err(|error| {
        EngineError::failed("ledger", "make the log of acknowledged updates", error)
    })?;
    let device = BlockDevice::under(place);
    let promise = E::DESCRIPTOR.promise(job.durability);
    let mut notes = vec![format!("durability {}: {promise}", job.durability.word())];
    let (mut totals, mut path) = (Vec::new(), String::new());
    let (loaded, measured, usage, disk) = if job.workload.fills() {
        let places = (device.as_ref(), control);
        filled::<E>(request, &spec, places, (&mut notes, &mut totals, &mut path))?
    } else {
        let engine = open::<E>(place, job)?;
        let meter = Meter::start(device.as_ref());
        let whole = load(&engine, &spec, ledger.as_ref(), &mut |count| {
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
        let loaded = LoadRecord { records, wall_ns, usage, disk, db_bytes, user_bytes };
        let engine = open::<E>(place, job)?;
        let sums = engine.sums();
        let (meter, before) = (Meter::start(device.as_ref()), vtime::totals());
        let mut measured =
            measure(&engine, &spec, clients_of(job, &spec), ledger.as_ref(), control);
        let (_, usage, disk) = meter.read();
        if let Ok(measured) = &mut measured {
            measured.limits.extend(meter.host_limit(Nanos::ZERO));
            add_served(measured, before);
        }
        conclude(&engine, place, &mut notes);
        (totals, path) = (engine.totals(&sums), engine.version());
        engine.close()?;
        (loaded, measured?, usage, disk)
    };
    let result = TrialResult {
        path,
        notes,
        usage: Some(usage),
        disk,
        load: Some(loaded),
        totals: totals
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .chain(measured.totals)
            .collect(),
        ..measured
    };
    let message = TrialMessage::of_result(result)
        .map_err(|error| EngineError::failed("archive", "write the record", error))?;
    Ok(Some(Box::new(message)))
}

type Filled = (LoadRecord, TrialResult, Usage, Option<DiskCounters>);

/// A trial that measures the fill of the database.
fn filled<E: KeyValueEngine>(
    request: &TrialRequest,
    spec: &KvSpec,
    (device, control): (Option<&BlockDevice>, &Control<'_>),
    (notes, totals, path): (&mut Vec<String>, &mut Vec<(&'static str, f64)>, &mut String),
) -> Result<Filled, EngineError> {
    let (job, place) = (&request.job, request.place.as_path());
    let engine = open::<E>(place, job)?;
    let sums = engine.sums();
    let (meter, before) = (Meter::start(device), vtime::totals());
    let mut measured = measure(&engine, spec, clients_of(job, spec), None, control)?;
    add_served(&mut measured, before);
    let (wall_ns, usage, _) = meter.read();
    (*totals, *path) = (engine.totals(&sums), engine.version());
    if job.workload == KvWorkload::BulkLoad && !control.stopping() {
        let compacting = Meter::start(device);
        engine.compact()?;
        let (wall, ..) = compacting.read();
        notes.push(format!("compaction after the load took {}", Nanos(wall)));
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

/// Evicts a closed database from the page cache, and notes whether that worked.
fn cool(place: &Path, notes: &mut Vec<String>) {
    if vtime::is_simulated() {
        notes.push(match evict(place) {
            Ok(()) => "database evicted from the simulated page cache after the load".into(),
            Err(error) => format!("started warm: {error}"),
        });
        return;
    }
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

/// Collects notes about an engine before it is closed.
fn conclude<E: KeyValueEngine>(engine: &E, place: &Path, notes: &mut Vec<String>) {
    notes.extend(engine.notes());
    if !vtime::is_simulated()
        && let Ok(warm) = residency(place)
    {
        let whole = engine.bytes_of_device().unwrap_or(warm.whole);
        let share = warm.resident.get() as f64 / whole.get().max(1) as f64;
        notes.push(format!(
            "{:.0} % of the {whole} database was in the page cache at the end",
            share.min(1.0) * 100.0
        ));
    }
}

/// Opens the database of a trial that ended early and compares it with the ledger; returns the result in
/// words.
pub(crate) fn check<E: KeyValueEngine>(request: &CheckRequest) -> Result<String, EngineError> {
    let failed = |error: std::io::Error| {
        EngineError::failed("ledger", "read the log of acknowledged updates", error)
    };
    let job = &request.job;
    let (ledger, noted) = Ledger::open(&request.ledger).map_err(failed)?;
    let place = request.place.clone().unwrap_or(noted);
    if !place.exists() {
        return Err(failed(std::io::Error::other(format!("{} is gone", place.display()))));
    }
    let engine = open::<E>(&place, job)?;
    let values = Values::new(value_shape(job), Seed(request.seed));
    let checked = ledger.check(&engine, &values, job.key_size as usize)?;
    engine.close()?;
    let Checked { records, updated, lost } = checked;
    let what = format!("{records} records with {updated} acknowledged updates");
    match (lost, job.durability) {
        (0, _) => Ok(format!("{what}: all present")),
        (lost, Durability::None) => Ok(format!("{what}: {lost} lost (allowed by durability none)")),
        (count, durability) => Err(EngineError::lost(count, durability.word())),
    }
}

/// Bytes that the files of a directory occupy on disk, holes not counted.
fn allocated_bytes(place: &Path) -> u64 {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|file| file.blocks() * 512).sum()
}
