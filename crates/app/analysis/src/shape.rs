//! Job shapes of predictions, by which published figures are selected.
//!
//! Invariant: a job that published figures cannot cover (skew, rate steps, several sizes, ACT) has no shape,
//! so no error is transferred to it.

use std::collections::HashMap;

use archive::{Run, StackRecord};
use sim::HostModel;
use study::{Arrivals, BlockJob, Condition, Job, Offsets, Source, Study, Trial};
use units::{Nanos, Share};
use validate::{JobShape, PredictionError};

/// Shapes by trial number, of predictions only.
pub(crate) fn shapes(run: &Run) -> HashMap<u32, JobShape> {
    if run.header.stacks.iter().all(|stack| stack.host_path.is_none()) {
        return HashMap::new();
    }
    let shape = |trial: study::Trial| {
        let record = run.header.stacks.iter().find(|stack| stack.name == trial.stack)?;
        Some((trial.number, shape_of_trial(record, &run.study, &trial)?))
    };
    study::plan(&run.study).trials.into_iter().filter_map(shape).collect()
}

fn shape_of_trial(record: &StackRecord, study: &Study, trial: &Trial) -> Option<JobShape> {
    let stack = study.stack.iter().find(|stack| stack.name == trial.stack)?;
    let Job::Block(job) = &trial.job else { return None };
    let fresh = stack.condition != Condition::Steady;
    let predicted = trial.source == Source::Predicted;
    let host = record.host_path.as_ref().filter(|_| predicted)?;
    shape_of(job, host, fresh)
}

/// Expected error of the prediction of `metric` (named as in `figures`) by a trial on the stack of `record`.
#[must_use]
pub fn worth_of(
    record: &StackRecord,
    study: &Study,
    trial: &Trial,
    metric: &str,
) -> PredictionError {
    let shape = shape_of_trial(record, study, trial).zip(checked_metric(metric));
    shape.map_or(PredictionError::NotValidated, |(shape, metric)| {
        PredictionError::of(&record.checked, &shape, metric)
    })
}

/// The shape of a plain job on a host path; `None` if published figures cannot cover it.
#[must_use]
pub fn shape_of(job: &BlockJob, host: &str, fresh: bool) -> Option<JobShape> {
    let plain = job.distribution == Offsets::Uniform
        && job.size_mix.is_empty()
        && job.alignment() == job.block_size
        && job.think_time == Nanos::ZERO
        && job.sync_every <= 1;
    let durable = match (job.sync_every, job.dsync) {
        (0, false) => "",
        (_, false) => "flush",
        (0, true) => "dsync",
        _ => return None,
    };
    let offered = match job.arrivals {
        Arrivals::Closed => 0,
        _ if job.rate_of_max.is_some() || !job.rate_step.is_empty() => return None,
        _ => job.rate().get(),
    };
    let background_writes = match job.beside.as_slice() {
        [] => 0,
        [one] if one.read_share == Share::NONE && one.arrivals != Arrivals::Closed => {
            one.rate?.get()
        }
        _ => return None,
    };
    plain.then(|| JobShape {
        host: HostModel::kin(host).to_owned(),
        read_percent: job.read_share.percent(),
        sequential: job.pattern == study::Pattern::Sequential,
        block_bytes: job.block_size.get(),
        in_flight: u64::from(job.clients) * u64::from(job.queue_depth),
        fresh,
        durable: durable.to_owned(),
        background_writes,
        offered,
    })
}

/// The name of a metric in published drive figures; `None` if they lack it.
pub(crate) fn checked_metric(metric: &str) -> Option<&'static str> {
    Some(match metric {
        "iops" | "iops_max" | "iops_knee" => "IOPS",
        "throughput" => "MB/s",
        "latency_mean" => "mean",
        "latency_p50" => "p50",
        "latency_p99" => "p99",
        "latency_p99_9" => "p99.9",
        "latency_p99_99" => "p99.99",
        "latency_p99_999" => "p99.999",
        "latency_growth_95" => validate::GROWTH,
        _ => return None,
    })
}
