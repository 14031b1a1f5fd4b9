//! Tables of one kind of request, reads or writes, by size.
//!
//! Invariant: no request is less work than the smallest.

use super::rows::Table;

/// Index of the measured size below a length, and the position (0 to 1) towards the next one.
pub(super) type Place = (usize, f64);

/// Tables of reads, or of writes.
#[derive(Debug, Clone)]
pub(super) struct Kind {
    /// One table per size.
    pub times: Vec<Table>,
    /// `[size]`: work of a request, in units of the smallest.
    work: Vec<f64>,
    /// `[size]`: evenness of latencies at one request in flight.
    evenness: Vec<f64>,
    /// Device time of a smallest request at the highest rate, nanoseconds.
    pub unit: f64,
}

impl Kind {
    pub fn new(times: Vec<Table>, shares: &[f64]) -> Self {
        let unit = times[0].least();
        let work = times.iter().map(|table| (table.least() / unit).max(1.0)).collect();
        let evenness = times.iter().map(|table| table.evenness(shares)).collect();
        Self { times, work, evenness, unit }
    }

    /// Work of a request: never less than the smallest's, also where the extrapolation falls beyond the last
    /// size.
    pub fn work(&self, place: Place) -> f64 {
        along(place, |size| self.work[size]).max(1.0)
    }

    /// Evenness of latencies at one request in flight, 0 to 1.
    pub fn evenness(&self, place: Place) -> f64 {
        along(place, |size| self.evenness[size]).clamp(0.0, 1.0)
    }
}

/// Interpolates a value between two sizes.
#[inline]
pub(super) fn along((size, further): Place, value: impl Fn(usize) -> f64) -> f64 {
    let own = value(size);
    if further == 0.0 { own } else { own + further * (value(size + 1) - own) }
}
