//! The tables of a fitted profile: selects measured points as rows.
//!
//! Invariant: rows of reads and of writes are at the same queue depths.

use device::{Constant, ConstantKind, FlowMixes, FlowParameters};
use units::{Bytes, Nanos, Share};

use crate::points::{FitError, FitPoint, FitTimes, LARGE, SIZES, SMALL, mix_shares};
use crate::rows::{PERCENTILES, means, times};
use crate::thread::ThreadTime;

/// Points of one size and share, sorted by depth.
type Rows<'a> = Vec<&'a FitPoint>;

/// Utilization of one thread from which on it is the bottleneck, not the device.
const THREAD_BUSY: f64 = 0.7;

/// The fitted points of `share` and `size`.
fn fitted_of(points: &[FitPoint], share: Share, size: Bytes) -> impl Iterator<Item = &FitPoint> {
    let of_job = move |p: &&FitPoint| p.read_share == share && p.block_size == size;
    points.iter().filter(of_job).filter(|p| p.ops() > 0 && p.rate.is_none() && !p.held_out())
}

/// The fitted points of `share` and `size` by queue depth: from several threads where measured, from one if
/// it was not the bottleneck.
fn rows_of_several(
    points: &[FitPoint],
    share: Share,
    size: Bytes,
    thread: ThreadTime,
) -> Result<Rows<'_>, FitError> {
    let fitted = || fitted_of(points, share, size);
    let mut rows: Rows<'_> = fitted().filter(|p| p.threads > 1).collect();
    let several: Vec<u32> = rows.iter().map(|p| p.in_flight()).collect();
    rows.extend(fitted().filter(|p| {
        // At depth 1, or without a measurement of several threads, there is no other source.
        let alone = p.queue_depth == 1 || several.is_empty();
        let idle = alone || thread.busy(p) < THREAD_BUSY;
        p.threads == 1 && idle && !several.contains(&p.queue_depth)
    }));
    rows.sort_by_key(|point| point.in_flight());
    from_one(rows, share, size)
}

fn depths(rows: &Rows<'_>) -> Vec<u32> {
    rows.iter().map(|point| point.in_flight()).collect()
}

/// The rows at queue depths that both have, so that reads and writes share a grid.
fn together<'a>(one: &Rows<'a>, other: &Rows<'a>) -> Rows<'a> {
    let there = depths(other);
    one.iter().copied().filter(|point| there.contains(&point.in_flight())).collect()
}

/// The fitted points of one thread by depth; beyond its deepest those of several, at depths that one thread
/// can reach.
fn rows_of_one(
    points: &[FitPoint],
    share: Share,
    size: Bytes,
    thread: ThreadTime,
) -> Result<Rows<'_>, FitError> {
    let fitted = || fitted_of(points, share, size);
    let mut rows: Rows<'_> = fitted().filter(|p| p.threads == 1).collect();
    let deepest = rows.iter().map(|p| p.in_flight()).max().unwrap_or(0);
    rows.extend(fitted().filter(|p| p.in_flight() > deepest && thread.busy(p) < 1.0));
    rows.sort_by_key(|point| point.in_flight());
    from_one(rows, share, size)
}

/// The rows, if they start at one request in flight.
fn from_one(rows: Rows<'_>, share: Share, size: Bytes) -> Result<Rows<'_>, FitError> {
    match rows.first() {
        Some(point) if point.in_flight() == 1 => Ok(rows),
        _ => Err(FitError::Missing(format!("{size} {share} reads at depth 1"))),
    }
}

/// The points used as rows of a server's tables.
pub(crate) struct Tables<'a> {
    /// One list per size.
    reads: Vec<Rows<'a>>,
    /// `None` if writes were not measured.
    pub writes: Option<Vec<Rows<'a>>>,
    /// By share of reads, if all were measured: of the smallest size and of a larger one.
    mixes: [Option<Vec<Rows<'a>>>; 2],
}

/// Selects the part of a job's times that goes into the table, of reads (0) or writes (1).
type Part<'p> = &'p dyn Fn(&FitPoint, usize, Vec<Nanos>) -> Vec<Nanos>;

impl<'a> Tables<'a> {
    /// For any number of threads.
    pub fn of_several(points: &'a [FitPoint], thread: ThreadTime) -> Result<Self, FitError> {
        Self::new(|share, size| rows_of_several(points, share, size, thread))
    }

    /// For a single thread.
    pub fn of_one(points: &'a [FitPoint], thread: ThreadTime) -> Result<Self, FitError> {
        Self::new(|share, size| rows_of_one(points, share, size, thread))
    }

    fn new(rows: impl Fn(Share, Bytes) -> Result<Rows<'a>, FitError>) -> Result<Self, FitError> {
        let all = |share| -> Result<Vec<Rows<'a>>, FitError> {
            SIZES.iter().map(|size| rows(share, *size)).collect()
        };
        let mut reads = all(Share::ALL)?;
        let writes = all(Share::NONE).ok().map(|writes| {
            let both = reads.iter().zip(&writes);
            let writes: Vec<Rows<'a>> = both.map(|(read, write)| together(write, read)).collect();
            reads = reads.iter().zip(&writes).map(|(read, write)| together(read, write)).collect();
            writes
        });
        let mixes_of = |size| {
            let mixes: Result<Vec<Rows<'a>>, FitError> =
                mix_shares().iter().map(|share| rows(*share, size)).collect();
            let found = mixes.ok().filter(|_| writes.is_some())?;
            let all =
                |own: &Rows<'a>| found.iter().fold(own.clone(), |own, one| together(&own, one));
            let found = found.iter().map(all).collect::<Vec<Rows<'a>>>();
            let both = |point: &&FitPoint| point.reads.ops > 0 && point.writes.ops > 0;
            found.iter().flatten().all(both).then_some(found)
        };
        let small = mixes_of(SMALL);
        let large = small.as_ref().and_then(|_| mixes_of(LARGE));
        let mixes = [small, large];
        Ok(Self { reads, writes, mixes })
    }

    /// The constants from these rows; unmeasured writes are assumed to equal reads.
    pub fn parameters(&self, source: &str, part: Part<'_>) -> FlowParameters {
        let written = self.writes.is_some();
        let writes = self.writes.as_ref().unwrap_or(&self.reads);
        let of_reads = |row: TimesOf| move |p: &FitPoint| part(p, 0, row(&p.reads));
        let of_writes = |row: TimesOf| {
            move |p: &FitPoint| match written {
                true => part(p, 1, row(&p.writes)),
                false => part(p, 0, row(&p.reads)),
            }
        };
        let kind = if written { ConstantKind::Measured } else { ConstantKind::Assumed };
        let assumed = |value| Constant { kind, ..Constant::measured(value, source) };
        let mixes = |place: usize, size| {
            let found = self.mixes[place].as_ref()?;
            Some(FlowMixes {
                size: Some(Constant::measured(size, source)),
                read_shares: Constant::measured(mix_shares().to_vec(), source),
                in_flight: Constant::measured(depths(&found[0]), source),
                read_times: Constant::measured(tables(found, of_reads(times)), source),
                read_means: Constant::measured(tables(found, of_reads(means)), source),
                write_times: Constant::measured(tables(found, of_writes(times)), source),
                write_means: Constant::measured(tables(found, of_writes(means)), source),
            })
        };
        FlowParameters {
            sizes: Constant::measured(SIZES.to_vec(), source),
            in_flight: Constant::measured(self.reads.iter().map(depths).collect(), source),
            percentiles: Constant::measured(PERCENTILES.to_vec(), source),
            read_times: Constant::measured(tables(&self.reads, of_reads(times)), source),
            write_times: assumed(tables(writes, of_writes(times))),
            read_means: Some(Constant::measured(tables(&self.reads, of_reads(means)), source)),
            write_means: Some(assumed(tables(writes, of_writes(means)))),
            thread_time: None,
            thread_time_write: None,
            thread_between: None,
            mixes: mixes(0, SMALL),
            large_mixes: mixes(1, LARGE),
            paced: None,
            rested: None,
            flushes: None,
            alone: None,
        }
    }
}

/// Computes a row from the times of a job.
type TimesOf = fn(&FitTimes) -> Vec<Nanos>;

/// Times by size or share, number in flight and percentile.
fn tables(tables: &[Rows<'_>], row: impl Fn(&FitPoint) -> Vec<Nanos>) -> Vec<Vec<Vec<Nanos>>> {
    tables.iter().map(|rows| rows.iter().map(|point| row(point)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A single-threaded bottleneck must not limit the prediction for several threads.
    #[test]
    fn a_busy_thread_is_no_row_of_several() {
        let point = |queue_depth, threads, iops: u64| {
            let mut reads = FitTimes { ops: iops, ..FitTimes::default() };
            reads.latency.saturating_record(4000);
            let (read_share, block_size, writes) = (Share::ALL, SMALL, FitTimes::default());
            let (rate, seconds) = (None, 1.0);
            FitPoint { read_share, block_size, queue_depth, threads, rate, seconds, reads, writes }
        };
        let points = [
            point(1, 1, 250_000),
            point(2, 1, 310_000),
            point(3, 1, 100_000),
            point(12, 1, 310_000),
            point(1, 4, 1_000_000),
        ];
        let thread = ThreadTime { within: [3000.0; 2], between: 0.0 };
        let several = rows_of_several(&points, Share::ALL, SMALL, thread).unwrap();
        assert_eq!(depths(&several), [1, 3, 4], "one at 2 and at 12 says what its thread takes");
        let one = rows_of_one(&points, Share::ALL, SMALL, thread).unwrap();
        assert_eq!(depths(&one), [1, 2, 3, 12]);
        let alone = rows_of_several(&points[..4], Share::ALL, SMALL, thread).unwrap();
        assert_eq!(depths(&alone), [1, 2, 3, 12], "nothing else is known");
    }
}
