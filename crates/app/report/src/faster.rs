//! A time beside another, in words.
//!
//! Invariant: "faster" and "slower" are said only of two measurements whose intervals between repetitions lie
//! apart; of anything else the ratio of the numbers alone. What it is not: a comparison of runs.

use stats::estimate::Estimate;

/// What `b` is beside `a`; `measured`: both were.
pub(crate) fn compared(a: &Estimate, b: &Estimate, measured: bool) -> String {
    let share = b.value / a.value;
    let intervals = a.between_repetitions().zip(b.between_repetitions()).filter(|_| measured);
    match intervals {
        Some((a, b)) if b.1 < a.0 => format!("{} times as fast", times(1.0 / share)),
        Some((a, b)) if b.0 > a.1 => format!("{} times as slow", times(share)),
        Some(_) => "no difference shown".to_owned(),
        None if (share - 1.0).abs() < ABOUT => "about the same time".to_owned(),
        None if share < 1.0 => format!("1/{} of the time", times(1.0 / share)),
        None => format!("{} times the time", times(share)),
    }
}

/// Ratios that are nearer to 1 are not worth a number.
const ABOUT: f64 = 0.05;

fn times(factor: f64) -> String {
    if factor >= 10.0 { format!("{factor:.0}") } else { format!("{factor:.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stats::estimate::{Estimate, over_values};

    /// Of two equal drives one is always a little ahead; to call it faster sells it.
    #[test]
    fn faster_needs_repetitions_that_lie_apart() {
        let of = |values: &[f64]| over_values(values).unwrap();
        let (a, b) = (of(&[100.0, 101.0, 99.0]), of(&[50.0, 51.0, 49.5]));
        assert_eq!(compared(&a, &b, true), "2.0 times as fast");
        assert_eq!(compared(&b, &a, true), "2.0 times as slow");
        let near = of(&[99.0, 98.0, 101.0]);
        assert_eq!(compared(&a, &near, true), "no difference shown");
        assert_eq!(compared(&a, &b, false), "1/2.0 of the time", "a prediction");
        let one = Estimate::of(50.0, 1);
        assert_eq!(compared(&a, &one, true), "1/2.0 of the time", "one run");
        assert_eq!(compared(&one, &a, true), "2.0 times the time");
    }
}
