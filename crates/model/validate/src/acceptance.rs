//! Compares a profile with published figures: simulates each of its acceptance jobs.
//!
//! `prediction_error` says what the errors mean for a prediction. Invariant: pure; errors are computed, never
//! stored.

use device::{
    Acceptance, Condition, Durable, Evidence, JobPattern, MissCause, Model, Profile, Published,
};
use stats::{Recording, Timeline, estimate};
use units::{Bytes, Nanos, Rate, Seed, Share};
use workload::{Arrivals, BlockGroup, BlockPlan, OpClass, Pattern, Spacing};

use crate::prediction_error::{CheckedFigure, JobShape};
use sim::{BlockPath, HostModel, run};

/// Warm-up of jobs that write.
const WRITE_WARM_UP: Nanos = Nanos::from_secs(1);
/// Operations that a job needs to be compared.
const OPERATIONS_MIN: u64 = 2_000;
/// Minimum virtual time of jobs that write: in a run of 200 ms the write buffer would hide the drive's own
/// rate.
const WRITES_MIN: Nanos = Nanos::from_secs(20);
/// The same for scheduled mixes.
const SCHEDULED_MIN: Nanos = Nanos::from_secs(5);
/// No job is measured for longer.
const MEASURE_MAX: Nanos = Nanos::from_secs(240);
/// Maximum number of background writes in flight.
const BESIDE_DEPTH: u32 = 1024;

/// A closed loop without think time.
const CLOSED: Arrivals = Arrivals::Closed { think: Nanos::ZERO };

/// Kind of block job that a figure is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobKind {
    /// Reads only.
    Read,
    /// Writes only.
    Write,
    /// Both.
    Mix,
    /// Writes made durable one by one or in groups.
    Durable,
    /// 4 KiB reads next to writes.
    ReadBeside,
    /// Scheduled 4 KiB writes next to reads or writes.
    WriteBeside,
    /// Sequential, or of another size than 4 KiB.
    Large,
    /// Open loop.
    Scheduled,
}

units::words!(JobKind {
    Read => "random reads", Write => "random writes", Mix => "random mixes",
    Durable => "durable writes", ReadBeside => "reads next to writes",
    WriteBeside => "writes next to reads", Large => "large or sequential",
    Scheduled => "open loop",
});

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

    /// The kind of a figure of a published job.
    fn of_figure(job: &Acceptance, metric: &str) -> Self {
        let beside = job.beside_writes.is_some() || job.beside_depth.is_some();
        if job.durable.is_some() {
            Self::Durable
        } else if job.pattern == JobPattern::Sequential || job.block_size != Bytes(4096) {
            Self::Large
        } else if metric.ends_with(" of writes") {
            Self::WriteBeside
        } else if beside || metric.ends_with(" of reads") {
            Self::ReadBeside
        } else if job.rate.is_some() {
            Self::Scheduled
        } else {
            Self::of(job.read_share)
        }
    }
}

/// Tolerance of a published value that has no band of its own.
const BAND: f64 = 0.10;

/// One published figure next to the predicted one.
#[derive(Debug, Clone)]
pub struct Check {
    /// Kind of job; `None` for a phenomenon that several jobs show together.
    pub kind: Option<JobKind>,
    /// Metric: `IOPS`, `MB/s`, `mean`, `p99` and so on, or the phenomenon.
    pub metric: &'static str,
    /// The job, for people; empty for a phenomenon.
    pub job: String,
    /// The published value, in operations or MB per second, nanoseconds, or the phenomenon's unit.
    pub published: Published<f64>,
    /// Predicted value in the same unit.
    pub predicted: f64,
    /// Role of the figure for the model.
    pub evidence: Evidence,
    /// Cause of a known miss.
    pub missed: Option<MissCause>,
    /// The job, typed; `None` for a phenomenon.
    pub shape: Option<JobShape>,
    /// Source of the published value.
    pub source: String,
}

impl Check {
    /// Relative error against the published value, signed: 0.05 is 5 % too high; `None` where only a band
    /// is known.
    #[must_use]
    pub fn error(&self) -> Option<f64> {
        self.published.value().map(|value| self.predicted / value - 1.0)
    }

    /// A value of this metric, for people.
    #[must_use]
    pub fn text(&self, value: f64) -> String {
        match (self.kind, self.metric) {
            (None, _) => format!("{value:.2}"),
            (_, "IOPS" | "MB/s") => format!("{value:.0}"),
            _ => Nanos(value as u64).to_string(),
        }
    }

    /// The published value as text, with its band if it has one.
    #[must_use]
    pub fn published_text(&self) -> String {
        let band = self.published.band();
        let band = band.map(|[low, high]| format!("{} to {}", self.text(low), self.text(high)));
        if let Some(least) = self.published.least() {
            return format!("{} or more", self.text(least));
        }
        match (self.published.value(), band) {
            (Some(value), Some(band)) => format!("{} ({band})", self.text(value)),
            (Some(value), None) => self.text(value),
            (None, band) => band.unwrap_or_default(),
        }
    }

    /// Metric and job, for people.
    #[must_use]
    pub fn what(&self) -> String {
        match self.job.as_str() {
            "" => self.metric.to_owned(),
            job => format!("{}, {job}", self.metric),
        }
    }

    /// Whether the prediction is in the band.
    #[must_use]
    pub fn within(&self) -> bool {
        match (self.published.band(), self.published.least()) {
            (Some([low, high]), _) => (low..=high).contains(&self.predicted),
            (None, Some(least)) => self.predicted >= least,
            (None, None) => self.error().is_some_and(|error| error.abs() <= BAND),
        }
    }

    /// The check as evidence for the error of predictions; `None` for a phenomenon, and where only a band is
    /// published.
    #[must_use]
    pub fn figure(&self) -> Option<CheckedFigure> {
        let (shape, metric) = (self.shape.clone()?, self.metric.to_owned());
        let error = self.error().filter(|error| error.is_finite())?;
        Some(CheckedFigure { shape, metric, evidence: self.evidence, error })
    }
}

/// Runs a job of `profile` for at least `measure` of virtual time, longer where the rarest published
/// percentile needs it; nothing for an unknown host path. Jobs are independent of each other.
#[must_use]
pub fn check_job(profile: &Profile, job: &Acceptance, measure: Nanos, seed: Seed) -> Vec<Check> {
    let Some(host) = HostModel::named(&job.host) else { return Vec::new() };
    compare(job, &run_job(profile, job, host.to(profile), measure, seed))
}

/// Operations that a job needs for its rarest percentile.
fn operations_needed(job: &Acceptance) -> u64 {
    if job.latency_p99_999.is_some() {
        OPERATIONS_MIN * 1000
    } else if job.latency_p99_99.is_some() {
        OPERATIONS_MIN * 100
    } else if job.latency_p99_9.is_some() {
        OPERATIONS_MIN * 10
    } else {
        OPERATIONS_MIN
    }
}

fn run_job(
    profile: &Profile,
    job: &Acceptance,
    host: HostModel,
    measure: Nanos,
    seed: Seed,
) -> Recording {
    let alone = job.beside_writes.is_none() && job.beside_depth.is_none();
    let reads = job.read_share == Share::ALL && alone;
    let measure = match reads {
        true => measure,
        // Scheduled operations meet an existing load, so only the number of samples matters.
        false if job.rate.is_some() => measure.max(SCHEDULED_MIN),
        false => measure.max(WRITES_MIN),
    };
    // Longer than it takes to fill a write buffer.
    let warm_up = if reads { Nanos(measure.get() / 4) } else { WRITE_WARM_UP };
    let timeline = Timeline { warm_up, measure, interval: Nanos(measure.get() / 4) };
    let size = u32::try_from(job.block_size.get()).unwrap_or(4096);
    let spacing = if job.evenly { Spacing::Constant } else { Spacing::Poisson };
    let plan = BlockPlan {
        pattern: match job.pattern {
            JobPattern::Random => Pattern::UNIFORM,
            JobPattern::Sequential => Pattern::Sequential,
        },
        read_share: job.read_share,
        queue_depth: job.queue_depth.max(1),
        sync_every: u32::from(job.durable == Some(Durable::Flush)),
        dsync: job.durable == Some(Durable::Dsync),
        arrivals: job.rate.map_or(CLOSED, |rate| Arrivals::open(spacing, rate)),
        ..BlockPlan::reads(size, profile.capacity, timeline.end())
    };
    let group = BlockGroup { clients: job.threads.max(1), ..BlockGroup::new(plan) };
    let mut clients = group.clients(seed);
    if !alone {
        let threads = job.beside_threads.unwrap_or(1);
        let reads = job.beside_reads.unwrap_or(Share::NONE);
        let all =
            |writes: Rate| Rate((writes.get() as f64 / (1.0 - reads.fraction())).round() as u64);
        let open = |writes| Arrivals::open(Spacing::Poisson, all(writes));
        let writes = BlockPlan {
            read_share: reads,
            arrivals: job.beside_writes.map_or(CLOSED, open),
            queue_depth: job.beside_depth.unwrap_or(BESIDE_DEPTH),
            background: true,
            ..BlockPlan::reads(4096, profile.capacity, timeline.end())
        };
        let beside = BlockGroup { recorded: false, clients: threads, ..BlockGroup::new(writes) };
        clients.extend(beside.clients(seed.derive("beside", 0)));
    }
    let (met, host) = host.met_by(profile, clients.len() as u32);
    let device = Model::new(&met, job.condition, seed);
    let recording = run(BlockPath::new(device, host, clients.len(), seed), clients, timeline);
    let ops = recording.total(None).counts.ops;
    let needed = operations_needed(job);
    if ops >= needed || measure >= MEASURE_MAX {
        return recording;
    }
    // A slow device, or a rare percentile, needs longer for as many operations.
    let factor = (needed / ops.max(1) + 1).clamp(2, 64);
    run_job(profile, job, host, (measure * factor).min(MEASURE_MAX), seed)
}

/// The value of a metric named in [`Acceptance::published`], by response times or, as in some sources, from
/// submission.
pub fn predicted(metric: &str, recording: &Recording, from_submission: bool) -> Option<f64> {
    let (metric, class) = match metric.split_once(" of ") {
        Some((metric, "reads")) => (metric, Some(OpClass::Read)),
        Some((metric, _)) => (metric, Some(OpClass::Write)),
        None => (metric, None),
    };
    let total = recording.total(class);
    let ops = total.counts.ops.max(1) as f64;
    let times = if from_submission { (&total.service, 0) } else { (&total.latency, total.missed) };
    let percentile = |p: f64| estimate::percentile(times.0, times.1, p).ok().map(|e| e.value);
    match metric {
        "IOPS" => Some(ops / recording.seconds()),
        "MB/s" => Some(total.counts.bytes as f64 / recording.seconds() / 1e6),
        "mean" if from_submission => Some(total.service.mean()),
        "mean" => Some(total.due.latency_sum.get() as f64 / total.due.ops.max(1) as f64),
        other => percentile(other.strip_prefix('p')?.parse().ok()?),
    }
}

fn compare(job: &Acceptance, recording: &Recording) -> Vec<Check> {
    let order = match job.pattern {
        JobPattern::Random => "",
        JobPattern::Sequential => " sequential",
    };
    let size =
        if job.block_size == Bytes(4096) { String::new() } else { format!("{} ", job.block_size) };
    let beside = match (job.beside_writes, job.beside_depth) {
        (Some(rate), _) => format!(" next to {rate} writes"),
        (None, Some(depth)) => match job.beside_threads {
            Some(threads) => format!(" next to writes, {threads} x {depth} in flight"),
            None => format!(" next to writes, {depth} in flight"),
        },
        (None, None) => String::new(),
    };
    let offered = job.rate.map_or_else(String::new, |rate| format!(" at {rate}"));
    let durable = match job.durable {
        None => "",
        Some(Durable::Flush) => ", a flush after each write",
        Some(Durable::Dsync) => ", O_DSYNC",
    };
    let state = match job.condition {
        Condition::Steady => "",
        Condition::Fresh => ", fresh",
        Condition::Filled => ", filled",
    };
    let text = format!(
        "{size}{}{order} reads{offered}, {} x depth {}, {}{beside}{durable}{state}",
        job.read_share, job.threads, job.queue_depth, job.host
    );
    let published = job.published().into_iter();
    published
        .filter_map(|one| {
            Some(Check {
                kind: Some(JobKind::of_figure(job, one.metric)),
                metric: one.metric,
                job: text.clone(),
                published: one.is,
                predicted: predicted(one.metric, recording, job.from_submission)?,
                evidence: one.evidence,
                missed: one.missed,
                shape: Some(JobShape::of(job)),
                source: job.source.clone(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(text: &str) -> Vec<Check> {
        let profile = Profile::parse(text).unwrap();
        let jobs = profile.acceptance.iter();
        jobs.flat_map(|job| check_job(&profile, job, Nanos::from_millis(200), Seed(1))).collect()
    }

    /// If a model drifts from what was published, every prediction made with it is wrong.
    #[test]
    fn shipped_profiles_stay_near_their_published_figures() {
        let texts = [
            (include_str!("../../../../devices/intel-p4800x.toml"), 0.40),
            (include_str!("../../../../devices/intel-900p.toml"), 0.20),
            (include_str!("../../../../devices/intel-s3520.toml"), 0.15),
            (include_str!("../../../../devices/intel-s3510.toml"), 0.15),
        ];
        for (text, worst_allowed) in texts {
            let checks = errors(text);
            assert!(checks.len() >= 2);
            for c in &checks {
                println!(
                    "{:?} {} {} {:?} {}",
                    c.error(),
                    c.metric,
                    c.job,
                    c.published,
                    c.predicted
                );
            }
            let errors = checks.iter().filter_map(|check| check.error().map(f64::abs));
            let worst = errors.fold(0.0, f64::max);
            assert!(worst <= worst_allowed, "{worst}");
        }
    }

    /// A source whose tool leaves out the wait for a free slot would be compared with figures that include
    /// it.
    #[test]
    fn latencies_from_submission_leave_out_the_wait_for_a_place() {
        let drive = include_str!("../../../../devices/intel-s3520.toml");
        let constants = drive.split("[[acceptance]]").next().unwrap();
        let mean = |key: &str| {
            let job = "host = \"io_uring\"\nthreads = 1\nqueue_depth = 1\nblock_size = \"4KiB\"\n\
                       read_share = \"100%\"\nrate = \"20k/s\"\nlatency_mean = \"100us\"\n\
                       source = \"a test\"\n";
            errors(&format!("{constants}\n[[acceptance]]\n{job}{key}"))[0].predicted
        };
        let (due, submitted) = (mean(""), mean("from_submission = true\n"));
        assert!(submitted < 200e3 && due > submitted * 50.0, "{due} {submitted}");
    }
}
