//! What threads that serve a disk have done with their time.
//!
//! Invariant: sums since a thread began, so that two of them have a difference.

use observe::ThreadTimes;
use units::Nanos;

/// What threads that serve have done with their time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ServingTimes {
    pub thread: ThreadTimes,
    /// Stopped, by a signal or with the machine.
    pub away: Nanos,
}

impl ServingTimes {
    /// Of two threads together.
    pub fn plus(self, other: Self) -> Self {
        Self { thread: self.thread.plus(other.thread), away: self.away + other.away }
    }

    /// What came since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self { thread: self.thread.since(earlier.thread), away: self.away.since(earlier.away) }
    }

    /// Waits for a processor beyond what a turn usually waits.
    pub const fn starved(&self, usual: Nanos) -> Nanos {
        self.thread.waited.since(Nanos(usual.get().saturating_mul(self.thread.turns)))
    }
}
