//! LMDB on the engine contract.
//!
//! Values are read in place from the map. Two crates are built from this file: `engine-lmdb` with LMDB 0.9,
//! and `engine-lmdb-raw` with the branch for raw block devices. Never link both: their C symbols merge
//! silently. That branch does not survive a device written through the map before it holds a database, so
//! that is never done. The safety guard is in `stack`: a device passed to this crate may be overwritten.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::ops::Bound;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use engine::{Engine, EngineError, KeyValue, KeyValueEngine, Place};
use heed::types::Bytes as RawBytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, PutFlags, WithTls};
use serde::Deserialize;
use study::{Descriptor, Durability, KvJob, Operations, OptionKind, VirtualTime};
use units::Bytes;

static LMDB: Descriptor = Descriptor {
    bare_device: true,
    virtual_time: VirtualTime::InMemory,
    durability: [
        "MDB_NOSYNC: pages are written at commit, not flushed; survives a process crash, not power loss",
        "MDB_NOSYNC: pages are written at commit, not flushed; survives a process crash, not power loss",
        "data and meta page flushed (fdatasync) at every commit",
    ],
    options: study::option_docs! {
        write_map: OptionKind::Flag, Some("false"), Differs,
            "Write through the memory map (MDB_WRITEMAP) instead of with system calls";
        read_ahead: OptionKind::Flag, Some("false"), Differs, "Let the kernel read ahead";
        map_size: OptionKind::Size(1 << 20, 1 << 46), None, Never,
            "Size of the memory map; by default four times the records, or the whole device";
    },
    ..Descriptor::new("lmdb", "LMDB", Operations::KeyValue)
};

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

fn failed(action: &'static str) -> impl Fn(heed::Error) -> EngineError {
    move |error| EngineError::failed("lmdb", action, error)
}

/// Maps of devices are multiples of this (LMDB's own rule).
const DEVICE_STEP: u64 = 2 << 20;

/// Size of the block device at `place`; `None` for anything else.
fn device_bytes(place: &Path) -> Option<u64> {
    let is_device = std::fs::metadata(place).is_ok_and(|data| data.file_type().is_block_device());
    let mut device = File::open(place).ok().filter(|_| is_device)?;
    device.seek(SeekFrom::End(0)).ok()
}

/// The map must hold the data, page slack, and the copies that updates make before old pages are free; it is
/// address space, not storage. A device is mapped whole.
fn map_size(job: &KvJob, own: &Own, device: Option<u64>) -> usize {
    let usual = job.data().get().saturating_mul(4).saturating_add(256 << 20);
    let usual =
        device.map_or(usual.next_multiple_of(1 << 20), |bytes| bytes / DEVICE_STEP * DEVICE_STEP);
    usize::try_from(own.map_size.map_or(usual, Bytes::get)).unwrap_or(usize::MAX)
}

/// LMDB's own options.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Own {
    write_map: bool,
    read_ahead: bool,
    map_size: Option<Bytes>,
}

/// Opens an environment with its one database, created unless it exists.
fn open_with(place: &Path, job: &KvJob, own: &Own) -> Result<Lmdb, EngineError> {
    let device = device_bytes(place);
    let mut open = EnvOpenOptions::new();
    open.map_size(map_size(job, own, device)).max_readers(job.threads() + 8);
    let mut flags = EnvFlags::empty();
    for (wanted, flag) in [
        (!own.read_ahead, EnvFlags::NO_READ_AHEAD),
        (job.durability != Durability::Device, EnvFlags::NO_SYNC),
        (own.write_map, EnvFlags::WRITE_MAP),
    ] {
        flags.set(flag, wanted);
    }
    // SAFETY: NO_READ_AHEAD only advises the kernel; NO_SYNC risks the database on a crash of the system,
    // which is the durability that was requested and is printed; nothing else in this process writes to the
    // map.
    unsafe { open.flags(flags) };
    // SAFETY: the place is ours alone, so nobody else changes the file under the map, and it is opened once
    // at a time in this process.
    let env = unsafe { open.open(place) }.map_err(failed("open the environment"))?;
    let txn = env.write_txn().map_err(failed("begin"))?;
    let made = env
        .create_databases_and_commit(txn, |opener, txn| -> Result<_, heed::Error> {
            let records = opener.create_database::<RawBytes, RawBytes>(txn, None)?;
            Ok(CommitOrAbort::<_, ()>::Commit(records))
        })
        .map_err(failed("open the database"))?;
    let records: Records = made.unwrap_commit();
    Ok(Lmdb { env, records, on_device: device.is_some(), write_map: own.write_map })
}

impl Engine for Lmdb {
    const DESCRIPTOR: &'static Descriptor = &LMDB;

    type Job = KvJob;

    fn probe(_: Option<&KvJob>) -> Result<String, EngineError> {
        let version = heed::lmdb_version();
        Ok(format!("LMDB {}.{}.{}", version.major, version.minor, version.patch))
    }

    fn open(place: &Place, job: &KvJob) -> Result<Self, EngineError> {
        let place = place.path()?;
        let own: Own = job.options.typed();
        if own.write_map && device_bytes(place).is_some() {
            let plain = Own { write_map: false, ..job.options.typed() };
            open_with(place, job, &plain)?.close()?;
        }
        open_with(place, job, &own)
    }

    fn notes(&self) -> Vec<String> {
        let how = if self.write_map {
            "pages are written through the map (MDB_WRITEMAP): a page not in memory is read first"
        } else {
            "pages are written with write system calls, not through the memory map"
        };
        vec![how.to_owned()]
    }

    fn close(self) -> Result<(), EngineError> {
        self.env.force_sync().map_err(failed("sync"))?;
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}

impl KeyValueEngine for Lmdb {
    type Access<'a> = &'a Self;

    fn access(&self) -> Result<&Self, EngineError> {
        Ok(self)
    }

    fn bytes_of_device(&self) -> Option<Bytes> {
        let pages = self.env.info().last_page_number as u64 + 1;
        self.on_device.then(|| Bytes(pages * PAGE))
    }
}

impl KeyValue for &Lmdb {
    fn get(&mut self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool, EngineError> {
        let txn = self.env.read_txn().map_err(failed("begin"))?;
        let found = self.records.get(&txn, key).map_err(failed("get"))?;
        if let Some(value) = found {
            seen(value);
        }
        Ok(found.is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        let mut txn = self.env.write_txn().map_err(failed("begin"))?;
        self.records.put(&mut txn, key, value).map_err(failed("put"))?;
        txn.commit().map_err(failed("commit"))
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), EngineError> {
        let mut txn = self.env.write_txn().map_err(failed("begin"))?;
        self.records.delete(&mut txn, key).map_err(failed("delete"))?;
        txn.commit().map_err(failed("commit"))
    }

    fn put_batch(
        &mut self,
        next: &mut dyn FnMut(&mut Vec<u8>, &mut Vec<u8>) -> bool,
    ) -> Result<(), EngineError> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let mut txn = self.env.write_txn().map_err(failed("begin"))?;
        while next(&mut key, &mut value) {
            self.records
                .put_with_flags(&mut txn, PutFlags::APPEND, &key, &value)
                .map_err(failed("append"))?;
        }
        txn.commit().map_err(failed("commit"))
    }

    fn scan(
        &mut self,
        from: &[u8],
        seen: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), EngineError> {
        let txn = self.env.read_txn().map_err(failed("begin"))?;
        // LMDB has no empty key; here it means the first.
        let start = if from.is_empty() { Bound::Unbounded } else { Bound::Included(from) };
        let range = (start, Bound::Unbounded);
        for item in self.records.range(&txn, &range).map_err(failed("iterate"))? {
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
        contract::key_value::check::<Lmdb>("tests::lmdb_keeps_the_contract", dir.path());
    }
}
