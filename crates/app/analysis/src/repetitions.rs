//! Values of each complete repetition of a group.
//!
//! Invariant: a repetition with too few operations for a percentile, or with operations that never ended, has
//! no value.

use archive::{TrialOutcome, TrialRecord};
use stats::compare::Placed;
use study::Source;

use crate::groups::{Group, Ops};

/// Largest share of a group's repetitions that may be left out for inaccurate emulation.
const UNFAITHFUL_MAX: f64 = 0.1;

/// Whether the drive is real or its emulation was accurate.
pub(crate) fn is_faithful(trial: &TrialRecord) -> bool {
    trial.source != Source::Emulated || trial.result.served.is_some_and(|one| one.is_faithful())
}

/// Complete repetitions, without the few whose emulation was inaccurate.
pub(crate) fn whole<'a>(group: &'a Group<'_>) -> impl Iterator<Item = &'a TrialRecord> {
    let unfaithful = group.trials.iter().filter(|trial| !is_faithful(trial)).count();
    let few = unfaithful as f64 <= UNFAITHFUL_MAX * group.trials.len() as f64;
    let ended = |trial: &&TrialRecord| trial.outcome == TrialOutcome::Complete;
    let kept = move |trial: &&TrialRecord| !few || is_faithful(trial);
    group.trials.iter().copied().filter(ended).filter(kept)
}

/// The value of one repetition, in the metric's unit.
fn value(group: &Group<'_>, trial: &TrialRecord, (ops, metric): (Ops, &str)) -> Option<f64> {
    let alone = group.alone(trial.number)?;
    let time = |estimate: stats::estimate::Estimate| {
        // A lower bound has no usable value.
        (!estimate.at_least).then_some(estimate.value / 1e3)
    };
    let percentile = |p: f64| alone.percentile(ops, p).ok().and_then(time);
    match metric {
        "rate" => alone.rate(ops).map(|estimate| estimate.value),
        "latency_mean" => alone.mean_latency(ops).and_then(time),
        "latency_p50" => percentile(50.0),
        "latency_p99" => percentile(99.0),
        _ => percentile(99.9),
    }
}

/// Values of the complete repetitions, with their positions and numbers.
pub(crate) fn each(group: &Group<'_>, figure: (Ops, &str)) -> Vec<(u32, Placed)> {
    whole(group)
        .filter_map(|trial| {
            let value = value(group, trial, figure)?;
            Some((trial.repetition, Placed { place: trial.number, value }))
        })
        .collect()
}

/// The geometric mean; 0 if nothing completed, `None` if unknown.
pub(crate) fn mean(all: &[(u32, Placed)]) -> Option<f64> {
    let logs: f64 = all.iter().map(|(_, placed)| placed.value.ln()).sum();
    (!all.is_empty()).then(|| (logs / all.len() as f64).exp())
}
