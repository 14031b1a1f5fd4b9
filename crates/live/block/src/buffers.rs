//! Aligned buffers, one for each operation in flight.
//!
//! Invariant: each buffer is aligned for O_DIRECT and stays where it is for the life of the pool.
//! What it is not: growable.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::Seed;

/// Alignment that O_DIRECT asks for at most.
const ALIGNMENT: usize = 4096;

/// `count` buffers of `size` bytes, filled with incompressible data.
#[derive(Debug)]
pub(crate) struct Buffers {
    space: Vec<u8>,
    start: usize,
    /// Distance between buffers: the size, rounded up to the alignment.
    stride: usize,
    size: usize,
    /// Stamped into every write, so that no two blocks written are equal.
    stamp: u64,
}

impl Buffers {
    pub fn new(count: usize, size: usize, seed: Seed) -> Self {
        let stride = size.next_multiple_of(ALIGNMENT);
        let mut space = vec![0; count * stride + ALIGNMENT];
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed.derive("payload", 0).0);
        random.fill_bytes(&mut space);
        let start = space.as_ptr().align_offset(ALIGNMENT);
        Self { space, start, stride, size, stamp: seed.0 }
    }

    /// Buffer `index`.
    #[inline]
    pub fn get(&mut self, index: usize) -> &mut [u8] {
        let from = self.start + index * self.stride;
        &mut self.space[from..from + self.size]
    }

    /// Never gives the memory back: something may still write to it.
    pub fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.space));
    }

    /// Buffer `index`, made different from everything written before.
    #[inline]
    pub fn stamped(&mut self, index: usize) -> &mut [u8] {
        self.stamp = self.stamp.wrapping_add(1);
        let stamp = self.stamp.to_le_bytes();
        let buffer = self.get(index);
        buffer[..8].copy_from_slice(&stamp);
        buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_apart() {
        let mut buffers = Buffers::new(3, 512, Seed(1));
        let starts: Vec<_> = (0..3).map(|index| buffers.get(index).as_ptr() as usize).collect();
        assert!(starts.iter().all(|start| start % ALIGNMENT == 0));
        assert_eq!(starts[1] - starts[0], ALIGNMENT);
        let first = buffers.stamped(0).to_vec();
        assert_ne!(first, buffers.stamped(0));
    }
}
