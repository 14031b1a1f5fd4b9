//! The undo journal: what must be undone on this host, written before it is made.
//!
//! One file a process, a JSON line an entry, synced before the thing is made. Undone in reverse order
//! when the process ends, or by [`clean`] when it was killed.
//! Invariants: an entry is only forgotten once it is undone; `clean` never touches what a living
//! process has made; nothing is removed that does not carry our mark. What it is not: a log.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use crate::StackError;
use crate::file_system::{detach, holds_mount, remove_lock, unmount};
use crate::groups::remove_group;
use crate::processes::end_servers;

/// Name prefix of every directory that we make and may remove.
pub(crate) const MARK: &str = ".crosspoint-work-";

/// How to undo one thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "undo", rename_all = "snake_case", deny_unknown_fields)]
pub enum Undo {
    /// Remove a directory with everything in it; only if its name carries our mark.
    RemoveTree {
        /// The directory.
        path: PathBuf,
    },
    /// Detach the loop devices over a file; only if it lies in a directory of ours.
    DetachLoop {
        /// The file.
        backing: PathBuf,
    },
    /// Unmount what is mounted there; only if it lies in a directory of ours.
    Unmount {
        /// Where.
        path: PathBuf,
    },
    /// Remove the file that LMDB locks a bare device by: a plain file named after it.
    RemoveLock {
        /// The device.
        device: PathBuf,
    },
    /// End the servers whose data directory this is; only if it lies in a directory of ours.
    StopServer {
        /// The data directory.
        data: PathBuf,
    },
    /// Remove a control group, its processes moved back; only if its name carries our mark.
    RemoveGroup {
        /// The group.
        path: PathBuf,
        /// Where its processes were before.
        home: PathBuf,
    },
}

/// What `clean` did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Cleaned {
    /// Things undone.
    pub undone: Vec<String>,
    /// Things that could not be undone, with the reason; they stay in their journal.
    pub failed: Vec<String>,
    /// Runs that are still going on; left alone.
    pub running: u32,
}

/// The journal of this process.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    entries: Mutex<Vec<Undo>>,
}

/// Where journals are kept: `$CROSSPOINT_STATE_DIR`, else `$XDG_STATE_HOME/crosspoint`, else
/// `~/.local/state/crosspoint`.
#[must_use]
pub fn state_directory() -> PathBuf {
    let from = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    from("CROSSPOINT_STATE_DIR")
        .or_else(|| from("XDG_STATE_HOME").map(|dir| dir.join("crosspoint")))
        .or_else(|| from("HOME").map(|dir| dir.join(".local/state/crosspoint")))
        .unwrap_or_else(|| PathBuf::from("/var/tmp/crosspoint-state"))
}

/// Start time of a process in clock ticks since boot: with the process id, a name that is not reused.
fn start_time(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is the command in parentheses and may hold spaces; count from its end.
    let after = text.rsplit_once(')')?.1;
    after.split_whitespace().nth(19)?.parse().ok()
}

impl Journal {
    /// The journal of this process, empty; no file exists until something is noted.
    #[must_use]
    pub fn new(state: &Path) -> Self {
        let process = std::process::id();
        let name = format!("{process}-{}.jsonl", start_time(process).unwrap_or(0));
        Self { path: state.join("undo").join(name), entries: Mutex::default() }
    }

    /// Notes, durably, that `undo` will be due. Call it before making the thing.
    ///
    /// # Errors
    /// When the note can not be written; then nothing may be made.
    pub fn note(&self, undo: Undo) -> Result<(), StackError> {
        let write = || -> io::Result<()> {
            if let Some(dir) = self.path.parent() {
                fs::create_dir_all(dir)?;
            }
            let mut file = OpenOptions::new().create(true).append(true).open(&self.path)?;
            let mut line = serde_json::to_vec(&undo)?;
            line.push(b'\n');
            file.write_all(&line)?;
            file.sync_all()
        };
        write().map_err(StackError::io("write the undo journal", &self.path))?;
        if let Ok(mut entries) = self.entries.lock() {
            entries.push(undo);
        }
        Ok(())
    }

    /// Undoes everything, last made first; returns what could not be undone. The journal file goes
    /// once nothing is left.
    pub fn undo_all(&self) -> Vec<String> {
        let Ok(mut entries) = self.entries.lock() else {
            return Vec::new();
        };
        let mut failed = Vec::new();
        for entry in entries.drain(..).rev() {
            if let Err(error) = undo(&entry) {
                failed.push(error.to_string());
            }
        }
        if failed.is_empty() {
            let _ = fs::remove_file(&self.path);
        }
        failed
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.undo_all();
    }
}

fn undo(entry: &Undo) -> Result<String, StackError> {
    match entry {
        Undo::DetachLoop { backing } => {
            detach(backing).map(|()| format!("detached {}", backing.display()))
        }
        Undo::Unmount { path } => unmount(path).map(|()| format!("unmounted {}", path.display())),
        Undo::RemoveLock { device } => {
            remove_lock(device).map(|()| format!("removed the lock of {}", device.display()))
        }
        Undo::StopServer { data } => {
            end_servers(data).map(|()| format!("ended the servers on {}", data.display()))
        }
        Undo::RemoveGroup { path, home } => {
            remove_group(path, home).map(|()| format!("removed {}", path.display()))
        }
        Undo::RemoveTree { path } => {
            let marked = path
                .file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| name.starts_with(MARK));
            if !marked {
                return Err(StackError::Refused {
                    device: path.display().to_string(),
                    reason: "not made by Crosspoint".into(),
                    next: "remove it yourself if you are sure".into(),
                });
            }
            if holds_mount(path) {
                return Err(StackError::Refused {
                    device: path.display().to_string(),
                    reason: "something is still mounted in it".into(),
                    next: "umount it, then: crosspoint clean".into(),
                });
            }
            match fs::remove_dir_all(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(StackError::io("remove", path)(error))
                }
                _ => Ok(format!("removed {}", path.display())),
            }
        }
    }
}

/// Undoes what killed runs left behind.
///
/// # Errors
/// When the state directory can not be read.
pub fn clean(state: &Path) -> Result<Cleaned, StackError> {
    let mut cleaned = Cleaned::default();
    let dir = state.join("undo");
    let entries = match fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(cleaned),
        Err(error) => return Err(StackError::io("read", &dir)(error)),
    };
    for entry in entries.flatten() {
        clean_one(&entry.path(), &mut cleaned)?;
    }
    Ok(cleaned)
}

fn clean_one(path: &Path, cleaned: &mut Cleaned) -> Result<(), StackError> {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let owner = stem.split_once('-').and_then(|(process, start)| {
        Some((process.parse::<u32>().ok()?, start.parse::<u64>().ok()?))
    });
    let Some((process, start)) = owner else {
        return Ok(());
    };
    if start_time(process) == Some(start) {
        cleaned.running += u32::from(process != std::process::id());
        return Ok(());
    }
    let text = fs::read_to_string(path).map_err(StackError::io("read", path))?;
    let mut all_undone = true;
    // A line cut off by the kill was never followed by what it would undo.
    for entry in text.lines().rev().filter_map(|line| serde_json::from_str::<Undo>(line).ok()) {
        match undo(&entry) {
            Ok(what) => cleaned.undone.push(what),
            Err(error) => {
                all_undone = false;
                cleaned.failed.push(error.to_string());
            }
        }
    }
    if all_undone {
        fs::remove_file(path).map_err(StackError::io("remove", path))?;
    }
    Ok(())
}

/// Makes a file's directory entry durable.
pub(crate) fn sync_directory(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(dir: &Path) -> PathBuf {
        let work = dir.join(format!("{MARK}1"));
        fs::create_dir(&work).unwrap();
        fs::write(work.join("data"), b"x").unwrap();
        work
    }

    #[test]
    fn what_was_made_is_gone_when_the_run_ends() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::new(&dir.path().join("state"));
        let work = dir.path().join(format!("{MARK}1"));
        journal.note(Undo::RemoveTree { path: work }).unwrap();
        let work = made(dir.path());
        assert!(journal.path.exists());
        let path = journal.path.clone();
        drop(journal);
        assert!(!work.exists() && !path.exists());
    }

    /// A killed run must not fill the user's disk for ever.
    #[test]
    fn clean_undoes_the_dead_and_spares_the_living() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let work = made(dir.path());
        fs::create_dir_all(state.join("undo")).unwrap();
        let line = serde_json::to_string(&Undo::RemoveTree { path: work.clone() }).unwrap();
        // Process 1 lives, but it did not start at tick 1: this journal's owner is dead.
        fs::write(state.join("undo/1-1.jsonl"), format!("{line}\n{{\"undo\":\"remo")).unwrap();
        let init = start_time(1).unwrap();
        let living = state.join(format!("undo/1-{init}.jsonl"));
        fs::write(&living, format!("{line}\n")).unwrap();
        let cleaned = clean(&state).unwrap();
        assert_eq!((cleaned.undone.len(), cleaned.failed.len(), cleaned.running), (1, 0, 1));
        assert!(!work.exists() && living.exists());
        assert!(!state.join("undo/1-1.jsonl").exists());
    }

    #[test]
    fn nothing_without_our_mark_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let precious = dir.path().join("precious");
        fs::create_dir(&precious).unwrap();
        assert!(undo(&Undo::RemoveTree { path: precious.clone() }).is_err());
        assert!(precious.exists());
    }
}
