//! A SQL trial in the process of its clients: loading, or running, against a server or a file.
//!
//! Invariant: what the server used is told apart from what the clients used. What it is not: the server's
//! keeper; that is the program.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use archive::{CounterSample, LoadRecord, TrialOutcome, TrialRecord, to_line};
use observe::{BlockDevice, Control, Counter, Usage};
use sql::{Engine, Measured, Spec, SqlError, load, measure, plan_of};
use sql_mysql::watch_process;
use stats::{Recording, Timeline};
use units::{Nanos, Seed};

use crate::protocol::SqlRequest;

/// Name of the bytes of the tables' pages in the record of a load.
pub const PAGE_BYTES: &str = "table_page_bytes";

/// Loads the tables and gives the record of that as a line; `None` when it was stopped.
pub(crate) fn load_tables<E: Engine>(
    request: &SqlRequest,
    control: &Control<'_>,
    loading: &mut dyn FnMut(u64),
) -> Result<Option<String>, SqlError> {
    let job = &request.job;
    let engine = E::open(&request.place, job)?;
    let device = BlockDevice::under(&request.data);
    let disk = device.as_ref().and_then(BlockDevice::counters);
    let (usage, began) = (Usage::now(), Instant::now());
    let plan = plan_of(job, Nanos::MAX);
    let whole = load(&engine, &plan, (Seed(request.seed), job.load_threads), &mut |rows| {
        loading(rows);
        !control.stopping()
    })?;
    if !whole {
        return Ok(None);
    }
    let now = device.as_ref().and_then(BlockDevice::counters);
    let rows = u64::from(job.tables) * job.rows;
    let of_load = LoadRecord {
        records: rows,
        wall_ns: u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX),
        usage: Usage::now().since(&usage),
        disk: now.zip(disk).map(|(now, before)| now.since(&before)),
        db_bytes: engine.table_bytes(),
        user_bytes: rows * u64::from(sql::changed_bytes(workload::OpClass::Insert)),
    };
    let totals = BTreeMap::from([(PAGE_BYTES.to_owned(), engine.page_bytes() as f64)]);
    let record =
        TrialRecord { load: Some(of_load), path: engine.version(), totals, ..empty(request) };
    line(&record).map(Some)
}

/// Runs the clients and gives the record as a line. `ready` is called once they are connected.
pub(crate) fn run<E: Engine>(
    request: &SqlRequest,
    control: &Control<'_>,
    ready: &(dyn Fn() + Sync),
) -> Result<Option<String>, SqlError> {
    let job = &request.job;
    let engine = E::open(&request.place, job)?;
    let timeline = Timeline {
        warm_up: Nanos(request.warm_up_ns),
        measure: Nanos(request.measure_ns),
        interval: Nanos(request.interval_ns),
    };
    let spec = Spec {
        plan: plan_of(job, timeline.end()),
        threads: job.threads,
        timeline,
        seed: Seed(request.seed),
        stop_on_error: request.stop_on_error,
        changes: job.change.clone(),
    };
    let device = BlockDevice::under(&request.data);
    let mut watch = || watched(request.process, device.as_ref());
    let sums = engine.sums();
    let of_server = process_sums(request.process);
    let disk = device.as_ref().and_then(BlockDevice::counters);
    let (usage, began) = (Usage::now(), Instant::now());
    let measured = measure(&engine, &spec, control, ready, &mut watch)?;
    let usage = Usage::now().since(&usage);
    let now = device.as_ref().and_then(BlockDevice::counters);
    let disk = now.zip(disk).map(|(now, before)| now.since(&before));
    let mut totals: BTreeMap<String, f64> =
        engine.totals(&sums).into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    for (name, value) in process_sums(request.process) {
        let before = of_server.get(name).copied().unwrap_or(0.0);
        totals.insert(name.to_owned(), value - before);
    }
    totals.insert("transactions_given_up".into(), measured.given_up as f64);
    let mut notes = measured.notes.clone();
    notes.extend(identity(&totals, began.elapsed()));
    let record = TrialRecord {
        failure: measured.failure.clone(),
        path: engine.version(),
        notes,
        usage: Some(usage),
        disk,
        totals,
        settings: engine.settings().into_iter().collect(),
        counters: counters(&measured),
        recording: measured.recording,
        ..empty(request)
    };
    line(&record).map(Some)
}

fn counters(measured: &Measured) -> Vec<CounterSample> {
    let sample = |sample: &observe::Sampled| CounterSample {
        at_ns: sample.at.get(),
        values: sample.values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
    };
    measured.samples.iter().map(sample).collect()
}

fn line(record: &TrialRecord) -> Result<String, SqlError> {
    to_line(record).map_err(|error| SqlError::Lost(format!("the record: {error}")))
}

/// A record of nothing yet; what the program knows and this process does not is left empty.
fn empty(request: &SqlRequest) -> TrialRecord {
    TrialRecord {
        number: 0,
        slug: String::new(),
        experiment: String::new(),
        stack: String::new(),
        engine: request.job.engine.word().to_owned(),
        source: String::new(),
        point: BTreeMap::new(),
        repetition: 1,
        outcome: TrialOutcome::Complete,
        failure: None,
        path: String::new(),
        notes: Vec::new(),
        usage: None,
        disk: None,
        load: None,
        counters: Vec::new(),
        totals: BTreeMap::new(),
        settings: BTreeMap::new(),
        recording: Recording::default(),
    }
}

/// Counters of the server's process, of the device below it and of the clients.
fn watched(process: Option<u32>, device: Option<&BlockDevice>) -> Vec<Counter> {
    let mut out = process.map(watch_process).unwrap_or_default();
    let sum = |name, value| Counter { name, value, sum: true };
    if let Some((disk, times)) =
        device.and_then(|device| Some((device.counters()?, device.times()?)))
    {
        out.extend([
            sum("device reads, 1/s", disk.reads as f64),
            sum("device read, B/s", disk.read_bytes as f64),
            sum("device writes, 1/s", disk.writes as f64),
            sum("device written, B/s", disk.write_bytes as f64),
            sum("device read time, ms/s", times.reading_ms as f64),
            sum("device write time, ms/s", times.writing_ms as f64),
        ]);
    }
    out.push(sum("client CPU, s/s", Usage::now().cpu().as_secs_f64()));
    out
}

/// What the kernel counted of the server's process, by metric.
fn process_sums(process: Option<u32>) -> BTreeMap<&'static str, f64> {
    let metric = |name: &str| match name {
        "server CPU, s/s" => Some("server_cpu"),
        "server reads, B/s" => Some("server_bytes_read"),
        "server writes, B/s" => Some("server_bytes_written"),
        _ => None,
    };
    let counters = process.map(watch_process).unwrap_or_default();
    counters.into_iter().filter_map(|one| Some((metric(one.name)?, one.value))).collect()
}

/// Least time after which the sums say something of each other.
const IDENTITY_AFTER: Duration = Duration::from_secs(5);
/// Bytes below which they do not.
const IDENTITY_BYTES: f64 = 64e6;

/// Whether what the server says it wrote is what it wrote: pages, once more with doublewrite, are its data;
/// its data and its redo log, in whole blocks, are what the kernel counted of the process.
///
/// MariaDB 10.11 holds to the first exactly; other servers count otherwise.
fn identity(totals: &BTreeMap<String, f64>, passed: Duration) -> Option<String> {
    let of = |name: &str| totals.get(name).copied();
    let data = of("data_bytes_written")?;
    let pages = of("page_bytes_written")? + of("doublewrite_bytes")?;
    let (redo, process) = (of("redo_bytes")?, of("server_bytes_written")?);
    if passed < IDENTITY_AFTER || process < IDENTITY_BYTES || data <= 0.0 {
        return None;
    }
    Some(format!(
        "writes add up: pages and doublewrite are {:.1} % of the data that the server says it wrote; data \
         and redo log are {:.1} % of what the kernel counted of it (the rest is padding of the log)",
        pages / data * 100.0,
        (data + redo) / process * 100.0
    ))
}
