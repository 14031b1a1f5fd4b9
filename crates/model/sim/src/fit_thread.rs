//! What the submitting thread needs for an operation, and what the device's times are beside it.
//!
//! Invariant: times of the device are never below a nanosecond. What it is not: the fit, which makes tables
//! of them.

use std::collections::BTreeMap;

use units::{Bytes, Nanos, Share};

use crate::fit_points::{FitPoint, SMALL};

/// Several threads reach so many times what one does where the thread is the limit.
const SEVERAL: f64 = 1.15;

/// What one thread does by itself.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ThreadTime {
    /// Of an operation, within its latency, nanoseconds: of reads and of writes, which memory makes the
    /// thread do.
    pub within: [f64; 2],
    /// Of an operation, in no latency.
    pub between: f64,
}

impl ThreadTime {
    /// From how often one thread alone goes at depth 1 beside its latency, and the highest rate that it has
    /// reached, if several threads reach more: else the device is the limit, and the thread's part is that
    /// of the other kind of operation, or too small to be told.
    pub fn of(points: &[FitPoint]) -> Self {
        let of_share = |share: Share| {
            let own = points.iter().filter(move |p| p.read_share == share && p.ops() > 0);
            own.filter(|p| p.rate.is_none() && !p.held_out())
        };
        let highest = |share: Share, several: bool| {
            let own = of_share(share).filter(|p| (p.threads > 1) == several);
            own.map(FitPoint::iops).fold(0.0, f64::max)
        };
        let first = |p: &&FitPoint| p.threads == 1 && p.queue_depth == 1 && p.block_size == SMALL;
        let pure = [Share::ALL, Share::NONE];
        let gaps = pure.into_iter().flat_map(|share| of_share(share).filter(first));
        let between =
            gaps.map(|p| 1e9 / p.iops() - p.mean()).fold(f64::INFINITY, f64::min).max(0.0);
        if !between.is_finite() {
            return Self::default();
        }
        let within = pure.map(|share| {
            let alone = highest(share, false);
            let least =
                of_share(share).filter(first).map(FitPoint::mean).fold(f64::INFINITY, f64::min);
            // Some of the latency at depth 1 is the device's, be it memory.
            (highest(share, true) > alone * SEVERAL && least.is_finite())
                .then(|| (1e9 / alone - between).clamp(0.0, least * 0.95))
        });
        let of = |own: Option<f64>, other: Option<f64>| own.or(other).unwrap_or(0.0);
        let [read, write] = within;
        Self { within: [of(read, write), of(write, read)], between }
    }

    /// Share of its time that one thread needs for a job.
    pub fn busy(self, point: &FitPoint) -> f64 {
        let [read, write] = self.within;
        let reads = point.read_share.fraction();
        point.iops() * (reads * read + (1.0 - reads) * write + self.between) / 1e9
    }
}

/// A job, by share of reads, size, depth and threads.
type Key = (Share, Bytes, u32, u32);

/// Times of the device at each job of several threads: what was measured, the thread's own part within, and
/// as much more or less as makes the fitted profile give the measured mean. Operations that wait for their
/// thread have fewer with the device than their depth says, and that makes up for it. Added, not
/// multiplied: a long tail stays as long as it was.
#[derive(Debug, Clone)]
pub(crate) struct DeviceTimes {
    pub thread: ThreadTime,
    /// Of reads and of writes, nanoseconds; 0 where there is none.
    more: BTreeMap<Key, [f64; 2]>,
}

impl DeviceTimes {
    pub fn new(thread: ThreadTime) -> Self {
        Self { thread, more: BTreeMap::new() }
    }

    fn key(point: &FitPoint) -> Key {
        (point.read_share, point.block_size, point.queue_depth, point.threads)
    }

    /// What the device takes of response times of `kind` (0: reads, 1: writes) at a job.
    pub fn of(&self, point: &FitPoint, kind: usize, times: Vec<Nanos>) -> Vec<Nanos> {
        let more = self.more.get(&Self::key(point)).map_or(0.0, |both| both[kind]);
        let own = |time: Nanos| Nanos((time.get() as f64 + more).max(1.0) as u64);
        times.into_iter().map(own).collect()
    }

    /// Moves the times of a job towards what makes up for a mean that was predicted off by so much.
    pub fn move_by(&mut self, point: &FitPoint, kind: usize, (measured, predicted): (f64, f64)) {
        let both = self.more.entry(Self::key(point)).or_insert([0.0; 2]);
        both[kind] = (both[kind] + measured - predicted).clamp(-measured, measured);
    }
}
