//! Tables of one kind of request, reads or writes, by size.
//!
//! Invariant: no request is less work than the smallest.

use super::rows::Table;

/// The measured size before a length, and how far it is towards the next one.
pub(super) type Place = (usize, f64);

/// Tables of reads, or of writes.
#[derive(Debug, Clone)]
pub(super) struct Kind {
    /// By size.
    pub times: Vec<Table>,
    /// `[size]`: work of a request, in units of the smallest.
    work: Vec<f64>,
    /// `[size]`: evenness of single requests' times.
    evenness: Vec<f64>,
    /// Time of the device for one of the smallest at the highest rate, nanoseconds.
    pub unit: f64,
}

impl Kind {
    pub fn new(times: Vec<Table>, shares: &[f64]) -> Self {
        let unit = times[0].least();
        let work = times.iter().map(|table| (table.least() / unit).max(1.0)).collect();
        let evenness = times.iter().map(|table| table.evenness(shares)).collect();
        Self { times, work, evenness, unit }
    }

    /// Work of a request: never less than the smallest's, also where the line falls beyond the last size.
    pub fn work(&self, place: Place) -> f64 {
        along(place, |size| self.work[size]).max(1.0)
    }

    /// Evenness of the times at one request in flight, 0 to 1.
    pub fn evenness(&self, place: Place) -> f64 {
        along(place, |size| self.evenness[size]).clamp(0.0, 1.0)
    }
}

/// A value of the sizes at a place between two of them.
#[inline]
pub(super) fn along((size, further): Place, value: impl Fn(usize) -> f64) -> f64 {
    let own = value(size);
    if further == 0.0 { own } else { own + further * (value(size + 1) - own) }
}
