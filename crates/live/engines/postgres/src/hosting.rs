//! The server contract: private servers created and started, users' servers connected.

use std::path::{Path, PathBuf};

use engine::{
    DATA, EngineError, Home, Hosting, Listen, Place, PrivateServer, Reached, ServerVerbs,
};
use stack::{Journal, Undo};
use study::{Memory, SqlJob};
use units::Bytes;

use crate::binary::Binary;
use crate::connection::check as check_server;
use crate::initialise::initialise;
use crate::options::Own;
use crate::owner::{before_change, hold, hold_settings, restore};
use crate::reach::target_of;
use crate::server::Server;

/// Name of the database that private servers hold.
const DATABASE: &str = "sbtest";
/// Size of a page, bytes.
const PAGE: u64 = 8 << 10;
/// Minimum of shared buffers: 16 pages.
const POOL_LEAST: u64 = 16 * PAGE;
/// Shared buffers during the load if the study gives a share of a size that is not yet known.
const POOL_LOADING: Bytes = Bytes::mib(256);

/// The servers of PostgreSQL.
pub(crate) const SERVER: ServerVerbs =
    ServerVerbs { look, check, make, start, reach, restore, pool, data };

fn correct(reason: String) -> EngineError {
    EngineError::refused(reason, "correct the study, then: crosspoint plan STUDY")
}

fn look(job: &SqlJob) -> Result<(), EngineError> {
    if job.dsn.is_some() {
        return Ok(());
    }
    Binary::place(Own::server(job))?;
    Home::possible()?;
    let Ok(listen) = Listen::parse(&job.listen) else { return Ok(()) };
    listen.check_free().map_err(|error| EngineError::refused(error.reason(), "listen = \"auto\""))
}

fn check(job: &SqlJob) -> Result<(), EngineError> {
    if let Some(dsn) = &job.dsn {
        let target = target_of(dsn).map_err(correct)?;
        // The check creates and drops an ordinary table, which concurrent runs would see.
        let _held = hold(&target)?;
        return check_server(&target, job);
    }
    Listen::parse(&job.listen).map_err(correct)?.check_free()?;
    Binary::find(Own::server(job))?;
    Home::possible()
}

fn make(job: &SqlJob, place: &Path, hosting: Hosting<'_>) -> Result<(), EngineError> {
    let binary = Binary::find(Own::server(job))?;
    let home = Home::make(&binary.path, place)?;
    let checksums = Own::of(job).data_checksums;
    initialise(&binary, &home, (hosting.journal.mark(), hosting.stop), checksums)
}

fn start(
    job: &SqlJob,
    private: PrivateServer<'_>,
    hosting: Hosting<'_>,
) -> Result<(Place, Box<dyn engine::Server>), EngineError> {
    let binary = Binary::find(Own::server(job))?;
    let listen = Listen::parse(&job.listen).map_err(correct)?;
    let home = Home::open(&binary.path, private.place)?;
    let server = Server::start(&binary, hosting, (&home, private), (&listen, job))?;
    server.make_database(DATABASE)?;
    Ok((Place::Server(server.target(Some(DATABASE))), Box::new(server.process)))
}

fn reach(job: &SqlJob, dsn: &str, journal: &Journal) -> Result<Reached, EngineError> {
    let refuse = |reason| EngineError::refused(reason, "correct the dsn");
    let target = target_of(dsn).map_err(refuse)?;
    let settings = if job.change.is_empty() { None } else { Some(hold_settings(&target)?) };
    let held = Box::new((hold(&target)?, settings));
    check_server(&target, job)?;
    if journal.owed_to(dsn).map_err(|error| refuse(error.to_string()))? {
        return Err(EngineError::refused(
            "a killed run left variables of this server changed",
            "crosspoint clean",
        ));
    }
    let before = before_change(&target, job)?;
    for (name, value) in before.clone() {
        let undo = Undo::RestoreSetting { dsn: dsn.to_owned(), name, value };
        journal.note(undo).map_err(|error| refuse(error.to_string()))?;
    }
    Ok(Reached { place: Place::Server(target), before, held })
}

fn pool(job: &SqlJob, tables: Option<u64>) -> Bytes {
    let wanted = match (Own::of(job).buffer_pool, tables) {
        (Memory::Share(_), None) => POOL_LOADING.get(),
        (memory, tables) => {
            let data = Bytes(tables.unwrap_or(job.data().get()));
            memory.bytes(data).map_or(POOL_LEAST, Bytes::get)
        }
    };
    Bytes(wanted.max(POOL_LEAST).next_multiple_of(PAGE))
}

/// A folder for each database, and that of the write-ahead log.
fn data(place: &Path) -> Vec<PathBuf> {
    let data = place.join(DATA);
    let databases = std::fs::read_dir(data.join("base")).into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> = databases.map(|entry| entry.path()).collect();
    all.extend([data.join("pg_wal"), data.join("global"), data]);
    all
}
