//! How serving threads spend their time.
//!
//! Invariant: sums since a thread began, so differences are meaningful.

use observe::ThreadTimes;
use units::Nanos;

/// How serving threads spent their time.
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

    /// The difference since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self { thread: self.thread.since(earlier.thread), away: self.away.since(earlier.away) }
    }

    /// Waiting for a CPU beyond the usual wait of a turn.
    pub const fn starved(&self, usual: Nanos) -> Nanos {
        self.thread.waited.since(Nanos(usual.get().saturating_mul(self.thread.turns)))
    }
}
