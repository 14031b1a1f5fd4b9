//! Curves, spectra and time series as plain numbers, for the page's script.
//!
//! Invariants: a series has one source; a spectrum ends where the samples end.

use archive::Run;
use indexmap::IndexMap;
use stats::estimate::SAMPLES_BEYOND_MIN;
use workload::OpClass;

use crate::chart::{CHARTS_MAX, Chart, ChartLine, Charts, LINES_MAX, short};
use crate::hue::Hues;
use crate::sql_charts::{phases, races, sql_sweeps};
use crate::sweeps::sweeps;
use crate::words::clients_word;
use crate::words::experiment_title;
use analysis::knee::{Load, THREADS, curves};
use analysis::{Group, Ops, depth_of, groups, is_sql};

/// Lines of a chart of counters.
const COUNTER_LINES_MAX: usize = 8;
/// Percentiles of a spectrum in steps of a quarter decade: from the median to 99.9999 %.
const SPECTRUM_STEPS: u32 = 24;

/// The charts of one run.
pub(crate) fn charts(run: &Run) -> Charts {
    let (groups, hues) = (groups(run), Hues::of(run));
    let (curves, left_out) = curve_charts(run, &hues);
    let mut charts = Charts { curves, left_out, ..Charts::default() };
    for experiment in &run.study.experiment {
        let of_it: Vec<&Group<'_>> =
            groups.iter().filter(|group| group.first.experiment == experiment.name).collect();
        if of_it.is_empty() {
            continue;
        }
        let title = if experiment.title.is_empty() { &experiment.name } else { &experiment.title };
        let others: Vec<&Group<'_>> =
            of_it.iter().copied().filter(|group| !is_sql(group.first)).collect();
        charts.sweeps.extend(sweeps(&hues, title, &others, &mut charts.left_out));
        charts.sweeps.extend(sql_sweeps(&hues, title, &of_it));
        // More lines than this cannot be distinguished.
        charts.inside.extend(inside(&hues, title, &of_it[..of_it.len().min(COUNTER_LINES_MAX)]));
        for class in OpClass::ALL {
            let mut shown = last_points(&of_it, Ops::Only(class));
            charts.left_out += shown.len().saturating_sub(LINES_MAX);
            shown.truncate(LINES_MAX);
            if shown.is_empty() {
                continue;
            }
            let depth = depth_of(shown[0]);
            let varies = of_it.iter().any(|group| depth_of(group) != depth);
            let at = if varies { format!(" at queue depth {depth}") } else { String::new() };
            let title = format!("{title}: {}{at}", plural(class));
            charts.spectra.push(Chart {
                title: title.clone(),
                lines: shown.iter().map(|group| spectrum(&hues, group, class)).collect(),
            });
            // A statement's rate is the transaction's rate times a constant.
            if !class.is_statement() {
                charts.series.push(Chart {
                    title,
                    lines: shown.iter().map(|group| series(&hues, group, class)).collect(),
                });
            }
        }
    }
    charts.series.retain(|chart| !chart.is_flat());
    charts.spectra.retain(|chart| !chart.is_flat());
    charts.inside.retain(|chart| !chart.is_flat());
    charts.phases = phases(run);
    charts.races = races(run, &hues);
    charts
}

fn label(group: &Group<'_>) -> String {
    let stack = short(group.stack_title());
    if group.first.engine == "block" {
        stack.to_owned()
    } else {
        let of = |name: &str| group.first.point.get(name).map_or("", String::as_str);
        if is_sql(group.first) {
            let (workload, threads) = (of("workload"), of("clients"));
            let pool = of("buffer_pool");
            return format!("{stack}: {workload}, {threads} connections, pool {pool}");
        }
        format!("{stack}: {}, {} {}s", group.first.engine, of("clients"), clients_word(group))
    }
}

/// Operations of a class, for people.
fn plural(class: OpClass) -> &'static str {
    match class {
        OpClass::Read => "reads",
        OpClass::Write => "writes",
        OpClass::Sync => "flushes",
        OpClass::BackgroundRead => "background reads",
        OpClass::BackgroundWrite => "background writes",
        OpClass::BackgroundSync => "background flushes",
        OpClass::Transaction => "transactions",
        OpClass::ReadPhase => "read phases",
        OpClass::WritePhase => "write phases",
        other => other.word(),
    }
}

/// The deepest group of each stack and engine with operations of a class.
fn last_points<'a, 'b>(groups: &[&'a Group<'b>], ops: Ops) -> Vec<&'a Group<'b>> {
    let with = groups.iter().copied().filter(|group| group.classes().contains(&ops));
    let last = with.map(|group| ((&group.first.stack, &group.first.engine), group));
    last.collect::<IndexMap<_, _>>().into_values().collect()
}

/// Latency over rate: one chart per experiment and operation class, one line per stack and kind of load.
fn curve_charts(run: &Run, hues: &Hues) -> (Vec<Chart>, usize) {
    let mut charts: IndexMap<String, Chart> = IndexMap::new();
    let mut left_out = 0;
    for curve in curves(run).iter().filter(|curve| curve.points.len() > 1) {
        let group = &curve.points[0].group;
        let title = experiment_title(group);
        let others: Vec<String> = ["block_size", "read_share", "clients", "pattern"]
            .iter()
            .filter_map(|name| group.first.point.get(*name).cloned())
            .collect();
        // Offered load and queue depth of one shape belong into one picture.
        let key = format!("{title} {}", others.join(" "));
        let full = match charts.get(&key) {
            Some(chart) => chart.lines.len() >= LINES_MAX,
            None => charts.len() >= CHARTS_MAX,
        };
        if full {
            left_out += 1;
            continue;
        }
        let ops = curve.ops();
        let points = curve.points.iter().filter_map(|point| {
            let p50 = point.group.percentile(ops, 50.0).ok()?.value;
            let p99 = point.group.percentile(ops, 99.0).map_or(p50, |e| e.value);
            let mark = match curve.load {
                Load::Depth => depth_of(&point.group) as f64,
                Load::Threads => {
                    let threads = point.group.first.point.get(THREADS);
                    threads.and_then(|text| text.parse().ok()).unwrap_or(1.0)
                }
                Load::Offered => 0.0,
            };
            Some(vec![point.rate.value, p50 / 1e3, mark, p99 / 1e3])
        });
        let offered = if curve.load == Load::Offered { ", offered load" } else { "" };
        let line = ChartLine::of(hues, group, label(group) + offered, points.collect());
        let title = || format!("{title} ({})", others.join(", "));
        let begun = || Chart { title: title(), lines: Vec::new() };
        charts.entry(key).or_insert_with(begun).lines.push(line);
    }
    (charts.into_values().collect(), left_out)
}

/// `[1 / (1 - p), microseconds]` up to the last percentile that the samples support.
fn spectrum(hues: &Hues, group: &Group<'_>, class: OpClass) -> ChartLine {
    let latency = group.latency(Ops::Only(class));
    let mut points = Vec::new();
    // From the median (1 in 2) up; lower percentiles are of no interest here.
    let steps = (2..=SPECTRUM_STEPS).map(|step| 10f64.powf(f64::from(step) / 4.0));
    for one_in in std::iter::once(2.0).chain(steps) {
        if latency.len() as f64 / one_in < SAMPLES_BEYOND_MIN as f64 {
            break;
        }
        let value = latency.value_at_quantile(1.0 - 1.0 / one_in);
        points.push(vec![one_in, value as f64 / 1e3]);
    }
    ChartLine::of(hues, group, label(group), points)
}

/// One chart per counter that is ever above zero, one line per group.
fn inside(hues: &Hues, title: &str, groups: &[&Group<'_>]) -> Vec<Chart> {
    let samples = groups.iter().flat_map(|group| &group.first.result.counters);
    let told = samples.flat_map(|sample| &sample.values).filter(|(_, value)| **value > 0.0);
    let names: std::collections::BTreeSet<&String> = told.map(|(name, _)| name).collect();
    let line = |group: &&Group<'_>, name: &String| {
        let samples = group.first.result.counters.iter();
        let points: Vec<Vec<f64>> = samples
            .filter_map(|sample| Some(vec![sample.at_ns as f64 / 1e9, *sample.values.get(name)?]))
            .collect();
        (!points.is_empty()).then(|| ChartLine::of(hues, group, label(group), points))
    };
    let chart = |name: &String| Chart {
        title: format!("{title}: {name}"),
        lines: groups.iter().filter_map(|group| line(group, name)).collect(),
    };
    names.into_iter().map(chart).collect()
}

/// `[seconds, operations per second]` of the first repetition, warm-up included.
fn series(hues: &Hues, group: &Group<'_>, class: OpClass) -> ChartLine {
    let intervals = group.first.result.recording.intervals.iter();
    let points = intervals
        .filter(|interval| interval.phase != stats::Phase::Drain)
        .map(|interval| {
            let ops = interval.tallies[class].counts.ops as f64;
            vec![interval.end.as_secs_f64(), ops / interval.seconds()]
        })
        .collect();
    ChartLine::of(hues, group, label(group), points)
}
