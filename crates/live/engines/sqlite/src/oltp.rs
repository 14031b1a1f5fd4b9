//! SQLite as a SQL engine: sysbench's tables and statements in the clients' process.
//!
//! Writing transactions use `BEGIN IMMEDIATE`: SQLite has one writer, and a transaction that reads first
//! would be rolled back whenever another was faster. Each connection has a page cache of the study's buffer
//! pool size. A busy database is waited for up to a minute.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;

use engine::sql::{prepared_text, texts_of, write_text};
use engine::{Engine, EngineError, ErrorKind, Place, Row, SqlEngine, Statements};
use rusqlite::types::Value;
use rusqlite::{Connection, ErrorCode, params, params_from_iter};
use study::{Descriptor, Durability, Memory, Operations, OptionKind, SqlDialect, SqlJob};
use units::Bytes;
use workload::{OpClass, SqlOp};

use crate::SQLITE;

static SQLITE_OLTP: Descriptor = Descriptor {
    operations: Operations::Sql,
    power_cuts: None,
    options: study::option_docs! {
        page_size: OptionKind::Sizes(&[4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10]),
            Some("16KiB"), Differs,
            "Page size";
        buffer_pool: OptionKind::Pool(5 << 20, 1 << 50), Some("128MiB"), Always,
            "Page cache of each connection";
    },
    ..SQLITE
};

/// A database file for the statements of a job.
#[derive(Debug)]
pub struct SqliteOltp {
    path: PathBuf,
    job: SqlJob,
    /// Held open so that the write-ahead log lives as long as the database is in use.
    keeper: std::sync::Mutex<Connection>,
}

/// A thread's connection.
#[derive(Debug)]
pub struct SqliteClient {
    connection: Connection,
    dialect: SqlDialect,
    prepared: bool,
    writes: bool,
    text: Vec<u8>,
}

/// Waiting for a lock timed out: the transaction is retried.
fn failed(error: &rusqlite::Error) -> EngineError {
    let busy = matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    );
    let kind = if busy { ErrorKind::Retryable } else { ErrorKind::Failed };
    let code = error.sqlite_error().map_or(0, |one| one.extended_code);
    EngineError::statement(kind, code, error.to_string())
}

fn connect(path: &PathBuf, job: &SqlJob) -> Result<Connection, EngineError> {
    let connection = Connection::open(path).map_err(|error| failed(&error))?;
    let (journal, synchronous) = match job.durability {
        Durability::None => ("MEMORY", "OFF"),
        Durability::Os => ("WAL", "OFF"),
        Durability::Device => ("WAL", "FULL"),
    };
    connection.busy_timeout(Duration::from_secs(60)).map_err(|error| failed(&error))?;
    let set = |name: &str, value: &dyn rusqlite::ToSql| {
        connection.pragma_update(None, name, value).map_err(|error| failed(&error))
    };
    let page = job.options.size("page_size").unwrap_or(Bytes(16 << 10));
    set("page_size", &(page.get() as i64))?;
    set("journal_mode", &journal)?;
    set("synchronous", &synchronous)?;
    let cache = match job.options.pool("buffer_pool") {
        Memory::Unlimited => job.data(),
        pool => pool.bytes(job.data()).unwrap_or(job.data()),
    };
    // Negative: in KiB.
    set("cache_size", &-((cache.get() / 1024) as i64))?;
    connection.set_prepared_statement_cache_capacity(job.tables as usize * 9 + 8);
    Ok(connection)
}

impl Engine for SqliteOltp {
    const DESCRIPTOR: &'static Descriptor = &SQLITE_OLTP;

    type Job = SqlJob;

    fn probe(_: Option<&SqlJob>) -> Result<String, EngineError> {
        Ok(crate::version())
    }

    fn open(place: &Place, job: &SqlJob) -> Result<Self, EngineError> {
        let path = place.path()?.join("sbtest.sqlite");
        let keeper = connect(&path, job)?.into();
        Ok(Self { path, job: job.clone(), keeper })
    }

    fn settings(&self) -> Vec<(String, String)> {
        let names =
            ["page_size", "cache_size", "journal_mode", "synchronous", "wal_autocheckpoint"];
        let Ok(keeper) = self.keeper.lock() else { return Vec::new() };
        let value = |name: &str| {
            let read = keeper.pragma_query_value(None, name, |row| row.get::<_, Value>(0)).ok()?;
            Some((
                name.to_owned(),
                match read {
                    Value::Integer(number) => number.to_string(),
                    Value::Text(text) => text,
                    other => format!("{other:?}"),
                },
            ))
        };
        names.iter().filter_map(|name| value(name)).collect()
    }
}

impl SqlEngine for SqliteOltp {
    type Connection = SqliteClient;

    fn connect(&self, _statements: bool) -> Result<SqliteClient, EngineError> {
        Ok(SqliteClient {
            connection: connect(&self.path, &self.job)?,
            dialect: self.job.dialect,
            prepared: self.job.is_prepared(),
            writes: self.job.workload.mix().writes(),
            text: Vec::new(),
        })
    }

    fn table_bytes(&self) -> u64 {
        let files = [self.path.clone(), self.path.with_extension("sqlite-wal")];
        let bytes = files.iter().filter_map(|path| std::fs::metadata(path).ok());
        bytes.map(|file| std::os::unix::fs::MetadataExt::blocks(&file) * 512).sum()
    }

    fn set(&self, setting: &str) -> Result<(), EngineError> {
        let reason = format!("{setting}: SQLite has no settings for all connections");
        Err(EngineError::refused(reason, "leave out change"))
    }
}

impl SqliteClient {
    fn execute(&mut self, text: &str, values: Vec<Value>) -> Result<(), EngineError> {
        let mut cached;
        let mut fresh;
        let statement = if self.prepared {
            cached = self.connection.prepare_cached(text).map_err(|error| failed(&error))?;
            &mut *cached
        } else {
            fresh = self.connection.prepare(text).map_err(|error| failed(&error))?;
            &mut fresh
        };
        let mut rows = statement.query(params_from_iter(values)).map_err(|error| failed(&error))?;
        while let Some(row) = rows.next().map_err(|error| failed(&error))? {
            // Read the value, as a server's client does.
            row.get_ref(0).map_err(|error| failed(&error))?;
        }
        Ok(())
    }
}

impl Statements for SqliteClient {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn receive(&mut self, _wait: bool) -> Result<bool, EngineError> {
        Ok(true)
    }

    fn send(&mut self, op: &SqlOp) -> Result<(), EngineError> {
        if op.class == OpClass::Begin && self.writes {
            return self.execute("BEGIN IMMEDIATE", Vec::new());
        }
        if !self.prepared {
            let mut text = std::mem::take(&mut self.text);
            write_text(op, self.dialect, &mut text);
            let result = self.execute(&String::from_utf8_lossy(&text), Vec::new());
            self.text = text;
            return result;
        }
        let number = |number: u64| Value::Integer(i64::try_from(number).unwrap_or(i64::MAX));
        let text = |bytes: &[u8]| Value::Text(String::from_utf8_lossy(bytes).into_owned());
        let values = match op.class {
            OpClass::Begin | OpClass::Commit => Vec::new(),
            OpClass::SimpleRange
            | OpClass::SumRange
            | OpClass::OrderRange
            | OpClass::DistinctRange => vec![number(op.row), number(op.other)],
            OpClass::NonIndexUpdate => vec![text(&texts_of(op).0), number(op.row)],
            OpClass::Insert => {
                let (c, pad) = texts_of(op);
                vec![number(op.row), number(op.other), text(&c), text(&pad)]
            }
            _ => vec![number(op.row)],
        };
        self.execute(&prepared_text(op.class, op.table), values)
    }

    fn roll_back(&mut self) -> Result<(), EngineError> {
        if self.connection.is_autocommit() {
            return Ok(());
        }
        self.execute("ROLLBACK", Vec::new())
    }

    fn create_table(&mut self, table: u32) -> Result<u64, EngineError> {
        let create = format!(
            "CREATE TABLE IF NOT EXISTS sbtest{table} (id INTEGER PRIMARY KEY, \
             k INTEGER DEFAULT 0 NOT NULL, c TEXT DEFAULT '' NOT NULL, pad TEXT DEFAULT '' NOT NULL)"
        );
        self.connection.execute(&create, []).map_err(|error| failed(&error))?;
        let highest = format!("SELECT COALESCE(MAX(id), 0) FROM sbtest{table}");
        let highest: i64 = self
            .connection
            .query_row(&highest, [], |row| row.get(0))
            .map_err(|error| failed(&error))?;
        Ok(u64::try_from(highest).unwrap_or(0))
    }

    fn insert(&mut self, table: u32, rows: &[Row<'_>]) -> Result<(), EngineError> {
        let transaction = self.connection.transaction().map_err(|error| failed(&error))?;
        {
            let insert = format!("INSERT INTO sbtest{table} (id, k, c, pad) VALUES (?, ?, ?, ?)");
            let mut statement =
                transaction.prepare_cached(&insert).map_err(|error| failed(&error))?;
            for row in rows {
                let (c, pad) = (String::from_utf8_lossy(row.c), String::from_utf8_lossy(row.pad));
                let values = params![row.id as i64, row.k as i64, c, pad];
                statement.execute(values).map_err(|error| failed(&error))?;
            }
        }
        transaction.commit().map_err(|error| failed(&error))
    }

    fn create_index(&mut self, table: u32) -> Result<(), EngineError> {
        let create = format!("CREATE INDEX IF NOT EXISTS k_{table} ON sbtest{table}(k)");
        self.connection.execute(&create, []).map(|_| ()).map_err(|error| failed(&error))
    }
}
