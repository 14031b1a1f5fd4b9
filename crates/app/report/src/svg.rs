//! Shapes of a chart that stretches with the page while its text keeps its size.
//!
//! Horizontal positions are percentages, heights are pixels; paths are in a stretched box. Invariants: no
//! style attributes (forbidden by the page's policy), text escaped.

use std::fmt::Write;

/// A logarithmic or linear scale onto percent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    from: f64,
    to: f64,
    log: bool,
}

/// Upper bound of any value on an axis.
const VALUE_MAX: f64 = 1e18;

impl Scale {
    /// An axis from `from` to `to`, which must be positive if logarithmic.
    pub fn new(from: f64, to: f64, log: bool) -> Self {
        let (from, to) = if log { (from.ln(), to.ln()) } else { (from, to) };
        let sound = from.is_finite() && to.is_finite();
        let (from, to) = if sound { (from, to) } else { (0.0, 1.0) };
        let to = if to > from { to } else { from + 1.0 };
        Self { from, to, log }
    }

    /// An axis over all `values` with a margin; from 0 if linear.
    pub fn over(values: impl Iterator<Item = f64>, log: bool) -> Option<Self> {
        let mut ends: Option<(f64, f64)> = None;
        let sound = |value: &f64| value.abs() < VALUE_MAX && (!log || *value > 1.0 / VALUE_MAX);
        for value in values.filter(sound) {
            let (low, high) = ends.unwrap_or((value, value));
            ends = Some((low.min(value), high.max(value)));
        }
        let (low, high) = ends?;
        Some(match log {
            true => Self::new(low / 1.15, high * 1.15, true),
            false => Self::new(0.0, high * 1.06, false),
        })
    }

    /// Position of `value` in percent of the axis.
    pub fn at(&self, value: f64) -> f64 {
        let value = if self.log { value.max(f64::MIN_POSITIVE).ln() } else { value };
        ((value - self.from) / (self.to - self.from) * 100.0).clamp(-5.0, 105.0)
    }

    /// Round values for tick labels, about six at most.
    pub fn ticks(&self) -> Vec<f64> {
        let (low, high) = match self.log {
            true => (self.from.exp(), self.to.exp()),
            false => (self.from, self.to),
        };
        let steps: &[f64] = match (high / low.max(f64::MIN_POSITIVE)).log10() {
            _ if !self.log => {
                let rough = (high - low) / 4.0;
                let power = 10f64.powf(rough.log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|s| s * power >= rough);
                let step = step.unwrap_or(10.0) * power;
                let count = ((high - low) / step).floor() as u32;
                return (0..=count).map(|at| low + f64::from(at) * step).collect();
            }
            decades if decades < 0.5 => &[1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0],
            decades if decades < 2.3 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let first = low.log10().floor() as i32;
        let last = high.log10().ceil() as i32;
        let all =
            (first..=last).flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
        let all: Vec<f64> = all.filter(|value| (low..=high).contains(value)).collect();
        let every = all.len().div_ceil(7).max(1);
        all.into_iter().step_by(every).collect()
    }
}

/// A number with few digits.
pub(crate) fn short(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Opens a chart of this height in pixels.
pub(crate) fn open(out: &mut String, class: &str, height: f64, label: &str) {
    let _ = write!(
        out,
        "<svg class=\"{class}\" width=\"100%\" height=\"{height:.0}\" role=\"img\" aria-label=\"{}\">",
        escape(label)
    );
}

/// A polyline through `points` (percent, pixels of `height`).
pub(crate) fn path(out: &mut String, class: &str, height: f64, points: &[(f64, f64)]) {
    let mut way = String::new();
    for (at, (x, y)) in points.iter().enumerate() {
        let _ = write!(way, "{}{} {}", if at == 0 { "M" } else { "L" }, short(*x), short(*y));
    }
    let _ = write!(
        out,
        "<svg width=\"100%\" height=\"{height:.0}\" viewBox=\"0 0 100 {height:.0}\" \
         preserveAspectRatio=\"none\" overflow=\"visible\"><path class=\"{class}\" d=\"{way}\"/></svg>"
    );
}

/// The labels of a vertical axis: `(pixels from the top, text)`.
pub(crate) fn marks(height: f64, words: impl Iterator<Item = (f64, String)>) -> String {
    let mut out = String::new();
    open(&mut out, "marks", height, "");
    for (y, word) in words {
        let _ = write!(
            out,
            "<text class=\"tick\" x=\"100%\" dx=\"-6\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            (y + 4.0).max(10.0),
            escape(&word)
        );
    }
    out.push_str("</svg>");
    out
}

/// Level lines at these pixels from the top.
pub(crate) fn levels(out: &mut String, places: impl Iterator<Item = f64>) {
    for y in places {
        let _ =
            write!(out, "<line class=\"grid\" x1=\"0\" x2=\"100%\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>");
    }
}

/// Labels below a chart: `(percent of the width, label)`.
pub(crate) fn below(out: &mut String, height: f64, words: impl Iterator<Item = (f64, String)>) {
    for (x, word) in words {
        let _ = write!(
            out,
            "<text class=\"tick\" x=\"{x:.1}%\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
            height - 5.0,
            escape(&word)
        );
    }
}

/// Truncates a name to this many characters.
pub(crate) fn cut(name: &str, most: usize) -> String {
    match name.char_indices().nth(most) {
        Some((end, _)) => format!("{}\u{2026}", name[..end].trim_end()),
        None => name.to_owned(),
    }
}

/// Removes the middle of a name longer than `most` characters: names of one drive's stacks differ at their
/// end.
pub(crate) fn without_middle(name: &str, most: usize) -> String {
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= most {
        return name.to_owned();
    }
    let head = most.saturating_sub(1) / 2;
    let tail = letters.len() - (most.saturating_sub(1) - head);
    let (head, tail): (String, String) =
        (letters[..head].iter().collect(), letters[tail..].iter().collect());
    format!("{}\u{2026}{}", head.trim_end(), tail.trim_start())
}

/// Text that cannot break out of its element.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_break_out_of_the_picture() {
        assert_eq!(escape("<b>&\"x\""), "&lt;b&gt;&amp;&quot;x&quot;");
    }

    /// Shortened names of three lines must stay distinguishable.
    #[test]
    fn stacks_of_one_drive_are_told_apart_in_few_letters() {
        let short = |name: &str| without_middle(name, 17);
        let (one, two) = (
            short("Optane P4800X, ext4 without a journal"),
            short("Optane P4800X, no file system"),
        );
        assert!(
            one != two && one.chars().count() <= 17 && one.starts_with("Optane"),
            "{one} {two}"
        );
        assert_eq!(short("Flash P4500, ext4"), "Flash P4500, ext4");
        assert_eq!(short("\u{b5}\u{b5}\u{b5}").len(), 6);
    }

    #[test]
    fn axes_have_round_numbers() {
        let scale = Scale::over([12.0, 950.0].into_iter(), true).unwrap();
        assert_eq!(scale.ticks(), [20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]);
        let linear = Scale::over([0.0, 47.0].into_iter(), false).unwrap();
        assert_eq!(linear.ticks(), [0.0, 20.0, 40.0]);
        assert!((linear.at(0.0), linear.at(47.0) < 100.0) == (0.0, true));
        assert!(Scale::over([0.0].into_iter(), true).is_none(), "nothing above 0");
    }
}
