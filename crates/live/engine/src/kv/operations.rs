//! Executes one key-value operation and checks its result.
//!
//! A value of another record or size ends the trial. Scans and every sixteenth lookup of a client are checked
//! byte by byte. Nothing is allocated besides the buffers.

use workload::{Issue, KvAction, KvOp, Values, write_key};

use super::Ledger;
use crate::{EngineError, KeyValue, Session, Submit};

/// One lookup in this many is checked byte by byte, whichever record it reads.
const WHOLE_EVERY: u32 = 16;

/// A client's access to a database as a session: every operation completes at once.
pub(crate) struct KvSession<'a, A> {
    access: A,
    values: &'a Values,
    ledger: Option<&'a Ledger>,
    key: Vec<u8>,
    /// Buffer for a second key, for comparisons.
    other: Vec<u8>,
    value: Vec<u8>,
    /// Lookups so far.
    lookups: u32,
}

impl<A: KeyValue> Session for KvSession<'_, A> {
    type Op = KvOp;

    #[inline]
    fn submit(&mut self, issue: &Issue<KvOp>) -> Submit {
        Submit::Done(self.perform(issue.op))
    }
}

impl<'a, A: KeyValue> KvSession<'a, A> {
    /// A session with keys of that size; acknowledged updates are recorded in `ledger`.
    pub fn new(access: A, values: &'a Values, ledger: Option<&'a Ledger>, key_size: usize) -> Self {
        let (key, value) = (vec![0; key_size], Vec::with_capacity(values.most()));
        Self { access, values, ledger, other: key.clone(), key, value, lookups: 0 }
    }

    /// Executes `op`; returns the bytes of the values that it transferred.
    #[inline]
    fn perform(&mut self, op: KvOp) -> Result<u32, EngineError> {
        write_key(op.record, &mut self.key);
        match op.action {
            KvAction::Get => self.get(op.record),
            KvAction::Put | KvAction::Insert => self.put(op),
            KvAction::Update => {
                let seen = self.get(op.record)?;
                Ok(seen + self.put(op)?)
            }
            KvAction::Delete => self.access.delete(&self.key).map(|()| 0),
            KvAction::Scan(length) | KvAction::ScanUpTo(length) => self.scan(length),
        }
    }

    fn put(&mut self, op: KvOp) -> Result<u32, EngineError> {
        self.values.fill(op.record, op.generation, &mut self.value);
        self.access.put(&self.key, &self.value)?;
        if let Some(ledger) = self.ledger {
            ledger.acknowledged(op.record, op.generation)?;
        }
        Ok(self.value.len() as u32)
    }

    fn get(&mut self, record: u64) -> Result<u32, EngineError> {
        self.lookups = self.lookups.wrapping_add(1);
        let whole = self.lookups.is_multiple_of(WHOLE_EVERY);
        let (values, mut right) = (self.values, None);
        let found = self.access.get(&self.key, &mut |bytes| {
            let as_written = match whole {
                true => values.check(record, bytes),
                false => values.check_quickly(record, bytes),
            };
            right = as_written.then_some(bytes.len() as u32);
        })?;
        match (found, right) {
            (true, Some(bytes)) => Ok(bytes),
            (true, None) => Err(EngineError::corruption(record, "its value was never written")),
            (false, _) => Err(EngineError::corruption(record, "it is missing")),
        }
    }

    fn scan(&mut self, length: u32) -> Result<u32, EngineError> {
        let (mut left, mut sum, mut bad) = (length, 0u64, None);
        let Self { access, values, key, other, .. } = self;
        access.scan(key, &mut |found, bytes| {
            let record = bytes.first_chunk().map_or(u64::MAX, |word| u64::from_le_bytes(*word));
            write_key(record, other);
            if found != other.as_slice() || !values.check(record, bytes) {
                let reason = "a scan found a record that was never written";
                bad = Some(EngineError::corruption(record, reason));
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

#[cfg(test)]
mod tests {
    use super::*;
    use units::Seed;
    use workload::{OpClass, ValueShape};

    /// A database that answers everything with one value.
    struct Answers(Vec<u8>);

    impl KeyValue for Answers {
        fn get(&mut self, _: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool, EngineError> {
            seen(&self.0);
            Ok(true)
        }

        fn put(&mut self, _: &[u8], _: &[u8]) -> Result<(), EngineError> {
            Ok(())
        }

        fn delete(&mut self, _: &[u8]) -> Result<(), EngineError> {
            Ok(())
        }

        fn put_batch(
            &mut self,
            _: &mut dyn FnMut(&mut Vec<u8>, &mut Vec<u8>) -> bool,
        ) -> Result<(), EngineError> {
            Ok(())
        }

        fn scan(
            &mut self,
            _: &[u8],
            _: &mut dyn FnMut(&[u8], &[u8]) -> bool,
        ) -> Result<(), EngineError> {
            Ok(())
        }
    }

    /// Number of 32 lookups of record 7, all answered with `value`, that verification rejects.
    fn wrong_ones(value: &[u8]) -> usize {
        let values = Values::new(ValueShape::of(100), Seed(1));
        let mut session = KvSession::new(Answers(value.to_vec()), &values, None, 16);
        let op = KvOp { class: OpClass::Read, action: KvAction::Get, record: 7, generation: 0 };
        (0..32).filter(|_| session.perform(op).is_err()).count()
    }

    /// An engine that returns wrong data would win a benchmark.
    #[test]
    fn what_was_not_written_there_is_found() {
        let values = Values::new(ValueShape::of(100), Seed(1));
        let mut value = Vec::new();
        values.fill(7, 3, &mut value);
        assert_eq!(wrong_ones(&value), 0);
        assert_eq!(wrong_ones(&value[..99]), 32, "too short");
        let mut torn = value.clone();
        torn[99] ^= 1;
        assert_eq!(wrong_ones(&torn), 2, "each sixteenth is looked at whole");
        values.fill(8, 3, &mut value);
        assert_eq!(wrong_ones(&value), 32, "another record's");
    }
}
