//! The undo journal: everything to undo on this host, written before it is created.
//!
//! One file per process with a random name: a header line, then one JSON line per entry, synced before the
//! thing is created. Undone in reverse order when the process ends, or by [`clean`](crate::clean) after a
//! kill. Invariants: the file is locked while its process lives, and that lock defines "alive"; an entry is
//! forgotten only once it is undone.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::mark::{Mark, random_hex};
use crate::processes::end_marked;
use crate::undo::{Restore, Undo, undo};
use crate::{StackError, state};

/// Version of the journals that are written and undone.
pub(crate) const FORMAT: u32 = 2;

/// Time for loop devices to disappear when this process, which may have them open, undoes its own work.
const OWN_PATIENCE: Duration = Duration::from_secs(1);

/// First line of a journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Header {
    pub journal: u32,
    pub mark: String,
    /// For people; nothing depends on it.
    pub process: u32,
}

/// Entries of a process, and the file that they are in.
#[derive(Debug, Default)]
struct Notes {
    entries: Vec<Undo>,
    /// Locked; `None` before the first entry.
    file: Option<(PathBuf, File)>,
}

/// The journal of this process.
#[derive(Debug)]
pub struct Journal {
    state: PathBuf,
    mark: Mark,
    restore: Restore,
    notes: Mutex<Notes>,
    /// Number of work areas and groups so far, for their names.
    made: AtomicU32,
}

/// The journals whose processes have ended.
fn of_the_dead(state: &Path) -> Result<Vec<String>, StackError> {
    let Some(dir) = state::journals_there(state)? else { return Ok(Vec::new()) };
    let entries = fs::read_dir(&dir).map_err(StackError::io("read", &dir))?;
    let text = |path: PathBuf| {
        // Do not block on a FIFO.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(&path).ok()?;
        // A living process's journal is locked.
        file.try_lock_shared().ok()?;
        Some(fs::read_to_string(&path).unwrap_or_default())
    };
    Ok(entries.flatten().filter_map(|entry| text(entry.path())).collect())
}

/// Number of ended processes, mostly killed ones, that left something on this host: [`clean`](crate::clean)
/// undoes it.
///
/// # Errors
/// If the journals cannot be read.
pub fn abandoned(state: &Path) -> Result<u32, StackError> {
    Ok(u32::try_from(of_the_dead(state)?.len()).unwrap_or(u32::MAX))
}

impl Journal {
    /// The empty journal of this process in the directory `state`; no file exists before the first entry.
    #[must_use]
    pub fn new(state: &Path, restore: Restore) -> Self {
        let (state, mark) = (state.to_owned(), Mark::random());
        Self { state, mark, restore, notes: Mutex::default(), made: AtomicU32::new(0) }
    }

    /// The mark of everything that this process creates.
    #[must_use]
    pub const fn mark(&self) -> &Mark {
        &self.mark
    }

    /// A number for the next name.
    pub(crate) fn number(&self) -> u32 {
        self.made.fetch_add(1, Ordering::Relaxed)
    }

    /// Creates the directory of journals, so that problems are found before anything is created.
    ///
    /// # Errors
    /// If it cannot be created, or others could write to it.
    pub fn prepare(&self) -> Result<(), StackError> {
        state::journals(&self.state).map(|_| ())
    }

    /// Records durably that `undo` is needed. Call it before creating the thing.
    ///
    /// # Errors
    /// If it cannot be written; then nothing may be created.
    pub fn note(&self, undo: Undo) -> Result<(), StackError> {
        let mut notes = self.notes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if notes.file.is_none() {
            notes.file = Some(self.create()?);
        }
        let (path, file) = notes.file.as_mut().expect("invariant: just made");
        write_line(file, &undo).map_err(StackError::io("write the undo journal", &*path))?;
        notes.entries.push(undo);
        Ok(())
    }

    /// Whether an ended process left a variable changed on the server of `dsn`: the same address, whatever
    /// the account and database.
    ///
    /// # Errors
    /// If the journals cannot be read.
    pub fn owed_to(&self, dsn: &str) -> Result<bool, StackError> {
        let owed = |undo: Undo| match undo {
            Undo::RestoreSetting { dsn: other, .. } => address_of(&other) == address_of(dsn),
            _ => false,
        };
        let texts = of_the_dead(&self.state)?;
        let undos = texts.iter().flat_map(|text| text.lines());
        Ok(undos.filter_map(|line| serde_json::from_str::<Undo>(line).ok()).any(owed))
    }

    /// A new journal file, locked, with its first line.
    fn create(&self) -> Result<(PathBuf, File), StackError> {
        let dir = state::journals(&self.state)?;
        loop {
            let path = dir.join(format!("{}.jsonl", random_hex(32)));
            let make = || -> io::Result<Option<File>> {
                let mut file = OpenOptions::new()
                    .create_new(true)
                    .append(true)
                    .mode(0o600)
                    .custom_flags(libc::O_NOFOLLOW)
                    .open(&path)?;
                file.try_lock().map_err(io::Error::from)?;
                // `clean` may have found and removed it before it was locked.
                let there = fs::symlink_metadata(&path).ok().map(|data| data.ino());
                if there != Some(file.metadata()?.ino()) {
                    return Ok(None);
                }
                let process = std::process::id();
                let mark = self.mark.text().to_owned();
                write_line(&mut file, &Header { journal: FORMAT, mark, process })?;
                sync_directory(&dir)?;
                Ok(Some(file))
            };
            let made = match make() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                made => made.map_err(StackError::io("make the undo journal", &path))?,
            };
            if let Some(file) = made {
                return Ok((path, file));
            }
        }
    }

    /// Undoes everything, last first, and ends the started processes; returns what could not be undone. The
    /// journal file is removed once nothing is left.
    pub fn undo_all(&self) -> Vec<String> {
        let mut notes = self.notes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut failed = Vec::new();
        if notes.file.is_some()
            && let Err(error) = end_marked(&self.mark)
        {
            failed.push(error.to_string());
        }
        let entries = std::mem::take(&mut notes.entries);
        for entry in entries.into_iter().rev() {
            if let Err(error) = undo(&entry, &self.mark, (self.restore, OWN_PATIENCE)) {
                failed.push(error.to_string());
                notes.entries.insert(0, entry);
            }
        }
        if failed.is_empty()
            && let Some((path, _)) = notes.file.take()
        {
            let _ = fs::remove_file(path);
        }
        failed
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.undo_all();
    }
}

/// The server that a dsn leads to, without account and database.
fn address_of(dsn: &str) -> &str {
    let place = dsn.rsplit_once('@').map_or(dsn, |(_, place)| place);
    let separator = if place.starts_with('/') { ':' } else { '/' };
    place.rsplit_once(separator).map_or(place, |(server, _)| server)
}

fn write_line(file: &mut File, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    file.write_all(&line)?;
    file.sync_all()
}

/// Makes a file's directory entry durable.
pub(crate) fn sync_directory(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WorkArea;

    /// For tests without a server.
    pub(crate) fn no_server(_: &str, _: &str, _: &str) -> Result<(), String> {
        Err("no server".into())
    }

    #[test]
    fn what_was_made_is_gone_when_the_run_ends() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::new(&dir.path().join("state"), no_server);
        let area = WorkArea::create(&journal, dir.path(), "disk").unwrap();
        fs::write(area.path().join("data"), b"x").unwrap();
        let noted = fs::read_dir(dir.path().join("state/undo")).unwrap().count();
        assert_eq!(noted, 1);
        drop(journal);
        assert!(!area.path().exists());
        assert_eq!(fs::read_dir(dir.path().join("state/undo")).unwrap().count(), 0);
    }

    /// A directory that this process did not create must stay.
    #[test]
    fn what_is_there_already_is_not_undone() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::new(&dir.path().join("state"), no_server);
        let theirs = dir.path().join(".crosspoint-work-1234-disk");
        fs::create_dir(&theirs).unwrap();
        journal.note(Undo::RemoveTree { path: theirs.clone() }).unwrap();
        let failed = journal.undo_all();
        assert!(failed[0].contains("not made by Crosspoint"), "{failed:?}");
        assert!(theirs.exists());
    }
}
