//! Clients of one SQL trial in several processes, here or on other machines.
//!
//! Invariants: the tables are loaded and the server's counters are read from here; the recordings are merged
//! exactly, so that percentiles are those of all operations; a trial with fewer processes than asked for
//! fails.

use std::collections::HashSet;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use engine::Preload;
use engine::sql::RETRIED;
use stats::{END_SKEW, Limit, START_SKEW, TrialResult};
use study::{Job, Plan, Stack, Study, Trial};
use units::{Nanos, Seed};
use worker::{Channel, Ended, SqlRequest};

use crate::RunnerError;
use crate::context::{Execution, RunContext};
use crate::databases::{HOST_VERB, start_host, worker_error};
use crate::options::LoadGenerator;
use crate::servers::{self, words_of};
use crate::sql_trial::{Readiness, SqlExecutor, SqlTrial, request_of};
use crate::together::{Start, Together, run_together};
use crate::watch::Watcher;

/// Time for connecting, and for a process that is late, beyond the duration of the trial.
const TROUBLE_MAX: Duration = Duration::from_secs(120);

fn start(generator: &LoadGenerator, one: SqlTrial<'_>) -> Result<Channel, RunnerError> {
    let (mark, stack) = (one.run.options.journal.mark(), one.stack.name.as_str());
    let LoadGenerator::Command(text) = generator else {
        return start_host(mark, stack, Preload::None);
    };
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("exec {text} {HOST_VERB}"));
    Channel::start(command, mark).map_err(|error| worker_error(stack, &error))
}

/// Whether load generators share the clients of a trial: they need a server that they can reach.
fn shares(study: &Study, trial: &Trial) -> bool {
    let Job::Sql(job) = &trial.job else { return false };
    let of_trial = |stack: &&Stack| stack.name == trial.stack;
    let in_real_time = !study.stack.iter().find(of_trial).is_some_and(Stack::is_virtual);
    in_real_time && !job.race && servers::server_of(job).is_some()
}

/// Checks that some trials can be shared, and none ends by a number of transactions: processes would end at
/// different times, and the rate be that of the slowest.
pub(crate) fn check(
    study: &Study,
    plan: &Plan,
    generators: &[LoadGenerator],
) -> Result<(), RunnerError> {
    if generators.is_empty() {
        return Ok(());
    }
    let mut shared = plan.trials.iter().filter(|trial| shares(study, trial)).peekable();
    if shared.peek().is_none() {
        let reason = "no trial has a database server in real time, whose clients could be shared";
        return Err(RunnerError::NoShare(reason.to_owned()));
    }
    let wrong = |trial: &Trial| {
        let Job::Sql(job) = &trial.job else { return None };
        let processes = (generators.len() as u64 + 1).min(job.clients.into());
        let rate = job.rate.map(|rate| rate.get());
        if job.operations.is_some() {
            return Some(format!(
                "trial {} ends by its operations: give a duration instead",
                trial.number
            ));
        }
        let rate = rate.filter(|rate| *rate < processes)?;
        Some(format!(
            "trial {} has {rate} arrivals per second for {processes} processes: give it at least one \
             for each",
            trial.number
        ))
    };
    shared.find_map(wrong).map_or(Ok(()), |reason| Err(RunnerError::NoShare(reason)))
}

/// Whether the clients of a trial are shared.
pub(crate) fn applies(run: RunContext<'_>, trial: &Trial) -> bool {
    !run.options.load_generators.is_empty() && shares(run.study, trial)
}

/// Runs the clients of a trial in a process of this machine and those of the load generators.
pub(crate) fn run(
    sql: &mut SqlExecutor<'_, '_>,
    run: RunContext<'_>,
    trial: &Trial,
    watcher: &mut dyn Watcher,
) -> Result<Execution, RunnerError> {
    let one = SqlTrial::of(run, trial).expect("invariant: only SQL trials are shared");
    let prepared = match sql.prepare(one, watcher)? {
        Readiness::Ready(prepared) => *prepared,
        Readiness::Failed(outcome) => return Ok(Execution::Ended(outcome)),
        Readiness::Stopped => return Ok(Execution::Stopped),
    };
    let generators = [LoadGenerator::Local].into_iter();
    let generators: Vec<_> = generators.chain(one.run.options.load_generators.clone()).collect();
    // No process without a client.
    let of = u32::try_from(generators.len()).unwrap_or(u32::MAX).min(one.job.clients);
    let mut starts = Vec::new();
    let mut first_client = 0;
    for (index, generator) in (0..of).zip(&generators) {
        let line = start(generator, one)?;
        let mut request = SqlRequest {
            job: one.job.part(index, of),
            helper: index > 0,
            ..request_of(one, &prepared, true)
        };
        if request.helper {
            (request.process, request.data) = (None, PathBuf::new());
            let seed = Seed(request.parameters.seed).derive("load-generator", index.into());
            request.parameters.seed = seed.0;
        }
        let clients = request.job.clients;
        let timeline = &trial.timeline;
        let limit = timeline.end() + timeline.measure + TROUBLE_MAX.into();
        starts.push(Start { one, line, request, first_client, alone: false, limit: Some(limit) });
        first_client += clients;
    }
    let ended = run_together(one.run, starts, watcher)?;
    // Those that were not connected have nothing to say.
    let stopped = run.stopping() && ended.iter().any(|one| !one.connected);
    let ended = if stopped { Ended::Stopped } else { merged(ended, &generators[..of as usize]) };
    Ok(sql.conclude(one, prepared, ended).into())
}

/// The result of all processes; or how one failed: one that never connected is why the others were ended.
fn merged(mut all: Vec<Together>, generators: &[LoadGenerator]) -> Ended {
    let is_done = |one: &Together| matches!(one.ended, Ended::Done(_));
    let lost = all.iter().position(|one| !one.connected && !is_done(one));
    // The first to end is why the others were ended.
    let ended = || all.iter().position(|one| !is_done(one) && !one.was_ended);
    let any = || all.iter().position(|one| !is_done(one));
    if let Some(at) = lost.or_else(ended).or_else(any) {
        let ended = all.swap_remove(at).ended;
        return match words_of(ended) {
            Some(words) => Ended::Died(format!("clients of {}: {words}", name(&generators[at]))),
            None => Ended::Stopped,
        };
    }
    if let Some(other) = other_server(&all) {
        return Ended::Died(format!(
            "clients of {} reached another server",
            name(&generators[other])
        ));
    }
    let clocks = Clocks::of(&all);
    let mut results = all.into_iter().filter_map(|one| match one.ended {
        Ended::Done(result) => Some(*result),
        _ => None,
    });
    let mut whole = results.next().unwrap_or_default();
    for (other, generator) in results.zip(generators.iter().skip(1)) {
        add(&mut whole, other, *generator == LoadGenerator::Local);
    }
    clocks.note(&mut whole, generators);
    Ended::Done(Box::new(whole))
}

/// The name of a load generator in messages: its arguments may hold a secret.
fn name(generator: &LoadGenerator) -> &str {
    match generator {
        LoadGenerator::Local => "this machine",
        LoadGenerator::Command(text) => text.split(' ').next().unwrap_or_default(),
    }
}

/// Settings that differ from one server to another.
const IDENTITY: [&str; 5] = ["server_uuid", "hostname", "datadir", "server_started", "port"];

/// A process whose server is not that of the first.
fn other_server(all: &[Together]) -> Option<usize> {
    let identity = |one: &Together| match &one.ended {
        Ended::Done(result) => IDENTITY.map(|name| result.settings.get(name).cloned()),
        _ => Default::default(),
    };
    let first = all.first().map(identity)?;
    // A process that could not ask again says nothing.
    let differs = |one: &Together| {
        first.iter().zip(identity(one)).any(|(a, b)| a.is_some() && b.is_some() && *a != b)
    };
    all.iter().position(differs)
}

/// Adds what another process recorded; the server's counters are those that the first one read.
fn add(whole: &mut TrialResult, other: TrialResult, local: bool) {
    whole.recording.merge(&other.recording);
    whole.failure = whole.failure.take().or(other.failure);
    whole.usage = whole.usage.zip(other.usage).map(|(a, b)| a.plus(&b));
    let retried = other.totals.get(RETRIED).copied().unwrap_or(0.0);
    *whole.totals.entry(RETRIED.to_owned()).or_default() += retried;
    // To each process of this machine the others are strangers that use the CPUs.
    let own = |limit: Limit| match limit {
        Limit::Others { .. } if local => None,
        Limit::Processors { busy, .. } if local => Some(Limit::Processors { busy, others: 0.0 }),
        limit => Some(limit),
    };
    let limits = std::mem::take(&mut whole.limits).into_iter().filter_map(own);
    whole.limits = limits.chain(other.limits.into_iter().filter_map(own)).collect();
    // One for each kind.
    let mut kinds = HashSet::new();
    whole.limits.retain(|limit| kinds.insert(std::mem::discriminant(limit)));
    // Those of the first process alone.
    whole.counters.iter_mut().for_each(|sample| _ = sample.values.remove("client CPU, s/s"));
    whole.notes.extend(other.notes);
}

/// When the processes started and ended, by this machine's clock.
struct Clocks {
    /// Between the first start and the last.
    start_skew: Nanos,
    /// Between the first end and the last.
    end_skew: Nanos,
    /// The largest offset of a clock, and how exactly offsets are known.
    offset: Nanos,
    error: Nanos,
}

impl Clocks {
    fn of(all: &[Together]) -> Self {
        let started = |one: &Together| {
            let at = one.started.map_or(0, |at| at.0);
            i128::from(at) - i128::from(one.clock.ns)
        };
        let ended = |one: &Together| {
            let Ended::Done(result) = &one.ended else { return started(one) };
            let last = result.recording.intervals.last().map_or(0, |interval| interval.end.get());
            started(one) + i128::from(last)
        };
        let spread = |of: &dyn Fn(&Together) -> i128| {
            let (first, last) = (all.iter().map(of).min(), all.iter().map(of).max());
            let between = last.unwrap_or_default() - first.unwrap_or_default();
            Nanos(u64::try_from(between).unwrap_or(u64::MAX))
        };
        let ahead = |one: &Together| i128::from(one.clock.ns);
        let errors = all.iter().map(|one| one.clock.error_ns);
        Self {
            start_skew: spread(&started),
            end_skew: spread(&ended),
            offset: spread(&ahead),
            error: Nanos(errors.max().unwrap_or(0)),
        }
    }

    fn note(&self, whole: &mut TrialResult, generators: &[LoadGenerator]) {
        let Self { start_skew, end_skew, offset, error } = self;
        let others: Vec<&str> = generators.iter().skip(1).map(name).collect();
        let apart = match offset.get() {
            0 => format!("their clocks agree within {error}"),
            _ => format!("their clocks differ by up to {offset}, known within {error}"),
        };
        whole.notes.push(format!(
            "clients in {} processes (here, {}), each with its own queue of arrivals: started within \
             {start_skew}, ended within {end_skew} of each other; {apart}; their waits were not timed",
            generators.len(),
            others.join(", ")
        ));
        for (name, time) in [(START_SKEW, start_skew), (END_SKEW, end_skew)] {
            whole.totals.insert(name.to_owned(), time.as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stats::{Recorder, Sample, Timeline};
    use worker::{ClockOffset, UnixNanos};
    use workload::{OpClass, Outcome};

    const CLASSES: [OpClass; 1] = [OpClass::Transaction];

    fn recorder() -> Recorder {
        let second = Nanos::from_secs(1);
        let timeline = Timeline { warm_up: Nanos::ZERO, measure: second, interval: second };
        Recorder::new(timeline, &CLASSES)
    }

    fn process(recorder: Recorder, started: u64, ahead: i64) -> Together {
        let recording = recorder.finish(Nanos::from_secs(1));
        let result = TrialResult { recording, ..TrialResult::default() };
        Together {
            ended: Ended::Done(Box::new(result)),
            connected: true,
            was_ended: false,
            started: Some(UnixNanos(started)),
            clock: ClockOffset { ns: ahead, error_ns: 1_000 },
        }
    }

    const FOUR: [LoadGenerator; 4] = [const { LoadGenerator::Local }; 4];

    /// Percentiles of one process, or a mean of percentiles, would pass for those of all operations.
    #[test]
    fn percentiles_are_those_of_the_union_of_all_samples() {
        let mut whole = recorder();
        let mut parts = [(); 4].map(|()| recorder());
        for number in 0..40_000_u64 {
            // Each process has other latencies: 20 us, 40 us, ..., with a tail.
            let part = number % 4;
            let latency = Nanos((part + 1) * 20_000 + (number * number) % 9_000_000 / (part + 1));
            let intended = Nanos(number * 20_000);
            let sample = Sample {
                class: CLASSES[0],
                intended,
                issued: intended,
                completed: intended + latency,
                bytes: 0,
                outcome: Outcome::Done,
                position: 0,
            };
            whole.record(sample);
            parts[part as usize].record(sample);
        }
        let whole = whole.finish(Nanos::from_secs(1)).total(Some(CLASSES[0]));
        let all = parts.into_iter().map(|part| process(part, 5, 0)).collect();
        let Ended::Done(merged) = merged(all, &FOUR) else { panic!("it ended") };
        let merged = merged.recording.total(Some(CLASSES[0]));
        assert_eq!(merged.counts, whole.counts);
        for quantile in [0.01, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let of = |total: &stats::Total| total.latency.value_at_quantile(quantile);
            assert_eq!(of(&merged), of(&whole), "{quantile}");
        }
    }

    /// Clocks that differ would pass for clients that started apart, or hide that they did.
    #[test]
    fn starts_are_compared_by_one_clock() {
        let one = |started, ahead| process(recorder(), started, ahead);
        let all = vec![one(1_000_000, 0), one(3_040_000, 2_000_000), one(990_000, 0)];
        let Ended::Done(merged) = merged(all, &FOUR[..3]) else { panic!("it ended") };
        // 1.000, 1.040 and 0.990 ms.
        assert!((merged.totals[START_SKEW] - 50e-6).abs() < 1e-9, "{:?}", merged.totals);
        let note = merged.notes.last().expect("a note");
        assert!(
            note.contains("started within 50.0 \u{b5}s") && note.contains("differ by up to"),
            "{note}"
        );
    }

    /// A trial with fewer clients than its parameters say would be a wrong result.
    #[test]
    fn a_lost_process_fails_the_trial_with_its_reason() {
        let lost = |words: &str, connected| Together {
            ended: Ended::Died(words.to_owned()),
            connected,
            was_ended: connected,
            started: None,
            clock: ClockOffset::default(),
        };
        let all = vec![process(recorder(), 5, 0), lost("killed", true), lost("no route", false)];
        let Ended::Died(why) = merged(all, &FOUR[..3]) else { panic!("it failed") };
        assert_eq!(why, "clients of this machine: no route");
    }

    /// Load on another server would be added to this one's rate.
    #[test]
    fn another_server_fails_the_trial() {
        let of = |host: &str| {
            let mut one = process(recorder(), 5, 0);
            let Ended::Done(result) = &mut one.ended else { panic!("it ended") };
            result.settings.insert("hostname".to_owned(), host.to_owned());
            one
        };
        let Ended::Done(_) = merged(vec![of("a"), of("a")], &FOUR[..2]) else {
            panic!("one server")
        };
        let Ended::Died(why) = merged(vec![of("a"), of("b")], &FOUR[..2]) else {
            panic!("it failed")
        };
        assert!(why.contains("another server"), "{why}");
    }

    /// A generator without free CPUs would pass for a slow server, and our own processes for strangers.
    #[test]
    fn limits_of_all_processes_are_kept() {
        let mut whole =
            TrialResult { limits: vec![Limit::Others { others: 0.5 }], ..Default::default() };
        let limits = vec![Limit::Processors { busy: 0.98, others: 0.5 }];
        add(&mut whole, TrialResult { limits, ..TrialResult::default() }, true);
        assert_eq!(whole.limits, [Limit::Processors { busy: 0.98, others: 0.0 }]);
    }
}
