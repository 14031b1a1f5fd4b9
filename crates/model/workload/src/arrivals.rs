//! When operations are due: closed loop with think time, or an open-loop schedule.
//!
//! An open-loop schedule is fixed in advance and does not wait for completions: late operations stay late,
//! and response time counts from when they were due. Invariants: arrivals of several clients at a constant
//! rate interleave evenly unless they are asked to be in phase; times are computed from the number of the
//! arrival, so they do not drift; Poisson gaps are never truncated to coarse units.

use rand_distr::{Distribution, Exp1};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Nanos, Rate};

use crate::ClientIndex;

/// When operations are due.
#[derive(Debug, Clone, PartialEq)]
pub enum Arrivals {
    /// Each slot issues again `think` after its operation completed.
    Closed {
        /// Pause after each completion.
        think: Nanos,
    },
    /// At scheduled times, independent of completions.
    Open(OpenLoop),
}

/// A schedule of arrivals, for all clients together.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenLoop {
    /// Distribution of the gaps.
    pub spacing: Spacing,
    /// The rate, and its later changes: in order of time, the first from zero. Not empty.
    pub rates: Vec<RateStep>,
    /// Operations due at once, at least 1; the rate still counts operations.
    pub burst: u32,
}

/// A rate from an instant on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateStep {
    /// Since the start of the trial.
    pub from: Nanos,
    /// Operations per second; 0 pauses the load.
    pub per_second: f64,
}

/// Distribution of the gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spacing {
    /// Evenly; those of several clients interleave.
    Constant,
    /// Evenly, all clients at the same instants, as Aerospike ACT's threads do.
    InPhase,
    /// Independent: exponential gaps.
    Poisson,
}

impl Arrivals {
    /// A closed loop without pauses.
    pub const CLOSED: Self = Self::Closed { think: Nanos::ZERO };

    /// An open loop of one rate.
    #[must_use]
    pub fn open(spacing: Spacing, rate: Rate) -> Self {
        let rates = vec![RateStep { from: Nanos::ZERO, per_second: rate.get() as f64 }];
        Self::Open(OpenLoop { spacing, rates, burst: 1 })
    }

    /// Whether operations are due by a schedule.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self, Self::Open(_))
    }
}

/// The open-loop schedule of one client.
///
/// Arrivals have a position on the axis of expected arrivals (of all clients together); the rates turn
/// positions into times.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    spacing: Spacing,
    burst: u32,
    /// Rates, each with the position at which it begins.
    steps: Vec<(f64, RateStep)>,
    /// Place in `steps` of the next arrival.
    step: usize,
    client: ClientIndex,
    /// Bursts of this client so far.
    bursts: u64,
    /// Remaining operations of the current burst.
    in_burst: u32,
    /// Position of the last burst of Poisson arrivals.
    position: f64,
    /// When the next operation is due.
    next: Nanos,
}

impl Schedule {
    /// The schedule of `client`; `None` for a closed loop.
    pub fn new(
        arrivals: &Arrivals,
        client: ClientIndex,
        random: &mut Xoshiro256PlusPlus,
    ) -> Option<Self> {
        let Arrivals::Open(open) = arrivals else { return None };
        let mut position = 0.0;
        let mut steps: Vec<(f64, RateStep)> = Vec::with_capacity(open.rates.len());
        for step in &open.rates {
            if let Some((start, before)) = steps.last() {
                let lasted = step.from.since(before.from).as_secs_f64();
                position = start + lasted * before.per_second;
            }
            steps.push((position, *step));
        }
        let mut schedule = Self {
            spacing: open.spacing,
            burst: open.burst.max(1),
            steps,
            step: 0,
            client,
            bursts: 0,
            in_burst: 0,
            position: 0.0,
            next: Nanos::ZERO,
        };
        schedule.find_next(random);
        Some(schedule)
    }

    /// When the next operation is due.
    pub fn next(&self) -> Nanos {
        self.next
    }

    /// Moves to the arrival after the next.
    #[inline]
    pub fn advance(&mut self, random: &mut Xoshiro256PlusPlus) {
        if self.in_burst > 1 {
            self.in_burst -= 1;
            return;
        }
        self.bursts += 1;
        self.find_next(random);
    }

    fn find_next(&mut self, random: &mut Xoshiro256PlusPlus) {
        self.in_burst = self.burst;
        let (of, burst) = (u64::from(self.client.of), u64::from(self.burst));
        let position = match self.spacing {
            Spacing::Constant => ((self.bursts * of + u64::from(self.client.index)) * burst) as f64,
            Spacing::InPhase => (self.bursts * of * burst) as f64,
            Spacing::Poisson => {
                let gap: f64 = Exp1.sample(random);
                self.position += gap * (of * burst) as f64;
                self.position
            }
        };
        while self.steps.get(self.step + 1).is_some_and(|(start, _)| position >= *start) {
            self.step += 1;
        }
        let (start, step) = self.steps[self.step];
        self.next = if step.per_second > 0.0 {
            let after = (position - start) * 1e9 / step.per_second;
            Nanos(step.from.get().saturating_add(after as u64))
        } else {
            // A rate of 0 until the end: nothing more is due.
            Nanos::MAX
        };
    }

    /// Remaining arrivals that were due before `end`; beyond a million estimated from the rates.
    pub fn missed(&self, end: Nanos, random: &mut Xoshiro256PlusPlus) -> u64 {
        const COUNTED: u64 = 1_000_000;
        let mut rest = self.clone();
        let mut missed = 0;
        while rest.next < end && missed < COUNTED {
            rest.advance(random);
            missed += 1;
        }
        if rest.next >= end {
            return missed;
        }
        let expected = rest.position_at(end) - rest.position_at(rest.next);
        missed + (expected / f64::from(self.client.of.max(1))) as u64
    }

    /// Expected arrivals of all clients until an instant.
    fn position_at(&self, at: Nanos) -> f64 {
        let begun = self.steps.iter().rev().find(|(_, step)| step.from <= at);
        begun.map_or(0.0, |(start, step)| {
            start + at.since(step.from).as_secs_f64() * step.per_second
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn gaps(arrivals: &Arrivals, count: usize) -> Vec<f64> {
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
            let gaps = gaps(&Arrivals::open(Spacing::Poisson, Rate(rate)), 16_000_000);
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let variance =
                gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
            let (error, cv) = (mean * rate as f64 / 1e9 - 1.0, variance.sqrt() / mean);
            assert!(error.abs() < 0.001, "{rate}: rate off by {error}");
            assert!((cv - 1.0).abs() < 0.02, "{rate}: coefficient of variation {cv}");
        }
    }

    #[test]
    fn constant_arrivals_do_not_drift() {
        let gaps = gaps(&Arrivals::open(Spacing::Constant, Rate(300_000)), 3_000_001);
        assert_eq!(gaps.iter().sum::<f64>(), 1e10);
        assert!(gaps[1..].iter().all(|gap| (3333.0..=3334.0).contains(gap)));
    }

    /// ACT's threads fire in phase, and its result depends on their number; ours must not.
    #[test]
    fn clients_interleave_evenly() {
        let mut due = due_of_four(Spacing::Constant);
        due.sort_unstable();
        assert!(due.windows(2).all(|pair| pair[1] - pair[0] == 1_000_000));
    }

    /// In-phase clients must fire together, as in ACT.
    #[test]
    fn clients_in_phase_fire_together() {
        let mut due = due_of_four(Spacing::InPhase);
        due.sort_unstable();
        assert!(due.chunks(4).all(|four| four[0] == four[3]));
        assert_eq!(due[4] - due[0], 4_000_000);
    }

    fn due_of_four(spacing: Spacing) -> Vec<u64> {
        let mut due: Vec<u64> = Vec::new();
        for index in 0..4 {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
            let client = ClientIndex { index, of: 4 };
            let rate = Arrivals::open(spacing, Rate(1000));
            let mut schedule = Schedule::new(&rate, client, &mut random).unwrap();
            for _ in 0..25 {
                due.push(schedule.next().get());
                schedule.advance(&mut random);
            }
        }
        due
    }

    fn due(open: OpenLoop, count: usize) -> Vec<u64> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
        let only = ClientIndex { index: 0, of: 1 };
        let mut schedule = Schedule::new(&Arrivals::Open(open), only, &mut random).unwrap();
        let mut due = Vec::new();
        for _ in 0..count {
            due.push(schedule.next().get() / 1_000_000);
            schedule.advance(&mut random);
        }
        due
    }

    fn step(from_ms: u64, per_second: f64) -> RateStep {
        RateStep { from: Nanos::from_millis(from_ms), per_second }
    }

    /// A scheduled change of the rate must occur at its time, with its size.
    #[test]
    fn rates_change_at_their_time() {
        let rates = vec![step(0, 1000.0), step(3, 0.0), step(10, 500.0)];
        let open = OpenLoop { spacing: Spacing::Constant, rates, burst: 1 };
        assert_eq!(due(open, 6), [0, 1, 2, 10, 12, 14]);
        let rates = vec![step(0, 1000.0), step(2, 0.0)];
        let ends = OpenLoop { spacing: Spacing::Constant, rates, burst: 1 };
        assert_eq!(due(ends, 3)[2], Nanos::MAX.get() / 1_000_000);
    }

    #[test]
    fn a_burst_is_due_at_once_and_keeps_the_rate() {
        let open = OpenLoop { spacing: Spacing::Constant, rates: vec![step(0, 1000.0)], burst: 3 };
        assert_eq!(due(open, 7), [0, 0, 0, 3, 3, 3, 6]);
    }
}
