//! Writing a run folder.
//!
//! Invariant: after `write_trial` returns, the trial survives the end of the system; before, it does
//! not exist. What it is not: safe for two processes at once; a lock refuses the second.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use stats::write_log;
use study::{Study, resolved_text};

use crate::document::TrialDocument;
use crate::reader::{TRIALS, read_header};
use crate::{ArchiveError, Run, RunHeader, TrialOutcome, TrialRecord};

/// Prefix of trial folders that are being written.
const UNFINISHED: &str = ".writing-";
/// Where partial and damaged trials are put when a run is resumed.
const ASIDE: &str = "aside";

/// An open run folder.
#[derive(Debug)]
pub struct RunWriter {
    path: PathBuf,
    /// Numbers of trials that are there.
    finished: Vec<u32>,
    /// Held, never read: keeps a second writer out.
    _lock: File,
}

impl RunWriter {
    /// Makes a new run folder at `path`, which must not exist.
    ///
    /// # Errors
    /// [`ArchiveError`]; then the folder may exist but is no run (it has no run.json).
    pub fn create(
        path: &Path,
        original: &str,
        study: &Study,
        header: &RunHeader,
    ) -> Result<Self, ArchiveError> {
        let trials = path.join(TRIALS);
        fs::create_dir_all(&trials).map_err(ArchiveError::io("create", &trials))?;
        let lock = lock(path)?;
        write_durably(&path.join("study.original.toml"), original.as_bytes())?;
        write_durably(&path.join("study.toml"), resolved_text(study).as_bytes())?;
        // Last, and by renaming: a folder with a run.json is a run.
        let text = to_json(header);
        let aside = path.join("run.json.writing");
        write_durably(&aside, &text)?;
        let target = path.join("run.json");
        fs::rename(&aside, &target).map_err(ArchiveError::io("rename", &aside))?;
        sync_directory(path)?;
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            sync_directory(parent)?;
        }
        Ok(Self { path: path.to_owned(), finished: Vec::new(), _lock: lock })
    }

    /// Opens a run folder to go on with it: throws away half-written trials, and moves partial and
    /// damaged ones aside so that they run again.
    ///
    /// # Errors
    /// [`ArchiveError`].
    pub fn resume(path: &Path) -> Result<(Self, RunHeader, Study), ArchiveError> {
        let (header, study) = read_header(path)?;
        let lock = lock(path)?;
        let trials = path.join(TRIALS);
        let mut finished = Vec::new();
        for entry in fs::read_dir(&trials).map_err(ArchiveError::io("read", &trials))?.flatten() {
            let folder = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(UNFINISHED) {
                fs::remove_dir_all(&folder).map_err(ArchiveError::io("remove", &folder))?;
                continue;
            }
            match Run::read_trial(&folder) {
                Ok(trial) if trial.outcome != TrialOutcome::Partial => finished.push(trial.number),
                Ok(_) | Err(ArchiveError::Damaged { .. }) => set_aside(path, &folder, &name)?,
                Err(other) => return Err(other),
            }
        }
        Ok((Self { path: path.to_owned(), finished, _lock: lock }, header, study))
    }

    /// The run folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether trial `number` is there.
    #[must_use]
    pub fn has(&self, number: u32) -> bool {
        self.finished.contains(&number)
    }

    /// Makes a finished trial durable.
    ///
    /// # Errors
    /// [`ArchiveError`]; then the trial is not there.
    pub fn write_trial(&mut self, trial: &TrialRecord) -> Result<(), ArchiveError> {
        let trials = self.path.join(TRIALS);
        let folder = trials.join(&trial.slug);
        let aside = trials.join(format!("{UNFINISHED}{}", trial.slug));
        if aside.exists() {
            fs::remove_dir_all(&aside).map_err(ArchiveError::io("remove", &aside))?;
        }
        fs::create_dir(&aside).map_err(ArchiveError::io("create", &aside))?;
        let log = write_log(&trial.recording)
            .map_err(|error| ArchiveError::damaged(&aside.join("latency.hlog"), error))?;
        let document = TrialDocument::new(trial, log.len() as u64, crc32fast::hash(&log));
        write_durably(&aside.join("latency.hlog"), &log)?;
        write_durably(&aside.join("trial.json"), &to_json(&document))?;
        sync_directory(&aside)?;
        fs::rename(&aside, &folder).map_err(ArchiveError::io("rename", &aside))?;
        sync_directory(&trials)?;
        self.finished.push(trial.number);
        Ok(())
    }
}

/// A trial's record in one line, for another process.
///
/// # Errors
/// When its histograms can not be written.
pub fn to_line(trial: &TrialRecord) -> Result<String, ArchiveError> {
    let log = write_log(&trial.recording)
        .map_err(|error| ArchiveError::damaged(Path::new("the record"), error))?;
    let document = TrialDocument::new(trial, log.len() as u64, crc32fast::hash(&log));
    let both = (document, String::from_utf8_lossy(&log).into_owned());
    Ok(serde_json::to_string(&both).expect("invariant: plain data is JSON"))
}

fn set_aside(run: &Path, folder: &Path, name: &str) -> Result<(), ArchiveError> {
    let dir = run.join(ASIDE);
    fs::create_dir_all(&dir).map_err(ArchiveError::io("create", &dir))?;
    let mut target = dir.join(name);
    let mut copy = 1;
    while target.exists() {
        copy += 1;
        target = dir.join(format!("{name}.{copy}"));
    }
    fs::rename(folder, &target).map_err(ArchiveError::io("move aside", folder))
}

fn lock(path: &Path) -> Result<File, ArchiveError> {
    let file = path.join(".lock");
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&file)
        .map_err(ArchiveError::io("open", &file))?;
    lock.try_lock().map_err(|_| ArchiveError::Busy(path.to_owned()))?;
    Ok(lock)
}

fn to_json(value: &impl serde::Serialize) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(value).expect("invariant: plain data is JSON");
    text.push(b'\n');
    text
}

fn write_durably(path: &Path, bytes: &[u8]) -> Result<(), ArchiveError> {
    let mut file = File::create(path).map_err(ArchiveError::io("create", path))?;
    file.write_all(bytes).map_err(ArchiveError::io("write", path))?;
    file.sync_all().map_err(ArchiveError::io("sync", path))
}

fn sync_directory(path: &Path) -> Result<(), ArchiveError> {
    let synced = File::open(path).and_then(|dir| dir.sync_all());
    synced.map_err(ArchiveError::io("sync", path))
}
