//! The clock of a trial: one origin for all that is timed in it.
//!
//! Invariant: it never goes back. What it is not: a time of day.

use std::time::Instant;

use units::Nanos;

/// Time since it was started. A copy has the same origin.
#[derive(Debug, Clone, Copy)]
pub struct Clock(Instant);

impl Clock {
    /// A clock that shows 0 now.
    #[must_use]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// What it shows.
    #[inline]
    #[must_use]
    pub fn now(self) -> Nanos {
        Nanos::from(self.0.elapsed())
    }
}
