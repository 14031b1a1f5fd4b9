//! Block trials on real files and devices, on a thread of this program.
//!
//! Invariant: a device that does not answer ends the program, with its trial recorded as failed. `measured`
//! runs the trial itself on open targets.

use std::sync::atomic::Ordering;

use archive::Keeper;
use observe::BlockDevice;
use stats::{DiskCounters, TrialResult};
use study::{DeviceName, Job, Stack, Trial};
use units::Bytes;

use crate::bench::Bench;
use crate::context::{Execution, RunContext};
use crate::devices::Opened;
use crate::estimate::{deadline, fill_seconds};
use crate::record::record;
use crate::watch::{Event, Watcher};
use crate::watched::{Overdue, watched};
use crate::{RunnerError, measured};

pub(crate) fn run(
    bench: &mut Bench<'_>,
    run: RunContext<'_>,
    trial: &Trial,
    watcher: &mut dyn Watcher,
) -> Result<Execution, RunnerError> {
    let (stack, experiment, seed) = run.parts(trial);
    let stop = run.options.stop;
    let mut step = |done: Bytes| {
        watcher.event(&Event::Preparing { stack: &stack.name, done, of: stack.size() });
        !stop.load(Ordering::Relaxed)
    };
    let Some(Opened { files, paths }) = bench.targets.open(stack, &mut step)? else {
        return Ok(Execution::Stopped);
    };
    let devices: Vec<BlockDevice> =
        paths.iter().filter_map(|path| BlockDevice::under(path)).collect();
    let own_cost = *bench.own_cost.get_or_insert_with(block::own_cost);
    let ledger = run.archive.path().join(format!("{}.ledger", trial.slug()));
    let fills = match &trial.job {
        Job::Block(job) => job.precondition.map_or(0, |wanted| wanted.fills),
        Job::Act(job) => job.fills,
        Job::Kv(_) | Job::Sql(_) => 0,
    };
    let before = counters_of(&devices);
    let disk = || difference(before, counters_of(&devices));
    let place = measured::BlockPlace {
        stack,
        experiment,
        files,
        fills: if fills > 0 && bench.targets.owes_fill(stack) { fills } else { 0 },
        own_cost,
        ledger: &ledger,
        journal: run.options.journal,
        guard: run.options.guard,
        disk: &disk,
        lasting: matches!(stack.device, DeviceName::Paths(_)),
    };
    let prepare = fill_seconds(stack, place.fills);
    let overdue = Overdue {
        after: deadline(trial, experiment, prepare),
        grace: run.waiting(trial, experiment).grace,
        give_up: &|| give_up(run, trial, stack),
    };
    let journal = run.begin_journal(trial)?;
    let keeper = journal.as_deref().map(Keeper::start).transpose()?;
    let keep = keeper.as_ref().map(|keeper| keeper as &dyn observe::Keep);
    let result = watched((stop, &overdue, keep), trial, watcher, |control| {
        measured::run(place, trial, (seed, control))
    });
    let result = match result {
        Err(RunnerError::WrongBlock(corruption)) => {
            return Err(keep_evidence(run, trial, &corruption));
        }
        other => other?,
    };
    let Some(result) = result else { return Ok(Execution::Stopped) };
    Ok(Execution::Ended(Box::new(result)))
}

/// Records that a trial did not end, and exits: its threads wait for the device and cannot be stopped.
fn give_up(run: RunContext<'_>, trial: &Trial, stack: &Stack) {
    let reason = format!("{} does not answer: the trial exceeded its deadline", stack.name);
    if !run.stopping() {
        let outcome = TrialResult { failure: Some(reason.clone()), ..TrialResult::default() };
        let written = record(run, trial, outcome).map(|record| run.archive.write_apart(&record));
        if let Some(Err(error)) = written {
            let said = format!("{reason}; and it could not be recorded: {error}");
            (run.options.give_up)(run.options.journal, &said);
        }
    }
    (run.options.give_up)(run.options.journal, &reason);
}

/// Keeps a corrupt block, and reports where.
fn keep_evidence(
    run: RunContext<'_>,
    trial: &Trial,
    corruption: &block::Corruption,
) -> RunnerError {
    let path = run.archive.path().join(format!("evidence-{}.bin", trial.slug()));
    let (trial, reason) = (trial.slug(), corruption.to_string());
    match archive::output::write_durably(&path, &corruption.block) {
        Ok(()) => RunnerError::WrongData { trial, reason, evidence: path },
        Err(error) => stack::StackError::io("keep the evidence in", &path)(error).into(),
    }
}

fn difference(before: Option<DiskCounters>, after: Option<DiskCounters>) -> Option<DiskCounters> {
    Some(after?.since(&before?))
}

/// Sum of the devices' counters; `None` if one of them has none.
fn counters_of(devices: &[BlockDevice]) -> Option<DiskCounters> {
    let counters: Option<Vec<DiskCounters>> = devices.iter().map(BlockDevice::counters).collect();
    let counters = counters.filter(|all| !all.is_empty())?;
    Some(counters.into_iter().fold(DiskCounters::default(), |sum, one| sum.plus(&one)))
}
