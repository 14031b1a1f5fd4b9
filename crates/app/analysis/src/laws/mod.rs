//! Three laws of Zhang et al. (ICPADS 2018) applied to measurements: the value of memory, the best I/O size,
//! when compression pays.
//!
//! Every term is counted in the run; each law is shown with its error, also where it fails. Invariant: only
//! the law's constant is fitted, at one point, which then has no error.

pub mod compression;
pub mod file_cache;
pub mod granularity;

use stats::TIME_KINDS;
use workload::OpClass;

use crate::groups::Group;

/// Operations of `class` in a group's first trial, warm-up included, like its counters.
fn done(group: &Group<'_>, class: OpClass) -> f64 {
    let of = |interval: &stats::Interval| interval.tallies[class].counts.ops;
    group.first.result.recording.intervals.iter().map(of).sum::<u64>() as f64
}

/// A counter of the server, per transaction.
fn per_transaction(group: &Group<'_>, total: &str) -> Option<f64> {
    let done = done(group, OpClass::Transaction);
    (done > 0.0).then(|| group.first.result.totals.get(total).map(|sum| sum / done)).flatten()
}

/// Mean drive read time in nanoseconds: delivered by an emulated drive, or the kernel's counters; `None`
/// without reads. The kernel's counters begin behind a limit of the study, so the waits of the server's
/// threads are taken there.
fn read_time(group: &Group<'_>) -> Option<f64> {
    let result = &group.first.result;
    let mut stacks = group.run.study.stack.iter();
    let throttled = stacks.any(|one| one.name == group.first.stack && one.limit.is_some());
    let read = TIME_KINDS.iter().position(|kind| *kind == "read");
    let waits = result.server_times().zip(read).map(|(times, read)| times[read] * 1e9);
    match (&result.served, &result.disk) {
        (None, Some(disk)) if throttled => {
            waits.filter(|_| disk.reads > 0).map(|waits| waits / disk.reads as f64)
        }
        (Some(served), _) => {
            (served.reads.requests > 0).then_some(served.reads.delivered_mean_ns as f64)
        }
        (None, Some(disk)) => {
            (disk.reads > 0).then(|| disk.reading_ms as f64 * 1e6 / disk.reads as f64)
        }
        (None, None) => None,
    }
}
