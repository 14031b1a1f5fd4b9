//! Flushes and forced writes of a measured device.
//!
//! A flush takes a time drawn from the distribution measured after as many writes as there were since the
//! last flush, of any size. Between two measured numbers, quantiles are on the line through both: a fixed
//! time, and some for each write. Beyond the last one each write adds as much as it did to the mean before.
//! A forced write takes at least a time drawn from those of forced writes.
//!
//! Invariant: plain reads and writes do not depend on flushes.

use units::Nanos;

use super::parameters::FlowFlushes;
use super::rows::{Quantile, Row};

/// Measured flushes, and the writes since the last one.
#[derive(Debug, Clone)]
pub(super) struct Flushes {
    /// By number of writes, rising from 1.
    rows: Vec<(f64, Row)>,
    forced: Row,
    writes: u32,
}

impl Flushes {
    pub fn new(p: &FlowFlushes, shares: &[f64]) -> Self {
        let times = p.times.value.iter().zip(&p.means.value);
        let rows = times.map(|(times, means)| Row::of(times, means, shares));
        let rows = p.writes.value.iter().map(|number| f64::from(*number)).zip(rows).collect();
        let forced = Row::of(&p.forced_times.value, &p.forced_means.value, shares);
        Self { rows, forced, writes: 0 }
    }

    /// Counts a write that the next flush has to make durable.
    pub fn note_write(&mut self) {
        self.writes = self.writes.saturating_add(1);
    }

    /// The time of a flush, nanoseconds.
    pub fn flush(&mut self, quantile: Quantile) -> f64 {
        let writes = f64::from(std::mem::take(&mut self.writes)).max(1.0);
        let above =
            self.rows.partition_point(|(number, _)| *number < writes).min(self.rows.len() - 1);
        let (to, high) = (self.rows[above].0, self.rows[above].1.time(quantile));
        let Some((from, row)) = above.checked_sub(1).map(|below| &self.rows[below]) else {
            return high;
        };
        let low = row.time(quantile);
        if writes > to {
            // Rare long flushes must not be extrapolated.
            let each = (self.rows[above].1.mean() - row.mean()) / (to - from);
            return high + each.max(0.0) * (writes - to);
        }
        low + (high - low) * (writes - from) / (to - from)
    }

    /// The time of a write that is on the medium when it ends, given its time without that.
    pub fn forced(&self, plain: Nanos, quantile: Quantile) -> Nanos {
        plain.max(Nanos(self.forced.time(quantile) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constant::constant;

    /// A commit must take the flush that was measured after as many writes.
    #[test]
    fn a_flush_takes_what_was_measured_after_as_many_writes() {
        let row = |us: u64, columns: usize| vec![Nanos::from_micros(us); columns];
        let parameters = FlowFlushes {
            writes: constant(vec![1, 9]),
            times: constant(vec![row(400, 3), row(800, 3)]),
            means: constant(vec![row(400, 2), row(800, 2)]),
            forced_times: constant(row(500, 3)),
            forced_means: constant(row(500, 2)),
        };
        let shares = [0.0, 0.5, 1.0];
        let mut flushes = Flushes::new(&parameters, &shares);
        let mut after = |writes: u32| {
            (0..writes).for_each(|_| flushes.note_write());
            flushes.flush(Quantile::new(0.3, &shares)).round()
        };
        assert_eq!((after(1), after(9), after(1)), (400e3, 800e3, 400e3));
        assert_eq!(after(0), 400e3, "nothing to do takes no less than was measured");
        // 50 us for each write after the first.
        assert_eq!((after(3), after(13)), (500e3, 1000e3));
        let forced = |plain| flushes.forced(Nanos::from_micros(plain), Quantile::new(0.3, &shares));
        assert_eq!((forced(20), forced(900)), (Nanos::from_micros(500), Nanos::from_micros(900)));
    }
}
