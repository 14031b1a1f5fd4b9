//! Writes that a buffer takes while they come no faster than it is emptied.
//!
//! Invariant: in a closed loop it stays near full, so that what was measured there comes back. What it is
//! not: what a write adds to it, which the tables of the closed loop say.

use units::Nanos;

use super::parameters::FlowPaced;
use super::rows::Row;

/// Writes that a buffer holds at least: fewer would now and then be gone by chance in a closed loop.
const BUFFERED_WRITES: f64 = 128.0;

/// A buffer of writes, full when the device begins.
#[derive(Debug, Clone)]
pub(super) struct Buffer {
    /// By size.
    pub times: Vec<Row>,
    /// Work that it holds at least, nanoseconds.
    capacity: f64,
    /// Work of a write, on average of the last ones.
    work: f64,
    /// Work that is not done yet, at an instant; beyond what it holds there is none.
    backlog: f64,
    /// Work that writes bring, of what they bring in a closed loop.
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

    /// Work that it holds.
    fn holds(&self) -> f64 {
        self.capacity.max(self.work * BUFFERED_WRITES)
    }

    /// What is left of the pressure.
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
        // Also of a device that begins: as full as what is known now lets it be.
        self.backlog = (self.backlog + work).min(self.holds());
        self.full |= self.backlog >= self.holds();
    }
}
