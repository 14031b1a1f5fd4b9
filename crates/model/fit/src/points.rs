//! The input of a fit: jobs as measured, and which of them are held out for testing.
//!
//! Invariant: whether a job is fitted or held out depends on the job, never on its result; results decide
//! only which schedules the device keeps up with.

use device::ProfileError;
use stats::Histogram;
use thiserror::Error;
use units::{Bytes, Nanos, Rate, Share};

/// Why no profile could be fitted.
#[derive(Debug, Error)]
pub enum FitError {
    /// A job that the fit needs was not measured, or completed no operation.
    #[error("no measurement of {0}")]
    Missing(String),
    /// The fitted profile is invalid.
    #[error(transparent)]
    Profile(ProfileError),
}

/// Response times of one kind of operation.
#[derive(Debug, Clone)]
pub struct FitTimes {
    /// Operations.
    pub ops: u64,
    /// Sum of response times.
    pub sum: Nanos,
    /// Response times.
    pub latency: Histogram,
}

impl Default for FitTimes {
    fn default() -> Self {
        Self { ops: 0, sum: Nanos::ZERO, latency: stats::new_histogram() }
    }
}

impl FitTimes {
    /// Mean in nanoseconds, if there are samples.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.ops > 0).then(|| self.sum.get() as f64 / self.ops as f64)
    }

    /// Adds the samples of another measurement.
    pub fn add(&mut self, ops: u64, sum: Nanos, latency: &Histogram) {
        self.ops += ops;
        self.sum += sum;
        let _ = self.latency.add(latency);
    }
}

/// The measurements of one job, all repetitions merged.
#[derive(Debug, Clone)]
pub struct FitPoint {
    /// Share of reads.
    pub read_share: Share,
    /// Bytes per operation.
    pub block_size: Bytes,
    /// Requests in flight per client.
    pub queue_depth: u32,
    /// Clients.
    pub threads: u32,
    /// Offered operations per second of all clients, at random times; `None` for a closed loop.
    pub rate: Option<Rate>,
    /// Duration of the measurement, seconds.
    pub seconds: f64,
    /// Its reads.
    pub reads: FitTimes,
    /// Its writes.
    pub writes: FitTimes,
}

/// Role of a job in the fit, which is also the class of its error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FitCategory {
    /// Used for the fit.
    Fitted,
    /// Scheduled; decides whether writes are buffered, gives their latencies if so, and the cost of idling if
    /// not.
    Chosen,
    /// Held out: 4 KiB reads at other depths.
    Reads,
    /// Held out: 4 KiB writes at other depths.
    Writes,
    /// Held out: mixes at other depths and shares.
    Mixes,
    /// Held out: other sizes, and larger blocks at other depths.
    Sizes,
    /// Held out: several threads.
    Threads,
    /// Held out: scheduled reads and mixes, and faster scheduled writes of larger blocks.
    Schedule,
    /// Held out: flushes after other numbers of writes.
    Flushes,
}

units::words!(FitCategory {
    Fitted => "fitted", Chosen => "chosen with", Reads => "reads", Writes => "writes",
    Mixes => "mixes", Sizes => "sizes", Threads => "threads", Schedule => "schedule",
    Flushes => "flushes",
});

impl FitCategory {
    /// Whether it is held out.
    #[must_use]
    pub const fn held_out(self) -> bool {
        !matches!(self, Self::Fitted | Self::Chosen)
    }
}

impl FitPoint {
    /// Operations.
    #[must_use]
    pub fn ops(&self) -> u64 {
        self.reads.ops + self.writes.ops
    }

    /// Operations per second.
    #[must_use]
    pub fn iops(&self) -> f64 {
        self.ops() as f64 / self.seconds
    }

    /// Mean response time, nanoseconds.
    #[must_use]
    pub fn mean(&self) -> f64 {
        (self.reads.sum + self.writes.sum).get() as f64 / self.ops().max(1) as f64
    }

    /// Response times of reads and writes together.
    #[must_use]
    pub fn latency(&self) -> Histogram {
        let mut both = self.reads.latency.clone();
        let _ = both.add(&self.writes.latency);
        both
    }

    /// Reads (0) or writes (1).
    pub(crate) fn of(&self, kind: usize) -> &FitTimes {
        if kind == 0 { &self.reads } else { &self.writes }
    }

    /// Operations that all clients together keep in flight.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.queue_depth * self.threads
    }

    /// Role of the point: pure jobs and four mixes at the depths of the grids are fitted.
    #[must_use]
    pub fn category(&self) -> FitCategory {
        let pure = [Share::ALL, Share::NONE].contains(&self.read_share);
        let (small, depth) = (self.block_size == SMALL, &self.queue_depth);
        let shared = pure || mix_shares().contains(&self.read_share);
        if let Some(rate) = self.rate {
            // The slowest schedules give write latencies without queueing; the others at 4 KiB show whether
            // there is any.
            let row = rate == PACED && SIZES.contains(&self.block_size);
            let written = self.read_share == Share::NONE;
            let chosen = written && self.threads == 1 && (row || small && rate != PACED);
            return if chosen { FitCategory::Chosen } else { FitCategory::Schedule };
        }
        if self.threads > 1 {
            let grid = small && shared && self.threads == THREADS && THREAD_DEPTHS.contains(depth);
            return if grid { FitCategory::Fitted } else { FitCategory::Threads };
        }
        if !pure {
            let mixed = small || self.block_size == LARGE;
            let grid = mixed && shared && MIX_DEPTHS.contains(depth);
            return if grid { FitCategory::Fitted } else { FitCategory::Mixes };
        }
        let depths = if small { &SMALL_DEPTHS[..] } else { &LARGE_DEPTHS[..] };
        match () {
            () if SIZES.contains(&self.block_size) && depths.contains(depth) => FitCategory::Fitted,
            () if !small => FitCategory::Sizes,
            () if self.read_share == Share::ALL => FitCategory::Reads,
            () => FitCategory::Writes,
        }
    }

    /// Whether it is held out.
    #[must_use]
    pub fn held_out(&self) -> bool {
        self.category().held_out()
    }
}

/// Points to compare: closed loops, and schedules that the device can keep up with indefinitely. Beyond that,
/// latency grows with the length of the trial.
#[must_use]
pub fn kept_up(points: &[FitPoint]) -> Vec<&FitPoint> {
    // Points that enter the fit are selected by points that enter it; held-out ones by all.
    let highest = |share: Share, of: &FitPoint| {
        let job = |p: &FitPoint| (p.block_size, p.threads);
        let alike = |p: &&FitPoint| p.read_share == share && job(p) == job(of);
        let closed = points.iter().filter(alike).filter(|p| p.rate.is_none());
        let known = closed.filter(|p| of.held_out() || !p.held_out());
        known.map(FitPoint::iops).fold(0.0, f64::max)
    };
    let keeps_up = |point: &&FitPoint| {
        let Some(rate) = point.rate else { return true };
        let reads = point.read_share.fraction();
        let [read, write] = [Share::ALL, Share::NONE].map(|share| highest(share, point));
        let of = |share: f64, highest: f64| if share > 0.0 { share / highest } else { 0.0 };
        rate.get() as f64 * (of(reads, read) + of(1.0 - reads, write)) < KEPT
    };
    points.iter().filter(|point| point.ops() > 0).filter(keeps_up).collect()
}

/// Share of a closed loop's highest rate up to which a device is assumed to keep up with a schedule.
const KEPT: f64 = 0.85;
/// Operation sizes in the tables.
pub(crate) const SIZES: [Bytes; 6] =
    [SMALL, Bytes(8 << 10), Bytes(16 << 10), Bytes(32 << 10), Bytes(64 << 10), Bytes(128 << 10)];
pub(crate) const SMALL: Bytes = Bytes(4096);
/// The larger size of the mixes that are fitted.
pub(crate) const LARGE: Bytes = Bytes(64 << 10);
/// Scheduled rate at which a device is idle whenever the next write arrives.
pub(crate) const PACED: Rate = Rate(500);
/// Queue depths of one thread: at the smallest size, at other sizes, and of mixes. The rate at the deepest
/// one gives the thread's time per operation.
const SMALL_DEPTHS: [u32; 7] = [1, 2, 3, 6, 12, 24, 64];
const LARGE_DEPTHS: [u32; 4] = [1, 2, 4, 16];
const MIX_DEPTHS: [u32; 4] = [1, 2, 3, 12];
/// Number of threads in the multi-threaded grid, and their queue depths. With a single thread, its limit
/// would be taken for the device's.
const THREADS: u32 = 4;
const THREAD_DEPTHS: [u32; 5] = [1, 2, 4, 8, 16];

/// Shares of reads of the mixes that are fitted to.
pub(crate) fn mix_shares() -> [Share; 4] {
    let share = |text: &str| text.parse().unwrap_or(Share::ALL);
    [share("90%"), share("70%"), share("50%"), share("30%")]
}
