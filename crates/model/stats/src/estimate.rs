//! Figures from recordings: every estimate carries its sample size and what its interval covers.
//!
//! The unit is the run. From three repetitions on the interval is Student's t on the logarithms of one value
//! per repetition, transformed back; of two it is their range. A single run has an interval from *within*
//! this run, which says nothing about the next: batch means with the correlation of neighbours taken out (a
//! first-order autoregression; Law and Kelton, *Simulation Modeling and Analysis*, ch. 9), for percentiles by
//! the share of samples above in each part of the run. An interval from within a run is refused if its
//! coverage would be too low: few parts, few independent ones among them, a trend, or a correlation that is
//! not first-order. `docs/COVERAGE.md` has the simulated coverage of each.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::Histogram;

/// Samples required beyond a percentile to report it.
pub const SAMPLES_BEYOND_MIN: u64 = 10;
/// Minimum number of parts of a run (its intervals) for an interval from within it.
pub const PARTS_MIN: usize = 60;
/// Minimum number of independent parts.
pub const EFFECTIVE_MIN: f64 = 15.0;
/// The same for [`mean_of_few`].
pub const FEW_EFFECTIVE_MIN: f64 = 10.0;
/// Minimum number of parts with a sample beyond the percentile.
pub const PARTS_BEYOND_MIN: usize = 25;
/// A trend with a smaller p-value than this refuses the interval.
const TREND_P: f64 = 0.01;
/// Number of long batches whose variance of the mean is compared with that from the correlation of
/// neighbours; a ratio outside these bounds means that the correlation is not first-order. With ten batches
/// chance alone is outside in about 2 %.
const BATCHES: usize = 10;
const BATCH_RATIO: [f64; 2] = [0.15, 2.6];
/// Maximum number of points in the search for long-lag correlation.
const ECHO_POINTS_MAX: usize = 600;
/// Standard errors by which a long-lag correlation must exceed the autoregression's.
const ECHO_ERRORS: f64 = 4.0;
/// Median absolute deviation to standard deviation, of the normal distribution.
const MAD_TO_SD: f64 = 1.4826;
/// Standard deviations from which on a value is an outlier.
const OUTSIDE: f64 = 5.0;
/// Number of outlier episodes required to estimate how often they occur.
const EPISODES_MIN: usize = 10;
/// Two-sided 95 % point of the normal distribution.
const Z_95: f64 = 1.959_963_985;

/// What an interval covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// 95 % interval of the mean over repetitions.
    Repetitions,
    /// The smaller and the larger of two repetitions; no stated coverage.
    Range,
    /// 95 % within this one run; another run may differ.
    Within,
}

units::words!(Basis {
    Repetitions => "repetitions", Range => "range", Within => "within_run",
});

/// A number with its interval and the number of observations behind it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// Lower end; `None` if the data give no interval.
    pub lo: Option<f64>,
    /// Upper end.
    pub hi: Option<f64>,
    /// Sample size: repetitions; for a single run, operations for percentiles and parts for rates and means.
    pub n: u64,
    /// What the interval covers; `None` without one.
    pub basis: Option<Basis>,
    /// The value is a lower bound: it is reached by operations that never completed.
    pub at_least: bool,
}

impl Estimate {
    /// A value without an interval.
    #[must_use]
    pub const fn of(value: f64, n: u64) -> Self {
        Self { value, lo: None, hi: None, n, basis: None, at_least: false }
    }

    fn around(self, ends: Option<(f64, f64)>, basis: Basis) -> Self {
        match ends.filter(|(lo, hi)| lo.is_finite() && hi.is_finite()) {
            Some((lo, hi)) => Self { lo: Some(lo), hi: Some(hi), basis: Some(basis), ..self },
            None => self,
        }
    }

    /// The interval between repetitions; `None` for another kind of interval.
    #[must_use]
    pub fn between_repetitions(&self) -> Option<(f64, f64)> {
        self.lo.zip(self.hi).filter(|_| self.basis == Some(Basis::Repetitions))
    }

    /// The estimate without its interval if the value is a lower bound: the upper end is unknown.
    #[must_use]
    fn bounded(self) -> Self {
        if self.at_least { Self { lo: None, hi: None, basis: None, ..self } } else { self }
    }
}

/// Combines one estimate per repetition: a single one keeps its own interval, two give their range, three or
/// more Student's t on logarithms (on the values themselves if one is not positive). The mean is geometric if
/// the interval is. `None` without repetitions.
#[must_use]
pub fn over_repetitions(runs: &[Estimate]) -> Option<Estimate> {
    let values: Vec<f64> = runs.iter().map(|run| run.value).collect();
    let n = values.len() as f64;
    let at_least = runs.iter().any(|run| run.at_least);
    match values.as_slice() {
        [] => None,
        [_] => Some(runs[0]),
        [a, b] => {
            let made = Estimate { at_least, ..Estimate::of((a + b) / 2.0, 2) };
            Some(made.around(Some((a.min(*b), a.max(*b))), Basis::Range).bounded())
        }
        all => {
            let logs = all.iter().all(|value| *value > 0.0);
            let to = |value: f64| if logs { value.ln() } else { value };
            let from = |value: f64| if logs { value.exp() } else { value };
            let mean = all.iter().map(|value| to(*value)).sum::<f64>() / n;
            let squares: f64 = all.iter().map(|value| (to(*value) - mean).powi(2)).sum();
            let half = t_quantile(n - 1.0) * (squares / (n - 1.0) / n).sqrt();
            let made = Estimate { at_least, ..Estimate::of(from(mean), all.len() as u64) };
            let ends = (from(mean - half), from(mean + half));
            Some(made.around(Some(ends), Basis::Repetitions).bounded())
        }
    }
}

/// Combines one value per repetition, as [`over_repetitions`].
#[must_use]
pub fn over_values(values: &[f64]) -> Option<Estimate> {
    let runs: Vec<Estimate> = values.iter().map(|value| Estimate::of(*value, 1)).collect();
    over_repetitions(&runs)
}

/// `a` over `b`, from separate runs. If both have an interval between repetitions, so does the ratio: Welch's
/// t on the logarithms, recovered from the half-widths.
#[must_use]
pub fn ratio(a: &Estimate, b: &Estimate) -> Estimate {
    let value = a.value / b.value;
    let made = Estimate { at_least: a.at_least, ..Estimate::of(value, a.n.min(b.n)) };
    let part = |one: &Estimate| {
        let (lo, hi) = one.between_repetitions().filter(|(lo, _)| *lo > 0.0)?;
        let df = one.n as f64 - 1.0;
        Some(((hi / lo).ln() / 2.0 / t_quantile(df), df))
    };
    let ends = part(a).zip(part(b)).filter(|_| !a.at_least && !b.at_least);
    let ends = ends.map(|((error, df), (other, of_other))| {
        let (mine, theirs) = (error.powi(2), other.powi(2));
        let whole = mine + theirs;
        let df = whole.powi(2) / (mine.powi(2) / df + theirs.powi(2) / of_other);
        let half = if whole > 0.0 { t_quantile(df) * whole.sqrt() } else { 0.0 };
        (value * (-half).exp(), value * half.exp())
    });
    made.around(ends, Basis::Repetitions)
}

/// A ratio of sums within one run, such as operations per second or time per operation: `(numerator,
/// denominator)` of each part in order of time, empty ones included. `None` if the denominators are all zero.
#[must_use]
pub fn ratio_within(parts: &[(f64, f64)]) -> Option<Estimate> {
    let k = parts.len() as f64;
    let (above, below) =
        parts.iter().fold((0.0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
    if below <= 0.0 {
        return None;
    }
    let value = above / below;
    let residuals: Vec<f64> = parts.iter().map(|(s, w)| s - value * w).collect();
    let made = Estimate::of(value, parts.len() as u64);
    let ends = || {
        let (variance, effective) = variance_of_mean(&residuals)?;
        let half = t_quantile(effective - 1.0) * variance.sqrt() * k / below;
        Some(((value - half).max(0.0), value + half))
    };
    Some(made.around(ends(), Basis::Within))
}

/// Variance of the mean of a correlated series, and its effective sample size; `None` if they cannot be
/// estimated.
fn variance_of_mean(series: &[f64]) -> Option<(f64, f64)> {
    let k = series.len();
    if k < PARTS_MIN {
        return None;
    }
    let n = k as f64;
    let mean = series.iter().sum::<f64>() / n;
    let (r, squares) = neighbours_alike(series, mean);
    if squares <= 0.0 {
        return Some((0.0, n));
    }
    let worth = (1.0 + r) / (1.0 - r);
    let variance = squares / (n - 1.0) * worth / n;
    let effective = n / worth;
    // The largest plausible correlation: a short correlated series underestimates its own.
    let at_most = (r + 2.0 * ((1.0 - r * r) / n).sqrt()).min(0.99);
    let sure = n * (1.0 - at_most) / (1.0 + at_most);
    let few = sure < EFFECTIVE_MIN || has_rare_bursts(series);
    if few || has_trend(series, mean, worth) || has_echo(series, mean, r) {
        return None;
    }
    // Batches of another length must agree: waves, bursts and long memory are not autoregressive.
    let length = k / BATCHES;
    let means: Vec<f64> = series
        .chunks_exact(length)
        .map(|batch| batch.iter().sum::<f64>() / length as f64)
        .collect();
    let b = means.len() as f64;
    let centre = means.iter().sum::<f64>() / b;
    let of_batches = means.iter().map(|x| (x - centre).powi(2)).sum::<f64>() / (b - 1.0) / b
        * (length as f64 * b / n);
    let ratio = of_batches / variance;
    (BATCH_RATIO[0]..=BATCH_RATIO[1]).contains(&ratio).then_some((variance, effective))
}

/// Mean and standard error of a short correlated series; `None` with fewer than [`FEW_EFFECTIVE_MIN`]
/// independent values.
#[must_use]
pub fn mean_of_few(series: &[f64]) -> Option<(f64, f64)> {
    let n = series.len() as f64;
    if n < FEW_EFFECTIVE_MIN {
        return None;
    }
    let mean = series.iter().sum::<f64>() / n;
    let (r, squares) = neighbours_alike(series, mean);
    let worth = (1.0 + r) / (1.0 - r);
    let error = (squares / (n - 1.0) * worth / n).sqrt();
    (n / worth >= FEW_EFFECTIVE_MIN).then_some((mean, error))
}

/// The correlation of neighbours, corrected for the length of the series, and the sum of squares.
fn neighbours_alike(series: &[f64], mean: f64) -> (f64, f64) {
    let n = series.len() as f64;
    let squares: f64 = series.iter().map(|x| (x - mean).powi(2)).sum();
    if squares <= 0.0 {
        return (0.0, 0.0);
    }
    let pairs: f64 = series.windows(2).map(|two| (two[0] - mean) * (two[1] - mean)).sum();
    let r = pairs / squares;
    ((r + (1.0 + 4.0 * r) / n).clamp(0.0, 0.97), squares)
}

/// Whether outliers occur in few episodes, so that their rate is not known.
fn has_rare_bursts(series: &[f64]) -> bool {
    let median = |values: &mut Vec<f64>| {
        values.sort_unstable_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let centre = median(&mut series.to_vec());
    let spread = median(&mut series.iter().map(|x| (x - centre).abs()).collect()) * MAD_TO_SD;
    let outside = |x: &f64| (x - centre).abs() > OUTSIDE * spread;
    let begins = series.windows(2).filter(|two| !outside(&two[0]) && outside(&two[1])).count();
    let episodes = begins + usize::from(series.first().is_some_and(outside));
    spread > 0.0 && (1..EPISODES_MIN).contains(&episodes)
}

/// Whether values correlate at long lags beyond an autoregression: periodic, or bursts at regular intervals.
fn has_echo(series: &[f64], mean: f64, r: f64) -> bool {
    if series.len() > ECHO_POINTS_MAX {
        // The cost of every lag is proportional to the length: neighbours of a long series are averaged
        // first.
        let few: Vec<f64> = series
            .chunks_exact(series.len().div_ceil(ECHO_POINTS_MAX))
            .map(|part| part.iter().sum::<f64>() / part.len() as f64)
            .collect();
        let mean = few.iter().sum::<f64>() / few.len() as f64;
        let (r, squares) = neighbours_alike(&few, mean);
        return squares > 0.0 && has_echo(&few, mean, r);
    }
    let squares: f64 = series.iter().map(|x| (x - mean).powi(2)).sum();
    let error = ((1.0 + r * r) / (1.0 - r * r) / series.len() as f64).sqrt();
    (2..=series.len() / 3).any(|lag| {
        let pairs = series.iter().zip(&series[lag..]);
        let alike = pairs.map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>() / squares;
        alike - r.powi(lag as i32) > ECHO_ERRORS * error
    })
}

/// Whether the series rises or falls beyond chance.
fn has_trend(series: &[f64], mean: f64, worth: f64) -> bool {
    let n = series.len() as f64;
    let middle = (n - 1.0) / 2.0;
    let (mut above, mut below) = (0.0, 0.0);
    for (at, value) in series.iter().enumerate() {
        let x = at as f64 - middle;
        above += x * (value - mean);
        below += x * x;
    }
    let slope = above / below;
    let left: f64 = series
        .iter()
        .enumerate()
        .map(|(at, value)| (value - mean - slope * (at as f64 - middle)).powi(2))
        .sum();
    let error = (left / (n - 2.0) / below * worth).sqrt();
    if error <= 0.0 {
        return slope != 0.0;
    }
    two_sided_p(slope / error, (n / worth - 2.0).max(1.0)) < TREND_P
}

/// The two-sided p-value of Student's t.
pub(crate) fn two_sided_p(t: f64, freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom).map_or(1.0, |d| 2.0 * d.cdf(-t.abs()))
}

/// The two-sided 95 % point of Student's t; NaN for invalid degrees of freedom.
pub(crate) fn t_quantile(freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::NAN, |t| t.inverse_cdf(0.975))
}

/// Percentile `p` (0 to 100) of `latency` in nanoseconds, without an interval. `missed` operations never
/// completed: they took longer than any that did, and a percentile that reaches them is the longest known
/// time.
///
/// # Errors
/// [`TooFew`] if fewer than [`SAMPLES_BEYOND_MIN`] samples lie beyond it.
pub fn percentile(latency: &Histogram, missed: u64, p: f64) -> Result<Estimate, TooFew> {
    let n = latency.len().saturating_add(missed);
    let q = p / 100.0;
    let tail = q.max(1.0 - q).min(1.0);
    let needed = (SAMPLES_BEYOND_MIN as f64 / (1.0 - tail).max(1e-12)).round() as u64;
    if n < needed || latency.is_empty() {
        return Err(TooFew { needed: needed.max(1), have: n });
    }
    let rank = q * n as f64;
    let known = latency.len() as f64;
    let value = latency.value_at_quantile((rank / known).min(1.0)) as f64;
    Ok(Estimate { at_least: rank > known, ..Estimate::of(value, n) })
}

/// Number of samples above `value`, and of all samples, in one part of a run; for [`percentile_within`].
#[must_use]
pub fn beyond(part: &Histogram, value: f64) -> (f64, f64) {
    let within = part.count_between(0, value as u64);
    ((part.len() - within) as f64, part.len() as f64)
}

/// Like [`percentile`], with an interval from within the run: `shares` has the result of [`beyond`] for each
/// part in time order, including empty ones. No interval if operations never completed, or if fewer than
/// [`PARTS_BEYOND_MIN`] parts have a sample beyond: so few slow episodes might as well have been none or
/// twice as many.
#[must_use]
pub fn percentile_within(
    made: Estimate,
    (latency, missed): (&Histogram, u64),
    shares: &[(f64, f64)],
    p: f64,
) -> Estimate {
    let q = p / 100.0;
    let holding = shares.iter().filter(|(beyond, _)| *beyond > 0.0).count();
    if missed > 0 || latency.is_empty() || holding < PARTS_BEYOND_MIN {
        return made;
    }
    let Some(share) = ratio_within(shares) else { return made };
    let Some((lo, hi)) = share.lo.zip(share.hi) else { return made };
    let sampling = Z_95 * (q * (1.0 - q) / latency.len() as f64).sqrt();
    let half = sampling.max((hi - share.value).max(share.value - lo));
    let low = latency.value_at_quantile((q - half).max(0.0));
    let high = latency.value_at_quantile((q + half).min(1.0));
    // From the bottom of one bucket to the top of the other: positions within a bucket are unknown.
    let ends = (latency.lowest_equivalent(low) as f64, latency.highest_equivalent(high) as f64);
    made.around(Some(ends), Basis::Within)
}

/// A percentile that the sample count cannot support.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooFew {
    /// Samples that would support it.
    pub needed: u64,
    /// Samples available.
    pub have: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::new_histogram;

    fn weyl(seed: u64, count: usize) -> Vec<f64> {
        let mut word = seed;
        (0..count)
            .map(|_| {
                word = units::Seed(word).derive("step", 0).0;
                (word >> 11) as f64 / (1u64 << 53) as f64
            })
            .collect()
    }

    /// Values 8, 10, 12.5: mean of logs ln 10, s = ln 1.25, t(2, 0.975) = 4.303: 10 / 1.741 and 10 x 1.741.
    #[test]
    fn repetitions_have_the_textbook_interval_on_logs() {
        let estimate = over_values(&[8.0, 10.0, 12.5]).unwrap();
        assert!((estimate.value - 10.0).abs() < 1e-9);
        assert!((estimate.hi.unwrap() - 17.41).abs() < 0.01, "{estimate:?}");
        assert!((estimate.lo.unwrap() - 5.744).abs() < 0.01);
        assert_eq!(estimate.basis, Some(Basis::Repetitions));
        let two = over_values(&[8.0, 10.0]).unwrap();
        assert_eq!((two.lo, two.hi, two.basis), (Some(8.0), Some(10.0), Some(Basis::Range)));
        assert_eq!(two.between_repetitions(), None);
        assert!(over_values(&[5.0]).unwrap().lo.is_none());
        assert!(over_values(&[]).is_none());
        let zeros = over_values(&[0.0, 1.0, 2.0]).unwrap();
        assert!((zeros.value - 1.0).abs() < 1e-12 && zeros.lo.unwrap() < 0.0);
    }

    /// ln 1.1 apart, standard errors 0.01 and 0.02 of three runs each: Welch's 2.94 degrees of freedom, t =
    /// 3.21, half-width 0.0718. Without repetitions there is no interval.
    #[test]
    fn a_ratio_has_the_interval_of_both() {
        let of = |value: f64, error: f64| {
            let half = t_quantile(2.0) * error;
            let ends = (value * (-half).exp(), value * half.exp());
            Estimate::of(value, 3).around(Some(ends), Basis::Repetitions)
        };
        let found = ratio(&of(110.0, 0.01), &of(100.0, 0.02));
        let (lo, hi) = found.between_repetitions().unwrap();
        assert!((found.value - 1.1).abs() < 1e-12);
        assert!((hi / lo).ln() / 2.0 - 0.0718 < 5e-4, "{lo} {hi}");
        assert!((hi / lo).ln() / 2.0 > 0.0708, "{lo} {hi}");
        assert_eq!(ratio(&of(110.0, 0.01), &Estimate::of(100.0, 1)).basis, None);
    }

    /// A short last part must not weigh like a whole one.
    #[test]
    fn parts_weigh_as_long_as_they_are() {
        let mut parts = vec![(100.0, 1.0); 59];
        parts.push((1.0, 0.001));
        let estimate = ratio_within(&parts).unwrap();
        assert!((estimate.value - 100.015).abs() < 0.01, "{estimate:?}");
    }

    #[test]
    fn intervals_within_a_run_are_refused_where_they_would_not_cover() {
        let noise = weyl(3, 120);
        let parts = |of: &dyn Fn(usize) -> f64| -> Vec<(f64, f64)> {
            (0..120).map(|at| (of(at), 1.0)).collect()
        };
        let given = |of: &dyn Fn(usize) -> f64| ratio_within(&parts(of)).unwrap().basis.is_some();
        assert!(given(&|at| 100.0 + noise[at]));
        assert!(!given(&|at| 100.0 + noise[at] + at as f64 * 0.02), "a trend");
        assert!(!given(&|at| 100.0 + noise[at] + 5.0 * f64::from(u8::from(at % 20 < 4))), "bursts");
        assert!(!given(&|at| 100.0 + 5.0 * f64::from(u8::from(at / 30 % 2 == 0))), "long waves");
        assert!(ratio_within(&parts(&|at| 100.0 + noise[at])[..20]).unwrap().basis.is_none());
    }

    /// A p99.99 from a thousand samples would be the maximum under another name.
    #[test]
    fn unsupported_percentiles_are_refused() {
        let mut latency = new_histogram();
        latency.record_n(1000, 9_999).unwrap();
        assert_eq!(percentile(&latency, 0, 99.9), Err(TooFew { needed: 10_000, have: 9_999 }));
        latency.record(1000).unwrap();
        assert!(percentile(&latency, 0, 99.9).is_ok());
        assert!(percentile(&latency, 0, 99.99).is_err());
    }

    /// Operations that never completed count as longer than all that did; otherwise a frozen device would
    /// look fast.
    #[test]
    fn percentiles_that_reach_what_never_ended_are_at_least() {
        let mut latency = new_histogram();
        latency.record_n(1000, 9_000).unwrap();
        latency.record_n(2000, 500).unwrap();
        let of = |p| percentile(&latency, 500, p).unwrap();
        assert_eq!((of(50.0).value, of(50.0).at_least), (1000.0, false));
        assert_eq!((of(94.0).value, of(94.0).at_least), (2000.0, false));
        assert_eq!((of(96.0).value, of(96.0).at_least), (2000.0, true));
        assert_eq!(of(99.0).n, 10_000);
    }
}
