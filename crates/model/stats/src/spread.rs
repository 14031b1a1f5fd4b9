//! Coarse distribution of an interval's latencies, for progress displays, not for figures.
//!
//! Buckets of a quarter octave from 1 us on, so percentiles are accurate to 19 %. Invariants: fixed size;
//! adding allocates nothing; counts saturate.

use serde::{Deserialize, Serialize};
use units::Nanos;

/// Histogram of times with four buckets per octave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Vec<(usize, u32)>", from = "Vec<(usize, u32)>")]
pub struct Spread([u32; Spread::BUCKETS]);

impl From<Spread> for Vec<(usize, u32)> {
    fn from(spread: Spread) -> Self {
        spread.counts().collect()
    }
}

impl From<Vec<(usize, u32)>> for Spread {
    fn from(counts: Vec<(usize, u32)>) -> Self {
        let mut spread = Self::default();
        counts.iter().for_each(|(bucket, count)| spread.add_to(*bucket, *count));
        spread
    }
}

impl Default for Spread {
    fn default() -> Self {
        Self([0; Self::BUCKETS])
    }
}

/// Times below this are in the first bucket.
const FIRST_NS: f64 = 1000.0;
/// Buckets per octave.
const OF_OCTAVE: f64 = 4.0;

impl Spread {
    /// Number of buckets, up to 16 s; the last one has no upper bound.
    pub const BUCKETS: usize = 97;

    /// Counts `count` operations that took `time`.
    pub fn add(&mut self, time: Nanos, count: u64) {
        let place = ((time.get() as f64 / FIRST_NS).log2() * OF_OCTAVE).ceil().max(0.0) as usize;
        self.add_to(place, u32::try_from(count).unwrap_or(u32::MAX));
    }

    /// Counts `count` operations in a bucket, or in the last if the number is too large.
    pub fn add_to(&mut self, bucket: usize, count: u32) {
        let cell = &mut self.0[bucket.min(Self::BUCKETS - 1)];
        *cell = cell.saturating_add(count);
    }

    /// Non-empty buckets in ascending order, with their counts.
    pub fn counts(&self) -> impl Iterator<Item = (usize, u32)> {
        self.0.iter().copied().enumerate().filter(|(_, count)| *count > 0)
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        other.counts().for_each(|(bucket, count)| self.add_to(bucket, count));
    }

    /// Returns the upper bound of a bucket.
    #[must_use]
    pub fn upper(bucket: usize) -> Nanos {
        Nanos((FIRST_NS * (bucket as f64 / OF_OCTAVE).exp2()) as u64)
    }

    /// The latency that `percent` of the operations do not exceed, rounded up to its bucket; `None` without
    /// operations.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> Option<Nanos> {
        let all: u64 = self.counts().map(|(_, count)| u64::from(count)).sum();
        let wanted = (all as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut seen = 0;
        self.counts()
            .find(|(_, count)| {
                seen += u64::from(*count);
                seen >= wanted
            })
            .map(|(bucket, _)| Self::upper(bucket))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A live percentile must not be off by more than its bucket.
    #[test]
    fn percentiles_are_right_to_a_bucket() {
        let mut spread = Spread::default();
        (1..=1000).for_each(|micros| spread.add(Nanos(micros * 1000), 1));
        for (percent, micros) in [(50.0, 500.0), (99.0, 990.0), (100.0, 1000.0)] {
            let found = spread.percentile(percent).unwrap().get() as f64 / 1000.0;
            assert!((1.0..=1.19).contains(&(found / micros)), "{percent}: {found}");
        }
        assert_eq!(Spread::default().percentile(50.0), None);
    }

    #[test]
    fn what_is_short_or_long_has_a_place_and_merging_adds() {
        let mut spread = Spread::default();
        spread.add(Nanos(0), 2);
        spread.add(Nanos(u64::MAX), 3);
        let mut both = spread;
        both.merge(&spread);
        assert_eq!(both.counts().collect::<Vec<_>>(), [(0, 4), (Spread::BUCKETS - 1, 6)]);
        assert_eq!(Spread::upper(4), Nanos(2000));
        spread.add_to(0, u32::MAX);
        assert_eq!(spread.counts().next(), Some((0, u32::MAX)));
    }
}
