//! Whether what a study asks of its storages was met.
//!
//! Invariants: what cannot be said is neither met nor missed: a percentile that the samples do not support,
//! an emulated drive that was not as its model asks, a trial that failed. What it is not: an interval; the
//! value decides.

use archive::Run;
use study::{Objective, Source};
use units::{Nanos, human_count};
use workload::OpClass;

use crate::groups::{Group, Ops, groups, is_sql};

/// What came of an objective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The latency and the rate were kept.
    Met,
    /// One of them was not.
    Missed,
    /// It cannot be said.
    Open,
}

/// An objective at one point on one stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// What was asked.
    pub objective: Objective,
    /// Name of the stack.
    pub stack: String,
    /// Name of the experiment.
    pub experiment: String,
    /// What came of it.
    pub outcome: Outcome,
    /// The number that decided, or why none did.
    pub text: String,
}

/// Every objective of a run, group by group.
#[must_use]
pub fn objectives(run: &Run) -> Vec<Asked> {
    if run.study.experiment.iter().all(|one| one.objectives.is_empty()) {
        return Vec::new();
    }
    groups(run).iter().flat_map(asked_of).collect()
}

/// The objectives of a group's experiment.
#[must_use]
pub fn asked_of(group: &Group<'_>) -> Vec<Asked> {
    let experiments = &group.run.study.experiment;
    let experiment = experiments.iter().find(|one| one.name == group.first.experiment);
    let all = experiment.map(|one| one.objectives.as_slice()).unwrap_or_default();
    let one = |objective: &Objective| {
        let (outcome, text) = judge(group, *objective);
        Asked {
            objective: *objective,
            stack: group.first.stack.clone(),
            experiment: group.first.experiment.clone(),
            outcome,
            text,
        }
    };
    all.iter().map(one).collect()
}

/// The operations that objectives speak of: transactions, lookups where there are any, else updates; of
/// blocks all.
fn ops_of(group: &Group<'_>) -> Option<Ops> {
    if is_sql(group.first) {
        return Some(Ops::Only(OpClass::Transaction));
    }
    group.classes().first().copied()
}

fn judge(group: &Group<'_>, objective: Objective) -> (Outcome, String) {
    let open = |why: &str| (Outcome::Open, why.to_owned());
    if !group.is_sound() {
        return open("a trial failed");
    }
    let faithful = |trial: &&archive::TrialRecord| {
        trial.result.served.is_some_and(|served| served.is_faithful())
    };
    if group.first.source == Source::Emulated && !group.trials.iter().all(faithful) {
        return open("the drive was not as its model asks");
    }
    let Some(ops) = ops_of(group) else { return open("nothing was done") };
    let rate = group.rate(ops).map_or(0.0, |rate| rate.value);
    if let Some(wanted) = objective.at.filter(|wanted| rate < wanted.get() as f64) {
        return (Outcome::Missed, format!("{}/s of {wanted}", human_count(rate)));
    }
    match group.percentile(ops, objective.quantile.percent()) {
        Err(few) => open(&format!("{} of {} samples", few.have, few.needed)),
        Ok(time) => {
            let met = time.value <= objective.at_most.get() as f64 && !time.at_least;
            let least = if time.at_least { "at least " } else { "" };
            let text = format!("{least}{}", Nanos(time.value as u64));
            (if met { Outcome::Met } else { Outcome::Missed }, text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_run::run_of;

    /// An objective that is always met asks for nothing.
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
}
