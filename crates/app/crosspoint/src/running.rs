//! What every verb that runs trials needs: an undo journal, and a flag that a signal sets.
//!
//! Invariant: made once a process. What it is not: the run.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use runner::Options;
use stack::{Journal, state_directory};

use crate::signals;

/// How this program was built, for provenance.
const BUILD: &str = if cfg!(debug_assertions) {
    "debug (our own cost is too high)"
} else {
    match option_env!("CROSSPOINT_COMMIT") {
        Some(commit) => commit,
        None => "release, commit unknown",
    }
};

/// Journal and signals of this process.
pub struct Running {
    journal: Arc<Journal>,
    stop: Arc<AtomicBool>,
}

impl Running {
    /// Starts to watch for signals.
    pub fn start() -> Self {
        let journal = Arc::new(Journal::new(&state_directory()));
        let stop = signals::watch(Arc::clone(&journal));
        Self { journal, stop }
    }

    /// Options of a run into `out` that may overwrite the devices `confirmed`.
    pub fn options(&self, out: Option<PathBuf>, confirmed: &[String]) -> Options<'_> {
        Options {
            out,
            confirmed: confirmed.to_vec(),
            journal: &self.journal,
            version: env!("CARGO_PKG_VERSION"),
            build: BUILD,
            stop: &self.stop,
        }
    }

    /// Whether the user asked to stop.
    pub fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Undoes what was made on the host.
    pub fn undo(&self) {
        for failed in self.journal.undo_all() {
            say!("could not be undone: {failed}; try: crosspoint clean");
        }
    }
}
