//! Accesses in progress.

use std::collections::VecDeque;

use sim::scheduler::TaskId;
use units::Nanos;

use super::layout::Step;

/// An access in progress.
#[derive(Debug)]
pub(crate) struct Io {
    /// None: the kernel's write-back.
    pub task: Option<TaskId>,
    pub steps: VecDeque<Step>,
    /// Requests in flight, and reads of others that it waits for.
    pub outstanding: usize,
    /// Its next step is yet to be submitted.
    pub delayed: bool,
    /// Pages on the device that it reads.
    pub reads: Vec<u64>,
    /// Accesses that wait for these pages, too.
    pub followers: Vec<u64>,
    /// When its requests were submitted, and the place of their kind in [`DriveTotals::times`].
    pub began: Nanos,
    pub kind: usize,
}

/// Write-back by the kernel.
#[derive(Debug)]
pub(crate) struct WriteBack {
    pub io: u64,
    pub files: Vec<u64>,
    pub pages: u64,
}
