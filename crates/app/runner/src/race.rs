//! Races: the same SQL job on several stacks at the same time, each with its own server.
//!
//! Invariants: all are loaded and connected before any starts; they start together; each runs until its
//! transactions are done.

use archive::RACERS;
use engine::Preload;
use study::Trial;

use crate::RunnerError;
use crate::context::{Execution, RunContext};
use crate::databases::start_host;
use crate::sql_trial::{Prepared, Readiness, SqlExecutor, SqlTrial, request_of};
use crate::together::{Start, Together, run_together};
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
    let starts = starts(run, &ready)?;
    let ended = run_together(run, starts, watcher)?;
    let raced = ready.iter().zip(&ended).filter(|(_, ended)| ended.started.is_some());
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
    for ((one, prepared), Together { ended, started, .. }) in ready.into_iter().zip(ended) {
        if let Some(mut outcome) = sql.conclude(one, prepared, ended) {
            if started.is_some() {
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

/// The clients' process of each racer.
fn starts<'a>(
    run: RunContext<'a>,
    ready: &[(SqlTrial<'a>, Prepared)],
) -> Result<Vec<Start<'a>>, RunnerError> {
    let start = |(one, prepared): &(SqlTrial<'a>, Prepared)| {
        let line = start_host(run.options.journal.mark(), &one.stack.name, Preload::None)?;
        prepared.hold_clients(one.job, &line)?;
        let mut request = request_of(*one, prepared, true);
        request.parameters.journal = run.begin_journal(one.trial)?;
        Ok(Start { one: *one, line, request, first_client: 0, alone: true, limit: None })
    };
    ready.iter().map(start).collect()
}
