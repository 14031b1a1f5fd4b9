//! Keys and values, derived from a record number and a generation.
//!
//! Invariants: keys sort like their numbers; a value contains its record and generation, so it can be
//! verified without knowing who wrote it.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Seed, Share};

/// Bytes of a key that identify its record.
pub const KEY_DIGITS: usize = 16;

/// Writes the key of `record`: 16 lower-case hexadecimal digits, as Symas's driver does.
///
/// Source: Symas, "Intel Optane SSD Microbenchmark" (2018), driver `dbbench`.
///
/// Longer keys end in zeros.
///
/// # Panics
/// When `key` is shorter than [`KEY_DIGITS`].
pub fn write_key(record: u64, key: &mut [u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let (digits, rest) = key.split_at_mut(KEY_DIGITS);
    for (position, byte) in digits.iter_mut().enumerate() {
        *byte = DIGITS[(record >> (60 - 4 * position) & 15) as usize];
    }
    rest.fill(b'0');
}

/// Sizes and contents of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueShape {
    /// Minimum size, bytes; at least 16.
    pub least: usize,
    /// Maximum size, bytes; sizes are uniform between both, a function of record and generation.
    pub most: usize,
    /// Share of incompressible bytes; the rest of each 100 bytes repeats them.
    pub random: Share,
}

impl ValueShape {
    /// Values of one size that cannot be compressed.
    #[must_use]
    pub const fn of(size: usize) -> Self {
        Self { least: size, most: size, random: Share::ALL }
    }

    /// Mean size, bytes.
    #[must_use]
    pub const fn mean(&self) -> usize {
        usize::midpoint(self.least, self.most)
    }
}

/// Makes and verifies values: a header of record and generation, then filler.
#[derive(Debug, Clone)]
pub struct Values {
    filler: Vec<u8>,
    shape: ValueShape,
}

/// Bytes of the value header: record and generation, 8 bytes each, little-endian.
const HEADER: usize = 16;
/// Bytes of filler that are compared at either end: all of it would cost more than the lookup.
const EDGE: usize = 8;
/// Filler is cut from a buffer this much longer than a value.
const SLIDE: usize = 1 << 16;
/// Length of a piece of filler: random bytes that are then repeated (as in RocksDB's db_bench).
const PIECE: usize = 100;

impl Values {
    /// Values of that shape.
    #[must_use]
    pub fn new(shape: ValueShape, seed: Seed) -> Self {
        let least = shape.least.max(HEADER);
        let shape = ValueShape { least, most: shape.most.max(least), ..shape };
        let mut filler = vec![0; shape.most + SLIDE];
        Xoshiro256PlusPlus::seed_from_u64(seed.derive("kv-values", 0).0).fill_bytes(&mut filler);
        let fresh = ((PIECE as f64 * shape.random.fraction()) as usize).clamp(1, PIECE);
        for piece in filler.chunks_mut(PIECE) {
            for at in fresh..piece.len() {
                piece[at] = piece[at - fresh];
            }
        }
        Self { filler, shape }
    }

    /// Length of a value, and where its filler begins.
    #[inline]
    fn cut(&self, record: u64, generation: u64) -> (usize, usize) {
        // The finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a few cycles, every bit counts.
        let mut hash = record ^ generation.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        hash ^= hash >> 31;
        let spread = (self.shape.most - self.shape.least) as u128 + 1;
        let more = (u128::from(hash) * spread) >> 64;
        (self.shape.least + more as usize, (hash % SLIDE as u64) as usize)
    }

    /// Bytes of the largest value.
    #[must_use]
    pub fn most(&self) -> usize {
        self.shape.most.max(HEADER)
    }

    /// Writes the value of (`record`, `generation`) into `out`, replacing its contents.
    #[inline]
    pub fn fill(&self, record: u64, generation: u64, out: &mut Vec<u8>) {
        let (size, start) = self.cut(record, generation);
        out.clear();
        out.extend_from_slice(&record.to_le_bytes());
        out.extend_from_slice(&generation.to_le_bytes());
        out.extend_from_slice(&self.filler[start..start + size - HEADER]);
    }

    /// Whether `value` was written for `record`, in any generation: checks its length, its header and both
    /// ends of its filler.
    #[must_use]
    pub fn check(&self, record: u64, value: &[u8]) -> bool {
        self.check_front(record, value) && self.check_end(record, value)
    }

    /// Whether the header of `value` names `record` and its size is valid. The filler, and the pattern to
    /// compare it with, are on cache lines that a lookup has not touched: fetching them for each value can
    /// cost as much as the rest of the driver.
    #[inline]
    #[must_use]
    pub fn check_quickly(&self, record: u64, value: &[u8]) -> bool {
        let sizes = self.shape.least..=self.shape.most;
        sizes.contains(&value.len()) && value.first_chunk() == Some(&record.to_le_bytes())
    }

    #[inline]
    fn check_front(&self, record: u64, value: &[u8]) -> bool {
        let Some(generation) = Self::generation(value) else { return false };
        let (size, start) = self.cut(record, generation);
        if value.len() != size || value[..8] != record.to_le_bytes() {
            return false;
        }
        let (seen, made) = (&value[HEADER..], &self.filler[start..]);
        match (seen.first_chunk::<EDGE>(), made.first_chunk::<EDGE>()) {
            // One comparison of words, no call.
            (Some(seen), Some(made)) => seen == made,
            _ => made.starts_with(seen),
        }
    }

    /// Checks the end of a value whose start is correct.
    fn check_end(&self, record: u64, value: &[u8]) -> bool {
        let Some(generation) = Self::generation(value) else { return false };
        let (size, start) = self.cut(record, generation);
        let (body, edge) = (size - HEADER, (size - HEADER).min(EDGE));
        value.ends_with(&self.filler[start + body - edge..start + body])
    }

    /// The generation in the header of a value; `None` if it is too short.
    #[must_use]
    pub fn generation(value: &[u8]) -> Option<u64> {
        Some(u64::from_le_bytes(value.get(8..HEADER)?.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys in a wrong format would only be noticed by other programs.
    #[test]
    fn keys_are_hexadecimal_digits() {
        let mut key = [0; 20];
        for record in [0, 9, 10, 15, 16, 0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210, u64::MAX] {
            write_key(record, &mut key);
            assert_eq!(key, format!("{record:016x}0000").as_bytes());
        }
    }

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
        let values = Values::new(ValueShape::of(100), Seed(1));
        let mut value = Vec::new();
        values.fill(7, 3, &mut value);
        assert_eq!(value.len(), 100);
        assert!(values.check(7, &value));
        assert!(!values.check(8, &value));
        let mut torn = value.clone();
        torn[99] ^= 1;
        assert!(!values.check(7, &torn));
        assert!(values.check_quickly(7, &torn) && !values.check_quickly(8, &torn));
        assert!(!values.check(7, &value[..99]) && !values.check_quickly(7, &value[..99]));
        assert!(!values.check(7, &[]) && !values.check_quickly(7, &[]));
        for place in [8, 16, 99] {
            values.fill(32, 1, &mut value);
            value[place] ^= 1;
            assert!(!values.check(32, &value), "byte {place}");
        }
        // With variable sizes, each record has its own.
        let values = Values::new(ValueShape { least: 100, most: 300, random: Share::ALL }, Seed(1));
        values.fill(32, 1, &mut value);
        assert!(values.check_quickly(32, &value));
        value.push(0);
        assert!(!values.check(32, &value));
        value.resize(301, 0);
        assert!(!values.check_quickly(33, &value));
    }

    /// Sizes and compressibility must be as requested, or it would be another database.
    #[test]
    fn sizes_spread_and_filler_repeats_as_asked() {
        let random = "50%".parse().unwrap();
        let values = Values::new(ValueShape { least: 100, most: 300, random }, Seed(1));
        let (mut sum, mut value) = (0, Vec::new());
        for record in 0..10_000 {
            values.fill(record, 1, &mut value);
            assert!((100..=300).contains(&value.len()) && values.check(record, &value));
            sum += value.len();
        }
        assert!((196.0..204.0).contains(&(sum as f64 / 1e4)), "{sum}");
        let repeats = values
            .filler
            .chunks(PIECE)
            .all(|piece| piece.len() < PIECE || piece[..50] == piece[50..]);
        assert!(repeats);
    }
}
