//! The parts of an operation's time: their names for people and in figures, and a time that consists of them.

use units::Nanos;

/// A part of an operation's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Processor time of the process, in user and kernel mode.
    Cpu,
    /// Ready, but without a CPU.
    RunQueue,
    /// Waiting for a lock or a condition.
    Locks,
    /// Messages to a server that is not ours, beyond those to one on the same host.
    Network,
    /// A server's session waits for one of its background threads.
    Background,
    /// From the event that ends a wait until the thread runs on an idle CPU.
    WakeUps,
    /// Host I/O path of a database: submission, interrupt, wake-up.
    HostPath,
    /// From the system call to the block layer, or to the drive in a prediction.
    Submission,
    /// In the block layer until the driver has the request.
    BlockLayer,
    /// From the thread's first instruction after a completion to the return from the call.
    Completion,
    /// Due, or ready to be submitted or reaped, while the client is busy with other operations.
    Backlog,
    /// A network fabric or a hypervisor in front of the drive.
    Hop,
    /// Waiting in the drive for other requests.
    DriveQueue,
    /// Waiting for the operations or bytes per second of a cloud volume.
    DriveLimit,
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
            Self::Cpu => "on CPU",
            Self::RunQueue => "run queue (waiting for a CPU)",
            Self::Locks => "lock and condition waits",
            Self::Network => "network round trips",
            Self::Background => "background threads (page cleaner, log)",
            Self::WakeUps => "wake-up latency (interrupts, messages, locks)",
            Self::HostPath => "kernel I/O path (file system, journal, block layer)",
            Self::Submission => "submission (system call, file system)",
            Self::BlockLayer => "block layer queue",
            Self::Completion => "completion (return from the call)",
            Self::Backlog => "waiting for the client thread",
            Self::Hop => "network fabric or hypervisor",
            Self::DriveQueue => "drive queue",
            Self::DriveLimit => "volume throttling (IOPS or throughput cap)",
            Self::DriveReads => "drive reads",
            Self::DriveWrites => "drive writes",
            Self::DriveFlushes => "drive flushes",
            Self::Drive => "driver and drive",
            Self::DriveAndLayers => "drive plus guest, fabric or cache",
            Self::Selects => "read statements (incl. drive time)",
            Self::Changes => "write statements (incl. drive time)",
            Self::Commit => "commit",
            Self::BlockReads => "block reads (drive or page cache)",
            Self::BlockReadsBesides => "block reads: page-cache copy and scheduling",
            Self::Log => "write-ahead log",
            Self::Memtable => "memtable",
            Self::Stalls => "write stalls (memtable flushes, compactions)",
            Self::OtherWriters => "waiting for the group-commit leader",
            Self::Rest => "unattributed",
        }
    }

    /// Name of its share in figures.
    #[must_use]
    pub const fn metric(self) -> &'static str {
        match self {
            Self::Cpu => "time_share_cpu",
            Self::RunQueue => "time_share_run_queue",
            Self::Locks => "time_share_locks",
            Self::Network => "time_share_network",
            Self::Background => "time_share_background",
            Self::WakeUps => "time_share_wake_ups",
            Self::HostPath => "time_share_host_path",
            Self::Submission => "time_share_submission",
            Self::BlockLayer => "time_share_block_layer",
            Self::Completion => "time_share_completion",
            Self::Backlog => "time_share_client_thread",
            Self::Hop => "time_share_fabric",
            Self::DriveQueue => "time_share_drive_queue",
            Self::DriveLimit => "time_share_rate_limit",
            Self::DriveReads => "time_share_drive_reads",
            Self::DriveWrites => "time_share_drive_writes",
            Self::DriveFlushes => "time_share_drive_flushes",
            Self::Drive | Self::DriveAndLayers => "time_share_drive",
            Self::Selects => "time_share_selects",
            Self::Changes => "time_share_changes",
            Self::Commit => "time_share_commit",
            Self::BlockReads | Self::BlockReadsBesides => "time_share_block_reads",
            Self::Log => "time_share_log",
            Self::Memtable => "time_share_memtable",
            Self::Stalls => "time_share_stalls",
            Self::OtherWriters => "time_share_group_commit",
            Self::Rest => "time_share_rest",
        }
    }

    /// Whether it is CPU time, or waiting for a CPU.
    #[must_use]
    pub const fn is_cpu(self) -> bool {
        matches!(self, Self::Cpu | Self::RunQueue)
    }

    /// What it is among the parts of the drive, of the CPUs or of the kernel's path, which compete together.
    /// Wake-ups are of that path only in block jobs: see [`MainPart::within`].
    #[must_use]
    const fn within(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::DriveReads => Some(("drive", "reads")),
            Self::DriveWrites => Some(("drive", "writes")),
            Self::DriveFlushes => Some(("drive", "flushes")),
            Self::DriveQueue => Some(("drive", "queue")),
            Self::DriveLimit => Some(("drive", "throttling")),
            Self::Cpu => Some(("CPU", "on CPU")),
            Self::RunQueue => Some(("CPU", "run queue")),
            Self::Submission => Some((KERNEL_PATH, "submission")),
            Self::BlockLayer => Some((KERNEL_PATH, "block layer")),
            Self::Completion => Some((KERNEL_PATH, "completion")),
            _ => None,
        }
    }

    /// Whether it is a part of the host's path of a block request. Its wake-ups are, too.
    #[must_use]
    pub const fn is_host_path(self) -> bool {
        matches!(self, Self::Submission | Self::BlockLayer | Self::Completion)
    }

    /// Whether it is time in the drive.
    #[must_use]
    pub const fn is_drive(self) -> bool {
        matches!(
            self,
            Self::DriveReads
                | Self::DriveWrites
                | Self::DriveFlushes
                | Self::DriveQueue
                | Self::DriveLimit
                | Self::Drive
        )
    }
}

const KERNEL_PATH: &str = "kernel I/O path";
/// Share from which a counted part is named although more is not known.
const TOLD: f64 = 0.2;
/// The part that an operation spends most of its time in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MainPart {
    /// The part.
    pub part: Part,
    /// Its share.
    pub own: f64,
    /// The share of the parts that compete together with it.
    pub share: f64,
    /// It is on the kernel's path of a block request.
    pub on_path: bool,
}

impl MainPart {
    /// What it is among the parts that compete together with it.
    #[must_use]
    pub const fn within(self) -> Option<(&'static str, &'static str)> {
        match self.part {
            Part::WakeUps if self.on_path => Some((KERNEL_PATH, "wake-up")),
            part => part.within(),
        }
    }
}

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

    /// Share of a part, 0 if it was not counted.
    #[must_use]
    pub fn share(&self, part: Part) -> f64 {
        let own = self.parts.iter().filter(|(own, _)| *own == part);
        own.map(|(_, time)| time.get()).sum::<u64>() as f64 / self.whole.get().max(1) as f64
    }

    /// Share of waiting for other clients, which have the same parts: locks and group commit.
    #[must_use]
    pub fn share_of_others(&self) -> f64 {
        self.share(Part::Locks) + self.share(Part::OtherWriters)
    }

    /// The largest part. The parts of the drive compete together, as do CPU time and waiting for a CPU; the
    /// largest of them stands for them. Waits for other clients do not count: these have the same parts. Time
    /// that is not accounted for is named only if nothing else takes a fifth.
    #[must_use]
    pub fn main_part(&self) -> Option<MainPart> {
        self.main_part_of(|_| true)
    }

    /// The largest of the other parts.
    pub(crate) fn main_part_without(&self, part: Part) -> Option<MainPart> {
        self.main_part_of(|own| own != part)
    }

    fn main_part_of(&self, wanted: impl Fn(Part) -> bool) -> Option<MainPart> {
        let waits = [Part::OtherWriters, Part::Locks, Part::Rest];
        // Its wake-ups are on the path of a block request.
        let block = self.parts.iter().any(|(part, _)| part.is_host_path());
        let on_path = |part: Part| part.is_host_path() || (block && part == Part::WakeUps);
        let groups: [&dyn Fn(Part) -> bool; 3] = [&Part::is_drive, &Part::is_cpu, &on_path];
        let all = || self.parts.iter().map(|(part, _)| *part);
        let largest = |of: &&dyn Fn(Part) -> bool| {
            let members = || all().filter(|part| of(*part));
            let share = members().map(|part| self.share(part)).sum();
            let part = members().max_by(|a, b| self.share(*a).total_cmp(&self.share(*b)))?;
            Some(MainPart { part, own: self.share(part), share, on_path: on_path(part) })
        };
        let alone = |part: Part| {
            let share = self.share(part);
            MainPart { part, own: share, share, on_path: false }
        };
        let grouped = |part: &Part| groups.iter().any(|of| of(*part));
        let single = all().filter(|part| !grouped(part) && !waits.contains(part) && wanted(*part));
        let counted = groups.iter().filter_map(largest).chain(single.map(alone));
        let counted = counted.max_by(|a, b| a.share.total_cmp(&b.share));
        let rest = Some(alone(Part::Rest)).filter(|one| one.share > 0.0);
        let told = TOLD * (1.0 - self.share_of_others());
        counted.filter(|one| one.share >= told).or(rest).or(counted)
    }

    /// Builds the counted parts and the remainder.
    pub(crate) fn of(whole: Nanos, counted: Vec<(Part, u64)>) -> Option<Self> {
        let sum = counted.iter().try_fold(0u64, |sum, (_, time)| sum.checked_add(*time))?;
        let rest = whole.get().checked_sub(sum)?;
        let parts = counted.into_iter().chain(std::iter::once((Part::Rest, rest)));
        let parts = parts.filter(|(_, time)| *time > 0);
        let parts = parts.map(|(part, time)| (part, Nanos(time))).collect();
        Some(Self { whole, parts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Submission, wake-up and completion alone are each less than the drive, together more.
    #[test]
    fn the_parts_of_a_host_path_compete_together() {
        let parts = [
            (Part::Submission, 11),
            (Part::DriveReads, 44),
            (Part::WakeUps, 41),
            (Part::Completion, 4),
        ];
        let parts = parts.map(|(part, time)| (part, Nanos(time))).to_vec();
        let main = TimeParts { whole: Nanos(100), parts }.main_part().unwrap();
        assert_eq!(main.within(), Some((KERNEL_PATH, "wake-up")), "{main:?}");
        assert!((main.share - 0.56).abs() < 1e-9 && (main.own - 0.41).abs() < 1e-9, "{main:?}");
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
