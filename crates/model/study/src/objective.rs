//! Objectives: a latency limit, optionally at a rate that must be reached.
//!
//! `p99 <= 20ms`, `p99_9 <= 5ms at 2k/s`. Invariant: the printed form parses back. Whether it was met is up
//! to `analysis`.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Nanos, Rate};

/// A latency percentile of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantile {
    /// The median.
    P50,
    /// 90 %.
    P90,
    /// 99 %.
    P99,
    /// 99.9 %.
    P99_9,
}

impl Quantile {
    const ALL: [(&'static str, Self); 4] =
        [("p50", Self::P50), ("p90", Self::P90), ("p99", Self::P99), ("p99_9", Self::P99_9)];

    /// Name in studies.
    #[must_use]
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, one)| *one == self).map_or("", |(word, _)| word)
    }

    /// In percent.
    #[must_use]
    pub const fn percent(self) -> f64 {
        match self {
            Self::P50 => 50.0,
            Self::P90 => 90.0,
            Self::P99 => 99.0,
            Self::P99_9 => 99.9,
        }
    }
}

/// A latency limit, optionally at a required rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Objective {
    /// The quantile that the limit applies to.
    pub quantile: Quantile,
    /// The limit.
    pub at_most: Nanos,
    /// Operations or transactions per second that must be reached; none: any.
    pub at: Option<Rate>,
}

/// Operations per second; more than any storage reaches.
const RATE_MAX: u64 = 100_000_000;
const ALLOWED: &str =
    "an objective is \"p99 <= 20ms\" or \"p99 <= 20ms at 800/s\"; allowed: p50, p90, p99, p99_9";

impl FromStr for Objective {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            let shown: String = text.chars().take(80).collect();
            format!("\"{shown}\" is not an objective; {ALLOWED}")
        };
        let (quantile, rest) = text.split_once("<=").ok_or_else(wrong)?;
        let (_, quantile) = Quantile::ALL
            .into_iter()
            .find(|(word, _)| *word == quantile.trim())
            .ok_or_else(wrong)?;
        let (time, rate) = match rest.split_once(" at ") {
            Some((time, rate)) => (time, Some(rate)),
            None => (rest, None),
        };
        let at_most = time.trim().parse::<Nanos>().map_err(|error| error.to_string())?;
        let rate = rate.map(|rate| rate.trim().parse::<Rate>());
        let at = rate.transpose().map_err(|error| error.to_string())?;
        if at.is_some_and(|rate| !(1..=RATE_MAX).contains(&rate.get())) {
            return Err(format!("a rate is 1/s to 100M/s; {ALLOWED}"));
        }
        if at_most == Nanos::ZERO {
            return Err(format!("the time must be above 0; {ALLOWED}"));
        }
        Ok(Self { quantile, at_most, at })
    }
}

impl TryFrom<String> for Objective {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Objective> for String {
    fn from(objective: Objective) -> Self {
        let (word, time) = (objective.quantile.word(), objective.at_most.exact());
        match objective.at {
            Some(rate) => format!("{word} <= {time} at {}", rate.exact()),
            None => format!("{word} <= {time}"),
        }
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.quantile.word().replace('_', ".");
        write!(out, "{word} \u{2264} {}", self.at_most)?;
        self.at.map_or(Ok(()), |rate| write!(out, " at {rate}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A misread objective could buy another drive.
    #[test]
    fn what_is_written_is_what_is_read() {
        let text = "p99_9 <= 5ms at 2k/s";
        let objective: Objective = text.parse().unwrap();
        assert_eq!((objective.quantile, objective.at_most), (Quantile::P99_9, Nanos(5_000_000)));
        assert_eq!(objective.at, Some(Rate(2000)));
        assert_eq!(String::from(objective).parse(), Ok(objective));
        for rate in [1, 12_349, 999_999, 1_234_567, RATE_MAX] {
            let objective = Objective { at: Some(Rate(rate)), ..objective };
            assert_eq!(String::from(objective).parse(), Ok(objective), "{rate}");
        }
        let plain: Objective = "p50<=100us".parse().unwrap();
        assert_eq!((plain.at, plain.at_most), (None, Nanos(100_000)));
        for wrong in [
            "p99", "p98 <= 1ms", "p99 < 1ms", "p99 <= 1", "p99 <= 0ms", "p99 <= 1ms at 5",
            "p99 <= 1ms at 0/s", "p99 <= 1ms at 101M/s",
        ] {
            assert!(wrong.parse::<Objective>().is_err(), "{wrong}");
        }
    }
}
