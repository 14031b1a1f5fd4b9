//! Sizes in bytes.
//!
//! Invariant: exact; `KiB` is 1024 and `kB` is 1000, never mixed up.

use crate::text::{Grammar, quantity_text, three_digits};

/// A size in bytes, from 0 to 2^64 - 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

const GRAMMAR: Grammar = Grammar {
    units: &[
        ("B", 1),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("kB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
    ],
    allowed: "B, KiB, MiB, GiB, TiB (powers of 1024), kB, MB, GB, TB (powers of 1000)",
    example: "\"4KiB\"",
    range: "a whole number of bytes up to 16 EiB",
};

quantity_text!(
    Bytes,
    GRAMMAR,
    r"^[0-9][0-9_]*(\.[0-9]+)? ?(B|KiB|MiB|GiB|TiB|kB|MB|GB|TB)$",
    "a size as a string with its unit, such as \"4KiB\""
);

impl Bytes {
    /// 2^20 bytes times `count`.
    #[must_use]
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }

    /// The number of bytes.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl std::fmt::Display for Bytes {
    /// For people: three significant digits in the binary unit that fits.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scales = [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        for (factor, name) in scales {
            if self.0 >= factor {
                return write!(out, "{} {name}", three_digits(self.0 as f64 / factor as f64));
            }
        }
        write!(out, "{} B", self.0)
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
            prop_assert_eq!(Bytes(value).exact().parse::<Bytes>(), Ok(Bytes(value)));
        }
    }

    #[test]
    fn units_of_1000_and_1024_differ() {
        assert_eq!("1KiB".parse(), Ok(Bytes(1024)));
        assert_eq!("1kB".parse(), Ok(Bytes(1000)));
        assert_eq!("1.5GiB".parse(), Ok(Bytes(3 << 29)));
    }

    #[test]
    fn a_bare_number_names_the_allowed_units() {
        let error = "4096".parse::<Bytes>().unwrap_err().to_string();
        assert!(error.contains("no unit") && error.contains("KiB"), "{error}");
        assert!("4kb".parse::<Bytes>().is_err());
        assert!("99999999TiB".parse::<Bytes>().is_err());
        assert!("0.3B".parse::<Bytes>().is_err());
    }

    #[test]
    fn people_read_binary_units() {
        assert_eq!(Bytes(4096).to_string(), "4 KiB");
        assert_eq!(Bytes(1_500_000_000).to_string(), "1.40 GiB");
    }
}
