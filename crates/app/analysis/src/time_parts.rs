//! Where the time of an operation goes, as far as counters show.
//!
//! Transactions: their statements as seen by the client, or in a simulation the times of client and server.
//! Embedded engines with one client, and block at depth
//! 1: CPU time of the process, the drive's requests, and the rest. Both are counted over warm-up and
//! measurement (emulated drives without the first interval) and divided by the operations of the same time.
//! RocksDB: the steps that it times itself, for a sample of operations. Predictions: the host's I/O path and
//! the drive. Invariants: parts sum to the whole; with several operations in flight, or if the counted times
//! exceed the whole, there are no parts. Times of a modelled drive are split by its stages, for each kind of
//! request by the total times of all its requests.

use archive::TrialRecord;
use device::{Stage, StageTimes};
use stats::{ROUND_TRIP, Served, TIME_KINDS, TrialResult};
use study::Source;
use units::Nanos;
use workload::OpClass;

use crate::groups::{Group, Ops, in_flight, is_sql};
pub use crate::part::{MainPart, Part, TimeParts};

/// Substrings in the names of profiles that consist of more than a drive.
const LAYERS: [&str; 4] = ["-in-", "-over-", "cas-", "raid"];

/// Whether a profile of this name is more than a drive.
pub(crate) fn is_layered(profile: &str) -> bool {
    LAYERS.iter().any(|word| profile.contains(word))
}

/// The parts of `ops` of a group's first repetition; `None` if they were not counted or overlap.
#[must_use]
pub fn time_parts(group: &Group<'_>, ops: Ops) -> Option<TimeParts> {
    let whole = group.mean_latency(ops).filter(|mean| !mean.at_least)?;
    let whole = Nanos(whole.value as u64);
    let is_sql = is_sql(group.first);
    if is_sql && ops != Ops::Only(OpClass::Transaction) {
        // Threads are timed per transaction.
        return None;
    }
    if is_sql || group.classes().len() == 1 {
        let parts = spent(group, whole, Some(ops));
        if parts.is_some() {
            return parts;
        }
    }
    if let Some(parts) = traced(group, (whole, ops)) {
        return Some(parts);
    }
    match (is_sql, group.first.source) {
        (true, _) => return statements(group, whole),
        (false, Source::Predicted) => return predicted(group, (whole, ops)),
        _ if group.is_open_loop() => return None,
        _ if group.first.engine == "rocksdb" => return rocksdb_steps(group, (whole, ops)),
        _ if clients(group) != 1 => return None,
        _ => {}
    }
    let result = &group.first.result;
    let cpu = result.usage?.cpu().get() / operations(result, 0);
    let drive = of_drive(result)?;
    let of_requests = drive.iter().fold(0u64, |sum, (_, time)| sum.saturating_add(*time));
    let cpu = match group.first.engine.as_str() {
        // In a guest, the exit that submits a request is in both.
        "block" => cpu.min(whole.get().saturating_sub(of_requests)),
        _ => cpu,
    };
    TimeParts::of(whole, std::iter::once((Part::Cpu, cpu)).chain(drive).collect())
}

/// The time of all operations of a workload that mixes them, which is known for them together.
#[must_use]
pub fn mixed_parts(group: &Group<'_>) -> Option<TimeParts> {
    let mean = |ops: &Ops| {
        let Ops::Only(class) = *ops else { return None };
        let count = |trial: &&archive::TrialRecord| {
            trial.result.recording.total(Some(class)).counts.ops as f64
        };
        let count: f64 = group.trials.iter().map(count).sum();
        Some((group.mean_latency(*ops)?.value * count, count))
    };
    let all = group.classes();
    let sum = all.iter().filter_map(mean).fold((0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1));
    spent(group, Nanos((sum.0 / f64::max(sum.1, 1.0)) as u64), None)
}

/// Times in which an operation waits for a drive, ns, by kind of request, each with the seconds of all waits:
/// what requests to a modelled drive took, by stage, and the rest of the wait, which is the host's.
fn drive_parts(waits: [(f64, f64); 3], stages: Option<&StageTimes>) -> Vec<(Part, u64)> {
    let rows = [Part::DriveReads, Part::DriveWrites, Part::DriveFlushes];
    let staged = [
        (Part::DriveLimit, Stage::Throttle),
        (Part::DriveQueue, Stage::Queue),
        (Part::Hop, Stage::Hop),
    ];
    let mut sums = staged.map(|_| 0.0);
    let (mut parts, mut host) = (Vec::new(), 0.0);
    for (row, (part, (wait, all))) in rows.into_iter().zip(waits).enumerate() {
        let device = stages.map(|stages| stages.total(row) as f64 / 1e9);
        let time = wait * device.map_or(1.0, |device| (device / all.max(1e-9)).min(1.0));
        host += wait - time;
        let mut own = time;
        for (sum, (_, stage)) in sums.iter_mut().zip(staged) {
            let share = stages.map_or(0.0, |stages| {
                stages.0[row][stage as usize] as f64 / stages.total(row).max(1) as f64
            });
            *sum += time * share;
            own -= time * share;
        }
        parts.push((part, own.max(0.0) as u64));
    }
    parts.extend(staged.iter().zip(sums).map(|((part, _), sum)| (*part, sum as u64)));
    parts.push((Part::HostPath, host as u64));
    parts
}

/// Parts of a traced request, with the counters of their times.
const PATH: [(Part, &str); 5] = [
    (Part::Submission, "submission"),
    (Part::BlockLayer, "block_layer"),
    (Part::Drive, "drive"),
    (Part::WakeUps, "wake_up"),
    (Part::Completion, "completion"),
];

/// A measured operation by the paths of the requests that were traced after the trial.
fn traced(group: &Group<'_>, (whole, ops): (Nanos, Ops)) -> Option<TimeParts> {
    let kind = match ops {
        Ops::Only(OpClass::Read) => "read",
        Ops::Only(OpClass::Write) => "write",
        _ => return None,
    };
    let time = |(part, name)| {
        let total = group.first.result.totals.get(&stats::path_total(kind, name));
        (part, total.copied().unwrap_or_default())
    };
    let times = PATH.map(time);
    let sum = Some(times.iter().map(|(_, time)| time).sum::<f64>()).filter(|sum| *sum > 0.0)?;
    let scale = whole.get() as f64 / sum;
    TimeParts::of(whole, times.map(|(part, time)| (part, (time * scale) as u64)).to_vec())
}

/// A predicted operation: the host's path, the drive's stages, and waiting for the client's thread.
fn predicted(group: &Group<'_>, (whole, ops): (Nanos, Ops)) -> Option<TimeParts> {
    let stack = group.run.header.stacks.iter().find(|one| one.name == group.first.stack)?;
    let time = |index: usize| stack.host_times.get(index).map_or(0, |time| time.get());
    let write = ops == Ops::Only(OpClass::Write);
    // Submission, wake-up with its mean jitter, completion; `between` is outside of the operation.
    let host = [time(usize::from(write)), time(2).saturating_add(time(5)), time(3)];
    let path = host.iter().try_fold(0u64, |sum, one| sum.checked_add(*one))?;
    let result = &group.first.result;
    let Some(stages) = StageTimes::of_totals(&result.totals) else {
        // Older runs.
        let known = clients(group) == 1 && !group.is_open_loop() && path > 0;
        let drive = whole.get().checked_sub(path).filter(|_| known)?;
        let layered = is_layered(&stack.device);
        let part = if layered { Part::DriveAndLayers } else { Part::Drive };
        return TimeParts::of(whole, vec![(Part::HostPath, path), (part, drive)]);
    };
    let Ops::Only(class) = ops else { return None };
    let row = match class {
        OpClass::Read => 0,
        OpClass::Write => 1,
        _ => return None,
    };
    let done: u64 =
        result.recording.intervals.iter().map(|one| one.tallies[class].counts.ops).sum();
    // Requests of the warm-up are among them.
    let drive = (stages.total(row) / done.max(1)).min(whole.get());
    let path = path.min(whole.get() - drive);
    let mut waits = [(0.0, 0.0); 3];
    waits[row].0 = drive as f64;
    let scaled =
        |time: u64| (time as f64 / host.iter().sum::<u64>().max(1) as f64 * path as f64) as u64;
    let [submission, wake_up, completion] = host.map(scaled);
    let mut counted = vec![(Part::Submission, submission)];
    counted.extend(drive_parts(waits, Some(&stages)));
    counted.extend([(Part::WakeUps, wake_up), (Part::Completion, completion)]);
    let rest = whole.get() - drive - submission - wake_up - completion;
    counted.push((Part::Backlog, rest));
    TimeParts::of(whole, counted)
}

/// Share of the time in which RocksDB held up writes, by its own total; `None` without one.
#[must_use]
pub fn stalled_share(trial: &TrialRecord) -> Option<f64> {
    let whole = trial.result.recording.intervals.last()?.end.as_secs_f64();
    Some((trial.result.totals.get("stall_time")? / whole.max(1e-9)).min(1.0))
}

/// Seconds by kind, in the order of `TIME_KINDS`.
type Seconds = [f64; TIME_KINDS.len()];
/// Positions of waiting for a CPU, for messages and of sleeping.
const QUEUE: usize = 1;
const NETWORK: usize = 4;
/// Position of reads, before writes and flushes.
const READ: usize = 5;
const SLEEP: usize = 8;

/// Clients' times by kind, with those of the server's threads in place of waiting for it, and the rest of
/// `total` as waiting for messages; with the seconds for which operations waited for a client thread.
///
/// One client thread can serve several connections. A reply that it does not take yet waits while the thread
/// computes or waits for a CPU itself: at most that time for each of its other connections.
fn with_server(clients: Seconds, server: Seconds, total: f64) -> (Seconds, f64) {
    let sum = |times: &Seconds, kinds: &[usize]| -> f64 {
        (0..times.len()).filter(|kind| !kinds.contains(kind)).map(|kind| times[kind]).sum()
    };
    let busy = sum(&clients, &[NETWORK]);
    let room = (total - busy).max(0.0);
    let served = sum(&server, &[NETWORK, SLEEP]);
    // A server also works when no client waits for it.
    let part = (room / served.max(f64::MIN_POSITIVE)).min(1.0);
    let rest = room - served * part;
    let others = (total / sum(&clients, &[]).max(f64::MIN_POSITIVE) - 1.0).max(0.0);
    // A run folder may come from any user.
    let turn = if busy > 1e-9 { rest.min(busy * others) } else { 0.0 };
    let queued = turn * clients[QUEUE] / busy.max(f64::MIN_POSITIVE);
    let times = std::array::from_fn(|kind| match kind {
        NETWORK => rest - turn,
        SLEEP => clients[kind],
        QUEUE => clients[kind] + server[kind] * part + queued,
        _ => clients[kind] + server[kind] * part,
    });
    (times, turn - queued)
}

/// Mean time breakdown of `ops`, or of all together, from their client threads and the server's.
fn spent(group: &Group<'_>, whole: Nanos, ops: Option<Ops>) -> Option<TimeParts> {
    let result = &group.first.result;
    let mut own = result.client_times()?;
    if group.is_open_loop() {
        // Clients sleep between operations.
        own[SLEEP] = 0.0;
    }
    let all = whole.get() as f64;
    let done = |class| -> u64 {
        result.recording.intervals.iter().map(|one| one.tallies[class].counts.ops).sum()
    };
    let total = ops.and_then(Ops::class).map_or(0.0, |class| all * done(class) as f64 / 1e9);
    let (times, turn) = match is_sql(group.first) {
        true => with_server(own, result.server_times().unwrap_or_default(), total),
        false => (own, 0.0),
    };
    // Threads are also busy between operations; an operation of an open loop waits for those before it.
    let counted = times.iter().sum::<f64>() + turn;
    let sum = Some(counted.max(total)).filter(|sum| *sum > 0.0)?;
    let [cpu, queue, wake_up, lock, _, read, write, flush, sleep, background] =
        times.map(|time| time / sum * all);
    let backlog = match group.is_open_loop() && !is_sql(group.first) {
        true => (sum - counted) / sum * all,
        false => turn / sum * all,
    };
    // A client that sleeps or waits for a condition waits for another one, or is held up by RocksDB, whose
    // total includes waiting for a CPU after that.
    let waits = lock + sleep;
    let most = all - cpu - wake_up - read - write - flush;
    let held = stalled_share(group.first).map_or(0.0, |share| (share * all).min(most));
    let queue = queue - (held - waits).clamp(0.0, queue);
    let counted = [
        (Part::Cpu, cpu),
        (Part::RunQueue, queue),
        (Part::WakeUps, wake_up),
        (Part::Locks, (waits - held).max(0.0)),
        (Part::Stalls, held),
        (Part::Background, background),
        (Part::Backlog, backlog),
    ];
    let mut counted = counted.map(|(part, time)| (part, time as u64)).to_vec();
    let stages = StageTimes::of_totals(&result.totals);
    let waits = [(read, times[READ]), (write, times[READ + 1]), (flush, times[READ + 2])];
    counted.extend(drive_parts(waits, stages.as_ref()));
    TimeParts::of(whole, counted)
}

/// Operations from interval `from` on, at least 1.
fn operations(result: &TrialResult, from: usize) -> u64 {
    let counting = result.recording.intervals.iter().skip(from);
    counting.map(|interval| interval.counts().ops).sum::<u64>().max(1)
}

/// Time of the drive's requests per operation; `None` if not counted.
pub(crate) fn of_drive(result: &TrialResult) -> Option<[(Part, u64); 3]> {
    match (&result.served, &result.disk) {
        // An attached drive is reset after the first interval.
        (Some(served), _) => {
            let from = usize::from(!result.is_simulated());
            Some(delivered(served, operations(result, from)))
        }
        (None, Some(disk)) if disk.reading_ms.max(disk.writing_ms).max(disk.flushing_ms) > 0 => {
            let done = operations(result, 0);
            // A sum that overflows exceeds the whole, so there are no parts.
            let each = |sum_ms: u64| sum_ms.saturating_mul(1_000_000) / done;
            Some([
                (Part::DriveReads, each(disk.reading_ms)),
                (Part::DriveWrites, each(disk.writing_ms)),
                (Part::DriveFlushes, each(disk.flushing_ms)),
            ])
        }
        _ => None,
    }
}

/// Operations that can be in flight.
fn clients(group: &Group<'_>) -> u64 {
    let of = |name: &str| group.first.point.get(name).and_then(|text| text.parse::<u64>().ok());
    match group.first.engine.as_str() {
        "block" => in_flight(group),
        // Includes the separate writer.
        _ => {
            let both = group.classes().len() as u64;
            let own = if is_sql(group.first) { None } else { of("clients") };
            own.unwrap_or(1).max(1).max(both)
        }
    }
}

/// Time of an emulated drive's requests per operation.
fn delivered(served: &Served, done: u64) -> [(Part, u64); 3] {
    let each =
        |kind: &stats::ServedKind| kind.requests.saturating_mul(kind.delivered_mean_ns) / done;
    [
        (Part::DriveReads, each(&served.reads)),
        (Part::DriveWrites, each(&served.writes)),
        (Part::DriveFlushes, each(&served.flushes)),
    ]
}

/// Step times that RocksDB reports for its sampled operations, in seconds.
const READ_STEPS: [(&str, Part); 1] = [("get_block_read_time", Part::BlockReads)];
const WRITE_STEPS: [(&str, Part); 3] = [
    ("put_log_time", Part::Log),
    ("put_memtable_time", Part::Memtable),
    ("put_wait_time", Part::OtherWriters),
];

/// A RocksDB operation by the steps that its perf context timed.
fn rocksdb_steps(group: &Group<'_>, (whole, ops): (Nanos, Ops)) -> Option<TimeParts> {
    // A read-modify-write is more than RocksDB's timed write.
    let workload = group.first.point.get("workload").map(String::as_str);
    let looks_up = matches!(workload, Some("update_random" | "ycsb_f"));
    let (timed, steps): (_, &[_]) = match ops {
        Ops::Only(OpClass::Write) if looks_up => return None,
        Ops::Only(OpClass::Read) => ("get_time", &READ_STEPS),
        Ops::Only(OpClass::Write) => ("put_time", &WRITE_STEPS),
        _ => return None,
    };
    let totals = &group.first.result.totals;
    // Stalls are few and long, so the sample contains too many of them or none: their time is RocksDB's
    // total, and only the rest has the sample's shares.
    let stalled = match ops {
        Ops::Only(OpClass::Write) => stalled_share(group.first).unwrap_or(0.0) * whole.get() as f64,
        _ => 0.0,
    };
    let held = totals.get("put_stall_time").filter(|_| ops == Ops::Only(OpClass::Write));
    let timed = totals.get(timed)? - held.copied().unwrap_or(0.0);
    let scale = (whole.get() as f64 - stalled) / Some(timed).filter(|time| *time > 0.0)?;
    let part = |(name, part): &(&str, Part)| Some((*part, (totals.get(*name)? * scale) as u64));
    let mut counted = steps.iter().map(part).collect::<Option<Vec<(Part, u64)>>>()?;
    counted.push((Part::Stalls, stalled as u64));
    // Without writers, only lookups read from the drive.
    if group.classes() == [Ops::Only(OpClass::Read)]
        && let Some([(_, reads), ..]) = of_drive(&group.first.result)
    {
        let blocks = counted.iter().map(|(_, time)| time).sum::<u64>();
        let drive = reads.min(blocks);
        counted = vec![(Part::DriveReads, drive), (Part::BlockReadsBesides, blocks - drive)];
    }
    TimeParts::of(whole, counted)
}

/// Round trip to a server on the same host, ns: TCP on loopback takes 20 to 50 us with two wake-ups. What is
/// beyond is the network's, if it is more than a server on the same host could take.
const LOCAL_TRIP: u64 = 20_000;
const NEAR_TRIP: u64 = 100_000;

/// A transaction by its statements, and by the messages of all of them if the server's distance is known.
fn statements(group: &Group<'_>, whole: Nanos) -> Option<TimeParts> {
    let result = &group.first.result;
    let trip = result
        .totals
        .get(ROUND_TRIP)
        .map_or(0, |trip| (trip * 1e9) as u64)
        .saturating_sub(LOCAL_TRIP);
    let trip = if trip + LOCAL_TRIP < NEAR_TRIP { 0 } else { trip };
    // Time in the server, and that of the messages.
    let sum = |classes: &[OpClass]| {
        let all = result.recording.measured();
        all.flat_map(|one| classes.iter().map(|class| one.tallies[*class].counts)).fold(
            (0, 0),
            |(server, messages): (u64, u64), counts| {
                let time = counts.latency_sum.get();
                let own = counts.ops.saturating_mul(trip).min(time);
                (server + (time - own), messages + own)
            },
        )
    };
    let whole_sum = sum(&[OpClass::Transaction]);
    let whole_sum = whole_sum.0 + whole_sum.1;
    let phase = |wanted: OpClass| -> Vec<OpClass> {
        let of = |class: &OpClass| workload::phase_of(*class) == Some(wanted);
        OpClass::STATEMENTS.into_iter().filter(of).collect()
    };
    let counted = [
        (Part::Selects, sum(&phase(OpClass::ReadPhase)).0),
        (Part::Changes, sum(&phase(OpClass::WritePhase)).0),
        (Part::Commit, sum(&[OpClass::Commit]).0),
        (Part::Network, sum(&OpClass::STATEMENTS).1),
    ];
    // Statements and transactions that completed, including those that began before the measurement.
    let scale = |time: u64| {
        (time as f64 / whole_sum.max(1) as f64 * whole.get() as f64).min(whole.get() as f64) as u64
    };
    TimeParts::of(whole, counted.map(|(part, time)| (part, scale(time))).to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use stats::TimedBy;

    /// A live drive counts from the end of the first interval on. Dividing by all operations would make its
    /// share too small, by half in a trial of two intervals.
    #[test]
    fn a_live_drive_is_taken_per_operation_of_the_time_in_which_it_counted() {
        let study = "schema = 1\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"model:samsung-pm9a3\"\n\
                     attach = true\nsize = \"1GiB\"\n[[experiment]]\nname = \"e\"\nmeasure = \"1s\"\n\
                     [experiment.block]\nqueue_depth = 1\n";
        let mut run = crate::test_run::run_of(study, Nanos(100_000));
        let result = &mut run.trials[0].result;
        let counting = result.recording.intervals.iter().skip(1);
        let requests = counting.map(|interval| interval.counts().ops).sum();
        let reads = stats::ServedKind { requests, delivered_mean_ns: 50_000, ..Default::default() };
        result.served = Some(Served { reads, ..Default::default() });
        result.usage = Some(Default::default());
        let group = crate::groups(&run).remove(0);
        let parts = time_parts(&group, Ops::Only(OpClass::Read)).unwrap();
        assert!((parts.drive_share().unwrap() - 0.5).abs() < 1e-3, "{parts:?}");
    }

    /// RocksDB times a sample of operations: if those took longer than the mean, their steps would exceed the
    /// whole.
    #[test]
    fn steps_of_rocksdb_are_shares_of_what_it_timed() {
        let study = "schema = 1\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n\
                     [[experiment]]\nname = \"e\"\n[experiment.kv]\nengine = \"rocksdb\"\nworkload = \
                     \"overwrite\"\nrecords = 1000\nvalue_size = \"100B\"\ndurability = \"device\"\n";
        let mut run = crate::test_run::run_of(study, Nanos(100_000));
        let parts = |run: &archive::Run| {
            let group = crate::groups(run).remove(0);
            let ops = group.classes()[0];
            (ops, time_parts(&group, ops))
        };
        assert_eq!(parts(&run).1, None, "nothing was timed");
        let writes = [("put_time", 2e-4), ("put_log_time", 1.8e-4), ("put_memtable_time", 1e-5)];
        let none = [("put_stall_time", 0.0), ("put_wait_time", 0.0)];
        let reads = [("get_time", 2e-4), ("get_block_read_time", 1.8e-4)];
        let totals = writes.into_iter().chain(none).chain(reads);
        run.trials[0].result.totals =
            totals.map(|(name, value)| (name.to_owned(), value)).collect();
        let (ops, found) = parts(&run);
        let found = found.expect("steps");
        let main = if ops == Ops::Only(OpClass::Read) { Part::BlockReads } else { Part::Log };
        let most = found.main_part().expect("most of it");
        assert!(most.part == main && (most.share - 0.9).abs() < 0.01, "{found:?}");
        let sum: u64 = found.parts.iter().map(|(_, time)| time.get()).sum();
        assert_eq!(sum, found.whole.get());
    }

    /// A client that waits for its log must not be called CPU-bound, or the reverse.
    #[test]
    fn a_simulated_operation_is_split_as_its_clients_spent_their_time() {
        let study = "schema = 2\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"model:samsung-pm9a3\"\n\
                     [[experiment]]\nname = \"e\"\n[experiment.job]\nengine = \"lmdb\"\nworkload = \
                     \"read_random\"\nclients = 4\nrecords = 1000\nvalue_size = \"100B\"\n";
        let mut run = crate::test_run::run_of(study, Nanos(100_000));
        let spent = [("cpu", 0.2), ("read", 0.5), ("lock", 0.1)];
        let of = |name: &str| spent.iter().find(|one| one.0 == name).map_or(0.0, |one| one.1);
        run.trials[0].result.totals =
            TIME_KINDS.map(|kind| (TimedBy::Simulation.name(kind, false), of(kind) * 4.0)).into();
        let group = crate::groups(&run).remove(0);
        let parts = time_parts(&group, group.classes()[0]).expect("parts");
        let share = |part| {
            let found = parts.parts.iter().find(|(own, _)| *own == part);
            found.map_or(0.0, |(_, time)| time.get() as f64 / parts.whole.get() as f64)
        };
        assert!((share(Part::Cpu) - 0.25).abs() < 1e-3, "{parts:?}");
        assert!((share(Part::Locks) - 0.125).abs() < 1e-3, "{parts:?}");
        let main = parts.main_part().expect("the drive");
        assert!(main.part == Part::DriveReads && (main.own - 0.625).abs() < 1e-3, "{parts:?}");
    }

    /// The exit of a guest counts as CPU and as drive time: a row without a bottleneck says nothing.
    #[test]
    fn a_block_job_whose_counters_overlap_has_a_bottleneck() {
        let study = "schema = 1\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n\
                     [[experiment]]\nname = \"e\"\n[experiment.block]\n";
        let mut run = crate::test_run::run_of(study, Nanos(100_000));
        let result = &mut run.trials[0].result;
        let done = operations(result, 0);
        result.usage = Some(stats::Usage { cpu_system_ns: done * 60_000, ..Default::default() });
        let reading_ms = done * 80_000 / 1_000_000;
        result.disk = Some(stats::DiskCounters { reading_ms, ..Default::default() });
        let group = crate::groups(&run).remove(0);
        let parts = time_parts(&group, group.classes()[0]).expect("parts");
        let main = parts.main_part().expect("the drive");
        assert!(main.part == Part::DriveReads && main.own > 0.6, "{parts:?}");
        assert!((parts.share(Part::Cpu) + main.own - 1.0).abs() < 0.01, "{parts:?}");
    }

    /// Time in a drive's queue would look like slow flash, and a fabric like a slow drive.
    #[test]
    fn times_of_a_drive_are_split_by_its_stages() {
        let mut stages = StageTimes::default();
        stages.0[0][Stage::Queue as usize] = 30;
        stages.0[0][Stage::Media as usize] = 10;
        stages.0[1][Stage::Hop as usize] = 1;
        stages.0[1][Stage::Transfer as usize] = 3;
        let seconds = |row| stages.total(row) as f64 / 1e9;
        let waits = [(400.0, seconds(0)), (40.0, seconds(1) * 2.0), (7.0, 0.0)];
        let parts = drive_parts(waits, Some(&stages));
        let of = |part| parts.iter().find(|(own, _)| *own == part).unwrap().1;
        assert_eq!(of(Part::HostPath), 20 + 7, "half of the waits for writes, and all for flushes");
        assert_eq!([Part::DriveReads, Part::DriveWrites, Part::DriveFlushes].map(of), [100, 15, 0]);
        assert_eq!([Part::DriveQueue, Part::Hop, Part::DriveLimit].map(of), [300, 5, 0]);
        let measured = drive_parts(waits, None);
        assert!(measured.contains(&(Part::DriveFlushes, 7)), "{measured:?}");
    }

    /// Stalls are few and long: a sample of one write in 127 contains none of them, or far too many.
    #[test]
    fn stalled_time_is_what_rocksdb_counted_and_not_the_samples() {
        let study = "schema = 1\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n\
                     [[experiment]]\nname = \"e\"\n[experiment.kv]\nengine = \"rocksdb\"\nworkload = \
                     \"overwrite\"\nrecords = 1000\nvalue_size = \"100B\"\n";
        let mut run = crate::test_run::run_of(study, Nanos(100_000));
        let whole = run.trials[0].result.recording.intervals.last().unwrap().end.as_secs_f64();
        for in_sample in [0.0, 5e-3] {
            let totals = [
                ("put_time", 2e-4 + in_sample),
                ("put_log_time", 1e-4),
                ("put_memtable_time", 4e-5),
                ("put_stall_time", in_sample),
                ("put_wait_time", 0.0),
                ("stall_time", whole / 4.0),
            ];
            run.trials[0].result.totals =
                totals.map(|(name, value)| (name.to_owned(), value)).into();
            let group = crate::groups(&run).remove(0);
            let ops = Ops::Only(OpClass::Write);
            let Some(parts) = rocksdb_steps(&group, (Nanos(100_000), ops)) else {
                panic!("no parts")
            };
            assert!((parts.share(Part::Stalls) - 0.25).abs() < 1e-3, "{parts:?}");
            assert!((parts.share(Part::Log) - 0.375).abs() < 1e-3, "{parts:?}");
        }
    }

    /// A client that waits for its server must be told what the server waits for.
    #[test]
    fn waiting_for_a_server_is_what_the_server_did() {
        // CPU, run queue, wake-up, lock, network, read, write, flush, sleep, background.
        let clients = [1.0, 0.0, 0.5, 0.0, 8.0, 0.0, 0.0, 0.0, 0.5, 0.0];
        let server = [2.0, 0.0, 0.5, 0.0, 9.0, 1.0, 0.0, 3.0, 70.0, 0.5];
        let total = 10.0;
        let alone = ([3.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 3.0, 0.5, 0.5], 0.0);
        assert_eq!(with_server(clients, server, total), alone, "it takes each reply at once");
        // Twice as much work as anyone waited for: half of it counts.
        let busy = server.map(|time| time * 16.0 / 7.0);
        let (found, _) = with_server(clients, busy, total);
        assert!(
            (found[0] - 1.0 - 16.0 / 7.0).abs() < 1e-9 && found[NETWORK].abs() < 1e-9,
            "{found:?}"
        );
        assert_eq!(with_server(clients, [0.0; 10], total).0, clients, "nothing is known of it");
    }

    /// The client's own part in a slow transaction must not look like a server that nobody understands.
    #[test]
    fn connections_wait_for_their_client_thread_while_it_is_busy() {
        let server = [2.0, 0.0, 0.5, 0.0, 9.0, 1.0, 0.0, 3.0, 0.0, 0.5];
        // Four connections; its 2 s of computing and 3 s without a CPU delay three others.
        let clients = [2.0, 3.0, 0.0, 0.0, 5.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        let (shared, turn) = with_server(clients, server, 40.0);
        assert!((shared[QUEUE] - 3.0 - 9.0).abs() < 1e-9 && (turn - 6.0).abs() < 1e-9);
        // 40 s less 5 s of the client, 7 s of the server and 15 s of waiting for the client.
        assert!((shared[NETWORK] - 13.0).abs() < 1e-9, "more than it explains: {shared:?}");
        let idle = [0.1, 0.0, 0.0, 0.0, 9.9, 0.0, 0.0, 0.0, 0.0, 0.0];
        let (shared, turn) = with_server(idle, server, 40.0);
        assert!((turn - 0.3).abs() < 1e-9 && shared[NETWORK] > 32.0, "an idle client: {shared:?}");
    }
}
