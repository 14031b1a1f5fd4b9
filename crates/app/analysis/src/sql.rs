//! Figures of SQL trials: query rates, CPU of both sides, buffer pool, writes by cause, cliffs and
//! races.
//!
//! Invariant: computed from the archive alone.

use std::collections::BTreeMap;

use archive::{RACERS, Run, TrialOutcome, TrialRecord};
use indexmap::IndexMap;
use stats::estimate::{Estimate, over_values};
use workload::OpClass;

use crate::groups::{Group, Ops, is_sql};

/// Fields of a figure: operations, metric, unit, value.
pub type Made = (&'static str, &'static str, &'static str, Estimate);

/// Counters of a server with their units.
const TOTALS: [(&str, &str); 13] = [
    ("buffer_pool_hit_ratio", "%"),
    ("buffer_pool_requests", "pages"),
    ("buffer_pool_misses", "pages"),
    ("page_bytes_written", "B"),
    ("doublewrite_bytes", "B"),
    ("data_bytes_written", "B"),
    ("redo_bytes", "B"),
    ("fsyncs", "count"),
    ("row_lock_waits", "count"),
    ("server_cpu", "s"),
    ("server_bytes_read", "B"),
    ("server_bytes_written", "B"),
    ("transactions_given_up", "count"),
];

/// Statements in one interval.
pub fn queries(interval: &stats::Interval) -> u64 {
    OpClass::STATEMENTS.iter().map(|class| interval.tallies[*class].counts.ops).sum()
}

/// The figures of `group`, if it is a SQL group.
pub fn sql_figures(group: &Group<'_>) -> Vec<Made> {
    if !is_sql(group.first) {
        return Vec::new();
    }
    let mut out: Vec<Made> = Vec::new();
    out.extend(group.a_second(queries).map(|rate| ("all", "query_rate", "1/s", rate)));
    let speedup = speedup(group.run, group);
    out.extend(speedup.map(|estimate| ("transaction", "speedup", "x", estimate)));
    let mut add = |op, metric, unit, value: &dyn Fn(&TrialRecord) -> Option<f64>| {
        out.extend(group.over_trials(value).map(|estimate| (op, metric, unit, estimate)));
    };
    let all = |trial: &TrialRecord| -> f64 {
        trial.result.recording.intervals.iter().map(queries).sum::<u64>() as f64
    };
    add("all", "cpu_per_query", "us", &|trial| {
        Some(trial.result.usage.as_ref()?.cpu().get() as f64 / 1e3 / all(trial).max(1.0))
    });
    add("all", "server_cpu_per_query", "us", &|trial| {
        Some(trial.result.totals.get("server_cpu")? * 1e6 / all(trial).max(1.0))
    });
    for (metric, unit) in TOTALS {
        add("all", metric, unit, &|trial| trial.result.totals.get(metric).copied());
    }
    add("transaction", "cliffs", "count", &crate::cliffs::count);
    add("transaction", "cliffs_down", "count", &crate::cliffs::count_falls);
    add("transaction", "race_time", "s", &race_time);
    for (metric, unit, value) in AMPLIFICATIONS {
        add("all", metric, unit, &|trial| value(trial).filter(|value| value.is_finite()));
    }
    out
}

/// Time that a racer took; `None` if it did not race or did not finish.
fn race_time(trial: &TrialRecord) -> Option<f64> {
    let raced = trial.point.contains_key("race") && trial.outcome == TrialOutcome::Complete;
    let done = trial.result.recording.total(Some(OpClass::Transaction)).counts.ops;
    let wanted = trial.point.get("operations")?.parse::<u64>().ok()?;
    (raced && done >= wanted).then(|| trial.result.recording.seconds())
}

type Point = BTreeMap<String, String>;

/// Identifies a race: experiment and point.
fn what(trial: &TrialRecord) -> (&str, &Point) {
    (&trial.experiment, &trial.point)
}

/// A race that all racers finished.
pub struct Race<'a> {
    /// The experiment and its point.
    what: (&'a str, &'a Point),
    /// Transactions of each client.
    pub transactions: f64,
    /// Stacks in the order of the plan, with the seconds of each repetition.
    pub racers: IndexMap<&'a str, Vec<f64>>,
}

/// Whether a racer started together with all racers of its race in this run; assumed in older runs.
fn raced_with_all(run: &Run, trial: &TrialRecord) -> bool {
    let of =
        |other: &&TrialRecord| what(other) == what(trial) && other.repetition == trial.repetition;
    let all = run.trials.iter().filter(of).count();
    trial.result.totals.get(RACERS).is_none_or(|together| *together == all as f64)
}

/// The races of a run.
pub fn races(run: &Run) -> Vec<Race<'_>> {
    let mut out: IndexMap<_, Race<'_>> = IndexMap::new();
    for trial in &run.trials {
        let Some(time) = race_time(trial).filter(|_| raced_with_all(run, trial)) else { continue };
        let race = out.entry(what(trial)).or_insert_with(|| {
            let wanted = trial.point.get("operations").and_then(|text| text.parse().ok());
            let transactions = wanted.unwrap_or(0.0);
            Race { what: what(trial), transactions, racers: IndexMap::new() }
        });
        race.racers.entry(&trial.stack).or_default().push(time);
    }
    out.into_values().filter(|race| race.racers.len() > 1).collect()
}

/// Time of the slowest racer divided by that of `group`, per repetition. The slowest is chosen once, by its
/// mean, to avoid selection bias.
pub fn speedup(run: &Run, group: &Group<'_>) -> Option<Estimate> {
    let races = races(run);
    let race = races.iter().find(|race| race.what == what(group.first))?;
    let own = race.racers.get(group.first.stack.as_str())?;
    let mean = |times: &[f64]| times.iter().map(|time| time.ln()).sum::<f64>() / times.len() as f64;
    let (_, slowest) = race.racers.iter().max_by(|(_, a), (_, b)| mean(a).total_cmp(&mean(b)))?;
    let ratios: Vec<f64> =
        own.iter().zip(slowest).map(|(own, slowest)| slowest / own.max(1e-9)).collect();
    over_values(&ratios)
}

/// Name of the parameter; omitted from a point at its default of 16 KiB.
pub const PAGE_SIZE: &str = "page_size";

/// Among groups that differ in page size only, the one with the most transactions per second, its size in
/// KiB, and the number of sizes.
pub fn best_page_sizes<'a, 'b>(groups: &'a [Group<'b>]) -> Vec<(&'a Group<'b>, f64, u64)> {
    let mut best: Vec<(String, &Group<'_>, f64, u64)> = Vec::new();
    for group in groups.iter().filter(|group| is_sql(group.first)) {
        let Some(rate) = group.rate(Ops::Only(OpClass::Transaction)) else { continue };
        let mut point = group.first.point.clone();
        point.remove(PAGE_SIZE);
        let key = format!("{} {} {point:?}", group.first.experiment, group.first.stack);
        match best.iter_mut().find(|(other, ..)| *other == key) {
            Some(entry) => {
                entry.3 += 1;
                if rate.value > entry.2 {
                    (entry.1, entry.2) = (group, rate.value);
                }
            }
            None => best.push((key, group, rate.value, 1)),
        }
    }
    let size = |group: &Group<'_>| {
        let text = group.first.point.get(PAGE_SIZE).map_or("16KiB", String::as_str);
        text.parse::<units::Bytes>().map_or(0.0, |bytes| bytes.get() as f64 / 1024.0)
    };
    let swept = best.into_iter().filter(|(.., tried)| *tried > 1);
    swept.map(|(_, group, _, tried)| (group, size(group), tried)).collect()
}

type Ratio = fn(&TrialRecord) -> Option<f64>;

/// Write amplification: engine writes (pages, doublewrite, redo log) over bytes of changed columns; process
/// writes over engine writes; their product; process bytes written per transaction.
const AMPLIFICATIONS: [(&str, &str, Ratio); 4] = [
    ("engine_write_amplification", "x", |trial| Some(engine_bytes(trial)? / changed(trial)?)),
    ("padding_write_amplification", "x", |trial| {
        Some(trial.result.totals.get("server_bytes_written")? / engine_bytes(trial)?)
    }),
    ("host_write_amplification", "x", |trial| {
        Some(trial.result.totals.get("server_bytes_written")? / changed(trial)?)
    }),
    ("host_bytes_per_transaction", "B", |trial| {
        let done = |i: &stats::Interval| i.tallies[OpClass::Transaction].counts.ops;
        let done: u64 = trial.result.recording.intervals.iter().map(done).sum();
        Some(trial.result.totals.get("server_bytes_written")? / done as f64)
    }),
];

fn engine_bytes(trial: &TrialRecord) -> Option<f64> {
    Some(trial.result.totals.get("data_bytes_written")? + trial.result.totals.get("redo_bytes")?)
}

/// Bytes of columns that transactions changed; `None` when they changed none.
fn changed(trial: &TrialRecord) -> Option<f64> {
    let of = |i: &stats::Interval| i.tallies[OpClass::Transaction].counts.bytes;
    let bytes: u64 = trial.result.recording.intervals.iter().map(of).sum();
    (bytes > 0).then_some(bytes as f64)
}
