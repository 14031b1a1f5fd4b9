//! The child's side: one request from standard input, replies to standard output.
//!
//! Invariants: replies are lines, the last one ends the process; a request to stop is obeyed at the end of an
//! interval. What it is not: the trial.

use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex};

use archive::{Keeper, TrialMessage};
use kv::{Engine, KvError, Options};
use observe::{Control, Progress};
use sql::SqlError;
use study::{Engine as EngineName, KvJob, SqlEngine};

use crate::protocol::{CheckRequest, GO, Reply, Request, SqlRequest, TrialRequest};
use crate::{sql_trial, trial};

/// Runs a trial and reports how many records are loaded.
type RunTrial = fn(
    &TrialRequest,
    &Control<'_>,
    &mut dyn FnMut(u64),
) -> Result<Option<Box<TrialMessage>>, KvError>;

/// What a host can do with one engine.
#[derive(Debug, Clone, Copy)]
pub struct Handler {
    trial: RunTrial,
    check: fn(&CheckRequest) -> Result<String, KvError>,
    version: fn() -> String,
}

impl Handler {
    /// All of it, with `E`.
    #[must_use]
    pub fn of<E: Engine>() -> Self {
        Self { trial: trial::run::<E>, check: trial::check::<E>, version: E::version }
    }
}

/// Loads tables, tells how many rows are in; gives the record of that as a line.
type LoadTables = fn(
    &SqlRequest,
    &Control<'_>,
    &mut dyn FnMut(u64),
) -> Result<Option<Box<TrialMessage>>, SqlError>;

/// Runs clients; gives their record as a line.
type RunClients = fn(
    &SqlRequest,
    &Control<'_>,
    &(dyn Fn() + Sync),
) -> Result<Option<Box<TrialMessage>>, SqlError>;

/// What a host can do with one SQL engine.
#[derive(Debug, Clone, Copy)]
pub struct SqlHandler {
    load: LoadTables,
    run: RunClients,
}

impl SqlHandler {
    /// All of it, with `E`.
    #[must_use]
    pub fn of<E: sql::Engine>() -> Self {
        Self { load: sql_trial::load_tables::<E>, run: sql_trial::run::<E> }
    }
}

/// Who answers for which engine; `None`: this program has it not.
pub struct Handlers<'a> {
    /// Looks at job and options first, for what must be loaded or can be refused.
    pub prepare: &'a dyn Fn(&KvJob, &Options) -> Result<(), KvError>,
    /// Key-value engines.
    pub kv: &'a dyn Fn(EngineName) -> Option<Handler>,
    /// SQL engines.
    pub sql: &'a dyn Fn(SqlEngine) -> Option<SqlHandler>,
}

/// Answers one request.
///
/// # Errors
/// Only when nobody hears the replies.
pub fn serve(handlers: &Handlers<'_>) -> std::io::Result<()> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let request: Request = serde_json::from_str(&line)?;
    let words = Arc::new(Words::default());
    let heard = Arc::clone(&words);
    std::thread::spawn(move || heard.hear());
    let missing = missing(&request);
    let reply = match &request {
        Request::Sql(request) => match (handlers.sql)(request.job.engine) {
            Some(handler) => answer_sql(request, handler, &words),
            None => missing,
        },
        Request::Trial(_) | Request::Check(_) | Request::Probe(_) => {
            answer_kv(&request, handlers, &words.stop).unwrap_or(missing)
        }
    };
    say(&reply)
}

/// The reply of a program that does not have the engine.
fn missing(request: &Request) -> Reply {
    let name = match request {
        Request::Trial(request) => request.job.engine.word(),
        Request::Check(request) => request.job.engine.word(),
        Request::Probe(job) => job.engine.word(),
        Request::Sql(request) => request.job.engine.word(),
    };
    Reply::Failed(format!("this program has no {name}"))
}

/// What is said to this process after its request.
#[derive(Default)]
struct Words {
    stop: AtomicBool,
    go: Mutex<bool>,
    changed: Condvar,
}

impl Words {
    /// Hears until it is to stop: any line but [`GO`], or the end of input.
    fn hear(&self) {
        let mut word = String::new();
        while std::io::stdin().lock().read_line(&mut word).is_ok_and(|_| word.trim() == GO) {
            self.begin();
            word.clear();
        }
        self.stop.store(true, Ordering::Relaxed);
        // Who waits to begin must not wait for ever.
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

fn answer_kv(request: &Request, handlers: &Handlers<'_>, stop: &AtomicBool) -> Option<Reply> {
    let job = match request {
        Request::Trial(request) => &request.job,
        Request::Check(request) => &request.job,
        Request::Probe(job) => job,
        Request::Sql(_) => return None,
    };
    let handler = (handlers.kv)(job.engine)?;
    let prepared = (handlers.prepare)(job, &trial::options_of(job));
    let result = prepared.and_then(|()| match request {
        Request::Check(request) => (handler.check)(request).map(Reply::Said),
        Request::Trial(request) => {
            let journal = request.journal.as_deref();
            let done = told(stop, journal, |control, loading, _| {
                (handler.trial)(request, control, loading)
            });
            Ok(done?.map_or(Reply::Stopped, Reply::Done))
        }
        Request::Probe(_) | Request::Sql(_) => Ok(Reply::Said((handler.version)())),
    });
    Some(match result {
        Ok(reply) => reply,
        Err(error @ (KvError::Wrong { .. } | KvError::Lost { .. })) => {
            Reply::Wrong(error.to_string())
        }
        Err(error) => Reply::Failed(error.to_string()),
    })
}

fn answer_sql(request: &SqlRequest, handler: SqlHandler, words: &Words) -> Reply {
    let result = told(&words.stop, request.journal.as_deref(), |control, loading, tell| {
        if request.load {
            return (handler.load)(request, control, loading);
        }
        let ready = || {
            if request.wait {
                tell(&Reply::Ready);
                words.wait();
            }
        };
        (handler.run)(request, control, &ready)
    });
    match result {
        Ok(done) => done.map_or(Reply::Stopped, Reply::Done),
        Err(error) => Reply::Failed(error.to_string()),
    }
}

/// Runs `work` and tells of its progress meanwhile.
fn told<T>(
    stop: &AtomicBool,
    journal: Option<&Path>,
    work: impl FnOnce(&Control<'_>, &mut dyn FnMut(u64), &(dyn Fn(&Reply) + Sync)) -> T,
) -> T {
    let (send, receive) = sync_channel::<Progress>(1024);
    // Without its journal a trial is as good, only not safe from a kill.
    let keeper = journal.and_then(|path| Keeper::start(path).ok());
    let keep = keeper.as_ref().map(|keeper| keeper as &dyn observe::Keep);
    let control = Control { stop, progress: Some(send), keep };
    // Two threads tell of progress; a line must not be cut by another.
    let told = Mutex::new(());
    let tell = |reply: &Reply| {
        let _whole = told.lock();
        if say(reply).is_err() {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let tell = &tell;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for Progress { client, summary } in receive {
                tell(&Reply::interval(client, &summary));
            }
        });
        let mut last = std::time::Instant::now();
        let mut loading = |count: u64| {
            if last.elapsed().as_millis() >= 100 {
                last = std::time::Instant::now();
                tell(&Reply::Loading(count));
            }
        };
        let done = work(&control, &mut loading, tell);
        drop(control);
        done
    })
}
