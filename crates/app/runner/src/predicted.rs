//! Block trials on device models, in virtual time.
//!
//! Invariant: the result depends on the study, the profile and the seed alone. What it is not: able
//! to predict databases.

use archive::{NOTE_THREAD_LIMIT, StackRecord, THREAD_LIMIT_SHARE, Validation};
use device::{Model, Profile};
use sim::{BlockRun, HostModel, JobKind, check, run_block, spread};
use stats::Recording;
use study::{Arrivals, BlockJob, Stack, Trial};
use units::{Nanos, Seed};
use workload::{BlockClient, ClientIndex};

use crate::measured::block_plan;

/// Virtual time of each acceptance job.
const CHECK_TIME: Nanos = Nanos::from_millis(200);

/// Runs `trial` on the device of `profile`.
pub(crate) fn predict(
    profile: &Profile,
    stack: &Stack,
    trial: &Trial,
    job: &BlockJob,
    seed: Seed,
) -> Recording {
    let plan = block_plan(job, stack.size.min(profile.capacity), trial.timeline.end());
    let of = job.threads;
    let client = |index| BlockClient::new(plan, seed, ClientIndex { index, of });
    run_block(BlockRun {
        device: Model::new(profile, seed),
        host: HostModel::io_uring(),
        clients: (0..of).map(client).collect(),
        timeline: trial.timeline,
        open_loop: job.arrivals != Arrivals::Closed,
        seed,
    })
}

/// What must be said of a prediction: that the host was its limit, if so.
pub(crate) fn notes(recording: &Recording, job: &BlockJob) -> Vec<String> {
    let host = HostModel::io_uring();
    let rate = recording.total(None).counts.ops as f64 / recording.seconds().max(1e-9);
    let busy = rate * (host.submit + host.complete).as_secs_f64() / f64::from(job.threads);
    if busy < THREAD_LIMIT_SHARE {
        return Vec::new();
    }
    vec![format!("{NOTE_THREAD_LIMIT}: each is busy {:.0} % of the time", busy.min(1.0) * 100.0)]
}

/// What the header says of a model stack: its error against published figures, computed now.
pub(crate) fn stack_record(stack: &Stack, profile: &Profile, seed: Seed) -> StackRecord {
    let checks = check(profile, CHECK_TIME, seed);
    let validation = [JobKind::Read, JobKind::Write, JobKind::Mix]
        .into_iter()
        .filter_map(|kind| {
            let (median, worst, figures) = spread(&checks, kind)?;
            Some(Validation {
                kind: kind.word().to_owned(),
                median_error: median,
                worst_error: worst,
                figures: u32::try_from(figures).unwrap_or(u32::MAX),
            })
        })
        .collect();
    let host = HostModel::io_uring();
    StackRecord {
        name: stack.name.clone(),
        title: if stack.title.is_empty() { profile.title.clone() } else { stack.title.clone() },
        device: stack.device.text(),
        storage: None,
        not_covered: Some(profile.not_covered.clone()),
        host_model: Some(format!("{} ({})", host.name, host.source)),
        validation,
    }
}
