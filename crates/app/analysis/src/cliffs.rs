//! Cliffs of SQL trials: when the rate changed permanently, by how much, and which counters changed with it.
//!
//! Change points come from `stats::cliffs`. Counters of server, device and clients are reported if their
//! means before and after differ beyond chance and by at least 10 %. Totals are divided by transactions,
//! because everything done for transactions follows their rate. Invariant: a named cause changed at that
//! time.

use std::collections::BTreeMap;

use archive::{Run, TrialRecord};
use serde::Serialize;
use stats::CounterSample;
use stats::cliffs::{Course, course};
use units::human_count;
use workload::OpClass;

use crate::groups::is_sql;

/// A cliff with its evidence.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PerformanceDrop {
    /// Trial, stack and parameters.
    pub trial: String,
    /// Title of the stack.
    pub stack: String,
    /// Seconds since the clients began.
    pub at: f64,
    /// Transactions per second.
    pub before: String,
    /// The value after the change.
    pub after: String,
    /// `-54 % (-58 to -50)`.
    pub change: String,
    /// The cause; empty if no counter shows one.
    pub cause: String,
    /// Counters that changed, largest change first: `buffer pool misses per transaction 0.1 -> 12`.
    pub moved: Vec<String>,
    /// The operation classes whose time per transaction changed most.
    pub classes: String,
}

/// A counter that changed.
#[derive(Debug, Clone, PartialEq)]
struct Moved {
    name: String,
    before: f64,
    after: f64,
    /// Size of the change, in natural logarithms.
    size: f64,
}

/// Smallest relative change that is reported.
const MOVED_MIN: f64 = 0.10;
/// Counters that are listed for a cliff.
const MOVED_TOLD: usize = 5;

/// Number of change points (drops and rises) of a trial; `None` if it is not a SQL trial or has too few
/// points.
pub fn count(trial: &TrialRecord) -> Option<f64> {
    is_judged(trial).then(|| found(trial).len() as f64)
}

fn is_judged(trial: &TrialRecord) -> bool {
    is_sql(trial) && course_of(trial) != Course::NotJudged
}

/// Like [`count`], for change points at which the rate fell.
pub fn count_falls(trial: &TrialRecord) -> Option<f64> {
    let fell = |(_, cliff): &&(f64, stats::cliffs::Cliff)| cliff.change < 0.0;
    is_judged(trial).then(|| found(trial).iter().filter(fell).count() as f64)
}

/// The rate over time, and when each part began.
fn rates(trial: &TrialRecord) -> (Vec<f64>, Vec<f64>) {
    let measured = trial.result.recording.measured();
    measured
        .map(|interval| {
            let done = interval.tallies[OpClass::Transaction].counts.ops as f64;
            (interval.start.as_secs_f64(), done / interval.seconds().max(1e-9))
        })
        .unzip()
}

/// The change points of a trial's rate.
#[must_use]
pub fn course_of(trial: &TrialRecord) -> Course {
    course(&rates(trial).1)
}

/// The change points of a trial, each with its time in seconds.
pub fn found(trial: &TrialRecord) -> Vec<(f64, stats::cliffs::Cliff)> {
    let (starts, rates) = rates(trial);
    course(&rates).cliffs().iter().map(|cliff| (starts[cliff.at], *cliff)).collect()
}

/// Every cliff of a run.
pub fn told(run: &Run) -> Vec<PerformanceDrop> {
    let trials = run.trials.iter().filter(|trial| is_sql(trial));
    trials.flat_map(|trial| of_trial(run, trial)).collect()
}

fn of_trial(run: &Run, trial: &TrialRecord) -> Vec<PerformanceDrop> {
    let found = found(trial);
    let (starts, _) = rates(trial);
    let (first, last) = (
        starts.first().copied().unwrap_or(0.0),
        trial.result.recording.measured().last().map_or(0.0, |interval| interval.end.as_secs_f64()),
    );
    let time = |number: Option<usize>, other: f64| {
        number.and_then(|number| found.get(number)).map_or(other, |(at, _)| *at)
    };
    let mut told = Vec::new();
    for (number, (at, cliff)) in found.iter().enumerate() {
        let window = Window {
            from: time(number.checked_sub(1), first),
            at: *at,
            to: time(Some(number + 1), last),
        };
        let moved = moved(trial, &window);
        let percent = |share: f64| format!("{:+.0}", share * 100.0);
        let shown = moved.iter().take(MOVED_TOLD).map(Moved::text);
        told.push(PerformanceDrop {
            trial: trial.slug.clone(),
            stack: trial.stack.clone(),
            at: (at * 10.0).round() / 10.0,
            before: human_count(cliff.before),
            after: human_count(cliff.after),
            change: format!(
                "{} % ({} to {})",
                percent(cliff.change),
                percent(cliff.interval.0),
                percent(cliff.interval.1)
            ),
            cause: rival_ended(run, trial, (*at, cliff))
                .or_else(|| cause(&moved, cliff.change < 0.0))
                .unwrap_or_default(),
            moved: shown.collect(),
            classes: classes(trial, &window),
        });
    }
    told
}

/// A rise within this many seconds of the other racer's end is attributed to that end.
const RIVAL_NEAR: f64 = 3.0;

/// The rate rose because the other racer finished; the counters of this server cannot show that.
fn rival_ended(
    run: &Run,
    trial: &TrialRecord,
    (at, cliff): (f64, &stats::cliffs::Cliff),
) -> Option<String> {
    if cliff.change <= 0.0 || !trial.point.contains_key("race") {
        return None;
    }
    let rival = |other: &&TrialRecord| {
        other.stack != trial.stack
            && (&other.experiment, &other.point) == (&trial.experiment, &trial.point)
            && other.repetition == trial.repetition
    };
    let end = |other: &TrialRecord| {
        other.result.recording.measured().last().map(|interval| interval.end.as_secs_f64())
    };
    let ended = run.trials.iter().filter(rival).filter_map(end);
    let near = |end: f64| (end - at).abs() <= RIVAL_NEAR;
    ended.into_iter().any(near).then(|| "the other racer ended".to_owned())
}

/// The time from the previous change point to the next one.
struct Window {
    from: f64,
    at: f64,
    to: f64,
}

/// Time around a cliff that belongs to neither side: the sampler and the clients do not tick together.
const EDGE: f64 = 0.5;

impl Window {
    /// Returns the side of the cut that a time is on.
    fn side(&self, at: f64) -> Option<usize> {
        let before = at > self.from && at <= self.at - EDGE;
        let after = at > self.at + EDGE && at <= self.to;
        if before { Some(0) } else { after.then_some(1) }
    }
}

impl Moved {
    fn text(&self) -> String {
        let number = |value: f64| {
            if value.abs() >= 1000.0 { human_count(value) } else { format!("{value:.3}") }
        };
        format!("{} {} -> {}", self.name, number(self.before), number(self.after))
    }
}

/// Counters by name, per transaction or absolute, and mean request times from their totals.
fn values(sample: &CounterSample, rate: f64) -> BTreeMap<String, f64> {
    let mut out = BTreeMap::new();
    for (name, value) in &sample.values {
        // Already per transaction, or a time that is divided below.
        if name.starts_with("commits") || name.contains("device read time") {
            continue;
        }
        match name.strip_suffix("/s").map(|name| name.trim_end_matches(", 1")) {
            Some(sum) if !name.contains("CPU") => {
                if rate > 0.0 && !name.contains("time, ms") {
                    out.insert(format!("{sum} a transaction"), value / rate);
                }
            }
            _ => {
                out.insert(name.clone(), *value);
            }
        }
    }
    for kind in ["read", "write"] {
        let get = |name: String| sample.values.get(&name).copied();
        let time = get(format!("device {kind} time, ms/s"));
        let count = get(format!("device {kind}s, 1/s"));
        if let (Some(time), Some(count)) = (time, count)
            && count >= 1.0
        {
            out.insert(format!("device {kind} latency, us"), time / count * 1e3);
        }
    }
    out
}

/// Counters that changed at a cut, largest change first.
fn moved(trial: &TrialRecord, window: &Window) -> Vec<Moved> {
    let mut sides: BTreeMap<String, [Vec<f64>; 2]> = BTreeMap::new();
    for sample in &trial.result.counters {
        let at = sample.at_ns as f64 / 1e9;
        let Some(side) = window.side(at) else { continue };
        let rate = rate_at(trial, at);
        for (name, value) in values(sample, rate) {
            sides.entry(name).or_default()[side].push(value);
        }
    }
    let mut out = Vec::new();
    for (name, [before, after]) in sides {
        let (Some(a), Some(b)) = (Side::of(&name, &before), Side::of(&name, &after)) else {
            continue;
        };
        let larger = a.mean.abs().max(b.mean.abs());
        let (difference, error) =
            ((b.mean - a.mean).abs(), (a.error.powi(2) + b.error.powi(2)).sqrt());
        // With this many counters, a threshold of two standard errors would name one in twenty by chance.
        if larger <= 0.0 || difference / larger < MOVED_MIN || difference < MOVED_ERRORS * error {
            continue;
        }
        let floor = larger * 1e-3;
        let size = (b.mean.abs().max(floor) / a.mean.abs().max(floor)).ln().abs();
        out.push(Moved { name, before: a.mean, after: b.mean, size });
    }
    out.sort_by(|a, b| b.size.total_cmp(&a.size));
    out
}

/// Settings have no noise: two equal samples are enough, also between cuts that are too close for the mean of
/// a counter.
const SETTINGS: [&str; 1] = ["buffer pool, pages"];

/// Standard errors by which a counter must change.
const MOVED_ERRORS: f64 = 4.0;

/// Mean and standard error of one side.
struct Side {
    mean: f64,
    error: f64,
}

impl Side {
    /// `None` with too few samples. Neighbouring samples are correlated, so several count as one.
    fn of(name: &str, values: &[f64]) -> Option<Self> {
        if let [first, rest @ ..] = values
            && SETTINGS.contains(&name)
            && !rest.is_empty()
            && rest.iter().all(|value| value == first)
        {
            return Some(Self { mean: *first, error: 0.0 });
        }
        let (mean, error) = stats::estimate::mean_of_few(values)?;
        Some(Self { mean, error })
    }
}

/// Transactions per second in the interval that holds `at`, or the one that ended last.
fn rate_at(trial: &TrialRecord, at: f64) -> f64 {
    let mut before = trial.result.recording.intervals.iter().filter(|i| i.start.as_secs_f64() < at);
    before.next_back().map_or(0.0, |interval| {
        let done = interval.tallies[OpClass::Transaction].counts.ops as f64;
        done / interval.seconds().max(1e-9)
    })
}

/// Counters that explain a fall if they grew by this factor, in order.
const GREW: [(&str, f64, &str); 6] = [
    ("checkpoint age, B", 1.3, "the redo log filled: pages are flushed to move the checkpoint"),
    (
        "full pages logged",
        1.5,
        "a checkpoint began: each page's first change after it is logged whole",
    ),
    ("checkpoints running", 1.5, "a checkpoint writes the changed pages"),
    ("vacuums running", 1.5, "vacuum reads and writes the tables"),
    ("waits for a free page", 2.0, "clients wait for free pages in the buffer pool"),
    ("row lock waits", 2.0, "transactions wait for each other's rows"),
];

/// A cause in words, by the first counter in this order that shows one.
fn cause(moved: &[Moved], fell: bool) -> Option<String> {
    let of = |name: &str| moved.iter().find(|one| one.name.starts_with(name));
    let rose = |one: &Moved, times: f64| one.after > one.before * times;
    if let Some(pool) = of("buffer pool, pages") {
        let word = if pool.after < pool.before { "made smaller" } else { "made larger" };
        return Some(format!("the buffer pool was {word}"));
    }
    if let Some(free) = of("buffer pool free, pages")
        && free.after < free.before / 5.0
        && fell
    {
        return Some("the buffer pool filled: pages are evicted from here on".into());
    }
    for kind in ["read", "write"] {
        if let Some(latency) = of(&format!("device {kind} latency"))
            && fell
            && rose(latency, 1.5)
        {
            return Some(format!(
                "the device became slower: a {kind} took {:.1} times as long",
                latency.after / latency.before.max(1e-9)
            ));
        }
    }
    for (counter, times, cause) in GREW {
        if of(counter).is_some_and(|one| rose(one, times)) && fell {
            return Some(cause.into());
        }
    }
    if let Some(misses) = of("buffer pool misses") {
        match (fell, misses.after > misses.before) {
            (true, true) => return Some("more pages were not in the buffer pool".into()),
            (false, false) => return Some("more pages were in the buffer pool".into()),
            _ => {}
        }
    }
    let written = of("device written")?;
    match (fell, written.after > written.before) {
        (true, true) => Some("a transaction wrote more to the device".into()),
        (false, false) => Some("a transaction wrote less to the device".into()),
        _ => None,
    }
}

/// The three statement classes whose time per transaction changed most.
fn classes(trial: &TrialRecord, window: &Window) -> String {
    let time = |class: OpClass, side: usize| {
        let mut sum = (0.0, 0.0);
        for interval in trial.result.recording.measured() {
            if window.side(interval.end.as_secs_f64()) == Some(side) {
                sum.0 += interval.tallies[class].counts.latency_sum.as_secs_f64();
                sum.1 += interval.tallies[OpClass::Transaction].counts.ops as f64;
            }
        }
        sum.0 / f64::max(sum.1, 1.0) * 1e3
    };
    let mut changes: Vec<(OpClass, f64, f64)> = OpClass::STATEMENTS
        .into_iter()
        .map(|class| (class, time(class, 0), time(class, 1)))
        .filter(|(_, before, after)| (after - before).abs() > 0.0)
        .collect();
    changes.sort_by(|a, b| (b.2 - b.1).abs().total_cmp(&(a.2 - a.1).abs()));
    let text = |(class, before, after): &(OpClass, f64, f64)| {
        format!("{} {before:.2} -> {after:.2} ms", class.word())
    };
    changes.iter().take(3).map(text).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, before: f64, after: f64) -> Moved {
        Moved { name: name.into(), before, after, size: (after / before).ln().abs() }
    }

    /// A wrong cause would send the reader to the wrong part of the stack.
    #[test]
    fn causes_are_named_by_what_shows_them() {
        let misses = one("buffer pool misses, pages a transaction", 0.1, 8.0);
        let pool = one("buffer pool, pages", 4000.0, 500.0);
        let both = [misses.clone(), pool];
        assert_eq!(cause(&both, true).as_deref(), Some("the buffer pool was made smaller"));
        let slow = [one("device read latency, us", 90.0, 2000.0), misses.clone()];
        assert!(cause(&slow, true).unwrap().contains("the device became slower"));
        assert!(cause(&[misses], true).unwrap().contains("not in the buffer pool"));
        assert_eq!(cause(&[one("threads running, 1", 2.0, 9.0)], true), None);
        let whole = one("full pages logged a transaction", 0.1, 0.9);
        assert!(cause(std::slice::from_ref(&whole), true).unwrap().contains("checkpoint began"));
        assert_eq!(cause(&[whole], false), None, "a rate does not rise because more is logged");
        // Paced by time: with half of the transactions twice as many for each.
        let paced = one("checkpoint writes a transaction", 1.0, 2.0);
        assert_eq!(cause(&[paced], true), None);
    }

    /// A background load that lowers the rate just before the planted change must not hide the planted cause.
    #[test]
    fn a_setting_is_known_from_two_samples_and_a_count_is_not() {
        let setting = Side::of("buffer pool, pages", &[4000.0, 4000.0]).expect("a setting");
        assert_eq!((setting.mean, setting.error), (4000.0, 0.0));
        assert!(Side::of("buffer pool, pages", &[4000.0]).is_none());
        assert!(Side::of("buffer pool, pages", &[4000.0, 3000.0]).is_none());
        assert!(Side::of("row lock waits a transaction", &[0.0, 0.0]).is_none());
    }

    /// Work that is proportional to transactions falls with their rate and must not be named as the cause.
    #[test]
    fn sums_are_taken_a_transaction() {
        let pairs = [
            ("pages read, 1/s", 500.0),
            ("buffer pool dirty, pages", 70.0),
            ("device reads, 1/s", 100.0),
            ("device read time, ms/s", 20.0),
        ];
        let values_of = pairs.map(|(name, value)| (name.to_owned(), value)).into();
        let found = values(&CounterSample { at_ns: 0, values: values_of }, 50.0);
        assert_eq!(found["pages read a transaction"], 10.0);
        assert_eq!(found["buffer pool dirty, pages"], 70.0);
        assert_eq!(found["device read latency, us"], 200.0);
    }
}
