//! Loading a database, and driving it with any clients.
//!
//! A thread a client, each with its own session and recorder. Invariants: all clients start together
//! and share one time origin; a wrong value ends the trial. What it is not: preparation of the
//! directory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, OnceLock};
use std::time::Duration;

use observe::{Clock, Control, sample};
use stats::{DueShares, Recorder, Recording, Sample, Timeline, TrialResult};
use units::{Nanos, Seed};
use workload::{Client, KvOp, Outcome, Step, ValueShape, Values, Workload, write_key};

use crate::operations::{Buffers, Records};
use crate::{Engine, KvError, Ledger, Session};

/// A key-value trial.
#[derive(Debug, Clone)]
pub struct KvSpec {
    /// Records in the database.
    pub records: u64,
    /// Bytes of a key.
    pub key_size: usize,
    /// Sizes of values and what they are made of.
    pub values: ValueShape,
    /// Records a transaction while loading.
    pub load_batch: u32,
    /// Phases and interval.
    pub timeline: Timeline,
    /// Seed of values.
    pub seed: Seed,
    /// End the trial at the first failed operation.
    pub stop_on_error: bool,
}

/// Time between samples of the engine's counters.
const SAMPLE_EVERY: Duration = Duration::from_millis(250);
/// Error number recorded when an engine gives none.
const UNSPECIFIED: i32 = -1;

/// Loads records `0..records` in key order; notes each transaction in `ledger`. `step` is told how many are
/// in and says whether to go on; returns whether all are in.
///
/// # Errors
/// What the engine said.
pub fn load<E: Engine>(
    engine: &E,
    spec: &KvSpec,
    ledger: Option<&Ledger>,
    step: &mut dyn FnMut(u64) -> bool,
) -> Result<bool, KvError> {
    let values = Values::new(spec.values, spec.seed);
    let mut session = engine.session()?;
    let mut record = 0;
    while record < spec.records {
        let end = spec.records.min(record + u64::from(spec.load_batch.max(1)));
        session.put_batch(&mut |key, value| {
            if record == end {
                return false;
            }
            key.resize(spec.key_size, 0);
            write_key(record, key);
            values.fill(record, 0, value);
            record += 1;
            true
        })?;
        if let Some(ledger) = ledger {
            ledger.loaded(record)?;
        }
        if !step(record) {
            return Ok(record == spec.records);
        }
    }
    Ok(true)
}

struct KvShared<'a> {
    spec: &'a KvSpec,
    control: &'a Control<'a>,
    ledger: Option<&'a Ledger>,
    values: Values,
    start: Barrier,
    /// The common origin of time, read by whoever passes the barrier first.
    clock: OnceLock<Clock>,
    failed: AtomicBool,
}

/// What a client gave.
struct ClientEnd<W> {
    recording: Recording,
    failure: Option<String>,
    workload: W,
    /// Its classes, to share out what it missed.
    shares: DueShares,
    /// When it ended.
    at: Nanos,
}

type ClientResult<W> = Result<ClientEnd<W>, KvError>;

/// Runs the clients over a database, and notes in `ledger` what was acknowledged.
///
/// # Errors
/// [`KvError::Wrong`] at the first value that is not what was written; engine failures during the
/// trial are data instead.
pub fn measure<E: Engine, W: Workload<Op = KvOp> + Send>(
    engine: &E,
    spec: &KvSpec,
    clients: Vec<Client<W>>,
    ledger: Option<&Ledger>,
    control: &Control<'_>,
) -> Result<TrialResult, KvError> {
    let shared = KvShared {
        spec,
        control,
        ledger,
        values: Values::new(spec.values, spec.seed),
        start: Barrier::new(clients.len()),
        clock: OnceLock::new(),
        failed: AtomicBool::new(false),
    };
    let shared = &shared;
    Clock::prepare();
    control.expect(u32::try_from(clients.len()).unwrap_or(u32::MAX));
    let done = AtomicBool::new(false);
    let (results, samples) = std::thread::scope(|scope| {
        let sampler =
            scope.spawn(|| sample(&mut |_| engine.counters(), SAMPLE_EVERY, &shared.clock, &done));
        let threads: Vec<_> = (0u32..)
            .zip(clients)
            .map(|(index, client)| scope.spawn(move || run_client(engine, shared, client, index)))
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
        let results: Vec<ClientResult<W>> = joined.collect();
        done.store(true, Ordering::Relaxed);
        sampler.thread().unpark();
        (results, sampler.join().unwrap_or_default())
    });
    let mut measured = TrialResult { counters: samples, ..TrialResult::default() };
    let mut ends = Vec::with_capacity(results.len());
    for result in results {
        let end = result?;
        measured.recording.merge(&end.recording);
        measured.failure = measured.failure.or(end.failure);
        ends.push((end.workload, end.shares, end.at));
    }
    let over = ends.iter().map(|(.., at)| *at).max().unwrap_or_default();
    for (mut workload, shares, _) in ends {
        measured.recording.missed_by(&shares, &mut workload, (&spec.timeline, over));
    }
    let lost = control.take_back(&mut measured.recording);
    let trouble = shared.clock.get().and_then(|clock| clock.trouble());
    measured.failure = measured.failure.or(lost).or(trouble);
    Ok(measured)
}

fn run_client<E: Engine, W: Workload<Op = KvOp>>(
    engine: &E,
    shared: &KvShared<'_>,
    client: Client<W>,
    index: u32,
) -> ClientResult<W> {
    let session = engine.session();
    // Every client passes the barrier, even one that cannot go on, so that none waits for ever.
    shared.start.wait();
    let clock = *shared.clock.get_or_init(Clock::start);
    let mut session = session?;
    let spec = shared.spec;
    let mut recorder = Recorder::of(&client, spec.timeline);
    let (mut workload, classes) = (client.workload, client.classes);
    let records = Records { values: &shared.values, ledger: shared.ledger };
    let mut buffers = Buffers::new(spec.key_size, spec.values.most);
    let mut failure = None;
    let (mut now, mut all_done) = (clock.now(), false);
    'trial: loop {
        let issue = match workload.next(now) {
            Step::Issue(issue) => Some(issue),
            Step::WaitUntil(due) => {
                observe::rest(due.since(now), spec.timeline.interval);
                None
            }
            Step::WaitCompletion | Step::Finished => {
                all_done = now < spec.timeline.end();
                break;
            }
        };
        let issued = now;
        let result = issue.map(|issue| records.perform(&mut session, issue.op, &mut buffers));
        now = clock.now();
        while let Some(summary) = recorder.poll(now) {
            shared.control.tell(index, summary);
            shared.control.keep(&mut recorder, index, now);
            if shared.control.stopping() {
                break 'trial;
            }
        }
        if let (Some(issue), Some(result)) = (issue, result) {
            let (bytes, outcome) = match result {
                Ok(bytes) => (bytes, Outcome::Done),
                Err(error @ KvError::Wrong { .. }) => {
                    shared.failed.store(true, Ordering::Relaxed);
                    return Err(error);
                }
                Err(error) => {
                    failure.get_or_insert_with(|| error.to_string());
                    if spec.stop_on_error {
                        shared.failed.store(true, Ordering::Relaxed);
                    }
                    (0, Outcome::Failed(UNSPECIFIED))
                }
            };
            recorder.record(Sample::of(&issue, (issued, now), (outcome, bytes)));
            workload.completed(issue.id, outcome, now);
        }
        if shared.failed.load(Ordering::Relaxed) {
            break;
        }
    }
    shared.control.leave(&mut recorder, index, now);
    let recording = if all_done { recorder.finish_early(now) } else { recorder.finish(now) };
    let shares = recording.due_shares(&classes);
    Ok(ClientEnd { recording, failure, workload, shares, at: now })
}
