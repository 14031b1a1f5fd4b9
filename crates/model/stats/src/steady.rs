//! Whether a device has come to a steady state, by the rule of SNIA's Solid State Storage Performance
//! Test Specification (2.0.2, section 2.1.24): over a window of five rounds the largest and the smallest
//! value differ by at most 20 % of their mean, and the least-squares line through them rises or falls by
//! at most 10 % of it.
//!
//! Invariant: depends on the rounds alone. What it is not: a statement about what comes after the window.

/// Rounds in the window.
pub const WINDOW: usize = 5;
/// Largest difference of two rounds, as a share of the mean.
pub const RANGE_MAX: f64 = 0.20;
/// Largest change of the fitted line over the window, as a share of the mean.
pub const DRIFT_MAX: f64 = 0.10;

/// How steady the last [`WINDOW`] rounds were.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Steadiness {
    /// Largest less smallest value, over the mean.
    pub range: f64,
    /// Change of the fitted line over the window, over the mean; never negative.
    pub drift: f64,
}

impl Steadiness {
    /// Of the last rounds; `None` when there are fewer than [`WINDOW`] or they are all zero.
    #[must_use]
    pub fn of(rounds: &[f64]) -> Option<Self> {
        let window = &rounds[rounds.len().checked_sub(WINDOW)?..];
        let mean = window.iter().sum::<f64>() / WINDOW as f64;
        if mean <= 0.0 {
            return None;
        }
        let high = window.iter().copied().fold(f64::MIN, f64::max);
        let low = window.iter().copied().fold(f64::MAX, f64::min);
        let middle = (WINDOW - 1) as f64 / 2.0;
        let (mut above, mut below) = (0.0, 0.0);
        for (round, value) in window.iter().enumerate() {
            let x = round as f64 - middle;
            above += x * (value - mean);
            below += x * x;
        }
        let drift = (above / below * (WINDOW - 1) as f64).abs() / mean;
        Some(Self { range: (high - low) / mean, drift })
    }

    /// Whether both limits hold.
    #[must_use]
    pub fn is_steady(&self) -> bool {
        self.range <= RANGE_MAX && self.drift <= DRIFT_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures from a drive that still slows down would flatter it.
    #[test]
    fn both_limits_must_hold() {
        let steady = |rounds: &[f64]| Steadiness::of(rounds).map(|s| s.is_steady());
        assert_eq!(steady(&[100.0; 4]), None);
        assert_eq!(steady(&[0.0; 5]), None);
        assert_eq!(steady(&[500.0, 100.0, 101.0, 99.0, 100.0, 100.0]), Some(true));
        assert_eq!(steady(&[90.0, 115.0, 95.0, 100.0, 100.0]), Some(false), "range 25 %");
        assert_eq!(steady(&[106.0, 103.0, 100.0, 97.0, 94.0]), Some(false), "falls by 12 %");
        assert_eq!(steady(&[104.0, 102.0, 100.0, 98.0, 96.0]), Some(true), "falls by 8 %");
    }

    #[test]
    fn the_line_is_the_least_squares_one() {
        let steadiness = Steadiness::of(&[104.0, 102.0, 100.0, 98.0, 96.0]).unwrap();
        assert!((steadiness.drift - 0.08).abs() < 1e-12 && (steadiness.range - 0.08).abs() < 1e-12);
    }
}
