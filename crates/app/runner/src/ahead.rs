//! Predictions made ahead of their turn, so that independent virtual-time trials use every core.
//!
//! Invariant: a result does not depend on whether it was made ahead.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use rayon::prelude::*;
use stats::TrialResult;
use study::{Job, Plan, Stack, Study, Trial};

use crate::RunnerError;
use crate::context::{Execution, RunContext, seed_of};
use crate::devices::Targets;
use crate::predicted::{Modelled, predict};

/// The result of [`predict`].
type Predicted = Result<Option<TrialResult>, String>;

#[derive(Default)]
pub(crate) struct Ahead(BTreeMap<u32, Predicted>);

impl Ahead {
    /// The result of `trial` on `stack`. Later independent predictions of `plan` run at the same time, one
    /// per core.
    pub fn take<'a>(
        &mut self,
        (study, plan): (&Study, &'a Plan),
        (trial, stack, of): (&'a Trial, &'a Stack, &'a Modelled),
        others: &dyn Fn(&Trial) -> Option<(&'a Stack, &'a Modelled)>,
        stop: &AtomicBool,
    ) -> Predicted {
        if let Some(result) = self.0.remove(&trial.number) {
            return result;
        }
        let mut batch = vec![(trial, stack, of)];
        let after = plan.trials.iter().filter(|other| {
            other.number > trial.number && !waits(other) && !self.0.contains_key(&other.number)
        });
        let after = after.filter_map(|other| {
            let (stack, of) = others(other)?;
            Some((other, stack, of))
        });
        batch.extend(after.take(rayon::current_num_threads().saturating_sub(1)));
        let run = |(trial, stack, of): (&Trial, &Stack, &Modelled)| {
            (trial.number, predict(of, stack, trial, (seed_of(study, trial), stop)))
        };
        self.0.extend(batch.into_par_iter().map(run).collect::<Vec<_>>());
        self.0.remove(&trial.number).unwrap_or_else(|| Err("the trial was not predicted".into()))
    }
}

/// Runs a trial in virtual time, with later independent ones at the same time.
pub(crate) fn run(
    (targets, ahead): (&Targets<'_>, &mut Ahead),
    run: RunContext<'_>,
    trial: &Trial,
) -> Result<Execution, RunnerError> {
    let (stack, ..) = run.parts(trial);
    let others = |other: &Trial| {
        let stack = run.study.stack.iter().find(|stack| stack.name == other.stack)?;
        let of = targets.model(stack)?;
        (!run.archive.has(other.number)).then_some((stack, of))
    };
    let refused =
        |reason: String| RunnerError::environment(&stack.name, reason, "crosspoint plan STUDY");
    let of = targets.model(stack).ok_or_else(|| refused("it is not a device model".into()))?;
    let (planned, own) = ((run.study, run.plan), (trial, stack, of));
    let result = ahead.take(planned, own, &others, run.options.stop);
    result.map(Execution::from).map_err(refused)
}

/// Whether its load depends on the results of other trials.
fn waits(trial: &Trial) -> bool {
    matches!(&trial.job, Job::Block(job) if job.rate_of_max.is_some())
}
