//! Database trials of a run: converts the result of an engine's process to that of a trial.
//!
//! Invariants: a corrupt database is kept and ends the run; one whose engine died is first compared with its
//! ledger, if there is one.

use std::path::{Path, PathBuf};

use stats::TrialResult;
use study::{Job, KvJob, Trial};
use units::Bytes;
use worker::Ended;

use crate::RunnerError;
use crate::bench::Bench;
use crate::context::{Execution, RunContext};
use crate::databases::{self, Asking};
use crate::watch::{Event, Watcher};

/// Runs a trial of a key-value engine in a separate process.
pub(crate) fn run(
    bench: &mut Bench<'_>,
    run: RunContext<'_>,
    trial: &Trial,
    watcher: &mut dyn Watcher,
) -> Result<Execution, RunnerError> {
    let Job::Kv(job) = &trial.job else { unreachable!("invariant: key-value trials come here") };
    let (stack, experiment, seed) = run.parts(trial);
    let waiting = run.waiting(trial, experiment);
    let (limit, kept_in) = (None, None);
    let mut asking = Asking { journal: run.options.journal, waiting, seed, limit, kept_in };
    let ledger = run.archive.path().join(format!("{}.ledger", trial.slug()));
    // An existing ledger is from a program that was killed in this trial.
    let before = if ledger.exists() {
        let now = bench.targets.left_device(stack)?;
        Some(after_the_end(run, (trial, job), (&ledger, now), "program", &asking)?)
    } else {
        None
    };
    // Tables of a SQL trial do not survive a new volume.
    bench.forget(&stack.name);
    let (place, volume_note) = match stack.is_virtual() {
        true => (bench.targets.simulated_place(stack, &trial.job)?, None),
        false => bench.targets.database_place(stack)?,
    };
    let limit = bench.targets.limit(stack);
    asking.limit = limit.as_ref().map(|(device, rates)| (device.as_path(), *rates));
    let kept_in = run.begin_journal(trial)?;
    asking.kept_in = kept_in.as_deref();
    let mut heard = |event| match event {
        worker::Event::Loading(done) => {
            watcher.event(&Event::Loading { done, of: job.records });
        }
        worker::Event::Interval(progress) => {
            watcher.event(&Event::Interval { trial, progress: &progress });
        }
        worker::Event::Ready(_) | worker::Event::Started(_) => {}
    };
    let noted = job.verify.then_some(ledger.as_path());
    let (places, own) = ((place.as_path(), noted), (trial, &**job));
    let mut simulated = None;
    let answer = match bench.targets.simulated(stack, job.memory.bytes(job.data()), seed) {
        Some((host, profile)) => {
            simulated = Some(host.in_words());
            let (host, drive) = host.make(profile, &place)?;
            databases::simulate(places, experiment, own, &asking, (&host, drive), &mut heard)?
        }
        None => databases::run(places, experiment, own, &asking, &mut heard)?,
    };
    let said = [simulated, volume_note, before, answer.memory].into_iter().flatten();
    let outcome = match answer.ended {
        Ended::Stopped => None,
        Ended::Done(result) => {
            let notes = said.chain(result.notes).collect();
            Some(TrialResult { notes, ..*result })
        }
        Ended::Wrong(reason) => return Err(keep_database(run, trial, reason, &place)),
        Ended::Said(reason)
        | Ended::Failed(reason)
        | Ended::Refused { reason, .. }
        | Ended::Died(reason) => {
            let mut notes: Vec<String> = said.collect();
            if noted.is_some() && ledger.exists() {
                let of = "engine's process";
                notes.push(after_the_end(run, (trial, job), (&ledger, None), of, &asking)?);
            }
            Some(TrialResult { failure: Some(reason), notes, ..TrialResult::default() })
        }
    };
    if outcome.is_some() && ledger.exists() {
        std::fs::remove_file(&ledger).map_err(stack::StackError::io("remove", &ledger))?;
    }
    Ok(outcome.map(|outcome| put_away(&place, outcome)).into())
}

/// Verifies the database of a trial that ended early against its ledger; returns the result in words.
fn after_the_end(
    run: RunContext<'_>,
    (trial, job): (&Trial, &KvJob),
    (ledger, now): (&Path, Option<PathBuf>),
    of: &str,
    asking: &Asking<'_>,
) -> Result<String, RunnerError> {
    let what = format!("after the end of the {of}, reopened");
    match databases::check((trial, job), (ledger, now.clone()), asking)? {
        Ended::Wrong(reason) => {
            let noted =
                engine::kv::Ledger::open(ledger).map(|(_, place)| place).unwrap_or_default();
            let place = now.unwrap_or(noted);
            Err(keep_database(run, trial, format!("{what}: {reason}"), &place))
        }
        Ended::Said(words) => Ok(format!("{what}: {words}")),
        Ended::Failed(reason) | Ended::Refused { reason, .. } | Ended::Died(reason) => {
            Ok(format!("the database could not be verified after the end of the {of}: {reason}"))
        }
        Ended::Done(_) | Ended::Stopped => Ok(format!("{what}: no result was reported")),
    }
}

/// Keeps a corrupt database, and reports where.
fn keep_database(run: RunContext<'_>, trial: &Trial, reason: String, place: &Path) -> RunnerError {
    // The device stays; its link is removed with the run.
    let place = &std::fs::canonicalize(place).unwrap_or_else(|_| place.to_owned());
    let evidence: PathBuf = run.archive.path().join(format!("evidence-{}", trial.slug()));
    match databases::keep(place, &evidence) {
        Ok(()) if evidence.exists() => {
            RunnerError::WrongData { trial: trial.slug(), reason, evidence }
        }
        Ok(()) => {
            RunnerError::WrongData { trial: trial.slug(), reason, evidence: place.to_owned() }
        }
        Err(error) => stack::StackError::io("keep", &evidence)(error).into(),
    }
}

/// Free space below which a file system is full for a database.
const FULL: Bytes = Bytes(4 << 20);

/// Removes the database of a trial. Reports whether its file system was full, which engines report in
/// different ways (LMDB as an I/O error). Whatever cannot be removed now is left to the undo journal.
fn put_away(place: &Path, mut outcome: TrialResult) -> TrialResult {
    if databases::is_device(place) {
        return outcome;
    }
    if let (Some(failure), Ok(free)) = (&mut outcome.failure, stack::free_space(place))
        && free < FULL
    {
        *failure = format!("{failure}; the file system is full: {free} free");
    }
    if let Err(error) = std::fs::remove_dir_all(place) {
        outcome.notes.push(format!("the database could not be removed yet: {error}"));
    }
    outcome
}
