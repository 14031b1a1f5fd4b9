//! The smallest complete engine: copy it to add one.
//!
//! Records are appended to a log file and found through an index in memory, as in Bitcask. It is listed only
//! in test builds, where it shows that an engine is one crate and one line of the list of engines.
//!
//! To add an engine: implement [`Engine`] and one operation set ([`KeyValueEngine`] or
//! [`engine::SqlEngine`]), describe it in a [`Descriptor`], run the contract suite, add a line to
//! `crates/app/engines`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Error, ErrorKind, Read};
use std::ops::Bound;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError, RwLock};

use engine::{Engine, EngineError, KeyValue, KeyValueEngine, Place};
use study::{Descriptor, Durability, KvJob, Operations};

static SKELETON: Descriptor = Descriptor {
    durability: [
        "appended to a log file: survives the process",
        "appended to a log file: survives the process",
        "appended to a log file and flushed (fdatasync) at every commit",
    ],
    ..Descriptor::new("skeleton", "Skeleton", Operations::KeyValue)
};

/// Where a value is in the log: offset and length.
type Index = BTreeMap<Vec<u8>, (u64, u32)>;

/// A log file that is open.
#[derive(Debug)]
pub struct Skeleton {
    log: File,
    sync: bool,
    /// Bytes of the log that hold whole records; held while appending.
    end: Mutex<u64>,
    index: RwLock<Index>,
}

/// Length of a value that says that the key was deleted.
const DELETED: u32 = u32::MAX;
/// Bytes before a record: lengths of key and value.
const HEADER: usize = 8;

fn failed(action: &'static str) -> impl Fn(Error) -> EngineError {
    move |error| EngineError::failed("skeleton", action, error)
}

fn append(out: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>) {
    let length = value.map_or(DELETED, |value| value.len() as u32);
    out.extend_from_slice(&(key.len() as u32).to_le_bytes());
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(value.unwrap_or_default());
}

/// Applies whole records of `log`, whose first byte is at `from`; returns the end of the last.
fn replay(log: &[u8], from: u64, index: &mut Index) -> u64 {
    let mut at = 0;
    let word = |at: usize| log.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    while let (Some(key), Some(value)) = (word(at), word(at + 4)) {
        let start = at + HEADER + key as usize;
        let end = start + if value == DELETED { 0 } else { value as usize };
        let (Some(key), true) = (log.get(at + HEADER..start), end <= log.len()) else { break };
        if value == DELETED {
            index.remove(key);
        } else {
            index.insert(key.to_vec(), (from + start as u64, value));
        }
        at = end;
    }
    from + at as u64
}

impl Engine for Skeleton {
    const DESCRIPTOR: &'static Descriptor = &SKELETON;

    type Job = KvJob;

    fn probe(_: Option<&KvJob>) -> Result<String, EngineError> {
        Ok("skeleton 1".into())
    }

    fn open(place: &Place, job: &KvJob) -> Result<Self, EngineError> {
        let path = place.path()?.join("log");
        let mut log = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(failed("open the log"))?;
        let (mut whole, mut index) = (Vec::new(), Index::new());
        log.read_to_end(&mut whole).map_err(failed("read the log"))?;
        let end = replay(&whole, 0, &mut index);
        let sync = job.durability == Durability::Device;
        Ok(Self { log, sync, end: end.into(), index: index.into() })
    }

    fn version(&self) -> String {
        "skeleton 1".into()
    }
}

impl KeyValueEngine for Skeleton {
    type Access<'a> = &'a Self;

    fn access(&self) -> Result<&Self, EngineError> {
        Ok(self)
    }
}

impl Skeleton {
    /// Appends records and makes them visible.
    fn commit(&self, records: &[u8]) -> Result<(), EngineError> {
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        self.log.write_all_at(records, *end).map_err(failed("append"))?;
        if self.sync {
            self.log.sync_data().map_err(failed("flush"))?;
        }
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        *end = replay(records, *end, &mut index);
        Ok(())
    }

    fn value(&self, (offset, length): (u64, u32)) -> Result<Vec<u8>, EngineError> {
        let mut value = vec![0; length as usize];
        self.log.read_exact_at(&mut value, offset).map_err(failed("read"))?;
        Ok(value)
    }

    /// The first record after `from`.
    fn next(&self, from: Bound<&[u8]>) -> Option<(Vec<u8>, (u64, u32))> {
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        let mut after = index.range::<[u8], _>((from, Bound::Unbounded));
        after.next().map(|(key, place)| (key.clone(), *place))
    }
}

impl KeyValue for &Skeleton {
    fn get(&mut self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool, EngineError> {
        let place = {
            let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
            index.get(key).copied()
        };
        let Some(place) = place else { return Ok(false) };
        seen(&self.value(place)?);
        Ok(true)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        if u32::try_from(value.len()).is_ok_and(|length| length != DELETED) {
            let mut record = Vec::with_capacity(HEADER + key.len() + value.len());
            append(&mut record, key, Some(value));
            return self.commit(&record);
        }
        Err(failed("put")(ErrorKind::InvalidInput.into()))
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), EngineError> {
        let mut record = Vec::new();
        append(&mut record, key, None);
        self.commit(&record)
    }

    fn put_batch(
        &mut self,
        next: &mut dyn FnMut(&mut Vec<u8>, &mut Vec<u8>) -> bool,
    ) -> Result<(), EngineError> {
        let (mut key, mut value, mut records) = (Vec::new(), Vec::new(), Vec::new());
        while next(&mut key, &mut value) {
            append(&mut records, &key, Some(&value));
        }
        self.commit(&records)
    }

    fn scan(
        &mut self,
        from: &[u8],
        seen: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), EngineError> {
        let mut found = self.next(Bound::Included(from));
        while let Some((key, place)) = found {
            if !seen(&key, &self.value(place)?) {
                break;
            }
            found = self.next(Bound::Excluded(&key));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skeleton_keeps_the_contract() {
        let dir = tempfile::tempdir().unwrap();
        engine::kv::contract::check::<Skeleton>("tests::skeleton_keeps_the_contract", dir.path());
    }
}
