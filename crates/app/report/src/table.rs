//! Figures as text for a terminal and as CSV.
//!
//! Invariant: one row per figure, with a column for the source.

use std::fmt::Write;

use serde_json::Value;

use analysis::table::{Cells, Table, figure_table};
use analysis::{Figure, figures, unit_text};
use archive::Run;
use study::Source;
use units::{Nanos, human_count};

use crate::columns::columns_csv;
use crate::what_if::what_ifs;

/// `name=value` pairs of a point, in one line.
pub(crate) fn point_text(figure: &Figure) -> String {
    let parts: Vec<String> =
        figure.point.iter().map(|(name, value)| format!("{name}={}", plain(value))).collect();
    parts.join(" ")
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The interval with its coverage; a dash if there is none.
pub(crate) fn interval_text(figure: &Figure) -> String {
    match (figure.lo, figure.hi, figure.interval) {
        (Some(lo), Some(hi), Some("repetitions")) => format!("{lo} .. {hi}"),
        (Some(lo), Some(hi), Some("range")) => format!("{lo} .. {hi} (two runs)"),
        (Some(lo), Some(hi), _) => format!("{lo} .. {hi} (this run)"),
        _ => "-".to_owned(),
    }
}

/// The value as text; `>=` where operations that never ended reach it.
fn value_text(figure: &Figure) -> String {
    format!("{}{}", if figure.at_least { ">=" } else { "" }, figure.value)
}

/// Rows of cells as lines with aligned columns.
pub(crate) fn aligned<R: AsRef<[String]>>(rows: &[R]) -> Vec<String> {
    aligned_with(rows, &[])
}

/// The same, with the columns `right` aligned to the right.
fn aligned_with<R: AsRef<[String]>>(rows: &[R], right: &[usize]) -> Vec<String> {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        for (column, cell) in row.as_ref().iter().enumerate() {
            let width = cell.chars().count();
            match widths.get_mut(column) {
                Some(widest) => *widest = width.max(*widest),
                None => widths.push(width),
            }
        }
    }
    let line = |row: &R| {
        let cells = row.as_ref().iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, width))| {
            let pad = " ".repeat(width - cell.chars().count());
            if right.contains(&column) { pad + cell } else { cell.clone() + &pad }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// A table with aligned columns.
#[must_use]
pub fn text_table(figures: &[Figure]) -> String {
    let header = [
        "source", "stack", "engine", "workload", "point", "metric", "value", "unit", "interval",
        "n",
    ];
    let mut rows = vec![header.map(str::to_owned)];
    rows.extend(figures.iter().map(|figure| {
        [
            figure.source.to_string() + if figure.partial { " (partial)" } else { "" },
            figure.stack.clone(),
            figure.engine.clone(),
            figure.workload.clone(),
            point_text(figure),
            figure.metric.to_string(),
            value_text(figure),
            unit_text(&figure.unit).to_owned(),
            interval_text(figure),
            figure.n.to_string(),
        ]
    }));
    let mut out = aligned_with(&rows, &[6, 9]).join("\n") + "\n";
    let mut notes: Vec<String> = figures
        .iter()
        .filter_map(|f| Some(format!("{}, {}: {}", f.source, f.stack, f.validation.as_ref()?)))
        .collect();
    notes.sort();
    notes.dedup();
    for note in notes {
        let _ = writeln!(out, "{note}");
    }
    out
}

/// Up to this number of parameter sets, a run is summarized in lines.
const SUMMED_MAX: usize = 4;

/// One line per gain from a part that is free.
#[must_use]
pub fn gains(run: &Run) -> Vec<String> {
    what_ifs(run).into_iter().map(|gain| gain.to_string()).collect()
}

/// One line per class of operation of a small run: rate, throughput, mean, percentiles; and each gain from a
/// part that is free.
#[must_use]
pub fn summary(run: &Run) -> Vec<String> {
    let all = figures(std::slice::from_ref(run));
    let own = |figure: &&Figure| figure.source != Source::Published && figure.job.is_some();
    let mut points: Vec<(&Figure, Vec<&Figure>)> = Vec::new();
    for figure in all.iter().filter(own).filter(|one| SUMMED.iter().any(|(m, _)| *m == one.metric))
    {
        let same = |other: &Figure| {
            (&other.stack, &other.engine, &other.workload, &other.point)
                == (&figure.stack, &figure.engine, &figure.workload, &figure.point)
        };
        match points.iter_mut().find(|(first, _)| same(first)) {
            Some((_, metrics)) => metrics.push(figure),
            None => points.push((figure, vec![figure])),
        }
    }
    let gains = gains(run);
    if points.len() > SUMMED_MAX {
        return gains;
    }
    let line = |(first, metrics): (&Figure, Vec<&Figure>)| {
        let op = first.point.get("op").map_or_else(String::new, plain);
        let parts: Vec<String> = SUMMED
            .iter()
            .filter_map(|(metric, name)| {
                let figure = metrics.iter().find(|one| one.metric == *metric)?;
                let least = if figure.at_least { ">= " } else { "" };
                Some(match (&*figure.unit, *name) {
                    ("us", name) => format!("{name} {least}{}", Nanos((figure.value * 1e3) as u64)),
                    ("1/s", _) => format!("{least}{}/s", human_count(figure.value)),
                    (unit, _) => format!("{least}{} {unit}", human_count(figure.value)),
                })
            })
            .collect();
        format!("{op} on {} ({}): {}", first.stack, first.source, parts.join(", "))
    };
    points.into_iter().map(line).chain(gains).collect()
}

/// Metrics of a summary with their labels.
const SUMMED: [(&str, &str); 8] = [
    ("iops", ""),
    ("ops_rate", ""),
    ("tx_rate", ""),
    ("throughput", ""),
    ("latency_mean", "mean"),
    ("latency_p50", "p50"),
    ("latency_p99", "p99"),
    ("latency_p99_9", "p99.9"),
];

/// Comma-separated values (RFC 4180), the point as one column.
#[must_use]
pub fn csv(figures: &[Figure]) -> String {
    const COLUMNS: &str = "study stack engine workload point metric unit value lo hi n source run citation \
                           validation partial job interval at_least";
    let mut table = figure_table(figures);
    let mut take = |name| {
        let place = table.columns.iter().position(|(column, _)| *column == name);
        let (name, cells) = table.columns.swap_remove(place.expect("invariant: a column"));
        let points = || figures.iter().map(|one| Some(point_text(one))).collect();
        (name, if name == "point" { Cells::Text(points()) } else { cells })
    };
    columns_csv(&Table { columns: COLUMNS.split(' ').map(&mut take).collect() })
}
