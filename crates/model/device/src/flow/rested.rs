//! Slowdown after idling: a sleeping CPU and cold caches.
//!
//! Invariant: a request of a thread with others in flight, or with one that just ended, takes the tables'
//! time.

use units::Nanos;

use super::parameters::FlowRested;

/// Slowdown of requests by the idle time of their thread.
#[derive(Debug, Clone)]
pub(super) struct Rested {
    /// Logarithms of idle times, ascending, and the factor at each.
    rests: Vec<f64>,
    factors: Vec<f64>,
    /// `[size]`: share of the slowdown above 1.
    pub parts: Vec<f64>,
    /// `[queue]`: completion time of its latest request.
    ends: Vec<Option<Nanos>>,
}

impl Rested {
    pub fn new(p: &FlowRested) -> Self {
        Self {
            rests: p.rests.value.iter().map(|rest| (rest.get() as f64).ln()).collect(),
            factors: p.factors.value.clone(),
            parts: p.parts.value.clone(),
            ends: Vec::new(),
        }
    }

    /// The factor for a request of a queue, with the share that applies to its size.
    pub fn factor(&self, now: Nanos, queue: u16, part: f64) -> f64 {
        // A thread with requests in flight takes the measured times: factor 1.
        match self.ends.get(usize::from(queue)) {
            Some(Some(end)) if *end < now => {
                1.0 + part * (self.at((now.since(*end).get() as f64).ln()) - 1.0)
            }
            _ => 1.0,
        }
    }

    /// Interpolated; constant before the first and beyond the last.
    fn at(&self, rest: f64) -> f64 {
        let after = self.rests.partition_point(|one| *one < rest);
        if after == 0 || after == self.rests.len() {
            return self.factors[after.saturating_sub(1)];
        }
        let (from, to) = (self.rests[after - 1], self.rests[after]);
        let [low, high] = [self.factors[after - 1], self.factors[after]];
        low + (rest - from) / (to - from) * (high - low)
    }

    /// A request of a queue ends.
    pub fn note(&mut self, queue: u16, end: Nanos) {
        let place = usize::from(queue);
        if place >= self.ends.len() {
            self.ends.resize(place + 1, None);
        }
        self.ends[place] = self.ends[place].max(Some(end));
    }
}
