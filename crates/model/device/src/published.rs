//! What is published of a device, for its model to be held against: figures of single jobs, and what
//! several jobs together show.
//!
//! Invariant: nothing here enters the model. What it is not: the comparison, which is `sim`'s.

use serde::Deserialize;
use units::{Bytes, Nanos, Rate, Share};

use crate::Condition;

/// A published number: the value, the band that a model must stay in, or both.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(untagged, expecting = "a value, `[low, high]`, or `{ value, band = [low, high] }`")]
pub enum Published<T> {
    /// The value; a model should come within a tenth of it.
    Value(T),
    /// `[low, high]`: the band alone, where sources give a range or the value is ours.
    Band([T; 2]),
    /// The value, and a band of its own.
    Both {
        /// The value.
        value: T,
        /// `[low, high]`.
        band: [T; 2],
    },
}

impl<T: Copy> Published<T> {
    /// The value, where one is published.
    #[must_use]
    pub fn value(&self) -> Option<T> {
        match *self {
            Self::Value(value) | Self::Both { value, .. } => Some(value),
            Self::Band(_) => None,
        }
    }

    /// The band, where one is given.
    #[must_use]
    pub fn band(&self) -> Option<[T; 2]> {
        match *self {
            Self::Value(_) => None,
            Self::Band(band) | Self::Both { band, .. } => Some(band),
        }
    }

    /// The same in another type.
    pub(crate) fn map<U>(self, to: impl Fn(T) -> U) -> Published<U> {
        match self {
            Self::Value(value) => Published::Value(to(value)),
            Self::Band(band) => Published::Band(band.map(to)),
            Self::Both { value, band } => Published::Both { value: to(value), band: band.map(to) },
        }
    }
}

/// Order of the offsets of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobPattern {
    /// Uniform over the device.
    #[default]
    Random,
    /// One after the other, each thread in a part of its own.
    Sequential,
}

/// How the writes of a job are made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durable {
    /// A flush after each, as fdatasync makes one.
    Flush,
    /// Each forced to the medium, as O_DSYNC asks for.
    Dsync,
}

/// Published figures of one job, which the model is run against.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Acceptance {
    /// Submission path of the host that was measured; a name that `sim::HostModel` knows.
    pub host: String,
    /// Submitting threads.
    pub threads: u32,
    /// Operations in flight, a thread.
    pub queue_depth: u32,
    /// Bytes an operation, aligned.
    pub block_size: Bytes,
    /// Share of reads.
    pub read_share: Share,
    /// Order of offsets.
    #[serde(default)]
    pub pattern: JobPattern,
    /// State before it.
    #[serde(default)]
    pub condition: Condition,
    /// Random 4 KiB writes a second that go on beside it and are not counted.
    pub beside_writes: Option<Rate>,
    /// How writes are made durable; absent: they are not.
    pub durable: Option<Durable>,
    /// Operations per second, flushes not counted.
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
    /// Where the figures are from.
    pub source: String,
}

impl Acceptance {
    /// The published figures by name of metric; rates in their unit, times in nanoseconds.
    #[must_use]
    pub fn published(&self) -> Vec<(&'static str, Published<f64>)> {
        let nanos = |time: Option<Published<Nanos>>| time.map(|t| t.map(|n| n.get() as f64));
        let all = [
            ("IOPS", self.iops),
            ("MB/s", self.bandwidth_mb),
            ("mean", nanos(self.latency_mean)),
            ("p50", nanos(self.latency_p50)),
            ("p99", nanos(self.latency_p99)),
            ("p99.9", nanos(self.latency_p99_9)),
            ("p99.99", nanos(self.latency_p99_99)),
            ("p99.999", nanos(self.latency_p99_999)),
        ];
        all.into_iter().filter_map(|(name, one)| Some((name, one?))).collect()
    }

    /// Why nothing can be held against it.
    pub(crate) fn impossible(&self) -> Option<String> {
        let published = self.published();
        if self.threads == 0 || self.queue_depth == 0 || self.block_size.get() == 0 {
            return Some(format!(
                "an [[acceptance]] has no threads, depth or block size ({})",
                self.source
            ));
        }
        let most = [(self.threads, 4096), (self.queue_depth, 65_536)];
        let large = self.block_size.get() > 1 << 30;
        if large || most.iter().any(|(value, most)| value > most) {
            return Some(format!(
                "an [[acceptance]] has more than 4096 threads, a depth of 65536 or blocks of 1 GiB ({})",
                self.source
            ));
        }
        let least = |one: &Published<f64>| {
            one.value().into_iter().chain(one.band().into_iter().flatten()).fold(f64::MAX, f64::min)
        };
        if let Some((name, _)) = published.iter().find(|(_, one)| least(one) <= 0.0) {
            return Some(format!(
                "{name} of an [[acceptance]] must be more than 0 ({})",
                self.source
            ));
        }
        if published.is_empty() {
            return Some(format!("an [[acceptance]] has no figure ({})", self.source));
        }
        published.iter().find_map(|(name, one)| upside_down(name, one))
    }
}

/// What several jobs together show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PhenomenonKind {
    /// Highest over lowest IOPS of 16 threads at depth 1 over 0 to 100 % reads in steps of 10 %.
    MixIopsRatio,
    /// Largest relative difference of mean read and mean write latency in those mixes.
    MixMeanGap,
    /// Highest p99 in those mixes, microseconds.
    MixP99,
    /// Median of all operations at 60 % reads over that at 40 %.
    MixMedianFall,
    /// Lowest p99 of the mixes of 20 to 90 % reads over the higher one of pure reads and pure writes.
    MixP99Hump,
    /// Share of reads, in percent, at which IOPS are lowest.
    MixMinimumAt,
    /// IOPS at 10 % reads over the lowest IOPS.
    MixEndRise,
    /// Growth of mean latency from depth 1 to 95 % of the highest IOPS, percent; random 4 KiB reads, depth
    /// raised by threads, fio on ext4.
    LatencyGrowth95,
    /// IOPS of the last tenth over those of the first tenth of 20 s of random writes at depth 64.
    SustainedWrites,
    /// Longest of eight simultaneous reads of one 4 KiB chunk over the step between them.
    SameChunkSteps,
    /// Lowest over highest throughput at depth 64 over strides of 4 KiB to 64 KiB.
    WorstStride,
    /// Latency of a 4 KiB read at half a chunk's offset over an aligned one, depth 1.
    MisalignedRead,
    /// Random-write IOPS in steady state over those of the fresh drive.
    SteadyRandomWrites,
    /// Sequential 128 KiB write IOPS in steady state over those of the fresh drive.
    SteadySequentialWrites,
    /// IOPS of a cache, warm, over those of its slow device alone: 16 KiB, 70 % reads, 8 threads.
    SpeedUpOverSlow,
}

/// What several jobs together must show, and where that was seen.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phenomenon {
    /// Which.
    pub kind: PhenomenonKind,
    /// The number.
    pub is: Published<f64>,
    /// Where it was seen.
    pub source: String,
}

impl Phenomenon {
    pub(crate) fn impossible(&self) -> Option<String> {
        upside_down("a [[phenomenon]]", &self.is)
    }
}

fn upside_down(name: &str, one: &Published<f64>) -> Option<String> {
    let [low, high] = one.band()?;
    (low > high || low.is_nan() || high.is_nan())
        .then(|| format!("the band of {name} is upside down: [{low}, {high}]"))
}
