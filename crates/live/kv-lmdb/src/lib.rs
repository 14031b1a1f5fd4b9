//! LMDB behind the key-value contract.
//!
//! Values are read in place from the map. Two crates are built from this file: `kv-lmdb` with LMDB 0.9, and
//! `kv-lmdb-raw` with the branch that can have a block device to itself. Invariants: one LMDB in a process
//! (never link both: their C symbols merge silently); a device is never written through the map before it
//! holds a database, which that branch does not survive.
//! What it is not: the guard; a device that comes here may be overwritten.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::ops::Bound;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use heed::types::Bytes as RawBytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, PutFlags, WithTls};
use kv::{Engine, KvError, Options, Session};
use study::Durability;
use units::Bytes;

type Records = Database<'static, RawBytes, RawBytes>;

/// An open LMDB environment with one database.
#[derive(Debug)]
pub struct Lmdb {
    env: Env<WithTls>,
    records: Records,
    on_device: bool,
    write_map: bool,
}

/// Bytes of a page.
const PAGE: u64 = 4096;

/// A thread's access.
#[derive(Debug)]
pub struct LmdbSession<'a> {
    lmdb: &'a Lmdb,
}

fn failed(action: &'static str) -> impl Fn(heed::Error) -> KvError {
    move |error| KvError::Engine { engine: "lmdb", action, reason: error.to_string() }
}

/// Maps of devices are multiples of this (LMDB's own rule).
const DEVICE_STEP: u64 = 2 << 20;

/// Bytes of the device at `place`; `None` of what is no block device.
fn device_bytes(place: &Path) -> Option<u64> {
    let is_device = std::fs::metadata(place).is_ok_and(|data| data.file_type().is_block_device());
    let mut device = File::open(place).ok().filter(|_| is_device)?;
    device.seek(SeekFrom::End(0)).ok()
}

/// The map must hold the data, its pages' slack, and the copies that updates make before old pages
/// are free again; it is address space, not storage. Of a device it is the whole.
fn map_size(options: &Options, device: Option<u64>) -> usize {
    let usual = options.expected.get().saturating_mul(4).saturating_add(256 << 20);
    let usual =
        device.map_or(usual.next_multiple_of(1 << 20), |bytes| bytes / DEVICE_STEP * DEVICE_STEP);
    usize::try_from(options.map_size.map_or(usual, Bytes::get)).unwrap_or(usize::MAX)
}

/// Opens an environment with its one database, made if it is not there.
fn open_with(place: &Path, options: &Options, write_map: bool) -> Result<Lmdb, KvError> {
    let device = device_bytes(place);
    let mut open = EnvOpenOptions::new();
    open.map_size(map_size(options, device)).max_readers(options.sessions + 8);
    let mut flags = EnvFlags::empty();
    for (wanted, flag) in [
        (!options.read_ahead, EnvFlags::NO_READ_AHEAD),
        (options.durability != Durability::Device, EnvFlags::NO_SYNC),
        (write_map, EnvFlags::WRITE_MAP),
    ] {
        flags.set(flag, wanted);
    }
    // SAFETY: NO_READ_AHEAD only advises the kernel; NO_SYNC risks the database on a crash of the
    // system, which is the durability that was asked for and is printed; nothing else in this process
    // writes to the map.
    unsafe { open.flags(flags) };
    // SAFETY: the place is ours alone, so nobody else changes the file under the map, and it
    // is opened once at a time in this process.
    let env = unsafe { open.open(place) }.map_err(failed("open the environment"))?;
    let txn = env.write_txn().map_err(failed("begin"))?;
    let made = env
        .create_databases_and_commit(txn, |opener, txn| -> Result<_, heed::Error> {
            let records = opener.create_database::<RawBytes, RawBytes>(txn, None)?;
            Ok(CommitOrAbort::<_, ()>::Commit(records))
        })
        .map_err(failed("open the database"))?;
    let records: Records = made.unwrap_commit();
    Ok(Lmdb { env, records, on_device: device.is_some(), write_map })
}

impl Engine for Lmdb {
    type Session<'a> = LmdbSession<'a>;

    fn open(place: &Path, options: &Options) -> Result<Self, KvError> {
        if options.write_map && device_bytes(place).is_some() {
            open_with(place, options, false)?.close()?;
        }
        open_with(place, options, options.write_map)
    }

    fn bytes_of_device(&self) -> Option<Bytes> {
        let pages = self.env.info().last_page_number as u64 + 1;
        self.on_device.then(|| Bytes(pages * PAGE))
    }

    fn notes(&self) -> Vec<String> {
        let way = if self.write_map {
            "pages are written through the map (MDB_WRITEMAP): a page that is not in memory is read first"
        } else {
            "pages are written with system calls"
        };
        vec![way.to_owned()]
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

    fn delete(&mut self, key: &[u8]) -> Result<(), KvError> {
        let mut txn = self.lmdb.env.write_txn().map_err(failed("begin"))?;
        self.lmdb.records.delete(&mut txn, key).map_err(failed("delete"))?;
        txn.commit().map_err(failed("commit"))
    }

    fn put_batch(
        &mut self,
        next: &mut dyn FnMut(&mut Vec<u8>, &mut Vec<u8>) -> bool,
    ) -> Result<(), KvError> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let mut txn = self.lmdb.env.write_txn().map_err(failed("begin"))?;
        while next(&mut key, &mut value) {
            self.lmdb
                .records
                .put_with_flags(&mut txn, PutFlags::APPEND, &key, &value)
                .map_err(failed("append"))?;
        }
        txn.commit().map_err(failed("commit"))
    }

    fn scan(
        &mut self,
        from: &[u8],
        seen: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), KvError> {
        let txn = self.lmdb.env.read_txn().map_err(failed("begin"))?;
        // LMDB knows no empty key; it means the first here.
        let start = if from.is_empty() { Bound::Unbounded } else { Bound::Included(from) };
        let range = (start, Bound::Unbounded);
        for item in self.lmdb.records.range(&txn, &range).map_err(failed("iterate"))? {
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
