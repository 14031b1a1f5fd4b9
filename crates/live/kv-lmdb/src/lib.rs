//! LMDB behind the key-value contract.
//!
//! Values are read in place from the map. Invariants: one LMDB in the process (never link a second
//! one: the C symbols merge silently); read-ahead is off, because databases here outgrow memory.
//! What it is not: LMDB on a raw device.

use std::path::Path;

use heed::types::Bytes as RawBytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, PutFlags, WithTls};
use kv::{Engine, KvError, Options, Session};
use study::Durability;

type Records = Database<'static, RawBytes, RawBytes>;

/// An open LMDB environment with one database.
#[derive(Debug)]
pub struct Lmdb {
    env: Env<WithTls>,
    records: Records,
}

/// A thread's access.
#[derive(Debug)]
pub struct LmdbSession<'a> {
    lmdb: &'a Lmdb,
}

fn failed(action: &'static str) -> impl Fn(heed::Error) -> KvError {
    move |error| KvError::Engine { engine: "lmdb", action, reason: error.to_string() }
}

/// The map must hold the data, its pages' slack, and the copies that updates make before old pages
/// are free again; it is address space, not storage.
fn map_size(options: &Options) -> usize {
    let bytes = options.expected.get().saturating_mul(4).saturating_add(256 << 20);
    usize::try_from(bytes.next_multiple_of(1 << 20)).unwrap_or(usize::MAX)
}

impl Engine for Lmdb {
    type Session<'a> = LmdbSession<'a>;

    fn open(dir: &Path, options: &Options) -> Result<Self, KvError> {
        let mut open = EnvOpenOptions::new();
        open.map_size(map_size(options)).max_readers(options.sessions + 8);
        let mut flags = EnvFlags::NO_READ_AHEAD;
        if options.durability != Durability::Device {
            flags |= EnvFlags::NO_SYNC;
        }
        // SAFETY: NO_READ_AHEAD only advises the kernel; NO_SYNC risks the database on a crash of the
        // system, which is the durability that was asked for and is printed.
        unsafe { open.flags(flags) };
        // SAFETY: the directory is ours alone, so nobody else changes the file under the map, and it
        // is opened once at a time in this process.
        let env = unsafe { open.open(dir) }.map_err(failed("open the environment"))?;
        let txn = env.write_txn().map_err(failed("begin"))?;
        let made = env
            .create_databases_and_commit(txn, |opener, txn| -> Result<_, heed::Error> {
                let records = opener.create_database::<RawBytes, RawBytes>(txn, None)?;
                Ok(CommitOrAbort::<_, ()>::Commit(records))
            })
            .map_err(failed("open the database"))?;
        let records: Records = made.unwrap_commit();
        Ok(Self { env, records })
    }

    fn session(&self) -> Result<LmdbSession<'_>, KvError> {
        Ok(LmdbSession { lmdb: self })
    }

    fn close(self) -> Result<(), KvError> {
        self.env.force_sync().map_err(failed("sync"))?;
        self.env.prepare_for_closing().wait();
        Ok(())
    }

    fn version() -> String {
        let version = heed::lmdb_version();
        format!("LMDB {}.{}.{}", version.major, version.minor, version.patch)
    }

    fn promise(durability: Durability) -> &'static str {
        match durability {
            Durability::None | Durability::Os => {
                "MDB_NOSYNC: pages are written at commit, not flushed; survives the process"
            }
            Durability::Device => "data and meta page flushed (fdatasync) at every commit",
        }
    }
}

impl Session for LmdbSession<'_> {
    fn get(&mut self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool, KvError> {
        let txn = self.lmdb.env.read_txn().map_err(failed("begin"))?;
        let found = self.lmdb.records.get(&txn, key).map_err(failed("get"))?;
        if let Some(value) = found {
            seen(value);
        }
        Ok(found.is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), KvError> {
        let mut txn = self.lmdb.env.write_txn().map_err(failed("begin"))?;
        self.lmdb.records.put(&mut txn, key, value).map_err(failed("put"))?;
        txn.commit().map_err(failed("commit"))
    }

    fn put_batch(
        &mut self,
        next: &mut dyn FnMut(&mut [u8; 16], &mut Vec<u8>) -> bool,
    ) -> Result<(), KvError> {
        let (mut key, mut value) = ([0; 16], Vec::new());
        let mut txn = self.lmdb.env.write_txn().map_err(failed("begin"))?;
        while next(&mut key, &mut value) {
            self.lmdb
                .records
                .put_with_flags(&mut txn, PutFlags::APPEND, &key, &value)
                .map_err(failed("append"))?;
        }
        txn.commit().map_err(failed("commit"))
    }

    fn scan(&mut self, seen: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), KvError> {
        let txn = self.lmdb.env.read_txn().map_err(failed("begin"))?;
        for item in self.lmdb.records.iter(&txn).map_err(failed("iterate"))? {
            let (key, value) = item.map_err(failed("iterate"))?;
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
    fn lmdb_keeps_the_contract() {
        let dir = tempfile::tempdir().unwrap();
        kv::contract::check::<Lmdb>(dir.path());
    }
}
