//! One operation on a database, its result checked.
//!
//! Invariants: a value that is another record's, or has a size that none has, is told whichever way it was
//! read; of scans and of one record in sixteen also one that was never written. Nothing is allocated after
//! the buffers. What it is not: timing.

use workload::{KvAction, KvOp, Values, write_key};

use crate::{KvError, Ledger, Session};

/// What every operation of a trial works with.
pub(crate) struct Records<'a> {
    pub values: &'a Values,
    pub ledger: Option<&'a Ledger>,
}

/// A client's space for a key and a value.
pub(crate) struct Buffers {
    key: Vec<u8>,
    /// A second key, to compare with.
    other: Vec<u8>,
    value: Vec<u8>,
}

impl Buffers {
    pub fn new(key_size: usize, value_most: usize) -> Self {
        let key = vec![0; key_size];
        Self { other: key.clone(), key, value: Vec::with_capacity(value_most.max(64)) }
    }
}

fn wrong(record: u64, what: &'static str) -> KvError {
    KvError::Wrong { record, what }
}

impl Records<'_> {
    /// Does `op`; gives the bytes of the values that it moved.
    #[inline]
    pub fn perform<S: Session>(
        &self,
        session: &mut S,
        op: KvOp,
        buffers: &mut Buffers,
    ) -> Result<u32, KvError> {
        write_key(op.record, &mut buffers.key);
        match op.action {
            KvAction::Get => self.get(session, op.record, buffers),
            KvAction::Put | KvAction::Insert => self.put(session, op, buffers),
            KvAction::Update => {
                let seen = self.get(session, op.record, buffers)?;
                Ok(seen + self.put(session, op, buffers)?)
            }
            KvAction::Delete => session.delete(&buffers.key).map(|()| 0),
            KvAction::Scan(length) | KvAction::ScanUpTo(length) => {
                self.scan(session, length, buffers)
            }
        }
    }

    fn put<S: Session>(
        &self,
        session: &mut S,
        op: KvOp,
        buffers: &mut Buffers,
    ) -> Result<u32, KvError> {
        self.values.fill(op.record, op.generation, &mut buffers.value);
        session.put(&buffers.key, &buffers.value)?;
        if let Some(ledger) = self.ledger {
            ledger.acknowledged(op.record, op.generation)?;
        }
        Ok(buffers.value.len() as u32)
    }

    fn get<S: Session>(
        &self,
        session: &mut S,
        record: u64,
        buffers: &Buffers,
    ) -> Result<u32, KvError> {
        let mut right = None;
        let found = session.get(&buffers.key, &mut |bytes| {
            right = self.values.check_quickly(record, bytes).then_some(bytes.len() as u32);
        })?;
        match (found, right) {
            (true, Some(bytes)) => Ok(bytes),
            (true, None) => Err(wrong(record, "its value is not one that was written")),
            (false, _) => Err(wrong(record, "it is missing")),
        }
    }

    fn scan<S: Session>(
        &self,
        session: &mut S,
        length: u32,
        buffers: &mut Buffers,
    ) -> Result<u32, KvError> {
        let (mut left, mut sum, mut bad) = (length, 0u64, None);
        let Buffers { key, other, .. } = buffers;
        session.scan(key, &mut |found, bytes| {
            let record = bytes.first_chunk().map_or(u64::MAX, |word| u64::from_le_bytes(*word));
            write_key(record, other);
            if found != other.as_slice() || !self.values.check(record, bytes) {
                bad = Some(wrong(record, "a scan found what was not written there"));
                return false;
            }
            sum += bytes.len() as u64;
            left = left.saturating_sub(1);
            left > 0
        })?;
        match bad {
            Some(error) => Err(error),
            None => Ok(u32::try_from(sum).unwrap_or(u32::MAX)),
        }
    }
}
