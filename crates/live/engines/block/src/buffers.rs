//! Aligned buffers, one per operation in flight.
//!
//! Invariants: each buffer is aligned for O_DIRECT and never moves; no two pages written are equal, so that
//! no layer can deduplicate them.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Seed, Share};

/// Largest alignment for O_DIRECT, and the unit of deduplication.
const PAGE: usize = 4096;
/// Unit of the random share of a payload.
const CHUNK: usize = 512;

/// `count` buffers of `size` bytes.
#[derive(Debug)]
pub(crate) struct Buffers {
    space: Vec<u8>,
    start: usize,
    /// Distance between buffers: the size, rounded up to the alignment.
    stride: usize,
    size: usize,
    /// Stamp of every written page.
    stamp: u64,
}

impl Buffers {
    /// Buffers whose `random` share cannot be compressed; the rest of every 512 bytes is zero.
    pub fn new(count: usize, size: usize, random: Share, seed: Seed) -> Self {
        let stride = size.next_multiple_of(PAGE);
        let mut space = vec![0; count * stride + PAGE];
        let mut draws = Xoshiro256PlusPlus::seed_from_u64(seed.derive("payload", 0).0);
        let start = space.as_ptr().align_offset(PAGE);
        let filled = ((CHUNK as f64 * random.fraction()) as usize).clamp(8, CHUNK);
        for chunk in space[start..].chunks_mut(CHUNK) {
            let filled = filled.min(chunk.len());
            draws.fill_bytes(&mut chunk[..filled]);
        }
        Self { space, start, stride, size, stamp: seed.0 }
    }

    #[inline]
    pub fn get(&mut self, index: usize) -> &mut [u8] {
        let from = self.start + index * self.stride;
        &mut self.space[from..from + self.size]
    }

    /// Leaks the memory, because something may still write to it.
    pub fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.space));
    }

    /// The first `length` bytes of buffer `index`, every page different from all earlier ones.
    #[inline]
    pub fn stamped(&mut self, index: usize, length: usize) -> &mut [u8] {
        let from = self.start + index * self.stride;
        let buffer = &mut self.space[from..from + length];
        for page in buffer.chunks_mut(PAGE) {
            self.stamp = self.stamp.wrapping_add(1);
            page[..8].copy_from_slice(&self.stamp.to_le_bytes());
        }
        buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_apart() {
        let mut buffers = Buffers::new(3, 512, Share::ALL, Seed(1));
        let starts: Vec<_> = (0..3).map(|index| buffers.get(index).as_ptr() as usize).collect();
        assert!(starts.iter().all(|start| start % PAGE == 0));
        assert_eq!(starts[1] - starts[0], PAGE);
        let first = buffers.stamped(0, 512).to_vec();
        assert_ne!(first, buffers.stamped(0, 512));
    }

    /// Deduplicating storage would otherwise store equal pages once.
    #[test]
    fn pages_of_large_writes_differ_from_each_other_and_from_the_last_write() {
        let mut buffers = Buffers::new(1, 65536, "25%".parse().unwrap(), Seed(1));
        let mut pages: Vec<Vec<u8>> = Vec::new();
        for _ in 0..2 {
            pages.extend(buffers.stamped(0, 65536).chunks(PAGE).map(<[u8]>::to_vec));
        }
        assert!(pages[0][128..512].iter().all(|byte| *byte == 0), "three quarters are zero");
        pages.sort_unstable();
        pages.dedup();
        assert_eq!(pages.len(), 32);
    }
}
