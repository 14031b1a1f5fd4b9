//! Private servers of a run: data directories made, servers started for a trial, what they leave put away.
//!
//! Invariants: a data directory is on the stack under test; one that was loaded is used again only for the
//! same tables; what a failed trial leaves is removed, or kept where the study says so.
//! What it is not: clients; those are another process.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use sql::{Place, Refusal, SqlError, Target};
use sql_mysql::{
    Binary, Home, Listen, Reach, Server, arguments, initialise, password_from_environment,
};
use stack::{Journal, Limits, Undo};
use stats::LoadRecord;
use study::{Memory, SqlEngine, SqlJob};
use units::Bytes;

use crate::RunnerError;

/// Name of the database that private servers hold.
pub(crate) const DATABASE: &str = "sbtest";
/// Bytes that a pool is a multiple of.
const POOL_UNIT: u64 = 1 << 20;
/// Least pools: below 64 KiB pages, and with them.
const POOL_LEAST: (u64, u64) = (6 << 20, 24 << 20);
/// Pool while loading, where the study gives a share of what is not there yet.
const POOL_LOADING: Bytes = Bytes::mib(256);

/// Tables that a trial left for others.
#[derive(Debug, Clone)]
pub(crate) struct Loaded {
    /// What they were loaded for.
    pub key: String,
    /// Directory of the database.
    pub place: PathBuf,
    /// What loading took; told by the trial that did it.
    pub load: LoadRecord,
    /// Bytes of the tables' pages.
    pub pages: u64,
    /// What must be said of the volume.
    pub volume_note: Option<String>,
}

/// A server that runs for a trial.
pub(crate) struct Running {
    pub place: Place,
    /// Ours, or none: the user's.
    pub server: Option<Server>,
    pub log: PathBuf,
    /// Variables of a server of the user's as they were before.
    pub before: Vec<(String, String)>,
    /// The user's server, for as long as the trial.
    _held: Option<sql_mysql::Held>,
}

impl Running {
    /// No server of ours.
    pub fn embedded(place: Place) -> Self {
        Self { place, server: None, log: PathBuf::new(), before: Vec::new(), _held: None }
    }

    /// Sets the variables of a server of the user's back, for the next trial; what could not be.
    pub fn set_back(&self, dsn: Option<&str>) -> Vec<String> {
        let dsn = dsn.unwrap_or_default();
        let back = |(name, value): &(String, String)| {
            let failed = sql_mysql::restore(dsn, name, value).err()?;
            Some(format!("{name} could not be set back to {value}: {failed}"))
        };
        self.before.iter().rev().filter_map(back).collect()
    }
}

/// Why a run cannot begin, from a server's refusal.
pub(crate) fn environment(stack: &str, error: &SqlError) -> RunnerError {
    let Refusal { reason, next } = match error {
        SqlError::Refused(refusal) => refusal.clone(),
        SqlError::NotOurs(Refusal { reason, next }) => {
            let (device, reason, next) = (format!("stack {stack}"), reason.clone(), next.clone());
            return stack::StackError::Refused { device, reason, next }.into();
        }
        other => Refusal { reason: other.to_string(), next: "crosspoint doctor".into() },
    };
    RunnerError::Environment { stack: stack.into(), reason, next }
}

/// Whether a job's server is there, new enough and may be used, before anything is made.
pub(crate) fn probe(stack: &str, job: &SqlJob) -> Result<(), RunnerError> {
    if job.engine != SqlEngine::Mysql {
        return Ok(());
    }
    let refuse = |reason: String| {
        SqlError::Refused(Refusal {
            reason,
            next: "correct the study, then: crosspoint plan STUDY".into(),
        })
    };
    let checked = match &job.dsn {
        Some(dsn) => target_of(dsn).map_err(refuse).and_then(|target| {
            // The look makes a table for a moment: two runs at once would see each other's.
            let _held = sql_mysql::hold(&target)?;
            target.check(job).map(|_| ())
        }),
        None => {
            let listen = Listen::parse(&job.listen).map_err(refuse);
            listen.and_then(|listen| listen.check_free()).and_then(|()| {
                missing_server(job).map_or(Ok(()), |(reason, next)| {
                    Err(SqlError::Refused(Refusal { reason, next }))
                })
            })
        }
    };
    checked.map_err(|error| environment(stack, &error))
}

/// What a private server of a job lacks, and what to do.
pub(crate) fn missing_server(job: &SqlJob) -> Option<(String, String)> {
    if job.engine != SqlEngine::Mysql || job.dsn.is_some() {
        return None;
    }
    let found = Binary::find(&job.server).map(|_| ()).and_then(|()| Home::possible());
    found.err().map(|refusal| (refusal.reason, refusal.next))
}

/// The same by looking alone: nothing that a study names is started.
pub(crate) fn absent_server(job: &SqlJob) -> Option<(String, String)> {
    if job.engine != SqlEngine::Mysql || job.dsn.is_some() {
        return None;
    }
    let found = Binary::place(&job.server).map(|_| ()).and_then(|()| Home::possible());
    let busy = || {
        let listen = Listen::parse(&job.listen).ok()?;
        listen.check_free().err().map(|error| (error.to_string(), "listen = \"auto\"".to_owned()))
    };
    found.err().map(|refusal| (refusal.reason, refusal.next)).or_else(busy)
}

/// The server that a dsn names, with the password for it.
fn target_of(dsn: &str) -> Result<Target, String> {
    Ok(Target { password: password_from_environment(), ..Target::parse(dsn)? })
}

/// The server of the user's that a job names; what the job will change there is noted first, to be set back.
pub(crate) fn shared(job: &SqlJob, dsn: &str, journal: &Journal) -> Result<Running, SqlError> {
    let refuse = |reason| SqlError::Refused(Refusal { reason, next: "correct the dsn".into() });
    let target = target_of(dsn).map_err(refuse)?;
    let held = Some(sql_mysql::hold(&target)?);
    let (flavour, _) = target.check(job)?;
    if journal.owed_to(dsn).map_err(|error| refuse(error.to_string()))? {
        return Err(SqlError::Refused(Refusal {
            reason: "a run that was killed has left variables of this server changed".into(),
            next: "crosspoint clean".into(),
        }));
    }
    let before = sql_mysql::before_change(&target, job)?;
    for (name, value) in before.clone() {
        let undo = Undo::RestoreSetting { dsn: dsn.to_owned(), name, value };
        journal.note(undo).map_err(|error| refuse(error.to_string()))?;
    }
    let place = Place::Server { target, flavour };
    Ok(Running { before, _held: held, ..Running::embedded(place) })
}

/// The buffer pool of a job, once the bytes of its tables are known.
pub(crate) fn pool_of(job: &SqlJob, tables: Option<u64>) -> Bytes {
    let least = if job.page_size.get() > 32 << 10 { POOL_LEAST.1 } else { POOL_LEAST.0 };
    let wanted = match (job.buffer_pool, tables) {
        (Memory::Share(_), None) => POOL_LOADING.get(),
        (memory, tables) => {
            let data = Bytes(tables.unwrap_or(job.data().get()));
            memory.bytes(data).map_or(least, Bytes::get)
        }
    };
    Bytes(wanted.max(least).next_multiple_of(POOL_UNIT))
}

/// Makes the directory of a job's server in `place`.
pub(crate) fn make(
    job: &SqlJob,
    place: &Path,
    (journal, stop): (&Journal, &AtomicBool),
) -> Result<(), SqlError> {
    let binary = Binary::find(&job.server).map_err(SqlError::Refused)?;
    let home = Home::make(&binary, place)?;
    initialise(&binary, &home, (journal.mark(), stop), job.page_size)
}

/// Starts the private server of a job on the data directory in `place`, with its database.
pub(crate) fn start(
    job: &SqlJob,
    (place, log): (&Path, &Path),
    (pool, limits): (Bytes, &Limits),
    (journal, stop): (&Journal, &AtomicBool),
) -> Result<Running, SqlError> {
    let binary = Binary::find(&job.server).map_err(SqlError::Refused)?;
    let refuse = |reason| SqlError::Refused(Refusal { reason, next: "correct the study".into() });
    let listen = Listen::parse(&job.listen).map_err(refuse)?;
    let home = Home::open(&binary, place)?;
    let all = arguments(&binary, job, &home, pool);
    let server = Server::start(&binary, (journal, limits), (&home, log), (&listen, &all), stop)?;
    server.make_database(DATABASE)?;
    let (target, flavour) = (server.target(Some(DATABASE)), binary.flavour);
    let place = Place::Server { target, flavour };
    Ok(Running { server: Some(server), log: log.to_owned(), ..Running::embedded(place) })
}
