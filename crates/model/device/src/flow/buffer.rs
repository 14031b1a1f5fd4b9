//! A write buffer that absorbs writes below the rate at which it drains.
//!
//! Invariant: in a closed loop it stays nearly full, so the measurements are reproduced. What a write adds to
//! it comes from the closed loop's tables.

use units::Nanos;

use super::parameters::FlowPaced;
use super::rows::Row;

/// Minimum number of writes that a buffer holds: a smaller one would sometimes drain by chance in a closed
/// loop.
const BUFFERED_WRITES: f64 = 128.0;

/// A write buffer, initially full.
#[derive(Debug, Clone)]
pub(super) struct Buffer {
    /// One row per size.
    pub times: Vec<Row>,
    /// Minimum capacity, as nanoseconds of work.
    capacity: f64,
    /// Moving average of the work per write, nanoseconds.
    work: f64,
    /// Work not done at `at`; capped at the buffer's size when a write is added.
    backlog: f64,
    /// Recent write work, relative to a closed loop.
    pressure: f64,
    at: Nanos,
    /// Whether it was full and is not yet half empty.
    full: bool,
}

impl Buffer {
    pub fn new(p: &FlowPaced, shares: &[f64]) -> Self {
        let both = p.write_times.value.iter().zip(&p.write_means.value);
        Self {
            times: both.map(|(at, means)| Row::of(at, means, shares)).collect(),
            capacity: p.backlog.value.get() as f64,
            work: 0.0,
            backlog: f64::INFINITY,
            pressure: 1.0,
            at: Nanos::ZERO,
            full: true,
        }
    }

    /// Capacity, as nanoseconds of work.
    fn holds(&self) -> f64 {
        self.capacity.max(self.work * BUFFERED_WRITES)
    }

    /// The current pressure on reads.
    pub fn pressure(&self, now: Nanos) -> f64 {
        self.pressure * (-((now - self.at.min(now)).get() as f64) / self.holds()).exp()
    }

    /// Whether there is room for a write.
    pub fn room(&mut self, now: Nanos) -> bool {
        let passed = (now - self.at.min(now)).get() as f64;
        self.pressure = self.pressure(now);
        (self.backlog, self.at) = ((self.backlog - passed).max(0.0), now);
        self.full &= self.backlog > self.holds() / 2.0;
        !self.full
    }

    /// Adds the work of a write.
    pub fn add(&mut self, work: f64) {
        let before = if self.work > 0.0 { self.work } else { work };
        self.work = before + (work - before) * 2.0 / BUFFERED_WRITES;
        self.pressure += work / self.holds();
        // Also initially: filled up to its present capacity.
        self.backlog = (self.backlog + work).min(self.holds());
        self.full |= self.backlog >= self.holds();
    }
}
