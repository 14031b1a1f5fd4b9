//! The IOPS-latency curve of a stack: highest rate, knee and latency growth.
//!
//! Growth is the mean latency at 95 % of the highest rate over that at the lowest load, as the ICPADS 2018
//! study prints it (25 %, 54 %, 80 %): by `stats::curve` for closed loops, interpolated linearly for open
//! loops. The knee is the point farthest below the diagonal of the normalised curve (Satopaa et al., "Finding
//! a Kneedle in a Haystack", 2011). Invariant: a curve of fewer than four points has neither.

use std::collections::{HashMap, HashSet};

use archive::Run;
use indexmap::IndexMap;
use stats::curve::{self, LoopPoint, NEARLY_ALL, POINTS_MIN};
use stats::estimate::{Estimate, over_repetitions};

use crate::groups::{Group, Ops, groups};

/// How the load of a curve was raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Higher queue depth per thread.
    Depth,
    /// More threads.
    Threads,
    /// Higher offered load.
    Offered,
}

/// One curve: groups that differ in load only.
#[derive(Debug)]
pub struct Curve<'a> {
    /// The parameter that raises the load.
    pub load: Load,
    /// In order of rising load.
    pub points: Vec<Point<'a>>,
}

/// One point of a curve.
#[derive(Debug)]
pub struct Point<'a> {
    /// The trials.
    pub group: Group<'a>,
    /// Operations per second.
    pub rate: Estimate,
    /// Mean latency, nanoseconds.
    pub mean_ns: f64,
}

/// Growth and knee of a curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Growth {
    /// Highest rate.
    pub most: f64,
    /// Mean latency at 95 % of the highest rate over the mean latency at the lowest load, minus 1; `None` if
    /// there are too few points.
    pub growth: Option<Estimate>,
    /// Index of the point with the highest rate.
    pub top: usize,
    /// Index of the point at the knee.
    pub knee: usize,
}

/// The parameter that raises the operations in flight.
pub const DEPTH: &str = "queue_depth";
/// Name of the parameter for the number of client threads.
pub const THREADS: &str = "clients";
/// The parameters that raise the arrivals.
pub const OFFERED: [&str; 2] = ["rate", "rate_of_max"];

/// How the load of each group's experiment is raised: by threads only if the depth is constant.
fn loads_of(all: &[Group<'_>]) -> Vec<Load> {
    let mut values: HashMap<(&str, &str), HashSet<Option<&String>>> = HashMap::new();
    for group in all.iter().filter(|group| !group.is_open_loop()) {
        for name in [THREADS, DEPTH] {
            let of_it = values.entry((&group.first.experiment, name)).or_default();
            of_it.insert(group.first.point.get(name));
        }
    }
    let load = |group: &Group<'_>| {
        let varies = |name| values[&(group.first.experiment.as_str(), name)].len() > 1;
        match group.is_open_loop() {
            true => Load::Offered,
            false if varies(THREADS) && !varies(DEPTH) => Load::Threads,
            false => Load::Depth,
        }
    };
    all.iter().map(load).collect()
}

/// Everything but the load, so that equal keys make a curve.
fn key(group: &Group<'_>, load: Load) -> Vec<(String, String)> {
    let varies: &[&str] = match load {
        Load::Depth => &[DEPTH],
        Load::Threads => &[THREADS],
        Load::Offered => &OFFERED,
    };
    let rest = group.first.point.iter().filter(|(name, _)| !varies.contains(&name.as_str()));
    let mut key: Vec<(String, String)> =
        rest.map(|(name, value)| (name.clone(), value.clone())).collect();
    key.push(("stack".into(), group.first.stack.clone()));
    key.push(("experiment".into(), group.first.experiment.clone()));
    // Threads and io_uring have different overheads; a curve across both would bend where they change.
    let ring = group.first.result.path.starts_with("io_uring");
    key.push(("ring".into(), ring.to_string()));
    key
}

/// The curves of a run, in the order of the plan.
pub fn curves(run: &Run) -> Vec<Curve<'_>> {
    let mut curves: IndexMap<_, Curve<'_>> = IndexMap::new();
    let all = groups(run);
    let loads = loads_of(&all);
    for (group, load) in all.into_iter().zip(loads) {
        let act = group.first.point.contains_key("read_reqs_per_sec");
        let Some(&ops) = group.classes().first().filter(|_| group.first.engine == "block" && !act)
        else {
            continue;
        };
        let (Some(rate), Some(mean)) = (group.rate(ops), group.mean_latency(ops)) else { continue };
        let key = key(&group, load);
        let point = Point { group, rate, mean_ns: mean.value };
        let begun = || Curve { load, points: Vec::new() };
        curves.entry(key).or_insert_with(begun).points.push(point);
    }
    curves.into_values().collect()
}

impl Curve<'_> {
    /// Computes growth and knee; `None` with too few points.
    pub fn growth(&self) -> Option<Growth> {
        let points: Vec<(f64, f64)> =
            self.points.iter().map(|point| (point.rate.value, point.mean_ns)).collect();
        let (knee, top) = knee(&points)?;
        Some(Growth { most: points[top].0, growth: self.latency_growth(), top, knee })
    }

    /// Growth per repetition; the interval is that of the ratio `1 + growth`.
    fn latency_growth(&self) -> Option<Estimate> {
        let least = self.points.iter().map(|point| point.group.trials.len()).min()?;
        let ops = self.ops();
        let of = |repetition: usize| {
            let trials = self.points.iter().map(|point| point.group.trials[repetition]);
            let rate = |trial: &archive::TrialRecord| {
                let counts = trial.result.recording.counts(ops.class());
                counts.ops as f64 / trial.result.recording.seconds().max(1e-9)
            };
            let grown = if self.load == Load::Offered {
                let due = |trial: &archive::TrialRecord| trial.result.recording.due(ops.class());
                let mean = |counts: stats::Counts| {
                    counts.latency_sum.get() as f64 / counts.ops.max(1) as f64
                };
                interpolated(&trials.map(|one| (rate(one), mean(due(one)))).collect::<Vec<_>>())
            } else {
                let loads = self.points.iter().map(|point| in_flight(&point.group));
                let point = |(load, trial)| LoopPoint { in_flight: load, rate: rate(trial) };
                curve::growth(&loads.zip(trials).map(point).collect::<Vec<_>>())
            };
            grown.map(|growth| 1.0 + growth)
        };
        let ratios: Vec<f64> = (0..least).map(of).collect::<Option<_>>()?;
        let open = self.points.iter().flat_map(|point| &point.group.trials);
        let missed = open.map(|trial| trial.result.recording.missed_of(ops.class())).sum::<u64>();
        let runs: Vec<Estimate> = ratios
            .iter()
            .map(|ratio| Estimate { at_least: missed > 0, ..Estimate::of(*ratio, 1) })
            .collect();
        let ratio = over_repetitions(&runs)?;
        let less = |end: Option<f64>| end.map(|end| end - 1.0);
        Some(Estimate { value: ratio.value - 1.0, lo: less(ratio.lo), hi: less(ratio.hi), ..ratio })
    }

    /// The operations of the curve.
    pub fn ops(&self) -> Ops {
        self.points[0].group.classes()[0]
    }
}

/// Operations that all threads together keep in flight.
fn in_flight(group: &Group<'_>) -> f64 {
    let of = |name: &str| group.first.point.get(name).and_then(|text| text.parse::<f64>().ok());
    of(DEPTH).unwrap_or(1.0) * of(THREADS).unwrap_or(1.0)
}

/// Growth interpolated in `(rate, mean latency)` points, sorted by offered load.
fn interpolated(points: &[(f64, f64)]) -> Option<f64> {
    if points.len() < POINTS_MIN {
        return None;
    }
    let most = points.iter().map(|(rate, _)| *rate).fold(0.0, f64::max);
    let (_, lowest) = *points.first()?;
    let target = most * NEARLY_ALL;
    let above = points.iter().position(|(rate, _)| *rate >= target)?;
    let (rate, mean) = points[above];
    let at_target = match above.checked_sub(1).map(|below| points[below]) {
        Some((before, low)) if rate > before => {
            low + (mean - low) * (target - before) / (rate - before)
        }
        _ => mean,
    };
    (lowest > 0.0).then(|| at_target / lowest - 1.0)
}

/// Indices of the knee and of the highest rate in `(rate, mean latency)` points, sorted by load.
fn knee(points: &[(f64, f64)]) -> Option<(usize, usize)> {
    if points.len() < POINTS_MIN {
        return None;
    }
    let most = points.iter().map(|(rate, _)| *rate).fold(0.0, f64::max);
    // Beyond the highest rate latency only rises; the knee is before it.
    let top = points.iter().position(|(rate, _)| *rate >= most)?;
    let (first, lowest) = points[0];
    let span = points[top].1 - lowest;
    let distance = |(rate, mean): (f64, f64)| {
        (rate - first) / (most - first).max(1e-9) - (mean - lowest) / span.max(1e-9)
    };
    let knee = (0..=top).max_by(|a, b| distance(points[*a]).total_cmp(&distance(points[*b])))?;
    Some((knee, top))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A serial server of 10 us with 10 us of path: depth 1 gives 50k/s at 20 us, depth 2 100k/s at 20 us;
    /// from there each step adds 10 us of latency and no throughput.
    #[test]
    fn the_knee_of_a_serial_server_and_the_growth_of_a_schedule() {
        let points = [(50e3, 20.0), (100e3, 20.0), (100e3, 30.0), (100e3, 40.0)];
        assert_eq!(knee(&points), Some((1, 1)));
        let points = [(10e3, 100.0), (50e3, 120.0), (90e3, 150.0), (100e3, 250.0)];
        let found = interpolated(&points).unwrap();
        assert!((found - 1.0).abs() < 1e-9, "95k lies half-way: 200 us");
        assert_eq!(knee(&points), Some((2, 3)));
        assert_eq!((interpolated(&points[..3]), knee(&points[..3])), (None, None));
    }
}
