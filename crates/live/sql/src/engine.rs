//! The contract between drivers and SQL engines.
//!
//! Invariant: a [`Session`] belongs to one thread; an [`Engine`] is shared by all. What it is not: a
//! general SQL interface; sessions know the statements of the workloads.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

use observe::Counter;
use study::SqlJob;
use thiserror::Error;
use workload::SqlOp;

use crate::place::Place;

/// What is missing, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Why not.
    pub reason: String,
    /// What to do.
    pub next: String,
}

/// Why an engine could not do what was asked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SqlError {
    /// It cannot be used as it is: no server, no right, no such setting.
    #[error("{}", .0.reason)]
    Refused(Refusal),
    /// It holds what is somebody else's, and that is not written to.
    #[error("{}", .0.reason)]
    NotOurs(Refusal),
    /// A statement failed.
    #[error("error {code}: {reason}")]
    Statement {
        /// The server's number of the error.
        code: u16,
        /// In its words.
        reason: String,
    },
    /// The connection is gone.
    #[error("the connection was lost: {0}")]
    Lost(String),
}

impl SqlError {
    /// The transaction was given up by the server and is to begin again: a deadlock (1213), a row that
    /// changed (1020), a lock that was waited for too long (1205); sysbench begins those again too.
    #[must_use]
    pub const fn gave_up(&self) -> bool {
        matches!(self, Self::Statement { code: 1213 | 1020 | 1205, .. })
    }

    /// A number for the record.
    #[must_use]
    pub const fn code(&self) -> i32 {
        match self {
            Self::Statement { code, .. } => *code as i32,
            Self::Refused(_) | Self::NotOurs(_) | Self::Lost(_) => -1,
        }
    }
}

/// A row to load.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// Primary key.
    pub id: u64,
    /// Indexed column.
    pub k: u64,
    /// Digits, [`workload::SQL_C`] bytes.
    pub c: &'a [u8],
    /// Digits, [`workload::SQL_PAD`] bytes.
    pub pad: &'a [u8],
}

/// A database.
pub trait Engine: Sync + Sized {
    /// One client's connection.
    type Session: Session;

    /// The database at `place`, for the statements of `job`.
    ///
    /// # Errors
    /// When nothing of this engine can be there.
    fn open(place: &Place, job: &SqlJob) -> Result<Self, SqlError>;

    /// Makes the database the job's own before its tables are loaded: nothing of anybody else's is in it.
    ///
    /// # Errors
    /// [`SqlError::Refused`] when it is somebody else's; then nothing was changed.
    fn claim(&self) -> Result<(), SqlError> {
        Ok(())
    }

    /// A connection; `statements`: with the workload's statements prepared.
    ///
    /// # Errors
    /// What the engine said.
    fn session(&self, statements: bool) -> Result<Self::Session, SqlError>;

    /// What the engine counts of itself; empty where it counts nothing.
    fn counters(&self) -> Vec<Counter> {
        Vec::new()
    }

    /// As it names itself.
    fn version(&self) -> String;

    /// Every setting that is in effect; no passwords.
    fn settings(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Bytes that the workload's tables take on disk, indexes included.
    fn table_bytes(&self) -> u64;

    /// Bytes of their pages: what a cache of that size holds whole.
    fn page_bytes(&self) -> u64 {
        self.table_bytes()
    }

    /// What it has counted since it began, by its own names.
    fn sums(&self) -> BTreeMap<String, f64> {
        BTreeMap::new()
    }

    /// What it counted since `earlier`, which [`Engine::sums`] gave, by metric.
    fn totals(&self, _earlier: &BTreeMap<String, f64>) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    /// Sets a variable of the running engine.
    ///
    /// # Errors
    /// What the engine said.
    fn set(&self, setting: &str) -> Result<(), SqlError>;
}

/// One client's connection.
pub trait Session {
    /// What is readable once a result comes; `None`: [`Session::send`] does all of the work, and the session
    /// needs a thread of its own.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Sends one statement.
    ///
    /// # Errors
    /// What the engine said.
    fn send(&mut self, op: &SqlOp) -> Result<(), SqlError>;

    /// Takes what has come of its result; `true` once that is whole. Waits for it if `wait`.
    ///
    /// # Errors
    /// What the engine said.
    fn receive(&mut self, wait: bool) -> Result<bool, SqlError>;

    /// Gives the open transaction up.
    ///
    /// # Errors
    /// What the engine said.
    fn roll_back(&mut self) -> Result<(), SqlError>;

    /// Makes a table unless it is there, and gives its rows, which are counted and numbered from 1.
    ///
    /// # Errors
    /// What the engine said.
    fn create_table(&mut self, table: u32) -> Result<u64, SqlError>;

    /// Inserts rows as one statement.
    ///
    /// # Errors
    /// What the engine said.
    fn insert(&mut self, table: u32, rows: &[Row<'_>]) -> Result<(), SqlError>;

    /// Makes the secondary index unless it is there.
    ///
    /// # Errors
    /// What the engine said.
    fn create_index(&mut self, table: u32) -> Result<(), SqlError>;
}
