//! Bytes per operation: one size, or a mix of sizes.
//!
//! Invariant: never empty; every size fits 32 bits.

use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;

/// The sizes of a workload with their weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes {
    /// A random word up to this bound means this size; bounds ascend, the last is `u64::MAX`.
    bounds: Vec<(u64, u32)>,
}

impl Sizes {
    /// Every operation moves `bytes`.
    #[must_use]
    pub fn one(bytes: u32) -> Self {
        Self { bounds: vec![(u64::MAX, bytes)] }
    }

    /// A mix of sizes, drawn in proportion to their weights.
    ///
    /// # Panics
    /// Without a positive weight; study validation refuses such a mix.
    #[must_use]
    pub fn mix(sizes: &[(u32, f64)]) -> Self {
        let whole: f64 = sizes.iter().map(|(_, weight)| weight).sum();
        assert!(whole > 0.0, "a mix with total weight 0");
        let mut sum = 0.0;
        let mut bounds: Vec<(u64, u32)> = sizes
            .iter()
            .map(|(bytes, weight)| {
                sum += weight;
                ((sum / whole * 2f64.powi(64)) as u64, *bytes)
            })
            .collect();
        if let Some(last) = bounds.last_mut() {
            last.0 = u64::MAX;
        }
        Self { bounds }
    }

    /// The largest size.
    #[must_use]
    pub fn largest(&self) -> u32 {
        self.bounds.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0)
    }

    /// The smallest size.
    #[must_use]
    pub fn smallest(&self) -> u32 {
        self.bounds.iter().map(|(_, bytes)| *bytes).min().unwrap_or(0)
    }

    /// The next size.
    #[inline]
    pub(crate) fn draw(&self, random: &mut Xoshiro256PlusPlus) -> u32 {
        if let [(_, only)] = self.bounds.as_slice() {
            return *only;
        }
        let word = random.next_u64();
        self.bounds[self.bounds.partition_point(|(bound, _)| *bound < word)].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn a_mix_has_its_shares() {
        let sizes = Sizes::mix(&[(4096, 3.0), (65536, 1.0)]);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let small = (0..100_000).filter(|_| sizes.draw(&mut random) == 4096).count();
        assert!((74_000..76_000).contains(&small), "{small}");
        assert_eq!((sizes.smallest(), sizes.largest()), (4096, 65536));
    }
}
