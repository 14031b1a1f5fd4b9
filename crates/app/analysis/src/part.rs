//! The parts of an operation's time: their names for people and in figures.

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
            Self::Cpu => "CPU",
            Self::RunQueue => "waiting for a CPU",
            Self::Locks => "lock and condition waits",
            Self::Network => "network round trips",
            Self::Background => "background threads (page cleaner, log)",
            Self::WakeUps => "waking up (interrupts, messages, locks)",
            Self::HostPath => "host I/O path",
            Self::Submission => "submission (system call, file system)",
            Self::BlockLayer => "block layer queue",
            Self::Completion => "completion (return from the call)",
            Self::Backlog => "waiting for the client thread",
            Self::Hop => "network fabric or hypervisor",
            Self::DriveQueue => "drive queue",
            Self::DriveLimit => "the drive's rate limit",
            Self::DriveReads => "drive reads",
            Self::DriveWrites => "drive writes",
            Self::DriveFlushes => "drive flushes",
            Self::Drive => "driver and drive",
            Self::DriveAndLayers => "drive plus guest, fabric or cache",
            Self::Selects => "read statements (incl. drive time)",
            Self::Changes => "write statements (incl. drive time)",
            Self::Commit => "commit",
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
        matches!(self, Self::Cpu | Self::RunQueue | Self::WakeUps)
    }

    /// What it is among the parts of the drive or of the CPUs, which compete together.
    #[must_use]
    pub const fn within(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::DriveReads => Some(("drive", "reads")),
            Self::DriveWrites => Some(("drive", "writes")),
            Self::DriveFlushes => Some(("drive", "flushes")),
            Self::DriveQueue => Some(("drive", "its queue")),
            Self::DriveLimit => Some(("drive", "its rate limit")),
            Self::Cpu => Some(("CPU", "computing")),
            Self::RunQueue => Some(("CPU", "waiting for one")),
            Self::WakeUps => Some(("CPU", "waking up")),
            Self::Submission => Some(("host I/O path", "submission")),
            Self::BlockLayer => Some(("host I/O path", "block layer")),
            Self::Completion => Some(("host I/O path", "wake-up and completion")),
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
