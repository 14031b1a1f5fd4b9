//! When operations are due: closed loop with think time, or an open-loop schedule.
//!
//! An open-loop schedule is fixed beforehand and does not wait for completions: what comes late is
//! late, and response time counts from when it was due. Invariants: constant arrivals are exact to the
//! nanosecond over any time; those of several clients interleave evenly (none fire in phase); Poisson
//! gaps are drawn in nanoseconds, never truncated to coarser units.
//! What it is not: a clock.

use rand_distr::{Distribution, Exp1};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Nanos, Rate};

use crate::ClientIndex;

/// How operations come to be due. Rates are those of all clients together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrivals {
    /// Each slot issues again when its operation has completed and `think` has passed.
    Closed {
        /// Pause after each completion.
        think: Nanos,
    },
    /// Evenly spaced.
    Constant(Rate),
    /// Independent: exponential gaps.
    Poisson(Rate),
}

/// The open-loop schedule of one client.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    arrivals: Arrivals,
    client: ClientIndex,
    /// Arrivals of this client so far.
    count: u64,
    /// When the next is due.
    next: Nanos,
    /// The same for Poisson arrivals, with the fraction of a nanosecond.
    exact: f64,
}

impl Schedule {
    /// The schedule of `client`; `None` for a closed loop.
    pub fn new(
        arrivals: Arrivals,
        client: ClientIndex,
        random: &mut Xoshiro256PlusPlus,
    ) -> Option<Self> {
        if matches!(arrivals, Arrivals::Closed { .. }) {
            return None;
        }
        let mut schedule = Self { arrivals, client, count: 0, next: Nanos::ZERO, exact: 0.0 };
        schedule.find_next(random);
        Some(schedule)
    }

    /// When the next operation is due.
    pub fn next(&self) -> Nanos {
        self.next
    }

    /// Goes on to the arrival after the next.
    #[inline]
    pub fn advance(&mut self, random: &mut Xoshiro256PlusPlus) {
        self.count += 1;
        self.find_next(random);
    }

    fn find_next(&mut self, random: &mut Xoshiro256PlusPlus) {
        let of = u64::from(self.client.of);
        match self.arrivals {
            Arrivals::Closed { .. } => {}
            Arrivals::Constant(rate) => {
                let number = u128::from(self.count * of + u64::from(self.client.index));
                let at = number * 1_000_000_000 / u128::from(rate.get().max(1));
                self.next = Nanos(at as u64);
            }
            Arrivals::Poisson(rate) => {
                let mean = 1e9 * of as f64 / rate.get().max(1) as f64;
                let gap: f64 = Exp1.sample(random);
                self.exact += gap * mean;
                self.next = Nanos(self.exact as u64);
            }
        }
    }

    /// Arrivals that were due before `end` and are still to come.
    pub fn missed(&self, end: Nanos, random: &mut Xoshiro256PlusPlus) -> u64 {
        let mut rest = self.clone();
        let mut missed = 0;
        while rest.next < end {
            rest.advance(random);
            missed += 1;
        }
        missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn gaps(arrivals: Arrivals, count: usize) -> Vec<f64> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
        let only = ClientIndex { index: 0, of: 1 };
        let mut schedule = Schedule::new(arrivals, only, &mut random).unwrap();
        let mut last = 0;
        (0..count)
            .map(|_| {
                let next = schedule.next().get();
                let gap = (next - last) as f64;
                last = next;
                schedule.advance(&mut random);
                gap
            })
            .collect()
    }

    /// fio's Poisson is 20 % off at 150k/s because it truncates to microseconds.
    #[test]
    fn poisson_has_its_rate_and_its_spread_up_to_500k() {
        for rate in [1_000, 150_000, 500_000] {
            let gaps = gaps(Arrivals::Poisson(Rate(rate)), 4_000_000);
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let variance =
                gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
            let (error, cv) = (mean * rate as f64 / 1e9 - 1.0, variance.sqrt() / mean);
            assert!(error.abs() < 0.0015, "{rate}: rate off by {error}");
            assert!((cv - 1.0).abs() < 0.02, "{rate}: coefficient of variation {cv}");
        }
    }

    #[test]
    fn constant_arrivals_do_not_drift() {
        let gaps = gaps(Arrivals::Constant(Rate(300_000)), 3_000_001);
        assert_eq!(gaps.iter().sum::<f64>(), 1e10);
        assert!(gaps[1..].iter().all(|gap| (3333.0..=3334.0).contains(gap)));
    }

    /// ACT's threads fire in phase, and its result depends on their number; ours must not.
    #[test]
    fn clients_interleave_evenly() {
        let mut due: Vec<u64> = Vec::new();
        for index in 0..4 {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
            let client = ClientIndex { index, of: 4 };
            let rate = Arrivals::Constant(Rate(1000));
            let mut schedule = Schedule::new(rate, client, &mut random).unwrap();
            for _ in 0..25 {
                due.push(schedule.next().get());
                schedule.advance(&mut random);
            }
        }
        due.sort_unstable();
        assert!(due.windows(2).all(|pair| pair[1] - pair[0] == 1_000_000));
    }
}
