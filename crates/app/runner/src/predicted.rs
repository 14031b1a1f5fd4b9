//! Block trials on device models, in virtual time.
//!
//! Invariant: the result depends on the study, the profile, the recorded host and the seed only; in ACT's
//! phase without `service-threads` also on this machine's CPUs, as in ACT. Databases cannot be predicted.

use archive::StackRecord;
use device::{Condition, Model, Parameters, Profile};
use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;
use sim::{BlockPath, Calibration, HostModel, MeasuredCosts, run_unless};
use stats::{Limit, Recording, TrialResult};
use study::{Extent, Job, Stack, Study, Submission, Trial, block_groups};
use units::{Bytes, Nanos, Seed, Share};
use validate::{CheckedFigure, JobShape, check_job, check_phenomena};
use workload::OpClass;

/// Virtual duration of each acceptance job.
const CHECK_TIME: Nanos = Nanos::from_millis(200);

/// Smallest request of the modelled devices, bytes.
const SMALLEST_REQUEST: u32 = 512;

/// A model stack: a device and its host.
#[derive(Debug, Clone)]
pub(crate) struct Modelled {
    pub profile: Profile,
    pub host: HostModel,
    /// For databases.
    pub costs: MeasuredCosts,
}

/// Runs `trial` on the modelled device; `None` if stopped.
///
/// # Errors
/// The load cannot be offered; contains the reason.
pub(crate) fn predict(
    Modelled { profile, host, .. }: &Modelled,
    stack: &Stack,
    trial: &Trial,
    (seed, stop): (Seed, &AtomicBool),
) -> Result<Option<TrialResult>, String> {
    let extent = Extent {
        device: size_of(stack, profile),
        devices: 1,
        smallest_request: SMALLEST_REQUEST,
        cpus: observe::cpus(),
        until: trial.timeline.until(),
    };
    let (groups, _) = block_groups(&trial.job, extent)?;
    let clients: Vec<_> = groups.iter().flat_map(|group| group.clients(seed)).collect();
    let threads = groups.iter().filter(|g| !g.plan.background).map(|g| g.clients).sum();
    let (met, path) = host.met_by(profile, u32::try_from(clients.len()).unwrap_or(u32::MAX));
    let device = Model::new(&met, condition_of(stack.condition), seed);
    let mut target = BlockPath::new(device, path, clients.len(), seed);
    let stopping = || stop.load(Ordering::Relaxed);
    let Some(recording) = run_unless(&mut target, clients, trial.timeline, &stopping) else {
        return Ok(None);
    };
    let limits = limit(&recording, *host, threads).into_iter().collect();
    let path = "virtual time".to_owned();
    let notes = beyond(profile, &trial.job).into_iter().collect();
    let totals = target.stage_times().totals().collect();
    Ok(Some(TrialResult { recording, path, limits, notes, totals, ..TrialResult::default() }))
}

/// Addressed bytes of a modelled drive.
pub(crate) fn size_of(stack: &Stack, profile: &Profile) -> Bytes {
    stack.size.unwrap_or(profile.capacity).min(profile.capacity)
}

/// The initial state of a drive.
#[must_use]
pub const fn condition_of(condition: study::Condition) -> Condition {
    match condition {
        study::Condition::Steady => Condition::Steady,
        study::Condition::Fresh => Condition::Fresh,
        study::Condition::Filled => Condition::Filled,
    }
}

/// Describes how a job leaves the measured range of a fitted profile; `None` within it, and for other models.
fn beyond(profile: &Profile, job: &Job) -> Option<String> {
    let (Parameters::Flow(p), Job::Block(job)) = (&profile.parameters, job) else { return None };
    let mut left = Vec::new();
    let sizes = job.size_mix.iter().map(|one| one.size).chain([job.block_size]);
    let (least, most) = (p.sizes.value.first()?, p.sizes.value.last()?);
    if sizes.clone().any(|size| size < *least || size > *most) {
        left.push(format!("blocks of {least} to {most} were measured"));
    }
    let in_flight = job.clients.saturating_mul(job.queue_depth);
    let deepest = p.in_flight.value.first().and_then(|depths| depths.last().copied())?;
    if job.arrivals == study::Arrivals::Closed && in_flight > deepest {
        left.push(format!("at most {deepest} operations in flight were measured"));
    }
    if job.clients > 1 && p.thread_time.is_none() {
        left.push("one thread was measured".to_owned());
    }
    let larger = sizes.clone().any(|size| size > *least);
    if job.clients > 1 && larger {
        left.push(format!("of several threads blocks of {least} were measured"));
    }
    if job.distribution != study::Offsets::Uniform {
        left.push("uniform offsets were measured".to_owned());
    }
    // Recent fits validate one-thread schedules; older ones none.
    let tested = profile.acceptance.iter().filter_map(|tested| tested.rate).max();
    let alike = job.clients == 1 && job.arrivals == study::Arrivals::Poisson;
    let scheduled = alike && tested.is_some_and(|most| job.rate() <= most);
    if job.arrivals != study::Arrivals::Closed && !scheduled {
        left.push("closed loops were measured".to_owned());
    }
    if job.size_mix.len() > 1 {
        left.push("one size at a time was measured".to_owned());
    }
    let mixed = ![Share::ALL, Share::NONE].contains(&job.read_share) || !job.beside.is_empty();
    if mixed && p.mixes.is_none() {
        left.push("reads and writes were measured apart".to_owned());
    } else if mixed && larger {
        match p.large_mixes.as_ref().and_then(|mixes| mixes.size.as_ref()) {
            Some(most) if sizes.clone().all(|size| size <= most.value) => {}
            Some(most) => left.push(format!("mixes of blocks up to {} were measured", most.value)),
            None => left.push(format!("mixes of blocks of {least} were measured")),
        }
    }
    if job.pattern == study::Pattern::Sequential {
        left.push("random offsets were measured".to_owned());
    }
    if job.sync_every > 0 || job.dsync {
        match p.flushes {
            None => left.push("flushes were not measured".to_owned()),
            Some(_) if in_flight > 1 || larger => {
                left.push(format!("flushes after single writes of {least} were measured"));
            }
            Some(_) => {}
        }
    }
    let words = || format!("outside the measurements of this device: {}", left.join("; "));
    (!left.is_empty()).then(words)
}

/// Why a job cannot be predicted on a profile: it needs durability, about which the profile has no data.
pub(crate) fn unknown(profile: &Profile, job: &Job) -> Option<String> {
    let durable = match job {
        Job::Block(job) => {
            let own = job.sync_every > 0 || job.dsync;
            own || job.beside.iter().any(|beside| beside.sync_every > 0 || beside.dsync)
        }
        Job::Act(job) => job.config().is_ok_and(|config| !config.disable_odsync),
        Job::Kv(job) => job.durability == study::Durability::Device,
        Job::Sql(_) => true,
    };
    let unknown = profile.parameters.unknown_flush().filter(|_| durable)?;
    Some(format!(
        "a flush or a forced write (sync_every, dsync, ACT without disable-odsync, a durable database) takes \
         an unknown time on {}: {unknown}",
        profile.name
    ))
}

/// The host that a model stack names; otherwise this one if calibrated.
///
/// # Errors
/// The name is unknown; the message lists the known ones.
pub(crate) fn host_of(
    stack: &Stack,
    profile: &Profile,
    here: Option<&Calibration>,
) -> Result<HostModel, String> {
    let automatic = stack.host == "auto";
    let name = match (automatic, stack.submission) {
        (true, Submission::Psync) => "psync",
        (true, Submission::Auto | Submission::IoUring) => HostModel::io_uring().name,
        (false, _) => &stack.host,
    };
    let own = here.filter(|_| automatic).and_then(|here| here.path(name));
    let Some(host) = own.or_else(|| HostModel::named(name)) else {
        return Err(format!(
            "host path `{name}` is unknown; allowed: auto, {}",
            HostModel::names().join(", ")
        ));
    };
    let host = host.to(profile);
    let cores = if stack.cores > 0 { stack.cores } else { host.cores };
    Ok(HostModel { cores, ..host })
}

/// Whether the host was the limit of a prediction.
fn limit(recording: &Recording, host: HostModel, threads: u32) -> Option<Limit> {
    let rate =
        |class| recording.total(Some(class)).counts.ops as f64 / recording.seconds().max(1e-9);
    let (reads, writes) = (rate(OpClass::Read), rate(OpClass::Write));
    let around = (reads + writes) * (host.complete + host.between).as_secs_f64();
    let submitting = reads * host.submit.as_secs_f64() + writes * host.submit_write.as_secs_f64();
    let busy = (around + submitting) / host.threads(threads.max(1));
    (busy >= Limit::THREAD_BUSY).then_some(Limit::Thread { busy: busy.min(1.0) })
}

/// Compares a profile with all published results that it contains; jobs run on all cores.
#[must_use]
pub fn check_profile(profile: &Profile) -> Vec<validate::Check> {
    let mut checks = check_jobs(profile, Seed(1));
    checks.extend(check_phenomena(profile, Seed(1)));
    checks
}

fn check_jobs(profile: &Profile, seed: Seed) -> Vec<validate::Check> {
    let jobs = profile.acceptance.par_iter();
    jobs.flat_map_iter(|job| check_job(profile, job, CHECK_TIME, seed)).collect()
}

/// Published results for jobs like those that `study` predicts on `stack`, with the model's errors. Only
/// these are simulated, since a job that writes takes seconds.
fn checked(stack: &Stack, of: &Modelled, study: &Study, seed: Seed) -> Vec<CheckedFigure> {
    let Modelled { profile, host, .. } = of;
    // Published results were validated with the published host and say nothing about this host's path.
    let published = HostModel::named(host.name).map(|known| known.to(profile).times());
    if published.is_some_and(|times| times != host.times()) {
        return Vec::new();
    }
    let fresh = stack.condition != study::Condition::Steady;
    let mut wanted: Vec<JobShape> = Vec::new();
    for trial in study::plan(study).trials.iter().filter(|trial| trial.stack == stack.name) {
        let Job::Block(job) = &trial.job else { continue };
        let shape = analysis::shape_of(job, host.name, fresh);
        wanted.extend(shape.filter(|shape| !wanted.contains(shape)));
    }
    let near = |job: &&device::Acceptance| {
        let shape = JobShape::of(job);
        wanted.iter().any(|one| shape.is_near(one))
    };
    let jobs: Vec<&device::Acceptance> = profile.acceptance.iter().filter(near).collect();
    let of_jobs = jobs.par_iter().flat_map_iter(|job| check_job(profile, job, CHECK_TIME, seed));
    let mut checks: Vec<CheckedFigure> = of_jobs.filter_map(|check| check.figure()).collect();
    let curve =
        wanted.iter().filter(|shape| shape.is_near(&validate::growth_shape(shape.in_flight)));
    if curve.count() >= stats::curve::POINTS_MIN {
        checks.extend(validate::check_growth(profile, seed));
    }
    checks
}

/// Hash of a model's constants, independent of its file.
pub(crate) fn constants(profile: &Profile) -> String {
    study::short_hash(&format!("{:?} {:?}", profile.capacity, profile.parameters))
}

/// Rate limits of a cloud volume.
fn rate_limits(profile: &Profile) -> Option<archive::RateLimits> {
    let Parameters::Cloud(volume) = &profile.parameters else { return None };
    let (operations, bytes) = (volume.operations.value.get(), volume.bandwidth.value.get());
    Some(archive::RateLimits { operations, bytes })
}

/// Completes the header record of a model stack.
pub(crate) fn stack_record(
    record: StackRecord,
    stack: &Stack,
    of: &Modelled,
    study: &Study,
    seed: Seed,
) -> StackRecord {
    let host = of.host;
    let cores = match stack.cores {
        0 => String::new(),
        cores => format!(", on {cores} cores (set by the study)"),
    };
    StackRecord {
        host_model: Some(format!("{} ({}){cores}", host.name, host.source)),
        host_path: Some(host.name.to_owned()),
        host_times: host.times().to_vec(),
        scheduler_times: of.costs.times(),
        rate_limits: rate_limits(&of.profile),
        host_cores: Some((host.cores, host.siblings)),
        checked: checked(stack, of, study, seed),
        ..record
    }
}
