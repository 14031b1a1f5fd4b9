//! Estimated duration, writes and space of a plan.
//!
//! Invariant: depends on the study alone.

use std::time::Duration;

use study::{
    DeviceName, Experiment, FileSystem, Job, KvJob, Plan, Source, SqlJob, Stack, Study, Trial,
};
use units::Bytes;

/// Space that must stay free besides a run's needs.
const MARGIN: u64 = 64 << 20;
/// Assumed rate of filling a file, bytes per second.
const FILL_RATE: f64 = 400e6;
/// Assumed rate of loading records, per second.
const LOAD_RATE: f64 = 60e3;
/// Assumed overhead of a measured trial, seconds.
const TRIAL_OVERHEAD: f64 = 0.1;
/// Assumed duration of a predicted trial, seconds of real time per second of virtual time.
const PREDICTED_SHARE: f64 = 0.03;

/// Time and bytes of a plan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Wall time.
    pub seconds: f64,
    /// Bytes written to prepare targets, without measured writes.
    pub prepared: Bytes,
    /// Largest space in use at once in one directory.
    pub space: Bytes,
}

/// Estimates a plan of `study`.
#[must_use]
pub fn estimate(study: &Study, plan: &Plan) -> Estimate {
    let mut seconds = plan.trials.iter().map(trial_seconds).fold(0.0, |sum, one| sum + one);
    let (mut prepared, mut space) = (0u64, 0u64);
    for stack in &study.stack {
        let block = |trial: &&Trial| trial.stack == stack.name && trial.job.is_block();
        if stack.device == DeviceName::File && plan.trials.iter().any(|trial| block(&trial)) {
            prepared += stack.size().get();
            space += stack.size().get();
            seconds += stack.size().get() as f64 / FILL_RATE;
        }
    }
    seconds += plan.trials.iter().map(|trial| stretched_load(study, trial)).sum::<f64>();
    let databases = plan.trials.iter().filter_map(|trial| match &trial.job {
        Job::Kv(job) => Some(database_bytes(job)),
        Job::Sql(job) => Some(server_bytes(job)),
        Job::Block(_) | Job::Act(_) => None,
    });
    let databases: Vec<u64> = databases.collect();
    prepared += databases.iter().sum::<u64>();
    space += databases.iter().max().copied().unwrap_or(0);
    Estimate { seconds, prepared: Bytes(prepared), space: Bytes(space) }
}

/// Extra loading time on time-scaled drives, seconds.
fn stretched_load(study: &Study, trial: &Trial) -> f64 {
    let stack = study.stack.iter().find(|stack| stack.name == trial.stack);
    let longer =
        stack.filter(|stack| !stack.staged).map_or(0, |stack| stack.scale.saturating_sub(1));
    let bytes = match &trial.job {
        Job::Kv(job) => job.data().get(),
        Job::Sql(job) if job.fresh => job.data().get(),
        Job::Sql(_) | Job::Block(_) | Job::Act(_) => 0,
    };
    f64::from(longer) * bytes as f64 / FILL_RATE
}

/// Space that the trials of a file stack need in its directory, with a margin.
pub(crate) fn file_space(stack: &Stack, jobs: &[&Job]) -> Bytes {
    let databases = jobs.iter().filter_map(|job| match job {
        Job::Kv(job) => Some(database_bytes(job)),
        // Each trial on a simulated drive has a copy of the tables.
        Job::Sql(job) if stack.is_virtual() => Some(server_bytes(job).saturating_mul(2)),
        Job::Sql(job) => Some(server_bytes(job)),
        Job::Block(_) | Job::Act(_) => None,
    });
    let file = if !stack.is_virtual() && jobs.iter().any(|job| job.is_block()) {
        stack.size().get()
    } else {
        0
    };
    let databases = match stack.file_system {
        _ if stack.is_virtual() => databases.max().unwrap_or(0),
        FileSystem::AsIs => databases.max().unwrap_or(0),
        _ => stack.size().get(),
    };
    Bytes(file + databases + MARGIN)
}

/// Space that a database needs: records with page slack, and the copies that updates make.
pub(crate) fn database_bytes(job: &KvJob) -> u64 {
    job.data().get().saturating_add(job.records.saturating_mul(16)).saturating_mul(3)
}

/// Space of a server's data directory: 1.5 times the tables, the redo log, and its initial size.
pub(crate) fn server_bytes(job: &SqlJob) -> u64 {
    // A user's server has its own space.
    if job.dsn.is_some() {
        return 0;
    }
    (job.data().get() * 3 / 2)
        .saturating_add(job.options.size("redo_log").map_or(0, units::Bytes::get))
        .saturating_add(SERVER_BYTES)
}

/// Data directory of a server without tables, and its temporary files.
const SERVER_BYTES: u64 = 256 << 20;
/// Assumed time to make a data directory, to start a server twice and to stop it twice, seconds.
const SERVER_OVERHEAD: f64 = 5.0;

/// Estimated wall time of one trial.
pub(crate) fn trial_seconds(trial: &Trial) -> f64 {
    let time = trial.timeline.end().as_secs_f64();
    if trial.source == Source::Predicted {
        return time * PREDICTED_SHARE;
    }
    match &trial.job {
        Job::Block(job) => {
            let rounds = job
                .precondition
                .map_or(0.0, |wanted| wanted.round.as_secs_f64() * f64::from(wanted.rounds_max));
            time + rounds + TRIAL_OVERHEAD
        }
        Job::Act(_) => time + TRIAL_OVERHEAD,
        Job::Sql(job) => {
            // Trials that reuse tables only start a server; the plan does not know which.
            let rows = f64::from(job.tables) * job.records as f64;
            let load = if job.fresh { rows / LOAD_RATE } else { 0.0 };
            time + SERVER_OVERHEAD + load
        }
        Job::Kv(job) => {
            let time = if job.workload.fills() { 0.0 } else { time };
            time + TRIAL_OVERHEAD + 1.0 + job.records as f64 / LOAD_RATE
        }
    }
}

/// Time after which a trial is killed: the experiment's deadline, or ten times the estimate plus half an
/// hour, loading and preconditioning included.
pub(crate) fn deadline(trial: &Trial, experiment: &Experiment, prepare: f64) -> Duration {
    experiment.deadline.map_or_else(
        || {
            let load = match &trial.job {
                Job::Sql(job) => f64::from(job.tables) * job.records as f64 / LOAD_RATE,
                _ => 0.0,
            };
            let estimated = trial_seconds(trial) + load + prepare;
            Duration::from_secs_f64((estimated * 10.0 + 1800.0).clamp(1800.0, DEADLINE_MAX))
        },
        Duration::from,
    )
}

/// Longest deadline that is chosen, seconds: two weeks.
const DEADLINE_MAX: f64 = 14.0 * 86_400.0;

/// Estimated time to fill a stack's device this many times, seconds.
pub(crate) fn fill_seconds(stack: &Stack, fills: u32) -> f64 {
    stack.size().get() as f64 * f64::from(fills) / FILL_RATE
}
