//! The child's side: one request from standard input, replies to standard output.
//!
//! Invariants: replies are lines, the last one ends the process; a request to stop is obeyed at the end of an
//! interval. What it is not: the trial.

use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};

use kv::{Engine, KvError, Options};
use observe::{Control, Progress};
use rustix::process::{Signal, set_parent_process_death_signal};
use study::{Engine as EngineName, KvJob};

use crate::protocol::{CheckRequest, Reply, Request, TrialRequest};
use crate::trial;

/// Runs a trial, tells how many records are in, gives its record as a line.
type RunTrial =
    fn(&TrialRequest, &Control<'_>, &mut dyn FnMut(u64)) -> Result<Option<String>, KvError>;

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

/// Answers one request. `prepare` looks at job and options first, for what must be loaded or can be refused;
/// `handler_of` has the engines.
///
/// # Errors
/// Only when nobody hears the replies.
pub fn serve(
    prepare: &dyn Fn(&KvJob, &Options) -> Result<(), KvError>,
    handler_of: &dyn Fn(EngineName) -> Option<Handler>,
) -> std::io::Result<()> {
    // With the program gone nobody wants the trial, and its file system must come free.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let request: Request = serde_json::from_str(&line)?;
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    std::thread::spawn(move || {
        let mut word = String::new();
        // A line or the end of input: both mean stop.
        let _ = std::io::stdin().lock().read_line(&mut word);
        flag.store(true, Ordering::Relaxed);
    });
    let reply = match handler_of(request.engine()) {
        Some(handler) => answer(&request, prepare, handler, &stop),
        None => Reply::Failed(format!("this program has no {}", request.engine().word())),
    };
    say(&reply)
}

fn say(reply: &Reply) -> std::io::Result<()> {
    let mut text = serde_json::to_string(reply)?;
    text.push('\n');
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn answer(
    request: &Request,
    prepare: &dyn Fn(&KvJob, &Options) -> Result<(), KvError>,
    handler: Handler,
    stop: &AtomicBool,
) -> Reply {
    let job = match request {
        Request::Trial(request) => &request.job,
        Request::Check(request) => &request.job,
        Request::Probe(job) => job,
    };
    let result = prepare(job, &trial::options_of(job)).and_then(|()| match request {
        Request::Probe(_) => Ok(Reply::Said((handler.version)())),
        Request::Check(request) => (handler.check)(request).map(Reply::Said),
        Request::Trial(request) => run_trial(request, handler, stop),
    });
    match result {
        Ok(reply) => reply,
        Err(error @ (KvError::Wrong { .. } | KvError::Lost { .. })) => {
            Reply::Wrong(error.to_string())
        }
        Err(error) => Reply::Failed(error.to_string()),
    }
}

fn run_trial(
    request: &TrialRequest,
    handler: Handler,
    stop: &AtomicBool,
) -> Result<Reply, KvError> {
    let (send, receive) = sync_channel::<Progress>(1024);
    let control = Control { stop, progress: Some(send) };
    // Two threads tell of progress; a line must not be cut by another.
    let told = Mutex::new(());
    let tell = |reply: &Reply| {
        let _whole = told.lock();
        if say(reply).is_err() {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let tell = &tell;
    let done = std::thread::scope(|scope| {
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
        let done = (handler.trial)(request, &control, &mut loading);
        drop(control);
        done
    })?;
    Ok(done.map_or(Reply::Stopped, Reply::Done))
}
