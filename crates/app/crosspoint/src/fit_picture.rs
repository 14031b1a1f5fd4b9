//! The chart of a fit: measured and fitted latency over queue depth, and the residuals.
//!
//! Invariant: measurements are dots (hollow if held out), the fitted profile is a line.

use std::fmt::Write;

use fit::Residual;
use units::{Bytes, Nanos, Share};

const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 60.0;
/// Height of the error strip below each panel.
const STRIP: f64 = 80.0;
const GAP: f64 = 70.0;
/// Errors are clipped at this value.
const ERROR_MAX: f64 = 0.5;

/// The picture as the text of an SVG file.
pub fn picture(title: &str, residuals: &[Residual]) -> String {
    let panels = [("reads", Share::ALL), ("writes", Share::NONE)];
    let times = residuals.iter().filter(|one| is_time(one));
    let low =
        times.clone().map(|one| one.measured.min(one.predicted)).fold(f64::INFINITY, f64::min);
    let high = times.map(|one| one.measured.max(one.predicted)).fold(1.0, f64::max);
    let axis = Axis { low: low.log10().floor(), high: high.log10().ceil() };
    let mut svg = String::new();
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0} {:.0}\" font-family=\"sans-serif\" \
         font-size=\"11\" fill=\"#222\">\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\
         <text x=\"10\" y=\"20\" font-size=\"14\">{}</text>\
         <text x=\"10\" y=\"38\">4 KiB latency over depth: dots measured (hollow: held out), lines fitted; \
         mean blue, p99 orange; below, the error</text>",
        2.0 * (WIDTH + LEFT) + 30.0,
        TOP + HEIGHT + GAP + STRIP + 30.0,
        title.replace('&', "&amp;").replace('<', "&lt;")
    );
    for (place, (word, share)) in panels.into_iter().enumerate() {
        let left = LEFT + place as f64 * (WIDTH + LEFT + 10.0);
        let of_panel = residuals.iter().filter(|one| one.at.0 == share && is_time(one));
        panel(&mut svg, word, left, &axis, &of_panel.collect::<Vec<_>>());
    }
    svg.push_str("</svg>\n");
    svg
}

fn is_time(one: &Residual) -> bool {
    let drawable = one.measured > 0.0 && one.predicted > 0.0;
    drawable && one.at.1 == Bytes(4096) && one.curve && ["mean", "p99"].contains(&one.metric)
}

/// Decades of the latency axis.
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    fn y(&self, nanos: f64) -> f64 {
        TOP + HEIGHT * (1.0 - (nanos.log10() - self.low) / (self.high - self.low).max(1.0))
    }
}

fn panel(svg: &mut String, word: &str, left: f64, axis: &Axis, residuals: &[&Residual]) {
    let deepest = residuals.iter().map(|one| one.at.2).max().unwrap_or(1).max(2);
    let x = |depth: u32| {
        left + 15.0 + f64::from(depth).log2() / f64::from(deepest).log2() * (WIDTH - 30.0)
    };
    let _ = write!(svg, "<text x=\"{:.1}\" y=\"{:.1}\">{word}</text>", left + 6.0, TOP - 6.0);
    let mut decade = axis.low;
    while decade <= axis.high + 0.01 {
        let y = axis.y(10f64.powf(decade));
        let label = Nanos(10f64.powf(decade) as u64);
        line(svg, (left, y), (left + WIDTH, y), "#ddd");
        text(svg, (left - 6.0, y + 4.0), "end", &label.to_string());
        decade += 1.0;
    }
    let middle = TOP + HEIGHT + GAP + STRIP / 2.0;
    for error in [-ERROR_MAX, 0.0, ERROR_MAX] {
        let y = middle - error / ERROR_MAX * STRIP / 2.0;
        line(svg, (left, y), (left + WIDTH, y), "#ddd");
        text(svg, (left - 6.0, y + 4.0), "end", &format!("{:+.0} %", error * 100.0));
    }
    for (metric, color) in [("mean", "#1f5fa8"), ("p99", "#c75b12")] {
        let mut path = String::new();
        for one in residuals.iter().filter(|one| one.metric == metric) {
            let (depth, fill) = (one.at.2, if one.category.held_out() { "white" } else { color });
            let _ = write!(path, "{:.1},{:.1} ", x(depth), axis.y(one.predicted));
            let error = one.error().clamp(-ERROR_MAX, ERROR_MAX);
            let heights = [axis.y(one.measured), middle - error / ERROR_MAX * STRIP / 2.0];
            for y in heights {
                let _ = write!(
                    svg,
                    "<circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{fill}\" stroke=\"{color}\"/>",
                    x(depth)
                );
            }
            text(svg, (x(depth), TOP + HEIGHT + 18.0), "middle", &depth.to_string());
        }
        let _ = write!(svg, "<polyline points=\"{path}\" fill=\"none\" stroke=\"{color}\"/>");
    }
}

fn line(svg: &mut String, from: (f64, f64), to: (f64, f64), color: &str) {
    let _ = write!(
        svg,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{color}\"/>",
        from.0, from.1, to.0, to.1
    );
}

fn text(svg: &mut String, at: (f64, f64), anchor: &str, words: &str) {
    let _ = write!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{words}</text>",
        at.0, at.1
    );
}
