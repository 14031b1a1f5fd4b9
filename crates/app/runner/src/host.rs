//! The executor of this host: measures real stacks, emulates drives and predicts on models.
//!
//! Invariant: each kind of trial has its own executor; this one selects it and adds delivered times.

use std::collections::BTreeMap;
use std::path::Path;

use archive::StackRecord;
use stats::TrialResult;
use study::{Execution as Kind, Plan, Stack, Study, Trial};
use units::Seed;

use crate::ahead::Ahead;
use crate::bench::Bench;
use crate::context::{Execution, Executor, RunContext};
use crate::devices::Targets;
use crate::emulated::ResetCounts;
use crate::options::Options;
use crate::predicted::Modelled;
use crate::sql_trial::SqlExecutor;
use crate::watch::Watcher;
use crate::{RunnerError, ahead, block_trial, database_trial, load_generators, race};

/// Runs every kind of trial on this host.
pub(crate) struct HostExecutor<'a> {
    bench: Bench<'a>,
    ahead: Ahead,
}

impl<'a> HostExecutor<'a> {
    /// Checks that every stack of the plan can be used; files are created in `folder`.
    pub fn check(
        study: &Study,
        plan: &Plan,
        options: &'a Options<'_>,
        folder: &Path,
    ) -> Result<Self, RunnerError> {
        load_generators::check(study, plan, &options.load_generators)?;
        let asked = (options.confirmed.as_slice(), options.here.as_ref());
        let targets = Targets::check(study, plan, options.journal, folder, asked)?;
        let bench = Bench { targets, own_cost: None, loaded: BTreeMap::new() };
        Ok(Self { bench, ahead: Ahead::default() })
    }

    /// Adds the served latencies of an emulated drive; CPU time of its server does not count as that of other
    /// processes.
    fn add_served(&self, run: RunContext<'_>, stack: &str, result: &mut TrialResult) {
        // A simulated drive has its own record.
        if self.bench.targets.drives.of(stack).is_none() {
            return;
        }
        result.served = self.bench.targets.drives.served(stack);
        let faulty = |own: &Stack| own.name == stack && own.faults.is_some();
        if run.study.stack.iter().any(faulty) {
            result.notes.push("with planned faults of the emulated drive".into());
        }
        let Some(served) = result.served else {
            result.notes.push("the delivered times of the emulated drive are missing".into());
            return;
        };
        let own = served.cpu_share / f64::from(observe::cpus().max(1));
        result.limits = result.limits.iter().filter_map(|limit| limit.without(own)).collect();
    }
}

impl Executor for HostExecutor<'_> {
    fn stack_records(&self, study: &Study) -> Vec<StackRecord> {
        self.bench.targets.records(study, Seed(u64::from(study.seed)))
    }

    fn check_resume(&self, study: &Study, begun: &[StackRecord]) -> Result<(), RunnerError> {
        for stack in &study.stack {
            let begun = begun.iter().find(|record| record.name == stack.name);
            let (Some(begun), Some(model)) = (begun, self.bench.targets.model(stack)) else {
                continue;
            };
            if is_of_another_host(begun, model) {
                return Err(RunnerError::environment(
                    &stack.name,
                    "this run was started on another host or before `crosspoint calibrate`: predictions \
                     would mix two hosts",
                    "start a new run: crosspoint run STUDY",
                ));
            }
        }
        Ok(())
    }

    fn run(
        &mut self,
        run: RunContext<'_>,
        trial: &Trial,
        watcher: &mut dyn Watcher,
    ) -> Result<Execution, RunnerError> {
        let watcher = &mut ResetCounts::new(watcher, self.bench.targets.drives.clone());
        let bench = &mut self.bench;
        let mut execution = match trial.execution() {
            Kind::Virtual => ahead::run((&bench.targets, &mut self.ahead), run, trial),
            Kind::Direct => block_trial::run(bench, run, trial, watcher),
            Kind::Child => database_trial::run(bench, run, trial, watcher),
            Kind::Server if load_generators::applies(run, trial) => {
                load_generators::run(&mut SqlExecutor { bench }, run, trial, watcher)
            }
            Kind::Server => SqlExecutor { bench }.run(run, trial, watcher),
            Kind::Race => race::run(&mut SqlExecutor { bench }, run, trial, watcher),
        }?;
        match &mut execution {
            Execution::Stopped => {}
            Execution::Ended(result) => self.add_served(run, &trial.stack, result),
            Execution::Together(results) => {
                for (number, result) in results {
                    let of = run.plan.trials.iter().find(|one| one.number == *number);
                    if let (Some(of), Ok(result)) = (of, result) {
                        self.add_served(run, &of.stack, result);
                    }
                }
            }
        }
        Ok(execution)
    }
}

/// Whether the predictions of a run were started with another host's path or costs of scheduling. Older runs
/// did not record them.
fn is_of_another_host(begun: &StackRecord, model: &Modelled) -> bool {
    let host = &model.host;
    let recorded = !begun.host_times.is_empty();
    let cores = Some((host.cores, host.siblings));
    let path = begun.host_times != host.times() || begun.host_cores != cores;
    recorded && (path || begun.scheduler_times != model.costs.times())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sim::{HostModel, MeasuredCosts};

    /// Predictions of two hosts in one run would be averaged.
    #[test]
    fn a_run_that_was_begun_on_another_host_is_found() {
        let host = HostModel::io_uring();
        let here = StackRecord {
            host_times: host.times().to_vec(),
            host_cores: Some((host.cores, host.siblings)),
            ..StackRecord::default()
        };
        let profile = crate::catalog::profile("ram-disk").expect("a profile");
        let on = |host: HostModel, costs| Modelled { profile: profile.clone(), host, costs };
        let none = MeasuredCosts::default();
        assert!(!is_of_another_host(&here, &on(host, none)));
        let unknown = StackRecord::default();
        assert!(!is_of_another_host(&unknown, &on(host, none)), "it does not say");
        let slower = HostModel { wake: host.wake + units::Nanos(1), ..host };
        assert!(is_of_another_host(&here, &on(slower, none)));
        let larger = HostModel { cores: host.cores + 1, ..host };
        assert!(is_of_another_host(&here, &on(larger, none)));
        let scheduler = Some(sim::scheduler::SchedulerCosts::VM_2026);
        let page_cache = Some(sim::PageCacheCosts::VM_2026);
        for costs in [MeasuredCosts { scheduler, ..none }, MeasuredCosts { page_cache, ..none }] {
            assert!(is_of_another_host(&here, &on(host, costs)));
        }
    }
}
