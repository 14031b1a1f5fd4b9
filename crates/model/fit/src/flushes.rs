//! Flushes and forced writes: which are fitted, their table, and its test.
//!
//! Invariant: whether a job is fitted or held out depends on the job, never on its result.

use device::{Constant, FlowFlushes, Parameters, Profile};
use stats::estimate;
use units::{Nanos, Seed, Share};
use workload::{BlockPlan, OpClass};

use crate::points::{FitCategory, FitTimes, SMALL};
use crate::rows::{means, times};
use crate::run::{Residual, simulate, timeline};

/// Flushes after this many 4 KiB writes of one client at queue depth 1, or its forced writes.
#[derive(Debug, Clone)]
pub struct FlushPoint {
    /// Writes before each flush; `None`: no flushes, but each write is on the medium when it ends (O_DSYNC).
    pub writes: Option<u32>,
    /// Response times of the flushes, or of the forced writes.
    pub times: FitTimes,
}

/// Numbers of writes that are fitted; others are held out.
const FITTED: [u32; 3] = [1, 8, 64];
/// Fewest samples of a row.
const ENOUGH: u64 = 50;
/// Flushes that are simulated for a comparison.
const COMPARED: f64 = 20_000.0;

impl FlushPoint {
    fn held_out(&self) -> bool {
        self.writes.is_some_and(|writes| !FITTED.contains(&writes))
    }

    fn job(&self) -> String {
        match self.writes {
            None => format!("{SMALL} forced writes"),
            Some(1) => format!("{SMALL} writes, flush after each"),
            Some(writes) => format!("{SMALL} writes, flush after {writes}"),
        }
    }
}

/// Adds flushes and forced writes to a fitted profile, if all that a fit needs were measured.
#[must_use]
pub fn with_flushes(profile: Profile, points: &[FlushPoint], source: &str) -> Profile {
    let Some(flushes) = parameters(points, source) else { return profile };
    let Parameters::Flow(mut flow) = profile.parameters else { return profile };
    if let Some(alone) = &mut flow.alone {
        alone.flushes = Some(flushes.clone());
    }
    flow.flushes = Some(flushes);
    Profile { parameters: Parameters::Flow(flow), ..profile }
}

/// Numbers of writes whose flushes are fitted: those with enough samples; none if flushes after each write or
/// forced writes lack them.
#[must_use]
pub fn fitted_flushes(points: &[FlushPoint]) -> Vec<u32> {
    let enough = |writes| of(points, writes).is_some();
    let known = enough(Some(1)) && enough(None);
    FITTED.into_iter().filter(|writes| known && enough(Some(*writes))).collect()
}

fn of(points: &[FlushPoint], writes: Option<u32>) -> Option<&FlushPoint> {
    points.iter().find(|point| point.writes == writes && point.times.ops >= ENOUGH)
}

fn parameters(points: &[FlushPoint], source: &str) -> Option<FlowFlushes> {
    let fitted = fitted_flushes(points);
    let rows: Vec<&FlushPoint> = fitted.iter().filter_map(|one| of(points, Some(*one))).collect();
    let forced = of(points, None).filter(|_| !rows.is_empty())?;
    let table = |row: fn(&FitTimes) -> Vec<Nanos>| {
        Constant::measured(rows.iter().map(|point| row(&point.times)).collect(), source)
    };
    Some(FlowFlushes {
        writes: Constant::measured(fitted, source),
        times: table(times),
        means: table(means),
        forced_times: Constant::measured(times(&forced.times), source),
        forced_means: Constant::measured(means(&forced.times), source),
    })
}

/// The prediction of `profile` for every point, next to the measurement; empty if it has no flushes.
#[must_use]
pub fn flush_residuals(profile: &Profile, points: &[FlushPoint], seed: Seed) -> Vec<Residual> {
    if profile.parameters.unknown_flush().is_some() {
        return Vec::new();
    }
    points
        .iter()
        .filter(|point| point.times.ops > 0)
        .flat_map(|one| compare(profile, one, seed))
        .collect()
}

fn compare(profile: &Profile, point: &FlushPoint, seed: Seed) -> Vec<Residual> {
    let (mean, writes) = (point.times.mean().unwrap_or_default(), point.writes.unwrap_or(0));
    let of_writes = plain_write(profile) * f64::from(writes);
    let measure = Nanos((COMPARED * (mean + of_writes)) as u64);
    let measure = measure.clamp(Nanos::from_millis(100), Nanos::from_secs(20));
    let timeline = timeline(measure);
    let plan = BlockPlan {
        read_share: Share::NONE,
        sync_every: writes,
        dsync: point.writes.is_none(),
        ..BlockPlan::reads(SMALL.get() as u32, profile.capacity, timeline.end())
    };
    let recording = simulate(profile, plan, (timeline, 1), seed);
    let class = if point.writes.is_some() { OpClass::Sync } else { OpClass::Write };
    let total = recording.total(Some(class));
    let mut predicted = FitTimes::default();
    predicted.add(total.due.ops, total.due.latency_sum, &total.latency);
    let percentile =
        |of: &FitTimes, p| estimate::percentile(&of.latency, 0, p).ok().map(|e| e.value);
    let figures = [
        ("mean", [&point.times, &predicted].map(FitTimes::mean)),
        ("p50", [&point.times, &predicted].map(|of| percentile(of, 50.0))),
        ("p99", [&point.times, &predicted].map(|of| percentile(of, 99.0))),
    ];
    let residual = |(metric, [measured, predicted]): (&'static str, [Option<f64>; 2])| {
        Some(Residual {
            job: point.job(),
            at: (Share::NONE, SMALL, 1),
            curve: false,
            metric,
            category: if point.held_out() { FitCategory::Flushes } else { FitCategory::Fitted },
            measured: measured?,
            predicted: predicted?,
        })
    };
    figures.into_iter().filter_map(residual).collect()
}

/// Mean time of a write at depth 1, nanoseconds.
fn plain_write(profile: &Profile) -> f64 {
    let timeline = timeline(Nanos::from_millis(100));
    let plan = BlockPlan {
        read_share: Share::NONE,
        ..BlockPlan::reads(SMALL.get() as u32, profile.capacity, timeline.end())
    };
    let total = simulate(profile, plan, (timeline, 1), Seed(1)).total(None);
    total.due.latency_sum.get() as f64 / total.due.ops.max(1) as f64
}
