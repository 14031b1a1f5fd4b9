//! The contract of a database engine, and the operation sets that extend it.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

use observe::Counter;
use study::Descriptor;
use units::Bytes;
use workload::SqlOp;

use crate::{EngineError, Place};

/// A database that is open; shared by all client threads.
pub trait Engine: Sized + Sync {
    /// Description for users and the rest of the program.
    const DESCRIPTOR: &'static Descriptor;

    /// The job type: [`study::KvJob`] or [`study::SqlJob`].
    type Job;

    /// Checks that the engine can be used with the job's settings (without one: with its defaults), before
    /// anything is created; returns its version.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Refused`] with how to install it, or with the rejected setting.
    fn probe(job: Option<&Self::Job>) -> Result<String, EngineError>;

    /// Opens the database at `place` for `job`, creating an embedded one if it does not exist.
    ///
    /// # Errors
    /// The engine's own message.
    fn open(place: &Place, job: &Self::Job) -> Result<Self, EngineError>;

    /// Closes the database; another process can open it afterwards.
    ///
    /// # Errors
    /// Closing fails; committed data is as durable as promised.
    fn close(self) -> Result<(), EngineError> {
        Ok(())
    }

    /// Name and version, for provenance.
    fn version(&self) -> String {
        Self::probe(None).unwrap_or_default()
    }

    /// Current internal counters for the time series; read about four times per second on a separate thread.
    fn counters(&self) -> Vec<Counter> {
        Vec::new()
    }

    /// Counters since the engine started, with the engine's own names, for [`Engine::totals`]; empty if no
    /// earlier reading is needed.
    fn sums(&self) -> BTreeMap<String, f64> {
        BTreeMap::new()
    }

    /// Counters since `earlier` (from [`Engine::sums`]), by metric.
    fn totals(&self, earlier: &BTreeMap<String, f64>) -> Vec<(&'static str, f64)> {
        let _ = earlier;
        Vec::new()
    }

    /// Facts about this database that a reader of the result needs.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Every setting in effect; no passwords.
    fn settings(&self) -> Vec<(String, String)> {
        Vec::new()
    }
}

/// An engine of key-value operations.
pub trait KeyValueEngine: Engine<Job = study::KvJob> {
    /// A thread's access.
    type Access<'a>: KeyValue
    where
        Self: 'a;

    /// Access for the calling thread.
    ///
    /// # Errors
    /// The engine's own message.
    fn access(&self) -> Result<Self::Access<'_>, EngineError>;

    /// Compacts the whole database.
    ///
    /// # Errors
    /// The engine's own message.
    fn compact(&self) -> Result<(), EngineError> {
        Ok(())
    }

    /// Bytes that the database occupies on a raw device.
    fn bytes_of_device(&self) -> Option<Bytes> {
        None
    }
}

/// The operation set of a key-value engine, for one thread.
pub trait KeyValue {
    /// Looks up `key` and passes the value to `seen`; returns whether it exists.
    ///
    /// # Errors
    /// The engine's own message.
    fn get(&mut self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool, EngineError>;

    /// Stores one record in its own transaction and commits it.
    ///
    /// # Errors
    /// The engine's own message; nothing is stored then.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError>;

    /// Deletes `key` in its own transaction, whether or not it exists.
    ///
    /// # Errors
    /// The engine's own message.
    fn delete(&mut self, key: &[u8]) -> Result<(), EngineError>;

    /// Stores records in one transaction until `next` returns `false`. `next` fills key and value; keys
    /// ascend.
    ///
    /// # Errors
    /// The engine's own message; nothing is stored then.
    fn put_batch(
        &mut self,
        next: &mut dyn FnMut(&mut Vec<u8>, &mut Vec<u8>) -> bool,
    ) -> Result<(), EngineError>;

    /// Passes records to `seen` in key order, from the first at or after `from`, until it returns `false`.
    ///
    /// # Errors
    /// The engine's own message.
    fn scan(
        &mut self,
        from: &[u8],
        seen: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), EngineError>;
}

/// An engine of sysbench's SQL statements.
pub trait SqlEngine: Engine<Job = study::SqlJob> {
    /// One client's connection.
    type Connection: Statements;

    /// How its servers are created and reached; `None` if embedded.
    const SERVER: Option<crate::ServerVerbs> = None;

    /// Marks the database as Crosspoint's before its tables are loaded.
    ///
    /// # Errors
    /// [`crate::ErrorKind::NotOurs`]; nothing was changed then.
    fn claim(&self) -> Result<(), EngineError> {
        Ok(())
    }

    /// Brings loaded tables into the state in which every trial begins, whatever earlier ones did.
    ///
    /// # Errors
    /// The engine's own message.
    fn begin(&self) -> Result<(), EngineError> {
        Ok(())
    }

    /// Opens a connection; `statements` prepares the workload's statements.
    ///
    /// # Errors
    /// The engine's own message.
    fn connect(&self, statements: bool) -> Result<Self::Connection, EngineError>;

    /// Bytes that the workload's tables occupy, indexes included.
    fn table_bytes(&self) -> u64;

    /// Bytes of their pages: a cache of that size holds them all.
    fn page_bytes(&self) -> u64 {
        self.table_bytes()
    }

    /// Sets a variable of the running engine.
    ///
    /// # Errors
    /// The engine's own message.
    fn set(&self, setting: &str) -> Result<(), EngineError>;
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

/// A connection's requests and answers as bytes.
pub trait Exchange {
    /// Begins a statement: its request, and memory for the first part of the answer.
    ///
    /// # Errors
    /// The engine's own message.
    fn begin(&mut self, op: &SqlOp) -> Result<(&[u8], &mut [u8]), EngineError>;

    /// Memory for the next part of the answer.
    fn space(&mut self) -> &mut [u8];

    /// Takes what was received into that memory, at least one byte; returns `true` once the answer is
    /// complete.
    ///
    /// # Errors
    /// The engine's own message.
    fn received(&mut self, count: usize) -> Result<bool, EngineError>;

    /// The connection was lost.
    ///
    /// # Errors
    /// The reason that the server gave before, if it did.
    fn closed(&mut self) -> Result<(), EngineError> {
        Ok(())
    }
}

/// The operation set of a SQL engine, for one connection.
pub trait Statements {
    /// A descriptor that becomes readable when a result arrives; `None` if [`Statements::send`] does all the
    /// work, so the connection needs its own thread.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Sends one statement.
    ///
    /// # Errors
    /// The engine's own message.
    fn send(&mut self, op: &SqlOp) -> Result<(), EngineError>;

    /// Reads what has arrived of its result; returns `true` once it is complete. Waits for it if `wait`.
    ///
    /// # Errors
    /// The engine's own message.
    fn receive(&mut self, wait: bool) -> Result<bool, EngineError>;

    /// Requests and answers for a caller that passes them through the socket itself; `None` if it cannot.
    fn exchange(&mut self) -> Option<&mut dyn Exchange> {
        None
    }

    /// Rolls back the open transaction.
    ///
    /// # Errors
    /// The engine's own message.
    fn roll_back(&mut self) -> Result<(), EngineError>;

    /// Creates a table unless it exists; returns its number of rows, which are numbered from 1.
    ///
    /// # Errors
    /// The engine's own message.
    fn create_table(&mut self, table: u32) -> Result<u64, EngineError>;

    /// Checks that a table and its indexes have no damage, as far as the engine can tell.
    ///
    /// # Errors
    /// The damage.
    fn verify(&mut self, _table: u32) -> Result<(), EngineError> {
        Ok(())
    }

    /// Inserts rows as one statement.
    ///
    /// # Errors
    /// The engine's own message.
    fn insert(&mut self, table: u32, rows: &[Row<'_>]) -> Result<(), EngineError>;

    /// Creates the secondary index unless it exists.
    ///
    /// # Errors
    /// The engine's own message.
    fn create_index(&mut self, table: u32) -> Result<(), EngineError>;
}
