//! Putting a closed database out of the page cache, so that the next reader starts cold.
//!
//! Invariant: needs no privilege; touches only the files of one directory. What it is not: a limit on
//! memory; what is read afterwards is cached again.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rustix::fs::{Advice, fadvise};

/// Writes back and drops from the page cache every file in `dir`. Files that are mapped or open
/// elsewhere may stay.
///
/// # Errors
/// When a file can not be opened or written back.
pub fn evict(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_file() {
            let file = File::open(&path)?;
            file.sync_all()?;
            fadvise(&file, 0, None, Advice::DontNeed)?;
        }
    }
    Ok(())
}
