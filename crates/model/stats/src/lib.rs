//! Recording of latencies, and the figures derived from them.
//!
//! One [`Recorder`] serves every driver, measured or virtual; it yields a [`Recording`]: a time series of
//! intervals, each with its full HDR histogram by operation class. [`estimate`] turns those into figures with
//! intervals and refuses percentiles without enough samples.
//!
//! Invariants: no sample is lost (operations that end after the measured time are kept in a phase of their
//! own); merging recordings equals recording the union. No clock, no randomness.

#![forbid(unsafe_code)]

pub mod cliffs;
pub mod compare;
pub mod curve;
pub mod estimate;
mod hlog;
mod latency;
mod phase;
mod recorded;
mod recorder;
mod recording;
mod result;
mod served;
mod spread;
pub mod steady;
mod timeline;

pub use hlog::{LogError, read_log, write_log};
pub use latency::StoredLatency;
pub use phase::Phase;
pub use recorded::{LaneParts, Recorded, SqlParts};
pub use recorder::{Recorder, Sample, Summary};
pub use recording::{Counts, DueShares, ErrorSample, Interval, Recording, Tallies, Tally, Total};
pub use result::{
    CounterSample, DiskCounters, END_SKEW, Limit, LoadRecord, OBSERVING_COST, ROUND_TRIP,
    START_SKEW, TIME_KINDS, TimedBy, TrialResult, Usage, path_total,
};
pub use served::{Served, ServedKind, longer_words};
pub use spread::Spread;
pub use timeline::Timeline;

/// The latency histogram: nanoseconds from 1 ns to 1 h (longer ones count as 1 h), three significant
/// digits (0.1 %), about 270 KiB. Encoding and arithmetic are `hdrhistogram`'s.
pub type Histogram = hdrhistogram::Histogram<u64>;

/// An empty latency histogram.
///
/// # Panics
/// Never: the bounds are constants that `hdrhistogram` accepts.
#[must_use]
pub fn new_histogram() -> Histogram {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("invariant: constant valid bounds")
}

/// Whether values fall into the same buckets in both.
fn same_bounds(one: &Histogram, other: &Histogram) -> bool {
    (one.low(), one.high(), one.sigfig()) == (other.low(), other.high(), other.sigfig())
}
