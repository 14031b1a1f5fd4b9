//! Key-value workloads: lookups and updates of uniformly drawn existing records.
//!
//! Invariants: one operation in flight a client; keys are `0..records`; a value is a pure function
//! of its key and generation, so any reader can check what it got.
//! What it is not: a database; engines get keys and values as bytes.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Nanos, Seed};

use crate::{Issue, OpClass, OpId, Outcome, Step, Workload};

/// What a client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvRole {
    /// Looks records up.
    Reader,
    /// Overwrites existing records, one a transaction.
    Writer,
}

/// One key-value operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvOp {
    /// Lookup or update.
    pub class: OpClass,
    /// Number of the record.
    pub record: u64,
    /// Generation to write; 0 is what the load wrote. Unused by lookups.
    pub generation: u64,
}

/// What every client of a key-value trial shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvPlan {
    /// Records in the database, at least 1.
    pub records: u64,
    /// No operation is issued from this instant on.
    pub end: Nanos,
}

/// One closed-loop client with one operation in flight.
#[derive(Debug, Clone)]
pub struct KvClient {
    plan: KvPlan,
    role: KvRole,
    generation: u64,
    in_flight: bool,
    random: Xoshiro256PlusPlus,
}

impl KvClient {
    /// Client number `index` of a trial. Readers and writers draw from different streams.
    #[must_use]
    pub fn new(plan: KvPlan, role: KvRole, seed: Seed, index: u32) -> Self {
        let label = match role {
            KvRole::Reader => "kv-reader",
            KvRole::Writer => "kv-writer",
        };
        let seed = seed.derive(label, u64::from(index));
        let random = Xoshiro256PlusPlus::seed_from_u64(seed.0);
        Self { plan, role, generation: 0, in_flight: false, random }
    }
}

impl Workload for KvClient {
    type Op = KvOp;

    fn next(&mut self, now: Nanos) -> Step<KvOp> {
        if self.in_flight {
            return Step::WaitCompletion;
        }
        if now >= self.plan.end {
            return Step::Finished;
        }
        self.in_flight = true;
        let draw = u128::from(self.random.next_u64()) * u128::from(self.plan.records);
        let class = match self.role {
            KvRole::Reader => OpClass::Read,
            KvRole::Writer => {
                self.generation += 1;
                OpClass::Write
            }
        };
        let op = KvOp { class, record: (draw >> 64) as u64, generation: self.generation };
        Step::Issue(Issue { id: OpId(0), op, intended: now })
    }

    fn completed(&mut self, _id: OpId, _outcome: Outcome, _now: Nanos) {
        self.in_flight = false;
    }
}

/// Writes the key of `record`: 16 lower-case hexadecimal digits, as Symas's driver does.
///
/// Source: Symas, "Intel Optane SSD Microbenchmark" (2018), driver `dbbench`.
pub fn write_key(record: u64, key: &mut [u8; 16]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (position, byte) in key.iter_mut().enumerate() {
        *byte = DIGITS[(record >> (60 - 4 * position) & 15) as usize];
    }
}

/// Makes and checks values: a header of record and generation, then incompressible filler.
#[derive(Debug, Clone)]
pub struct Values {
    filler: Vec<u8>,
    size: usize,
}

/// Bytes of the value header: record and generation, 8 bytes each, little-endian.
const HEADER: usize = 16;
/// Filler is cut from a buffer this much longer than a value.
const SLIDE: usize = 1 << 16;

impl Values {
    /// Values of `size` bytes (at least 16; smaller sizes are raised to it).
    #[must_use]
    pub fn new(size: usize, seed: Seed) -> Self {
        let size = size.max(HEADER);
        let mut filler = vec![0; size + SLIDE];
        Xoshiro256PlusPlus::seed_from_u64(seed.derive("kv-values", 0).0).fill_bytes(&mut filler);
        Self { filler, size }
    }

    /// Writes the value of (`record`, `generation`) into `out`, replacing what is there.
    pub fn fill(&self, record: u64, generation: u64, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&record.to_le_bytes());
        out.extend_from_slice(&generation.to_le_bytes());
        let start = Self::slide(record, generation);
        out.extend_from_slice(&self.filler[start..start + self.size - HEADER]);
    }

    /// Whether `value` is one that was written for `record`, in any generation.
    #[must_use]
    pub fn check(&self, record: u64, value: &[u8]) -> bool {
        let word = |at: usize| Some(u64::from_le_bytes(value.get(at..at + 8)?.try_into().ok()?));
        let (Some(found), Some(generation)) = (word(0), word(8)) else {
            return false;
        };
        let start = Self::slide(record, generation);
        // The ends of the filler: a whole comparison would cost more than the lookup.
        let body = &self.filler[start..start + self.size - HEADER];
        let edge = body.len().min(8);
        found == record
            && value.len() == self.size
            && value[HEADER..HEADER + edge] == body[..edge]
            && value[self.size - edge..] == body[body.len() - edge..]
    }

    fn slide(record: u64, generation: u64) -> usize {
        (Seed(record).derive("slide", generation).0 % SLIDE as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_like_their_numbers() {
        let key = |record| {
            let mut key = [0; 16];
            write_key(record, &mut key);
            key
        };
        assert_eq!(&key(0xbeef), b"000000000000beef");
        assert!(key(9) < key(10) && key(255) < key(256) && key(u64::MAX - 1) < key(u64::MAX));
    }

    /// A wrong value that passes would let a broken engine win a benchmark.
    #[test]
    fn check_tells_wrong_values() {
        let values = Values::new(100, Seed(1));
        let mut value = Vec::new();
        values.fill(7, 3, &mut value);
        assert_eq!(value.len(), 100);
        assert!(values.check(7, &value));
        assert!(!values.check(8, &value));
        let mut torn = value.clone();
        torn[99] ^= 1;
        assert!(!values.check(7, &torn));
        assert!(!values.check(7, &value[..99]));
        assert!(!values.check(7, &[]));
    }

    #[test]
    fn clients_draw_existing_records_and_end() {
        let plan = KvPlan { records: 10, end: Nanos(100) };
        let mut writer = KvClient::new(plan, KvRole::Writer, Seed(1), 0);
        let mut seen = [false; 10];
        for turn in 1..200 {
            let Step::Issue(issue) = writer.next(Nanos(0)) else { panic!("no operation") };
            assert_eq!(writer.next(Nanos(0)), Step::WaitCompletion);
            assert_eq!((issue.op.class, issue.op.generation), (OpClass::Write, turn));
            seen[issue.op.record as usize] = true;
            writer.completed(issue.id, Outcome::Done, Nanos(1));
        }
        assert_eq!(seen, [true; 10]);
        assert_eq!(writer.next(Nanos(100)), Step::Finished);
    }
}
