//! The runs of a folder, read again after changes.
//!
//! Invariants: runs are looked up by their folder's name among existing ones; links are not followed.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use analysis::trend::trends;
use archive::Run;
use report::{Listed, follow_page, html, library_page, trend_page};

/// Limits of a trend: runs, and bytes of their files.
const TREND_RUNS_MAX: usize = 50;
const TREND_BYTES_MAX: u64 = 64 << 20;
/// Total time limit for live runs to answer.
const ANSWERS_IN: Duration = Duration::from_secs(2);
/// Pause before a silent run is queried again.
const SILENT_FOR: Duration = Duration::from_secs(60);

/// A folder of runs.
#[derive(Debug)]
pub(crate) struct Shelf {
    folder: PathBuf,
    /// Cached runs by name, with the fingerprint of their files.
    known: Mutex<HashMap<String, (Fingerprint, Listed)>>,
    /// Silent runs, with the time of the last query.
    silent: Mutex<HashMap<String, Instant>>,
    /// Held while a run is loaded: one at a time, whatever the number of requests.
    loading: Mutex<()>,
}

/// Changes when any file of a run does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fingerprint {
    /// Change time, nanoseconds; `cp -p` restores the modification time.
    changed: i128,
    files: u64,
    bytes: u64,
}

impl Fingerprint {
    fn of(run: &Path) -> Self {
        let mut fingerprint = Self { changed: 0, files: 0, bytes: 0 };
        FILES.iter().for_each(|name| fingerprint.add(&run.join(name), 2));
        fingerprint
    }

    fn add(&mut self, path: &Path, depth: u32) {
        let Ok(facts) = std::fs::symlink_metadata(path) else { return };
        let changed = i128::from(facts.ctime()) * 1_000_000_000 + i128::from(facts.ctime_nsec());
        self.changed = self.changed.max(changed);
        self.files += 1;
        if facts.is_file() {
            self.bytes += facts.len();
        } else if facts.is_dir() && depth > 0 {
            let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
            entries.for_each(|entry| self.add(&entry.path(), depth - 1));
        }
    }
}

/// Why a run cannot be read; the state of a [`Listed`].
const UNREADABLE: &str = "unreadable";

/// Files that a run is read from.
const FILES: [&str; 5] = ["run.json", "study.toml", "study.original.toml", "sums.txt", "trials"];

/// Whether a folder is a run with regular files of its own.
fn is_own(folder: &Path) -> bool {
    let facts = |name: &str| std::fs::symlink_metadata(folder.join(name)).ok();
    let linked = |name: &str| facts(name).is_some_and(|facts| facts.is_symlink());
    facts("run.json").is_some_and(|facts| facts.is_file()) && !FILES.iter().any(|name| linked(name))
}

type Page = Result<Option<String>, String>;

impl Shelf {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            known: Mutex::default(),
            silent: Mutex::default(),
            loading: Mutex::default(),
        }
    }

    /// Names of the run folders, newest first.
    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let is_run = |entry: &std::fs::DirEntry| {
            entry.file_type().is_ok_and(|kind| kind.is_dir()) && is_own(&entry.path())
        };
        let mut all: Vec<(SystemTime, String)> = entries
            .filter(is_run)
            .filter_map(|entry| {
                let changed =
                    entry.path().join("run.json").metadata().and_then(|facts| facts.modified());
                Some((changed.ok()?, entry.file_name().into_string().ok()?))
            })
            .collect();
        all.sort_by(|a, b| b.cmp(a));
        all.into_iter().map(|(_, name)| name).collect()
    }

    /// The folder of a run; `None` if no run has that name.
    fn place(&self, name: &str) -> Option<PathBuf> {
        self.names().iter().any(|one| one == name).then(|| self.folder.join(name))
    }

    pub(crate) fn list(&self) -> Result<String, String> {
        let names = self.names();
        let live = self.live_runs(&names);
        let listed = |name: &String| live.get(name).cloned().unwrap_or_else(|| self.listed(name));
        let all: Vec<Listed> = names.iter().map(listed).collect();
        library_page(&self.folder.display().to_string(), &all).map_err(|error| error.to_string())
    }

    /// Runs in progress, by name.
    fn live_runs(&self, names: &[String]) -> HashMap<String, Listed> {
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        silent.retain(|_, asked| asked.elapsed() < SILENT_FOR);
        let names: Vec<&String> = names.iter().filter(|name| !silent.contains_key(*name)).collect();
        let paths: Vec<PathBuf> = names.iter().map(|name| self.folder.join(name)).collect();
        let answers = names.into_iter().zip(follow::ask_all(&paths, ANSWERS_IN));
        let listed = answers.filter_map(|(name, answer)| {
            if answer.is_err() {
                silent.insert(name.clone(), Instant::now());
            }
            let live = answer.ok()??;
            let listed = Listed {
                name: name.clone(),
                study: live.study,
                started: String::new(),
                headline: live.question,
                state: "running",
                trials: format!("{} of {}", live.done, live.trials),
            };
            Some((name.clone(), listed))
        });
        listed.collect()
    }

    /// The entry of an ended run; a damaged one is read again only when its files have changed.
    fn listed(&self, name: &str) -> Listed {
        let path = self.folder.join(name);
        let _one = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        let fingerprint = Fingerprint::of(&path);
        if let Some(listed) = self.known(name, fingerprint) {
            return listed;
        }
        match Run::read(&path, engines::list()) {
            Ok(run) => self.remember(name, fingerprint, described(name, &run)),
            Err(error) => self.remember(name, fingerprint, unreadable(name, &error.to_string())),
        }
    }

    fn known(&self, name: &str, fingerprint: Fingerprint) -> Option<Listed> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(name).filter(|(at, _)| *at == fingerprint).map(|(_, listed)| listed.clone())
    }

    fn remember(&self, name: &str, fingerprint: Fingerprint, listed: Listed) -> Listed {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(name.to_owned(), (fingerprint, listed.clone()));
        listed
    }

    pub(crate) fn run(&self, name: &str) -> Page {
        let Some(path) = self.place(name) else { return Ok(None) };
        let _one = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        let fingerprint = Fingerprint::of(&path);
        if let Some(listed) = self.known(name, fingerprint).filter(|one| one.state == UNREADABLE) {
            return Err(listed.headline);
        }
        let run = Run::read(&path, engines::list()).map_err(|error| {
            self.remember(name, fingerprint, unreadable(name, &error.to_string())).headline
        })?;
        html(&[run]).map(Some).map_err(|error| error.to_string())
    }

    pub(crate) fn trend(&self, study: &str) -> Page {
        let mut names = self.names();
        let live = self.live_runs(&names);
        names.retain(|name| !live.contains_key(name) && self.listed(name).study == *study);
        if names.is_empty() {
            return Ok(None);
        }
        let _one = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut runs, mut bytes) = (Vec::new(), 0);
        for path in names.iter().take(TREND_RUNS_MAX).map(|name| self.folder.join(name)) {
            bytes += Fingerprint::of(&path).bytes;
            if bytes > TREND_BYTES_MAX && !runs.is_empty() {
                break;
            }
            runs.extend(Run::read(&path, engines::list()));
        }
        trend_page(study, &trends(&runs)).map(Some).map_err(|error| error.to_string())
    }

    /// The page that follows a run.
    pub(crate) fn live(&self, name: &str) -> Page {
        match self.place(name) {
            Some(_) => follow_page(name).map(Some).map_err(|error| error.to_string()),
            None => Ok(None),
        }
    }

    /// The live document of a run as JSON, `null` if it is not running; `None` for an unknown run.
    pub(crate) fn told(&self, name: &str) -> Page {
        let Some(path) = self.place(name) else { return Ok(None) };
        let live = follow::ask(&path).map_err(|error| error.to_string())?;
        Ok(Some(serde_json::to_string(&live).expect("invariant: plain data is JSON")))
    }
}

fn described(name: &str, run: &Run) -> Listed {
    Listed {
        name: name.to_owned(),
        study: run.study.name.clone(),
        started: run.header.started.clone(),
        headline: report::headline(run).0,
        state: if run.is_partial() { "partial" } else { "whole" },
        trials: format!("{} of {}", run.trials.len(), run.header.trials_planned),
    }
}

fn unreadable(name: &str, reason: &str) -> Listed {
    Listed {
        name: name.to_owned(),
        study: String::new(),
        started: String::new(),
        headline: reason.to_owned(),
        state: UNREADABLE,
        trials: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Repeated requests for a damaged run must not read it again unless a file has changed.
    #[test]
    fn a_damaged_run_is_read_again_only_when_a_file_of_it_has_changed() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        std::fs::create_dir_all(run.join("trials/0001-a")).unwrap();
        std::fs::write(run.join("run.json"), "{").unwrap();
        let shelf = Shelf::new(dir.path().to_owned());
        assert_eq!(shelf.listed("run").state, UNREADABLE);
        let before = Fingerprint::of(&run);
        let marked = unreadable("run", "remembered");
        shelf.remember("run", before, marked);
        assert_eq!(shelf.listed("run").headline, "remembered");
        assert_eq!(shelf.run("run"), Err("remembered".to_owned()));
        std::fs::write(run.join("trials/0001-a/trial.json"), "{}").unwrap();
        assert!(shelf.listed("run").headline.contains("damaged"));
    }
}
