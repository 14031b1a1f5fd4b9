//! Schedule of a trial: its phases, and the intervals of its time series.
//!
//! Invariant: intervals tile the trial, and none crosses a phase boundary.

use serde::{Deserialize, Serialize};
use units::Nanos;
use workload::Until;

use crate::phase::Phase;

/// The phases of a trial and its reporting interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// Time before measuring.
    pub warm_up: Nanos,
    /// Duration of the measurement.
    pub measure: Nanos,
    /// Interval of the time series; the first of the warm-up and the last may be shorter.
    pub interval: Nanos,
}

impl Timeline {
    /// Latest time at which an operation may be due.
    #[must_use]
    pub fn end(&self) -> Nanos {
        self.warm_up + self.measure
    }

    /// End of a schedule: late operations are issued for a further measurement's duration.
    #[must_use]
    pub fn until(&self) -> Until {
        Until { due: self.end(), issue: self.end() + self.measure }
    }

    /// Intervals of a full trial, drain included.
    #[must_use]
    pub fn intervals(&self) -> usize {
        let interval = self.interval.get().max(1);
        let count = |span: Nanos| span.get().div_ceil(interval);
        usize::try_from(count(self.warm_up) + count(self.measure) + 1).unwrap_or(usize::MAX)
    }

    pub(crate) fn phase(&self, start: Nanos) -> Phase {
        match start {
            start if start < self.warm_up => Phase::WarmUp,
            start if start < self.end() => Phase::Measure,
            _ => Phase::Drain,
        }
    }

    /// The end of the interval that starts at `start`.
    pub(crate) fn boundary(&self, start: Nanos) -> Nanos {
        let interval = self.interval.get().max(1);
        match self.phase(start) {
            Phase::WarmUp => {
                let left = self.warm_up.since(start).get();
                let step = if left.is_multiple_of(interval) { interval } else { left % interval };
                start + Nanos(step)
            }
            Phase::Measure => (start + Nanos(interval)).min(self.end()),
            Phase::Drain => start + Nanos(interval),
        }
    }
}
