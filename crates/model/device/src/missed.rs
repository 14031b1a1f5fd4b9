//! Why a model misses a held-out published figure.
//!
//! Invariant: causes are named, never fitted: nothing here enters the model.

use serde::{Deserialize, Serialize};

/// Suspected cause of a miss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MissCause {
    /// Reads meet busy flash units more often than program times explain.
    BusyUnits,
    /// Duration and number of program and erase suspensions.
    Suspensions,
    /// Duration of write buffer stalls, and the number of reads that wait.
    Stalls,
    /// The drive slows its writes evenly once it is full.
    Metering,
    /// Pauses for background work at any rate.
    Pauses,
    /// Variation of acknowledgement times.
    Acknowledgement,
    /// All requests are slower in some drive states, even the fastest.
    States,
    /// Selection and timing of garbage collection.
    Collection,
    /// A limit set by the provider.
    Limiter,
    /// The source's host or I/O path.
    Host,
    /// Overhead of a virtual machine or its host.
    Hop,
    /// How a disk drive orders its requests.
    Scheduler,
    /// Cost of FUA writes.
    Forced,
    /// Two sources contradict each other about one drive.
    Sources,
    /// A constant without a source for this drive.
    Assumed,
    /// The figure is on a steep part of a curve.
    Steep,
    /// Another specimen of the drive does not show it.
    Specimen,
    /// Unknown.
    Unexplained,
}

units::words!(MissCause {
    BusyUnits => "busy units", Suspensions => "suspensions", Stalls => "stalls",
    Metering => "metering", Pauses => "pauses", Acknowledgement => "acknowledgement",
    States => "states", Collection => "collection", Limiter => "limiter", Host => "host",
    Hop => "hop", Scheduler => "scheduler", Forced => "forced writes", Sources => "sources",
    Assumed => "assumed constants", Steep => "steep curve", Specimen => "one specimen",
    Unexplained => "unexplained",
});

impl MissCause {
    /// What the drive does, and what the model does instead.
    #[must_use]
    pub const fn because(self) -> &'static str {
        match self {
            Self::BusyUnits => {
                "on the drive, reads find their plane busy more often than in the model"
            }
            Self::Suspensions => {
                "reads wait for program or erase suspensions with another distribution than the model's, \
                 which is exponential and fitted at one p99"
            }
            Self::Stalls => {
                "the drive's write buffer fills at other times and for other durations than the model's, \
                 and reads wait for it"
            }
            Self::Metering => {
                "once its buffer is full, the drive throttles writes to a steady, lower rate; the model \
                 accepts what its flash can program"
            }
            Self::Pauses => {
                "the drive pauses for background work at any rate; the model never pauses"
            }
            Self::Acknowledgement => {
                "buffered-write acknowledgement time varies on the drive; in the model it is constant \
                 apart from data transfer"
            }
            Self::States => {
                "at low load or alongside writes the drive slows down every request, even the fastest; \
                 the model's service time is constant"
            }
            Self::Collection => {
                "initial free blocks, victim selection and timing of garbage collection differ; the model \
                 collects FIFO"
            }
            Self::Limiter => "the provider's limiter makes requests wait; the model has none there",
            Self::Host => {
                "the source's host, file system or array differs from the predicted one and limits the \
                 rate or adds latency"
            }
            Self::Hop => {
                "guests have less bandwidth than the host; the model's hops add latency only"
            }
            Self::Scheduler => {
                "the model's scheduler has the exact rotational position, the drive's does not"
            }
            Self::Forced => "an FUA write takes longer on the drive than the model's two programs",
            Self::Sources => {
                "the source contradicts the figure that a constant was taken from (datasheet, other \
                 source, or its own)"
            }
            Self::Assumed => "no source gives the constant that determines it; it was assumed",
            Self::Steep => {
                "the curve is steep here: the model reaches the published number at a rate a few percent \
                 higher"
            }
            Self::Specimen => {
                "another unit of the drive in the same study does not show it; the model is closer to \
                 that unit"
            }
            Self::Unexplained => "unknown",
        }
    }
}
