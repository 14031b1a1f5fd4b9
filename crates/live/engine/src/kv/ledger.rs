//! A log of a database's acknowledgements, kept in a separate file that outlives the program.
//!
//! After the program or the engine's process ended early, the database is reopened and compared with it. An
//! update is logged after its acknowledgement, so the database may be ahead of the ledger, never behind; each
//! record has one writer. It survives the end of the program, not a system crash. Each entry costs a system
//! call, so trials that measure speed do not use it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use workload::{KEY_DIGITS, Values, write_key};

use crate::{EngineError, KeyValue, KeyValueEngine};

/// First word of the file: format 1.
const MAGIC: u64 = 0x4B56_4C45_4447_0001;
/// Header size: magic, records, loaded, length of the path, the path.
const HEADER: u64 = 8192;
const PLACE_AT: u64 = 32;

/// A log of acknowledged updates.
#[derive(Debug)]
pub struct Ledger {
    file: File,
    records: u64,
}

/// Result of a verification.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Checked {
    /// Acknowledged records.
    pub records: u64,
    /// Of those, records with an acknowledged update.
    pub updated: u64,
    /// Acknowledged but missing, or in an older state.
    pub lost: u64,
}

fn failed(action: &'static str) -> impl Fn(io::Error) -> EngineError {
    move |error| EngineError::failed("ledger", action, error)
}

const NOTE: &str = "log an acknowledgement";
const LOOK: &str = "read the log of acknowledgements";

impl Ledger {
    /// Creates a ledger of `records` records for the database at `place`.
    ///
    /// # Errors
    /// The file cannot be created, or the path of the database exceeds 8160 bytes.
    pub fn create(path: &Path, place: &Path, records: u64) -> io::Result<Self> {
        let name = place.as_os_str().as_encoded_bytes();
        if name.len() as u64 > HEADER - PLACE_AT {
            return Err(io::Error::other("the path of the database is too long"));
        }
        // Renamed once complete: a kill leaves none rather than half of one.
        let unnamed = path.with_extension("new");
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&unnamed)?;
        file.set_len(HEADER + records * 8)?;
        for (at, word) in [(8, records), (16, 0), (24, name.len() as u64)] {
            file.write_all_at(&word.to_le_bytes(), at)?;
        }
        file.write_all_at(name, PLACE_AT)?;
        file.write_all_at(&MAGIC.to_le_bytes(), 0)?;
        std::fs::rename(&unnamed, path)?;
        Ok(Self { file, records })
    }

    /// Opens a ledger left by an earlier process; also returns the path of its database.
    ///
    /// # Errors
    /// The file is not a ledger.
    pub fn open(path: &Path) -> io::Result<(Self, PathBuf)> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let mut ledger = Self { file, records: 0 };
        ledger.records = ledger.word(8)?;
        let whole = ledger.records.checked_mul(8).and_then(|bytes| bytes.checked_add(HEADER));
        let length = ledger.word(24)?;
        let fits = length <= HEADER - PLACE_AT;
        if ledger.word(0)? != MAGIC || Some(ledger.file.metadata()?.len()) != whole || !fits {
            return Err(io::Error::other("it is not the log of a database"));
        }
        let mut name = vec![0; usize::try_from(length).unwrap_or(0)];
        ledger.file.read_exact_at(&mut name, PLACE_AT)?;
        let name = String::from_utf8_lossy(&name).into_owned();
        Ok((ledger, PathBuf::from(name)))
    }

    fn word(&self, at: u64) -> io::Result<u64> {
        let mut word = [0; 8];
        self.file.read_exact_at(&mut word, at)?;
        Ok(u64::from_le_bytes(word))
    }

    /// Notes that records `0..count` were loaded and acknowledged.
    pub(crate) fn loaded(&self, count: u64) -> Result<(), EngineError> {
        self.file.write_all_at(&count.to_le_bytes(), 16).map_err(failed(NOTE))
    }

    /// Notes that `generation` of `record` was acknowledged.
    pub(crate) fn acknowledged(&self, record: u64, generation: u64) -> Result<(), EngineError> {
        if record >= self.records {
            return Ok(());
        }
        self.file.write_all_at(&generation.to_le_bytes(), HEADER + record * 8).map_err(failed(NOTE))
    }

    /// Acknowledged records: number loaded, and number updated.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn noted(&self) -> io::Result<(u64, u64)> {
        let loaded = self.word(16)?.min(self.records);
        let updated = |sum: u64, record| -> io::Result<u64> {
            Ok(sum + u64::from(self.word(HEADER + record * 8)? > 0))
        };
        Ok((loaded, (0..loaded).try_fold(0, updated)?))
    }

    /// Compares a database with the ledger.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Corruption`] at a value that was never written; the engine's own message.
    pub fn check<E: KeyValueEngine>(
        &self,
        engine: &E,
        values: &Values,
        key_size: usize,
    ) -> Result<Checked, EngineError> {
        let mut access = engine.access()?;
        let mut key = vec![0; key_size.max(KEY_DIGITS)];
        let loaded = self.word(16).map_err(failed(LOOK))?;
        let mut checked = Checked::default();
        for record in 0..loaded {
            let expected = self.word(HEADER + record * 8).map_err(failed(LOOK))?;
            write_key(record, &mut key);
            let mut generation = None;
            let mut right = true;
            access.get(&key, &mut |value| {
                right = values.check(record, value);
                generation = Values::generation(value);
            })?;
            if !right {
                let what = "its value was never written";
                return Err(EngineError::corruption(record, what));
            }
            checked.records += 1;
            checked.updated += u64::from(expected > 0);
            checked.lost += u64::from(generation.is_none_or(|found| found < expected));
        }
        Ok(checked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_tells_where_its_database_is_and_refuses_other_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ledger");
        let ledger = Ledger::create(&path, Path::new("/some/place"), 10).unwrap();
        ledger.loaded(7).unwrap();
        ledger.acknowledged(3, 9).unwrap();
        ledger.acknowledged(5, 2).unwrap();
        let (again, place) = Ledger::open(&path).unwrap();
        assert_eq!(place, Path::new("/some/place"));
        assert_eq!(again.noted().unwrap(), (7, 2), "seven loaded, two of them updated");
        std::fs::write(&path, vec![1; 9000]).unwrap();
        assert!(Ledger::open(&path).is_err());
    }
}
