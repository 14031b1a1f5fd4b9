//! Opens targets with O_NOATIME, so that reads update no access times.
//!
//! Invariant: files that cannot be opened that way (only the owner and root may) are opened as usual.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// How a file under test is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenMode {
    /// Also for writing.
    pub write: bool,
    /// With `O_DIRECT`.
    pub direct: bool,
}

/// Opens the existing `path` without access times if allowed.
///
/// # Errors
/// As [`OpenOptions::open`].
pub fn open_quietly(path: &Path, mode: OpenMode) -> io::Result<File> {
    let direct = if mode.direct { libc::O_DIRECT } else { 0 };
    let with =
        |flags: i32| OpenOptions::new().read(true).write(mode.write).custom_flags(flags).open(path);
    with(direct | libc::O_NOATIME).or_else(|error| match error.raw_os_error() {
        Some(libc::EPERM) => with(direct),
        _ => Err(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    /// A user without privileges must be able to measure another user's file.
    #[test]
    fn what_is_ours_is_read_without_a_trace_and_the_rest_is_read() {
        let mode = OpenMode { write: false, direct: false };
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("own");
        std::fs::write(&own, "x").unwrap();
        let flags = |file: &File| rustix::fs::fcntl_getfl(file).unwrap();
        let file = open_quietly(&own, mode).unwrap();
        assert!(flags(&file).contains(rustix::fs::OFlags::NOATIME));
        // Root may do this for every file; for other users this one belongs to root.
        let mut text = String::new();
        let mut others = open_quietly(Path::new("/etc/passwd"), mode).unwrap();
        others.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("root:"));
        assert!(open_quietly(&dir.path().join("none"), mode).is_err());
    }
}
