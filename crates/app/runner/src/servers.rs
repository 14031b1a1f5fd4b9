//! Servers and tables of a run, shared between SQL trials.
//!
//! A data directory is on the stack under test; loaded tables are reused only by jobs that need the same
//! tables. Data of a failed trial is removed, or kept if the study says so.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use engine::{
    EngineError, ErrorKind, Hosting, Place, PrivateServer, Reached, Server, ServerVerbs, WalPlace,
};
use stack::Journal;
use stats::LoadRecord;
use study::{Operations, SqlJob};
use units::Bytes;
use worker::{Ended, Handler};

use crate::RunnerError;
use crate::databases::keep;

/// Tables left by a trial.
#[derive(Debug, Clone)]
pub(crate) struct Loaded {
    /// Identifies their contents.
    pub key: String,
    /// Directory of the database.
    pub place: PathBuf,
    /// Cost of loading, reported by the trial that did it.
    pub load: LoadRecord,
    /// Bytes of the tables' pages.
    pub pages: u64,
    /// Note about the volume.
    pub volume_note: Option<String>,
    /// Directory of its write-ahead log, on another stack.
    pub wal: Option<PathBuf>,
}

/// A server that runs for a trial.
pub(crate) struct Running {
    pub place: Place,
    /// Our server; `None` for a user's server or an embedded database.
    pub server: Option<Box<dyn Server>>,
    pub log: PathBuf,
    /// Original values of changed variables of the user's server.
    pub before: Vec<(String, String)>,
    /// Holds the user's server for the trial.
    _held: Option<Box<dyn Send>>,
}

impl Running {
    /// For an embedded database.
    pub fn embedded(place: Place) -> Self {
        Self { place, server: None, log: PathBuf::new(), before: Vec::new(), _held: None }
    }

    /// Restores the variables of the user's server for the next trial; returns what could not be restored.
    pub fn set_back(&self, dsn: Option<&str>) -> Vec<String> {
        let dsn = dsn.unwrap_or_default();
        let back = |(name, value): &(String, String)| {
            let failed = engines::restore(dsn, name, value).err()?;
            Some(format!("{name} could not be set back to {value}: {failed}"))
        };
        self.before.iter().rev().filter_map(back).collect()
    }
}

/// The engine of a job.
pub(crate) fn engine_of(job: &SqlJob) -> Result<&'static Handler, EngineError> {
    let name = job.engine.word();
    engines::find(name, Operations::Sql).ok_or_else(|| {
        EngineError::refused(format!("no SQL engine is named {name}"), "crosspoint doctor")
    })
}

/// Server functions of a job's engine; `None` if it is embedded.
pub(crate) fn server_of(job: &SqlJob) -> Option<ServerVerbs> {
    engine_of(job).ok()?.server
}

/// Beginning of the paths of a job's write-ahead log, below the directory of its database.
pub(crate) fn wal_of(job: &SqlJob) -> Option<&'static str> {
    engines::list().find(&job.engine, Operations::Sql)?.wal
}

/// The directory of a database's write-ahead log, if it has one of its own.
pub(crate) fn wal_place<'a>(job: &SqlJob, directory: Option<&'a Path>) -> Option<WalPlace<'a>> {
    Some(WalPlace { directory: directory?, at: wal_of(job)? })
}

/// Moves a database to `to`, with its write-ahead log where the server expects it.
pub(crate) fn keep_all(job: &SqlJob, loaded: &Loaded, to: &Path) -> std::io::Result<()> {
    keep(&loaded.place, to)?;
    let Some(wal) = wal_place(job, loaded.wal.as_deref()) else { return Ok(()) };
    let at = to.join(wal.at);
    match std::fs::symlink_metadata(&at) {
        Ok(found) if found.is_dir() => std::fs::remove_dir(&at)?,
        Ok(_) => std::fs::remove_file(&at)?,
        Err(_) => {}
    }
    keep(wal.directory, &at)
}

/// Converts an engine's refusal.
pub(crate) fn environment(stack: &str, error: &EngineError) -> RunnerError {
    let next = error.help().unwrap_or("crosspoint doctor").to_owned();
    let reason = error.help().map_or_else(|| error.to_string(), |_| error.reason());
    if error.kind() == ErrorKind::NotOurs {
        let device = format!("stack {stack}");
        return stack::StackError::refused(&device, reason, next).into();
    }
    RunnerError::environment(stack, reason, next)
}

/// Checks that a job's server exists, is new enough and usable, before anything is created.
pub(crate) fn probe(stack: &str, job: &SqlJob) -> Result<(), RunnerError> {
    let checked = server_of(job).map_or(Ok(()), |server| (server.check)(job));
    checked.map_err(|error| environment(stack, &error))
}

/// What a job's server lacks, without starting anything that the study names.
pub(crate) fn absent_server(job: &SqlJob) -> Option<(String, String)> {
    let error = (server_of(job)?.look)(job).err()?;
    Some((error.reason(), error.help().unwrap_or("crosspoint doctor").to_owned()))
}

/// The user's server of a job; original values of variables to change are journaled first.
pub(crate) fn shared(job: &SqlJob, dsn: &str, journal: &Journal) -> Result<Running, EngineError> {
    let Some(server) = server_of(job) else {
        let reason = format!("{} is embedded; it has no servers", job.engine.word());
        return Err(EngineError::refused(reason, "leave out dsn"));
    };
    let Reached { place, before, held } = (server.reach)(job, dsn, journal)?;
    Ok(Running { before, _held: Some(held), ..Running::embedded(place) })
}

/// The cache of a job, once the bytes of its tables are known.
pub(crate) fn pool_of(job: &SqlJob, tables: Option<u64>) -> Bytes {
    let memory =
        || job.options.pool("buffer_pool").bytes(Bytes(tables.unwrap_or(job.data().get())));
    server_of(job)
        .map_or_else(|| memory().unwrap_or_else(|| job.data()), |server| (server.pool)(job, tables))
}

/// What part of its tables a server caches.
pub(crate) fn pool_note(job: &SqlJob, pool: Bytes, pages: Bytes) -> String {
    let share = pool.get() as f64 / pages.get().max(1) as f64;
    if share >= 1.0 {
        return format!("buffer pool {pool}: it holds all {pages} of the tables' pages");
    }
    let numbers = workload::SqlNumbers::new(job.distribution, job.records);
    format!(
        "buffer pool {pool}: {:.1} % of the tables' {pages}; even holding only the hottest pages, it could \
         serve at most {:.1} % of row accesses",
        share * 100.0,
        numbers.best_hit_ratio(share) * 100.0
    )
}

/// A copy of the tables of all simulated drives in the empty directory `place`: an update that an earlier
/// trial has made would change nothing.
pub(crate) fn copy(tables: &Path, place: PathBuf) -> Result<PathBuf, RunnerError> {
    let mut command = Command::new("cp");
    command.args(["-a", "--reflink=auto"]).arg(tables.join(".")).arg(&place);
    // Ctrl-C is for this program, which stops the run.
    let copied = command.process_group(0).status();
    let failed = || std::io::Error::other("cp failed; is there space?");
    let copied = copied.and_then(|code| code.success().then_some(()).ok_or_else(failed));
    copied.map_err(stack::StackError::io("copy the tables to", &place))?;
    Ok(place)
}

/// Creates the directory of a job's database in `place`.
pub(crate) fn make(job: &SqlJob, place: &Path, hosting: Hosting<'_>) -> Result<(), EngineError> {
    server_of(job).map_or(Ok(()), |server| (server.make)(job, place, hosting))
}

/// Starts the private server of a job on the data directory in `private.place`; an embedded database needs
/// none.
pub(crate) fn start(
    job: &SqlJob,
    private: PrivateServer<'_>,
    hosting: Hosting<'_>,
) -> Result<Running, EngineError> {
    let Some(server) = server_of(job) else {
        return Ok(Running::embedded(Place::Directory(private.place.to_owned())));
    };
    let (place, own) = (server.start)(job, private, hosting)?;
    let log = private.log.to_owned();
    Ok(Running { server: Some(own), log, ..Running::embedded(place) })
}

/// The clients' message about a failure.
pub(crate) fn words_of(ended: Ended) -> Option<String> {
    match ended {
        Ended::Failed(reason)
        | Ended::Refused { reason, .. }
        | Ended::Died(reason)
        | Ended::Wrong(reason)
        | Ended::Said(reason) => Some(reason),
        Ended::Done(record) => record.failure,
        Ended::Stopped => None,
    }
}

/// Why a trial failed: the server's message first, then the clients'.
pub(crate) fn reason_of(of_server: Option<String>, seen: Option<String>) -> Option<String> {
    match (of_server, seen) {
        (Some(how), Some(seen)) => Some(format!("the server {how}; client errors: {seen}")),
        (Some(how), None) => Some(format!("the server {how}")),
        (None, seen) => seen,
    }
}
