//! The contract between drivers and engines.
//!
//! Invariant: a [`Session`] belongs to one thread; an [`Engine`] is shared by all. What it is not: a
//! mapping of everything that a database can do.

use std::path::Path;

use observe::Counter;
use study::Durability;
use thiserror::Error;
use units::Bytes;

/// Why an engine could not do what was asked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KvError {
    /// The engine or the system below it failed.
    #[error("{engine}: cannot {action}: {reason}")]
    Engine {
        /// Name of the engine.
        engine: &'static str,
        /// What was tried.
        action: &'static str,
        /// What it said.
        reason: String,
    },
    /// A record is missing or is not what was written.
    #[error("record {record}: {what}")]
    Wrong {
        /// Number of the record.
        record: u64,
        /// What was found.
        what: &'static str,
    },
    /// Records whose last acknowledged version, loaded or updated, is not there any more.
    #[error(
        "records not as they were acknowledged last: {count}, in spite of durability {durability}"
    )]
    Lost {
        /// How many.
        count: u64,
        /// The word that was promised.
        durability: &'static str,
    },
}

/// How a database is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// What a committed update must survive.
    pub durability: Durability,
    /// Bytes of keys and values that will be stored; engines with a map size take it from here.
    pub expected: Bytes,
    /// Threads that will have a session at once.
    pub sessions: u32,
    /// Memory that the whole process may take, page cache included; engines size their own caches by it.
    pub memory: Option<Bytes>,
    /// It will be filled at random and compacted afterwards; nothing else matters meanwhile.
    pub bulk: bool,
    /// Of engines that map their file: write through the map.
    pub write_map: bool,
    /// Of engines that map their file: let the kernel read ahead.
    pub read_ahead: bool,
    /// Of engines that map their file: bytes of the map, instead of what `expected` asks for.
    pub map_size: Option<Bytes>,
    /// Settings by the engine's own names, as it writes them itself.
    pub settings: String,
}

/// A database that is open.
pub trait Engine: Sized + Sync {
    /// A thread's access to it.
    type Session<'a>: Session
    where
        Self: 'a;

    /// Opens the database in `place`, an existing directory (or, if the engine can, a block device); makes
    /// one if there is none.
    ///
    /// # Errors
    /// [`KvError::Engine`] with the engine's own words.
    fn open(place: &Path, options: &Options) -> Result<Self, KvError>;

    /// Access for the calling thread.
    ///
    /// # Errors
    /// [`KvError::Engine`].
    fn session(&self) -> Result<Self::Session<'_>, KvError>;

    /// Closes the database; afterwards another process may open it.
    ///
    /// # Errors
    /// [`KvError::Engine`] when closing fails; committed data is then as its durability promises.
    fn close(self) -> Result<(), KvError>;

    /// Name and version, for provenance.
    fn version() -> String;

    /// How the word of durability is kept, in the engine's terms.
    fn promise(durability: Durability) -> &'static str;

    /// What goes on inside the engine now, for the time series; called about four times a second from a
    /// thread of its own.
    fn counters(&self) -> Vec<Counter> {
        Vec::new()
    }

    /// Brings the database into the shape that it would have after a long rest.
    ///
    /// # Errors
    /// [`KvError::Engine`].
    fn compact(&self) -> Result<(), KvError> {
        Ok(())
    }

    /// Bytes that the database takes of a device that it has to itself.
    fn bytes_of_device(&self) -> Option<Bytes> {
        None
    }

    /// What the engine counted of itself since it was opened, by metric: `stall_time` (s), `flush_bytes`,
    /// `compaction_bytes`, `ingest_bytes`.
    fn totals(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    /// What the engine counted of itself since it was opened, and options that a reader must know.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// One thread's access to a database.
pub trait Session {
    /// Looks `key` up and shows the value to `seen`; says whether it exists.
    ///
    /// # Errors
    /// [`KvError::Engine`].
    fn get(&mut self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool, KvError>;

    /// Stores one record in a transaction of its own and commits it.
    ///
    /// # Errors
    /// [`KvError::Engine`]; then nothing is stored.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), KvError>;

    /// Deletes `key`, in a transaction of its own; it need not be there.
    ///
    /// # Errors
    /// [`KvError::Engine`].
    fn delete(&mut self, key: &[u8]) -> Result<(), KvError>;

    /// Stores what `next` yields, until it yields `false`, in one transaction. `next` fills key and
    /// value; keys ascend.
    ///
    /// # Errors
    /// [`KvError::Engine`]; then nothing is stored.
    fn put_batch(
        &mut self,
        next: &mut dyn FnMut(&mut Vec<u8>, &mut Vec<u8>) -> bool,
    ) -> Result<(), KvError>;

    /// Shows records in key order, from the first that is not before `from`, to `seen` until it says no.
    ///
    /// # Errors
    /// [`KvError::Engine`].
    fn scan(
        &mut self,
        from: &[u8],
        seen: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), KvError>;
}
