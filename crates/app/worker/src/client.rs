//! The program's side: a child started, asked and heard.
//!
//! Invariants: the child is waited for on every way out; its last words are kept. What it is not: a decision
//! about what a failure means.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use archive::TrialRecord;
use observe::Progress;
use thiserror::Error;

use crate::protocol::{GO, Reply, Request, summary_of};

/// Why a child could not be used at all.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// It does not start.
    #[error("{} can not be started: {reason}", program.display())]
    NoProgram {
        /// The program.
        program: PathBuf,
        /// What the system said.
        reason: std::io::Error,
    },
    /// It said something that no child says.
    #[error("the engine's process said what this program does not understand: {0}")]
    Unreadable(String),
}

/// How a request ended.
#[derive(Debug)]
pub enum Ended {
    /// A trial is over.
    Done(Box<TrialRecord>),
    /// It was stopped before anything was measured.
    Stopped,
    /// The answer to a probe or a check.
    Said(String),
    /// The engine failed, in its words.
    Failed(String),
    /// The database holds what was never written, or lost what it had promised.
    Wrong(String),
    /// The process ended without a word; why, and its last words.
    Died(String),
}

/// What is heard meanwhile.
#[derive(Debug)]
pub enum Event {
    /// So many records are in.
    Loading(u64),
    /// A client ended an interval.
    Interval(Progress),
    /// The clients are connected; they begin when whoever hears this returns.
    Ready,
}

/// A child that was started and not yet asked.
#[derive(Debug)]
pub struct Line {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<std::process::ChildStdout>,
}

/// Last words that are kept, bytes.
const WORDS: usize = 2000;

impl Line {
    /// Starts `program` with the word that makes it a host of engines.
    ///
    /// # Errors
    /// [`WorkerError::NoProgram`].
    pub fn start(program: &Path, arguments: &[&str]) -> Result<Self, WorkerError> {
        // A group of its own: an interrupt from the terminal is for the program, which then asks it to stop.
        let started = Command::new(program)
            .args(arguments)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let refuse = |reason| WorkerError::NoProgram { program: program.to_owned(), reason };
        let mut child = started.map_err(refuse)?;
        let input = child.stdin.take();
        let output = child.stdout.take().map(BufReader::new);
        let output = output.ok_or_else(|| refuse(std::io::Error::other("it has no output")))?;
        Ok(Self { child, input, output })
    }

    /// Its process.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Asks it, and hears it until it ends. `stop` is passed on.
    ///
    /// # Errors
    /// [`WorkerError::Unreadable`].
    pub fn ask(
        mut self,
        request: &Request,
        stop: &AtomicBool,
        heard: &mut dyn FnMut(Event),
    ) -> Result<Ended, WorkerError> {
        let mut text = serde_json::to_string(request)
            .map_err(|error| WorkerError::Unreadable(error.to_string()))?;
        text.push('\n');
        let input = Mutex::new(self.input.take());
        let send = |text: &str| {
            // A child that ended already can not be written to; what it said is heard below.
            let _ = input.lock().map(|mut input| {
                input
                    .as_mut()
                    .map(|input| input.write_all(text.as_bytes()).and_then(|()| input.flush()))
            });
        };
        send(&text);
        let errors = self.child.stderr.take();
        let words = std::thread::spawn(move || last_words(errors));
        let over = &AtomicBool::new(false);
        let result = std::thread::scope(|scope| {
            let waiter = scope.spawn(|| pass_stop_on(stop, over, &input));
            let mut heard = |event| {
                let ready = matches!(event, Event::Ready);
                heard(event);
                if ready {
                    send(&format!("{GO}\n"));
                }
            };
            let result = hear(&mut self.output, &mut heard);
            over.store(true, Ordering::Relaxed);
            waiter.thread().unpark();
            result
        });
        if result.is_err() {
            // It talks nonsense; it is ours, by its handle.
            let _ = self.child.kill();
        }
        let status = self.child.wait();
        let words = words.join().unwrap_or_default();
        match result? {
            Some(ended) => Ok(ended),
            None => Ok(Ended::Died(obituary(status.ok(), &words))),
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // After `ask` it has ended, and this does nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks the child to stop when the program is to stop; keeps its input open until it has ended.
fn pass_stop_on(stop: &AtomicBool, over: &AtomicBool, input: &Mutex<Option<ChildStdin>>) {
    let patience = std::time::Duration::from_millis(50);
    while !over.load(Ordering::Relaxed) {
        if stop.load(Ordering::Relaxed) {
            // The end of its input asks as well as a word does.
            let _ = input.lock().map(|mut input| input.take());
        }
        std::thread::park_timeout(patience);
    }
}

/// Lines until the last one; `None` when there was no last one.
fn hear(
    output: &mut impl BufRead,
    heard: &mut dyn FnMut(Event),
) -> Result<Option<Ended>, WorkerError> {
    let mut line = String::new();
    loop {
        line.clear();
        match output.read_line(&mut line) {
            Ok(0) | Err(_) => return Ok(None),
            Ok(_) => {}
        }
        let unreadable = |reason: String| {
            WorkerError::Unreadable(format!(
                "{reason}: {}",
                line.chars().take(80).collect::<String>()
            ))
        };
        let reply = serde_json::from_str(&line).map_err(|error| unreadable(error.to_string()))?;
        return Ok(Some(match reply {
            Reply::Loading(count) => {
                heard(Event::Loading(count));
                continue;
            }
            Reply::Ready => {
                heard(Event::Ready);
                continue;
            }
            Reply::Interval { client, measured, end_ns, seconds, ops, latency_ns } => {
                let summary = summary_of((measured, end_ns), seconds, ops, latency_ns);
                heard(Event::Interval(Progress { client, summary }));
                continue;
            }
            Reply::Done(record) => {
                let record =
                    archive::from_line(&record).map_err(|error| unreadable(error.to_string()))?;
                Ended::Done(Box::new(record))
            }
            Reply::Stopped => Ended::Stopped,
            Reply::Said(words) => Ended::Said(words),
            Reply::Failed(reason) => Ended::Failed(reason),
            Reply::Wrong(reason) => Ended::Wrong(reason),
        }));
    }
}

/// The end of what a stream said.
fn last_words(errors: Option<impl Read>) -> String {
    let mut all = Vec::new();
    if let Some(mut errors) = errors {
        let _ = errors.read_to_end(&mut all);
    }
    let from = all.len().saturating_sub(WORDS);
    String::from_utf8_lossy(&all[from..]).trim().replace('\n', "; ")
}

fn obituary(status: Option<ExitStatus>, words: &str) -> String {
    let how = match status {
        Some(status) => match (status.signal(), status.code()) {
            (Some(signal), _) => format!("was ended by signal {signal}"),
            (None, Some(code)) => format!("ended with code {code}"),
            (None, None) => "ended".to_owned(),
        },
        None => "ended".to_owned(),
    };
    let words = if words.is_empty() { String::new() } else { format!("; its last words: {words}") };
    format!("the engine's process {how}{words}")
}
