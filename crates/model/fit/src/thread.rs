//! CPU time of the submitting thread per operation, and the device's times without it.
//!
//! Invariant: device times are at least one nanosecond.

use std::collections::BTreeMap;

use units::{Bytes, Nanos, Share};

use crate::points::{FitPoint, FitTimes, SMALL};
use crate::rows::{PERCENTILES, means, times};

/// Speed-up of several threads over one from which on a single thread counts as the bottleneck.
const SEVERAL: f64 = 1.15;

/// CPU time of a thread per operation.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ThreadTime {
    /// CPU time within the latency of a read and of a write, nanoseconds; on memory devices the thread does
    /// the transfer.
    pub within: [f64; 2],
    /// CPU time per operation outside of any latency.
    pub between: f64,
}

impl ThreadTime {
    /// Derived from the rate and latency of one thread at depth 1, and its highest rate, if several threads
    /// reach more. Otherwise the device is the bottleneck, and the thread's share is that of the other class,
    /// or too small to determine.
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
            // Part of the latency at depth 1 is the device's, even for memory.
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

/// Corrections to the times of one class in a job, nanoseconds: quantiles, and the means between them. Added,
/// not multiplied, so that a long tail keeps its length.
#[derive(Debug, Clone)]
struct Mend {
    times: Vec<f64>,
    means: Vec<f64>,
}

/// Device times of each multi-threaded job: the measurement, the thread's own share within it, and the
/// correction that brings the fitted profile to the measured quantiles and mean. Operations that wait for
/// their thread leave fewer requests at the device than the depth says; the correction includes that.
#[derive(Debug, Clone)]
pub(crate) struct DeviceTimes {
    pub thread: ThreadTime,
    /// Of reads and of writes; `None` without a correction.
    more: BTreeMap<Key, [Option<Mend>; 2]>,
}

/// Number of operations on either side that determine a quantile.
const KNOWN: f64 = 50.0;

impl DeviceTimes {
    pub fn new(thread: ThreadTime) -> Self {
        Self { thread, more: BTreeMap::new() }
    }

    fn key(point: &FitPoint) -> Key {
        (point.read_share, point.block_size, point.queue_depth, point.threads)
    }

    /// Device times for a row of response times of `kind` (0: reads, 1: writes) in a job: quantiles, or means
    /// between them.
    pub fn of(&self, point: &FitPoint, kind: usize, row: &[Nanos]) -> Vec<Nanos> {
        let mend = self.more.get(&Self::key(point)).and_then(|both| both[kind].as_ref());
        let Some(mend) = mend else { return rising(row, &vec![0.0; row.len()]) };
        if row.len() == mend.times.len() {
            return rising(row, &mend.times);
        }
        let ends = rising(&times(point.of(kind)), &mend.times);
        let within = |(mean, ends): (Nanos, &[Nanos])| mean.clamp(ends[0], ends[1]);
        rising(row, &mend.means).into_iter().zip(ends.windows(2)).map(within).collect()
    }

    /// Shifts each latency quantile of a job by its error; extreme quantiles, which may be off by chance, by
    /// the error of the nearest reliable one.
    pub fn move_quantiles(&mut self, point: &FitPoint, kind: usize, found: &FitTimes) {
        let own = point.of(kind);
        let ops = own.ops.min(found.ops) as f64;
        let beyond = |percent: f64| (percent / 100.0).min(1.0 - percent / 100.0) * ops;
        let known = PERCENTILES.map(|percent| beyond(percent) >= KNOWN);
        let mend = self.mend(point, kind);
        let off = |more: &mut [f64], known: &[bool], [own, found]: [Vec<Nanos>; 2]| {
            let error = |place: usize| own[place].get() as f64 - found[place].get() as f64;
            let mut last = known.iter().position(|known| *known).map_or(0.0, error);
            for (place, more) in more.iter_mut().enumerate() {
                let measured = own[place].get() as f64;
                if known[place] {
                    last = error(place);
                }
                *more = (*more + last).clamp(-measured, measured);
            }
        };
        off(&mut mend.times, &known, [own, found].map(times));
        off(&mut mend.means, &known[1..], [own, found].map(means));
    }

    /// Shifts all times of a job by the error found in its mean.
    pub fn move_mean(&mut self, point: &FitPoint, kind: usize, found: &FitTimes) {
        let Some((own, found)) = point.of(kind).mean().zip(found.mean()) else { return };
        let (more, rows) = (own - found, [times, means].map(|row| row(point.of(kind))));
        let mend = self.mend(point, kind);
        for (mends, row) in [&mut mend.times, &mut mend.means].into_iter().zip(rows) {
            for (mend, measured) in mends.iter_mut().zip(row) {
                let measured = measured.get() as f64;
                *mend = (*mend + more).clamp(-measured, measured);
            }
        }
    }

    fn mend(&mut self, point: &FitPoint, kind: usize) -> &mut Mend {
        let both = self.more.entry(Self::key(point)).or_default();
        both[kind].get_or_insert_with(|| Mend {
            times: vec![0.0; PERCENTILES.len()],
            means: vec![0.0; PERCENTILES.len() - 1],
        })
    }
}

/// A row plus corrections, kept non-decreasing and at least one nanosecond.
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

    /// Evenly spaced times.
    fn spread(base: u64, step: u64, count: u64) -> FitTimes {
        let mut times = FitTimes::default();
        for number in 0..count {
            let time = Nanos(base + number * step);
            times.latency.saturating_record(time.get());
            (times.ops, times.sum) = (times.ops + 1, times.sum + time);
        }
        times
    }

    fn point(reads: FitTimes) -> FitPoint {
        let (read_share, block_size, writes) = (Share::ALL, SMALL, FitTimes::default());
        let (queue_depth, threads, rate, seconds) = (4, 4, None, 1.0);
        FitPoint { read_share, block_size, queue_depth, threads, rate, seconds, reads, writes }
    }

    /// How far each value of a row has moved.
    fn moved(to: &[Nanos], from: &[Nanos]) -> Vec<f64> {
        to.iter().zip(from).map(|(to, from)| to.get() as f64 - from.get() as f64).collect()
    }

    /// Each quantile must be corrected by its own error: with that of the mean, the p99 of four threads on
    /// memory was twice too long.
    #[test]
    fn each_quantile_is_mended_by_its_own_error_and_rare_ones_by_the_nearest() {
        let point = point(spread(1000, 10, 10_000));
        let (row, between) = (times(&point.reads), means(&point.reads));
        let mut device = DeviceTimes::new(ThreadTime::default());
        assert_eq!(device.of(&point, 0, &row), row, "nothing is known");
        // The last of them is due to chance.
        let mut found = spread(500, 12, 10_000);
        found.latency.saturating_record(10_000_000);
        device.move_quantiles(&point, 0, &found);
        let more = moved(&device.of(&point, 0, &row), &row);
        let column = |percent| PERCENTILES.iter().position(|one| *one == percent).unwrap();
        let near = |more: f64, wanted: f64| (more - wanted).abs() < 200.0;
        for percent in [1.0, 50.0, 99.0, 99.4] {
            let wanted = 500.0 - 200.0 * percent;
            assert!(near(more[column(percent)], wanted), "{percent} {more:?}");
        }
        assert_eq!(more[0], more[column(1.0)], "the first of them is chance, too");
        // Only 25 operations are in the last quarter of a percent.
        let last = more[column(99.4)];
        assert!(more[column(99.7)..].iter().all(|one| *one == last), "{more:?}");
        let after = device.of(&point, 0, &between);
        let of_half = moved(&after, &between)[column(50.0)];
        assert!(near(of_half, 500.0 - 200.0 * 62.5), "{of_half}");
        let ends = device.of(&point, 0, &row);
        let within = |(mean, ends): (&Nanos, &[Nanos])| ends[0] <= *mean && *mean <= ends[1];
        assert!(ends.is_sorted() && after.iter().zip(ends.windows(2)).all(within), "{after:?}");
    }

    #[test]
    fn a_mean_is_mended_by_moving_all_and_few_operations_move_no_quantile() {
        let point = point(spread(100_000, 10, 10_000));
        let row = times(&point.reads);
        let mut device = DeviceTimes::new(ThreadTime::default());
        device.move_quantiles(&point, 0, &spread(90_000, 1, 49));
        assert_eq!(device.of(&point, 0, &row), row);
        device.move_mean(&point, 0, &spread(105_000, 10, 10_000));
        let more = moved(&device.of(&point, 0, &row), &row);
        assert!(more.iter().all(|one| (one + 5000.0).abs() < 2.0), "{more:?}");
    }

    /// Corrections that do not converge must stay bounded.
    #[test]
    fn no_quantile_moves_by_more_than_it_is_long() {
        let point = point(spread(1000, 10, 10_000));
        let row = times(&point.reads);
        let mut device = DeviceTimes::new(ThreadTime::default());
        for _ in 0..3 {
            device.move_quantiles(&point, 0, &spread(1, 1, 10_000));
            device.move_mean(&point, 0, &spread(1, 1, 10_000));
        }
        let after = device.of(&point, 0, &row);
        let twice = |(after, own): (&Nanos, &Nanos)| after.get() == 2 * own.get();
        assert!(after.iter().zip(&row).all(twice), "{after:?} {row:?}");
    }

    #[test]
    fn no_mend_makes_a_time_of_nothing() {
        let row = [Nanos(10), Nanos(20), Nanos(30)];
        assert_eq!(rising(&row, &[-50.0, -5.0, -25.0]), [Nanos(1), Nanos(15), Nanos(15)]);
    }
}
