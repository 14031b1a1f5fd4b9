//! Whether a device has reached steady state, by the rule of SNIA's Solid State Storage Performance Test
//! Specification (2.0.2, section 2.1.24): over a window of five rounds the largest and the smallest value
//! differ by at most 20 % of their mean, and the least-squares line changes by at most 10 % of the mean over
//! the window. One such window occurs by chance and before a write cliff, and slow decay passes far above its
//! final value; so two consecutive windows must pass, with means that differ by at most 5 %.
//!
//! Invariant: depends on the rounds only.

/// Rounds in the window.
pub const WINDOW: usize = 5;
/// Rounds that are judged.
pub const ROUNDS: usize = 2 * WINDOW;
/// Largest difference of the means of two windows, as a share of the earlier.
pub const SHIFT_MAX: f64 = 0.05;
/// Largest difference of two rounds, as a share of the mean.
pub const RANGE_MAX: f64 = 0.20;
/// Largest change of the fitted line over the window, as a share of the mean.
pub const DRIFT_MAX: f64 = 0.10;

/// How steady the last [`ROUNDS`] rounds were.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Steadiness {
    /// Largest less smallest value of a window over its mean, of the worse window.
    pub range: f64,
    /// Change of the fitted line over a window over its mean, of the worse window; never negative.
    pub drift: f64,
    /// Difference of the means of the two windows over the earlier; never negative.
    pub shift: f64,
}

impl Steadiness {
    /// Judges the last rounds; `None` if there are fewer than [`ROUNDS`] or those of a window are all zero.
    #[must_use]
    pub fn of(rounds: &[f64]) -> Option<Self> {
        let (early, late) = rounds[rounds.len().checked_sub(ROUNDS)?..].split_at(WINDOW);
        let (early, late) = (Window::of(early)?, Window::of(late)?);
        Some(Self {
            range: early.range.max(late.range),
            drift: early.drift.max(late.drift),
            shift: (late.mean / early.mean - 1.0).abs(),
        })
    }

    /// Whether all limits hold.
    #[must_use]
    pub fn is_steady(&self) -> bool {
        self.range <= RANGE_MAX && self.drift <= DRIFT_MAX && self.shift <= SHIFT_MAX
    }
}

struct Window {
    mean: f64,
    range: f64,
    drift: f64,
}

impl Window {
    fn of(window: &[f64]) -> Option<Self> {
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
        Some(Self { mean, range: (high - low) / mean, drift })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steady(early: [f64; 5], late: [f64; 5]) -> Option<bool> {
        let rounds: Vec<f64> = [500.0].into_iter().chain(early).chain(late).collect();
        Steadiness::of(&rounds).map(|steady| steady.is_steady())
    }

    /// Figures from a drive that is still slowing down would be too good.
    #[test]
    fn all_limits_must_hold_in_both_windows() {
        let flat = [100.0, 101.0, 99.0, 100.0, 100.0];
        assert_eq!(Steadiness::of(&[100.0; 9]), None);
        assert_eq!(Steadiness::of(&[0.0; 10]), None);
        assert_eq!(steady(flat, flat), Some(true));
        assert_eq!(steady([90.0, 115.0, 95.0, 100.0, 100.0], flat), Some(false), "range 25 %");
        assert_eq!(steady(flat, [106.0, 103.0, 100.0, 97.0, 94.0]), Some(false), "falls by 12 %");
        assert_eq!(steady(flat, [104.0, 102.0, 100.0, 98.0, 96.0]), Some(true), "falls by 8 %");
        assert_eq!(steady(flat, [94.0; 5]), Some(false), "lower by 6 %");
    }

    /// Slow decay passes a single window at eight times its final value.
    #[test]
    fn slow_decay_is_not_steady() {
        let rounds: Vec<f64> =
            (0..12).map(|round| 7.0 + 93.0 * (-f64::from(round) / 20.0).exp()).collect();
        assert!(!Steadiness::of(&rounds).unwrap().is_steady());
    }

    #[test]
    fn the_line_is_the_least_squares_one() {
        let window = Window::of(&[104.0, 102.0, 100.0, 98.0, 96.0]).unwrap();
        assert!((window.drift - 0.08).abs() < 1e-12 && (window.range - 0.08).abs() < 1e-12);
    }
}
