//! The temporary file of block trials.
//!
//! Filled with incompressible data before the first trial, so that no read is served from a hole and no
//! device can compress it. Invariants: space is checked before the first byte; a failed or stopped fill
//! leaves no file.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Bytes, Seed};

use crate::{StackError, direct_io_works, free_space};

/// A filled file.
#[derive(Debug)]
pub struct TestFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its size.
    pub size: Bytes,
}

const FILL_BLOCK: usize = 1 << 20;
/// Largest alignment for O_DIRECT.
const ALIGNMENT: usize = 4096;
/// Space that must stay free.
const MARGIN: Bytes = Bytes::mib(64);

/// Creates and fills a file of `size` bytes at `path`. `step` receives the bytes done and returns whether to
/// continue; otherwise the file is removed and the result is `None`.
///
/// # Errors
/// No space, no direct I/O, or a failed write.
pub fn fill(
    path: &Path,
    size: Bytes,
    direct: bool,
    step: &mut dyn FnMut(Bytes) -> bool,
) -> Result<Option<TestFile>, StackError> {
    let dir = path.parent().unwrap_or(path);
    if direct && !direct_io_works(dir)? {
        let file_system = observe::StorageFacts::read(dir).file_system;
        return Err(StackError::NoDirectIo { path: dir.into(), file_system });
    }
    let (free, needed) = (free_space(dir)?, Bytes(size.get().saturating_add(MARGIN.get())));
    if free < needed {
        return Err(StackError::NoSpace { path: dir.into(), free, needed });
    }
    let filled = write_all(path, size, direct, step);
    if !matches!(filled, Ok(true)) {
        let _ = fs::remove_file(path);
    }
    let whole = filled.map_err(StackError::io("fill", path))?;
    Ok(whole.then(|| TestFile { path: path.into(), size }))
}

fn write_all(
    path: &Path,
    size: Bytes,
    direct: bool,
    step: &mut dyn FnMut(Bytes) -> bool,
) -> std::io::Result<bool> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    if direct {
        options.custom_flags(libc::O_DIRECT);
    }
    let file: File = options.open(path)?;
    let mut space = vec![0u8; FILL_BLOCK + ALIGNMENT];
    let start = space.as_ptr().align_offset(ALIGNMENT);
    let block = &mut space[start..start + FILL_BLOCK];
    let mut random = Xoshiro256PlusPlus::seed_from_u64(Seed(0).derive("fill", 0).0);
    random.fill_bytes(block);
    let mut done = 0u64;
    while done < size.get() {
        // A new random word in every 4 KiB keeps blocks different without generating a gigabyte of random
        // data.
        for page in block.chunks_mut(ALIGNMENT) {
            page[..8].copy_from_slice(&random.next_u64().to_le_bytes());
        }
        let left = usize::try_from(size.get() - done).unwrap_or(usize::MAX).min(FILL_BLOCK);
        let whole_sectors = left.next_multiple_of(512).min(FILL_BLOCK);
        file.write_all_at(&block[..whole_sectors], done)?;
        done += left as u64;
        if !step(Bytes(done)) {
            return Ok(false);
        }
    }
    file.sync_all()?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filled_file_has_no_two_equal_pages() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let file = fill(&path, Bytes::mib(3), false, &mut |_| true).unwrap().unwrap();
        let bytes = fs::read(&file.path).unwrap();
        assert_eq!(bytes.len() as u64, Bytes::mib(3).get());
        let mut heads: Vec<_> = bytes.chunks(4096).map(|page| &page[..8]).collect();
        heads.sort_unstable();
        heads.dedup();
        assert_eq!(heads.len(), 3 * 256);
    }

    #[test]
    fn a_stopped_fill_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        assert!(fill(&path, Bytes::mib(8), false, &mut |_| false).unwrap().is_none());
        assert!(!path.exists());
    }

    #[test]
    fn too_little_space_is_told_before_the_first_byte() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let error = fill(&path, Bytes(1 << 60), false, &mut |_| true).unwrap_err();
        assert!(matches!(error, StackError::NoSpace { .. }), "{error}");
        assert!(!path.exists());
    }
}
