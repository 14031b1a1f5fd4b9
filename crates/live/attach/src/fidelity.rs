//! Emulation accuracy: served and requested latencies of each kind of request.
//!
//! Invariant: both are of the same requests.

use device::Operation;
use stats::{Histogram, ServedKind};
use units::Nanos;

/// Service times of the requests of one kind.
#[derive(Debug, Clone)]
struct Pair {
    requested: Histogram,
    delivered: Histogram,
    /// Sums of both, nanoseconds.
    sums: (u64, u64),
}

impl Pair {
    fn new() -> Self {
        Self { requested: stats::new_histogram(), delivered: stats::new_histogram(), sums: (0, 0) }
    }

    fn summary(&self) -> ServedKind {
        let at = |of: &Histogram, quantile| of.value_at_quantile(quantile);
        let mean = |sum: u64| sum / self.requested.len().max(1);
        ServedKind {
            requests: self.requested.len(),
            requested_mean_ns: mean(self.sums.0),
            delivered_mean_ns: mean(self.sums.1),
            requested_p50_ns: at(&self.requested, 0.5),
            requested_p99_ns: at(&self.requested, 0.99),
            delivered_p50_ns: at(&self.delivered, 0.5),
            delivered_p99_ns: at(&self.delivered, 0.99),
        }
    }
}

/// Service times of the requests that were timed: reads, writes, flushes. Discards are not among them.
#[derive(Debug, Clone)]
pub(crate) struct Fidelity([Pair; 3]);

impl Fidelity {
    pub fn new() -> Self {
        Self(std::array::from_fn(|_| Pair::new()))
    }

    /// Adds one request: the time requested by the model, and the delivered time: from arrival to answer,
    /// plus the overhead outside the server.
    #[inline]
    pub fn note(&mut self, operation: Operation, requested: Nanos, delivered: Nanos) {
        let kind = match operation {
            Operation::Read => 0,
            Operation::Write | Operation::WriteZeroes => 1,
            Operation::Flush => 2,
            Operation::Discard => return,
        };
        let pair = &mut self.0[kind];
        pair.requested.saturating_record(requested.get());
        pair.delivered.saturating_record(delivered.get());
        pair.sums.0 = pair.sums.0.saturating_add(requested.get());
        pair.sums.1 = pair.sums.1.saturating_add(delivered.get());
    }

    pub fn add(&mut self, other: &Self) {
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            // Same configuration, so it cannot fail.
            let _ = own.requested.add(&other.requested);
            let _ = own.delivered.add(&other.delivered);
            own.sums.0 = own.sums.0.saturating_add(other.sums.0);
            own.sums.1 = own.sums.1.saturating_add(other.sums.1);
        }
    }

    /// Resets the counts.
    pub fn reset(&mut self) {
        for pair in &mut self.0 {
            pair.requested.reset();
            pair.delivered.reset();
            pair.sums = (0, 0);
        }
    }

    /// Reads, writes, flushes.
    pub fn kinds(&self) -> [ServedKind; 3] {
        std::array::from_fn(|kind| self.0[kind].summary())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_threads_saw_adds_up() {
        let (mut one, mut other) = (Fidelity::new(), Fidelity::new());
        one.note(Operation::Write, Nanos(10), Nanos(11));
        other.note(Operation::Write, Nanos(10), Nanos(11));
        other.note(Operation::Flush, Nanos(10), Nanos(11));
        one.add(&other);
        assert_eq!(one.kinds().map(|kind| kind.requests), [0, 2, 1]);
        assert_eq!(one.kinds()[1].delivered_mean_ns, 11);
        one.reset();
        assert_eq!(one.kinds().map(|kind| kind.requests), [0, 0, 0]);
    }
}
