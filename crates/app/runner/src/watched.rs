//! Runs a trial on a separate thread while the caller's thread reports progress.
//!
//! Invariants: events come from the calling thread; a trial that exceeds its deadline, or does not stop, is
//! abandoned.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use observe::{Control, Keep, Progress};
use study::Trial;

use crate::watch::{Event, Watcher};

/// Polling interval for stop and deadline.
const LOOK: Duration = Duration::from_millis(100);

/// When and how a trial is abandoned.
pub(crate) struct Overdue<'a> {
    /// Deadline of the trial.
    pub after: Duration,
    /// Time to stop after a request.
    pub grace: Duration,
    /// Its thread waits for a device and cannot be stopped: this ends the program.
    pub give_up: &'a dyn Fn(),
}

/// Runs `work` on a separate thread and reports its intervals meanwhile.
pub(crate) fn watched<T: Send>(
    (stop, overdue, keep): (&AtomicBool, &Overdue<'_>, Option<&dyn Keep>),
    trial: &Trial,
    watcher: &mut dyn Watcher,
    work: impl FnOnce(&Control<'_>) -> T + Send,
) -> T {
    let (send, receive) = sync_channel::<Progress>(1024);
    let control = Control { stop, progress: Some(send), keep };
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || work(&control));
        let began = Instant::now();
        let mut asked: Option<Instant> = None;
        let mut given_up = false;
        loop {
            match receive.recv_timeout(LOOK) {
                Ok(progress) => {
                    watcher.event(&Event::Interval { trial, progress: &progress });
                }
                // Its thread has ended, or is only verifying.
                Err(RecvTimeoutError::Disconnected) if thread.is_finished() => break,
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(LOOK / 10),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if asked.is_none() && stop.load(Ordering::Relaxed) {
                asked = Some(Instant::now());
            }
            let late = match asked {
                Some(asked) => asked.elapsed() >= overdue.grace,
                None => began.elapsed() >= overdue.after,
            };
            if late && !given_up {
                given_up = true;
                (overdue.give_up)();
            }
        }
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nobody;
    impl Watcher for Nobody {
        fn event(&mut self, _: &Event<'_>) {}
    }

    /// A device that does not answer must not hang the run, nor swallow Ctrl-C.
    #[test]
    fn a_trial_that_does_not_end_is_given_up() {
        let text = "schema = 1\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n[[experiment]]\n\
                    name = \"e\"\n[experiment.block]\n";
        let plan = study::plan(&study::parse(text, engines::list()).unwrap());
        for asked in [false, true] {
            let (stop, over) = (AtomicBool::new(asked), AtomicBool::new(false));
            let short = Duration::from_millis(50);
            let long = Duration::from_secs(3600);
            let give_up = || over.store(true, Ordering::SeqCst);
            let (after, grace) = if asked { (long, short) } else { (short, long) };
            let overdue = Overdue { after, grace, give_up: &give_up };
            let result = watched((&stop, &overdue, None), &plan.trials[0], &mut Nobody, |_| {
                while !over.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                7
            });
            assert_eq!(result, 7);
        }
    }
}
