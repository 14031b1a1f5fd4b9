//! Writing a run folder.
//!
//! Invariant: once `write_trial` returns, the trial survives a system crash; before that it does not exist.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use stats::{Recording, write_log};
use study::{Engines, Study, resolved_text};

use crate::document::TrialDocument;
use crate::files::{
    ASIDE, Digest, HEADER, LOCK, LOG, ORIGINAL, RunFile, SETTING_ASIDE, STUDY, SUMS, SizeLimit,
    TRIAL, TRIALS, UNFINISHED,
};
use crate::output;
use crate::reader::{Opened, read_header, refuse_link};
use crate::running::{RUNNING, begin, read_running};
use crate::sums::{self, Sums};
use crate::{ArchiveError, Run, RunHeader, TrialOutcome, TrialRecord};

/// Maximum number of intervals and counter samples of a trial whose document is indented.
const INDENTED_MAX: usize = 1000;

/// An open run folder.
#[derive(Debug)]
pub struct RunWriter {
    path: PathBuf,
    /// Numbers of finished trials.
    finished: HashSet<u32>,
    _lock: RunLock,
}

/// Excludes a second writer from a run folder.
#[derive(Debug)]
struct RunLock(File);

impl Drop for RunLock {
    fn drop(&mut self) {
        // Closing is not enough: a child that was just forked holds the same lock until it executes.
        let _ = self.0.unlock();
    }
}

impl RunWriter {
    /// Creates a run folder at `path`, which must not exist, or be an empty directory.
    ///
    /// # Errors
    /// [`ArchiveError`]; the folder may exist then but is not a run (it has no run.json).
    pub fn create(
        path: &Path,
        original: &str,
        study: &Study,
        header: &RunHeader,
    ) -> Result<Self, ArchiveError> {
        let header = RunHeader { sums: true, ..header.clone() };
        let trials = path.join(TRIALS);
        // Checks that the reader will accept it.
        let fits = SizeLimit::HEADER.fits(&to_json(&header))
            && study::parse(&resolved_text(study), study.engines).is_ok()
            && SizeLimit::STUDY.fits(original.as_bytes());
        if !fits {
            return Err(ArchiveError::TooLarge(path.to_owned()));
        }
        make_own(path)?;
        fs::create_dir(&trials).map_err(ArchiveError::io("create", &trials))?;
        let lock = lock(path)?;
        let (resolved, text) = (resolved_text(study), to_json(&header));
        write_durably(&path.join(ORIGINAL), original.as_bytes())?;
        write_durably(&path.join(STUDY), resolved.as_bytes())?;
        let files = [
            (ORIGINAL.to_owned(), original.as_bytes()),
            (STUDY.to_owned(), resolved.as_bytes()),
            (HEADER.to_owned(), text.as_slice()),
        ];
        sums::add(path, &files)?;
        // Written last and by rename: a folder with a run.json is a run.
        replace_header(path, &text)?;
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            sync_directory(parent)?;
        }
        Ok(Self { path: path.to_owned(), finished: HashSet::new(), _lock: lock })
    }

    /// The run folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether trial `number` is finished.
    #[must_use]
    pub fn has(&self, number: u32) -> bool {
        self.finished.contains(&number)
    }

    /// Begins the journal of a long trial.
    ///
    /// # Errors
    /// [`ArchiveError::Io`].
    pub fn begin_trial(&self, trial: &TrialRecord) -> Result<PathBuf, ArchiveError> {
        let path = self.running(&trial.slug);
        begin(&path, trial)?;
        fs::canonicalize(&path).map_err(ArchiveError::io("find", &path))
    }

    fn running(&self, slug: &str) -> PathBuf {
        self.path.join(TRIALS).join(format!("{RUNNING}{slug}"))
    }

    /// The contents of a trial's journal; empty if there is none.
    #[must_use]
    pub fn kept(&self, slug: &str) -> Recording {
        read_running(&self.running(slug))
            .map_or_else(|_| Recording::default(), |trial| trial.result.recording)
    }

    /// Makes a finished trial durable.
    ///
    /// # Errors
    /// [`ArchiveError`]; the trial does not exist then.
    pub fn write_trial(&mut self, trial: &TrialRecord) -> Result<(), ArchiveError> {
        self.write_apart(trial)?;
        self.finished.insert(trial.number);
        Ok(())
    }

    /// Makes a trial durable without marking it finished in this writer; only for use before the program
    /// exits.
    ///
    /// # Errors
    /// [`ArchiveError`]; the trial does not exist then.
    pub fn write_apart(&self, trial: &TrialRecord) -> Result<(), ArchiveError> {
        let trials = self.path.join(TRIALS);
        let folder = trials.join(&trial.slug);
        let aside = trials.join(format!("{UNFINISHED}{}", trial.slug));
        if aside.exists() {
            fs::remove_dir_all(&aside).map_err(ArchiveError::io("remove", &aside))?;
        }
        fs::create_dir(&aside).map_err(ArchiveError::io("create", &aside))?;
        let log = write_log(&trial.result.recording)
            .map_err(|error| ArchiveError::damaged(&aside.join(LOG), error))?;
        let document = TrialDocument::new(trial, log.len() as u64, crc32fast::hash(&log));
        let (intervals, counters) = (&trial.result.recording.intervals, &trial.result.counters);
        let indented = intervals.len() + counters.len() <= INDENTED_MAX;
        let document = if indented { to_json(&document) } else { to_compact_json(&document) };
        let fits = SizeLimit::TRIAL.fits(&document) && log.len() as u64 <= SizeLimit::LOG.bytes;
        if !fits {
            return Err(ArchiveError::TooLarge(folder));
        }
        write_durably(&aside.join(LOG), &log)?;
        write_durably(&aside.join(TRIAL), &document)?;
        sync_directory(&aside)?;
        let name = |file: &str| format!("{TRIALS}/{}/{file}", trial.slug);
        sums::add(&self.path, &[(name(LOG), &log), (name(TRIAL), &document)])?;
        fs::rename(&aside, &folder).map_err(ArchiveError::io("rename", &aside))?;
        sync_directory(&trials)?;
        // It is complete; without a journal there is nothing to remove.
        let _ = fs::remove_file(self.running(&trial.slug));
        Ok(())
    }
}

/// A run folder that is locked and read but not changed, because resuming may still be refused.
#[derive(Debug)]
pub struct Reopened {
    /// The header.
    pub header: RunHeader,
    /// The resolved study.
    pub study: Study,
    path: PathBuf,
    lock: RunLock,
    sums: Option<Sums>,
    /// Numbers of the trials that are kept, by folder.
    kept: BTreeMap<String, u32>,
    /// Folders of unfinished trials.
    unfinished: Vec<PathBuf>,
    /// Folders to move aside, with their new names.
    leaving: Vec<(PathBuf, String)>,
}

impl Reopened {
    /// Opens a run folder to resume it; with `again`, failed trials run again. `seen` is called for each
    /// trial that is kept.
    ///
    /// # Errors
    /// [`ArchiveError`] if the folder cannot be read or is no run.
    pub fn open(
        path: &Path,
        engines: Engines,
        again: bool,
        mut seen: impl FnMut(&TrialRecord),
    ) -> Result<Self, ArchiveError> {
        // A folder that is not a run gets no lock; its contents are read under the lock.
        read_header(path, engines)?;
        let lock = lock(path)?;
        let Opened { header, study, sums } = read_header(path, engines)?;
        let stays = |outcome: TrialOutcome| match outcome {
            TrialOutcome::Complete => true,
            TrialOutcome::Failed => !again,
            TrialOutcome::Partial => false,
        };
        let trials = path.join(TRIALS);
        for folder in [&trials, &path.join(ASIDE)] {
            refuse_link(folder)?;
        }
        let (mut kept, mut unfinished, mut leaving) = (BTreeMap::new(), Vec::new(), Vec::new());
        for entry in fs::read_dir(&trials).map_err(ArchiveError::io("read", &trials))?.flatten() {
            let folder = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(UNFINISHED) {
                unfinished.push(folder);
            } else if let Some(slug) = name.strip_prefix(SETTING_ASIDE) {
                leaving.push((folder, slug.to_owned()));
            } else if name.starts_with(RUNNING) {
                leaving.push((folder, name.trim_start_matches('.').to_owned()));
            } else {
                match Run::read_trial(&folder, sums.as_ref()) {
                    Ok(trial) if stays(trial.outcome) => {
                        seen(&trial);
                        kept.insert(name, trial.number);
                    }
                    Ok(_) | Err(ArchiveError::Damaged { .. }) => leaving.push((folder, name)),
                    Err(other) => return Err(other),
                }
            }
        }
        let path = path.to_owned();
        Ok(Self { header, study, path, lock, sums, kept, unfinished, leaving })
    }

    /// Removes half-written trials and moves partial, damaged and (if they run again) failed ones aside. Adds
    /// checksums to a run of a version without them.
    ///
    /// # Errors
    /// [`ArchiveError`] if a file cannot be written; the folder can be opened again.
    pub fn write(mut self) -> Result<RunWriter, ArchiveError> {
        let trials = self.path.join(TRIALS);
        for (folder, name) in &mut self.leaving {
            if trials.join(&*name) == *folder {
                let hidden = trials.join(format!("{SETTING_ASIDE}{name}"));
                fs::rename(&folder, &hidden).map_err(ArchiveError::io("rename", folder))?;
                *folder = hidden;
            }
        }
        // Trials leave the list while their hidden folders still explain the gap.
        if let Some(sums) = &self.sums {
            sync_directory(&trials)?;
            sums.rewrite(&self.path, &self.kept)?;
        }
        for folder in &self.unfinished {
            fs::remove_dir_all(folder).map_err(ArchiveError::io("remove", folder))?;
        }
        for (folder, name) in &self.leaving {
            set_aside(&self.path, folder, name)?;
        }
        if self.sums.is_none() {
            sum_up(&self.path, &self.header)?;
        }
        let finished = self.kept.into_values().collect();
        Ok(RunWriter { path: self.path, finished, _lock: self.lock })
    }

    /// The run folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Creates a folder, or takes an empty one.
fn make_own(path: &Path) -> Result<(), ArchiveError> {
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent).map_err(ArchiveError::io("create", parent))?;
    }
    match fs::create_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        made => return made.map_err(ArchiveError::io("create", path)),
    }
    if !fs::symlink_metadata(path).is_ok_and(|data| data.is_dir()) {
        return Err(ArchiveError::Foreign(path.to_owned()));
    }
    let mut entries = fs::read_dir(path).map_err(ArchiveError::io("read", path))?;
    match entries.next() {
        None => Ok(()),
        Some(_) => Err(ArchiveError::Foreign(path.to_owned())),
    }
}

fn replace_header(path: &Path, text: &[u8]) -> Result<(), ArchiveError> {
    let path = path.join(HEADER);
    output::replace_durably(&path, text).map_err(ArchiveError::io("replace", &path))
}

/// Adds checksums to a run without them.
fn sum_up(path: &Path, header: &RunHeader) -> Result<(), ArchiveError> {
    let header = to_json(&RunHeader { sums: true, ..header.clone() });
    let mut names = vec![ORIGINAL.to_owned(), STUDY.to_owned()];
    let trials = path.join(TRIALS);
    for entry in fs::read_dir(&trials).map_err(ArchiveError::io("read", &trials))?.flatten() {
        let slug = entry.file_name().to_string_lossy().into_owned();
        names.extend([LOG, TRIAL].map(|file| format!("{TRIALS}/{slug}/{file}")));
    }
    let mut lines = sums::line(HEADER, Digest::of(&header));
    for name in names {
        let limit = if name.ends_with(LOG) { SizeLimit::LOG } else { SizeLimit::TRIAL };
        match RunFile::open(&path.join(&name), limit, None).and_then(RunFile::finish) {
            Ok(digest) => lines.push_str(&sums::line(&name, digest)),
            // The first versions kept no original.
            Err(_) if name == ORIGINAL => {}
            Err(error) => return Err(error),
        }
    }
    // The list is not read before the header promises it.
    write_durably(&path.join(SUMS), lines.as_bytes())?;
    replace_header(path, &header)
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

fn lock(path: &Path) -> Result<RunLock, ArchiveError> {
    let file = path.join(LOCK);
    refuse_link(&file)?;
    let lock = output::append(&file, true).map_err(ArchiveError::io("open", &file))?;
    lock.try_lock().map_err(|_| ArchiveError::Busy(path.to_owned()))?;
    Ok(RunLock(lock))
}

fn to_json(value: &impl serde::Serialize) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(value).expect("invariant: plain data is JSON");
    text.push(b'\n');
    text
}

fn to_compact_json(value: &impl serde::Serialize) -> Vec<u8> {
    let mut text = serde_json::to_vec(value).expect("invariant: plain data is JSON");
    text.push(b'\n');
    text
}

fn write_durably(path: &Path, bytes: &[u8]) -> Result<(), ArchiveError> {
    output::write_durably(path, bytes).map_err(ArchiveError::io("write", path))
}

fn sync_directory(path: &Path) -> Result<(), ArchiveError> {
    let synced = File::open(path).and_then(|dir| dir.sync_all());
    synced.map_err(ArchiveError::io("sync", path))
}
