//! The clock of a trial: one origin for all that is timed in it.
//!
//! Invariant: it never goes back. What it is not: a time of day.

use rustix::time::{ClockId, clock_gettime};
use units::Nanos;

/// Time since it was started. A copy has the same origin. `Instant` reads the same clock, and takes a quarter
/// longer: drivers read it once an operation.
#[derive(Debug, Clone, Copy)]
pub struct Clock(u64);

impl Clock {
    /// A clock that shows 0 now.
    #[must_use]
    pub fn start() -> Self {
        Self(monotonic())
    }

    /// What it shows.
    #[inline]
    #[must_use]
    pub fn now(self) -> Nanos {
        Nanos(monotonic().saturating_sub(self.0))
    }
}

/// Nanoseconds of the kernel's clock that never goes back.
#[inline]
fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
