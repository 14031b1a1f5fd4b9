//! Random row numbers as in sysbench.
//!
//! Its distributions with its own arithmetic (sysbench 1.0.20, `sb_rand.c`), over 64-bit tables: sums of 12
//! instead of a normal distribution, a centred band instead of hot keys, truncation instead of rounding.
//! Invariants: a number lies in `1..=rows`; hot rows are contiguous, as in sysbench.

use std::fmt;
use std::str::FromStr;

use rand::Rng;
use rand_distr::{Distribution, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::offsets::{exponent, thousandths};

/// How rows are drawn; words and defaults are sysbench's `--rand-type`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum SqlKeys {
    /// Every row is equally likely.
    #[default]
    Uniform,
    /// The mean of twelve uniform draws: around the middle of the table, standard deviation a twelfth of it.
    Gaussian,
    /// 75 % of the draws in the middle hundredth of the table, the rest as `Gaussian`.
    Special,
    /// Self-similar with h = 0.2: 80 % of the draws in the first 20 % of the table, and so on inside.
    Pareto,
    /// Row k in proportion to `1 / k^exponent`, not scattered; sysbench 1.1's default exponent is 0.8.
    Zipf {
        /// The exponent in thousandths, above 0.
        thousandths: u32,
    },
}

impl fmt::Display for SqlKeys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => out.write_str("uniform"),
            Self::Gaussian => out.write_str("gaussian"),
            Self::Special => out.write_str("special"),
            Self::Pareto => out.write_str("pareto"),
            Self::Zipf { thousandths } => write!(out, "zipf:{}", exponent(*thousandths)),
        }
    }
}

impl FromStr for SqlKeys {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || {
            format!(
                "`{text}` is not a row distribution; allowed: uniform, gaussian, special, pareto, \
                 zipf:EXPONENT (0.01 to 10), as sysbench defines them; for example gaussian or zipf:0.8"
            )
        };
        Ok(match text {
            "uniform" => Self::Uniform,
            "gaussian" => Self::Gaussian,
            "special" => Self::Special,
            "pareto" => Self::Pareto,
            _ => {
                let thousandths = text.strip_prefix("zipf:").and_then(thousandths);
                Self::Zipf { thousandths: thousandths.ok_or_else(refuse)? }
            }
        })
    }
}

units::text_serde!(
    SqlKeys,
    to_string,
    "^(uniform|gaussian|special|pareto|zipf:.+)$",
    "a distribution such as \"gaussian\""
);

/// Draws that make up one of `Gaussian` (`--rand-spec-iter`).
const SUMMED: u32 = 12;
/// Percent of `Special` that are special (`--rand-spec-res`), and of the table that they fall into
/// (`--rand-spec-pct`).
const SPECIAL: (f64, f64) = (75.0, 1.0);
/// Shape of `Pareto` (`--rand-pareto-h`).
const PARETO: f64 = 0.2;

/// Draws rows of a table.
#[derive(Debug, Clone)]
pub struct SqlNumbers {
    rows: u64,
    keys: SqlKeys,
    /// Exponent of `Pareto`.
    power: f64,
    zipf: Option<Zipf<f64>>,
}

impl SqlNumbers {
    /// For a table with `rows` rows, at least one.
    #[must_use]
    pub fn new(keys: SqlKeys, rows: u64) -> Self {
        let zipf = match keys {
            SqlKeys::Zipf { thousandths } => {
                Zipf::new(rows.max(1) as f64, exponent(thousandths)).ok()
            }
            _ => None,
        };
        Self { rows: rows.max(1), keys, power: PARETO.ln() / (1.0 - PARETO).ln(), zipf }
    }

    /// The next row, `1..=rows`.
    #[inline]
    pub fn draw(&self, random: &mut Xoshiro256PlusPlus) -> u64 {
        let mut unit = || (random.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64);
        let rows = self.rows as f64;
        let drawn = match self.keys {
            SqlKeys::Uniform => unit() * rows,
            SqlKeys::Gaussian => {
                let sum: f64 = (0..SUMMED).map(|_| unit() * rows).sum();
                sum * (1.0 / f64::from(SUMMED))
            }
            SqlKeys::Special => self.special(&mut unit),
            SqlKeys::Pareto => rows * unit().powf(self.power),
            SqlKeys::Zipf { .. } => match &self.zipf {
                Some(zipf) => zipf.sample(random) - 1.0,
                None => unit() * rows,
            },
        };
        // Rounding may reach the end of the range, which sysbench's integers would exceed.
        1 + (drawn as u64).min(self.rows - 1)
    }

    fn special(&self, unit: &mut impl FnMut() -> f64) -> f64 {
        let (share, percent) = SPECIAL;
        let span = (self.rows - 1) as f64;
        let first = unit();
        if first * span * (100.0 / (100.0 - share)) < span {
            let sum: f64 = (0..SUMMED).map(|_| unit()).sum();
            return sum * span * (1.0 / f64::from(SUMMED));
        }
        // Reuses the draw: only its upper three quarters get here.
        let band = span * (percent / 100.0);
        first * (band + 1.0) + (span / 2.0 - span * (percent / 200.0))
    }

    /// Share of the draws in the best `share` of the rows: the hit ratio of an ideal cache of that share of
    /// the table. Numerically, from 10^5 draws of a fixed seed (standard error at most 0.3 %).
    #[must_use]
    pub fn best_hit_ratio(&self, share: f64) -> f64 {
        use rand::SeedableRng;
        const DRAWS: u32 = 100_000;
        const BUCKETS: u64 = 1000;
        let buckets = BUCKETS.min(self.rows);
        let mut counts = vec![0u32; buckets as usize];
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        for _ in 0..DRAWS {
            let place = u128::from(self.draw(&mut random) - 1) * u128::from(buckets);
            counts[(place / u128::from(self.rows)) as usize] += 1;
        }
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let wanted = share.clamp(0.0, 1.0) * buckets as f64;
        let (whole, part) = (wanted as usize, wanted.fract());
        let inside: u32 = counts[..whole].iter().sum();
        let edge = counts.get(whole).map_or(0.0, |count| f64::from(*count) * part);
        (f64::from(inside) + edge) / f64::from(DRAWS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;

    const ALL: [SqlKeys; 5] = [
        SqlKeys::Uniform,
        SqlKeys::Gaussian,
        SqlKeys::Special,
        SqlKeys::Pareto,
        SqlKeys::Zipf { thousandths: 800 },
    ];

    fn draws(keys: SqlKeys, rows: u64) -> Vec<f64> {
        let numbers = SqlNumbers::new(keys, rows);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(9);
        (0..400_000).map(|_| numbers.draw(&mut random) as f64).collect()
    }

    fn share(values: &[f64], inside: impl Fn(f64) -> bool) -> f64 {
        values.iter().filter(|value| inside(**value)).count() as f64 / values.len() as f64
    }

    proptest! {
        /// A missing row would be answered from an index page: another workload.
        #[test]
        fn rows_exist(seed: u64, rows in 1u64..1_000_000) {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            for keys in ALL {
                let numbers = SqlNumbers::new(keys, rows);
                for _ in 0..50 {
                    prop_assert!((1..=rows).contains(&numbers.draw(&mut random)), "{keys:?}");
                }
            }
        }
    }

    /// sysbench's Gaussian is the mean of twelve draws: a standard deviation of a twelfth of the table.
    #[test]
    fn gaussian_has_the_spread_of_twelve_draws() {
        let values = draws(SqlKeys::Gaussian, 120_000);
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
        assert!((mean / 60_000.0 - 1.0).abs() < 0.002, "{mean}");
        assert!((variance.sqrt() / 10_000.0 - 1.0).abs() < 0.01, "{}", variance.sqrt());
    }

    #[test]
    fn special_rows_are_three_quarters_in_less_than_a_hundredth() {
        let values = draws(SqlKeys::Special, 1_000_001);
        // u in [0.25, 1) of a band of 10 001 rows that begins at 495 001.
        let band = share(&values, |v| (497_500.0..=505_002.0).contains(&v));
        assert!((0.75..0.79).contains(&band), "{band}");
    }

    #[test]
    fn pareto_is_80_20_and_53_in_the_first_hundredth() {
        let values = draws(SqlKeys::Pareto, 1_000_000);
        assert!((share(&values, |v| v <= 200_000.0) - 0.8).abs() < 0.003);
        assert!((share(&values, |v| v <= 10_000.0) - 0.528).abs() < 0.004);
    }

    #[test]
    fn zipf_has_its_exponent_and_its_first_row_first() {
        let values = draws(SqlKeys::Zipf { thousandths: 800 }, 1000);
        let total: f64 = (1..=1000).map(|k| f64::from(k).powf(-0.8)).sum();
        for row in [1.0, 10.0] {
            let expected = f64::powf(row, -0.8) / total;
            let found = share(&values, |v| v == row);
            assert!((found / expected - 1.0).abs() < 0.05, "{row}: {found}, {expected}");
        }
    }

    /// The sweep of cache ratios depends on hit ratios: 3 % of the rows get 14 % of a Gaussian's accesses.
    #[test]
    fn the_best_rows_attract_their_share() {
        let numbers = SqlNumbers::new(SqlKeys::Gaussian, 100_000);
        for (part, expected) in [(0.03, 0.14), (0.10, 0.45), (0.25, 0.866), (0.5, 0.998)] {
            let found = numbers.best_hit_ratio(part);
            assert!((found - expected).abs() < 0.012, "{part}: {found}");
        }
        assert!((SqlNumbers::new(SqlKeys::Uniform, 50).best_hit_ratio(0.5) - 0.5).abs() < 0.02);
    }

    #[test]
    fn every_form_reads_back() {
        for text in ["uniform", "gaussian", "special", "pareto", "zipf:0.8"] {
            assert_eq!(text.parse::<SqlKeys>().unwrap().to_string(), text);
        }
        for text in ["zipf", "zipf:0", "zipfian", "normal"] {
            assert!(text.parse::<SqlKeys>().unwrap_err().contains("allowed"), "{text}");
        }
    }
}
