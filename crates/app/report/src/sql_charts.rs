//! Charts of SQL trials: parts of a transaction over time, races, sweeps of tuning parameters.
//!
//! Invariant: performance drops are drawn at the time at which they were found.

use archive::{Run, TrialRecord};
use indexmap::IndexMap;
use workload::OpClass;

use crate::chart::{Chart, ChartLine, Sweep, short};
use crate::hue::Hues;
use analysis::cliffs::found;
use analysis::sql::queries;
use analysis::{Group, Ops, is_sql};

/// Parameters that SQL experiments sweep, with the axis label.
const SWEPT: [(&str, &str); 3] = [
    ("clients", "connections"),
    ("buffer_pool", "buffer pool (MiB, or % of the tables)"),
    ("page_size", "page size, KiB"),
];
/// Parameters without a number: each value becomes part of a line's label.
const NAMED: [&str; 6] =
    ["workload", "compression", "doublewrite", "flush_method", "durability", "distribution"];

/// Transactions per second over each parameter that varies, one line per stack and other parameters.
pub(crate) fn sql_sweeps(hues: &Hues, title: &str, groups: &[&Group<'_>]) -> Vec<Sweep> {
    let groups: Vec<&Group<'_>> =
        groups.iter().copied().filter(|group| is_sql(group.first)).collect();
    let mut out = Vec::new();
    for (name, words) in SWEPT {
        let mut lines: IndexMap<String, ChartLine> = IndexMap::new();
        for group in &groups {
            let Some(x) = value_of(group, name) else { continue };
            let Some(rate) = group.rate(Ops::Only(OpClass::Transaction)) else { continue };
            let words = other_words(group, &groups, name);
            let label = format!("{}{words}", short(group.stack_title()));
            let point = vec![x, rate.value];
            let begun = || ChartLine::of(hues, group, label.clone(), Vec::new());
            lines.entry(label.clone()).or_insert_with(begun).points.push(point);
        }
        lines.retain(|_, line| line.points.len() > 1);
        for line in lines.values_mut() {
            line.points.sort_by(|a, b| a[0].total_cmp(&b[0]));
        }
        if !lines.is_empty() {
            out.push(Sweep {
                title: format!("{title}: transactions per second"),
                x: words,
                y: "transactions/s",
                xlog: true,
                ylog: false,
                lines: lines.into_values().collect(),
            });
        }
    }
    out
}

/// The value of a parameter: MiB or percent for a buffer pool, KiB for a page.
fn value_of(group: &Group<'_>, name: &str) -> Option<f64> {
    let Some(text) = group.first.point.get(name) else {
        // An omitted parameter has its default.
        return (name == "page_size").then_some(16.0);
    };
    if let Some(percent) = text.strip_suffix('%') {
        return percent.parse().ok();
    }
    let unit = if name == "buffer_pool" { 1048576.0 } else { 1024.0 };
    match text.parse::<f64>() {
        Ok(number) => Some(number),
        Err(_) => text.parse::<units::Bytes>().ok().map(|bytes| bytes.get() as f64 / unit),
    }
}

/// Other varying parameters, as words for a label.
fn other_words(group: &Group<'_>, all: &[&Group<'_>], axis: &str) -> String {
    let names =
        NAMED.iter().chain(SWEPT.iter().map(|(name, _)| name)).filter(|name| **name != axis);
    let mut words = String::new();
    for name in names {
        let value = |group: &Group<'_>| group.first.point.get(*name).cloned();
        let own = value(group);
        if all.iter().any(|other| value(other) != own) {
            words.push_str(&format!(
                ", {}",
                own.unwrap_or_else(|| format!("{name} order by default"))
            ));
        }
    }
    words
}

/// Maximum number of trials whose time by statement is drawn; those with the most cliffs first.
const DRAWN_MAX: usize = 12;

/// Time of a transaction by statement, with performance drops, for each SQL trial.
pub(crate) fn phases(run: &Run) -> Vec<Chart> {
    let mut trials: Vec<&TrialRecord> =
        run.trials.iter().filter(|trial| is_sql(trial) && trial.repetition == 1).collect();
    trials.sort_by_cached_key(|trial| std::cmp::Reverse(found(trial).len()));
    trials.truncate(DRAWN_MAX);
    trials.sort_by_key(|trial| trial.number);
    trials.into_iter().map(time_by_class).collect()
}

/// Milliseconds per transaction by class, over time; a performance drop is a vertical line.
fn time_by_class(trial: &TrialRecord) -> Chart {
    let shown = |i: &&stats::Interval| i.phase != stats::Phase::Drain;
    let intervals: Vec<&stats::Interval> =
        trial.result.recording.intervals.iter().filter(shown).collect();
    let classes = OpClass::STATEMENTS.into_iter().enumerate();
    let mut lines = Vec::new();
    let mut highest = 0.0f64;
    for (color, class) in classes {
        let point = |interval: &&stats::Interval| {
            let done = interval.tallies[OpClass::Transaction].counts.ops;
            let time = interval.tallies[class].counts.latency_sum.as_secs_f64() * 1e3;
            (done > 0).then(|| vec![interval.end.as_secs_f64(), time / done as f64])
        };
        let points: Vec<Vec<f64>> = intervals.iter().filter_map(point).collect();
        if points.iter().any(|point| point[1] > 0.0) {
            highest = points.iter().map(|point| point[1]).fold(highest, f64::max);
            let (label, source) = (class.word().to_owned(), trial.source);
            lines.push(ChartLine { label, source, color, points });
        }
    }
    for (at, cliff) in found(trial) {
        lines.push(ChartLine {
            label: format!("cliff {:+.0} %", cliff.change * 100.0),
            source: trial.source,
            color: OpClass::STATEMENTS.len(),
            points: vec![vec![at, 0.0], vec![at, highest]],
        });
    }
    let title = format!("{}: time of a transaction by statement, ms", trial.slug);
    Chart { title, lines }
}

/// Queries per second of the stacks of each race, over the same time.
pub(crate) fn races(run: &Run, hues: &Hues) -> Vec<Chart> {
    let mut charts: IndexMap<String, Chart> = IndexMap::new();
    for trial in run.trials.iter().filter(|trial| trial.point.contains_key("race") && is_sql(trial))
    {
        let place = run.header.stacks.iter().position(|stack| stack.name == trial.stack);
        let stack = place.map(|place| &run.header.stacks[place]);
        let title = stack.map_or(trial.stack.as_str(), |stack| short(&stack.title));
        let time: f64 = trial.result.recording.seconds();
        let drawn = |i: &&stats::Interval| i.phase != stats::Phase::Drain;
        let intervals = trial.result.recording.intervals.iter().filter(drawn);
        let point = |interval: &stats::Interval| {
            vec![
                interval.end.as_secs_f64(),
                queries(interval) as f64 / interval.seconds().max(1e-9),
            ]
        };
        let line = ChartLine {
            label: format!("{title}: {time:.0} s"),
            source: trial.source,
            color: hues.get(&trial.stack),
            points: intervals.map(point).collect(),
        };
        let key = format!("{} {:?} {}", trial.experiment, trial.point, trial.repetition);
        let (experiment, race) = (&trial.experiment, trial.repetition);
        let title = || format!("{experiment}: queries per second until done, race {race}");
        let begun = || Chart { title: title(), lines: Vec::new() };
        charts.entry(key).or_insert_with(begun).lines.push(line);
    }
    charts.into_values().collect()
}
