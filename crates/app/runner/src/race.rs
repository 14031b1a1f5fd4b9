//! Races: the same SQL job on several stacks at the same time, each with its own server.
//!
//! Invariants: all are loaded and connected before any starts; they start together; each runs until its
//! transactions are done.

use std::sync::Barrier;
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use archive::RACERS;
use engine::Preload;
use study::Trial;
use worker::Ended;

use crate::RunnerError;
use crate::context::{Execution, RunContext};
use crate::databases::start_host;
use crate::sql_trial::{Prepared, Readiness, SqlExecutor, SqlTrial, ask, request_of};
use crate::watch::{Event, Watcher};

/// Runs the race of `trial`; a racer whose drive cannot be attached fails alone.
pub(crate) fn run(
    sql: &mut SqlExecutor<'_, '_>,
    run: RunContext<'_>,
    trial: &Trial,
    watcher: &mut dyn Watcher,
) -> Result<Execution, RunnerError> {
    let others = run.plan.trials.iter();
    let racers = others.filter(|one| trial.races_with(one) && !run.archive.has(one.number));
    let mut results = Vec::new();
    let mut ready: Vec<(SqlTrial<'_>, Prepared)> = Vec::new();
    for one in racers.filter_map(|racer| SqlTrial::of(run, racer)) {
        watcher.event(&Event::TrialStarted { trial: one.trial });
        match sql.prepare(one, watcher) {
            Ok(Readiness::Ready(prepared)) => ready.push((one, *prepared)),
            Ok(Readiness::Failed(outcome)) => results.push((one.trial.number, Ok(*outcome))),
            Ok(Readiness::Stopped) => return Ok(Execution::Stopped),
            Err(error @ RunnerError::NotAttached { .. }) => {
                results.push((one.trial.number, Err(error)));
            }
            Err(error) => return Err(error),
        }
    }
    let ended = run_together(run, &ready, watcher)?;
    let raced = ready.iter().zip(&ended).filter(|(_, (_, began))| *began);
    let names: Vec<String> = raced.map(|((one, _), _)| one.stack.name.clone()).collect();
    let others = |own: &str| {
        let others: Vec<&str> =
            names.iter().map(String::as_str).filter(|name| *name != own).collect();
        match others.is_empty() {
            true => "ran alone: the others failed or had run before".to_owned(),
            false => format!("ran concurrently with {} on the same CPUs", others.join(", ")),
        }
    };
    let together = names.len();
    for ((one, prepared), (ended, began)) in ready.into_iter().zip(ended) {
        if let Some(mut outcome) = sql.conclude(one, prepared, ended) {
            if began {
                outcome.notes.push(others(&one.stack.name));
                outcome.totals.insert(RACERS.to_owned(), together as f64);
            }
            results.push((one.trial.number, Ok(outcome)));
        }
    }
    match results.is_empty() {
        true => Ok(Execution::Stopped),
        false => Ok(Execution::Together(results)),
    }
}

/// Starts the prepared racers together, and waits for the last; returns how each ended and whether it
/// started.
fn run_together(
    run: RunContext<'_>,
    ready: &[(SqlTrial<'_>, Prepared)],
    watcher: &mut dyn Watcher,
) -> Result<Vec<(Ended, bool)>, RunnerError> {
    let mark = run.options.journal.mark();
    // Started by this thread, because the processes end with it.
    let lines = ready.iter().map(|(one, _)| start_host(mark, &one.stack.name, Preload::None));
    let lines = lines.collect::<Result<Vec<_>, _>>()?;
    for ((one, prepared), line) in ready.iter().zip(&lines) {
        prepared.hold_clients(one.job, line)?;
    }
    let journals = ready.iter().map(|(one, _)| run.begin_journal(one.trial));
    let journals = journals.collect::<Result<Vec<_>, _>>()?;
    // Each waits once: when ready, or when it ended before that.
    let gate = Barrier::new(ready.len());
    let (send, receive) = sync_channel(1024);
    std::thread::scope(|scope| {
        let threads: Vec<_> = ready
            .iter()
            .zip(lines.into_iter().zip(journals))
            .map(|((one, prepared), (line, journal))| {
                let (send, gate) = (send.clone(), &gate);
                let mut request = request_of(*one, prepared, true);
                request.parameters.journal = journal;
                let waiting =
                    RunContext { began: Instant::now(), ..run }.waiting(one.trial, one.experiment);
                scope.spawn(move || {
                    let mut there = false;
                    let mut heard = |event| match event {
                        worker::Event::Ready => {
                            if !std::mem::replace(&mut there, true) {
                                gate.wait();
                            }
                        }
                        worker::Event::Interval(progress) => {
                            // Only progress may be dropped if it is not read in time.
                            let _ = send.try_send((one.trial, progress));
                        }
                        worker::Event::Loading(_) => {}
                    };
                    let ended = ask(line, *one, &request, waiting, &mut heard);
                    if !there {
                        gate.wait();
                    }
                    (ended, there)
                })
            })
            .collect();
        drop(send);
        for (trial, progress) in receive {
            watcher.event(&Event::Interval { trial, progress: &progress });
        }
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.map(|(ended, began)| Ok((ended?, began))).collect()
    })
}
