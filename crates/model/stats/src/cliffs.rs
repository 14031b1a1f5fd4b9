//! Where a rate changed for good: change points of a time series.
//!
//! E-divisive: D. S. Matteson and N. A. James, "A Nonparametric Approach for Multiple Change Point Analysis
//! of Multivariate Data", JASA 109 (2014), section 3: the split with the largest energy statistic, tested by
//! permutations, then again in both parts. A permutation test takes points as independent, and neighbours in
//! time resemble each other: so many are averaged to one point as their correlation makes of no more worth
//! than one (the effective sample size of a first-order autoregression, (1 - r) / (1 + r) a point), and the
//! place is then looked for among the points themselves. What is found must also hold between its
//! neighbours: the weakest is dropped until Welch's t has p <= 0.001 for each, as Hunter does (M. Fleming et
//! al., "Hunter: Using Change Point Detection to Hunt for Performance Regressions", ICPE 2023).
//!
//! Invariants: the same series gives the same cliffs; what is told has both a significant test and a size
//! that matters. What it is not: a cause.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::estimate::t_quantile;

/// Least points on either side of a cliff.
pub const SIDE_MIN: usize = 5;
/// Level of each permutation test.
pub const LEVEL: f64 = 0.01;
/// Permutations of a test.
const PERMUTATIONS: u32 = 399;
/// Likelihood by chance that a difference between neighbouring parts may have at most, by Welch's t with the
/// effective sample size.
const P_MAX: f64 = 0.001;
/// Smaller changes, relative to the larger side, are not told.
pub const SIZE_MIN: f64 = 0.10;
/// Points that are looked at; longer series are averaged down to as many.
const POINTS_MAX: usize = 400;

/// A lasting change of the mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cliff {
    /// Number of the first point after it.
    pub at: usize,
    /// Mean from the cliff before, or the beginning, to this one.
    pub before: f64,
    /// Mean from this one to the next, or the end.
    pub after: f64,
    /// `after / before - 1`; infinite from nothing to something.
    pub change: f64,
    /// 95 % interval of `change`, by Welch's t on the means (not on their ratio's own distribution).
    pub interval: (f64, f64),
}

/// The cliffs of `series`, in order. Costs `O(n^2)` a permutation, n at most 400.
#[must_use]
pub fn cliffs(series: &[f64]) -> Vec<Cliff> {
    let worth = worth_of_one(series);
    let factor = series.len().div_ceil(POINTS_MAX).max(worth);
    let points: Vec<f64> = series.chunks(factor).map(average).collect();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut places = Vec::new();
    divide(&points, 0, &mut random, &mut places);
    places.sort_unstable();
    let mut places: Vec<usize> = places.into_iter().map(|place| place * factor).collect();
    refine(series, &mut places, factor);
    // What looked different beside its whole surroundings may not beside its neighbours: the weakest goes
    // until all hold.
    loop {
        let found = described(series, &places);
        let holds = |told: &Told| size(&told.cliff) >= SIZE_MIN && told.p <= P_MAX;
        let weak = found.iter().enumerate().filter(|(_, told)| !holds(told));
        let Some((weakest, _)) = weak.max_by(|(_, a), (_, b)| a.p.total_cmp(&b.p)) else {
            return found.into_iter().map(|told| told.cliff).collect();
        };
        places.remove(weakest);
    }
}

/// A cliff, and how likely a difference of the means on its sides is by chance.
struct Told {
    cliff: Cliff,
    p: f64,
}

fn average(points: &[f64]) -> f64 {
    points.iter().sum::<f64>() / points.len().max(1) as f64
}

/// Size of a change relative to the larger side.
fn size(cliff: &Cliff) -> f64 {
    let larger = cliff.before.abs().max(cliff.after.abs());
    if larger > 0.0 { (cliff.after - cliff.before).abs() / larger } else { 0.0 }
}

fn divide(points: &[f64], offset: usize, random: &mut Xoshiro256PlusPlus, places: &mut Vec<usize>) {
    let Some((place, statistic)) = best_split(points) else { return };
    let mut larger = 0;
    let mut shuffled = points.to_vec();
    for _ in 0..PERMUTATIONS {
        for last in (1..shuffled.len()).rev() {
            let other = (u128::from(random.next_u64()) * (last as u128 + 1)) >> 64;
            shuffled.swap(last, other as usize);
        }
        let found = best_split(&shuffled).map_or(0.0, |(_, statistic)| statistic);
        larger += u32::from(found >= statistic);
    }
    let p = f64::from(larger + 1) / f64::from(PERMUTATIONS + 1);
    if p > LEVEL {
        return;
    }
    places.push(offset + place);
    divide(&points[..place], offset, random, places);
    divide(&points[place..], offset + place, random, places);
}

/// The split with the largest energy statistic (equation 6), and that statistic.
fn best_split(points: &[f64]) -> Option<(usize, f64)> {
    let n = points.len();
    if n < 2 * SIDE_MIN {
        return None;
    }
    let distance = |i: usize, j: usize| (points[i] - points[j]).abs();
    let total: f64 = (0..n).map(|j| (0..j).map(|i| distance(i, j)).sum::<f64>()).sum();
    // Sums of distances inside the left part and inside the right one.
    let (mut left, mut right) = (0.0, total);
    let mut best: Option<(usize, f64)> = None;
    for place in 1..=n - SIDE_MIN {
        let moved = place - 1;
        left += (0..moved).map(|i| distance(i, moved)).sum::<f64>();
        right -= (place..n).map(|j| distance(moved, j)).sum::<f64>();
        if place < SIDE_MIN {
            continue;
        }
        let (a, b) = (place as f64, (n - place) as f64);
        let across = total - left - right;
        let pairs = |count: f64| count * (count - 1.0) / 2.0;
        let energy = 2.0 * across / (a * b) - left / pairs(a) - right / pairs(b);
        let statistic = a * b / (a + b) * energy;
        if best.is_none_or(|(_, found)| statistic > found) {
            best = Some((place, statistic));
        }
    }
    best
}

/// How many neighbours say as much as one independent point, 1 to 4: from how much further apart points at
/// distance two are than neighbours, by medians, which a few cliffs do not move.
fn worth_of_one(series: &[f64]) -> usize {
    let apart = |distance: usize| {
        let pairs = series.iter().zip(series.iter().skip(distance));
        let mut apart: Vec<f64> = pairs.map(|(a, b)| (a - b).abs()).collect();
        apart.sort_unstable_by(f64::total_cmp);
        apart.get(apart.len() / 2).copied().unwrap_or(0.0)
    };
    let (one, two) = (apart(1), apart(2));
    if one <= 0.0 || series.len() < 8 * SIDE_MIN {
        return 1;
    }
    let r = ((two / one).powi(2) - 1.0).clamp(0.0, 0.9);
    (((1.0 + r) / (1.0 - r)).round() as usize).clamp(1, 4)
}

/// Moves each place, by less than `reach`, to where the squares around the means on both sides are least.
fn refine(series: &[f64], places: &mut [usize], reach: usize) {
    for number in 0..places.len() {
        let begin = if number == 0 { 0 } else { places[number - 1] };
        let end = places.get(number + 1).copied().unwrap_or(series.len());
        let squares = |part: &[f64]| {
            let mean = average(part);
            part.iter().map(|point| (point - mean).powi(2)).sum::<f64>()
        };
        let place = places[number];
        let from = place.saturating_sub(reach).max(begin + 1);
        let to = (place + reach).min(end - 1);
        let cost = |at: &usize| squares(&series[begin..*at]) + squares(&series[*at..end]);
        let best = (from..=to).min_by(|a, b| cost(a).total_cmp(&cost(b)));
        places[number] = best.unwrap_or(place);
    }
}

fn described(points: &[f64], places: &[usize]) -> Vec<Told> {
    let edge = |number: usize| places.get(number).copied().unwrap_or(points.len());
    let begin = |number: usize| if number == 0 { 0 } else { places[number - 1] };
    let parts: Vec<&[f64]> = (0..=places.len()).map(|n| &points[begin(n)..edge(n)]).collect();
    let worth = inflation(&parts);
    let told = places.iter().zip(parts.windows(2));
    told.map(|(&at, pair)| described_one(at, (pair[0], pair[1]), worth)).collect()
}

/// How many points are worth one independent one, from what is left of the correlation of neighbours around
/// the means of `parts`.
fn inflation(parts: &[&[f64]]) -> f64 {
    let (mut neighbours, mut squares) = (0.0, 0.0);
    for part in parts {
        let mean = average(part);
        squares += part.iter().map(|point| (point - mean).powi(2)).sum::<f64>();
        let pairs = part.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean));
        neighbours += pairs.sum::<f64>();
    }
    let r = if squares > 0.0 { (neighbours / squares).clamp(0.0, 0.9) } else { 0.0 };
    (1.0 + r) / (1.0 - r)
}

fn described_one(at: usize, (left, right): (&[f64], &[f64]), worth: f64) -> Told {
    let (before, after) = (average(left), average(right));
    let count = |points: &[f64]| (points.len() as f64 / worth).max(1.5);
    // Variance of the mean.
    let variance = |points: &[f64], mean: f64| {
        let sum: f64 = points.iter().map(|point| (point - mean).powi(2)).sum();
        sum / (points.len().max(2) - 1) as f64 / count(points)
    };
    let (a, b) = (variance(left, before), variance(right, after));
    let error = (a + b).sqrt();
    let of = |variance: f64, count: f64| variance.powi(2) / (count - 1.0);
    let freedom = (a + b).powi(2) / (of(a, count(left)) + of(b, count(right)));
    let freedom = if freedom.is_finite() { freedom.max(0.5) } else { 1.0 };
    let difference = after - before;
    let p = if error > 0.0 {
        crate::estimate::two_sided_p(difference / error, freedom)
    } else {
        f64::from(u8::from(difference == 0.0))
    };
    let reach = t_quantile(freedom) * error;
    let relative = |value: f64| value / before;
    let interval = (relative(difference - reach), relative(difference + reach));
    Told { cliff: Cliff { at, before, after, change: relative(difference), interval }, p }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Noise around 1, each point taking `memory` of the one before.
    fn steady(seed: u64, count: usize, (spread, memory): (f64, f64)) -> Vec<f64> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut unit = || (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let mut last = 0.0;
        let scale = (1.0 - memory * memory).sqrt();
        (0..count)
            .map(|_| {
                // The sum of twelve uniform draws is nearly normal.
                let fresh = (0..12).map(|_| unit()).sum::<f64>() - 6.0;
                last = memory * last + scale * fresh;
                1.0 + spread * last
            })
            .collect()
    }

    /// A tool that cries at noise is soon not heard. What is stated: of 100 steady series 2 at most; 5 where
    /// neighbours resemble each other (0.4) and points spread by a fifth.
    #[test]
    fn a_hundred_steady_series_give_at_most_the_stated_false_alarms() {
        for (spread, memory, stated) in
            [(0.05, 0.0, 2), (0.20, 0.0, 2), (0.10, 0.4, 2), (0.20, 0.4, 5)]
        {
            let alarm = |seed: &u64| !cliffs(&steady(*seed, 120, (spread, memory))).is_empty();
            let alarms = (0..100).filter(alarm).count();
            println!("spread {spread}, memory {memory}: {alarms} of 100");
            assert!(alarms <= stated, "spread {spread}, memory {memory}: {alarms} of 100");
        }
    }

    #[test]
    fn a_planted_cliff_is_found_within_two_points_and_sized() {
        for seed in 0..20 {
            let mut series = steady(seed, 90, (0.10, 0.3));
            series[50..].iter_mut().for_each(|point| *point *= 0.5);
            let found = cliffs(&series);
            assert_eq!(found.len(), 1, "seed {seed}: {found:?}");
            let cliff = found[0];
            assert!(cliff.at.abs_diff(50) <= 2, "seed {seed}: at {}", cliff.at);
            assert!((-0.55..-0.45).contains(&cliff.change), "{cliff:?}");
            assert!(cliff.interval.0 < -0.5 && -0.5 < cliff.interval.1 + 0.05, "{cliff:?}");
        }
    }

    #[test]
    fn two_cliffs_are_two_and_a_short_dip_is_none() {
        let mut series = steady(3, 100, (0.08, 0.2));
        series[30..60].iter_mut().for_each(|point| *point *= 2.0);
        let places: Vec<usize> = cliffs(&series).iter().map(|cliff| cliff.at).collect();
        assert_eq!(places.len(), 2, "{places:?}");
        assert!(places[0].abs_diff(30) <= 2 && places[1].abs_diff(60) <= 2, "{places:?}");
        let mut series = steady(4, 100, (0.08, 0.2));
        series[40..42].iter_mut().for_each(|point| *point *= 0.5);
        assert_eq!(cliffs(&series), []);
        assert_eq!(cliffs(&[1.0; 50]), []);
        assert_eq!(cliffs(&[1.0; 3]), []);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        /// Whatever was recorded, cliffs lie inside, in order, and nothing panics.
        #[test]
        fn cliffs_lie_inside(series in prop::collection::vec(0.0f64..1e6, 0..60)) {
            let found = cliffs(&series);
            prop_assert!(found.windows(2).all(|pair| pair[0].at < pair[1].at));
            prop_assert!(found.iter().all(|cliff| cliff.at > 0 && cliff.at < series.len()));
        }
    }
}
