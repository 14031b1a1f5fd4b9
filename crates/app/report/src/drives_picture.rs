//! The first picture where databases ran on emulated drives: what each did a second, on every drive.
//!
//! A bar a drive, on an axis from zero that is each engine's own, with its interval where repetitions give
//! one. Invariant: emulated is hollow, and what may not be judged is dashed and says so beside its number.
//! What it is not: interactive.

use std::fmt::Write;

use archive::Run;
use study::Source;

use crate::drives::{DriveRate, EngineRates, engine_rates};
use crate::picture::escape;

const WIDTH: f64 = 860.0;
/// Room for the names of drives.
const LEFT: f64 = 215.0;
/// Room for a number and what is said of it.
const RIGHT: f64 = 390.0;
const ROW: f64 = 24.0;
const BAR: f64 = 12.0;
const TITLE: f64 = 30.0;
/// Engines that are drawn; figures have all.
const ENGINES_MAX: usize = 6;

/// The picture, or `None` where no database ran on an emulated drive beside another.
pub(crate) fn drives_picture(run: &Run) -> Option<String> {
    let engines = engine_rates(run);
    let shown = &engines[..engines.len().min(ENGINES_MAX)];
    let rows: usize = shown.iter().map(|engine| engine.drives.len()).sum();
    if rows == 0 {
        return None;
    }
    let height = rows as f64 * ROW + shown.len() as f64 * TITLE + 6.0;
    let mut svg = format!(
        "<svg class=\"picture\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"What each \
         database did a second on each drive\">"
    );
    let mut y = 0.0;
    for engine in shown {
        draw_engine(&mut svg, engine, y);
        y += TITLE + engine.drives.len() as f64 * ROW;
    }
    svg.push_str("</svg>");
    Some(svg)
}

fn draw_engine(svg: &mut String, engine: &EngineRates, y: f64) {
    let title = escape(&engine.title);
    let _ = write!(svg, "<text class=\"label\" x=\"0\" y=\"{:.1}\">{title}</text>", y + 22.0);
    let ends =
        |one: &DriveRate| one.rate.between_repetitions().map_or(one.rate.value, |(_, hi)| hi);
    let most = engine.drives.iter().map(ends).fold(f64::MIN_POSITIVE, f64::max);
    for (one, place) in engine.drives.iter().zip(0..) {
        let top = y + TITLE + f64::from(place) * ROW;
        draw_drive(svg, one, top, |rate| (rate / most * (WIDTH - LEFT - RIGHT)).max(1.0));
    }
}

fn draw_drive(svg: &mut String, one: &DriveRate, top: f64, length: impl Fn(f64) -> f64) {
    let middle = top + ROW / 2.0 + 4.0;
    let bar = length(one.rate.value);
    let ends = one.rate.between_repetitions();
    let right = ends.map_or(bar, |(_, hi)| length(hi).max(bar));
    let note = match (&one.doubt, one.source) {
        (Some(doubt), _) => format!("{}, not to be judged: {doubt}", one.source),
        (None, Source::Emulated) if one.asked => "emulated, delivered as modelled".to_owned(),
        (None, Source::Emulated) => "emulated, nothing was asked of it".to_owned(),
        (None, source) => source.to_string(),
    };
    let _ = write!(
        svg,
        "<text class=\"axis\" x=\"{:.1}\" y=\"{middle:.1}\" text-anchor=\"end\">{}</text>\
         <rect class=\"rate {source}{doubted}\" x=\"{LEFT:.1}\" y=\"{:.1}\" width=\"{:.1}\" \
         height=\"{BAR:.1}\"/><text class=\"value\" x=\"{:.1}\" y=\"{middle:.1}\">{} <tspan \
         class=\"axis\">{}</tspan></text>",
        LEFT - 12.0,
        escape(&one.drive),
        top + (ROW - BAR) / 2.0,
        bar,
        LEFT + right + 10.0,
        one.text(),
        escape(&note),
        source = one.source,
        doubted = if one.doubt.is_some() { " doubted" } else { "" },
    );
    if let Some((lo, hi)) = ends {
        let (y, from, to) = (top + ROW / 2.0, LEFT + length(lo), LEFT + length(hi));
        let _ = write!(
            svg,
            "<path class=\"spread\" d=\"M{from:.1} {:.1}v6m0 -3H{to:.1}m0 -3v6\"/>",
            y - 3.0
        );
    }
}
