//! How near what was delivered came to what the model asked for.
//!
//! Invariant: both are of the same requests. What it is not: the model's own error.

use serde::{Deserialize, Serialize};
use stats::Histogram;
use units::Nanos;

/// Delivered and requested differ by no more than this at the median, or figures say so.
pub const DIFFERENCE_MAX: f64 = 0.10;

/// What serves waits for a processor for no more of the time than this, or figures say so.
pub const STARVED_MAX: f64 = 0.05;

/// Service times of the requests that were timed.
#[derive(Debug, Clone)]
pub(crate) struct Fidelity {
    requested: Histogram,
    delivered: Histogram,
}

impl Fidelity {
    pub fn new() -> Self {
        Self { requested: stats::new_histogram(), delivered: stats::new_histogram() }
    }

    /// One request: what the model said, and what it took from its arrival to its answer and on the way.
    #[inline]
    pub fn note(&mut self, requested: Nanos, delivered: Nanos) {
        self.requested.saturating_record(requested.get());
        self.delivered.saturating_record(delivered.get());
    }

    /// `(floor, scale)` of the device; CPU time, time in which the thread waited for a processor, and time
    /// since the start.
    pub fn summary(
        &self,
        (floor, scale): (Nanos, u32),
        (cpu, starved, wall): (Nanos, Nanos, Nanos),
    ) -> Served {
        let share = |time: Nanos| time.as_secs_f64() / wall.as_secs_f64().max(1e-9);
        let at = |of: &Histogram, quantile| Nanos(of.value_at_quantile(quantile));
        Served {
            requests: self.requested.len(),
            floor_ns: floor.get(),
            scale,
            requested_p50_ns: at(&self.requested, 0.5).get(),
            requested_p99_ns: at(&self.requested, 0.99).get(),
            delivered_p50_ns: at(&self.delivered, 0.5).get(),
            delivered_p99_ns: at(&self.delivered, 0.99).get(),
            cpu_share: share(cpu),
            starved_share: share(starved),
        }
    }
}

/// What an attached device has served so far.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Served {
    /// Requests that the model timed.
    pub requests: u64,
    /// What the way through the kernel and back takes, taken off the model's times.
    pub floor_ns: u64,
    /// Times that device time is stretched.
    pub scale: u32,
    /// Service time that the model asked for, with the scale.
    pub requested_p50_ns: u64,
    /// The same, 99th percentile.
    pub requested_p99_ns: u64,
    /// Service time that was delivered, the way there and back included.
    pub delivered_p50_ns: u64,
    /// The same, 99th percentile.
    pub delivered_p99_ns: u64,
    /// Share of one processor that serving took.
    pub cpu_share: f64,
    /// Share of the time in which what serves waited for a processor: requests waited meanwhile.
    pub starved_share: f64,
}

impl Served {
    /// Delivered over requested at the median, less 1; none where nothing was served.
    #[must_use]
    pub fn difference(&self) -> Option<f64> {
        (self.requests > 0 && self.requested_p50_ns > 0)
            .then(|| self.delivered_p50_ns as f64 / self.requested_p50_ns as f64 - 1.0)
    }

    /// Whether what runs on it may be judged: at the median it was as the model wanted it.
    #[must_use]
    pub fn is_faithful(&self) -> bool {
        let near = self.difference().is_none_or(|off| off.abs() <= DIFFERENCE_MAX);
        near && self.starved_share <= STARVED_MAX
    }
}

impl std::fmt::Display for Served {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let time = |ns| Nanos(ns);
        write!(
            out,
            "{} requests; service time median {} for {} asked, p99 {} for {}; {:.0} % of a processor",
            self.requests,
            time(self.delivered_p50_ns),
            time(self.requested_p50_ns),
            time(self.delivered_p99_ns),
            time(self.requested_p99_ns),
            self.cpu_share * 100.0
        )?;
        if self.scale > 1 {
            write!(out, "; time stretched {}-fold", self.scale)?;
        }
        if self.starved_share > STARVED_MAX {
            let share = self.starved_share * 100.0;
            write!(out, "; it waited for a processor {share:.0} % of the time: not to be judged")?;
        }
        match self.difference().filter(|off| off.abs() > DIFFERENCE_MAX) {
            Some(off) => {
                write!(out, "; off by {:+.0} % at the median: not to be judged", off * 100.0)
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that is twice as slow as its model would be taken for it.
    #[test]
    fn what_is_off_by_more_than_a_tenth_says_so() {
        let mut fidelity = Fidelity::new();
        for _ in 0..100 {
            fidelity.note(Nanos(10_000), Nanos(10_500));
        }
        let second = Nanos::from_secs(1);
        let near =
            fidelity.summary((Nanos(4_000), 1), (Nanos::from_millis(250), Nanos::ZERO, second));
        assert!(near.is_faithful() && (near.cpu_share - 0.25).abs() < 1e-9, "{near}");
        let starved = (Nanos::ZERO, Nanos::from_millis(200), second);
        let starved = fidelity.summary((Nanos(4_000), 1), starved);
        assert!(!starved.is_faithful() && starved.to_string().contains("20 %"), "{starved}");
        for _ in 0..1000 {
            fidelity.note(Nanos(10_000), Nanos(20_000));
        }
        let far = fidelity.summary((Nanos(4_000), 2), (Nanos::ZERO, Nanos::ZERO, second));
        assert!(!far.is_faithful());
        assert!(far.to_string().contains("not to be judged") && far.to_string().contains("2-fold"));
        assert!(Served::default().is_faithful(), "nothing was served");
    }
}
