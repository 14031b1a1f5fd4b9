//! The course of a rate over a run: steady, a trend, periodic, or with lasting changes ("cliffs").
//!
//! Change points by optimal partitioning (B. Jackson et al., "An Algorithm for Optimal Partitioning of Data
//! on an Interval", IEEE Signal Processing Letters 12, 2005) with squared errors and a penalty of `2 V ln n`
//! for each; `V` is a robust estimate of the variance, from medians of the differences of neighbouring points
//! and of neighbouring groups of five, which also accounts for correlated neighbours. The weakest change
//! point is dropped until Welch's t, with the correlation of the residuals taken out, has p <= 1e-4 and the
//! size matters for each. A smooth function that describes the series about as well (Bayesian information
//! criterion) makes it a trend (a polynomial, an exponential settling) or periodic (a sine); changes that
//! alternate in direction make it periodic, too.
//!
//! Invariant: the same series gives the same course. The rate of false positives is in `docs/COVERAGE.md`, by
//! simulation.

use crate::estimate::{t_quantile, two_sided_p};

/// Minimum number of points on either side of a change.
pub const SIDE_MIN: usize = 10;
/// Minimum number of points.
pub const POINTS_MIN: usize = 40;
/// Significance level of a difference between neighbouring parts.
const P_MAX: f64 = 1e-4;
/// Smaller changes, relative to the larger side, are not reported.
pub const SIZE_MIN: f64 = 0.10;
/// Maximum number of points; longer series are averaged down.
const POINTS_MAX: usize = 400;
/// Number of alternating changes from which on the course is periodic.
const WAVE_CUTS: usize = 3;
/// A difference of the criterion that is very strong evidence (Kass and Raftery, JASA 90, 1995).
const FAR_BETTER: f64 = 10.0;
/// Strong evidence: by how much change points must be better than a smooth function.
const CLEARLY_BETTER: f64 = 6.0;
/// Time constants of an exponential settling, as shares of the series.
const SETTLING: [f64; 4] = [0.03, 0.06, 0.12, 0.25];
/// Minimum ratio of the smallest to the largest height of a wave.
const WAVE_ALIKE: f64 = 0.4;
/// Relative change, against the larger side, that needs no significance test if the sides do not overlap:
/// strongly correlated neighbours leave so few independent points that no test has power.
const LARGE: f64 = 0.5;
/// One point in this many may lie on the wrong side.
const APART: usize = 50;
/// Half periods up to which a sine counts as a trend.
const WAVE_HALVES: usize = 2;
/// Highest degree of a trend.
const DEGREE_MAX: usize = 3;

/// The course of a series.
#[derive(Debug, Clone, PartialEq)]
pub enum Course {
    /// Fewer than [`POINTS_MIN`] points.
    NotJudged,
    /// No lasting change.
    Steady,
    /// It changed gradually; `after / before - 1` of the ends of the fitted line or curve.
    Trend(f64),
    /// It rose and fell periodically, with this many changes of direction.
    Wave(usize),
    /// Its level changed at these points, in order; not empty.
    Cliffs(Vec<Cliff>),
}

impl Course {
    /// The change points; empty if there are none or there are too few points.
    #[must_use]
    pub fn cliffs(&self) -> &[Cliff] {
        match self {
            Self::Cliffs(found) => found,
            _ => &[],
        }
    }
}

/// A lasting change of the mean.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cliff {
    /// Number of the first point after it.
    pub at: usize,
    /// Mean from the previous change, or the start, to this one.
    pub before: f64,
    /// Mean from this change to the next, or the end.
    pub after: f64,
    /// `after / before - 1`; infinite for a rise from zero.
    pub change: f64,
    /// 95 % interval of `change`: Welch's t on the logarithms of the means (delta method); of the difference
    /// if a mean is 0. Not corrected for selection.
    pub interval: (f64, f64),
}

/// The course of `series`. Costs `O(n^2)`, n at most 400.
#[must_use]
pub fn course(series: &[f64]) -> Course {
    if series.len() < POINTS_MIN {
        return Course::NotJudged;
    }
    let factor = series.len().div_ceil(POINTS_MAX);
    let points: Vec<f64> = series.chunks(factor).map(average).collect();
    let sums = Sums::of(&points);
    let mut places =
        partition(&sums, points.len(), 2.0 * variance(&points) * (points.len() as f64).ln());
    loop {
        let found = described(&points, &places);
        let holds = |told: &Told| {
            let size = size(&told.cliff);
            size >= SIZE_MIN && told.p <= P_MAX || size >= LARGE && told.apart
        };
        let weak = found.iter().enumerate().filter(|(_, told)| !holds(told));
        let Some((weakest, _)) = weak.max_by(|(_, a), (_, b)| a.p.total_cmp(&b.p)) else { break };
        places.remove(weakest);
    }
    if places.is_empty() {
        return gradual(&points, &sums).unwrap_or(Course::Steady);
    }
    if let Some(course) = smooth(&points, &sums, &places) {
        return course;
    }
    let mut found: Vec<Cliff> =
        described(&points, &places).into_iter().map(|told| told.cliff).collect();
    if is_wave(&found) {
        return Course::Wave(found.len());
    }
    found.iter_mut().for_each(|cliff| cliff.at = refined(series, cliff.at * factor, factor));
    Course::Cliffs(found)
}

fn average(points: &[f64]) -> f64 {
    points.iter().sum::<f64>() / points.len().max(1) as f64
}

/// Size of a change relative to the larger side.
fn size(cliff: &Cliff) -> f64 {
    let larger = cliff.before.abs().max(cliff.after.abs());
    if larger > 0.0 { (cliff.after - cliff.before).abs() / larger } else { 0.0 }
}

/// Sums of values and of squares up to each point.
struct Sums(Vec<(f64, f64)>);

impl Sums {
    fn of(points: &[f64]) -> Self {
        let mut sums = vec![(0.0, 0.0)];
        let mut last = (0.0, 0.0);
        // Centred, so that squares of large values do not cancel.
        let mean = average(points);
        for point in points {
            let x = point - mean;
            last = (last.0 + x, last.1 + x * x);
            sums.push(last);
        }
        Self(sums)
    }

    /// Squares around the mean of `from..to`.
    fn cost(&self, from: usize, to: usize) -> f64 {
        let (a, b) = (self.0[from], self.0[to]);
        let sum = b.0 - a.0;
        (b.1 - a.1 - sum * sum / (to - from) as f64).max(0.0)
    }
}

/// The variance that the penalty is based on.
fn variance(points: &[f64]) -> f64 {
    let of_groups = |length: usize| {
        let means: Vec<f64> = points.chunks_exact(length).map(average).collect();
        let mut apart: Vec<f64> = means.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect();
        apart.sort_unstable_by(f64::total_cmp);
        let median = apart.get(apart.len() / 2).copied().unwrap_or(0.0);
        // The median of |x - y| of two normal values of variance v is 0.954 sqrt(v).
        (median / 0.954).powi(2)
    };
    of_groups(1).max(5.0 * of_groups(5))
}

/// Indices of the change points with the smallest sum of squares and penalties.
fn partition(sums: &Sums, n: usize, penalty: f64) -> Vec<usize> {
    // `[end]`: lowest cost of the points before it, and where its last part starts.
    let mut best = vec![(f64::INFINITY, 0); n + 1];
    best[0] = (-penalty, 0);
    for end in SIDE_MIN..=n {
        for begin in 0..=end - SIDE_MIN {
            let cost = best[begin].0 + penalty + sums.cost(begin, end);
            if cost < best[end].0 {
                best[end] = (cost, begin);
            }
        }
    }
    let mut places = Vec::new();
    let mut end = best[n].1;
    while end > 0 {
        places.push(end);
        end = best[end].1;
    }
    places.reverse();
    places
}

/// Whether changes alternate in direction with about equal size; a single large one among smaller ones does
/// not count.
fn is_wave(found: &[Cliff]) -> bool {
    let turns = |pair: &[Cliff]| (pair[0].change < 0.0) != (pair[1].change < 0.0);
    let height = |cliff: &Cliff| (cliff.after / cliff.before).ln().abs();
    let heights = found.iter().map(height);
    let (low, high) = heights.fold((f64::INFINITY, 0.0f64), |(a, b), h| (a.min(h), b.max(h)));
    found.len() >= WAVE_CUTS && found.windows(2).all(turns) && low >= WAVE_ALIKE * high
}

/// A change point, the p-value of the difference of its means, and whether (nearly) all points of one side
/// lie beyond all of the other.
struct Told {
    cliff: Cliff,
    p: f64,
    apart: bool,
}

fn described(points: &[f64], places: &[usize]) -> Vec<Told> {
    let edge = |number: usize| places.get(number).copied().unwrap_or(points.len());
    let begin = |number: usize| if number == 0 { 0 } else { places[number - 1] };
    let parts: Vec<&[f64]> = (0..=places.len()).map(|n| &points[begin(n)..edge(n)]).collect();
    let worth = inflation(&parts);
    let told = places.iter().zip(parts.windows(2));
    told.map(|(&at, pair)| described_one(at, (pair[0], pair[1]), worth)).collect()
}

/// How many points count as one independent point, from the remaining correlation of neighbours around the
/// means of `parts`.
fn inflation(parts: &[&[f64]]) -> f64 {
    let (mut neighbours, mut squares, mut count) = (0.0, 0.0, 0);
    for part in parts {
        let mean = average(part);
        squares += part.iter().map(|point| (point - mean).powi(2)).sum::<f64>();
        neighbours += part.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum::<f64>();
        count += part.len();
    }
    let r = if squares > 0.0 { neighbours / squares } else { 0.0 };
    let n = (count as f64 / parts.len() as f64).max(1.0);
    let r = (r + (1.0 + 4.0 * r) / n).clamp(0.0, 0.97);
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
        two_sided_p(difference / error, freedom)
    } else {
        f64::from(u8::from(difference == 0.0))
    };
    let change = after / before - 1.0;
    let interval = if before > 0.0 && after > 0.0 {
        let spread = (a / before.powi(2) + b / after.powi(2)).sqrt() * t_quantile(freedom);
        let ratio = after / before;
        (ratio * (-spread).exp() - 1.0, ratio * spread.exp() - 1.0)
    } else {
        let reach = t_quantile(freedom) * error;
        ((difference - reach) / before, (difference + reach) / before)
    };
    // The middle on a logarithmic scale: levels vary in proportion to their size.
    let middle =
        if before.min(after) > 0.0 { (before * after).sqrt() } else { (before + after) / 2.0 };
    let apart = lie_apart(left, right, middle);
    Told { cliff: Cliff { at, before, after, change, interval }, p, apart }
}

/// Whether at most one point in fifty of either side lies on the wrong side of `middle`.
fn lie_apart(left: &[f64], right: &[f64], middle: f64) -> bool {
    let falls = average(left) > average(right);
    let wrong = |points: &[f64], above: bool| {
        points.iter().filter(|point| (**point > middle) != above).count() * APART <= points.len()
    };
    wrong(left, falls) && wrong(right, !falls)
}

/// The course of a series that a smooth function describes about as well as its change points do.
fn smooth(points: &[f64], sums: &Sums, places: &[usize]) -> Option<Course> {
    let n = points.len() as f64;
    let criterion = |squares: f64, parameters: usize| {
        n * (squares / n).max(f64::MIN_POSITIVE).ln() + parameters as f64 * n.ln()
    };
    let edges: Vec<usize> =
        [0].into_iter().chain(places.iter().copied()).chain([points.len()]).collect();
    let squares: f64 = edges.windows(2).map(|pair| sums.cost(pair[0], pair[1])).sum();
    let of_cuts = criterion(squares, 2 * places.len() + 1);
    let fits = fits(points).into_iter().map(|fit| (criterion(fit.squares, fit.parameters), fit));
    let (least, fit) = fits.min_by(|a, b| a.0.total_cmp(&b.0))?;
    (least <= of_cuts + CLEARLY_BETTER).then_some(fit.course)
}

/// The change from end to end of a series without change points, if a smooth function describes it far better
/// than its mean and the change matters.
fn gradual(points: &[f64], sums: &Sums) -> Option<Course> {
    let independent = points.len() as f64 / inflation(&[points]).sqrt();
    let constant = sums.cost(0, points.len());
    let better = |fit: &Fit| {
        let gained = independent * (constant / fit.squares.max(f64::MIN_POSITIVE)).ln();
        gained > fit.parameters as f64 * independent.ln() + FAR_BETTER
    };
    let matters = |course: &Course| !matches!(course, Course::Trend(by) if by.abs() < SIZE_MIN);
    fits(points).into_iter().find(better).map(|fit| fit.course).filter(matters)
}

/// A smooth function fitted to a series.
struct Fit {
    parameters: usize,
    squares: f64,
    course: Course,
}

/// Polynomials of degree 1 to 3, a rate that settles exponentially, and sines.
fn fits(points: &[f64]) -> Vec<Fit> {
    let n = points.len();
    let place = |at: usize| at as f64 / (n - 1) as f64;
    let basis = |of: &dyn Fn(f64) -> f64| -> Vec<f64> { (0..n).map(|at| of(place(at))).collect() };
    let trend = |left: &[f64]| {
        let at = |index: usize| points[index] - left[index];
        Course::Trend(at(n - 1) / at(0) - 1.0)
    };
    let mut out = Vec::new();
    let mut powers = vec![basis(&|_| 1.0)];
    for degree in 1..=DEGREE_MAX {
        powers.push(basis(&|x| (2.0 * x - 1.0).powi(degree as i32)));
        let left = residuals(points, &powers);
        let (squares, course) = (dot(&left, &left), trend(&left));
        out.push(Fit { parameters: degree + 1, squares, course });
    }
    for settling in SETTLING {
        let left = residuals(points, &[basis(&|_| 1.0), basis(&|x| (-x / settling).exp())]);
        out.push(Fit { parameters: 3, squares: dot(&left, &left), course: trend(&left) });
    }
    // At least half a period, and at least ten points per period.
    for halves in 1..=n / 5 {
        let turn = std::f64::consts::PI * halves as f64;
        let bases = [basis(&|_| 1.0), basis(&|x| (turn * x).sin()), basis(&|x| (turn * x).cos())];
        let left = residuals(points, &bases);
        let course = if halves > WAVE_HALVES { Course::Wave(halves) } else { trend(&left) };
        out.push(Fit { parameters: 4, squares: dot(&left, &left), course });
    }
    out
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

/// Residuals of the least-squares fit of `points` on `bases`, orthogonalized one after the other.
fn residuals(points: &[f64], bases: &[Vec<f64>]) -> Vec<f64> {
    let mut left = points.to_vec();
    let mut done: Vec<Vec<f64>> = Vec::new();
    for base in bases {
        let mut own = base.clone();
        for other in &done {
            let share = dot(&own, other) / dot(other, other);
            own.iter_mut().zip(other).for_each(|(x, y)| *x -= share * y);
        }
        let length = dot(&own, &own);
        if length > 1e-9 {
            let share = dot(&left, &own) / length;
            left.iter_mut().zip(&own).for_each(|(x, y)| *x -= share * y);
            done.push(own);
        }
    }
    left
}

/// The position within `reach` of `place` that minimizes the squares around the means of the neighbouring
/// points.
fn refined(series: &[f64], place: usize, reach: usize) -> usize {
    if reach <= 1 {
        return place;
    }
    let around = SIDE_MIN * reach;
    let begin = place.saturating_sub(around);
    let end = (place + around).min(series.len());
    let squares = |part: &[f64]| {
        let mean = average(part);
        part.iter().map(|point| (point - mean).powi(2)).sum::<f64>()
    };
    let cost = |at: &usize| squares(&series[begin..*at]) + squares(&series[*at..end]);
    let candidates = (place - reach).max(begin + 1)..=(place + reach).min(end - 1);
    candidates.min_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap_or(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// Noise around 1 in which each point keeps the share `memory` of the previous deviation.
    fn noise(seed: u64, count: usize, (spread, memory): (f64, f64)) -> Vec<f64> {
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

    fn shaped(
        seed: u64,
        count: usize,
        noise_of: (f64, f64),
        shape: impl Fn(f64) -> f64,
    ) -> Vec<f64> {
        let mut series = noise(seed, count, noise_of);
        for (at, point) in series.iter_mut().enumerate() {
            *point *= shape(at as f64 / count as f64);
        }
        series
    }

    type Shape = dyn Fn(f64) -> f64;

    /// False alarms must stay rare: at most 3 of 100 series without a change.
    #[test]
    fn series_without_a_cliff_give_at_most_the_stated_false_alarms() {
        let flat = |_: f64| 1.0;
        let fall = |x: f64| 1.0 - 0.5 * x;
        let warm_up = |x: f64| 1.0 - 0.5 * (-x * 8.0).exp();
        let wave = |x: f64| 1.0 + 0.2 * (x * 3.0 * std::f64::consts::TAU).sin();
        let shapes: [(&str, &Shape, (f64, f64)); 6] = [
            ("steady", &flat, (0.05, 0.0)),
            ("steady, alike", &flat, (0.20, 0.6)),
            ("trend", &fall, (0.05, 0.0)),
            ("warm-up", &warm_up, (0.05, 0.0)),
            ("wave", &wave, (0.05, 0.3)),
            ("steady and noisy", &flat, (0.20, 0.0)),
        ];
        for (name, shape, noise_of) in shapes {
            let alarm =
                |seed: &u64| !course(&shaped(*seed, 120, noise_of, shape)).cliffs().is_empty();
            let alarms = (0..100).filter(alarm).count();
            assert!(alarms <= 3, "{name}: {alarms} of 100");
        }
    }

    #[test]
    fn a_planted_cliff_is_found_within_two_points_and_sized() {
        let mut more = 0;
        for seed in 0..20 {
            let series = shaped(seed, 90, (0.10, 0.3), |x| if x < 0.555 { 1.0 } else { 0.5 });
            let Course::Cliffs(found) = course(&series) else { panic!("seed {seed}") };
            // One series in twenty may have a smaller change due to noise.
            more += found.len() - 1;
            let near = |cliff: &&Cliff| cliff.at.abs_diff(50) <= 2;
            let cliff = found.iter().find(near).unwrap_or_else(|| panic!("seed {seed}: {found:?}"));
            assert!((-0.57..-0.43).contains(&cliff.change), "{cliff:?}");
            assert!(cliff.interval.0 < -0.45 && -0.55 < cliff.interval.1, "{cliff:?}");
        }
        assert!(more <= 1, "{more}");
    }

    /// A drop near the end of a run must be found.
    #[test]
    fn a_cliff_near_the_end_and_two_cliffs_are_found_and_a_short_dip_is_none() {
        let late = shaped(5, 120, (0.05, 0.0), |x| if x < 0.9 { 1.0 } else { 0.5 });
        assert_eq!(course(&late).cliffs().len(), 1);
        let two = shaped(3, 100, (0.08, 0.2), |x| if (0.3..0.6).contains(&x) { 2.0 } else { 1.0 });
        let places: Vec<usize> = course(&two).cliffs().iter().map(|cliff| cliff.at).collect();
        assert_eq!(places.len(), 2, "{places:?}");
        assert!(places[0].abs_diff(30) <= 2 && places[1].abs_diff(60) <= 2, "{places:?}");
        let dip = shaped(4, 100, (0.08, 0.2), |x| if (0.4..0.42).contains(&x) { 0.5 } else { 1.0 });
        assert_eq!(course(&dip), Course::Steady);
        assert_eq!(course(&[1.0; 50]), Course::Steady);
        assert_eq!(course(&[1.0; 39]), Course::NotJudged);
    }

    /// A drop to a hundredth must be found even if CPU contention makes the earlier level vary so much that
    /// it counts as two independent points.
    #[test]
    fn a_fall_from_a_level_that_wanders_is_a_cliff() {
        for seed in 0..50 {
            let series = shaped(seed, 140, (0.2, 0.95), |x| if x < 0.5 { 1.0 } else { 0.01 });
            let found = course(&series);
            let fall = |cliff: &&Cliff| cliff.at.abs_diff(70) <= 1 && cliff.change < -0.9;
            assert!(found.cliffs().iter().any(|one| fall(&one)), "seed {seed}: {found:?}");
        }
    }

    #[test]
    fn trends_and_waves_have_their_names() {
        let trend = shaped(1, 120, (0.03, 0.0), |x| 1.0 - 0.5 * x);
        let Course::Trend(change) = course(&trend) else { panic!("{:?}", course(&trend)) };
        assert!((-0.55..-0.45).contains(&change), "{change}");
        let wave = shaped(1, 120, (0.03, 0.0), |x| {
            if ((x * 6.0) as u32).is_multiple_of(2) { 1.0 } else { 0.6 }
        });
        assert_eq!(course(&wave), Course::Wave(5));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        /// For any input, change points lie inside, in order, and nothing panics.
        #[test]
        fn cliffs_lie_inside(series in prop::collection::vec(0.0f64..1e6, 0..900)) {
            let found = course(&series);
            prop_assert!(found.cliffs().windows(2).all(|pair| pair[0].at < pair[1].at));
            prop_assert!(found.cliffs().iter().all(|cliff| cliff.at > 0 && cliff.at < series.len()));
        }
    }
}
