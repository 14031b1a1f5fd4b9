//! The smallest complete engine: copy it to add one.
//!
//! Commits are appended to a log file, each as a frame with length and checksum, and records are found
//! through an index in memory, as in Bitcask. It is listed only in test builds, as proof that an engine is
//! one crate and one line of the list of engines.
//!
//! To add an engine: implement [`Engine`] and one operation set ([`KeyValueEngine`] or
//! [`engine::SqlEngine`]), describe it in a [`Descriptor`], run the contract suite, add a line to
//! `crates/app/engines`. Then `cargo xtask schema` writes its options into docs/STUDY.md.

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
        "appended to a log file: survives a process crash, not power loss",
        "appended to a log file: survives a process crash, not power loss",
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
    /// End of the last complete frame; `None` after a failed flush, whose effect is unknown. The lock
    /// serialises appends.
    end: Mutex<Option<u64>>,
    index: RwLock<Index>,
}

/// Value length that marks a deleted key.
const DELETED: u32 = u32::MAX;
/// Bytes before a record: lengths of key and value. Bytes before a frame: its length and checksum.
const HEADER: usize = 8;
/// Maximum bytes of a frame, a key or a value.
const LONGEST: usize = 1 << 30;

fn failed(action: &'static str) -> impl Fn(Error) -> EngineError {
    move |error| EngineError::failed("skeleton", action, error)
}

fn append(out: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>) -> Result<(), EngineError> {
    if key.len().max(value.unwrap_or_default().len()) > LONGEST {
        return Err(failed("append")(ErrorKind::InvalidInput.into()));
    }
    let length = value.map_or(DELETED, |value| value.len() as u32);
    out.extend_from_slice(&(key.len() as u32).to_le_bytes());
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(value.unwrap_or_default());
    Ok(())
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}

/// Applies the records of a frame, whose first byte is at `from` of the log.
fn apply(records: &[u8], from: u64, index: &mut Index) {
    let mut at = 0;
    while let (Some(key), Some(value)) = (word(records, at), word(records, at + 4)) {
        let start = at + HEADER + key as usize;
        let Some(key) = records.get(at + HEADER..start) else { break };
        if value == DELETED {
            index.remove(key);
            at = start;
        } else {
            index.insert(key.to_vec(), (from + start as u64, value));
            at = start + value as usize;
        }
    }
}

/// Applies the complete frames of `log`; returns the end of the last. A cut-off or unwritten frame has no
/// valid checksum: nothing of its commit is applied.
fn replay(log: &[u8], index: &mut Index) -> usize {
    let mut at = 0;
    while let (Some(length), Some(sum)) = (word(log, at), word(log, at + 4)) {
        let (start, end) = (at + HEADER, at + HEADER + length as usize);
        let Some(records) = log.get(start..end).filter(|records| !records.is_empty()) else {
            break;
        };
        if crc32fast::hash(records) != sum {
            break;
        }
        apply(records, start as u64, index);
        at = end;
    }
    at
}

impl Engine for Skeleton {
    const DESCRIPTOR: &'static Descriptor = &SKELETON;

    type Job = KvJob;

    fn probe(_: Option<&KvJob>) -> Result<String, EngineError> {
        Ok("skeleton 1".into())
    }

    fn open(place: &Place, job: &KvJob) -> Result<Self, EngineError> {
        let directory = place.path()?;
        let mut log = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(directory.join("log"))
            .map_err(failed("open the log"))?;
        File::open(directory)
            .and_then(|it| it.sync_all())
            .map_err(failed("flush the directory"))?;
        let (mut whole, mut index) = (Vec::new(), Index::new());
        log.read_to_end(&mut whole).map_err(failed("read the log"))?;
        let end = replay(&whole, &mut index) as u64;
        // The rest belongs to a failed commit; a shorter one over it would leave a fragment.
        log.set_len(end).map_err(failed("cut the log"))?;
        let sync = job.durability == Durability::Device;
        Ok(Self { log, sync, end: Some(end).into(), index: index.into() })
    }
}

impl KeyValueEngine for Skeleton {
    type Access<'a> = &'a Self;

    fn access(&self) -> Result<&Self, EngineError> {
        Ok(self)
    }
}

impl Skeleton {
    /// Appends records as one frame and makes them visible; a failed commit stores nothing.
    fn commit(&self, records: &[u8]) -> Result<(), EngineError> {
        let fits = u32::try_from(records.len()).ok().filter(|_| records.len() <= LONGEST);
        let length = fits.ok_or_else(|| failed("append")(ErrorKind::InvalidInput.into()))?;
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        let at =
            end.ok_or_else(|| failed("append after a failed flush")(ErrorKind::Other.into()))?;
        let mut frame = Vec::with_capacity(HEADER + records.len());
        frame.extend_from_slice(&length.to_le_bytes());
        frame.extend_from_slice(&crc32fast::hash(records).to_le_bytes());
        frame.extend_from_slice(records);
        let mut written = self.log.write_all_at(&frame, at);
        if written.is_ok() && self.sync {
            written = self.log.sync_data();
            // The kernel may have dropped pages that it could not write, so the log's end is unknown.
            *end = end.filter(|_| written.is_ok());
        }
        if let Err(error) = written {
            self.log.set_len(at).map_err(failed("cut the log"))?;
            return Err(failed("append")(error));
        }
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        apply(records, at + HEADER as u64, &mut index);
        *end = Some(at + frame.len() as u64);
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
        let mut record = Vec::with_capacity(HEADER + key.len() + value.len());
        append(&mut record, key, Some(value))?;
        self.commit(&record)
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), EngineError> {
        let mut record = Vec::new();
        append(&mut record, key, None)?;
        self.commit(&record)
    }

    fn put_batch(
        &mut self,
        next: &mut dyn FnMut(&mut Vec<u8>, &mut Vec<u8>) -> bool,
    ) -> Result<(), EngineError> {
        let (mut key, mut value, mut records) = (Vec::new(), Vec::new(), Vec::new());
        while next(&mut key, &mut value) {
            append(&mut records, &key, Some(&value))?;
        }
        if records.is_empty() { Ok(()) } else { self.commit(&records) }
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
        contract::key_value::check::<Skeleton>("tests::skeleton_keeps_the_contract", dir.path());
    }

    /// A commit that a power cut tore, or left as zeros, must not come back in part.
    #[test]
    fn a_torn_commit_is_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let job = contract::key_value::job::<Skeleton>(Durability::Device);
        let open = || Skeleton::open(&Place::Directory(dir.path().to_owned()), &job).unwrap();
        let two = |mut access: &Skeleton| {
            let mut left = 0u8..2;
            let batch = &mut |key: &mut Vec<u8>, value: &mut Vec<u8>| {
                let next = left.next();
                *key = vec![b'k', next.unwrap_or_default()];
                *value = vec![b'v'; 100];
                next.is_some()
            };
            access.put_batch(batch).unwrap();
        };
        (&open()).put(b"first", b"kept").unwrap();
        let whole = std::fs::read(&path).unwrap();
        two(&open());
        let frame = std::fs::read(&path).unwrap();
        for torn in [frame[..frame.len() - 1].to_vec(), [&whole[..], &[0; 300]].concat()] {
            std::fs::write(&path, torn).unwrap();
            let skeleton = open();
            assert!((&skeleton).get(b"first", &mut |_| ()).unwrap());
            assert!(!(&skeleton).get(b"k\0", &mut |_| ()).unwrap(), "half a commit");
            assert_eq!(std::fs::read(&path).unwrap(), whole, "what was torn is gone");
        }
    }
}
