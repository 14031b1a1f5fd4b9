//! The child's side: one request from standard input, replies to standard output.
//!
//! Replies are lines; the last one ends the process. A stop request takes effect at the end of an interval.

use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex};

use archive::{Keeper, TrialMessage};
use engine::{EngineError, ErrorKind, KeyValueEngine, Place, ServerVerbs, SqlEngine, Statements};
use observe::{Control, Progress};
use study::{Descriptor, KvJob, Operations, SqlJob};

use crate::protocol::{
    CheckRequest, Ended, Event, GO, Reply, Request, SqlRequest, TIME, TrialRequest, UnixNanos,
    build,
};
use crate::{sql_trial, trial};

type Recorded = Result<Option<Box<TrialMessage>>, EngineError>;
/// Runs a trial, or loads its tables, and reports the number of records loaded.
type Run<R> = fn(&R, &Control<'_>, &mut dyn FnMut(u64)) -> Recorded;
/// Runs clients; calls the function once they are connected.
type RunClients = fn(&SqlRequest, &Control<'_>, &(dyn Fn() + Sync)) -> Recorded;

/// Opens the database at a place for a job, and connects to it.
pub type Connect = fn(&Place, &SqlJob) -> Result<Box<dyn Statements>, EngineError>;

/// One engine: its description, and the operations of its host process.
#[derive(Debug, Clone, Copy)]
pub struct Handler {
    /// Its description for users.
    pub descriptor: &'static Descriptor,
    /// Checks that the engine works with its defaults; returns its version.
    pub probe: fn() -> Result<String, EngineError>,
    /// How its servers are created and reached; `None` if embedded.
    pub server: Option<ServerVerbs>,
    /// Opens a database of a SQL engine and connects to it; none for other engines.
    pub connect: Option<Connect>,
    verbs: Verbs,
}

#[derive(Debug, Clone, Copy)]
enum Verbs {
    /// Runs in the program itself.
    Block,
    KeyValue {
        trial: Run<TrialRequest>,
        check: fn(&CheckRequest) -> Result<String, EngineError>,
        probe: fn(&KvJob) -> Result<String, EngineError>,
    },
    Sql {
        load: Run<SqlRequest>,
        run: RunClients,
    },
}

impl Handler {
    /// Block I/O, which runs in the main process.
    #[must_use]
    pub const fn block(
        descriptor: &'static Descriptor,
        probe: fn() -> Result<String, EngineError>,
    ) -> Self {
        Self { descriptor, probe, server: None, connect: None, verbs: Verbs::Block }
    }

    /// A key-value engine.
    #[must_use]
    pub const fn key_value<E: KeyValueEngine>() -> Self {
        let verbs = Verbs::KeyValue {
            trial: trial::run::<E>,
            check: trial::check::<E>,
            probe: |job| E::probe(Some(job)),
        };
        let probe = || E::probe(None);
        Self { descriptor: E::DESCRIPTOR, probe, server: None, connect: None, verbs }
    }

    /// A SQL engine.
    #[must_use]
    pub const fn sql<E: SqlEngine>() -> Self
    where
        E::Connection: 'static,
    {
        let verbs = Verbs::Sql { load: sql_trial::load_tables::<E>, run: sql_trial::run::<E> };
        let connect: Connect = |place, job| Ok(Box::new(E::open(place, job)?.connect(false)?));
        let (probe, connect) = (|| E::probe(None), Some(connect));
        Self { descriptor: E::DESCRIPTOR, probe, server: E::SERVER, connect, verbs }
    }
}

/// Answers one request with the engines of this program.
///
/// # Errors
/// Only if the replies are not read.
pub fn serve(handlers: &[Handler]) -> std::io::Result<()> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let request: Request = serde_json::from_str(&line)?;
    let words = Arc::new(Words::default());
    let heard = Arc::clone(&words);
    std::thread::spawn(move || heard.hear());
    let (name, operations) = match &request {
        Request::Trial(request) => (request.job.engine.word(), Operations::KeyValue),
        Request::Check(request) => (request.job.engine.word(), Operations::KeyValue),
        Request::Probe(job) => (job.engine.word(), Operations::KeyValue),
        Request::Sql(request) => (request.job.engine.word(), Operations::Sql),
    };
    let has =
        |one: &&Handler| one.descriptor.name == name && one.descriptor.operations == operations;
    let reply = match handlers.iter().find(has) {
        Some(handler) => {
            answer(&request, handler.verbs, &words).unwrap_or_else(|error| failed(&error))
        }
        None => Reply::End(Ended::Failed(format!("this build has no {name}"))),
    };
    say(&reply)
}

fn failed(error: &EngineError) -> Reply {
    Reply::End(match (error.kind(), error.help()) {
        (ErrorKind::Corruption | ErrorKind::Lost, _) => Ended::Wrong(error.to_string()),
        (ErrorKind::Refused | ErrorKind::NotOurs, Some(help)) => {
            Ended::Refused { reason: error.reason(), help: help.to_owned() }
        }
        _ => Ended::Failed(error.to_string()),
    })
}

fn answer(request: &Request, verbs: Verbs, words: &Words) -> Result<Reply, EngineError> {
    let done = |done: Option<_>| done.map_or(Reply::End(Ended::Stopped), Reply::Done);
    let said = |words| Reply::End(Ended::Said(words));
    match (request, verbs) {
        (Request::Probe(job), Verbs::KeyValue { probe, .. }) => probe(job).map(said),
        (Request::Check(request), Verbs::KeyValue { check, .. }) => check(request).map(said),
        (Request::Trial(request), Verbs::KeyValue { trial, .. }) => {
            let journal = request.parameters.journal.as_deref();
            told(&words.stop, journal, |control, loading, _| trial(request, control, loading))
                .map(done)
        }
        (Request::Sql(request), Verbs::Sql { load, run }) => {
            let journal = request.parameters.journal.as_deref();
            told(&words.stop, journal, |control, loading, tell| {
                if request.load {
                    return load(request, control, loading);
                }
                let ready = || {
                    if request.wait {
                        tell(Reply::Connected(build()));
                        words.wait();
                        tell(Reply::Event(Event::Started(UnixNanos::now())));
                    }
                };
                run(request, control, &ready)
            })
            .map(done)
        }
        _ => unreachable!("invariant: the handler was chosen by the request's operations"),
    }
}

/// Lines to this process after its request.
#[derive(Default)]
struct Words {
    stop: AtomicBool,
    go: Mutex<bool>,
    changed: Condvar,
}

impl Words {
    /// Reads until a stop is requested: by any line but [`GO`] and [`TIME`], or the end of input.
    fn hear(&self) {
        let mut word = String::new();
        while std::io::stdin().lock().read_line(&mut word).is_ok() {
            match word.trim() {
                GO => self.begin(),
                TIME => {
                    if say(&Reply::Time(UnixNanos::now())).is_err() {
                        break;
                    }
                }
                _ => break,
            }
            word.clear();
        }
        self.stop.store(true, Ordering::Relaxed);
        // A waiting start must not hang.
        self.begin();
    }

    fn begin(&self) {
        if let Ok(mut go) = self.go.lock() {
            *go = true;
        }
        self.changed.notify_all();
    }

    fn wait(&self) {
        if let Ok(go) = self.go.lock() {
            drop(self.changed.wait_while(go, |go| !*go));
        }
    }
}

fn say(reply: &Reply) -> std::io::Result<()> {
    let mut text = serde_json::to_string(reply)?;
    text.push('\n');
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Runs `work` and reports its progress meanwhile.
fn told<T>(
    stop: &AtomicBool,
    journal: Option<&Path>,
    work: impl FnOnce(&Control<'_>, &mut dyn FnMut(u64), &(dyn Fn(Reply) + Sync)) -> T,
) -> T {
    let (send, receive) = sync_channel::<Progress>(1024);
    // Without its journal a trial is valid, but lost in a kill.
    let keeper = journal.and_then(|path| Keeper::start(path).ok());
    let keep = keeper.as_ref().map(|keeper| keeper as &dyn observe::Keep);
    let control = Control { stop, progress: Some(send), keep };
    // Two threads report progress; a line must not be cut by another.
    let told = Mutex::new(());
    let tell = |reply| {
        let _whole = told.lock();
        if say(&reply).is_err() {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let tell = &tell;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for progress in receive {
                tell(Reply::Event(Event::Interval(Box::new(progress))));
            }
        });
        let mut last = std::time::Instant::now();
        let mut loading = |count: u64| {
            if last.elapsed().as_millis() >= 100 {
                last = std::time::Instant::now();
                tell(Reply::Event(Event::Loading(count)));
            }
        };
        let done = work(&control, &mut loading, tell);
        drop(control);
        done
    })
}
