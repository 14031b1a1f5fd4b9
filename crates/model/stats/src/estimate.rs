//! Figures from recordings: an estimate never travels without its interval and its sample count.
//!
//! Means use batch means over the intervals of the time series (Law and Kelton, *Simulation Modeling
//! and Analysis*, ch. 9) with Student's t; percentiles use order statistics (distribution-free, see
//! David and Nagaraja, *Order Statistics*, sec. 7.1), which takes operations as independent.
//! What it is not: a comparison of two runs.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::Histogram;

/// Samples that must lie beyond a percentile before it is given as a number.
pub const SAMPLES_BEYOND_MIN: u64 = 10;
/// Two-sided 95 % point of the normal distribution.
const Z_95: f64 = 1.959_963_985;

/// A number with its 95 % interval and the number of observations behind it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// Lower end; `None` when the data cannot give an interval.
    pub lo: Option<f64>,
    /// Upper end.
    pub hi: Option<f64>,
    /// Observations: operations for percentiles, batches for means.
    pub n: u64,
}

/// The mean of `batches` with a Student-t interval; `None` without batches. With fewer than three
/// batches there is a value but no interval.
#[must_use]
pub fn mean(batches: &[f64]) -> Option<Estimate> {
    if batches.is_empty() {
        return None;
    }
    let n = batches.len() as f64;
    let value = batches.iter().sum::<f64>() / n;
    let mut estimate = Estimate { value, lo: None, hi: None, n: batches.len() as u64 };
    if batches.len() >= 3 {
        let variance = batches.iter().map(|x| (x - value).powi(2)).sum::<f64>() / (n - 1.0);
        let half = t_quantile(n - 1.0) * (variance / n).sqrt();
        if half.is_finite() {
            estimate.lo = Some((value - half).max(0.0));
            estimate.hi = Some(value + half);
        }
    }
    Some(estimate)
}

/// Likelihood by chance of a Student's t at least as far from 0.
pub(crate) fn two_sided_p(t: f64, freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom).map_or(1.0, |d| 2.0 * d.cdf(-t.abs()))
}

/// The two-sided 95 % point of Student's t; NaN for degrees of freedom that are none.
pub(crate) fn t_quantile(freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::NAN, |t| t.inverse_cdf(0.975))
}

/// Percentile `p` (0 to 100) of `latency` in nanoseconds, or how many samples it would need.
///
/// # Errors
/// [`TooFew`] when fewer than [`SAMPLES_BEYOND_MIN`] samples lie beyond it.
pub fn percentile(latency: &Histogram, p: f64) -> Result<Estimate, TooFew> {
    let n = latency.len();
    let q = p / 100.0;
    let tail = q.max(1.0 - q).min(1.0);
    let needed = (SAMPLES_BEYOND_MIN as f64 / (1.0 - tail).max(1e-12)).round() as u64;
    if n < needed {
        return Err(TooFew { needed, have: n });
    }
    let half = Z_95 * (q * (1.0 - q) / n as f64).sqrt();
    let at = |quantile: f64| latency.value_at_quantile(quantile.clamp(0.0, 1.0)) as f64;
    Ok(Estimate { value: at(q), lo: Some(at(q - half)), hi: Some(at(q + half)), n })
}

/// A percentile that the sample count cannot support.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooFew {
    /// Samples that would support it.
    pub needed: u64,
    /// Samples there are.
    pub have: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::new_histogram;

    #[test]
    fn mean_has_the_textbook_interval() {
        // Mean 5, s = sqrt(10), t(4, 0.975) = 2.776: half width 3.926.
        let estimate = mean(&[1.0, 3.0, 5.0, 7.0, 9.0]).unwrap();
        assert!((estimate.value - 5.0).abs() < 1e-12);
        assert!((estimate.hi.unwrap() - 8.926).abs() < 1e-3);
        assert!(mean(&[1.0, 2.0]).unwrap().lo.is_none());
        assert!(mean(&[]).is_none());
    }

    /// A p99.99 from a thousand samples would be the maximum under another name.
    #[test]
    fn unsupported_percentiles_are_refused() {
        let mut latency = new_histogram();
        latency.record_n(1000, 9_999).unwrap();
        assert_eq!(percentile(&latency, 99.9), Err(TooFew { needed: 10_000, have: 9_999 }));
        latency.record(1000).unwrap();
        assert!(percentile(&latency, 99.9).is_ok());
        assert!(percentile(&latency, 99.99).is_err());
    }

    #[test]
    fn the_median_interval_covers_the_median_95_times_in_100() {
        use std::collections::BTreeMap;
        // Uniform samples by a Weyl sequence per seed: the true median is 500_000.
        let mut covered = BTreeMap::new();
        for seed in 0..400u64 {
            let mut latency = new_histogram();
            let mut word = units::Seed(seed).derive("coverage", 0).0;
            for _ in 0..400 {
                word = units::Seed(word).derive("step", 0).0;
                latency.record(1 + word % 1_000_000).unwrap();
            }
            let estimate = percentile(&latency, 50.0).unwrap();
            let hit = estimate.lo.unwrap() <= 500_000.0 && 500_000.0 <= estimate.hi.unwrap();
            *covered.entry(hit).or_insert(0) += 1;
        }
        let hits = covered.get(&true).copied().unwrap_or(0);
        assert!((368..=396).contains(&hits), "covered {hits} of 400");
    }
}
