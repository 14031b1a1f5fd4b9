//! Opening what is measured without an access time to keep: each read would have to look at it.
//!
//! Invariant: what cannot be opened so (only the owner and root may) is opened as usual. What it is not: a
//! choice of how data goes; that is the caller's.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Opens `path` with `options` and `flags`, without access times where that is allowed.
///
/// # Errors
/// As [`OpenOptions::open`].
pub fn open_quietly(options: &OpenOptions, flags: i32, path: &Path) -> io::Result<File> {
    let with = |flags: i32| options.clone().custom_flags(flags).open(path);
    with(flags | libc::O_NOATIME).or_else(|error| match error.raw_os_error() {
        Some(libc::EPERM) => with(flags),
        _ => Err(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    /// A user without privileges must be able to measure a file that is somebody else's.
    #[test]
    fn what_is_ours_is_read_without_a_trace_and_the_rest_is_read() {
        let mut options = OpenOptions::new();
        options.read(true);
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("own");
        std::fs::write(&own, "x").unwrap();
        let flags = |file: &File| rustix::fs::fcntl_getfl(file).unwrap();
        let file = open_quietly(&options, 0, &own).unwrap();
        assert!(flags(&file).contains(rustix::fs::OFlags::NOATIME));
        // Root may read all so; for others this is root's.
        let mut text = String::new();
        let mut others = open_quietly(&options, 0, Path::new("/etc/passwd")).unwrap();
        others.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("root:"));
        assert!(open_quietly(&options, 0, &dir.path().join("none")).is_err());
    }
}
