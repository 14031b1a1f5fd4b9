//! SQLite as a key-value engine ([`Sqlite`]) and as a SQL engine ([`SqliteOltp`]).
//!
//! Records are rows of an ordinary table with an index on the key. (A table without row IDs would put large
//! values on overflow pages; SQLite advises against it above 1/20 of a page.) Each thread has a connection;
//! statements are prepared once. Readers never block the writer (write-ahead log) except without durability.

mod oltp;

use std::path::{Path, PathBuf};
use std::time::Duration;

use engine::{Engine, EngineError, KeyValue, KeyValueEngine, Place};
use rusqlite::{Connection, OpenFlags, params};
use study::{Descriptor, Durability, KvJob, Operations, VirtualTime};

pub use oltp::{SqliteClient, SqliteOltp};

static SQLITE: Descriptor = Descriptor {
    virtual_time: VirtualTime::AnyDirectory,
    durability: [
        "journal in memory, synchronous=OFF: a crash may lose the database",
        "write-ahead log, synchronous=OFF (not flushed): survives a process crash, not power loss",
        "write-ahead log, synchronous=FULL: log flushed at every commit",
    ],
    ..Descriptor::new("sqlite", "SQLite", Operations::KeyValue)
};

/// An SQLite database file.
#[derive(Debug)]
pub struct Sqlite {
    path: PathBuf,
    durability: Durability,
    /// Held open so that the write-ahead log lives as long as the database is in use.
    keeper: std::sync::Mutex<Connection>,
}

/// A thread's connection.
#[derive(Debug)]
pub struct SqliteAccess {
    connection: Connection,
}

const GET: &str = "SELECT v FROM records WHERE k = ?1";
const PUT: &str = "INSERT INTO records (k, v) VALUES (?1, ?2) \
                   ON CONFLICT (k) DO UPDATE SET v = excluded.v";

const DELETE: &str = "DELETE FROM records WHERE k = ?1";
const SCAN: &str = "SELECT k, v FROM records WHERE k >= ?1 ORDER BY k";

fn failed(action: &'static str) -> impl Fn(rusqlite::Error) -> EngineError {
    move |error| EngineError::failed("sqlite", action, error)
}

fn connect(path: &Path, durability: Durability) -> Result<Connection, EngineError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(failed("open"))?;
    let (journal, synchronous) = match durability {
        Durability::None => ("MEMORY", "OFF"),
        Durability::Os => ("WAL", "OFF"),
        Durability::Device => ("WAL", "FULL"),
    };
    let set = failed("set up the connection");
    connection.busy_timeout(Duration::from_secs(60)).map_err(&set)?;
    connection.pragma_update(None, "journal_mode", journal).map_err(&set)?;
    connection.pragma_update(None, "synchronous", synchronous).map_err(&set)?;
    Ok(connection)
}

impl Engine for Sqlite {
    const DESCRIPTOR: &'static Descriptor = &SQLITE;

    type Job = KvJob;

    fn probe(_: Option<&KvJob>) -> Result<String, EngineError> {
        Ok(version())
    }

    fn open(place: &Place, job: &KvJob) -> Result<Self, EngineError> {
        let path = place.path()?.join("records.sqlite");
        let keeper = connect(&path, job.durability)?;
        keeper
            .execute("CREATE TABLE IF NOT EXISTS records (k BLOB PRIMARY KEY, v BLOB NOT NULL)", [])
            .map_err(failed("create the table"))?;
        Ok(Self { path, durability: job.durability, keeper: keeper.into() })
    }

    fn close(self) -> Result<(), EngineError> {
        let keeper = self.keeper.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        keeper.close().map_err(|(_, error)| failed("close")(error))
    }
}

fn version() -> String {
    format!("SQLite {}", rusqlite::version())
}

impl KeyValueEngine for Sqlite {
    type Access<'a> = SqliteAccess;

    fn access(&self) -> Result<SqliteAccess, EngineError> {
        Ok(SqliteAccess { connection: connect(&self.path, self.durability)? })
    }
}

impl KeyValue for SqliteAccess {
    fn get(&mut self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool, EngineError> {
        let fail = failed("get");
        let mut statement = self.connection.prepare_cached(GET).map_err(&fail)?;
        let mut rows = statement.query(params![key]).map_err(&fail)?;
        match rows.next().map_err(&fail)? {
            None => Ok(false),
            Some(row) => {
                let value = row.get_ref(0).map_err(&fail)?;
                seen(value.as_blob().unwrap_or_default());
                Ok(true)
            }
        }
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        let fail = failed("put");
        let mut statement = self.connection.prepare_cached(PUT).map_err(&fail)?;
        statement.execute(params![key, value]).map_err(&fail)?;
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), EngineError> {
        let fail = failed("delete");
        let mut statement = self.connection.prepare_cached(DELETE).map_err(&fail)?;
        statement.execute(params![key]).map_err(&fail)?;
        Ok(())
    }

    fn put_batch(
        &mut self,
        next: &mut dyn FnMut(&mut Vec<u8>, &mut Vec<u8>) -> bool,
    ) -> Result<(), EngineError> {
        let fail = failed("put a batch");
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let transaction = self.connection.transaction().map_err(&fail)?;
        {
            let mut statement = transaction.prepare_cached(PUT).map_err(&fail)?;
            while next(&mut key, &mut value) {
                statement.execute(params![key, value]).map_err(&fail)?;
            }
        }
        transaction.commit().map_err(&fail)
    }

    fn scan(
        &mut self,
        from: &[u8],
        seen: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), EngineError> {
        let fail = failed("scan");
        let mut statement = self.connection.prepare_cached(SCAN).map_err(&fail)?;
        let mut rows = statement.query(params![from]).map_err(&fail)?;
        while let Some(row) = rows.next().map_err(&fail)? {
            let key = row.get_ref(0).map_err(&fail)?.as_blob().unwrap_or_default();
            let value = row.get_ref(1).map_err(&fail)?.as_blob().unwrap_or_default();
            if !seen(key, value) {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlite_keeps_the_contract() {
        let dir = tempfile::tempdir().unwrap();
        contract::key_value::check::<Sqlite>("tests::sqlite_keeps_the_contract", dir.path());
    }

    #[test]
    fn sqlite_keeps_the_contract_of_sql() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::Directory(dir.path().to_owned());
        contract::sql::check::<SqliteOltp>(&place, |job| job);
    }
}
