//! The budget of an engine's background work (memtable flushes, compaction, page cleaner, checkpoints): CPUs
//! and bytes; and when checkpoints and vacuums run.
//!
//! Invariant: `None` where a counter is missing, never an estimate.

use archive::TrialRecord;
use stats::TIME_KINDS;
use workload::OpClass;

use crate::groups::is_sql;

/// Mean number of CPUs used by threads that serve no client. A server's other connections count as such.
#[must_use]
pub fn background_cpus(trial: &TrialRecord) -> Option<f64> {
    let result = &trial.result;
    let cpu = |times: [f64; TIME_KINDS.len()]| times[0];
    let (all, clients) = match is_sql(trial) {
        true => (*result.totals.get("server_cpu")?, result.server_times().map(cpu)?),
        false => (result.usage?.cpu().as_secs_f64(), result.client_times().map(cpu)?),
    };
    let seconds = result.recording.intervals.last()?.end.as_secs_f64();
    // A run folder may come from any user.
    Some((all - clients) / seconds).filter(|cpus| cpus.is_finite()).map(|cpus| cpus.max(0.0))
}

/// Bytes that background work wrote, over those written to the drive: RocksDB's flushes and compactions; the
/// pages and the doublewrite buffer of InnoDB. At most 1: the page cache may still hold some.
#[must_use]
pub fn background_written(trial: &TrialRecord) -> Option<f64> {
    let total = |name: &str| trial.result.totals.get(name).copied();
    let own = match trial.engine.as_str() {
        "rocksdb" => total("flush_bytes")? + total("compaction_bytes")?,
        _ => total("page_bytes_written")? + total("doublewrite_bytes").unwrap_or_default(),
    };
    let written = trial.result.disk?.write_bytes;
    Some(own / written as f64).filter(|share| share.is_finite()).map(|share| share.clamp(0.0, 1.0))
}

/// A time in which a server did work of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct Work {
    /// Seconds since the clients began.
    pub from: f64,
    /// Its end; at most one sample late.
    pub to: f64,
    /// What it did.
    pub what: &'static str,
    /// Transactions per second then over those without such work; `None` if there are none.
    pub rate: Option<f64>,
}

/// Counters that are above 0 only while the server does such work.
const WORK: [(&str, &str); 2] = [
    ("checkpoint writes, pages/s", "a checkpoint writes pages"),
    ("vacuums running, 1", "vacuum runs"),
];

/// Checkpoints and vacuums of a trial, in order of time.
#[must_use]
pub fn works(trial: &TrialRecord) -> Vec<Work> {
    let samples = &trial.result.counters;
    let mut out: Vec<Work> = Vec::new();
    for (name, what) in WORK {
        let mut open = false;
        for (before, sample) in samples.iter().zip(samples.iter().skip(1)) {
            let (from, to) = (before.at_ns as f64 / 1e9, sample.at_ns as f64 / 1e9);
            let works = sample.values.get(name).is_some_and(|value| *value > 0.0);
            match (works, open, out.last_mut()) {
                (true, true, Some(work)) => work.to = to,
                (true, ..) => out.push(Work { from, to, what, rate: None }),
                _ => {}
            }
            open = works;
        }
    }
    out.sort_by(|a, b| a.from.total_cmp(&b.from));
    let within = |at: f64, work: &Work| at > work.from && at <= work.to;
    let rate = |wanted: &dyn Fn(f64) -> bool| {
        let (mut done, mut seconds) = (0, 0.0);
        for interval in trial.result.recording.measured() {
            if wanted(f64::midpoint(interval.start.as_secs_f64(), interval.end.as_secs_f64())) {
                done += interval.tallies[OpClass::Transaction].counts.ops;
                seconds += interval.seconds();
            }
        }
        (seconds > 0.0).then(|| done as f64 / seconds)
    };
    let other = rate(&|at| !out.iter().any(|work| within(at, work)));
    let rates: Vec<_> = out.iter().map(|work| rate(&|at| within(at, work))).collect();
    for (work, rate) in out.iter_mut().zip(rates) {
        work.rate = rate.zip(other).map(|(rate, other)| rate / other).filter(|one| one.is_finite());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use stats::{DiskCounters, TimedBy, Usage};
    use units::Nanos;

    /// Compaction that takes a CPU and most of the drive must not look like idle time of the clients.
    #[test]
    fn what_no_client_used_is_background_work() {
        let study = "schema = 2\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n\
                     [[experiment]]\nname = \"e\"\n[experiment.job]\nengine = \"rocksdb\"\nworkload = \
                     \"overwrite\"\nrecords = 1000\nvalue_size = \"100B\"\n";
        let mut run = crate::test_run::run_of(study, Nanos(100_000));
        let trial = &mut run.trials[0];
        assert_eq!((background_cpus(trial), background_written(trial)), (None, None));
        let seconds = trial.result.recording.intervals.last().unwrap().end.as_secs_f64();
        let times = TIME_KINDS.map(|kind| (TimedBy::Observation.name(kind, false), 0.25 * seconds));
        trial.result.totals = times.into();
        let cpu_user_ns = (seconds * 1e9) as u64;
        trial.result.usage = Some(Usage { cpu_user_ns, ..Usage::default() });
        assert!((background_cpus(trial).unwrap() - 0.75).abs() < 1e-6);
        let wrote = [("flush_bytes".to_owned(), 1e6), ("compaction_bytes".to_owned(), 5e6)];
        trial.result.totals.extend(wrote);
        trial.result.disk = Some(DiskCounters { write_bytes: 8_000_000, ..Default::default() });
        assert!((background_written(trial).unwrap() - 0.75).abs() < 1e-9);
        trial.result.totals.insert("flush_bytes".into(), f64::NAN);
        trial.result.totals.insert(TimedBy::Observation.name(TIME_KINDS[0], false), f64::INFINITY);
        assert_eq!((background_cpus(trial), background_written(trial)), (None, None), "edited");
    }
}
