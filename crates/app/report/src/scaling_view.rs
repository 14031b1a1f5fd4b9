//! When the drive stops mattering: one chart per panel, one labelled line per drive.
//!
//! Colour is the drive, dashes the source; both axes are logarithmic. Invariant: a line has one source; the
//! fill of its points shows which.

use std::fmt::Write;

use analysis::scaling::{AxisKind, Panel, ScalingLine, panels};
use archive::Run;
use serde::Serialize;
use units::human_count;

use crate::chart::short;
use crate::hue::Hues;
use crate::svg::{Scale, below, escape, levels, marks, open, path, without_middle};
use crate::words::engine_word;

/// Number of panels shown; `figures` prints all.
const PANELS_MAX: usize = 8;
/// Maximum lines of a panel.
const LINES_MAX: usize = 8;
const HEIGHT: f64 = 230.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 22.0;
/// Maximum length of a label; the tooltip has the full text.
const LABEL_MAX: usize = 17;
/// Minimum distance of two labels.
const LABEL: f64 = 14.0;

/// One chart in three columns: axis labels, lines, line labels.
#[derive(Serialize)]
pub(crate) struct ScalingView {
    title: String,
    axis: &'static str,
    /// One sentence: from where on the drives differ by less than 10 %.
    finding: String,
    left: String,
    lines: String,
    labels: String,
    left_out: usize,
}

/// The scaling charts of a run.
pub(crate) fn scaling_views(run: &Run, hues: &Hues) -> Vec<ScalingView> {
    let all = panels(run);
    // With several databases, each is named.
    let several = |panel: &Panel| all.iter().any(|one| one.engine != panel.engine);
    let shown = all.iter().take(PANELS_MAX);
    shown.filter_map(|panel| view(run, panel, hues, several(panel))).collect()
}

fn view(run: &Run, panel: &Panel, hues: &Hues, several: bool) -> Option<ScalingView> {
    let shown = &panel.lines[..panel.lines.len().min(LINES_MAX)];
    let points = || shown.iter().flat_map(|line| &line.points);
    let x = Scale::over(points().map(|(x, _)| *x), true)?;
    let y = Scale::over(points().map(|(_, rate)| rate.value), true)?;
    let at_y = |value: f64| HEIGHT - BOTTOM - y.at(value) / 100.0 * (HEIGHT - BOTTOM - TOP);
    let title = |stack: &str| {
        let found = run.header.stacks.iter().find(|one| one.name == stack);
        found.map_or(stack, |one| short(&one.title)).to_owned()
    };
    let experiment = run.study.experiment.iter().find(|one| one.name == panel.experiment);
    let experiment = experiment.map_or(panel.experiment.as_str(), |one| match one.title.as_str() {
        "" => one.name.as_str(),
        title => title,
    });
    let engine = match several {
        true => format!("{}, ", engine_word(&panel.engine)),
        false => String::new(),
    };
    let what = format!("{engine}{experiment}: {} per second", plural(panel));
    let mut lines = String::new();
    open(&mut lines, "panel", HEIGHT, &format!("{what} vs. {}", panel.axis.words()));
    levels(&mut lines, y.ticks().into_iter().map(at_y));
    below(
        &mut lines,
        HEIGHT,
        x.ticks().into_iter().map(|tick| (x.at(tick), crate::svg::short(tick))),
    );
    for line in shown {
        let mark = (hues.get(&line.stack), hues.variant(&line.stack));
        draw(&mut lines, line, mark, (&x, &at_y));
    }
    lines.push_str("</svg>");
    let words = y.ticks().into_iter().map(|tick| (at_y(tick), human_count(tick)));
    let left = marks(HEIGHT, words);
    let ends: Vec<(f64, &ScalingLine)> =
        shown.iter().filter_map(|line| Some((at_y(line.points.last()?.1.value), line))).collect();
    Some(ScalingView {
        title: what,
        axis: panel.axis.words(),
        finding: finding(panel, &title),
        left,
        lines,
        labels: labels(ends, hues, &title),
        left_out: panel.lines.len() - shown.len(),
    })
}

/// Marks (centred at 0) and the matching letters: stacks of one drive share its colour.
const SHAPES: [(&str, &str); 4] = [
    ("M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z", "\u{25cf}"),
    ("M-3.2 -3.2h6.4v6.4h-6.4z", "\u{25a0}"),
    ("M0 -4.2l4.2 7.4h-8.4z", "\u{25b2}"),
    ("M0 -4.6l4.6 4.6l-4.6 4.6l-4.6 -4.6z", "\u{25c6}"),
];

fn draw(
    out: &mut String,
    line: &ScalingLine,
    (hue, variant): (usize, usize),
    (x, y): (&Scale, &dyn Fn(f64) -> f64),
) {
    let (shape, _) = SHAPES[variant % SHAPES.len()];
    let source = line.source.word();
    let points: Vec<(f64, f64)> =
        line.points.iter().map(|(at, rate)| (x.at(*at), y(rate.value))).collect();
    path(out, &format!("line h{hue} {source}"), HEIGHT, &points);
    for ((px, py), (at, rate)) in points.iter().zip(&line.points) {
        if let Some((lo, hi)) = rate.between_repetitions() {
            let _ = write!(
                out,
                "<line class=\"whisker h{hue}\" x1=\"{px:.1}%\" x2=\"{px:.1}%\" y1=\"{:.1}\" y2=\"{:.1}\"/>",
                y(lo),
                y(hi)
            );
        }
        let _ = write!(
            out,
            "<svg x=\"{px:.1}%\" y=\"{py:.1}\" overflow=\"visible\"><path class=\"mark h{hue} {source}\" \
             d=\"{shape}\"><title>{}: {}/s, {source}</title></path></svg>",
            crate::svg::short(*at),
            human_count(rate.value)
        );
    }
}

/// Labels at the ends of the lines, moved apart where they would overlap.
fn labels(
    mut ends: Vec<(f64, &ScalingLine)>,
    hues: &Hues,
    title: &dyn Fn(&str) -> String,
) -> String {
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let hue = |line: &ScalingLine| hues.get(&line.stack);
    let letter = |line: &ScalingLine| {
        let of_drive = ends.iter().filter(|(_, other)| hue(other) == hue(line)).count();
        match of_drive {
            1 => String::new(),
            _ => format!("{} ", SHAPES[hues.variant(&line.stack) % SHAPES.len()].1),
        }
    };
    let mut places: Vec<f64> = Vec::new();
    for (y, _) in &ends {
        let least = places.last().map_or(f64::NEG_INFINITY, |last| last + LABEL);
        places.push(y.max(least));
    }
    // Labels pushed below the picture move up again.
    let mut most = HEIGHT - BOTTOM;
    for place in places.iter_mut().rev() {
        *place = place.min(most);
        most = *place - LABEL;
    }
    let mut out = String::new();
    open(&mut out, "labels", HEIGHT, "");
    for ((_, line), y) in ends.iter().zip(places) {
        let _ = write!(
            out,
            "<text class=\"name h{}\" x=\"6\" y=\"{:.1}\">{}<title>{}</title></text>",
            hue(line),
            y + 4.0,
            escape(&(letter(line) + &without_middle(&title(&line.stack), LABEL_MAX))),
            escape(&format!("{}, {}", title(&line.stack), line.source.word()))
        );
    }
    out.push_str("</svg>");
    out
}

/// Ratio up to which drives count as equal.
const NEAR: f64 = 1.1;

/// Ratio between the drives at both ends of the axis.
fn finding(panel: &Panel, title: &dyn Fn(&str) -> String) -> String {
    let apart = |at: f64| {
        let values: Vec<(f64, String)> = panel
            .lines
            .iter()
            .filter_map(|line| {
                let (_, rate) = line.points.iter().find(|(x, _)| *x == at)?;
                Some((rate.value, title(&line.stack)))
            })
            .collect();
        let most = values.iter().map(|(rate, _)| *rate).fold(0.0, f64::max);
        let least = values.iter().map(|(rate, _)| *rate).fold(f64::INFINITY, f64::min);
        // Drives about equal to the fastest or the slowest.
        let near = |end: f64| -> Vec<&str> {
            let like = |rate: f64| (rate / end).max(end / rate) < NEAR;
            values.iter().filter(|(rate, _)| like(*rate)).map(|(_, name)| name.as_str()).collect()
        };
        // A drive near both ends belongs to neither.
        let only = |own: Vec<&str>, other: &[&str]| -> Vec<String> {
            own.into_iter().filter(|one| !other.contains(one)).map(str::to_owned).collect()
        };
        let (top, bottom) = (near(most), near(least));
        let (top, bottom) = (only(top.clone(), &bottom), only(bottom, &top));
        (values.len() > 1).then(|| (most / least, names(&top), names(&bottom)))
    };
    let places = || panel.lines.iter().flat_map(|line| line.points.iter().map(|(x, _)| *x));
    let first = places().fold(f64::INFINITY, f64::min);
    let last = places().fold(0.0, f64::max);
    let (Some(low), Some(high)) = (apart(first), apart(last)) else { return String::new() };
    let verb = |several: bool, verb: &str| match (several, verb) {
        (true, verb) => verb.to_owned(),
        (false, "do") => "does".to_owned(),
        (false, verb) => format!("{verb}s"),
    };
    let one = |(ratio, most, least): &(f64, (String, bool), (String, bool))| match *ratio < NEAR {
        true => "all rates are within 10 % of each other".to_owned(),
        false => {
            let ((most, several), (least, others)) = (most, least);
            let gives = verb(*several, "deliver");
            let up_to = if *several || *others { "up to " } else { "" };
            let times = crate::decision_view::times(*ratio);
            format!("{most} {gives} {up_to}{times} the rate of {least}")
        }
    };
    let at = |place: f64| {
        let number = crate::svg::short(place);
        match panel.axis {
            AxisKind::DataOverMemory => format!("data {number} \u{d7} memory"),
            AxisKind::MemoryMiB => format!("{number} MiB of memory"),
            AxisKind::Load(words) if words.starts_with("queue depth") => {
                words.replacen("queue depth", &format!("queue depth {number}"), 1)
            }
            AxisKind::Load(words) if number == "1" => format!("1 {}", words.trim_end_matches('s')),
            AxisKind::Load(words) => format!("{number} {words}"),
        }
    };
    format!("At {}: {}; at {}: {}.", at(first), one(&low), at(last), one(&high))
}

/// Number of equal drives that are named.
const NAMED_MAX: usize = 3;

/// `a, b and c`, and whether that is more than one.
fn names(all: &[String]) -> (String, bool) {
    let text = match all {
        [] => String::new(),
        [one] => one.clone(),
        _ if all.len() > NAMED_MAX => format!("{} and {} others", all[0], all.len() - 1),
        [before @ .., last] => format!("{} and {last}", before.join(", ")),
    };
    (text, all.len() > 1)
}

fn plural(panel: &Panel) -> &'static str {
    use workload::OpClass;
    match (panel.engine.as_str(), panel.ops.class()) {
        ("block", Some(OpClass::Write)) => "writes",
        ("block", Some(OpClass::Read)) => "reads",
        ("block", _) => "operations",
        (_, Some(OpClass::Transaction)) => "transactions",
        (_, Some(OpClass::Write)) => "updates",
        _ => "lookups",
    }
}
