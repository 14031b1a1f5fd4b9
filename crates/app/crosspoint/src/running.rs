//! Common to verbs that run trials: an undo journal, and a flag set by signals.
//!
//! Invariant: created once per process.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use archive::output::discard_unfinished;
use runner::{Options, RunEnd, RunnerError, StudyText};
use stack::{Journal, state_directory};

use crate::progress::{self, ProgressKind};
use crate::show::Failure;
use crate::signals::{self, StopRequests};
use crate::{exit, host_file};

/// How this program was built, for provenance.
const BUILD: &str = if cfg!(debug_assertions) {
    "debug build (harness overhead too high; use a release build)"
} else {
    match option_env!("CROSSPOINT_COMMIT") {
        Some(commit) => commit,
        None => "release, commit unknown",
    }
};

/// Journal and signals of this process.
pub struct Running {
    journal: Arc<Journal>,
    asked: Arc<StopRequests>,
    here: Option<sim::Calibration>,
}

impl Running {
    /// Starts watching for signals.
    pub fn start() -> Result<Self, Failure> {
        let here = host_file::here(&state_directory()?);
        Ok(Self { here, ..Self::start_uncalibrated()? })
    }

    /// Like [`Running::start`], without the host's calibration.
    pub fn start_uncalibrated() -> Result<Self, Failure> {
        let state = state_directory()?;
        let journal = Arc::new(Journal::new(&state, engines::restore));
        let asked = signals::watch(Arc::clone(&journal));
        Ok(Self { journal, asked, here: None })
    }

    /// Whether predictions use this host's own calibration.
    pub fn is_calibrated(&self) -> bool {
        self.here.is_some()
    }

    /// Uses a new calibration from now on.
    pub fn use_calibration(&mut self, found: sim::Calibration) {
        self.here = Some(found);
    }

    /// Options of a run into `out` that may overwrite the devices `confirmed`.
    pub fn options(&self, out: Option<PathBuf>, confirmed: &[String]) -> Options<'_> {
        Options {
            out,
            only: None,
            load_generators: Vec::new(),
            confirmed: confirmed.to_vec(),
            here: self.here.clone(),
            noise: crate::noise_file::single_runs(),
            own_disk: crate::own_disk_file::own_disk(),
            journal: &self.journal,
            version: env!("CARGO_PKG_VERSION"),
            build: BUILD,
            run: &self.asked.run,
            stop: &self.asked.stop,
            abort: &self.asked.abort,
            give_up,
            guard: || Some(Box::new(crate::guard::start().ok()?)),
        }
    }

    /// Runs a study into `out`, with progress; undoes what it created on the host.
    pub fn execute(
        &self,
        text: &str,
        (out, confirmed): (Option<PathBuf>, &[String]),
        kind: ProgressKind,
    ) -> Result<RunEnd, RunnerError> {
        self.asked.trials_over.store(false, Ordering::SeqCst);
        let mut watcher = progress::watcher(kind);
        let end = runner::execute(text, &self.options(out, confirmed), watcher.as_mut());
        drop(watcher);
        self.undo();
        end
    }

    /// Like [`Running::execute`], of a built-in study with these values instead of its own.
    pub fn execute_with(
        &self,
        (found, set): (StudyText, &[String]),
        to: (Option<PathBuf>, &[String]),
        kind: ProgressKind,
    ) -> Result<RunEnd, Failure> {
        match study::apply_overrides(&found.text, set) {
            Ok(text) => Ok(self.execute(&text, to, kind)?),
            Err(error) => Err(Failure::Runner(Box::new(error.into()), Some(found))),
        }
    }

    /// The undo journal, and the flag that requests a stop.
    pub fn parts(&self) -> (&Journal, &AtomicBool) {
        (&self.journal, &self.asked.stop)
    }

    /// Whether the user requested a stop.
    pub fn stopping(&self) -> bool {
        self.asked.stop.load(Ordering::Relaxed)
    }

    /// Undoes what was created on the host; the first signal then ends the program.
    pub fn undo(&self) {
        // The signal handler undoes more than this and exits when done.
        while self.asked.abort.load(Ordering::SeqCst) {
            std::thread::park();
        }
        for failed in self.journal.undo_all() {
            say!("could not be undone: {failed}; try: crosspoint clean");
        }
        self.asked.trials_over.store(true, Ordering::SeqCst);
    }
}

/// Ends the program because a trial cannot be stopped.
fn give_up(journal: &Journal, reason: &str) {
    say!("error: {reason}\n  help: see dmesg; when the device answers again: crosspoint clean");
    for failed in journal.undo_all() {
        say!("could not be undone: {failed}; try: crosspoint clean");
    }
    discard_unfinished();
    std::process::exit(exit::TARGET_FAILED.number());
}
