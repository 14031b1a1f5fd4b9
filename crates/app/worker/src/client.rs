//! The parent's side of an engine process: start, request, replies.
//!
//! Invariants: the child is killed and waited for on every exit, also a stopped or silent one; requests have
//! a deadline, and stop requests are honoured in time; the end of its stderr is kept, bounded.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_parent_process_death_signal};
use stack::Mark;
use thiserror::Error;

use crate::protocol::{self, ClockOffset, Ended, Event, GO, Reply, Request, TIME, UnixNanos};

/// Why a child could not be used at all.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// It does not start.
    #[error("{} cannot be started: {reason}", program.display())]
    NoProgram {
        /// The program.
        program: PathBuf,
        /// The system's error.
        reason: std::io::Error,
    },
    /// An invalid message.
    #[error("unexpected message from the engine's process: {0}")]
    Unreadable(String),
}

/// A started child before its request.
#[derive(Debug)]
pub struct Channel {
    child: Child,
    /// Lines for its stdin, which closes with this sender.
    input: Option<Sender<String>>,
    output: Option<ChildStdout>,
}

/// When an unresponsive child is killed.
#[derive(Debug, Clone, Copy)]
pub struct Waiting<'a> {
    /// Set to stop the child.
    pub stop: &'a AtomicBool,
    /// Deadline of the request.
    pub deadline: Duration,
    /// Time to stop after a stop request.
    pub grace: Duration,
}

/// Bytes of stderr that are kept.
const WORDS: usize = 2000;
/// Maximum line length: the record of a long trial with short intervals.
const LINE_MAX: u64 = 96 << 20;
/// Polling interval for stop and deadline.
const LOOK: Duration = Duration::from_millis(50);
/// Questions for the time before a common start; the fastest answer counts.
const TIME_QUESTIONS: u32 = 8;
/// Time limit for a killed process to exit; one that waits for a device may take longer, and is abandoned.
const GONE_MAX: Duration = Duration::from_secs(10);

/// A line from the child.
enum Said {
    Channel(Vec<u8>),
    TooLong,
}

/// Why we killed it.
enum Killed {
    Deadline,
    Stop,
}

impl Channel {
    /// Starts `command` as a host of engines; it ends with the calling thread.
    ///
    /// # Errors
    /// [`WorkerError::NoProgram`].
    pub fn start(mut command: Command, mark: &Mark) -> Result<Self, WorkerError> {
        mark.put_on(&mut command);
        // If the program ends, the trial is pointless and its file system must be freed.
        // SAFETY: between fork and exec only prctl(2) is called, which is safe to call there.
        unsafe {
            command.pre_exec(|| {
                set_parent_process_death_signal(Some(Signal::KILL)).map_err(Into::into)
            });
        }
        // Its own process group: a terminal interrupt goes to the program, which then requests a stop.
        let started = command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let program = PathBuf::from(command.get_program());
        let refuse = |reason| WorkerError::NoProgram { program, reason };
        let mut child = started.map_err(refuse)?;
        let (pipe, output) = (child.stdin.take(), child.stdout.take());
        let (input, lines) = channel::<String>();
        std::thread::spawn(move || {
            let Some(mut pipe) = pipe else { return };
            let mut write =
                |line: String| pipe.write_all(line.as_bytes()).and_then(|()| pipe.flush());
            let _ = lines.into_iter().try_for_each(&mut write);
        });
        Ok(Self { child, input: Some(input), output })
    }

    /// Its process ID.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Sends the request, and handles replies until it ends or is killed.
    ///
    /// # Errors
    /// [`WorkerError::Unreadable`].
    pub fn ask(
        mut self,
        request: &Request,
        waiting: Waiting<'_>,
        heard: &mut dyn FnMut(Event),
    ) -> Result<Ended, WorkerError> {
        let text = serde_json::to_string(request)
            .map_err(|error| WorkerError::Unreadable(error.to_string()))?;
        self.send(&text);
        let errors = self.child.stderr.take();
        let (tell_words, words) = sync_channel(1);
        // With a time limit: an abandoned process keeps its outputs open.
        std::thread::spawn(move || tell_words.send(last_words(errors)));
        let (send, receive) = sync_channel(256);
        let output = self.output.take();
        std::thread::spawn(move || output.map(|output| read_lines(output, &send)));
        let (result, killed) = self.hear(&receive, waiting, heard);
        if result.is_err() {
            // Invalid output; the handle ensures that it is our process.
            let _ = self.child.kill();
        }
        let status = gone(&mut self.child);
        let words = words.recv_timeout(Duration::from_secs(1)).unwrap_or_default();
        match (result?, killed) {
            (Some(ended), _) => Ok(ended),
            (None, Some(Killed::Stop)) => Ok(Ended::Stopped),
            (None, Some(Killed::Deadline)) => Ok(Ended::Died(format!(
                "the engine's process exceeded the trial's deadline ({}) and was killed{}",
                units::Nanos::from(waiting.deadline),
                with_words(&words)
            ))),
            (None, None) => Ok(Ended::Died(obituary(status, &words))),
        }
    }

    /// Sends a line. Failures are ignored: replies of an ended child are still read, and one that does not
    /// read blocks only the writing thread.
    fn send(&self, text: &str) {
        if let Some(input) = &self.input {
            let _ = input.send(format!("{text}\n"));
        }
    }

    fn ask_the_time(&self, (count, at): &mut (u32, UnixNanos)) {
        (*count, *at) = (*count + 1, UnixNanos::now());
        self.send(TIME);
    }

    /// Reads the process's output until its last line or its end; kills it at the deadline.
    fn hear(
        &mut self,
        said: &Receiver<Said>,
        waiting: Waiting<'_>,
        heard: &mut dyn FnMut(Event),
    ) -> (Result<Option<Ended>, WorkerError>, Option<Killed>) {
        let began = Instant::now();
        // Time that it was ready and waited for others.
        let mut held = Duration::ZERO;
        let (mut asked, mut killed): (Option<Instant>, Option<Killed>) = (None, None);
        let mut killed_at = None;
        // Number and time of the last question for the time, and the best answer.
        let (mut asked_at, mut clock) = ((0, UnixNanos(0)), ClockOffset::default());
        loop {
            if waiting.stop.load(Ordering::Relaxed) && asked.is_none() {
                asked = Some(Instant::now());
                // The end of its input requests a stop.
                self.input = None;
            }
            let late = match asked {
                Some(asked) if asked.elapsed() >= waiting.grace => Some(Killed::Stop),
                _ => (began.elapsed() >= waiting.deadline.saturating_add(held))
                    .then_some(Killed::Deadline),
            };
            if let (Some(why), None) = (late, &killed) {
                killed = Some(why);
                killed_at = Some(Instant::now());
                let _ = self.child.kill();
            }
            if killed_at.is_some_and(|at| at.elapsed() >= GONE_MAX) {
                return (Ok(None), killed);
            }
            let line = match said.recv_timeout(LOOK) {
                Ok(Said::Channel(line)) => line,
                Ok(Said::TooLong) => {
                    let _ = self.child.kill();
                    let reason = format!(
                        "its record exceeds {} MiB; use a longer `interval`",
                        LINE_MAX >> 20
                    );
                    return (Ok(Some(Ended::Died(reason))), killed);
                }
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return (Ok(None), killed),
            };
            match understood(&line) {
                Err(error) => return (Err(error), killed),
                Ok(Understood::End(ended)) => return (Ok(Some(ended)), killed),
                Ok(Understood::Connected(build)) if build != protocol::build() => {
                    let _ = self.child.kill();
                    let reason = format!("it is Crosspoint {build}, this is {}", protocol::build());
                    return (Ok(Some(Ended::Died(reason))), killed);
                }
                Ok(Understood::Connected(_)) => {
                    clock = ClockOffset { ns: 0, error_ns: u64::MAX };
                    self.ask_the_time(&mut asked_at);
                }
                Ok(Understood::Time(_)) if asked_at.0 == 0 => {}
                Ok(Understood::Time(said)) => {
                    let found = ClockOffset::of(asked_at.1, said, UnixNanos::now());
                    if found.error_ns < clock.error_ns {
                        clock = found;
                    }
                    if asked_at.0 < TIME_QUESTIONS {
                        self.ask_the_time(&mut asked_at);
                        continue;
                    }
                    asked_at.0 = 0;
                    let before = Instant::now();
                    heard(Event::Ready(clock));
                    held += before.elapsed();
                    self.send(GO);
                }
                Ok(Understood::Event(event)) => heard(event),
            }
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // Has no effect if it has already ended in `ask`.
        let _ = self.child.kill();
        let _ = gone(&mut self.child);
    }
}

/// Exit status of a process; `None` if it still runs, for example because it waits for a device.
fn gone(child: &mut Child) -> Option<ExitStatus> {
    let began = Instant::now();
    let mut look = Duration::from_micros(200);
    while began.elapsed() < GONE_MAX {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) => std::thread::sleep(look),
            Err(_) => return None,
        }
        look = (look * 2).min(LOOK);
    }
    None
}

fn read_lines(output: ChildStdout, send: &SyncSender<Said>) {
    let mut output = BufReader::new(output);
    loop {
        let mut line = Vec::new();
        let said = match output.by_ref().take(LINE_MAX + 1).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(count) if count as u64 > LINE_MAX => Said::TooLong,
            // It died while writing a line.
            Ok(_) if line.last() != Some(&b'\n') => return,
            Ok(_) => Said::Channel(line),
        };
        let over = matches!(said, Said::TooLong);
        if send.send(said).is_err() || over {
            return;
        }
    }
}

/// A line of a child.
#[derive(Debug)]
pub enum Understood {
    /// A progress event.
    Event(Event),
    /// The clients of this build are connected, and wait.
    Connected(String),
    /// The child's clock.
    Time(UnixNanos),
    /// The final message.
    End(Ended),
}

/// Parses a line of a child.
///
/// # Errors
/// [`WorkerError::Unreadable`], with the start of the line.
pub fn understood(line: &[u8]) -> Result<Understood, WorkerError> {
    let unreadable = |reason: String| {
        let reason: String = reason.chars().take(200).collect();
        let begin = String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned();
        WorkerError::Unreadable(format!("{reason}: {}", begin.trim_end()))
    };
    let reply = serde_json::from_slice(line).map_err(|error| unreadable(error.to_string()))?;
    Ok(match reply {
        Reply::Event(event) => Understood::Event(event),
        Reply::Connected(build) => Understood::Connected(build),
        Reply::Time(time) => Understood::Time(time),
        Reply::End(ended) => Understood::End(ended),
        Reply::Done(record) => {
            let record = record.into_record().map_err(|error| unreadable(error.to_string()))?;
            Understood::End(Ended::Done(Box::new(record.result)))
        }
    })
}

/// The last bytes of a stream, however long it is.
fn last_words(errors: Option<impl Read>) -> String {
    let mut last: VecDeque<u8> = VecDeque::with_capacity(WORDS);
    let mut part = [0u8; 4096];
    if let Some(mut errors) = errors {
        while let Ok(count @ 1..) = errors.read(&mut part) {
            last.extend(&part[..count]);
            let over = last.len().saturating_sub(WORDS);
            last.drain(..over);
        }
    }
    String::from_utf8_lossy(last.make_contiguous()).trim().replace('\n', "; ")
}

fn with_words(words: &str) -> String {
    if words.is_empty() { String::new() } else { format!("; its last words: {words}") }
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
    format!("the engine's process {how}{}", with_words(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Channel {
        let dir = tempfile::tempdir().expect("a directory");
        let journal = stack::Journal::new(dir.path(), |_, _, _| Ok(()));
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Channel::start(command, journal.mark()).expect("it starts")
    }

    fn ask(line: Channel, stop: bool, deadline: Duration) -> Result<Ended, WorkerError> {
        let stop = AtomicBool::new(stop);
        let waiting = Waiting { stop: &stop, deadline, grace: Duration::from_millis(100) };
        let job = "schema = 1\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n[[experiment]]\n\
                   name = \"e\"\n[experiment.kv]\nengine = \"lmdb\"\nrecords = 10\nvalue_size = \"100B\"\n";
        let plan = study::plan(&study::parse(job, study::Engines::ANY).expect("a study"));
        let study::Job::Kv(job) = plan.trials[0].job.clone() else { panic!("a database") };
        line.ask(&Request::Probe(job), waiting, &mut |_| ())
    }

    /// A stopped engine must neither hang the run nor swallow Ctrl-C.
    #[test]
    fn a_silent_child_is_ended_by_its_deadline_or_by_the_wish_to_stop() {
        let began = Instant::now();
        let long = Duration::from_secs(600);
        let ended = ask(shell("kill -STOP $$"), false, Duration::from_millis(200)).unwrap();
        assert!(matches!(&ended, Ended::Died(how) if how.contains("deadline")), "{ended:?}");
        let ended = ask(shell("kill -STOP $$"), true, long).unwrap();
        assert!(matches!(ended, Ended::Stopped), "{ended:?}");
        assert!(began.elapsed() < Duration::from_secs(30));
    }

    /// A process that is killed while writing its record must fail its trial, not the run.
    #[test]
    fn a_record_that_is_cut_off_is_the_death_of_its_process() {
        let long = Duration::from_secs(600);
        let ended = ask(shell("printf '{\"done\": ['; kill -9 $$"), false, long).unwrap();
        assert!(matches!(&ended, Ended::Died(how) if how.contains("signal 9")), "{ended:?}");
        let error = ask(shell("echo nonsense"), false, long).unwrap_err().to_string();
        assert!(error.contains("nonsense"), "{error}");
    }

    /// A request that is larger than a pipe must neither hang the run nor swallow Ctrl-C.
    #[test]
    fn a_child_that_does_not_read_is_ended_by_its_deadline() {
        let line = shell("sleep 600");
        for _ in 0..10 {
            line.send(&"x".repeat(100_000));
        }
        let ended = ask(line, false, Duration::from_millis(200)).unwrap();
        assert!(matches!(&ended, Ended::Died(how) if how.contains("deadline")), "{ended:?}");
    }

    /// A child with endless output must not exhaust this machine's memory.
    #[test]
    fn endless_words_are_refused_or_forgotten() {
        let long = Duration::from_secs(600);
        let ended = ask(shell("tr '\\0' x </dev/zero"), false, long).unwrap();
        assert!(matches!(&ended, Ended::Died(how) if how.contains("96 MiB")), "{ended:?}");
        let script = "head -c 100000000 /dev/zero | tr '\\0' x >&2; echo end >&2; exit 3";
        let ended = ask(shell(script), false, long).unwrap();
        let Ended::Died(how) = ended else { panic!("{ended:?}") };
        assert!(how.contains("code 3") && how.ends_with("end") && how.len() < 2200, "{how}");
    }
}
