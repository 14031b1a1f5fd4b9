//! A key-value trial: load, evicted from the page cache, measure; or fill and measure that.
//!
//! Invariant: the place is empty before. What it is not: a comparison of engines at unequal durability; the
//! promise of each is noted.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

use archive::{CounterSample, LoadRecord, TrialRecord};
use kv::{Checked, Engine, KvError, Ledger, Measured, Options, Spec, evict, residency};
use observe::{BlockDevice, Control, DiskCounters, Usage};
use stats::Timeline;
use study::{Durability, KvJob, KvWorkload};
use units::{Bytes, Nanos, Seed};
use workload::{
    Arrivals, ClientIndex, KvAction, KvKeys, KvRole, OpenLoop, RateStep, Spacing, ValueShape,
    Values,
};

use crate::protocol::{CheckRequest, TrialRequest};

/// A database of which less is in the page cache starts cold.
const RESIDENT_MAX: f64 = 0.01;
/// A fill ends with its last record, not with time; longer than this none is waited for.
const FILL_MAX: Nanos = Nanos::from_secs(48 * 3600);
/// Shortest interval of a fill's time series.
const FILL_INTERVAL: Nanos = Nanos::from_millis(250);
/// Records that one operation of `read_seq` reads.
const SEQUENTIAL: u32 = 100;
/// Records that one operation of a scan of everything reads.
const SCANNED: u32 = 1000;

fn open(spacing: Spacing, rate: units::Rate, burst: u32) -> Arrivals {
    let rates = vec![RateStep { from: Nanos::ZERO, per_second: rate.get() as f64 }];
    Arrivals::Open(OpenLoop { spacing, rates, burst })
}

/// When the operations of a job are due, those of its one writer apart.
fn arrivals_of(job: &KvJob) -> Arrivals {
    let spacing = match job.arrivals {
        study::Arrivals::Poisson => Spacing::Poisson,
        study::Arrivals::Constant | study::Arrivals::Closed => Spacing::Constant,
    };
    job.rate.map_or(Arrivals::CLOSED, |rate| open(spacing, rate, 1))
}

/// What each client of a job does.
#[must_use]
pub fn clients_of(job: &KvJob) -> Vec<KvRole> {
    use KvAction::{Delete, Get, Insert, Put, Scan, ScanUpTo, Update};
    let keys = KvKeys::Drawn(job.keys.distribution());
    let drawn = |action| KvRole { keys, ..KvRole::of(action) };
    let in_order = |action| KvRole { keys: KvKeys::InOrder, ..KvRole::of(action) };
    let all = |role: KvRole| {
        let role = KvRole { arrivals: arrivals_of(job), ..role };
        let place = |index| ClientIndex { index, of: job.readers };
        (0..job.readers).map(|index| KvRole { place: place(index), ..role.clone() }).collect()
    };
    let ycsb = |one, other| all(KvRole { keys: YCSB, ..KvRole::mixed(one, other) });
    let beside = |other: KvRole| -> Vec<KvRole> { [vec![other], all(drawn(Get))].concat() };
    let mut clients = match job.workload {
        KvWorkload::FillSeq => vec![in_order(Put)],
        KvWorkload::FillRandom | KvWorkload::BulkLoad | KvWorkload::Overwrite => all(drawn(Put)),
        KvWorkload::UpdateRandom => all(drawn(Update)),
        KvWorkload::ReadRandom => all(drawn(Get)),
        KvWorkload::ReadSeq => all(in_order(Scan(SEQUENTIAL))),
        KvWorkload::SeekRandom => all(drawn(Scan(job.seek_records))),
        KvWorkload::DeleteRandom => all(drawn(Delete)),
        KvWorkload::ReadWhileWriting => {
            let (spacing, burst) = (Spacing::Constant, job.write_burst.max(1));
            let arrivals =
                job.write_rate.map_or(Arrivals::CLOSED, |rate| open(spacing, rate, burst));
            beside(KvRole { arrivals, ..drawn(Put) })
        }
        KvWorkload::ReadWhileScanning => {
            beside(KvRole { background: true, ..in_order(Scan(SCANNED)) })
        }
        KvWorkload::YcsbA => ycsb((Get, 50), (Put, 50)),
        KvWorkload::YcsbB => ycsb((Get, 95), (Put, 5)),
        KvWorkload::YcsbC => ycsb((Get, 1), (Get, 0)),
        KvWorkload::YcsbD => {
            let role = KvRole::mixed((Get, 95), (Insert, 5));
            all(KvRole { keys: KvKeys::Latest, ..role })
        }
        KvWorkload::YcsbE => ycsb((ScanUpTo(100), 95), (Insert, 5)),
        KvWorkload::YcsbF => ycsb((Get, 50), (Update, 50)),
    };
    let most = if job.workload.fills() { Some(job.records) } else { job.operations };
    if let Some(most) = most {
        let count = clients.len() as u64;
        for (index, client) in (0u64..).zip(&mut clients) {
            client.operations = Some(most / count + u64::from(index < most % count));
        }
    }
    clients
}

/// Records by popularity, scattered (Cooper et al., SoCC 2010, section 5.1).
const YCSB: KvKeys = KvKeys::Drawn(workload::Offsets::Zipf { exponent: 0.99 });

fn spec_of(request: &TrialRequest) -> Spec {
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
    Spec {
        records: job.records,
        key_size: job.key_size as usize,
        values: shape_of(job),
        clients: clients_of(job),
        load_batch: job.load_batch,
        timeline,
        seed: Seed(request.seed),
        stop_on_error: request.stop_on_error,
    }
}

fn shape_of(job: &KvJob) -> ValueShape {
    let bytes = |size: Bytes| usize::try_from(size.get()).unwrap_or(usize::MAX);
    let (least, most) = (bytes(job.value_size), bytes(job.value_size_max));
    ValueShape { least, most, random: job.random_payload }
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
    began: Instant,
}

impl<'a> Meter<'a> {
    pub fn start(device: Option<&'a BlockDevice>) -> Self {
        let disk = device.and_then(BlockDevice::counters);
        Self { device, disk, usage: Usage::now(), began: Instant::now() }
    }

    /// Nanoseconds of wall time, what this process used, what the device served.
    pub fn read(&self) -> (u64, Usage, Option<DiskCounters>) {
        let wall = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let usage = Usage::now().since(&self.usage);
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
) -> Result<Option<String>, KvError> {
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
        let measured = kv::measure(&engine, &spec, ledger.as_ref(), control);
        let (_, usage, disk) = meter.read();
        conclude(&engine, place, &mut notes);
        totals = engine.totals();
        engine.close()?;
        (load, measured?, usage, disk)
    };
    let outcome = Outcome { load, measured, usage, disk, totals, notes };
    let line = archive::to_line(&outcome.record::<E>(job)).map_err(|error| KvError::Engine {
        engine: "archive",
        action: "write the record",
        reason: error.to_string(),
    })?;
    Ok(Some(line))
}

/// What a trial gave.
struct Outcome {
    load: LoadRecord,
    measured: Measured,
    usage: Usage,
    disk: Option<DiskCounters>,
    totals: Vec<(&'static str, f64)>,
    notes: Vec<String>,
}

impl Outcome {
    /// As the archive has it; what the program knows and this process does not is left empty.
    fn record<E: Engine>(self, job: &KvJob) -> TrialRecord {
        let totals = self.totals.into_iter().map(|(name, value)| (name.to_owned(), value));
        TrialRecord {
            failure: self.measured.failure,
            path: E::version(),
            notes: self.notes,
            usage: Some(self.usage),
            disk: self.disk,
            load: Some(self.load),
            counters: self.measured.samples.into_iter().map(CounterSample::from).collect(),
            totals: totals.collect(),
            recording: self.measured.recording,
            ..TrialRecord::blank(job.engine.word())
        }
    }
}

type Filled = (LoadRecord, Measured, Usage, Option<DiskCounters>);

/// A trial that fills the database: what is measured is also its load.
fn filled<E: Engine>(
    request: &TrialRequest,
    spec: &Spec,
    (device, control): (Option<&BlockDevice>, &Control<'_>),
    (notes, totals): (&mut Vec<String>, &mut Vec<(&'static str, f64)>),
) -> Result<Filled, KvError> {
    let (job, place) = (&request.job, request.place.as_path());
    let engine = E::open(place, &options_of(job))?;
    let meter = Meter::start(device);
    let measured = kv::measure(&engine, spec, None, control)?;
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
    let values = Values::new(shape_of(job), Seed(request.seed));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn job(keys: &str) -> KvJob {
        let text = format!(
            "schema = 1\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n[[experiment]]\n\
             name = \"e\"\n[experiment.kv]\nengine = \"lmdb\"\nrecords = 10\nvalue_size = \"100B\"\n{keys}"
        );
        let plan = study::plan(&study::parse(&text).unwrap());
        let study::Job::Kv(job) = plan.trials[0].job.clone() else { panic!("a database") };
        *job
    }

    /// A client too many or too few is another workload under the same name.
    #[test]
    fn jobs_have_the_clients_that_their_words_promise() {
        let clients = |keys: &str| clients_of(&job(keys));
        assert_eq!(clients("readers = 3\n").len(), 4);
        let both = clients("readers = 3\nwrite_rate = \"1k/s\"\n");
        assert_eq!((both[0].mix[0].0, both[0].arrivals.is_open()), (KvAction::Put, true));
        assert!(!both[1].arrivals.is_open());
        let due = clients("readers = 3\narrivals = \"poisson\"\nrate = \"1k/s\"\n");
        assert!(!due[0].arrivals.is_open(), "the writer has a rate of its own");
        let places: Vec<_> = due[1..].iter().map(|one| (one.place.index, one.place.of)).collect();
        assert_eq!(places, [(0, 3), (1, 3), (2, 3)]);
        let fill = clients("workload = \"fill_random\"\n");
        assert_eq!((fill.len(), fill[0].operations), (1, Some(10)));
        let shared = clients("workload = \"read_random\"\nreaders = 4\noperations = 10\n");
        let each: Vec<_> = shared.iter().filter_map(|client| client.operations).collect();
        assert_eq!(each, [3, 3, 2, 2]);
        let scanned = clients("workload = \"read_while_scanning\"\nreaders = 2\n");
        assert_eq!((scanned.len(), scanned[0].background), (3, true));
        let seeks = clients("workload = \"seek_random\"\nseek_records = 7\n");
        assert_eq!(seeks[0].mix[0].0, KvAction::Scan(7));
    }
}
