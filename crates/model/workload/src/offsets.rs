//! Distribution of addressed blocks over a span: uniform, Zipf, hot spot or Gaussian.
//!
//! Invariants: every draw lies inside the span; a draw allocates nothing and takes constant time, without
//! tables for large devices. Hot blocks of a Zipf distribution are scattered over the span by a permutation,
//! as records of a database are; those of a hot spot and of a Gaussian are contiguous.

use std::fmt;
use std::str::FromStr;

use rand::Rng;
use rand_distr::{Distribution, StandardNormal, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::Share;

const ALLOWED: &str = "allowed: uniform, zipf:EXPONENT (0.01 to 10), hot-spot:ACCESS%/SPACE%, \
    gaussian:DEVIATION%; for example zipf:0.99 or hot-spot:80%/20%";

/// How the offsets of random operations are distributed over the span; as text `uniform`, `zipf:0.99`,
/// `hot-spot:80%/20%`, `gaussian:15%`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Offsets {
    /// Every block is equally likely.
    #[default]
    Uniform,
    /// The k-th most popular block is drawn in proportion to `1 / k^exponent`.
    Zipf {
        /// The exponent in thousandths, above 0; 990 is YCSB's.
        thousandths: u32,
    },
    /// `access` of the operations go to the first `space` of the span, evenly; the rest elsewhere.
    HotSpot {
        /// Share of operations.
        access: Share,
        /// Share of the span.
        space: Share,
    },
    /// Normal around the middle of the span; values outside are redrawn.
    Gaussian {
        /// Standard deviation as a share of the span.
        deviation: Share,
    },
}

impl fmt::Display for Offsets {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => out.write_str("uniform"),
            Self::Zipf { thousandths } => write!(out, "zipf:{}", exponent(*thousandths)),
            Self::HotSpot { access, space } => {
                write!(out, "hot-spot:{}/{}", access.exact(), space.exact())
            }
            Self::Gaussian { deviation } => write!(out, "gaussian:{}", deviation.exact()),
        }
    }
}

impl FromStr for Offsets {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("`{text}` is not an offset distribution; {ALLOWED}");
        let share = |text: &str| match text.parse::<Share>() {
            Ok(share) if share > Share::NONE => Ok(share),
            _ => Err(refuse()),
        };
        match text.split_once(':') {
            None if text == "uniform" => Ok(Self::Uniform),
            Some(("zipf", exponent)) => thousandths(exponent)
                .map(|thousandths| Self::Zipf { thousandths })
                .ok_or_else(refuse),
            Some(("hot-spot", shares)) => {
                let (access, space) = shares.split_once('/').ok_or_else(refuse)?;
                Ok(Self::HotSpot { access: share(access)?, space: share(space)? })
            }
            Some(("gaussian", deviation)) => Ok(Self::Gaussian { deviation: share(deviation)? }),
            _ => Err(refuse()),
        }
    }
}

/// Exponent of a Zipf distribution.
pub(crate) fn exponent(thousandths: u32) -> f64 {
    f64::from(thousandths) / 1000.0
}

/// Thousandths of a Zipf exponent of 0.01 to 10.
pub(crate) fn thousandths(exponent: &str) -> Option<u32> {
    let thousandths = exponent.parse::<f64>().ok()? * 1000.0;
    (10.0..=10_000.0).contains(&thousandths).then(|| thousandths.round() as u32)
}

units::text_serde!(
    Offsets,
    to_string,
    "^(uniform|zipf:.+|hot-spot:.+%/.+%|gaussian:.+%)$",
    "a distribution such as \"zipf:0.99\""
);

/// Draws sites `0..sites`.
#[derive(Debug, Clone)]
pub(crate) struct Sampler {
    sites: u64,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    Uniform,
    /// `multiplier` and the number of sites are coprime.
    Zipf {
        ranks: Zipf<f64>,
        multiplier: u64,
    },
    HotSpot {
        hot: u64,
        below: u64,
    },
    Gaussian {
        middle: f64,
        deviation: f64,
    },
}

impl Sampler {
    /// A sampler over `sites` sites, at least one. A Zipf exponent that is not positive, or an empty hot
    /// spot, makes it uniform; study validation rejects both.
    pub fn new(offsets: Offsets, sites: u64) -> Self {
        let kind = match offsets {
            Offsets::Uniform => Kind::Uniform,
            Offsets::Zipf { thousandths } => match Zipf::new(sites as f64, exponent(thousandths)) {
                Ok(ranks) => Kind::Zipf { ranks, multiplier: coprime(sites) },
                Err(_) => Kind::Uniform,
            },
            Offsets::HotSpot { access, space } => {
                let hot = ((sites as f64 * space.fraction()) as u64).clamp(1, sites);
                Kind::HotSpot { hot, below: (access.fraction() * 2f64.powi(64)) as u64 }
            }
            Offsets::Gaussian { deviation } => Kind::Gaussian {
                middle: sites as f64 / 2.0,
                deviation: (sites as f64 * deviation.fraction()).max(0.5),
            },
        };
        Self { sites, kind }
    }

    /// A Zipf sampler whose most popular site is 0, the next 1, and so on.
    pub fn unscattered(exponent: f64, sites: u64) -> Self {
        let kind = match Zipf::new(sites as f64, exponent) {
            Ok(ranks) => Kind::Zipf { ranks, multiplier: 1 },
            Err(_) => Kind::Uniform,
        };
        Self { sites, kind }
    }

    /// The next site.
    #[inline]
    pub fn draw(&self, random: &mut Xoshiro256PlusPlus) -> u64 {
        match &self.kind {
            Kind::Uniform => uniform(random, self.sites),
            Kind::Zipf { ranks, multiplier } => {
                let rank = (ranks.sample(random) as u64).clamp(1, self.sites) - 1;
                (u128::from(rank) * u128::from(*multiplier) % u128::from(self.sites)) as u64
            }
            Kind::HotSpot { hot, below } => {
                let rest = self.sites - hot;
                if rest == 0 || random.next_u64() < *below {
                    uniform(random, *hot)
                } else {
                    hot + uniform(random, rest)
                }
            }
            Kind::Gaussian { middle, deviation } => loop {
                let normal: f64 = StandardNormal.sample(random);
                let site = middle + normal * deviation;
                if (0.0..self.sites as f64).contains(&site) {
                    return site as u64;
                }
            },
        }
    }
}

/// Lemire's multiply-shift: unbiased to 2^-64 * `below`, without a division.
#[inline]
pub(crate) fn uniform(random: &mut Xoshiro256PlusPlus, below: u64) -> u64 {
    ((u128::from(random.next_u64()) * u128::from(below)) >> 64) as u64
}

/// A number coprime to `sites`, near its golden section.
fn coprime(sites: u64) -> u64 {
    let mut candidate = ((sites as f64 * 0.618_033_988_75) as u64).max(1);
    let common = |mut a: u64, mut b: u64| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    while common(candidate, sites) != 1 {
        candidate += 1;
    }
    candidate
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;

    fn share(text: &str) -> Share {
        text.parse().unwrap()
    }

    fn counts(offsets: Offsets, sites: u64, draws: u32) -> Vec<u32> {
        let sampler = Sampler::new(offsets, sites);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        let mut counts = vec![0; sites as usize];
        (0..draws).for_each(|_| counts[sampler.draw(&mut random) as usize] += 1);
        counts
    }

    proptest! {
        /// A draw outside would overwrite what the user did not name.
        #[test]
        fn draws_stay_inside(seed: u64, sites in 1u64..100_000, thousandths in 100u32..3000) {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            for offsets in [
                Offsets::Uniform,
                Offsets::Zipf { thousandths },
                Offsets::HotSpot { access: share("90%"), space: share("10%") },
                Offsets::Gaussian { deviation: share("60%") },
            ] {
                let sampler = Sampler::new(offsets, sites);
                for _ in 0..50 {
                    prop_assert!(sampler.draw(&mut random) < sites);
                }
            }
        }
    }

    #[test]
    fn zipf_has_its_exponent_and_is_scattered() {
        let mut counts = counts(Offsets::Zipf { thousandths: 1000 }, 1000, 1_000_000);
        let hottest = counts.iter().position(|count| *count == *counts.iter().max().unwrap());
        assert_eq!(hottest, Some(0), "rank 1 lies at the start");
        let second = counts.iter().enumerate().skip(1).max_by_key(|(_, count)| **count).unwrap().0;
        assert!(second > 10, "rank 2 lies elsewhere, not at {second}");
        counts.sort_unstable_by(|a, b| b.cmp(a));
        // 1 / H(1000) = 0.1336 for the first, a tenth of it for the tenth.
        assert!((f64::from(counts[0]) / 1e6 - 0.1336).abs() < 0.002, "{}", counts[0]);
        assert!((f64::from(counts[9]) / 1e6 - 0.01336).abs() < 0.0008, "{}", counts[9]);
        assert!(counts[999] > 50, "every block is drawn");
    }

    #[test]
    fn a_hot_spot_takes_its_share() {
        let hot = Offsets::HotSpot { access: share("80%"), space: share("20%") };
        let counts = counts(hot, 1000, 1_000_000);
        let inside: u32 = counts[..200].iter().sum();
        assert!((f64::from(inside) / 1e6 - 0.8).abs() < 0.002, "{inside}");
    }

    #[test]
    fn a_gaussian_has_its_deviation() {
        let counts = counts(Offsets::Gaussian { deviation: share("10%") }, 1000, 1_000_000);
        let inside: u32 = counts[400..600].iter().sum();
        assert!((f64::from(inside) / 1e6 - 0.6827).abs() < 0.003, "{inside}");
    }

    #[test]
    fn every_form_reads_back() {
        for text in ["uniform", "zipf:0.99", "zipf:1.2", "hot-spot:80%/20%", "gaussian:12.5%"] {
            assert_eq!(text.parse::<Offsets>().unwrap().to_string(), text);
        }
        for text in ["zipf", "zipf:0", "zipf:-1", "zipf:nan", "hot-spot:80%", "gaussian:0%", "x"] {
            assert!(text.parse::<Offsets>().unwrap_err().contains("allowed"), "{text}");
        }
    }
}
