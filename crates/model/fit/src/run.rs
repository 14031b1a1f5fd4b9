//! Simulates a fitted profile at the jobs that it was fitted to and tested with.
//!
//! Invariant: the host is part of the profile; nothing else is added.

use device::{Condition, Model, Profile};
use stats::{Recording, Timeline, estimate};
use units::{Bytes, Nanos, Seed, Share};
use workload::{Arrivals, BlockGroup, BlockPlan, Spacing};

use crate::points::{FitCategory, FitPoint, kept_up};
use sim::{BlockPath, HostModel, run};
use validate::predicted;

/// A measured figure and its prediction.
#[derive(Debug, Clone)]
pub struct Residual {
    /// Description of the job.
    pub job: String,
    /// Share of reads, block size and depth of the job.
    pub at: (Share, Bytes, u32),
    /// Whether it is a point of a curve over depth: one thread in a closed loop.
    pub curve: bool,
    /// `IOPS`, `mean`, `p50`, `p99`.
    pub metric: &'static str,
    /// Class of its error.
    pub category: FitCategory,
    /// Operations per second or nanoseconds.
    pub measured: f64,
    /// The prediction of the fitted profile.
    pub predicted: f64,
}

impl Residual {
    /// Relative error, signed.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.predicted / self.measured - 1.0
    }
}

/// Length of a simulation: number of operations, at the measured rate, and a minimum of seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Length {
    pub operations: f64,
    pub seconds: f64,
}

/// The longest run, seconds.
const SECONDS_MAX: f64 = 20.0;
/// For errors: with fewer operations, chance decides the p99 if the distribution has a step.
const COMPARED: Length = Length { operations: 100_000.0, seconds: 0.1 };
/// For schedules, of which only means and medians are used.
pub(crate) const LOOKED_AT: Length = Length { operations: 20_000.0, seconds: 0.5 };

/// Simulates the profile at a job: at most 20 s of virtual time after a warm-up of 0.1 s.
pub(crate) fn recording_of(
    profile: &Profile,
    point: &FitPoint,
    length: Length,
    seed: Seed,
) -> Recording {
    let seconds = (length.operations / point.iops()).clamp(length.seconds, SECONDS_MAX);
    let timeline = timeline(Nanos((seconds * 1e9) as u64));
    let size = u32::try_from(point.block_size.get()).unwrap_or(4096);
    let arrivals = point.rate.map(|rate| Arrivals::open(Spacing::Poisson, rate));
    let plan = BlockPlan {
        read_share: point.read_share,
        queue_depth: point.queue_depth,
        arrivals: arrivals.unwrap_or(Arrivals::CLOSED),
        ..BlockPlan::reads(size, profile.capacity, timeline.end())
    };
    simulate(profile, plan, (timeline, point.threads.max(1)), seed)
}

/// A measurement of this length after a warm-up.
pub(crate) fn timeline(measure: Nanos) -> Timeline {
    Timeline { warm_up: Nanos::from_millis(100), measure, interval: Nanos(measure.get() / 4) }
}

/// Simulates the profile with this many client threads.
pub(crate) fn simulate(
    profile: &Profile,
    plan: BlockPlan,
    (timeline, threads): (Timeline, u32),
    seed: Seed,
) -> Recording {
    let (met, host) = HostModel::io_uring().to(profile).met_by(profile, threads);
    let device = Model::new(&met, Condition::Steady, seed);
    let target = BlockPath::new(device, host, threads as usize, seed);
    let group = BlockGroup { clients: threads, ..BlockGroup::new(plan) };
    run(target, group.clients(seed), timeline)
}

/// The prediction of `profile` for every point, next to the measurement.
#[must_use]
pub fn residuals(profile: &Profile, points: &[FitPoint], seed: Seed) -> Vec<Residual> {
    kept_up(points).into_iter().flat_map(|point| compare(profile, point, seed)).collect()
}

fn compare(profile: &Profile, point: &FitPoint, seed: Seed) -> Vec<Residual> {
    let recording = recording_of(profile, point, COMPARED, seed);
    let latency = point.latency();
    let measured = |p| estimate::percentile(&latency, 0, p).ok().map(|e| e.value);
    let pairs = [
        // The rate of a schedule is given, not a result.
        ("IOPS", point.rate.is_none().then(|| point.iops())),
        ("mean", Some(point.mean())),
        ("p50", measured(50.0)),
        ("p99", measured(99.0)),
    ];
    let (share, size, depth) = (point.read_share, point.block_size, point.queue_depth);
    let threads = point.threads.max(1);
    let residual = |(metric, measured): (&'static str, Option<f64>)| {
        let threads = if threads > 1 { format!("{threads} x ") } else { String::new() };
        let depth_or_rate = match point.rate {
            Some(rate) => format!("{threads}at {rate}"),
            None => format!("{threads}depth {depth}"),
        };
        Some(Residual {
            job: format!("{size} {share} reads, {depth_or_rate}"),
            at: (share, size, depth),
            curve: point.threads <= 1 && point.rate.is_none(),
            metric,
            category: point.category(),
            measured: measured?,
            predicted: predicted(metric, &recording, false)?,
        })
    };
    pairs.into_iter().filter_map(residual).collect()
}
