//! Capabilities of a directory: free space, direct I/O.
//!
//! Invariant: leaves nothing behind.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use units::Bytes;

use crate::{StackError, random_hex};

/// Bytes available to this user on the file system of `path`.
///
/// # Errors
/// If the path does not exist.
pub fn free_space(path: &Path) -> Result<Bytes, StackError> {
    let facts = rustix::fs::statvfs(path)
        .map_err(|error| StackError::io("ask for free space of", path)(error.into()))?;
    Ok(Bytes(facts.f_bavail.saturating_mul(facts.f_frsize)))
}

/// Whether a file in `dir` can be opened with O_DIRECT.
///
/// # Errors
/// If no file can be created there at all.
pub fn direct_io_works(dir: &Path) -> Result<bool, StackError> {
    // A file without a name; otherwise one with an unpredictable name.
    let open = |flags: i32, path: &Path| {
        let mut options = OpenOptions::new();
        options.write(true).mode(0o600).custom_flags(libc::O_DIRECT | flags);
        if flags & libc::O_TMPFILE != libc::O_TMPFILE {
            options.create_new(true);
        }
        options.open(path)
    };
    let mut opened = open(libc::O_TMPFILE, dir);
    if opened.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EOPNOTSUPP)) {
        let path = dir.join(format!(".crosspoint-probe-{}", random_hex(16)));
        opened = open(libc::O_NOFOLLOW, &path);
        if opened.is_ok() {
            let _ = fs::remove_file(&path);
        }
    }
    match opened {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(false),
        Err(error) => Err(StackError::io("write to directory", dir)(error)),
    }
}

/// Largest alignment for O_DIRECT.
const ALIGNMENT: usize = 4096;

/// Whether the open `file` can be read in requests of `bytes`.
#[must_use]
pub fn reads_of(file: &File, bytes: u32) -> bool {
    let bytes = bytes as usize;
    let mut space = vec![0u8; bytes + ALIGNMENT];
    let start = space.as_ptr().align_offset(ALIGNMENT);
    file.read_exact_at(&mut space[start..start + bytes], 0).is_ok()
}
