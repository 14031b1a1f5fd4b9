//! Several processes of clients that start together.
//!
//! Invariant: none starts before all are connected or have ended; if one is lost, the others are ended,
//! unless each is a trial of its own.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use units::Nanos;
use worker::{Channel, ClockOffset, Ended, SqlRequest, UnixNanos, Waiting};

use crate::RunnerError;
use crate::context::RunContext;
use crate::sql_trial::{SqlTrial, ask};
use crate::watch::{Event, Watcher};

/// A process of clients to start.
pub(crate) struct Start<'a> {
    pub one: SqlTrial<'a>,
    /// Started by the thread that calls [`run_together`], because it ends with that thread.
    pub line: Channel,
    pub request: SqlRequest,
    /// Number of its first client among those of its trial.
    pub first_client: u32,
    /// It continues if another one fails.
    pub alone: bool,
    /// Time limit, if it is shorter than that of its trial.
    pub limit: Option<Nanos>,
}

/// How a process of clients ended.
pub(crate) struct Together {
    pub ended: Ended,
    /// Its clients were connected.
    pub connected: bool,
    /// It was ended because another one had failed.
    pub was_ended: bool,
    /// When its clients started, by its own clock; `None` if they did not.
    pub started: Option<UnixNanos>,
    /// Offset of that clock.
    pub clock: ClockOffset,
}

/// Starts them together, and waits for the last.
pub(crate) fn run_together(
    run: RunContext<'_>,
    starts: Vec<Start<'_>>,
    watcher: &mut dyn Watcher,
) -> Result<Vec<Together>, RunnerError> {
    // Each waits once: when ready, or when it ended before that.
    let (gate, lost) = (&Barrier::new(starts.len()), &AtomicBool::new(false));
    let (send, receive) = sync_channel(1024);
    std::thread::scope(|scope| {
        let threads: Vec<_> = starts
            .into_iter()
            .map(|start| {
                let send = send.clone();
                let Start { one, line, request, first_client, alone, limit } = start;
                let waiting =
                    RunContext { began: Instant::now(), ..run }.waiting(one.trial, one.experiment);
                let deadline =
                    limit.map_or(waiting.deadline, |limit| waiting.deadline.min(limit.into()));
                let waiting = Waiting { deadline, ..waiting };
                scope.spawn(move || {
                    let process = i32::try_from(line.process()).ok().and_then(Pid::from_raw);
                    let (mut there, mut started, mut clock) = (false, None, ClockOffset::default());
                    let mut was_ended = false;
                    let mut end_if_lost = || {
                        if !alone && !was_ended && lost.load(Ordering::SeqCst) {
                            was_ended = true;
                            // It has not been waited for, so the number is still its own.
                            process.map(|process| kill_process(process, Signal::KILL));
                        }
                    };
                    let mut heard = |event| match event {
                        worker::Event::Ready(offset) => {
                            if !std::mem::replace(&mut there, true) {
                                clock = offset;
                                gate.wait();
                                end_if_lost();
                            }
                        }
                        worker::Event::Started(at) => started = Some(at),
                        worker::Event::Interval(mut progress) => {
                            end_if_lost();
                            progress.client += first_client;
                            // Only progress may be dropped if it is not read in time.
                            let _ = send.try_send((one.trial, progress));
                        }
                        worker::Event::Loading(_) => {}
                    };
                    let ended = ask(line, one, &request, waiting, &mut heard);
                    if !matches!(ended, Ok(Ended::Done(_))) || !there {
                        lost.store(true, Ordering::SeqCst);
                    }
                    if !there {
                        gate.wait();
                    }
                    // A load generator's words are its trial's failure, not the run's.
                    let ended = match ended {
                        Err(error) if !alone => Ended::Died(error.to_string()),
                        ended => ended?,
                    };
                    Ok(Together { ended, connected: there, was_ended, started, clock })
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
        joined.collect()
    })
}
