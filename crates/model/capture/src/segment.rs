//! The parts of a timeline: what a thread did, when, and what ended its waits.

use crate::event::Io;

/// What a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Waiting {
    /// A read from a drive, or a page fault that caused one.
    Read,
    /// A write to a drive.
    Write,
    /// Durability of data files.
    Flush,
    /// Durability of the log.
    LogFlush,
    /// Completion of asynchronous I/O.
    AsyncIo,
    /// Another thread: a lock, a condition, work.
    Lock,
    /// A message.
    Message,
    /// Time to pass.
    Timer,
    /// Something inside the kernel: a lock of the file system, memory.
    Kernel,
    /// A system call that is not recorded, or one that began before the recording.
    Other,
}

impl Waiting {
    /// Whether the completion of a request may end it.
    #[must_use]
    pub const fn may_be_for_a_drive(self) -> bool {
        use Waiting::{AsyncIo, Flush, Kernel, LogFlush, Read, Write};
        matches!(self, Read | Write | Flush | LogFlush | AsyncIo | Kernel)
    }
}

/// What a thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// Runs its own code.
    Cpu,
    /// Runs in a system call that reads, writes or flushes files.
    CpuInStorageCall,
    /// Runs in another recorded system call: messages, locks.
    CpuInCall,
    /// Ready, while another recorded thread has the CPU. That it leaves it is an entry of
    /// `Timeline::wakes`, unless it was this thread's waker, whose entry is that of the wait.
    RunQueue(Option<usize>),
    /// Ready, while a thread that is not recorded has the CPU.
    Neighbour,
    /// Ready, until an idle CPU takes it.
    WakeUp,
    /// Waits; ended by an entry of `Timeline::wakes`, or by an interrupt or an unrecorded thread.
    Waits(Waiting, WakeSource),
}

/// What ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeSource {
    /// A recorded thread; index into `Timeline::wakes`.
    By(usize),
    /// An interrupt, or a thread that was not recorded.
    Outside,
}

/// A stretch of a thread's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Start, ns.
    pub from: u64,
    /// End, ns.
    pub to: u64,
    /// What it did.
    pub doing: Activity,
}

/// A recorded thread woke another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wake {
    /// When.
    pub at: u64,
    /// Waker.
    pub by: u32,
}

/// A request to a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Its fields.
    pub io: Io,
    /// Submitting thread, recorded or not.
    pub thread: u32,
    /// When it was submitted.
    pub submitted: u64,
    /// When it completed; `None` after the end of the recording.
    pub completed: Option<u64>,
}

/// Something that a thread does at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// Wakes another; index into `Timeline::wakes`.
    Wakes(usize),
    /// Submits a request; index into `Timeline::requests`.
    Submits(usize),
    /// Sends a message.
    Sends,
    /// Returns from a call that waits until its requests are complete.
    Synchronous,
}

/// A thread.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThreadLine {
    /// Its time.
    pub segments: Vec<Segment>,
    /// What it did, in order of time.
    pub points: Vec<(u64, Point)>,
    /// Events that recording it caused.
    pub events: u64,
    /// Messages sent.
    pub sends: u64,
    /// CPU time in storage calls that submitted requests, ns.
    pub io_cpu: u64,
    /// The requests of those calls.
    pub io_requests: u64,
}
