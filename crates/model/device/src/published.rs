//! Published figures of a device, to compare its model with: of single jobs, and across several jobs; and
//! their roles, since only held-out figures measure a model's quality.
//!
//! Invariant: nothing here enters the model.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos, Rate, Share};

use crate::{CHUNK, Condition, MissCause};

/// A published number: the value, the band that a model must stay in, or both.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
#[serde(
    untagged,
    expecting = "a value, `[low, high]`, `{ value, band = [low, high] }` or `{ at_least }`"
)]
pub enum Published<T> {
    /// The value; the default tolerance is 10 %.
    Value(T),
    /// `[low, high]`: only a range, from sources or chosen by us.
    Band([T; 2]),
    /// The value with its own tolerance.
    Both(ValueAndBand<T>),
    /// A lower bound, for words such as "drops significantly".
    AtLeast(LowerEnd<T>),
}

/// A published value with its own tolerance.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ValueAndBand<T> {
    value: T,
    band: [T; 2],
}

/// A lower bound.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LowerEnd<T> {
    at_least: T,
}

impl<T: Copy> Published<T> {
    /// The value, where one is published.
    #[must_use]
    pub fn value(&self) -> Option<T> {
        match *self {
            Self::Value(value) | Self::Both(ValueAndBand { value, .. }) => Some(value),
            Self::Band(_) | Self::AtLeast(_) => None,
        }
    }

    /// The lower end of a band without an upper one.
    #[must_use]
    pub fn least(&self) -> Option<T> {
        match *self {
            Self::AtLeast(LowerEnd { at_least }) => Some(at_least),
            _ => None,
        }
    }

    /// The range, if there is one.
    #[must_use]
    pub fn band(&self) -> Option<[T; 2]> {
        match *self {
            Self::Value(_) | Self::AtLeast(_) => None,
            Self::Band(band) | Self::Both(ValueAndBand { band, .. }) => Some(band),
        }
    }

    /// Converts to another type.
    pub(crate) fn map<U>(self, to: impl Fn(T) -> U) -> Published<U> {
        match self {
            Self::Value(value) => Published::Value(to(value)),
            Self::Band(band) => Published::Band(band.map(to)),
            Self::Both(ValueAndBand { value, band }) => {
                Published::Both(ValueAndBand { value: to(value), band: band.map(to) })
            }
            Self::AtLeast(LowerEnd { at_least }) => {
                Published::AtLeast(LowerEnd { at_least: to(at_least) })
            }
        }
    }
}

/// Role of a published figure for a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// A constant was chosen with it, or with another figure of the same quantity. The default.
    #[default]
    Fitted,
    /// Follows from constants by arithmetic: two guests are twice one.
    Constructed,
    /// It repeats another figure: in another profile, or as mean and rate of one closed loop.
    Duplicate,
    /// No constant was chosen with it.
    HeldOut,
}

units::words!(Evidence {
    HeldOut => "held out", Fitted => "fitted", Constructed => "constructed",
    Duplicate => "duplicate",
});

/// Keys of figures of an `[[acceptance]]` (`iops`, `latency_p99`, ...), by label.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(transparent)]
pub struct KeyLists<K: Ord>(BTreeMap<K, Vec<String>>);

/// Roles of the figures.
pub type EvidenceLists = KeyLists<Evidence>;
/// Why figures are missed, by cause.
pub type MissLists = KeyLists<MissCause>;

impl<K: Ord> Default for KeyLists<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Copy> KeyLists<K> {
    /// All these keys in one list.
    #[must_use]
    pub fn all(what: K, keys: &[&str]) -> Self {
        Self(BTreeMap::from([(what, keys.iter().map(|&key| key.to_owned()).collect())]))
    }

    /// Every key that is named.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.values().flatten().map(String::as_str)
    }

    /// Label of the figure with this key.
    #[must_use]
    pub fn of(&self, key: &str) -> Option<K> {
        let named = |(_, keys): &(&K, &Vec<String>)| keys.iter().any(|one| one == key);
        self.0.iter().find(named).map(|(what, _)| *what)
    }

    /// Checks that each listed key has a figure and is listed once.
    fn wrong(&self, figures: &[&str]) -> Option<String> {
        let mut seen: Vec<&str> = Vec::new();
        for key in self.keys() {
            if !figures.contains(&key) {
                return Some(format!("names `{key}`, but has no such figure"));
            }
            if seen.contains(&key) {
                return Some(format!("names `{key}` twice"));
            }
            seen.push(key);
        }
        None
    }
}

/// A figure of an `[[acceptance]]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PublishedFigure {
    /// Key in the profile.
    pub key: &'static str,
    /// Metric: `IOPS`, `MB/s`, `mean`, `p99` and so on.
    pub metric: &'static str,
    /// The number; rates in their unit, times in nanoseconds.
    pub is: Published<f64>,
    /// Its role.
    pub evidence: Evidence,
    /// Cause of a known miss.
    pub missed: Option<MissCause>,
}

/// Order of the offsets of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum JobPattern {
    /// Uniform over the device.
    #[default]
    Random,
    /// Sequential, each thread in its own part.
    Sequential,
}

/// Durability of a job's writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Durable {
    /// A flush after each, as by fdatasync.
    Flush,
    /// Each forced to the medium, as by O_DSYNC.
    Dsync,
}

/// Published figures of one job that the model runs.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Acceptance {
    /// I/O path of the source's host; a name known to `sim::HostModel`.
    pub host: String,
    /// Submitting threads.
    pub threads: u32,
    /// Requests in flight, per thread.
    pub queue_depth: u32,
    /// Bytes per operation; a multiple of 512.
    pub block_size: Bytes,
    /// Share of reads.
    pub read_share: Share,
    /// Order of offsets.
    #[serde(default)]
    pub pattern: JobPattern,
    /// Drive state at the start.
    #[serde(default)]
    pub condition: Condition,
    /// Operations per second in an open loop, with `queue_depth` as the maximum in flight; if absent, a
    /// closed loop.
    pub rate: Option<Rate>,
    /// Whether gaps are constant; exponential by default.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub evenly: bool,
    /// Whether the source's tool counts latencies from submission, not from the intended start: waiting while
    /// `queue_depth` are in flight is then excluded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_submission: bool,
    /// Random 4 KiB writes per second of background load, not counted in the results.
    pub beside_writes: Option<Rate>,
    /// Maximum number of them in flight, per thread; without `beside_writes`, this number is always in
    /// flight.
    pub beside_depth: Option<u32>,
    /// Share of reads of the background load, whose rate is then that of its writes.
    pub beside_reads: Option<Share>,
    /// Background threads that share the rate; absent: one.
    pub beside_threads: Option<u32>,
    /// Durability of writes; absent: none.
    pub durable: Option<Durable>,
    /// Operations per second, without flushes.
    pub iops: Option<Published<f64>>,
    /// Bytes per second, in MB (10^6).
    pub bandwidth_mb: Option<Published<f64>>,
    /// Mean response time.
    pub latency_mean: Option<Published<Nanos>>,
    /// Median response time.
    pub latency_p50: Option<Published<Nanos>>,
    /// 99th percentile.
    pub latency_p99: Option<Published<Nanos>>,
    /// 99.9th percentile.
    pub latency_p99_9: Option<Published<Nanos>>,
    /// 99.99th percentile.
    pub latency_p99_99: Option<Published<Nanos>>,
    /// 99.999th percentile.
    pub latency_p99_999: Option<Published<Nanos>>,
    /// Mean response time of the reads of a mix.
    pub read_latency_mean: Option<Published<Nanos>>,
    /// p50 of reads.
    pub read_latency_p50: Option<Published<Nanos>>,
    /// p99 of reads.
    pub read_latency_p99: Option<Published<Nanos>>,
    /// p99.9 of reads.
    pub read_latency_p99_9: Option<Published<Nanos>>,
    /// Mean response time of the writes of a mix.
    pub write_latency_mean: Option<Published<Nanos>>,
    /// p50 of writes.
    pub write_latency_p50: Option<Published<Nanos>>,
    /// p99 of writes.
    pub write_latency_p99: Option<Published<Nanos>>,
    /// p99.9 of writes.
    pub write_latency_p99_9: Option<Published<Nanos>>,
    /// Roles of these figures.
    #[serde(default)]
    pub evidence: EvidenceLists,
    /// Why the model misses some of them.
    #[serde(default)]
    pub missed: MissLists,
    /// Where the figures are from.
    pub source: String,
}

impl Acceptance {
    /// The published figures.
    #[must_use]
    pub fn published(&self) -> Vec<PublishedFigure> {
        let nanos = |time: Option<Published<Nanos>>| time.map(|t| t.map(|n| n.get() as f64));
        let all = [
            ("iops", "IOPS", self.iops),
            ("bandwidth_mb", "MB/s", self.bandwidth_mb),
            ("latency_mean", "mean", nanos(self.latency_mean)),
            ("latency_p50", "p50", nanos(self.latency_p50)),
            ("latency_p99", "p99", nanos(self.latency_p99)),
            ("latency_p99_9", "p99.9", nanos(self.latency_p99_9)),
            ("latency_p99_99", "p99.99", nanos(self.latency_p99_99)),
            ("latency_p99_999", "p99.999", nanos(self.latency_p99_999)),
            ("read_latency_mean", "mean of reads", nanos(self.read_latency_mean)),
            ("read_latency_p50", "p50 of reads", nanos(self.read_latency_p50)),
            ("read_latency_p99", "p99 of reads", nanos(self.read_latency_p99)),
            ("read_latency_p99_9", "p99.9 of reads", nanos(self.read_latency_p99_9)),
            ("write_latency_mean", "mean of writes", nanos(self.write_latency_mean)),
            ("write_latency_p50", "p50 of writes", nanos(self.write_latency_p50)),
            ("write_latency_p99", "p99 of writes", nanos(self.write_latency_p99)),
            ("write_latency_p99_9", "p99.9 of writes", nanos(self.write_latency_p99_9)),
        ];
        let made = |(key, metric, is): (&'static str, &'static str, Option<Published<f64>>)| {
            let (evidence, missed) =
                (self.evidence.of(key).unwrap_or_default(), self.missed.of(key));
            Some(PublishedFigure { key, metric, is: is?, evidence, missed })
        };
        all.into_iter().filter_map(made).collect()
    }

    /// Returns why the job cannot be compared.
    pub(crate) fn impossible(&self, capacity: Bytes) -> Option<String> {
        let published = self.published();
        let (beside, others) = (self.beside_depth.unwrap_or(1), self.beside_threads.unwrap_or(1));
        let nothing = [self.threads, self.queue_depth, beside].contains(&0);
        let most =
            [(self.threads, 4096), (self.queue_depth, 65_536), (beside, 65_536), (others, 64)];
        let beyond =
            self.block_size.get() > 1 << 30 || most.iter().any(|(value, most)| value > most);
        let product = |a: u32, b: u32| u64::from(a) * u64::from(b);
        let in_flight = product(self.threads, self.queue_depth)
            .saturating_add(product(others, self.beside_depth.unwrap_or(0)));
        let alone = self.beside_writes.is_none() && self.beside_depth.is_none();
        let largest = if alone { self.block_size } else { self.block_size.max(Bytes(CHUNK)) };
        let unscheduled = self.rate.is_none() && (self.from_submission || self.evenly);
        let too_many_reads = |share: Share| alone || share.fraction() > 0.5;
        let keys: Vec<&str> = published.iter().map(|one| one.key).collect();
        let unsound = published.iter().find(|one| !one.is.is_sound());
        let rules = [
            (nothing || self.block_size.get() == 0, "has no threads, depth or block size".to_owned()),
            (
                beyond,
                "has more than 4096 threads, 64 background threads, a depth of 65536 or blocks of 1 GiB"
                    .to_owned(),
            ),
            (
                largest > capacity || in_flight > 1 << 17,
                "has blocks larger than the device (background writes: 4 KiB), or over 131072 in flight"
                    .to_owned(),
            ),
            (
                self.beside_threads.is_some() && (self.beside_depth.is_none() || others == 0),
                "has `beside_threads`, which needs `beside_depth`, and at least one".to_owned(),
            ),
            (unscheduled, "has `from_submission` or `evenly`, which need a `rate`".to_owned()),
            (
                self.beside_reads.is_some_and(too_many_reads),
                "has `beside_reads` of more than 50% of the background load".to_owned(),
            ),
            (
                unsound.is_some(),
                format!("has {}, which must be a number above 0", unsound.map_or("", |one| one.metric)),
            ),
            wrong_list("evidence", self.evidence.wrong(&keys)),
            wrong_list("`missed`", self.missed.wrong(&keys)),
            (published.is_empty(), "has no figure".to_owned()),
        ];
        if let Some((_, reason)) = rules.into_iter().find(|(broken, _)| *broken) {
            return Some(format!("an [[acceptance]] {reason} ({})", self.source));
        }
        published.iter().find_map(|one| upside_down(one.metric, &one.is))
    }
}

/// Reports an error of a list of figures.
fn wrong_list(name: &str, wrong: Option<String>) -> (bool, String) {
    (wrong.is_some(), format!("has {name} that {}", wrong.unwrap_or_default()))
}

/// Kinds of results across several jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PhenomenonKind {
    /// Highest over lowest IOPS of 16 threads at depth 1 over 0 to 100 % reads in steps of 10 %.
    MixIopsRatio,
    /// Largest relative difference between mean read and write latency in the mixes.
    MixMeanGap,
    /// Median of all operations at 60 % reads over that at 40 %.
    MixMedianFall,
    /// Lowest p99 of the mixes of 20 to 90 % reads over the higher one of pure reads and pure writes.
    MixP99Hump,
    /// IOPS at 10 % reads over the lowest IOPS.
    MixEndRise,
    /// Growth of mean latency from depth 1 to 95 % of the highest IOPS, percent; random 4 KiB reads, one per
    /// thread, fio on ext4.
    LatencyGrowth95,
    /// Lowest over highest throughput at depth 64 over strides of 4 KiB to 64 KiB.
    WorstStride,
    /// Latency of a 4 KiB read at half a chunk's offset over an aligned one, depth 1.
    MisalignedRead,
    /// Random-write IOPS in steady state divided by those of the fresh drive.
    SteadyRandomWrites,
    /// Sequential 128 KiB write IOPS in steady state divided by those of the fresh drive.
    SteadySequentialWrites,
    /// Random 4 KiB overwrites of a sequentially filled drive, 512 in flight: seconds until the rate of a
    /// minute is below two thirds of the first.
    CliffTime,
    /// As `CliffTime`: lowest rate of a minute, operations per second.
    CliffDip,
    /// As `CliffTime`: highest rate of a minute after the lowest one.
    CliffHump,
    /// As `CliffTime`: seconds until that highest rate.
    CliffHumpTime,
    /// Random 4 KiB writes to an erased drive: seconds until the rate of a minute is below two thirds of the
    /// first.
    FreshCliffTime,
}

/// A published result across several jobs, with its source.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Phenomenon {
    /// Its kind.
    pub kind: PhenomenonKind,
    /// The published value.
    pub is: Published<f64>,
    /// Its role.
    #[serde(default)]
    pub evidence: Evidence,
    /// Cause of a known miss.
    pub missed: Option<MissCause>,
    /// Source of the value.
    pub source: String,
}

impl Phenomenon {
    pub(crate) fn impossible(&self) -> Option<String> {
        if !self.is.is_sound() {
            return Some(format!("a [[phenomenon]] must be numbers from 0 on ({})", self.source));
        }
        upside_down("a [[phenomenon]]", &self.is)
    }
}

impl Published<f64> {
    /// Whether its numbers are valid: a value and a lower end above 0, others from 0 on.
    fn is_sound(&self) -> bool {
        let above = |value: f64| value.is_finite() && value >= f64::MIN_POSITIVE;
        let from = |value: f64| value.is_finite() && value >= 0.0;
        self.value().is_none_or(above)
            && self.least().is_none_or(above)
            && self.band().is_none_or(|band| band.into_iter().all(from))
    }
}

fn upside_down(name: &str, one: &Published<f64>) -> Option<String> {
    let [low, high] = one.band()?;
    (low > high || low.is_nan() || high.is_nan())
        .then(|| format!("the band of {name} is reversed: [{low}, {high}]"))
}
