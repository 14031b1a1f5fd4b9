//! What the caller decides about a run.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use stack::Journal;

/// What the caller decides about a run.
#[derive(Debug)]
pub struct Options<'a> {
    /// Run folder to make; `runs/STUDY-TIME` when none.
    pub out: Option<PathBuf>,
    /// Identities of the devices whose data may be lost.
    pub confirmed: Vec<String>,
    /// What was measured of this host; predictions have it unless a stack names a host path.
    pub here: Option<sim::Calibration>,
    /// Where undo journals are kept.
    pub journal: &'a Journal,
    /// Version of the program.
    pub version: &'a str,
    /// How it was built.
    pub build: &'a str,
    /// Where the run goes, once that is known: for whoever leaves at once.
    pub run: &'a OnceLock<PathBuf>,
    /// Set from outside to stop at the end of the current interval.
    pub stop: &'a AtomicBool,
    /// Set from outside before everything is undone under a trial: what it gives then is not recorded.
    pub abort: &'a AtomicBool,
    /// Called when a trial neither ends nor can be ended, as on a device that does not answer; ends the
    /// program.
    pub give_up: fn(&Journal, &str),
}
