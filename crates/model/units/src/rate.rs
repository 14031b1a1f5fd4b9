//! Arrival rates.
//!
//! Invariant: a whole number per second, so that schedules are exact.

use crate::text::{Grammar, human_count, quantity_text};

/// Arrivals per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(pub u64);

const GRAMMAR: Grammar = Grammar {
    units: &[("/s", 1), ("k/s", 1_000), ("M/s", 1_000_000)],
    allowed: "/s, k/s, M/s",
    example: "\"5k/s\"",
    range: "a whole number per second",
};

quantity_text!(
    Rate,
    GRAMMAR,
    r"^[0-9][0-9_]*(\.[0-9]+)? ?(/s|k/s|M/s)$",
    "a rate as a string with its unit, such as \"5k/s\""
);

impl Rate {
    /// Arrivals per second.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl std::fmt::Display for Rate {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}/s", human_count(self.0 as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_read_back_and_are_whole() {
        assert_eq!("2.5k/s".parse(), Ok(Rate(2500)));
        for rate in [Rate(1), Rate(1000), Rate(1500), Rate(3_000_000)] {
            assert_eq!(rate.exact().parse(), Ok(rate));
        }
        assert!("0.5/s".parse::<Rate>().is_err() && "500".parse::<Rate>().is_err());
    }
}
