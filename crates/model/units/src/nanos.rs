//! Time in nanoseconds: instants since the start of a trial, and durations.
//!
//! Invariant: integer nanoseconds, so virtual time is exact and the same on every machine. Never wall-clock
//! time or a date.

use std::ops::{Add, AddAssign, Mul, Sub};

use crate::text::{Grammar, quantity_text, three_digits};

/// Nanoseconds, as a duration or as an instant counted from the start of a trial (up to 584 years).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

const GRAMMAR: Grammar = Grammar {
    units: &[
        ("ns", 1),
        ("\u{b5}s", 1_000),
        ("\u{3bc}s", 1_000),
        // For output the last of equal spellings is used.
        ("us", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("min", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ],
    allowed: "ns, us, ms, s, min, h",
    example: "\"30s\"",
    range: "a whole number of nanoseconds up to 584 years",
};

quantity_text!(
    Nanos,
    GRAMMAR,
    r"^[0-9][0-9_]*(\.[0-9]+)? ?(ns|us|\u00b5s|\u03bcs|ms|s|min|h)$",
    "a duration as a string with its unit, such as \"30s\""
);

impl Nanos {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// The latest instant; "never".
    pub const MAX: Self = Self(u64::MAX);

    /// Whole microseconds.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros * 1_000)
    }

    /// Whole milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    /// Whole seconds.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds * 1_000_000_000)
    }

    /// The number of nanoseconds.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Seconds, as a float for rates.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The time from `earlier` to `self`, zero when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl From<std::time::Duration> for Nanos {
    fn from(duration: std::time::Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for std::time::Duration {
    fn from(nanos: Nanos) -> Self {
        Self::from_nanos(nanos.0)
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        self.0 = self.0.saturating_add(other.0);
    }
}

impl Sub for Nanos {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl Mul<u64> for Nanos {
    type Output = Self;
    fn mul(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(factor))
    }
}

impl std::fmt::Display for Nanos {
    /// For people: three significant digits in the unit that fits.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = self.0 as f64;
        match self.0 {
            0..1_000 => write!(out, "{} ns", self.0),
            1_000..1_000_000 => write!(out, "{} \u{b5}s", three_digits(value / 1e3)),
            1_000_000..1_000_000_000 => write!(out, "{} ms", three_digits(value / 1e6)),
            1_000_000_000..120_000_000_000 => write!(out, "{} s", three_digits(value / 1e9)),
            _ => write!(out, "{} min {} s", self.0 / 60_000_000_000, self.0 / 1_000_000_000 % 60),
        }
    }
}

/// Serde of [`Nanos`] as a number of nanoseconds: for fields whose name says the unit.
pub mod as_number {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Nanos;

    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(nanos: &Nanos, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_u64(nanos.0)
    }

    /// # Errors
    /// Those of the deserializer, also for anything but a whole number.
    pub fn deserialize<'de, D: Deserializer<'de>>(text: D) -> Result<Nanos, D::Error> {
        u64::deserialize(text).map(Nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A resolved study must read back as the study that ran.
        #[test]
        fn exact_text_reads_back(value: u64) {
            prop_assert_eq!(Nanos(value).exact().parse::<Nanos>(), Ok(Nanos(value)));
        }
    }

    #[test]
    fn fractions_are_exact() {
        assert_eq!("1.70us".parse(), Ok(Nanos(1_700)));
        assert_eq!("1.5h".parse(), Ok(Nanos::from_secs(5_400)));
        assert!("0.5ns".parse::<Nanos>().is_err());
    }

    #[test]
    fn people_read_three_digits() {
        assert_eq!(Nanos(8_900).to_string(), "8.90 \u{b5}s");
        assert_eq!(Nanos(61_700).to_string(), "61.7 \u{b5}s");
        assert_eq!(Nanos::from_secs(150).to_string(), "2 min 30 s");
    }
}
