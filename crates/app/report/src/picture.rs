//! The one picture of the first screen, drawn as SVG so that it needs no script and prints.
//!
//! Median (dot) to 99th percentile (end of the bar) of single reads and writes on each stack, on a
//! logarithmic axis. Invariant: measured is filled, predicted is hollow. What it is not: interactive.

use std::fmt::Write;
use study::Source;

use archive::Run;
use units::Nanos;
use workload::OpClass;

use crate::answer::{Single, single_depth};
use crate::chart::short;
use analysis::Ops;

const WIDTH: f64 = 860.0;
const LEFT: f64 = 60.0;
/// Room for the longest note: what a prediction is worth.
const RIGHT: f64 = 330.0;
const TOP: f64 = 30.0;
const ROW: f64 = 26.0;
/// Height of a stack's title, above its rows.
const TITLE: f64 = 30.0;

struct Bar {
    label: String,
    class: OpClass,
    source: Source,
    /// `measured`, or `predicted` with what that is worth.
    note: String,
    p50: f64,
    p99: Option<f64>,
}

/// The picture, or `None` when the run has no single-depth block figures.
pub(crate) fn picture(run: &Run) -> Option<String> {
    let bars = bars(run);
    let low = bars.iter().map(|bar| bar.p50).fold(f64::INFINITY, f64::min);
    let high = bars.iter().map(|bar| bar.p99.unwrap_or(bar.p50)).fold(0.0, f64::max);
    if bars.is_empty() || low <= 0.0 {
        return None;
    }
    let (from, to) = (low.log10().floor(), high.log10().ceil().max(low.log10().floor() + 1.0));
    let scale = |ns: f64| LEFT + (ns.log10() - from) / (to - from) * (WIDTH - LEFT - RIGHT);
    let changes = bars.windows(2).filter(|pair| pair[0].label != pair[1].label).count();
    let bottom = TOP + bars.len() as f64 * ROW + (changes + 1) as f64 * TITLE;
    let mut svg = String::new();
    let _ = write!(
        svg,
        "<svg class=\"picture\" viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" aria-label=\"Latency of one \
         read and one write on each stack: median and 99th percentile, logarithmic axis\">",
        bottom + 30.0
    );
    let mut decade = from;
    while decade <= to + 0.01 {
        let x = scale(10f64.powf(decade));
        let label = Nanos(10f64.powf(decade) as u64);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\"/>\
             <text class=\"axis\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
            TOP - 8.0,
            bottom + 20.0
        );
        decade += 1.0;
    }
    let _ = write!(
        svg,
        "<text class=\"axis\" x=\"0\" y=\"14\">median (dot) to 99th percentile (end of bar)</text>"
    );
    let mut y = TOP;
    let mut previous = "";
    for bar in &bars {
        if previous != bar.label {
            draw_title(&mut svg, bar, y + TITLE - 8.0);
            y += TITLE;
        }
        draw_bar(&mut svg, bar, y, &scale);
        previous = &bar.label;
        y += ROW;
    }
    svg.push_str("</svg>");
    Some(svg)
}

fn draw_title(svg: &mut String, bar: &Bar, y: f64) {
    let _ = write!(svg, "<text class=\"label\" x=\"0\" y=\"{y:.1}\">{}</text>", escape(&bar.label));
}

fn draw_bar(svg: &mut String, bar: &Bar, y: f64, scale: &dyn Fn(f64) -> f64) {
    let (start, end) = (scale(bar.p50), scale(bar.p99.unwrap_or(bar.p50)));
    let middle = y + ROW / 2.0;
    let class = bar.class.word();
    let _ = write!(
        svg,
        "<text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{class}</text>\
         <line class=\"bar {class} {source}\" x1=\"{start:.1}\" y1=\"{middle:.1}\" x2=\"{end:.1}\" \
         y2=\"{middle:.1}\"/><circle class=\"dot {class} {source}\" cx=\"{start:.1}\" \
         cy=\"{middle:.1}\" r=\"6\"/><text class=\"value\" x=\"{:.1}\" y=\"{:.1}\">{} <tspan \
         class=\"axis\">{}</tspan></text>",
        LEFT - 12.0,
        middle + 4.0,
        end + 12.0,
        middle + 4.0,
        Nanos(bar.p50 as u64),
        escape(&bar.note),
        source = bar.source,
    );
}

fn bars(run: &Run) -> Vec<Bar> {
    let mut bars = Vec::new();
    let (reads, writes) =
        (single_depth(run, Ops::Only(OpClass::Read)), single_depth(run, Ops::Only(OpClass::Write)));
    for stack in &run.header.stacks {
        for (class, singles) in [(OpClass::Read, &reads), (OpClass::Write, &writes)] {
            let found = singles.iter().find(|single| single.group.first.stack == stack.name);
            bars.extend(found.map(|single| bar(single, class)));
        }
    }
    bars
}

fn bar(single: &Single<'_>, class: OpClass) -> Bar {
    Bar {
        label: short(single.group.stack_title()).to_owned(),
        class,
        source: single.group.first.source,
        note: single.group.source_text("latency_p50"),
        p50: single.p50.value,
        p99: single.group.percentile(Ops::Only(class), 99.0).ok().map(|e| e.value),
    }
}

pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_can_not_break_out_of_the_picture() {
        assert_eq!(escape("<b>&\"x\""), "&lt;b&gt;&amp;&quot;x&quot;");
    }
}
