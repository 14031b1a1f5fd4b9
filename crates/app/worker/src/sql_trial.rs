//! A SQL trial in its client process: loads or runs against a server or a file.
//!
//! Invariant: resources used by the server and by the clients are separate.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use archive::TrialMessage;
use engine::sql::{SqlSpec, load, measure};
use engine::{EngineError, SqlEngine};
use observe::{BlockDevice, Control, Counter};
use stats::{LoadRecord, TrialResult};
use study::sql_plan;
use units::{Nanos, Seed};
use workload::SqlClient;

use crate::protocol::SqlRequest;
use crate::trial::{Meter, add_served};

/// Name of the bytes of the tables' pages in the record of a load.
pub const PAGE_BYTES: &str = "table_page_bytes";

/// Loads the tables and returns the load record as a line; `None` if stopped.
pub(crate) fn load_tables<E: SqlEngine>(
    request: &SqlRequest,
    control: &Control<'_>,
    loading: &mut dyn FnMut(u64),
) -> Result<Option<Box<TrialMessage>>, EngineError> {
    let job = &request.job;
    let engine = E::open(&request.place, job)?;
    engine.claim()?;
    let device = BlockDevice::under(&request.data);
    let meter = Meter::start(device.as_ref());
    let plan = sql_plan(job, Nanos::MAX);
    let whole =
        load(&engine, &plan, (Seed(request.parameters.seed), job.load_threads), &mut |rows| {
            loading(rows);
            !control.stopping()
        })?;
    if !whole {
        return Ok(None);
    }
    let (wall_ns, usage, disk) = meter.read();
    let rows = u64::from(job.tables) * job.records;
    let of_load = LoadRecord {
        records: rows,
        wall_ns,
        usage,
        disk,
        db_bytes: engine.table_bytes(),
        user_bytes: rows * job.row_bytes(),
    };
    let totals = BTreeMap::from([(PAGE_BYTES.to_owned(), engine.page_bytes() as f64)]);
    let path = engine.version();
    message(TrialResult { load: Some(of_load), path, totals, ..TrialResult::default() }).map(Some)
}

/// Runs the clients and returns the record as a line. `ready` is called once they are connected.
pub(crate) fn run<E: SqlEngine>(
    request: &SqlRequest,
    control: &Control<'_>,
    ready: &(dyn Fn() + Sync),
) -> Result<Option<Box<TrialMessage>>, EngineError> {
    let job = &request.job;
    let engine = E::open(&request.place, job)?;
    if !request.helper {
        engine.begin()?;
    }
    let trial = request.parameters.spec(Some(SqlSpec::FAILURES_MAX));
    let plan = sql_plan(job, trial.timeline.until());
    let spec = SqlSpec { trial, changes: job.change.clone() };
    let clients = SqlClient::all(&plan, job.clients, Seed(request.parameters.seed));
    let simulated = vtime::totals();
    // In virtual time the kernel counts nothing of the simulated host.
    let device = BlockDevice::under(&request.data).filter(|_| simulated.is_none());
    let server = request.process.filter(|_| simulated.is_none());
    let mut watch = || watched(server, device.as_ref());
    let codecs = if request.helper { BTreeMap::new() } else { codec_totals(request) };
    let sums = engine.sums();
    let of_server = process_sums(server);
    // Without the time in which others connected.
    let meter = OnceLock::new();
    let begin = || {
        ready();
        let _ = meter.set(Meter::start(device.as_ref()));
    };
    let mut measured = measure(&engine, &spec, clients, control, &begin, &mut watch)?;
    let meter = meter.into_inner().unwrap_or_else(|| Meter::start(device.as_ref()));
    add_served(&mut measured, simulated);
    let (wall_ns, usage, disk) = meter.read();
    let mut totals = measured.totals;
    totals.extend(codecs);
    let of_engine = engine.totals(&sums).into_iter();
    totals.extend(of_engine.map(|(name, value)| (name.to_owned(), value)));
    for (name, value) in process_sums(server) {
        let before = of_server.get(name).copied().unwrap_or(0.0);
        // Counts of a killed server end with its processes.
        totals.insert(name.to_owned(), (value - before).max(0.0));
    }
    if let (Some(before), Some(after)) = (simulated, vtime::totals()) {
        let cpu = (after.cpu_of_others - before.cpu_of_others) as f64 / 1e9;
        totals.insert("server_cpu".to_owned(), cpu);
    }
    let server = totals.get("server_cpu").copied().unwrap_or(0.0);
    let mut limits = measured.limits;
    limits.extend(meter.host_limit(Nanos((server * 1e9) as u64)));
    let mut notes = measured.notes;
    notes.extend(identity(&totals, Duration::from_nanos(wall_ns)));
    message(TrialResult {
        path: engine.version(),
        notes,
        limits,
        usage: Some(usage),
        disk,
        totals,
        settings: engine.settings().into_iter().collect(),
        ..measured
    })
    .map(Some)
}

/// Speed of each codec on this host with pages of the job's rows, measured before the clients begin, for jobs
/// with compression.
fn codec_totals(request: &SqlRequest) -> BTreeMap<String, f64> {
    let options = &request.job.options;
    if ["", "none"].contains(&options.text("compression")) {
        return BTreeMap::new();
    }
    let page = options.size("page_size").and_then(|page| usize::try_from(page.get()).ok());
    let page = page.unwrap_or(16 << 10);
    let speeds = codec::measure(&codec::sysbench_pages(page, request.parameters.seed));
    let of = |one: codec::CodecSpeed| {
        let name = |what: &str| format!("codec_{}_{what}", one.codec.word());
        [(name("ratio"), one.ratio), (name("encode"), one.encode), (name("decode"), one.decode)]
    };
    speeds.into_iter().flat_map(of).collect()
}

fn message(result: TrialResult) -> Result<Box<TrialMessage>, EngineError> {
    TrialMessage::of_result(result)
        .map(Box::new)
        .map_err(|error| EngineError::failed("archive", "write the record", error))
}

/// Counters of the server's process, of the device below it and of the clients.
fn watched(process: Option<u32>, device: Option<&BlockDevice>) -> Vec<Counter> {
    let mut out = process.map(observe::watch_process).unwrap_or_default();
    let sum = |name, value| Counter { name, value, sum: true };
    if let Some(disk) = device.and_then(BlockDevice::counters) {
        out.extend([
            sum("device reads, 1/s", disk.reads as f64),
            sum("device read, B/s", disk.read_bytes as f64),
            sum("device writes, 1/s", disk.writes as f64),
            sum("device written, B/s", disk.write_bytes as f64),
            sum("device read time, ms/s", disk.reading_ms as f64),
            sum("device write time, ms/s", disk.writing_ms as f64),
        ]);
    }
    out.push(sum("client CPU, s/s", observe::usage().cpu().as_secs_f64()));
    out
}

/// Kernel counters of the server's process, by metric.
fn process_sums(process: Option<u32>) -> BTreeMap<&'static str, f64> {
    let metric = |name: &str| match name {
        "server CPU, s/s" => Some("server_cpu"),
        "server reads, B/s" => Some("server_bytes_read"),
        "server writes, B/s" => Some("server_bytes_written"),
        _ => None,
    };
    let counters = process.map(observe::watch_process).unwrap_or_default();
    counters.into_iter().filter_map(|one| Some((metric(one.name)?, one.value))).collect()
}

/// Minimum duration for comparing the sums.
const IDENTITY_AFTER: Duration = Duration::from_secs(5);
/// Minimum number of bytes for comparing them.
const IDENTITY_BYTES: f64 = 64e6;

/// Checks the server's write counters against the kernel: pages and doublewrite pages must equal the server's
/// data writes; these plus the redo log, in whole blocks, must equal what the kernel counted.
///
/// MariaDB 10.11 satisfies the first exactly; other servers count differently.
fn identity(totals: &BTreeMap<String, f64>, passed: Duration) -> Option<String> {
    let of = |name: &str| totals.get(name).copied();
    let data = of("data_bytes_written")?;
    let pages = of("page_bytes_written")? + of("doublewrite_bytes")?;
    let (redo, process) = (of("redo_bytes")?, of("server_bytes_written")?);
    if passed < IDENTITY_AFTER || process < IDENTITY_BYTES || data <= 0.0 {
        return None;
    }
    Some(format!(
        "write accounting: pages + doublewrite = {:.1} % of the server's reported data writes; data + \
         redo log = {:.1} % of its writes as counted by the kernel (the rest is log padding)",
        pages / data * 100.0,
        (data + redo) / process * 100.0
    ))
}
