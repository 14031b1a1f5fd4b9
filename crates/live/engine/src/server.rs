//! Servers of SQL engines: how the program creates, starts and reaches them.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use observe::waits::Observation;
use stack::{Journal, Limits};
use study::SqlJob;
use units::Bytes;
use vtime::Simulation;

use crate::{EngineError, Place};

/// A private server that is running; ended when dropped.
pub trait Server: Send {
    /// Its process ID.
    fn process(&self) -> u32;

    /// Its exit status and last log lines, if it has ended; waits up to `wait`.
    fn obituary(&mut self, wait: Duration) -> Option<String>;

    /// Shuts it down cleanly.
    ///
    /// # Errors
    /// How it ended instead.
    fn stop(self: Box<Self>) -> Result<(), String>;
}

/// Everything that starting a server needs from the run.
#[derive(Clone, Copy)]
pub struct Hosting<'a> {
    /// Everything created on the host is journaled here first.
    pub journal: &'a Journal,
    /// Set to stop.
    pub stop: &'a AtomicBool,
}

/// The library that is preloaded into programs of a trial.
#[derive(Debug, Clone, Copy)]
pub enum Preload<'a> {
    /// None.
    None,
    /// They take part in a simulation.
    Simulation(&'a Simulation),
    /// Their waits are timed.
    Observation(&'a Observation),
}

/// Where and how a private server runs.
#[derive(Clone, Copy)]
pub struct PrivateServer<'a> {
    /// Directory created by [`ServerVerbs::make`].
    pub place: &'a Path,
    /// Its log.
    pub log: &'a Path,
    /// Size of its buffer pool.
    pub pool: Bytes,
    /// Limits of its process.
    pub limits: &'a Limits,
    /// The library that it is started with.
    pub preload: Preload<'a>,
}

/// A user's server, connected for a trial.
pub struct Reached {
    /// The database on it.
    pub place: Place,
    /// Original values of the variables that the job changes, already in the journal.
    pub before: Vec<(String, String)>,
    /// Excludes other runs until dropped.
    pub held: Box<dyn Send>,
}

/// Functions for a SQL engine's servers.
#[derive(Debug, Clone, Copy)]
pub struct ServerVerbs {
    /// Checks a job's server without starting anything that the study names.
    pub look: fn(&SqlJob) -> Result<(), EngineError>,
    /// Checks that a job's server, private or the user's, can be used.
    pub check: fn(&SqlJob) -> Result<(), EngineError>,
    /// Creates the directory of a job's private server.
    pub make: fn(&SqlJob, &Path, Hosting<'_>) -> Result<(), EngineError>,
    /// Starts a job's private server, with its database.
    pub start: Start,
    /// Reaches the user's server named by the job's dsn, and journals what the job will change.
    pub reach: fn(&SqlJob, &str, &Journal) -> Result<Reached, EngineError>,
    /// Restores a variable of the user's server; takes its dsn, name and value.
    pub restore: fn(&str, &str, &str) -> Result<(), String>,
    /// Buffer pool size of a job, given the size of its tables' pages once that is known.
    pub pool: fn(&SqlJob, Option<u64>) -> Bytes,
    /// Directories of a private server that hold its tables.
    pub data: fn(&Path) -> Vec<PathBuf>,
}

/// Starts a private server; returns where its database is.
pub type Start =
    fn(&SqlJob, PrivateServer<'_>, Hosting<'_>) -> Result<(Place, Box<dyn Server>), EngineError>;
