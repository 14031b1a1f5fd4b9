//! The target of block operations: one file or device, or several concatenated.
//!
//! Invariant: an operation goes to the device that its plan assigns.

use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, RawFd};

use rustix::io::{Errno, ReadWriteFlags, preadv2};
use units::Bytes;

/// Open files or devices, each addressed up to the same size.
#[derive(Debug)]
pub struct Target {
    files: Vec<File>,
    /// Bytes of each that are addressed.
    each: u64,
}

impl Target {
    /// A target of `files`, not empty, each addressed up to `each` bytes.
    ///
    /// # Panics
    /// Without a file.
    #[must_use]
    pub fn new(files: Vec<File>, each: Bytes) -> Self {
        assert!(!files.is_empty(), "a target needs a file");
        Self { files, each: each.get().max(1) }
    }

    /// A target of one file of `size` bytes.
    #[must_use]
    pub fn one(file: File, size: Bytes) -> Self {
        Self::new(vec![file], size)
    }

    /// Number of files or devices.
    #[must_use]
    pub fn devices(&self) -> u32 {
        u32::try_from(self.files.len()).unwrap_or(u32::MAX)
    }

    /// The smallest size of its files or devices, in bytes.
    pub(crate) fn smallest(&self) -> Bytes {
        use std::io::{Seek, SeekFrom};
        let size = |mut file: &File| file.seek(SeekFrom::End(0)).unwrap_or(0);
        Bytes(self.files.iter().map(size).min().unwrap_or(0))
    }

    /// Bytes of each that are addressed.
    pub(crate) fn each(&self) -> Bytes {
        Bytes(self.each)
    }

    /// Whether it takes requests without blocking (`RWF_NOWAIT`). For others, such as zram, brd and md,
    /// io_uring gives every request to a worker thread.
    pub(crate) fn takes_nowait(&self) -> bool {
        const BYTES: usize = 4096;
        let mut space = vec![0u8; 2 * BYTES];
        let start = space.as_ptr().align_offset(BYTES);
        let parts = &mut [IoSliceMut::new(&mut space[start..start + BYTES])];
        let mut read = |file| preadv2(file, parts, 0, ReadWriteFlags::NOWAIT);
        self.files.iter().all(|file| read(file) != Err(Errno::OPNOTSUPP))
    }

    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        self.files.iter().map(AsRawFd::as_raw_fd).collect()
    }

    /// The index of the file that contains byte `offset`, and the offset in it.
    #[inline]
    pub(crate) fn locate(&self, offset: u64) -> (usize, u64) {
        if self.files.len() == 1 {
            return (0, offset);
        }
        ((offset / self.each) as usize, offset % self.each)
    }

    #[inline]
    pub(crate) fn file(&self, place: usize) -> &File {
        &self.files[place]
    }
}
