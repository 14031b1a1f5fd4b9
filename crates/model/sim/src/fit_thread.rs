//! What the submitting thread needs for an operation, and what the device's times are beside it.
//!
//! Invariant: times of the device are never below a nanosecond. What it is not: the fit, which makes tables
//! of them.

use std::collections::BTreeMap;

use units::{Bytes, Nanos, Share};

use crate::fit_points::{FitPoint, FitTimes, SMALL};
use crate::fit_rows::{PERCENTILES, means, times};

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

/// What the times of one kind at a job are mended by, nanoseconds: quantiles, and the means between them.
/// Added, not multiplied: a long tail stays as long as it was.
#[derive(Debug, Clone)]
struct Mend {
    times: Vec<f64>,
    means: Vec<f64>,
}

/// Times of the device at each job of several threads: what was measured, the thread's own part within, and
/// as much more or less as makes the fitted profile give the measured quantiles and mean. Operations that
/// wait for their thread have fewer with the device than their depth says, and that makes up for it.
#[derive(Debug, Clone)]
pub(crate) struct DeviceTimes {
    pub thread: ThreadTime,
    /// Of reads and of writes; none: as measured.
    more: BTreeMap<Key, [Option<Mend>; 2]>,
}

/// So many operations beyond a quantile say where it is.
const KNOWN: f64 = 50.0;

impl DeviceTimes {
    pub fn new(thread: ThreadTime) -> Self {
        Self { thread, more: BTreeMap::new() }
    }

    fn key(point: &FitPoint) -> Key {
        (point.read_share, point.block_size, point.queue_depth, point.threads)
    }

    /// What the device takes of a row of response times of `kind` (0: reads, 1: writes) at a job: of the
    /// quantiles, or of the means between them.
    pub fn of(&self, point: &FitPoint, kind: usize, row: Vec<Nanos>) -> Vec<Nanos> {
        let mend = self.more.get(&Self::key(point)).and_then(|both| both[kind].as_ref());
        let Some(mend) = mend else { return row };
        if row.len() == mend.times.len() {
            return rising(&row, &mend.times);
        }
        let ends = rising(&times(point.of(kind)), &mend.times);
        let within = |(mean, ends): (Nanos, &[Nanos])| mean.clamp(ends[0], ends[1]);
        rising(&row, &mend.means).into_iter().zip(ends.windows(2)).map(within).collect()
    }

    /// Moves the times of a job by what makes up for quantiles that were found elsewhere; rare ones, that
    /// chance may have moved, by as much as the last of the others.
    pub fn move_quantiles(&mut self, point: &FitPoint, kind: usize, found: &FitTimes) {
        let own = point.of(kind);
        let ops = own.ops.min(found.ops) as f64;
        let known = PERCENTILES.map(|percent| (1.0 - percent / 100.0) * ops >= KNOWN);
        let mend = self.mend(point, kind);
        let off = |more: &mut [f64], known: &[bool], [own, found]: [Vec<Nanos>; 2]| {
            let mut last = 0.0;
            for (place, more) in more.iter_mut().enumerate() {
                if known[place] {
                    last = own[place].get() as f64 - found[place].get() as f64;
                }
                *more += last;
            }
        };
        off(&mut mend.times, &known, [own, found].map(times));
        off(&mut mend.means, &known[1..], [own, found].map(means));
    }

    /// Moves all times of a job by what makes up for a mean that was found elsewhere.
    pub fn move_mean(&mut self, point: &FitPoint, kind: usize, found: &FitTimes) {
        let Some((own, found)) = point.of(kind).mean().zip(found.mean()) else { return };
        let more = (own - found).clamp(-own, own);
        let mend = self.mend(point, kind);
        mend.times.iter_mut().chain(&mut mend.means).for_each(|time| *time += more);
    }

    fn mend(&mut self, point: &FitPoint, kind: usize) -> &mut Mend {
        let both = self.more.entry(Self::key(point)).or_default();
        both[kind].get_or_insert_with(|| Mend {
            times: vec![0.0; PERCENTILES.len()],
            means: vec![0.0; PERCENTILES.len() - 1],
        })
    }
}

/// A row with more or less added, of which none is below the one before, or below a nanosecond.
fn rising(row: &[Nanos], more: &[f64]) -> Vec<Nanos> {
    let mut last = 1.0;
    let one = |(time, more): (&Nanos, &f64)| {
        last = (time.get() as f64 + more).max(last);
        Nanos(last as u64)
    };
    row.iter().zip(more).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times that were found later than they were measured.
    fn spread(base: u64, step: u64) -> FitTimes {
        let mut times = FitTimes::default();
        for number in 0..10_000 {
            let time = Nanos(base + number * step);
            times.latency.saturating_record(time.get());
            (times.ops, times.sum) = (times.ops + 1, times.sum + time);
        }
        times
    }

    /// The p99 of four threads would be that of the mean's error: on memory twice as long.
    #[test]
    fn each_quantile_is_mended_by_its_own_error_and_stays_in_order() {
        let reads = spread(1000, 10);
        let point = FitPoint {
            read_share: Share::ALL,
            block_size: SMALL,
            queue_depth: 4,
            threads: 4,
            rate: None,
            seconds: 1.0,
            reads: reads.clone(),
            writes: FitTimes::default(),
        };
        let mut device = DeviceTimes::new(ThreadTime::default());
        assert_eq!(device.of(&point, 0, times(&reads)), times(&reads));
        device.move_quantiles(&point, 0, &spread(500, 12));
        let row = device.of(&point, 0, times(&reads));
        let column = |percent| PERCENTILES.iter().position(|one| *one == percent).unwrap();
        for (percent, more) in [(50.0, 500.0 - 10_000.0), (99.0, 500.0 - 19_800.0)] {
            let at = column(percent);
            let moved = row[at].get() as f64 - times(&reads)[at].get() as f64;
            assert!((moved - more).abs() < 300.0, "{percent} {moved} {more}");
        }
        // Of the last hundredth of a percent there was one.
        let last = PERCENTILES.len() - 1;
        assert!(row.is_sorted() && row[last] > row[column(99.4)], "{row:?}");
        let between = device.of(&point, 0, means(&reads));
        let within = |(mean, ends): (&Nanos, &[Nanos])| ends[0] <= *mean && *mean <= ends[1];
        assert!(between.iter().zip(row.windows(2)).all(within), "{between:?}");
    }

    #[test]
    fn no_mend_makes_a_time_of_nothing() {
        let row = [Nanos(10), Nanos(20), Nanos(30)];
        assert_eq!(rising(&row, &[-50.0, -5.0, -25.0]), [Nanos(1), Nanos(15), Nanos(15)]);
    }
}
