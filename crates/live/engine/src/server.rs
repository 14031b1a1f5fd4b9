//! Servers of SQL engines: how the program creates, starts and reaches them.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
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
    /// Where its write-ahead log is, if not in `place`.
    pub wal: Option<WalPlace<'a>>,
}

/// A write-ahead log in a directory of its own.
#[derive(Debug, Clone, Copy)]
pub struct WalPlace<'a> {
    /// That directory, made by [`split_wal`].
    pub directory: &'a Path,
    /// Path of the log below the database's directory, where the server expects it.
    pub at: &'static str,
}

/// Moves the log of the database in `place` to the empty directory `wal.directory`. A server of another user
/// sees it at its old place by a mount of its own, and one of this user by a symbolic link.
///
/// # Errors
/// The system's error.
pub fn split_wal(place: &Path, wal: WalPlace<'_>) -> Result<(), EngineError> {
    move_directory(&place.join(wal.at), wal.directory).map_err(|error| {
        let reason = format!("the log was not moved to {}: {error}", wal.directory.display());
        EngineError::refused(reason, "crosspoint doctor")
    })
}

fn move_directory(from: &Path, to: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
    let owner = std::fs::metadata(from)?;
    let mut command = Command::new("cp");
    command.arg("-a").arg(from.join(".")).arg(to);
    // An interrupt is for this program.
    command.process_group(0);
    let done = stack::output_within(&mut command, (COPY_MAX, None), |_| ())?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        return Err(std::io::Error::other(said.trim().to_owned()));
    }
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o700))?;
    std::fs::remove_dir_all(from)?;
    if owner.uid() == rustix::process::geteuid().as_raw() {
        return symlink(to, from);
    }
    std::fs::create_dir(from)?;
    for directory in [to, from] {
        chown(directory, Some(owner.uid()), Some(owner.gid()))?;
    }
    Ok(())
}

/// Time limit for copying a new database's log.
const COPY_MAX: Duration = Duration::from_secs(120);

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
