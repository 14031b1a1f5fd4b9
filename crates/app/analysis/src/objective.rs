//! Whether a study's objectives were met.
//!
//! Invariant: inconclusive for percentiles without enough samples, inaccurate emulation and failed trials.

use std::collections::BTreeSet;

use archive::Run;
use study::Objective;
use units::{Nanos, Rate, human_count};
use workload::OpClass;

use crate::doubts::{MISSED_MAX, failures, missed_arrivals};
use crate::groups::{Group, Ops, groups, is_sql};
use crate::repetitions::is_faithful;

/// Result of an objective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Latency and rate were met.
    Met,
    /// One of them was not.
    Missed,
    /// Inconclusive.
    Open,
}

/// An objective at one point on one stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectiveResult {
    /// The objective.
    pub objective: Objective,
    /// Name of the stack.
    pub stack: String,
    /// Name of the experiment.
    pub experiment: String,
    /// The point, `name=value` each.
    pub point: String,
    /// The result.
    pub outcome: Outcome,
    /// The deciding value, or the reason for its absence.
    pub text: String,
}

/// Every objective of a run, group by group.
#[must_use]
pub fn objectives(run: &Run) -> Vec<ObjectiveResult> {
    if run.study.experiment.iter().all(|one| one.objectives.is_empty()) {
        return Vec::new();
    }
    // What would be with a part free meets and misses nothing.
    let own = |stack: &str| !run.study.is_variant(stack);
    let groups: Vec<Group<'_>> =
        groups(run).into_iter().filter(|group| own(&group.first.stack)).collect();
    let mut all: Vec<ObjectiveResult> = groups.iter().flat_map(asked_of).collect();
    // Trials that were skipped count as well.
    let ran: BTreeSet<(&str, &str)> = groups
        .iter()
        .map(|group| (group.first.experiment.as_str(), group.first.stack.as_str()))
        .collect();
    let planned = study::plan(&run.study).trials;
    let planned = planned.iter().filter(|one| own(&one.stack));
    let planned: BTreeSet<(&str, &str)> =
        planned.map(|one| (one.experiment.as_str(), one.stack.as_str())).collect();
    for (name, stack) in planned.difference(&ran) {
        let experiment = run.study.experiment.iter().find(|one| one.name == *name);
        let objectives = experiment.into_iter().flat_map(|one| &one.objectives);
        all.extend(objectives.map(|objective| ObjectiveResult {
            objective: *objective,
            stack: (*stack).to_owned(),
            experiment: (*name).to_owned(),
            point: String::new(),
            outcome: Outcome::Open,
            text: "it did not run".into(),
        }));
    }
    all
}

/// The objectives of a group's experiment.
#[must_use]
pub fn asked_of(group: &Group<'_>) -> Vec<ObjectiveResult> {
    let experiments = &group.run.study.experiment;
    let experiment = experiments.iter().find(|one| one.name == group.first.experiment);
    let all = experiment.map(|one| one.objectives.as_slice()).unwrap_or_default();
    let point = group.first.point_text();
    let one = |objective: &Objective| {
        let (outcome, text) = judge(group, *objective);
        ObjectiveResult {
            objective: *objective,
            stack: group.first.stack.clone(),
            experiment: group.first.experiment.clone(),
            point: point.clone(),
            outcome,
            text,
        }
    };
    all.iter().map(one).collect()
}

/// The operations of objectives: transactions; otherwise lookups if there are any, else updates; all block
/// operations.
fn ops_of(group: &Group<'_>) -> Option<Ops> {
    if is_sql(group.first) {
        return Some(Ops::Only(OpClass::Transaction));
    }
    group.classes().first().copied()
}

/// Operations per second that were reached; for an open loop that kept up, the offered rate.
fn reached(group: &Group<'_>, ops: Ops) -> f64 {
    let done = group.rate(ops).map_or(0.0, |rate| rate.value);
    let due = group.first.point.get("rate").and_then(|text| text.parse::<Rate>().ok());
    let kept = |trial: &&archive::TrialRecord| {
        let missed = missed_arrivals(&trial.result.recording);
        missed.is_none_or(|(missed, due)| missed <= MISSED_MAX * due)
    };
    match due.filter(|_| group.is_open_loop() && group.trials.iter().all(kept)) {
        Some(due) => done.max(due.get() as f64),
        None => done,
    }
}

fn judge(group: &Group<'_>, objective: Objective) -> (Outcome, String) {
    let open = |why: &str| (Outcome::Open, why.to_owned());
    if !group.is_sound() {
        return open("a trial failed");
    }
    if !group.trials.iter().all(|trial| is_faithful(trial)) {
        return open("emulation fell behind");
    }
    // Failed operations have no latency.
    let failed = |trial: &&archive::TrialRecord| {
        let (failed, all) = failures(trial);
        failed as f64 > (1.0 - objective.quantile.percent() / 100.0) * all as f64
    };
    if let Some(trial) = group.trials.iter().find(|trial| failed(trial)) {
        let (failed, all) = failures(trial);
        let share = failed as f64 / all as f64 * 100.0;
        return (Outcome::Missed, format!("{share:.1} % of the operations failed"));
    }
    let Some(ops) = ops_of(group) else { return open("nothing was done") };
    let rate = reached(group, ops);
    if let Some(wanted) = objective.at.filter(|wanted| rate < wanted.get() as f64) {
        return (Outcome::Missed, format!("{}/s of {wanted}", human_count(rate)));
    }
    match group.percentile(ops, objective.quantile.percent()) {
        Err(few) => open(&format!("{} of {} samples", few.have, few.needed)),
        Ok(time) => {
            let least = if time.at_least { "at least " } else { "" };
            let text = format!("{least}{}", Nanos(time.value as u64));
            let within = time.value <= objective.at_most.get() as f64;
            let outcome = match (within, time.at_least) {
                (false, _) => Outcome::Missed,
                (true, false) => Outcome::Met,
                (true, true) => Outcome::Open,
            };
            (outcome, text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_run::run_of;

    /// An objective must be met, missed or inconclusive; one that is always met tests nothing.
    #[test]
    fn an_objective_is_met_missed_or_open() {
        let run = run_of(
            "schema = 1\nname = \"s\"\n[[stack]]\nname = \"a\"\ndevice = \"model:intel-p4800x\"\n\
             [[experiment]]\nname = \"e\"\nobjectives = [\"p50 <= 2us\", \"p50 <= 500ns\", \"p50 <= 2us at \
             1M/s\", \"p99_9 <= 2us\"]\n[experiment.block]\n",
            Nanos(1000),
        );
        let outcomes: Vec<Outcome> = objectives(&run).iter().map(|one| one.outcome).collect();
        assert_eq!(outcomes, [Outcome::Met, Outcome::Missed, Outcome::Missed, Outcome::Open]);
    }

    /// Failed requests must count as misses; a drive that fails half of them would meet every objective.
    #[test]
    fn what_failed_is_within_no_time_and_is_said() {
        let mut run = run_of(
            "schema = 1\nname = \"s\"\n[[stack]]\nname = \"a\"\ndevice = \"model:intel-p4800x\"\n\
             [[experiment]]\nname = \"e\"\nobjectives = [\"p50 <= 2us\"]\n[experiment.block]\n",
            Nanos(1000),
        );
        let said = |run: &archive::Run| {
            let errors =
                |doubt: &crate::doubts::Warning| doubt.kind == crate::doubts::WarningKind::Errors;
            let figure = crate::figures(std::slice::from_ref(run))
                .iter()
                .any(|figure| figure.metric == "errors");
            (objectives(run)[0].outcome, crate::doubts::doubts(run).iter().any(errors), figure)
        };
        run.trials.iter_mut().for_each(|trial| trial.source = study::Source::Measured);
        assert_eq!(said(&run), (Outcome::Met, false, false));
        for interval in
            run.trials.iter_mut().flat_map(|trial| &mut trial.result.recording.intervals)
        {
            let counts = &mut interval.tallies.of(workload::OpClass::Read).counts;
            counts.errors = counts.ops * 2;
        }
        assert_eq!(said(&run), (Outcome::Missed, true, true));
    }
}
