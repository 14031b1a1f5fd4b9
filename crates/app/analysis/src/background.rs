//! The budget of an engine's background work (memtable flushes, compaction, page cleaner, checkpoints): CPUs
//! and bytes; and when checkpoints and vacuums run.
//!
//! Invariant: `None` where a counter is missing, never an estimate.

use archive::TrialRecord;
use stats::{Interval, TIME_KINDS};
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
pub struct ServerWork {
    /// Seconds since the clients began: the sample before the first that shows it.
    pub from: f64,
    /// The last sample that shows it.
    pub to: f64,
    /// What it did.
    pub what: &'static str,
    /// Transactions per second in that time over those of the times without such work. `None` for few
    /// intervals on either side, next to other work, and if the study sets the rate.
    pub rate: Option<f64>,
}

/// Gauges that are above 0 only while the server does such work.
const WORK: [(&str, &str); 2] =
    [("checkpoints running, 1", "checkpoint"), ("vacuums running, 1", "vacuum")];
/// Fewer intervals have no meaningful rate.
const INTERVALS_MIN: usize = 4;

/// Checkpoints and vacuums of a trial, in order of time.
#[must_use]
pub fn server_work(trial: &TrialRecord) -> Vec<ServerWork> {
    let mut out: Vec<ServerWork> = WORK.iter().flat_map(|work| spans(trial, *work)).collect();
    out.sort_by(|a, b| a.from.total_cmp(&b.from));
    if trial.point.contains_key("rate") {
        return out;
    }
    let within = |at: f64, work: &ServerWork| at > work.from && at <= work.to;
    let other = mean_rate(trial, &|at| !out.iter().any(|work| within(at, work)));
    let alone = |work: &ServerWork| {
        out.iter().filter(|one| one.from < work.to && work.from < one.to).count() == 1
    };
    let rate = |work: &ServerWork| {
        let own = mean_rate(trial, &|at| within(at, work));
        own.zip(other).filter(|_| alone(work)).map(|(own, other)| own / other)
    };
    let rates: Vec<Option<f64>> = out.iter().map(rate).collect();
    out.iter_mut().zip(rates).for_each(|(work, rate)| work.rate = rate);
    out
}

/// Times in which a gauge is above 0.
fn spans(trial: &TrialRecord, (gauge, what): (&str, &'static str)) -> Vec<ServerWork> {
    let samples = &trial.result.counters;
    let (mut out, mut open) = (Vec::<ServerWork>::new(), false);
    for (before, sample) in samples.iter().zip(samples.iter().skip(1)) {
        let (from, to) = (before.at_ns as f64 / 1e9, sample.at_ns as f64 / 1e9);
        let works = sample.values.get(gauge).is_some_and(|value| *value > 0.0);
        match out.last_mut() {
            Some(work) if works && open => work.to = to,
            _ if works => out.push(ServerWork { from, to, what, rate: None }),
            _ => {}
        }
        open = works;
    }
    out
}

/// Transactions per second in the intervals whose middle is wanted.
fn mean_rate(trial: &TrialRecord, wanted: &dyn Fn(f64) -> bool) -> Option<f64> {
    let middle = |one: &Interval| f64::midpoint(one.start.as_secs_f64(), one.end.as_secs_f64());
    let measured = trial.result.recording.measured();
    let wanted: Vec<&Interval> = measured.filter(|one| wanted(middle(one))).collect();
    let done: u64 = wanted.iter().map(|one| one.tallies[OpClass::Transaction].counts.ops).sum();
    let seconds: f64 = wanted.iter().map(|one| one.seconds()).sum();
    Some(done as f64 / seconds).filter(|rate| wanted.len() >= INTERVALS_MIN && *rate > 0.0)
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

    /// A checkpoint drawn at another time, or blamed for a dip by one interval, would mislead.
    #[test]
    fn work_of_the_server_is_found_with_its_rate() {
        let study = "schema = 2\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n\
                     [[experiment]]\nname = \"e\"\n[experiment.job]\nengine = \"rocksdb\"\nworkload = \
                     \"overwrite\"\nrecords = 1000\nvalue_size = \"100B\"\n";
        let mut run = crate::test_run::run_of(study, Nanos(100_000));
        let trial = &mut run.trials[0];
        let step = 0.25;
        let first = trial.result.recording.measured().next().unwrap().clone();
        let at = |number: usize| Nanos((number as f64 * step * 1e9) as u64);
        // Half as fast while a checkpoint runs in the first five of ten intervals.
        let interval = |number: usize| {
            let (start, end) = (at(number), at(number + 1));
            let mut interval = Interval { start, end, ..first.clone() };
            interval.tallies.of(OpClass::Transaction).counts.ops =
                if number < 5 { 50 } else { 100 };
            interval
        };
        trial.result.recording.intervals = (0..10).map(interval).collect();
        let samples = |ends: usize| {
            let sample = |number: usize| {
                let running = f64::from(u8::from(number > 0 && number <= ends));
                let values = [("checkpoints running, 1".to_owned(), running)].into();
                stats::CounterSample { at_ns: at(number).get(), values }
            };
            (0..=10).map(sample).collect::<Vec<_>>()
        };
        trial.result.counters = samples(5);
        let found = server_work(trial);
        let whole = (found.len(), found[0].what, found[0].from, found[0].to);
        assert_eq!(whole, (1, "checkpoint", 0.0, 5.0 * step));
        assert!((found[0].rate.unwrap() - 0.5).abs() < 1e-9, "{found:?}");
        trial.result.counters = samples(2);
        assert_eq!(server_work(trial)[0].rate, None, "two intervals");
        trial.result.counters = samples(5);
        trial.point.insert("rate".into(), "100/s".into());
        assert_eq!(server_work(trial)[0].rate, None, "the study sets the rate");
    }
}
