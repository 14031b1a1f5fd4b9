//! Requests of programs to the drive, their results, and counters.

use device::StageTimes;
use sim::scheduler::{TaskId, Wait};
use units::Nanos;

/// How a flush of a file becomes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystem {
    /// A flush with new sizes commits the journal: its blocks, a flush, and a commit block with FUA (jbd2).
    Ext4,
    /// No journal: metadata is one more write before the flush.
    Ext4NoJournal,
    /// A bare device: there is no metadata.
    Raw,
}

/// Counters of the drive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DriveTotals {
    /// Requests that read.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Requests that wrote.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes of pages that became dirty, and of direct writes.
    pub dirtied_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Pages of buffered reads that were in the page cache.
    pub hits: u64,
    /// Pages missing from the page cache.
    pub misses: u64,
    /// The programs alone needed more than the memory.
    pub out_of_memory: bool,
    /// Total latencies of reads, writes and flushes.
    pub stages: StageTimes,
}

impl DriveTotals {
    /// The sum with those of another drive.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            reads: self.reads + other.reads,
            read_bytes: self.read_bytes + other.read_bytes,
            writes: self.writes + other.writes,
            written_bytes: self.written_bytes + other.written_bytes,
            dirtied_bytes: self.dirtied_bytes + other.dirtied_bytes,
            flushes: self.flushes + other.flushes,
            hits: self.hits + other.hits,
            misses: self.misses + other.misses,
            out_of_memory: self.out_of_memory || other.out_of_memory,
            stages: self.stages.plus(&other.stages),
        }
    }
}

/// An access to a file.
#[derive(Debug, Clone, Copy)]
pub struct FileAccess {
    /// Number of the file.
    pub file: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Flags of [`crate::wire::access`].
    pub flags: u64,
}

/// The start of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessStart {
    /// It is done: only the page cache was needed.
    Done,
    /// The thread waits.
    Waits(Wait),
}

/// A step of a thread's access has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepEnd {
    /// The thread.
    pub task: TaskId,
    /// Time of completion.
    pub at: Nanos,
    /// What it waits for next; `None` if it is done.
    pub next: Option<Wait>,
}
