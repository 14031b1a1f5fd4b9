//! Shares of a whole, written as percentages.
//!
//! Invariant: stored in hundredths of a percent, so `"70%"` is exact.

use crate::text::{Grammar, ParseError, parse_exact};

/// A share of a whole, 0 % to 100 % in steps of 0.01 %.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(u32);

const WHOLE: u32 = 10_000;
const ALLOWED: &str = "0% to 100% in steps of 0.01%";
const GRAMMAR: Grammar =
    Grammar { units: &[("%", 100)], allowed: "% (percent)", example: "\"70%\"", range: ALLOWED };

impl Share {
    /// Everything: 100 %.
    pub const ALL: Self = Self(WHOLE);
    /// 0 %.
    pub const NONE: Self = Self(0);

    /// The share as a fraction from 0 to 1.
    #[must_use]
    pub fn fraction(self) -> f64 {
        f64::from(self.0) / f64::from(WHOLE)
    }

    /// The share in percent, 0 to 100.
    #[must_use]
    pub fn percent(self) -> f64 {
        f64::from(self.0) / 100.0
    }

    /// The exact text form, the inverse of parsing.
    #[must_use]
    pub fn exact(self) -> String {
        format!("{}%", self.percent())
    }
}

impl std::str::FromStr for Share {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let hundredths = parse_exact(text, &GRAMMAR)?;
        match u32::try_from(hundredths) {
            Ok(value) if value <= WHOLE => Ok(Self(value)),
            _ => Err(ParseError::Range { text: text.into(), allowed: ALLOWED }),
        }
    }
}

impl std::fmt::Display for Share {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}%", self.percent())
    }
}

crate::text_serde!(
    Share,
    exact,
    r"^[0-9]+(\.[0-9]+)? ?%$",
    "a share as a string in percent, such as \"70%\""
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_share_reads_back() {
        for hundredths in 0..=WHOLE {
            let share = Share(hundredths);
            assert_eq!(share.exact().parse(), Ok(share));
        }
    }

    #[test]
    fn more_than_the_whole_is_refused() {
        assert!("101%".parse::<Share>().is_err());
        assert!("0.7".parse::<Share>().is_err());
        assert!("70.001%".parse::<Share>().is_err());
    }

    #[test]
    fn serde_speaks_strings_only() {
        assert_eq!(serde_json::to_string(&Share::ALL).unwrap(), "\"100%\"");
        assert!(serde_json::from_str::<Share>("70").is_err());
    }
}
