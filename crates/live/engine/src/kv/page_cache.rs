//! Evicts a closed database from the page cache, for a cold start; and measures residency.
//!
//! Invariant: needs no privilege; touches only the files of one directory, or one device.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use units::Bytes;

/// Writes back and evicts every file in the directory `place`, or the device. Files that are mapped or open
/// elsewhere may stay.
///
/// # Errors
/// If a file cannot be opened or written back.
pub fn evict(place: &Path) -> io::Result<()> {
    for path in files_of(place)? {
        let file = File::open(&path)?;
        file.sync_all()?;
        // Called through the C library, which a simulation replaces. SAFETY: an open file.
        let code =
            unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        if code != 0 {
            return Err(io::Error::from_raw_os_error(code));
        }
    }
    Ok(())
}

/// The files in a directory, or the device itself.
fn files_of(place: &Path) -> io::Result<Vec<PathBuf>> {
    if fs::metadata(place)?.file_type().is_block_device() {
        return Ok(vec![place.to_owned()]);
    }
    let paths = fs::read_dir(place)?.map(|entry| Ok(entry?.path()));
    let paths: io::Result<Vec<PathBuf>> = paths.collect();
    Ok(paths?.into_iter().filter(|path| path.is_file()).collect())
}

/// Residency of a database in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Residency {
    /// Bytes in the page cache.
    pub resident: Bytes,
    /// Bytes of its files.
    pub whole: Bytes,
}

impl Residency {
    /// The resident share, 0 to 1; 0 for an empty file.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.resident.get() as f64 / self.whole.get().max(1) as f64
    }
}

/// Residency of the files in `place`, or of the device, by mincore(2). Holes count as not resident; files
/// removed meanwhile are skipped.
///
/// # Errors
/// If a file cannot be read or mapped.
pub fn residency(place: &Path) -> io::Result<Residency> {
    let mut sum = Residency::default();
    for path in files_of(place)? {
        let mut file = match File::open(&path) {
            // Engines remove files while they work.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        // The only way to get a device's size.
        let length = file.seek(SeekFrom::End(0))?;
        // For a file the allocated parts; for a device its length.
        let data = file.metadata()?;
        let taken = if data.is_file() { length.min(data.blocks() * 512) } else { length };
        sum.whole = Bytes(sum.whole.get() + taken);
        let length = usize::try_from(length).unwrap_or(0);
        if length > 0 {
            let pages = resident_pages(&file, length)?;
            sum.resident = Bytes(sum.resident.get() + pages * PAGE as u64);
        }
    }
    Ok(sum)
}

/// Bytes per entry of mincore.
const PAGE: usize = 4096;

fn resident_pages(file: &File, length: usize) -> io::Result<u64> {
    let mut pages = vec![0u8; length.div_ceil(PAGE)];
    // SAFETY: a new mapping of our own, which nothing reads through.
    let map =
        unsafe { mmap(std::ptr::null_mut(), length, ProtFlags::READ, MapFlags::SHARED, file, 0)? };
    // SAFETY: the mapping is `length` long, and the vector has a byte for each of its pages.
    let answered = unsafe { libc::mincore(map, length, pages.as_mut_ptr()) };
    let failed = (answered != 0).then(io::Error::last_os_error);
    // SAFETY: mapped above, not used again.
    unsafe { munmap(map, length)? };
    match failed {
        Some(error) => Err(error),
        None => Ok(pages.iter().map(|page| u64::from(page & 1)).sum()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_resident_until_it_is_evicted() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        fs::write(dir.path().join("data"), vec![7u8; 1 << 20]).unwrap();
        let before = residency(dir.path()).unwrap();
        assert_eq!((before.whole, before.share() > 0.99), (Bytes(1 << 20), true));
        evict(dir.path()).unwrap();
        let after = residency(dir.path()).unwrap();
        assert!(after.share() < 0.01, "{after:?}");
    }
}
