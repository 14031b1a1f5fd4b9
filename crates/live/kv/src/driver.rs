//! Loading a database, and driving it with readers beside one writer.
//!
//! A thread a client, each with its own session and recorder. Invariants: all clients start together
//! and share one time origin; a wrong value ends the trial. What it is not: preparation of the
//! directory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, OnceLock};
use std::time::Instant;

use observe::Control;
use stats::{Recorder, Recording, Sample, Timeline};
use units::{Nanos, Seed};
use workload::{
    Issue, KvClient, KvOp, KvPlan, KvRole, OpClass, Outcome, Step, Values, Workload, write_key,
};

use crate::sampler::{Sampled, sample};
use crate::{Engine, KvError, Session};

/// A key-value trial.
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    /// Records in the database.
    pub records: u64,
    /// Bytes of a value.
    pub value_size: usize,
    /// Reader threads; one writer runs beside them.
    pub readers: u32,
    /// Records a transaction while loading.
    pub load_batch: u32,
    /// Phases and interval.
    pub timeline: Timeline,
    /// Seed of keys and values.
    pub seed: Seed,
    /// End the trial at the first failed operation.
    pub stop_on_error: bool,
}

/// What a trial gave.
#[derive(Debug)]
pub struct Measured {
    /// The time series: reads by the readers, writes by the writer.
    pub recording: Recording,
    /// The first failure's words, if any.
    pub failure: Option<String>,
    /// The engine's own counters over time.
    pub samples: Vec<Sampled>,
}

/// Error number recorded when an engine gives none.
const UNSPECIFIED: i32 = -1;

/// Loads records `0..records` in key order. `step` is told how many are in and says whether to go
/// on; returns whether all are in.
///
/// # Errors
/// What the engine said.
pub fn load<E: Engine>(
    engine: &E,
    spec: &Spec,
    step: &mut dyn FnMut(u64) -> bool,
) -> Result<bool, KvError> {
    let values = Values::new(spec.value_size, spec.seed);
    let mut session = engine.session()?;
    let mut record = 0;
    while record < spec.records {
        let end = spec.records.min(record + u64::from(spec.load_batch.max(1)));
        session.put_batch(&mut |key, value| {
            if record == end {
                return false;
            }
            write_key(record, key);
            values.fill(record, 0, value);
            record += 1;
            true
        })?;
        if !step(record) {
            return Ok(record == spec.records);
        }
    }
    Ok(true)
}

struct Shared<'a> {
    spec: &'a Spec,
    control: &'a Control<'a>,
    values: Values,
    start: Barrier,
    /// The common origin of time, read by whoever passes the barrier first.
    origin: OnceLock<Instant>,
    failed: AtomicBool,
}

type ClientResult = Result<(Recording, Option<String>), KvError>;

/// Runs the readers and the writer over a loaded database.
///
/// # Errors
/// [`KvError::Wrong`] at the first value that is not what was written; engine failures during the
/// trial are data instead.
pub fn measure<E: Engine>(
    engine: &E,
    spec: &Spec,
    control: &Control<'_>,
) -> Result<Measured, KvError> {
    let shared = Shared {
        spec,
        control,
        values: Values::new(spec.value_size, spec.seed),
        start: Barrier::new(spec.readers as usize + 1),
        origin: OnceLock::new(),
        failed: AtomicBool::new(false),
    };
    let shared = &shared;
    let done = AtomicBool::new(false);
    let (results, samples) = std::thread::scope(|scope| {
        let sampler = scope.spawn(|| sample(engine, &shared.origin, &done));
        let threads: Vec<_> = (0..=spec.readers)
            .map(|index| {
                let role = if index == 0 { KvRole::Writer } else { KvRole::Reader };
                scope.spawn(move || run_client(engine, shared, role, index))
            })
            .collect();
        let joined = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| {
                Err(KvError::Engine {
                    engine: "client",
                    action: "run a client thread",
                    reason: "it panicked; please report this".into(),
                })
            })
        });
        let results: Vec<ClientResult> = joined.collect();
        done.store(true, Ordering::Relaxed);
        sampler.thread().unpark();
        (results, sampler.join().unwrap_or_default())
    });
    let mut measured = Measured { recording: Recording::default(), failure: None, samples };
    for result in results {
        let (recording, failure) = result?;
        measured.recording.merge(&recording);
        measured.failure = measured.failure.or(failure);
    }
    Ok(measured)
}

fn run_client<E: Engine>(
    engine: &E,
    shared: &Shared<'_>,
    role: KvRole,
    index: u32,
) -> ClientResult {
    let session = engine.session();
    // Every client passes the barrier, even one that can not go on, so that none waits for ever.
    shared.start.wait();
    let origin = *shared.origin.get_or_init(Instant::now);
    let mut session = session?;
    let spec = shared.spec;
    let plan = KvPlan { records: spec.records, end: spec.timeline.end() };
    let mut client = KvClient::new(plan, role, spec.seed, index);
    let mut recorder = Recorder::new(spec.timeline, &[OpClass::Read, OpClass::Write]);
    let mut value = Vec::with_capacity(spec.value_size);
    let mut failure = None;
    let mut now = Nanos::from(origin.elapsed());
    'trial: while let Step::Issue(issue) = client.next(now) {
        let result = perform(&mut session, &shared.values, issue.op, &mut value);
        now = Nanos::from(origin.elapsed());
        while let Some(summary) = recorder.poll(now) {
            shared.control.tell(index, summary);
            if shared.control.stopping() {
                break 'trial;
            }
        }
        let outcome = match result {
            Ok(()) => Outcome::Done,
            Err(error @ KvError::Wrong { .. }) => {
                shared.failed.store(true, Ordering::Relaxed);
                return Err(error);
            }
            Err(error) => {
                failure.get_or_insert_with(|| error.to_string());
                if spec.stop_on_error {
                    shared.failed.store(true, Ordering::Relaxed);
                }
                Outcome::Failed(UNSPECIFIED)
            }
        };
        record(&mut recorder, issue, now, outcome, spec.value_size);
        client.completed(issue.id, outcome, now);
        if shared.failed.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok((recorder.finish(now), failure))
}

fn perform<S: Session>(
    session: &mut S,
    values: &Values,
    op: KvOp,
    value: &mut Vec<u8>,
) -> Result<(), KvError> {
    let record = op.record;
    let mut key = [0; 16];
    write_key(record, &mut key);
    match op.class {
        OpClass::Write => {
            values.fill(record, op.generation, value);
            session.put(&key, value)
        }
        // A client issues updates and lookups, nothing else.
        _ => {
            let mut right = false;
            let found = session.get(&key, &mut |bytes| right = values.check(record, bytes))?;
            match (found, right) {
                (true, true) => Ok(()),
                (true, false) => {
                    Err(KvError::Wrong { record, what: "its value is not one that was written" })
                }
                (false, _) => Err(KvError::Wrong { record, what: "it is missing" }),
            }
        }
    }
}

fn record(
    recorder: &mut Recorder,
    issue: Issue<KvOp>,
    completed: Nanos,
    outcome: Outcome,
    value_size: usize,
) {
    recorder.record(Sample {
        class: issue.op.class,
        intended: issue.intended,
        issued: issue.intended,
        completed,
        bytes: value_size as u32,
        outcome,
        position: issue.op.record,
    });
}
