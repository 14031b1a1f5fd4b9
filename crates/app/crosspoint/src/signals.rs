//! Ctrl-C: the first one finishes the interval and saves; the second one, or one while the report of a
//! finished run is rendered, undoes what was created on the host and exits.
//!
//! SIGTERM and SIGHUP count as Ctrl-C. Invariants: on every exit the undo journal is undone or kept for
//! `clean`; an aborted trial is not recorded.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use archive::output::discard_unfinished;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use stack::{Journal, state_directory};

use crate::exit;

/// The user's requests so far.
#[derive(Debug, Default)]
pub struct StopRequests {
    /// Stop at the end of the interval.
    pub stop: AtomicBool,
    /// Exit at once.
    pub abort: AtomicBool,
    /// All trials have ended and are undone: there is no interval to wait for.
    pub trials_over: AtomicBool,
    /// The folder of the present run, once known.
    pub run: Mutex<Option<PathBuf>>,
}

impl StopRequests {
    /// Handles a signal; returns whether to exit at once.
    fn take(&self) -> bool {
        self.stop.swap(true, Ordering::Relaxed) || self.trials_over.load(Ordering::SeqCst)
    }
}

/// Starts waiting for signals.
pub fn watch(journal: Arc<Journal>) -> Arc<StopRequests> {
    let asked = Arc::new(StopRequests::default());
    let flags = Arc::clone(&asked);
    let before = left_on_host();
    // Without a handler a signal ends the process, and `clean` undoes.
    if let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGHUP]) {
        std::thread::spawn(move || {
            for _ in &mut signals {
                if flags.take() {
                    flags.abort.store(true, Ordering::SeqCst);
                    for failed in undone(&journal, before) {
                        say!("could not be undone: {failed}; try: crosspoint clean");
                    }
                    match flags.run.lock().ok().and_then(|run| run.clone()) {
                        Some(run) => say!(
                            "stopped at once: finished trials are kept; resume with: crosspoint run \
                             --resume {}",
                            run.display()
                        ),
                        None => say!("stopped at once"),
                    }
                    discard_unfinished();
                    std::process::exit(exit::INTERRUPTED.number());
                }
                say!("stopping at the end of this interval; press Ctrl-C again to stop at once");
            }
        });
    }
    asked
}

/// Undoes what was created; returns what could not be undone. Servers of the run's drives ended with it and
/// have their own journals; what they created must be cleaned before the rest can be undone. `before` is the
/// number of abandoned journals when this process began.
fn undone(journal: &Journal, before: u32) -> Vec<String> {
    let failed = journal.undo_all();
    match state_directory() {
        Ok(state) if !failed.is_empty() || left_on_host() > before => {
            let _ = stack::clean(&state, engines::restore);
            journal.undo_all()
        }
        _ => failed,
    }
}

/// Number of dead processes that left something on the host; 0 if unknown.
fn left_on_host() -> u32 {
    state_directory().ok().and_then(|state| stack::abandoned(&state).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rendering the report of many trials takes half a minute; one Ctrl-C must be enough to skip it.
    #[test]
    fn the_second_signal_leaves_and_the_first_one_once_trials_are_over() {
        let asked = StopRequests::default();
        assert!(!asked.take());
        assert!(asked.take());
        let asked = StopRequests::default();
        asked.trials_over.store(true, Ordering::SeqCst);
        assert!(asked.take());
    }
}
