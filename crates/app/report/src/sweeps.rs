//! Charts over a parameter that an experiment sweeps: the share of reads, the size of a group commit, the
//! block size, the rating of ACT.
//!
//! Invariant: everything else is equal along a line.

use std::collections::{BTreeSet, HashMap, HashSet};

use indexmap::IndexMap;
use stats::estimate::{Estimate, TooFew};
use units::{Bytes, Share};
use workload::OpClass;

use crate::chart::{ChartLine, LINES_MAX, Sweep, short};
use crate::hue::Hues;
use analysis::{Group, Ops};

/// Parameters that can be swept, with axis titles.
const SWEPT: [(&str, &str); 6] = [
    ("read_share", "reads, %"),
    ("sync_every", "writes per flush"),
    ("block_size", "block size, KiB"),
    ("rating", "ACT rating"),
    ("clients", "threads"),
    ("burst", "operations a burst"),
];
/// Values that make a sweep.
const VALUES_MIN: usize = 3;

/// The sweeps of one experiment.
///
/// `left_out` counts lines beyond the limit.
pub(crate) fn sweeps(
    hues: &Hues,
    title: &str,
    groups: &[&Group<'_>],
    left_out: &mut usize,
) -> Vec<Sweep> {
    let mut out = Vec::new();
    // Reads, writes and flushes have separate charts, because colour shows the drive.
    let mut sweep = |title: (&str, &str), axis: &Axis, measures: &[Measure]| -> Vec<Sweep> {
        let of = |measure| sweep(hues, title, (groups, &mut *left_out), axis, measure);
        measures.iter().filter_map(of).collect()
    };
    for (name, words) in SWEPT {
        let mut values: Vec<&String> =
            groups.iter().filter_map(|group| group.first.point.get(name)).collect();
        values.sort_unstable();
        values.dedup();
        if values.len() < VALUES_MIN {
            continue;
        }
        let axis = Axis { name, words, log: name != "read_share" };
        if name == "rating" {
            out.extend(sweep((title, OVER_LIMIT), &axis, &[over_1ms()]));
            continue;
        }
        if name == "sync_every" {
            out.extend(sweep((title, "flushes per second"), &axis, &[sync_rate()]));
        }
        out.extend(sweep((title, "IOPS"), &axis, &[rate(false)]));
        if name == "block_size" || name == "read_share" {
            out.extend(sweep((title, "MB/s"), &axis, &[rate(true)]));
        }
        for (words, p) in
            [("mean", None), ("median", Some(50.0)), ("p99", Some(99.0)), ("p99.999", Some(99.999))]
        {
            let what = format!("{words} latency");
            out.extend(sweep((title, &what), &axis, &latencies(p)));
        }
    }
    out
}

struct Axis {
    name: &'static str,
    words: &'static str,
    log: bool,
}

/// The quantity of a line.
struct Measure {
    suffix: &'static str,
    y: &'static str,
    value: Box<ValueOf>,
}

/// The value of a measure at one point; `None` if there are too few samples.
type ValueOf = dyn Fn(&Group<'_>) -> Option<f64>;

fn rate(bytes: bool) -> Measure {
    let value = move |group: &Group<'_>| {
        let ops = *group.classes().first()?;
        let rate = if bytes { group.throughput(ops)?.value / 1e6 } else { group.rate(ops)?.value };
        Some(rate)
    };
    let y = if bytes { "MB/s" } else { "IOPS" };
    Measure { suffix: "", y, value: Box::new(value) }
}

fn sync_rate() -> Measure {
    let ops = Ops::Only(OpClass::Sync);
    let value = move |group: &Group<'_>| Some(group.rate(ops)?.value);
    Measure { suffix: "", y: "IOPS", value: Box::new(value) }
}

fn latencies(p: Option<f64>) -> [Measure; 4] {
    let of = |ops: Ops, suffix| {
        let value = move |group: &Group<'_>| {
            if !group.classes().contains(&ops) {
                return None;
            }
            let estimate: Result<Estimate, TooFew> = match p {
                Some(p) => group.percentile(ops, p),
                None => return Some(group.mean_latency(ops)?.value / 1e3),
            };
            Some(estimate.ok()?.value / 1e3)
        };
        Measure { suffix, y: "latency", value: Box::new(value) }
    };
    [
        of(Ops::Only(OpClass::Read), " of reads"),
        of(Ops::Only(OpClass::Write), " of writes"),
        of(Ops::All, " of all"),
        of(Ops::Only(OpClass::Sync), " of flushes"),
    ]
}

fn sweep(
    hues: &Hues,
    (title, what): (&str, &str),
    (groups, left_out): (&[&Group<'_>], &mut usize),
    axis: &Axis,
    measure: &Measure,
) -> Option<Sweep> {
    let mut beyond = HashSet::new();
    let mut lines: IndexMap<String, ChartLine> = IndexMap::new();
    let differing = differing(groups, axis.name);
    for group in groups {
        let others = other_parameters(&differing, group);
        let label = format!("{}{others}", short(group.stack_title()));
        if lines.len() >= LINES_MAX && !lines.contains_key(&label) {
            beyond.insert(label);
            continue;
        }
        let (Some(x), Some(y)) = (position(group, axis.name), (measure.value)(group)) else {
            continue;
        };
        // Zero has no place on a logarithmic axis.
        if axis.log && x <= 0.0 || measure.y == "latency" && y <= 0.0 {
            continue;
        }
        let begun = || ChartLine::of(hues, group, label.clone(), Vec::new());
        lines.entry(label.clone()).or_insert_with(begun).points.push(vec![x, y]);
    }
    lines.retain(|_, line| line.points.len() >= VALUES_MIN);
    *left_out += beyond.len();
    (!lines.is_empty()).then(|| Sweep {
        title: format!("{title}: {what}{}", measure.suffix),
        x: axis.words,
        y: measure.y,
        xlog: axis.log,
        ylog: measure.y == "latency",
        lines: lines.into_values().collect(),
    })
}

/// The quantity of a sweep of ratings.
const OVER_LIMIT: &str = "reads with a service time over 1 ms (limit 5 %)";

/// Percent of reads over 1 ms at each rating.
fn over_1ms() -> Measure {
    let value = |group: &Group<'_>| {
        let total = group.service(Ops::Only(OpClass::Read));
        let over = total.len() - total.count_between(0, 999_999);
        (!total.is_empty()).then(|| over as f64 * 100.0 / total.len() as f64)
    };
    Measure { suffix: "", y: "% over 1 ms", value: Box::new(value) }
}

/// A parameter as a number: percent, KiB, or a count.
fn position(group: &Group<'_>, name: &str) -> Option<f64> {
    let text = group.first.point.get(name)?;
    if let Ok(share) = text.parse::<Share>() {
        return Some(share.percent());
    }
    if let Ok(bytes) = text.parse::<Bytes>() {
        return Some(bytes.get() as f64 / 1024.0);
    }
    text.parse().ok()
}

/// Names of other parameters than the swept one that differ between the groups.
fn differing<'a>(groups: &[&'a Group<'_>], swept: &str) -> BTreeSet<&'a str> {
    let raised = ["read_reqs_per_sec", "write_reqs_per_sec"];
    let mut values: HashMap<&str, HashSet<Option<&String>>> = HashMap::new();
    for name in groups.iter().flat_map(|group| group.first.point.keys()) {
        values.entry(name).or_default();
    }
    for (name, there) in &mut values {
        there.extend(groups.iter().map(|group| group.first.point.get(*name)));
    }
    let differs = values.into_iter().filter(|(_, there)| there.len() > 1);
    differs.map(|(name, _)| name).filter(|name| *name != swept && !raised.contains(name)).collect()
}

/// The values of a group's differing parameters: each combination has a line.
fn other_parameters(differing: &BTreeSet<&str>, own: &Group<'_>) -> String {
    let there = own.first.point.iter().filter(|(name, _)| differing.contains(name.as_str()));
    let parts: Vec<String> = there.map(|(_, value)| value.clone()).collect();
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
}
