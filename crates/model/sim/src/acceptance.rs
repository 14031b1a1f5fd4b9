//! A profile held against published figures: each of its acceptance jobs run in virtual time.
//!
//! The spread of those errors is what a prediction of the same kind is printed with.
//! Invariant: pure; the error is computed, never stored. What it is not: fitting.

use device::{Acceptance, Model, Profile};
use stats::{Recording, Timeline, estimate};
use units::{Nanos, Seed, Share};
use workload::BlockPlan;

use crate::{BlockRun, Client, HostModel, run_block};

/// Warm-up of jobs that write, beside the measured time.
const WRITE_WARM_UP: Nanos = Nanos::from_secs(1);
/// Operations that a job needs to be compared.
const OPERATIONS_MIN: u64 = 2_000;
/// No job is measured for longer.
const MEASURE_MAX: Nanos = Nanos::from_secs(60);

/// What kind of block job a figure speaks of; errors are not carried from one kind to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobKind {
    /// Reads only.
    Read,
    /// Writes only.
    Write,
    /// Both.
    Mix,
}

impl JobKind {
    /// The kind of a job with that share of reads.
    #[must_use]
    pub fn of(read_share: Share) -> Self {
        match read_share {
            Share::ALL => Self::Read,
            Share::NONE => Self::Write,
            _ => Self::Mix,
        }
    }

    /// The word for people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Read => "random reads",
            Self::Write => "random writes",
            Self::Mix => "random mixes",
        }
    }
}

/// One published figure beside the predicted one.
#[derive(Debug, Clone)]
pub struct Check {
    /// Kind of job.
    pub kind: JobKind,
    /// Job and metric, for people.
    pub what: String,
    /// Published value: operations per second, or nanoseconds.
    pub published: f64,
    /// Predicted value in the same unit.
    pub predicted: f64,
    /// Where the published one is from.
    pub source: String,
}

impl Check {
    /// Relative error of the prediction, signed: 0.05 is 5 % too high.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.predicted / self.published - 1.0
    }
}

/// Runs every acceptance job of `profile` for `measure` of virtual time. A job whose host path is
/// unknown is left out.
#[must_use]
pub fn check(profile: &Profile, measure: Nanos, seed: Seed) -> Vec<Check> {
    profile
        .acceptance
        .iter()
        .filter_map(|job| Some((job, HostModel::named(&job.host)?)))
        .flat_map(|(job, host)| compare(job, &run_job(profile, job, host, measure, seed)))
        .collect()
}

fn run_job(
    profile: &Profile,
    job: &Acceptance,
    host: HostModel,
    measure: Nanos,
    seed: Seed,
) -> Recording {
    let warm_up = match JobKind::of(job.read_share) {
        JobKind::Read => Nanos(measure.get() / 4),
        // Longer than it takes to fill a write buffer.
        JobKind::Write | JobKind::Mix => measure + WRITE_WARM_UP,
    };
    let timeline = Timeline { warm_up, measure, interval: Nanos(measure.get() / 4) };
    let size = u32::try_from(job.block_size.get()).unwrap_or(4096);
    let plan = BlockPlan {
        read_share: job.read_share,
        queue_depth: job.queue_depth.max(1),
        ..BlockPlan::reads(size, profile.capacity, timeline.end())
    };
    let clients = Client::group(&plan, job.threads.max(1), seed);
    let device = Model::new(profile, seed);
    let recording = run_block(BlockRun { device, host, clients, timeline, seed });
    let enough = recording.total(None).counts.ops >= OPERATIONS_MIN || measure >= MEASURE_MAX;
    // A slow device needs longer for as many operations.
    if enough { recording } else { run_job(profile, job, host, measure * 8, seed) }
}

fn compare(job: &Acceptance, recording: &Recording) -> Vec<Check> {
    let total = recording.total(None);
    let ops = total.counts.ops.max(1) as f64;
    let percentile = |p: f64| estimate::percentile(&total.latency, p).ok().map(|e| e.value);
    let nanos = |value: Option<Nanos>| value.map(|nanos| nanos.get() as f64);
    let pairs = [
        ("IOPS", job.iops, Some(ops / recording.seconds())),
        ("mean", nanos(job.latency_mean), Some(total.counts.latency_sum.get() as f64 / ops)),
        ("p50", nanos(job.latency_p50), percentile(50.0)),
        ("p99", nanos(job.latency_p99), percentile(99.0)),
    ];
    pairs
        .into_iter()
        .filter_map(|(metric, published, predicted)| {
            Some(Check {
                kind: JobKind::of(job.read_share),
                what: format!(
                    "{} of {} reads, {} threads x depth {}, {} host",
                    metric, job.read_share, job.threads, job.queue_depth, job.host
                ),
                published: published?,
                predicted: predicted?,
                source: job.source.clone(),
            })
        })
        .collect()
}

/// Median and largest absolute error of the checks of one kind, and how many there are; `None` when
/// nothing was published for that kind.
#[must_use]
pub fn spread(checks: &[Check], kind: JobKind) -> Option<(f64, f64, usize)> {
    let mut errors: Vec<f64> =
        checks.iter().filter(|c| c.kind == kind).map(|c| c.error().abs()).collect();
    errors.sort_by(f64::total_cmp);
    let worst = *errors.last()?;
    let (below, above) = (errors[(errors.len() - 1) / 2], errors[errors.len() / 2]);
    Some(((below + above) / 2.0, worst, errors.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(text: &str) -> Vec<Check> {
        let profile = Profile::parse(text).unwrap();
        check(&profile, Nanos::from_millis(200), Seed(1))
    }

    /// If a model drifts from what was published, every prediction made with it is wrong.
    #[test]
    fn shipped_profiles_stay_near_their_published_figures() {
        let texts = [
            (include_str!("../../../../devices/intel-p4800x.toml"), 0.40),
            (include_str!("../../../../devices/samsung-980-pro.toml"), 0.12),
            (include_str!("../../../../devices/intel-s3510.toml"), 0.15),
        ];
        for (text, worst_allowed) in texts {
            let checks = errors(text);
            assert!(checks.len() >= 2);
            for c in &checks {
                println!("{:+.1}% {} {} {}", c.error() * 100.0, c.what, c.published, c.predicted);
            }
            for kind in [JobKind::Read, JobKind::Write, JobKind::Mix] {
                let Some((_, worst, _)) = spread(&checks, kind) else {
                    continue;
                };
                assert!(worst <= worst_allowed, "{kind:?}: {worst}");
            }
        }
    }

    #[test]
    fn a_kind_without_published_figures_has_no_error() {
        let checks = errors(include_str!("../../../../devices/intel-s3510.toml"));
        assert!(spread(&checks, JobKind::Write).is_none());
    }
}
