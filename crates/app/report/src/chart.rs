//! Charts as plain numbers, for the page's script.
//!
//! Invariant: a line has one source.

use analysis::Group;
use serde::Serialize;
use study::Source;

use crate::hue::Hues;

/// Charts of one kind at most.
pub(crate) const CHARTS_MAX: usize = 24;
/// Lines of one chart at most.
pub(crate) const LINES_MAX: usize = 8;
/// All charts, by kind.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Charts {
    /// Latency over IOPS, one mark per queue depth.
    pub curves: Vec<Chart>,
    /// Latency over percentile.
    pub spectra: Vec<Chart>,
    /// Results plotted against a parameter that an experiment sweeps.
    pub sweeps: Vec<Sweep>,
    /// Rate over time.
    pub series: Vec<Chart>,
    /// Counters of databases, over the same time.
    pub inside: Vec<Chart>,
    /// Stages of transactions, over the same time.
    pub phases: Vec<Chart>,
    /// Rates over time until each racer has finished.
    pub races: Vec<Chart>,
    /// Number of charts and lines that were left out.
    #[serde(skip)]
    pub left_out: usize,
}

#[derive(Debug, Serialize)]
pub(crate) struct Chart {
    pub title: String,
    pub lines: Vec<ChartLine>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ChartLine {
    pub label: String,
    pub source: Source,
    /// Colour index of the stack.
    pub color: usize,
    /// `[x, y]`; curves add the queue depth and the 99th percentile: `[iops, p50, depth, p99]`.
    pub points: Vec<Vec<f64>>,
}

impl ChartLine {
    /// A line for a group's stack.
    pub fn of(hues: &Hues, group: &Group<'_>, label: String, points: Vec<Vec<f64>>) -> Self {
        let (source, color) = (group.first.source, hues.get(&group.first.stack));
        let points = points.into_iter().map(|point| point.into_iter().map(rounded).collect());
        Self { label, source, color, points: points.collect() }
    }
}

/// A chart over a parameter.
#[derive(Debug, Serialize)]
pub(crate) struct Sweep {
    pub title: String,
    /// Label of the horizontal axis.
    pub x: &'static str,
    /// Label of the vertical axis; `latency` is in microseconds.
    pub y: &'static str,
    /// Logarithmic axes.
    pub xlog: bool,
    pub ylog: bool,
    pub lines: Vec<ChartLine>,
}

/// If all values are within this share of the largest, the chart shows a constant and is dropped.
const CONSTANT: f64 = 0.03;

impl Chart {
    /// Whether all of its lines are constant.
    pub fn is_flat(&self) -> bool {
        let flat = |line: &ChartLine| {
            let values = || line.points.iter().map(|point| point[1]);
            let (low, high) =
                (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
            high - low <= high * CONSTANT
        };
        self.lines.iter().all(flat)
    }
}

/// Vendor and family names that precede a drive's model.
const MAKERS: [&str; 14] = [
    "Intel ", "Optane ", "SSD ", "DC ", "Samsung ", "Solidigm ", "Micron ", "Kioxia ", "Crucial ",
    "WD ", "SK hynix ", "Amazon EBS ", "Google Cloud ", "Azure ",
];

/// Five significant digits: more cannot be seen.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let unit = 10f64.powi(value.abs().log10().floor() as i32 - 4);
    // Division keeps short decimals short.
    if unit < 1.0 {
        (value / unit).round() / (1.0 / unit).round()
    } else {
        (value / unit).round() * unit
    }
}

/// The model of a drive or volume, without vendor, capacity and bracketed parts: `P4800X`, `990 Pro`, `gp3
/// base`. Provenance shows the full title.
pub(crate) fn short(title: &str) -> &str {
    let plain = title.split(" (").next().filter(|short| !short.trim().is_empty()).unwrap_or(title);
    // A description of layers is a sentence, not a model name.
    if plain.contains([':', ',']) || plain.contains(" of ") || plain.contains(" over ") {
        return plain;
    }
    let mut model = plain;
    while let Some(rest) = MAKERS.iter().find_map(|maker| model.strip_prefix(maker)) {
        model = rest;
    }
    let words: Vec<&str> = model.rsplitn(3, ' ').collect();
    match words.as_slice() {
        ["GB" | "TB", size, rest] if size.parse::<f64>().is_ok() => rest,
        // No model is left: `Samsung SSD`, `Intel SSD 1 TB`.
        ["GB" | "TB", _] | ["SSD" | "DC" | "disk" | "drive" | ""] => plain,
        _ => model,
    }
}

#[cfg(test)]
mod tests {
    use super::short;

    /// A short name must still identify the drive.
    #[test]
    fn a_short_name_is_the_model() {
        for (title, name) in [
            ("Intel Optane SSD DC P4800X 375 GB (3D XPoint, NVMe)", "P4800X"),
            ("Samsung 990 Pro 4 TB (TLC NAND, NVMe)", "990 Pro"),
            ("Amazon EBS gp3 base (3000 IOPS, 125 MiB/s)", "gp3 base"),
            ("Google Cloud pd-ssd 2 TB", "pd-ssd"),
            ("Intel SSD DC P3608 one controller (MLC NAND, 800 GB)", "P3608 one controller"),
            ("RAID 5 of three Intel SSD DC S3520", "RAID 5 of three Intel SSD DC S3520"),
            ("Intel CAS: P4800X before RAID 5", "Intel CAS: P4800X before RAID 5"),
            ("Samsung SSD", "Samsung SSD"),
            ("Intel SSD 1 TB", "Intel SSD 1 TB"),
            ("Azure disk", "Azure disk"),
            ("This disk", "This disk"),
            ("(unnamed)", "(unnamed)"),
        ] {
            assert_eq!(short(title), name);
        }
    }
}
