//! Where the time of an operation goes, as far as counters show.
//!
//! Transactions: their statements as seen by the client, or in a simulation the times of client and server.
//! Embedded engines with one client, and block at depth
//! 1: CPU time of the process, the drive's requests, and the rest. Both are counted over warm-up and
//! measurement (emulated drives without the first interval) and divided by the operations of the same time.
//! RocksDB: the steps that it times itself, for a sample of operations. Predictions: the host's I/O path and
//! the drive. Invariants: parts sum to the whole; with several operations in flight, or if the counted times
//! exceed the whole, there are no parts.

use stats::{SIMULATED_SERVER_TIMES, SIMULATED_TIMES, Served, TrialResult};
use study::Source;
use units::Nanos;
use workload::OpClass;

use crate::groups::{Group, Ops, in_flight, is_sql};

/// A part of an operation's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Processor time of the process, in user and kernel mode.
    Cpu,
    /// Ready, but without a CPU.
    RunQueue,
    /// Waiting for a lock or a condition.
    Locks,
    /// From the event that ends a wait until the thread runs on an idle CPU.
    WakeUps,
    /// Host I/O path of a prediction: submission, interrupt, wake-up.
    HostPath,
    /// The drive's reads.
    DriveReads,
    /// Its writes.
    DriveWrites,
    /// Its flushes.
    DriveFlushes,
    /// Time in the drive.
    Drive,
    /// A drive with the layers above it: guest, fabric, cache, array.
    DriveAndLayers,
    /// Statements that read.
    Selects,
    /// Statements that change rows.
    Changes,
    /// The commit.
    Commit,
    /// RocksDB: reads of blocks missing from its block cache, from the drive or the page cache.
    BlockReads,
    /// Block reads without the drive's time.
    BlockReadsBesides,
    /// RocksDB: writing the WAL, including the flush if durability requires it.
    Log,
    /// It writes its memtable.
    Memtable,
    /// It holds writers up until flushes and compactions have caught up.
    Stalls,
    /// RocksDB: waiting for the group leader that writes and flushes the WAL.
    OtherWriters,
    /// Remainder that was not counted.
    Rest,
}

impl Part {
    /// Label.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::RunQueue => "waiting for a CPU",
            Self::Locks => "lock and condition waits",
            Self::WakeUps => "waking up (interrupts, messages, locks)",
            Self::HostPath => "host I/O path",
            Self::DriveReads => "drive: reads",
            Self::DriveWrites => "drive: writes",
            Self::DriveFlushes => "drive: flushes",
            Self::Drive => "drive",
            Self::DriveAndLayers => "drive plus guest, fabric or cache",
            Self::Selects => "read statements (incl. drive time)",
            Self::Changes => "write statements (incl. drive time)",
            Self::Commit => "commit (incl. log flush)",
            Self::BlockReads => "block reads (drive or page cache)",
            Self::BlockReadsBesides => {
                "block reads outside the drive (page cache, waiting for CPU)"
            }
            Self::Log => "write-ahead log",
            Self::Memtable => "memtable",
            Self::Stalls => "write stalls (memtable flushes, compactions)",
            Self::OtherWriters => "waiting for the group-commit leader",
            Self::Rest => "engine and kernel (not instrumented)",
        }
    }

    /// Whether it is time in the drive.
    #[must_use]
    pub const fn is_drive(self) -> bool {
        matches!(self, Self::DriveReads | Self::DriveWrites | Self::DriveFlushes | Self::Drive)
    }
}

/// Substrings in the names of profiles that consist of more than a drive.
const LAYERS: [&str; 4] = ["-in-", "-over-", "cas-", "raid"];

/// An operation's time in parts.
#[derive(Debug, Clone, PartialEq)]
pub struct TimeParts {
    /// Mean time of an operation.
    pub whole: Nanos,
    /// Parts in the order of the I/O path; they sum to the whole.
    pub parts: Vec<(Part, Nanos)>,
}

impl TimeParts {
    /// Share of the drive; `None` if it is not counted separately.
    #[must_use]
    pub fn drive_share(&self) -> Option<f64> {
        let drive = self.parts.iter().filter(|(part, _)| part.is_drive());
        let counted = drive.clone().next().is_some();
        let sum: f64 = drive.map(|(_, time)| time.get() as f64).sum();
        counted.then(|| sum / self.whole.get().max(1) as f64)
    }

    /// The largest part and its share, the drive's parts combined; `None` if nothing was counted. The
    /// remainder and waits for another writer do not count.
    #[must_use]
    pub fn main_part(&self) -> Option<(Part, f64)> {
        let share = |time: Nanos| time.get() as f64 / self.whole.get().max(1) as f64;
        let drive = self.drive_share().map(|share| (Part::Drive, share));
        // Waiting for another writer is waiting for that writer's log.
        let none = [Part::Rest, Part::OtherWriters, Part::Locks];
        let others = self.parts.iter().filter(|(part, _)| !part.is_drive() && !none.contains(part));
        let all = drive.into_iter().chain(others.map(|(part, time)| (*part, share(*time))));
        all.max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Builds the counted parts and the remainder.
    fn of(whole: Nanos, counted: Vec<(Part, u64)>) -> Option<Self> {
        let sum = counted.iter().try_fold(0u64, |sum, (_, time)| sum.checked_add(*time))?;
        let rest = whole.get().checked_sub(sum)?;
        let parts = counted.into_iter().chain(std::iter::once((Part::Rest, rest)));
        let parts = parts.filter(|(_, time)| *time > 0);
        let parts = parts.map(|(part, time)| (part, Nanos(time))).collect();
        Some(Self { whole, parts })
    }
}

/// The parts of `ops` of a group's first repetition; `None` if they were not counted or overlap.
#[must_use]
pub fn time_parts(group: &Group<'_>, ops: Ops) -> Option<TimeParts> {
    let whole = group.mean_latency(ops).filter(|mean| !mean.at_least)?;
    let whole = Nanos(whole.value as u64);
    let simulated = || simulated(group, whole).filter(|_| !group.is_open_loop());
    if is_sql(group.first) {
        return simulated().or_else(|| statements(group, whole));
    }
    if group.is_open_loop() {
        return None;
    }
    if let Some(parts) = simulated() {
        return Some(parts);
    }
    if group.first.engine == "rocksdb" {
        return rocksdb_steps(group, (whole, ops));
    }
    if clients(group) != 1 {
        return None;
    }
    if group.first.source == Source::Predicted {
        let stack = group.run.header.stacks.iter().find(|one| one.name == group.first.stack)?;
        let path = stack.host_times.iter().try_fold(0u64, |sum, one| sum.checked_add(one.get()))?;
        let drive = whole.get().checked_sub(path).filter(|_| path > 0)?;
        let layered = LAYERS.iter().any(|word| stack.device.contains(word));
        let part = if layered { Part::DriveAndLayers } else { Part::Drive };
        return TimeParts::of(whole, vec![(Part::HostPath, path), (part, drive)]);
    }
    let result = &group.first.result;
    let cpu = result.usage?.cpu().get() / operations(result, 0);
    let counted = std::iter::once((Part::Cpu, cpu)).chain(of_drive(result)?).collect();
    TimeParts::of(whole, counted)
}

/// Seconds by kind, in the order of `SIMULATED_TIMES`.
type Seconds = [f64; SIMULATED_TIMES.len()];
/// Positions of waiting for messages and of sleeping.
const NETWORK: usize = 4;
const SLEEP: usize = 8;

/// Clients' times by kind, with those of the server's threads in place of waiting for it.
fn with_server(clients: Seconds, server: Seconds) -> Seconds {
    let serving = |kind: usize| ![NETWORK, SLEEP].contains(&kind);
    let served: f64 =
        (0..server.len()).filter(|kind| serving(*kind)).map(|kind| server[kind]).sum();
    // A server also works when no client waits for it.
    let part = (clients[NETWORK] / served.max(f64::MIN_POSITIVE)).min(1.0);
    std::array::from_fn(|kind| match kind {
        NETWORK => clients[NETWORK] - served * part,
        _ if serving(kind) => clients[kind] + server[kind] * part,
        _ => clients[kind],
    })
}

/// Mean time breakdown of a simulated operation, from its client threads and the server's; `None` for mixed
/// workloads of an embedded engine.
fn simulated(group: &Group<'_>, whole: Nanos) -> Option<TimeParts> {
    let totals = &group.first.result.totals;
    let seconds = |names: [&str; 9]| -> Option<Seconds> {
        let times = names.map(|name| totals.get(name).copied());
        times.iter().all(Option::is_some).then(|| times.map(Option::unwrap_or_default))
    };
    let own = seconds(SIMULATED_TIMES)?;
    let times = match is_sql(group.first) {
        true => with_server(own, seconds(SIMULATED_SERVER_TIMES)?),
        false if group.classes().len() == 1 => own,
        false => return None,
    };
    let sum = Some(times.iter().sum::<f64>()).filter(|sum| *sum > 0.0)?;
    let [cpu, queue, wake_up, lock, _, read, write, flush, _] =
        times.map(|time| time / sum * whole.get() as f64);
    let counted = [
        (Part::Cpu, cpu),
        (Part::RunQueue, queue),
        (Part::WakeUps, wake_up),
        (Part::Locks, lock),
        (Part::DriveReads, read),
        (Part::DriveWrites, write),
        (Part::DriveFlushes, flush),
    ];
    TimeParts::of(whole, counted.map(|(part, time)| (part, time as u64)).to_vec())
}

/// Operations from interval `from` on, at least 1.
fn operations(result: &TrialResult, from: usize) -> u64 {
    let counting = result.recording.intervals.iter().skip(from);
    counting.map(|interval| interval.counts().ops).sum::<u64>().max(1)
}

/// Time of the drive's requests per operation; `None` if not counted.
fn of_drive(result: &TrialResult) -> Option<[(Part, u64); 3]> {
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
const WRITE_STEPS: [(&str, Part); 4] = [
    ("put_log_time", Part::Log),
    ("put_memtable_time", Part::Memtable),
    ("put_stall_time", Part::Stalls),
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
    // Shares of the sample are applied to all operations.
    let scale = whole.get() as f64 / totals.get(timed).filter(|time| **time > 0.0)?;
    let part = |(name, part): &(&str, Part)| Some((*part, (totals.get(*name)? * scale) as u64));
    let mut counted = steps.iter().map(part).collect::<Option<Vec<(Part, u64)>>>()?;
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

/// A transaction by its statements.
fn statements(group: &Group<'_>, whole: Nanos) -> Option<TimeParts> {
    let recording = &group.first.result.recording;
    let sum = |classes: &[OpClass]| -> u64 {
        let of = |interval: &stats::Interval| -> u64 {
            classes.iter().map(|class| interval.tallies[*class].counts.latency_sum.get()).sum()
        };
        recording.measured().map(of).sum()
    };
    let whole_sum = sum(&[OpClass::Transaction]);
    let phase = |wanted: OpClass| -> Vec<OpClass> {
        let of = |class: &OpClass| workload::phase_of(*class) == Some(wanted);
        OpClass::STATEMENTS.into_iter().filter(of).collect()
    };
    let counted = [
        (Part::Selects, sum(&phase(OpClass::ReadPhase))),
        (Part::Changes, sum(&phase(OpClass::WritePhase))),
        (Part::Commit, sum(&[OpClass::Commit])),
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
        let (part, share) = found.main_part().expect("most of it");
        assert!(part == main && (share - 0.9).abs() < 0.01, "{found:?}");
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
        let spent = [("simulated_cpu", 0.2), ("simulated_read", 0.5), ("simulated_lock", 0.1)];
        let of = |name: &str| spent.iter().find(|one| one.0 == name).map_or(0.0, |one| one.1);
        run.trials[0].result.totals =
            SIMULATED_TIMES.iter().map(|name| ((*name).to_owned(), of(name) * 4.0)).collect();
        let group = crate::groups(&run).remove(0);
        let parts = time_parts(&group, group.classes()[0]).expect("parts");
        let share = |part| {
            let found = parts.parts.iter().find(|(own, _)| *own == part);
            found.map_or(0.0, |(_, time)| time.get() as f64 / parts.whole.get() as f64)
        };
        assert!((share(Part::Cpu) - 0.25).abs() < 1e-3, "{parts:?}");
        assert!((share(Part::Locks) - 0.125).abs() < 1e-3, "{parts:?}");
        let (main, half) = parts.main_part().expect("the drive");
        assert!(main == Part::Drive && (half - 0.625).abs() < 1e-3, "{parts:?}");
    }

    /// A client that waits for its server must be told what the server waits for.
    #[test]
    fn waiting_for_a_server_is_what_the_server_did() {
        // CPU, run queue, wake-up, lock, network, read, write, flush, sleep.
        let clients = [1.0, 0.0, 0.5, 0.0, 8.0, 0.0, 0.0, 0.0, 0.5];
        let server = [2.0, 0.0, 0.5, 0.5, 9.0, 1.0, 0.0, 3.0, 70.0];
        assert_eq!(with_server(clients, server), [3.0, 0.0, 1.0, 0.5, 1.0, 1.0, 0.0, 3.0, 0.5]);
        // Twice as much work as anyone waited for: half of it counts.
        let busy = server.map(|time| time * 16.0 / 7.0);
        let found = with_server(clients, busy);
        assert!(
            (found[0] - 1.0 - 16.0 / 7.0).abs() < 1e-9 && found[NETWORK].abs() < 1e-9,
            "{found:?}"
        );
        assert_eq!(with_server(clients, [0.0; 9]), clients, "nothing is known of it");
    }

    /// Parts that sum to more than the whole would draw a bar that is longer than its number.
    #[test]
    fn parts_sum_to_the_whole_or_there_are_none() {
        let parts = TimeParts::of(Nanos(100), vec![(Part::Cpu, 10), (Part::DriveFlushes, 60)]);
        let parts = parts.unwrap();
        assert_eq!(parts.parts.last(), Some(&(Part::Rest, Nanos(30))));
        assert_eq!(parts.parts.iter().map(|(_, time)| time.get()).sum::<u64>(), 100);
        assert!((parts.drive_share().unwrap() - 0.6).abs() < 1e-9);
        assert_eq!(TimeParts::of(Nanos(100), vec![(Part::Cpu, 101)]), None, "they overlapped");
        let host = TimeParts::of(Nanos(100), vec![(Part::Cpu, 10)]).unwrap();
        assert_eq!(host.drive_share(), None, "no drive was counted");
    }
}
