//! The specification of a block trial.

use stats::Timeline;
use units::{Nanos, Seed};
use workload::BlockGroup;

use crate::Ledger;

/// How operations reach the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// io_uring if allowed, otherwise threads.
    Auto,
    /// io_uring.
    IoUring,
    /// A thread for each operation in flight.
    Psync,
}

/// A block trial.
#[derive(Debug, Clone)]
pub struct BlockSpec<'a> {
    /// Groups of clients that run at the same time.
    pub groups: Vec<BlockGroup>,
    /// Phases and interval.
    pub timeline: Timeline,
    /// Seed of offsets and payload.
    pub seed: Seed,
    /// Path to the kernel.
    pub path: Path,
    /// Threads poll shortly before an operation is due.
    pub spin: bool,
    /// End the trial at the first failed operation.
    pub stop_on_error: bool,
    /// End the trial when an operation is issued this long after it was due.
    pub max_lag: Option<Nanos>,
    /// Stamps writes and checks reads; the plans must be exclusive.
    pub verify: Option<&'a Ledger>,
}

impl<'a> BlockSpec<'a> {
    /// A trial of `groups` on any available path that ends at the first failure.
    #[must_use]
    pub fn new(groups: Vec<BlockGroup>, timeline: Timeline, seed: Seed) -> Self {
        Self {
            groups,
            timeline,
            seed,
            path: Path::Auto,
            spin: true,
            stop_on_error: true,
            max_lag: None,
            verify: None,
        }
    }
}
