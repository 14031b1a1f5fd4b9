//! Writing a result into a file that the user names.
//!
//! Invariants: a reader never sees half of a result; a file that we did not make is not replaced unless the
//! user says so; what is no file (`/dev/stdout`, a pipe) is written through; nothing beside the result is
//! touched.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::show::Failure;

/// What every page and picture of ours has in its beginning. Studies and profiles have none: they are made
/// to be edited.
const MARKS: [&[u8]; 2] =
    [b"name=\"generator\" content=\"crosspoint", b"<!-- made by crosspoint -->"];
/// Bytes in which the mark stands.
const BEGINNING: u64 = 2048;

/// Held while a result is written aside: who leaves the program in the middle would leave half of it.
static WRITING: Mutex<()> = Mutex::new(());
/// A disk that takes longer than this for a result is not waited for by who leaves.
const SETTLES_IN: Duration = Duration::from_secs(1);

/// Waits for a result that is being written, and lets no other begin; before the program is left.
pub fn settle() {
    let until = Instant::now() + SETTLES_IN;
    loop {
        match WRITING.try_lock() {
            Err(TryLockError::WouldBlock) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(5));
            }
            held => return std::mem::forget(held),
        }
    }
}

/// What to do with a file that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum There {
    /// Replace it only if it carries our mark.
    Ours,
    /// Replace it: the user said so, or it lies in a run folder of ours.
    Any,
}

impl There {
    /// By the word of the user.
    pub const fn or_any(force: bool) -> Self {
        if force { Self::Any } else { Self::Ours }
    }
}

/// Writes `text` to `path`.
///
/// # Errors
/// [`Failure::Output`]; then what was there is still there.
pub fn write(text: &str, path: &Path, there: There) -> Result<(), Failure> {
    write_bytes(text.as_bytes(), path, there)
}

/// As [`write()`], of what is no text.
///
/// # Errors
/// As [`write()`].
pub fn write_bytes(bytes: &[u8], path: &Path, there: There) -> Result<(), Failure> {
    put(bytes, path, there).map_err(|error| Failure::Output(path.display().to_string(), error))
}

/// Refuses where a result that differs from what is there would be refused, before the work for it is done.
///
/// # Errors
/// As [`write()`].
pub fn refused(path: &Path, there: There) -> Result<(), Failure> {
    takes(path, there).map_err(|error| Failure::Output(path.display().to_string(), error))
}

fn takes(path: &Path, there: There) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(data) if data.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(data) if data.is_file() && there == There::Ours && !is_ours(path)? => {
            Err(io::Error::other(NOT_OURS))
        }
        Ok(_) => Ok(()),
        // Not through a link to nothing, which could not be put in place either.
        Err(error) if error.kind() == io::ErrorKind::NotFound && !path.is_symlink() => {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let parent = parent.unwrap_or_else(|| Path::new("."));
            rustix::fs::access(parent, rustix::fs::Access::WRITE_OK)?;
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// What is not replaced.
const NOT_OURS: &str = "a file is there that Crosspoint did not make, or that was made to be edited; --force \
                        replaces it";

fn put(bytes: &[u8], path: &Path, there: There) -> io::Result<()> {
    let (target, replace) = match fs::metadata(path) {
        Ok(data) if data.is_file() => {
            // Through links to the file itself; its neighbours are not ours.
            let target = fs::canonicalize(path)?;
            if data.len() == bytes.len() as u64 && fs::read(&target)? == bytes {
                return Ok(());
            }
            if there == There::Ours && !is_ours(&target)? {
                return Err(io::Error::other(NOT_OURS));
            }
            (target, true)
        }
        Ok(data) if data.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
        Ok(_) => {
            let written = OpenOptions::new().write(true).open(path)?.write_all(bytes);
            return match written {
                // A reader that has gone away wanted no more.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                written => written,
            };
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => (path.to_owned(), false),
        Err(error) => return Err(error),
    };
    let aside = beside(&target);
    let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let written = write_aside(bytes, &aside).and_then(|()| {
        if replace {
            fs::set_permissions(&aside, fs::metadata(&target)?.permissions())?;
        }
        let flags = if replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        match renameat_with(CWD, &aside, CWD, &target, flags) {
            // A file system that cannot promise it; looked at a moment ago.
            Err(rustix::io::Errno::INVAL) => fs::rename(&aside, &target),
            other => other.map_err(Into::into),
        }
    });
    if written.is_err() {
        let _ = fs::remove_file(&aside);
    }
    written
}

/// A name that nothing has, in the same directory.
fn beside(target: &Path) -> PathBuf {
    target.with_file_name(format!(".crosspoint-{}.writing", stack::random_hex(16)))
}

fn write_aside(bytes: &[u8], aside: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).custom_flags(libc::O_NOFOLLOW);
    let mut file = options.open(aside)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Whether a page is there that this program made, to its end; a link or a directory is none.
pub fn is_whole_page(path: &Path) -> bool {
    let file = std::fs::symlink_metadata(path).is_ok_and(|facts| facts.is_file());
    let whole =
        || std::fs::read(path).is_ok_and(|page| page.trim_ascii_end().ends_with(b"</html>"));
    file && is_ours(path).unwrap_or(false) && whole()
}

fn is_ours(path: &Path) -> io::Result<bool> {
    let mut beginning = Vec::new();
    File::open(path)?.take(BEGINNING).read_to_end(&mut beginning)?;
    let has = |mark: &&[u8]| beginning.windows(mark.len()).any(|part| part == *mark);
    Ok(MARKS.iter().any(has))
}

/// Writes the page of some runs.
pub(crate) fn write_page(
    runs: &[archive::Run],
    output: &Path,
    there: There,
) -> Result<(), Failure> {
    let page = report::html(runs).map_err(Failure::Report)?;
    write(&page, output, there)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_we_made_is_replaced_and_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.html");
        let neighbours = ["a.html.tmp", "a.tmp"].map(|name| dir.path().join(name));
        for neighbour in &neighbours {
            fs::write(neighbour, "mine").unwrap();
        }
        fs::write(&path, "mine").unwrap();
        assert!(write("x", &path, There::Ours).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        write("<meta name=\"generator\" content=\"crosspoint 1\">", &path, There::Any).unwrap();
        write("second", &path, There::Ours).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "second");
        assert!(neighbours.iter().all(|one| fs::read_to_string(one).unwrap() == "mine"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
    }

    /// `-o /dev/null` must not make a file of the device.
    #[test]
    fn what_is_no_file_is_written_through() {
        let path = Path::new("/dev/null");
        write("x", path, There::Ours).unwrap();
        assert!(!fs::metadata(path).unwrap().is_file());
    }
}
