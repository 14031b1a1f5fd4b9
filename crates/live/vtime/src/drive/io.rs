//! Accesses in progress, and the kernel's write-back.

use std::collections::VecDeque;

use sim::scheduler::TaskId;

use super::layout::Step;

/// An access in progress.
#[derive(Debug)]
pub(crate) struct Io {
    /// `None`: write-back by the kernel.
    pub task: Option<TaskId>,
    /// Steps that have not been submitted.
    pub steps: VecDeque<Step>,
    /// Requests in flight, and reads by others that it waits for.
    pub outstanding: usize,
    /// Its next step is yet to be submitted.
    pub delayed: bool,
    /// Pages on the device that it reads.
    pub reads: Vec<u64>,
    /// Accesses that wait for the same pages.
    pub followers: Vec<u64>,
    /// Row of the step's requests in [`device::StageTimes`].
    pub kind: usize,
}

/// Share of the cache that may be dirty before the kernel writes back (`vm.dirty_background_ratio`), percent.
pub(crate) const BACKGROUND_PERCENT: u64 = 10;
/// Share of the page cache that may be dirty or under write-back before writers are throttled
/// (`vm.dirty_ratio`), percent.
pub(crate) const DIRTY_PERCENT: u64 = 20;
/// Requests of the kernel's write-back in flight.
pub(crate) const WRITE_BACK_DEPTH: usize = 32;

/// The kernel's write-back in progress: its access, the files, and the number of their pages.
#[derive(Debug)]
pub(crate) struct WriteBack {
    pub io: u64,
    pub files: Vec<u64>,
    pub pages: u64,
}
