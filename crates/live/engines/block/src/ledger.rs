//! Expected contents of every block of a target: the last acknowledged and the last issued write.
//!
//! The ledger is a mapped file, so it survives the program (also SIGKILL), and a later one can verify the
//! target. It does not survive a power cut. Invariant: a block's entry is changed by one client only, before
//! its write is issued and after it is acknowledged.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use units::Bytes;
use workload::stamp::Expected;

/// First word of a ledger file.
const MAGIC: u64 = 0x4C45_4447_4552_0001;
/// Words before the entries: magic, run, block size, blocks.
const HEADER: usize = 4;

/// Entries of a target's blocks.
#[derive(Debug)]
pub struct Ledger {
    words: *mut AtomicU64,
    count: usize,
    run: u64,
    block: u64,
    blocks: u64,
    /// Reads that were checked with it.
    checked: AtomicU64,
}

// SAFETY: the mapping is shared memory of atomic words that lives as long as the ledger.
unsafe impl Send for Ledger {}
// SAFETY: as above; all access after construction is atomic.
unsafe impl Sync for Ledger {}

impl Ledger {
    /// Reads that were checked with it since it was opened.
    #[must_use]
    pub fn checked(&self) -> u64 {
        self.checked.load(Ordering::Relaxed)
    }

    /// Counts one more checked read.
    pub(crate) fn count_check(&self) {
        self.checked.fetch_add(1, Ordering::Relaxed);
    }

    /// Opens the ledger at `path`, or creates one for `span` bytes in blocks of `block` bytes with the stamp
    /// `run`. Returns whether it existed.
    ///
    /// # Errors
    /// The file cannot be created or mapped, or is a ledger of another shape.
    pub fn open(path: &Path, run: u64, block: Bytes, span: Bytes) -> io::Result<(Self, bool)> {
        let blocks = span.get() / block.get().max(1);
        let count = HEADER + usize::try_from(blocks).map_err(io::Error::other)?;
        let bytes = count * size_of::<AtomicU64>();
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let existed = file.metadata()?.len() > 0;
        if existed && file.metadata()?.len() != bytes as u64 {
            return Err(io::Error::other("it is the ledger of a target of another size"));
        }
        file.set_len(bytes as u64)?;
        let (words, block_bytes) = (map(&file, bytes)?, block.get());
        let checked = AtomicU64::new(0);
        let mut ledger = Self { words, count, run, block: block_bytes, blocks, checked };
        let header = [MAGIC, run, block.get(), blocks];
        if existed {
            let found: Vec<u64> =
                (0..HEADER).map(|at| ledger.word(at).load(Ordering::Relaxed)).collect();
            if found[0] != MAGIC || found[2..] != header[2..] {
                return Err(io::Error::other("it is not a ledger of these blocks"));
            }
            ledger.run = found[1];
        } else {
            for (at, value) in header.into_iter().enumerate() {
                ledger.word(at).store(value, Ordering::Relaxed);
            }
        }
        Ok((ledger, existed))
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at < self.count, "entry outside the ledger");
        // SAFETY: `at` is inside the mapping, which is aligned to pages and lives as long as `self`.
        unsafe { &*self.words.add(at) }
    }

    fn entry(&self, offset: u64) -> &AtomicU64 {
        self.word(HEADER + (offset / self.block) as usize)
    }

    /// The id that blocks are stamped with.
    #[must_use]
    pub fn run(&self) -> u64 {
        self.run
    }

    /// Bytes of a block.
    #[must_use]
    pub fn block(&self) -> Bytes {
        Bytes(self.block)
    }

    /// Expected contents of the block at byte `offset`.
    #[must_use]
    pub fn expected(&self, offset: u64) -> Expected {
        let word = self.entry(offset).load(Ordering::Relaxed);
        Expected { acknowledged: word as u32, issued: (word >> 32) as u32 }
    }

    /// Records that the block is about to be written; returns the generation of that write.
    pub(crate) fn issue(&self, offset: u64) -> u32 {
        let before = self.expected(offset);
        let next = before.issued.max(before.acknowledged) + 1;
        let word = u64::from(next) << 32 | u64::from(before.acknowledged);
        self.entry(offset).store(word, Ordering::Relaxed);
        next
    }

    /// Notes that the last write of the block was acknowledged.
    pub(crate) fn acknowledge(&self, offset: u64) {
        let issued = u64::from(self.expected(offset).issued);
        self.entry(offset).store(issued << 32 | issued, Ordering::Relaxed);
    }

    /// Offsets of the blocks that hold an acknowledged write.
    pub fn acknowledged(&self) -> impl Iterator<Item = u64> + '_ {
        let offsets = (0..self.blocks).map(|number| number * self.block);
        offsets.filter(|offset| self.expected(*offset).acknowledged > 0)
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this size and nothing refers to it any more.
        let _ = unsafe { munmap(self.words.cast(), self.count * size_of::<AtomicU64>()) };
    }
}

fn map(file: &File, bytes: usize) -> io::Result<*mut AtomicU64> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh shared mapping of an open file that has that many bytes; the kernel picks the place.
    let place = unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, file, 0)? };
    Ok(place.cast())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes acknowledged before a kill must be known to the next process.
    #[test]
    fn entries_outlive_the_ledger() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ledger");
        let open = || Ledger::open(&path, 7, Bytes(4096), Bytes::mib(1)).unwrap();
        let (ledger, existed) = open();
        assert!(!existed);
        assert_eq!(ledger.issue(8192), 1);
        ledger.acknowledge(8192);
        assert_eq!(ledger.issue(8192), 2);
        drop(ledger);
        let (ledger, existed) = open();
        assert!(existed);
        assert_eq!(ledger.expected(8192), Expected { acknowledged: 1, issued: 2 });
        assert_eq!(ledger.acknowledged().collect::<Vec<_>>(), [8192]);
        drop(ledger);
        assert!(Ledger::open(&path, 7, Bytes(4096), Bytes::mib(2)).is_err());
    }
}
