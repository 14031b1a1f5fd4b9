//! The data of an emulated disk: a sparse file, or memory.
//!
//! Invariants: unwritten ranges read as zeros; nothing beyond the size is accessed. Timing is up to the
//! model.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, FlockOperation, MemfdFlags, fallocate, flock, memfd_create};
use units::Bytes;

/// The data of a disk.
#[derive(Debug)]
pub struct Store {
    file: File,
    size: Bytes,
}

impl Store {
    /// A disk of `size` in memory, which uses memory only for written parts.
    ///
    /// # Errors
    /// If the kernel cannot create the file.
    pub fn in_memory(size: Bytes) -> io::Result<Self> {
        let file = File::from(memfd_create("crosspoint-disk", MemfdFlags::CLOEXEC)?);
        file.set_len(size.get())?;
        Ok(Self { file, size })
    }

    /// A disk of `size` in the file at `path`, created if needed; existing data stays. It is locked against
    /// other attaches.
    ///
    /// # Errors
    /// If it cannot be created, has another size, or is already attached.
    pub fn in_file(path: &Path, size: Bytes) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
        let file = options.open(path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
            match error == rustix::io::Errno::WOULDBLOCK {
                true => {
                    io::Error::new(io::ErrorKind::ResourceBusy, "a disk is already attached to it")
                }
                false => error.into(),
            }
        })?;
        let data = file.metadata()?;
        if !data.is_file() || data.uid() != rustix::process::geteuid().as_raw() {
            return Err(io::Error::other("it is not a file of this user"));
        }
        match data.len() {
            0 => file.set_len(size.get())?,
            there if there == size.get() => {}
            there => {
                let there = Bytes(there);
                return Err(io::Error::other(format!("it holds a disk of {there}, not of {size}")));
            }
        }
        Ok(Self { file, size })
    }

    /// Its size.
    #[must_use]
    pub const fn size(&self) -> Bytes {
        self.size
    }

    /// Memory, or space in the underlying file system, that it occupies, bytes.
    ///
    /// # Errors
    /// I/O errors of the underlying file.
    pub fn used(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.blocks() * 512)
    }

    /// Reads from `offset`; returns the number of bytes, fewer at the end of the disk.
    ///
    /// # Errors
    /// I/O errors of the underlying file.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let length = self.within(offset, into.len());
        self.file.read_exact_at(&mut into[..length], offset)?;
        Ok(length)
    }

    /// Writes at `offset`.
    ///
    /// # Errors
    /// `ENOSPC` beyond the end of the disk, and if the underlying file system is full.
    pub fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if self.within(offset, data.len()) < data.len() {
            return Err(io::Error::from(rustix::io::Errno::NOSPC));
        }
        self.file.write_all_at(data, offset)
    }

    /// Discards a range: it reads as zeros and occupies no space.
    ///
    /// # Errors
    /// I/O errors of the underlying file.
    pub fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        let length = length.min(self.size.get().saturating_sub(offset));
        if length == 0 {
            return Ok(());
        }
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.file, how, offset, length)?)
    }

    /// Copies everything to a new sparse file.
    ///
    /// # Errors
    /// The file exists or cannot be written; it is removed then.
    pub fn copy_to(&self, path: &Path) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(path)?;
        self.copy_into(&file).inspect_err(|_| {
            let _ = std::fs::remove_file(path);
        })
    }

    fn copy_into(&self, file: &File) -> io::Result<()> {
        const PIECE: usize = 64 << 10;
        file.set_len(self.size.get())?;
        let mut piece = vec![0; PIECE];
        for offset in (0..self.size.get()).step_by(PIECE) {
            let length = self.read(offset, &mut piece)?;
            if piece[..length].iter().any(|byte| *byte != 0) {
                file.write_all_at(&piece[..length], offset)?;
            }
        }
        Ok(())
    }

    /// How many of `length` bytes at `offset` are within the size.
    fn within(&self, offset: u64, length: usize) -> usize {
        let left = self.size.get().saturating_sub(offset);
        length.min(usize::try_from(left).unwrap_or(usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_what_was_not_is_zero() {
        let store = Store::in_memory(Bytes(1 << 20)).unwrap();
        store.write(8192, b"abc").unwrap();
        let mut found = [9u8; 5];
        assert_eq!(store.read(8191, &mut found).unwrap(), 5);
        assert_eq!(&found, b"\0abc\0");
        store.discard(8192, 4096).unwrap();
        store.read(8191, &mut found).unwrap();
        assert_eq!(found, [0; 5]);
        // At the end fewer bytes are read, and nothing beyond is written.
        assert_eq!(store.read((1 << 20) - 2, &mut found).unwrap(), 2);
        assert_eq!(store.read(1 << 40, &mut found).unwrap(), 0);
        assert!(store.write((1 << 20) - 2, b"abc").is_err());
        store.discard(1 << 40, 1).unwrap();
        // A copy is complete and as sparse, and replaces no file.
        store.write((512 << 10) + 7, b"abc").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let copy = dir.path().join("copy");
        store.copy_to(&copy).unwrap();
        let copied = std::fs::read(&copy).unwrap();
        assert_eq!(copied.len(), 1 << 20);
        assert_eq!(&copied[(512 << 10) + 6..][..5], b"\0abc\0");
        assert!(std::fs::metadata(&copy).unwrap().blocks() * 512 <= 256 << 10);
        assert!(store.copy_to(&copy).is_err());
    }

    /// Two disks over one file would destroy each other's data.
    #[test]
    fn a_file_is_attached_once_and_keeps_its_size() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        let store = Store::in_file(&path, Bytes(1 << 20)).unwrap();
        store.write(0, b"kept").unwrap();
        let twice = Store::in_file(&path, Bytes(1 << 20)).unwrap_err().to_string();
        assert!(twice.contains("already attached to it"), "{twice}");
        drop(store);
        let other = Store::in_file(&path, Bytes(1 << 21)).unwrap_err().to_string();
        assert!(other.contains("1.00 MiB") || other.contains("1 MiB"), "{other}");
        let mut found = [0u8; 4];
        Store::in_file(&path, Bytes(1 << 20)).unwrap().read(0, &mut found).unwrap();
        assert_eq!(&found, b"kept");
    }
}
