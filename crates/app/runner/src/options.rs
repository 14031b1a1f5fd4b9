//! Options of a run set by its caller.

use std::any::Any;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use stack::Journal;

/// Where a further process of clients runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadGenerator {
    /// On this machine.
    Local,
    /// Where this program with its arguments, followed by the verb of engines, starts Crosspoint.
    Command(String),
}

impl std::str::FromStr for LoadGenerator {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "" => Err("name a command, such as 'ssh client2 crosspoint', or local".to_owned()),
            "local" => Ok(Self::Local),
            command => Ok(Self::Command(command.to_owned())),
        }
    }
}

/// Options of a run set by its caller.
#[derive(Debug)]
pub struct Options<'a> {
    /// Run folder to create; `None`: `runs/STUDY-TIME`.
    pub out: Option<PathBuf>,
    /// Numbers of the trials to run; `None`: all.
    pub only: Option<Vec<u32>>,
    /// Identities of the devices whose data may be overwritten.
    pub confirmed: Vec<String>,
    /// Further processes that run clients of SQL jobs.
    pub load_generators: Vec<LoadGenerator>,
    /// Calibration of this host, used by predictions unless a stack names a host path.
    pub here: Option<sim::Calibration>,
    /// Run-to-run variation of this host, for the run's record.
    pub noise: BTreeMap<String, f64>,
    /// How far off simulations were on a disk of this host, for the run's record.
    pub own_disk: Option<archive::OwnDisk>,
    /// Undo journal.
    pub journal: &'a Journal,
    /// Version of the program.
    pub version: &'a str,
    /// How it was built.
    pub build: &'a str,
    /// The run's folder, once known.
    pub run: &'a Mutex<Option<PathBuf>>,
    /// Set from outside to stop at the end of the current interval.
    pub stop: &'a AtomicBool,
    /// Set before everything is undone under a trial, whose result is then discarded.
    pub abort: &'a AtomicBool,
    /// Called if a trial neither ends nor can be stopped, as on a device that does not answer; ends the
    /// program.
    pub give_up: fn(&Journal, &str),
    /// Starts what undoes the journal's entries if this process is killed, until the value is dropped: kernel
    /// tracing slows down the whole host.
    pub guard: fn() -> Option<Box<dyn Any>>,
}
