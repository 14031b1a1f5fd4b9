//! Decides whether writes below a device's highest rate are absorbed by a buffer, and their latency then.
//!
//! A closed loop of buffered writes runs at the highest rate from depth 1 on, so it cannot distinguish a
//! buffer from a queue. Scheduled writes can: in a queue they wait for each other, in a buffer they do not.
//!
//! Invariant: points that decide between the two profiles are no evidence for the choice; they are reported
//! separately.

use device::{Constant, ConstantKind, FlowPaced, Profile};
use units::{Nanos, Seed};
use workload::OpClass;

use crate::points::{FitPoint, PACED, SIZES};
use crate::rows::{means, times};
use crate::run::{LOOKED_AT, recording_of};

/// Mean logarithmic error from which on a profile without a buffer is doubted.
const SEEN: f64 = 0.05;
/// Assumed capacity of the buffer, as work: more than bursts at half load need, less than a warm-up fills.
const BACKLOG: Nanos = Nanos::from_millis(5);

/// Measured writes without queueing, by size, from points that the device keeps up with; `None` unless all
/// sizes are among them.
pub(crate) fn rows<'a>(points: &[&'a FitPoint]) -> Option<Vec<&'a FitPoint>> {
    let of_size = |size| {
        let paced = |p: &&FitPoint| p.rate == Some(PACED) && p.block_size == size && !p.held_out();
        points.iter().copied().find(|p| paced(p) && p.writes.ops > 0)
    };
    SIZES.iter().map(|size| of_size(*size)).collect()
}

/// The constants of a buffer with these write latencies.
pub(crate) fn parameters(source: &str, rows: &[&FitPoint]) -> FlowPaced {
    let table = |row: fn(&crate::FitTimes) -> Vec<Nanos>| {
        rows.iter().map(|point| row(&point.writes)).collect()
    };
    FlowPaced {
        write_times: Constant::measured(table(times), source),
        write_means: Constant::measured(table(means), source),
        backlog: Constant {
            value: BACKLOG,
            kind: ConstantKind::Assumed,
            source: "the size of the buffer was not measured".into(),
        },
    }
}

/// Whether scheduled writes are shorter by more than [`SEEN`] than the profile without a buffer predicts, and
/// the one with a buffer at least halves that error on points that it was not fitted to. An effect that makes
/// writes longer, such as a sleeping drive, is not a buffer.
pub(crate) fn buffered(points: &[&FitPoint], with: &Profile, without: &Profile) -> bool {
    let known = |p: &&&FitPoint| p.rate.is_some() && !p.held_out();
    let chosen: Vec<&FitPoint> = points.iter().filter(known).copied().collect();
    let others: Vec<&FitPoint> = chosen.iter().filter(|p| p.rate != Some(PACED)).copied().collect();
    let average = |profile, points: &[&FitPoint], one: fn(f64) -> f64| {
        points.iter().map(|point| one(off(profile, point))).sum::<f64>() / points.len() as f64
    };
    if others.is_empty() {
        return false;
    }
    let too_long = average(without, &chosen, |off| off.max(0.0));
    too_long > SEEN && average(with, &others, f64::abs) < too_long / 2.0
}

/// How far the profile's mean of writes is above the measured one, as a logarithm.
fn off(profile: &Profile, point: &FitPoint) -> f64 {
    let recording = recording_of(profile, point, LOOKED_AT, Seed(3));
    let due = recording.total(Some(OpClass::Write)).due;
    let mean = due.latency_sum.get() as f64 / due.ops.max(1) as f64;
    (mean / point.mean()).ln()
}
