//! What the page's script draws: curves, spectra and time series as plain numbers.
//!
//! Invariants: a series has one source; a spectrum ends where the samples end. What it is not: drawing.

use archive::Run;
use serde::Serialize;
use stats::estimate::SAMPLES_BEYOND_MIN;
use workload::OpClass;

use crate::answer::{depth_of, short};
use crate::groups::{Group, Ops, groups};

/// Everything that is drawn, by kind.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Charts {
    /// Latency over IOPS, one mark a queue depth.
    pub curves: Vec<Chart>,
    /// Latency over percentile.
    pub spectra: Vec<Chart>,
    /// Rate over time.
    pub series: Vec<Chart>,
}

/// One chart.
#[derive(Debug, Serialize)]
pub(crate) struct Chart {
    pub title: String,
    pub lines: Vec<Line>,
}

/// One line of a chart.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    pub label: String,
    pub source: String,
    /// Place of the stack in the study: its colour.
    pub color: usize,
    /// `[x, y]`; curves add the queue depth and the 99th percentile: `[iops, p50, depth, p99]`.
    pub points: Vec<Vec<f64>>,
}

/// Quarter decades of a spectrum: from the median's neighbourhood to 99.9999 %.
const SPECTRUM_STEPS: u32 = 24;

/// The charts of one run.
pub(crate) fn charts(run: &Run) -> Charts {
    let groups = groups(run);
    let mut charts = Charts::default();
    for experiment in &run.study.experiment {
        let of_it: Vec<&Group<'_>> =
            groups.iter().filter(|group| group.first.experiment == experiment.name).collect();
        if of_it.is_empty() {
            continue;
        }
        let title = if experiment.title.is_empty() { &experiment.name } else { &experiment.title };
        curve_charts(run, title, &of_it, &mut charts.curves);
        for class in OpClass::ALL {
            let shown = last_points(&of_it, Ops::Only(class));
            if shown.is_empty() {
                continue;
            }
            let depth = depth_of(shown[0]);
            let varies = of_it.iter().any(|group| depth_of(group) != depth);
            let at = if varies { format!(" at queue depth {depth}") } else { String::new() };
            let title = format!("{title}: {}s{at}", class.word());
            charts.spectra.push(Chart {
                title: title.clone(),
                lines: shown.iter().map(|group| spectrum(run, group, class)).collect(),
            });
            charts.series.push(Chart {
                title,
                lines: shown.iter().map(|group| series(run, group, class)).collect(),
            });
        }
    }
    charts
}

fn color(run: &Run, group: &Group<'_>) -> usize {
    // Engines on one stack need colours of their own.
    let stack = run.header.stacks.iter().position(|stack| stack.name == group.first.stack);
    let engine = usize::from(group.first.engine == "sqlite");
    stack.unwrap_or(0) + engine
}

fn label(group: &Group<'_>) -> String {
    let stack = short(group.stack_title());
    if group.first.engine == "block" {
        stack.to_owned()
    } else {
        let readers = group.first.point.get("readers").map_or("", String::as_str);
        format!("{} on {stack}, {readers} readers", group.first.engine)
    }
}

/// Of each stack and engine, the group with the most in flight that has operations of that kind.
fn last_points<'a, 'b>(groups: &[&'a Group<'b>], ops: Ops) -> Vec<&'a Group<'b>> {
    let mut last: Vec<&'a Group<'b>> = Vec::new();
    for group in groups.iter().copied().filter(|group| group.classes().contains(&ops)) {
        let same = |other: &&'a Group<'b>| {
            other.first.stack == group.first.stack && other.first.engine == group.first.engine
        };
        match last.iter().position(same) {
            Some(place) => last[place] = group,
            None => last.push(group),
        }
    }
    last
}

/// One chart for each combination of the other parameters, if queue depth varies.
fn curve_charts(run: &Run, title: &str, groups: &[&Group<'_>], out: &mut Vec<Chart>) {
    let mut keys: Vec<Vec<(String, String)>> = Vec::new();
    let key_of = |group: &Group<'_>| -> Vec<(String, String)> {
        let others = group.first.point.iter().filter(|(name, _)| *name != "queue_depth");
        others.map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    for group in groups.iter().filter(|group| group.first.engine == "block") {
        if !keys.contains(&key_of(group)) {
            keys.push(key_of(group));
        }
    }
    for key in &keys {
        let mut lines: Vec<Line> = Vec::new();
        for group in groups.iter().filter(|group| key_of(group) == *key) {
            let Some(&ops) = group.classes().first() else {
                continue;
            };
            let (Some(rate), Ok(p50)) = (group.rate(ops), group.percentile(ops, 50.0)) else {
                continue;
            };
            let p99 = group.percentile(ops, 99.0).map_or(p50.value, |e| e.value);
            let point = vec![rate.value, p50.value / 1e3, depth_of(group) as f64, p99 / 1e3];
            let name = label(group);
            match lines.iter_mut().find(|line| line.label == name) {
                Some(line) => line.points.push(point),
                None => lines.push(Line {
                    label: name,
                    source: group.first.source.clone(),
                    color: color(run, group),
                    points: vec![point],
                }),
            }
        }
        if lines.iter().any(|line| line.points.len() > 1) {
            let suffix = if keys.len() > 1 {
                let words: Vec<_> = key.iter().map(|(_, value)| value.as_str()).collect();
                format!(" ({})", words.join(", "))
            } else {
                String::new()
            };
            out.push(Chart { title: format!("{title}{suffix}"), lines });
        }
    }
}

/// `[1 / (1 - p), microseconds]` up to the last percentile that the samples support.
fn spectrum(run: &Run, group: &Group<'_>, class: OpClass) -> Line {
    let latency = group.latency(Ops::Only(class));
    let mut points = Vec::new();
    // From the median (1 in 2) on: what lies below it is of no interest on this axis.
    let steps = (2..=SPECTRUM_STEPS).map(|step| 10f64.powf(f64::from(step) / 4.0));
    for one_in in std::iter::once(2.0).chain(steps) {
        if latency.len() as f64 / one_in < SAMPLES_BEYOND_MIN as f64 {
            break;
        }
        let value = latency.value_at_quantile(1.0 - 1.0 / one_in);
        points.push(vec![one_in, value as f64 / 1e3]);
    }
    Line {
        label: label(group),
        source: group.first.source.clone(),
        color: color(run, group),
        points,
    }
}

/// `[seconds, operations a second]` of the first repetition, warm-up included.
fn series(run: &Run, group: &Group<'_>, class: OpClass) -> Line {
    let intervals = group.first.recording.intervals.iter();
    let points = intervals
        .filter(|interval| interval.phase != stats::Phase::Drain)
        .map(|interval| {
            let ops = interval.tallies[class.index()].counts.ops as f64;
            vec![interval.end.as_secs_f64(), ops / interval.seconds()]
        })
        .collect();
    Line {
        label: label(group),
        source: group.first.source.clone(),
        color: color(run, group),
        points,
    }
}
