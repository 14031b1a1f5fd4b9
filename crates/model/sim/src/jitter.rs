//! Jitter of a host's wake-ups.

use rand::SeedableRng;
use rand_distr::{Distribution, Exp1};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Nanos, Seed};

/// Draws exponentially distributed delays; the same seed gives the same ones.
#[derive(Debug, Clone)]
pub struct Jitter {
    mean: Nanos,
    random: Xoshiro256PlusPlus,
}

impl Jitter {
    /// Delays with this mean.
    #[must_use]
    pub fn new(mean: Nanos, seed: Seed) -> Self {
        Self { mean, random: Xoshiro256PlusPlus::seed_from_u64(seed.derive("host", 0).0) }
    }

    /// The next delay.
    pub fn draw(&mut self) -> Nanos {
        if self.mean == Nanos::ZERO {
            return Nanos::ZERO;
        }
        let draw: f64 = Exp1.sample(&mut self.random);
        Nanos((draw * self.mean.get() as f64) as u64)
    }
}
