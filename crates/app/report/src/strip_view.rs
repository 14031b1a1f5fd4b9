//! One trial over time: rate and latencies on one time axis, with changes.
//!
//! The heat map has one column per interval (merged if there are many) and one row per sixth of a decade;
//! darkness is the share of the column's operations. Bands are stalled intervals, checkpoints and
//! vacuums; lines are performance drops. Invariant: both pictures share one axis.

use std::fmt::Write;

use analysis::decision::Decision;
use analysis::{background, cliffs};
use archive::{Run, TrialRecord};
use serde::Serialize;
use stats::{Histogram, Interval, Phase};
use units::{Nanos, human_count};
use workload::OpClass;

use crate::chart::short;
use crate::hue::Hues;
use crate::svg::{Scale, below, levels, marks, open, path};
use crate::words::engine_title;

/// Columns of the heat map at most.
const COLUMNS_MAX: usize = 120;
/// Rows per decade.
const ROWS_A_DECADE: f64 = 6.0;
const RATE_HEIGHT: f64 = 96.0;
const HEAT_HEIGHT: f64 = 150.0;
/// Shares of a column at which a cell gets darker.
const SHADES: [f64; 5] = [0.0005, 0.01, 0.05, 0.15, 0.35];
/// Share of the median rate below which an interval is stalled.
const STALLED: f64 = 0.1;
/// Bands that have a caption.
const CAPTIONS_MAX: usize = 6;

/// The strip of one trial.
#[derive(Serialize)]
pub(crate) struct StripView {
    title: String,
    hue: usize,
    rate: String,
    rate_marks: String,
    heat: String,
    heat_marks: String,
    captions: Vec<String>,
    /// For each column: second, operations per second, median and p99 in microseconds, as JSON for the
    /// cursor.
    columns_json: String,
}

struct Column {
    from: f64,
    to: f64,
    ops: u64,
    latency: Histogram,
}

/// The strip of the most informative trial: one with cliffs, else one with a checkpoint or vacuum, else the
/// reference of the first decision.
pub(crate) fn strip_view(run: &Run, decisions: &[Decision<'_>], hues: &Hues) -> Option<StripView> {
    let decision = decisions.first()?;
    let with_cliffs = run.trials.iter().find(|trial| !cliffs::found(trial).is_empty());
    let compares = |trial: &&TrialRecord| {
        background::server_work(trial).iter().any(|work| work.rate.is_some())
    };
    let with_work = || run.trials.iter().find(compares);
    let trial = with_cliffs.or_else(with_work).unwrap_or(decision.here().group.first);
    let class = match analysis::is_sql(trial) {
        true => OpClass::Transaction,
        false => decision.counted.ops().class().unwrap_or(OpClass::Read),
    };
    let columns = columns(trial, class);
    let last = columns.last()?.to;
    let first = columns.first()?.from;
    if columns.len() < 4 {
        return None;
    }
    let x = Scale::new(first, last, false);
    let title = run.header.stacks.iter().find(|stack| stack.name == trial.stack);
    let title = title.map_or(trial.stack.as_str(), |stack| short(&stack.title));
    let engine = match trial.engine.as_str() {
        "block" => "Block I/O".to_owned(),
        _ => engine_title(&decision.here().group),
    };
    let bands = bands(trial, &columns);
    let (work, others): (Vec<&Band>, Vec<&Band>) =
        bands.iter().partition(|band| matches!(band.shows, Shows::Work));
    if others.is_empty() && is_constant(&columns) {
        return None;
    }
    let (rate, rate_marks) = rate_picture(&columns, &x, &bands);
    let (heat, heat_marks) = heat_picture(&columns, &x)?;
    let quantile = |column: &Column, q: f64| match column.latency.is_empty() {
        true => 0.0,
        false => column.latency.value_at_quantile(q) as f64 / 1e3,
    };
    let points: Vec<String> = columns
        .iter()
        .map(|one| {
            let (rate, p50, p99) = (rate_of(one), quantile(one, 0.5), quantile(one, 0.99));
            format!("[{:.3},{rate:.1},{p50:.2},{p99:.2}]", one.to)
        })
        .collect();
    Some(StripView {
        title: format!("{engine} on {title}, {}, {}, n = 1", trial.experiment, trial.source.word()),
        hue: hues.get(&trial.stack),
        rate,
        rate_marks,
        heat,
        heat_marks,
        captions: others
            .into_iter()
            .chain(work)
            .take(CAPTIONS_MAX)
            .map(|band| band.caption.clone())
            .collect(),
        columns_json: format!("[{}]", points.join(",")),
    })
}

/// If all rates are within this share of each other, the chart is dropped.
const CONSTANT: f64 = 0.03;

fn is_constant(columns: &[Column]) -> bool {
    let low = columns.iter().map(rate_of).fold(f64::INFINITY, f64::min);
    let high = columns.iter().map(rate_of).fold(0.0, f64::max);
    high - low <= high * CONSTANT
}

fn rate_of(column: &Column) -> f64 {
    column.ops as f64 / (column.to - column.from).max(1e-9)
}

fn columns(trial: &TrialRecord, class: OpClass) -> Vec<Column> {
    let shown = |interval: &&Interval| interval.phase != Phase::Drain;
    let intervals: Vec<&Interval> = trial.result.recording.intervals.iter().filter(shown).collect();
    let together = intervals.len().div_ceil(COLUMNS_MAX).max(1);
    let column = |part: &[&Interval]| {
        let mut latency = stats::new_histogram();
        part.iter().for_each(|interval| interval.tallies[class].latency.add_to(&mut latency));
        Column {
            from: part[0].start.as_secs_f64(),
            to: part[part.len() - 1].end.as_secs_f64(),
            ops: part.iter().map(|interval| interval.tallies[class].counts.ops).sum(),
            latency,
        }
    };
    intervals.chunks(together).map(column).collect()
}

struct Band {
    from: f64,
    to: f64,
    shows: Shows,
    caption: String,
}

/// What a band shows.
#[derive(Debug, Clone, Copy)]
enum Shows {
    /// Intervals with almost no operations.
    Stall,
    /// A change for good, drawn as a vertical line.
    Cliff,
    /// A checkpoint or a vacuum of the server.
    Work,
}

fn bands(trial: &TrialRecord, columns: &[Column]) -> Vec<Band> {
    let mut rates: Vec<f64> = columns.iter().map(rate_of).collect();
    rates.sort_by(f64::total_cmp);
    let median = rates[rates.len() / 2];
    let mut out: Vec<Band> = Vec::new();
    let mut open = false;
    for column in columns {
        let stalled = median > 0.0 && rate_of(column) < median * STALLED;
        match (stalled, open, out.last_mut()) {
            (true, true, Some(band)) => band.to = column.to,
            (true, ..) => out.push(Band {
                from: column.from,
                to: column.to,
                shows: Shows::Stall,
                caption: String::new(),
            }),
            _ => {}
        }
        open = stalled;
    }
    for band in &mut out {
        band.caption =
            format!("{:.1} to {:.1} s: rate below 10 % of the median", band.from, band.to);
    }
    out.extend(cliffs::found(trial).into_iter().map(|(at, cliff)| Band {
        from: at,
        to: at,
        shows: Shows::Cliff,
        caption: format!("at {at:.1} s the rate changed for good: {:+.0} %", cliff.change * 100.0),
    }));
    let (first, last) = (columns[0].from, columns[columns.len() - 1].to);
    out.extend(background::server_work(trial).into_iter().filter_map(|work| {
        let (from, to) = (work.from.max(first), work.to.min(last));
        let change = work.rate.map_or_else(String::new, |rate| {
            format!(", {:+.0} % transactions per second", (rate - 1.0) * 100.0)
        });
        let caption = format!("{from:.1} to {to:.1} s: {}{change}", work.what);
        (from < to).then_some(Band { from, to, shows: Shows::Work, caption })
    }));
    out.sort_by(|a, b| a.from.total_cmp(&b.from));
    out
}

fn rate_picture(columns: &[Column], x: &Scale, bands: &[Band]) -> (String, String) {
    let rates = || columns.iter().map(rate_of);
    let y = Scale::over(rates(), false).unwrap_or_else(|| Scale::new(0.0, 1.0, false));
    let at_y = |value: f64| RATE_HEIGHT - y.at(value) / 100.0 * (RATE_HEIGHT - 8.0);
    let mut out = String::new();
    open(&mut out, "strip", RATE_HEIGHT, "Operations per second over time");
    levels(&mut out, y.ticks().into_iter().map(at_y));
    for band in bands {
        let (from, to) = (x.at(band.from), x.at(band.to));
        let class = match band.shows {
            Shows::Cliff => {
                let _ = write!(
                    out,
                    "<line class=\"cliff\" x1=\"{from:.2}%\" x2=\"{from:.2}%\" y1=\"0\" y2=\"100%\"/>"
                );
                continue;
            }
            Shows::Stall => "band",
            Shows::Work => "work",
        };
        let _ = write!(
            out,
            "<rect class=\"{class}\" x=\"{from:.2}%\" width=\"{:.2}%\" y=\"0\" height=\"100%\"/>",
            (to - from).max(0.3)
        );
    }
    let middle = |one: &Column| (one.from + one.to) / 2.0;
    let points: Vec<(f64, f64)> =
        columns.iter().map(|one| (x.at(middle(one)), at_y(rate_of(one)))).collect();
    path(&mut out, "line", RATE_HEIGHT, &points);
    out.push_str("</svg>");
    let words = y.ticks().into_iter().map(|tick| (at_y(tick), human_count(tick)));
    (out, marks(RATE_HEIGHT, words))
}

fn heat_picture(columns: &[Column], x: &Scale) -> Option<(String, String)> {
    let filled = || columns.iter().filter(|one| !one.latency.is_empty());
    let low = filled().map(|one| one.latency.min()).min()? as f64;
    let high = filled().map(|one| one.latency.max()).max()? as f64;
    let row_of = |ns: f64| (ns.max(1.0).log10() * ROWS_A_DECADE).floor() as i32;
    let (bottom, top) = (row_of(low), row_of(high));
    let rows = (top - bottom + 1).max(1);
    let row = (HEAT_HEIGHT - 18.0) / f64::from(rows);
    let mut out = String::new();
    open(&mut out, "strip heat", HEAT_HEIGHT, "Latencies over time");
    for column in filled() {
        let total = column.latency.len() as f64;
        let mut counts = vec![0u64; rows as usize];
        for value in column.latency.iter_recorded() {
            let at = (row_of(value.value_iterated_to() as f64) - bottom).clamp(0, rows - 1);
            counts[at as usize] += value.count_at_value();
        }
        let (from, to) = (x.at(column.from), x.at(column.to));
        for (at, count) in counts.iter().enumerate() {
            let share = *count as f64 / total;
            let Some(shade) = SHADES.iter().rposition(|least| share >= *least) else { continue };
            let _ = write!(
                out,
                "<rect class=\"k{shade}\" x=\"{from:.2}%\" width=\"{:.2}%\" y=\"{:.1}\" height=\"{:.1}\"/>",
                to - from,
                f64::from(rows - 1 - at as i32) * row,
                row
            );
        }
    }
    let seconds = |tick: f64| (x.at(tick), format!("{} s", crate::svg::short(tick)));
    below(&mut out, HEAT_HEIGHT, x.ticks().into_iter().map(seconds));
    out.push_str("</svg>");
    // A label at each decade, or at the ends.
    let y_of = |at: i32| (f64::from(rows) - f64::from(at - bottom)) * row;
    let a_decade = ROWS_A_DECADE as i32;
    let mut at: Vec<i32> = (bottom..=top + 1).filter(|at| at % a_decade == 0).collect();
    if at.len() < 2 {
        at = vec![bottom, top + 1];
    }
    let words = at
        .into_iter()
        .map(|at| (y_of(at), Nanos(10f64.powf(f64::from(at) / ROWS_A_DECADE) as u64).to_string()));
    Some((out, marks(HEAT_HEIGHT, words)))
}
