//! The runs of a folder, read anew where they have changed.
//!
//! Invariants: a run is named as the folder names it, and looked up among what the folder has; links are not
//! followed. What it is not: a cache of pages on disk.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use analysis::trend::trends;
use archive::Run;
use report::{Listed, follow_page, html, library_page, trend_page};

/// Runs of a trend.
const TREND_RUNS_MAX: usize = 50;

/// A folder of runs.
#[derive(Debug)]
pub(crate) struct Shelf {
    folder: PathBuf,
    /// By name, as it was when the time of its trials was that.
    known: Mutex<HashMap<String, (SystemTime, Listed)>>,
}

/// Files that a run is read from.
const FILES: [&str; 5] = ["run.json", "study.toml", "study.original.toml", "sums.txt", "trials"];

/// Whether a folder is a run, and what it is read from lies in it.
fn is_own(folder: &Path) -> bool {
    let facts = |name: &str| std::fs::symlink_metadata(folder.join(name)).ok();
    let linked = |name: &str| facts(name).is_some_and(|facts| facts.is_symlink());
    facts("run.json").is_some_and(|facts| facts.is_file()) && !FILES.iter().any(|name| linked(name))
}

type Page = Result<Option<String>, String>;

impl Shelf {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder, known: Mutex::default() }
    }

    /// Names of the folders that are runs, the youngest first.
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

    /// The folder of a run; none where there is no run of that name.
    fn place(&self, name: &str) -> Option<PathBuf> {
        self.names().iter().any(|one| one == name).then(|| self.folder.join(name))
    }

    pub(crate) fn list(&self) -> Result<String, String> {
        let all: Vec<Listed> = self.names().iter().map(|name| self.listed(name)).collect();
        library_page(&self.folder.display().to_string(), &all).map_err(|error| error.to_string())
    }

    fn listed(&self, name: &str) -> Listed {
        let path = self.folder.join(name);
        if let Ok(Some(live)) = follow::ask(&path) {
            return Listed {
                name: name.to_owned(),
                study: live.study,
                started: String::new(),
                headline: live.question,
                state: "goes on",
                trials: format!("{} of {}", live.done, live.trials),
            };
        }
        let changed = path.join("trials").metadata().and_then(|facts| facts.modified());
        let changed = changed.unwrap_or(SystemTime::UNIX_EPOCH);
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, listed)) = known().get(name).filter(|(at, _)| *at == changed) {
            return listed.clone();
        }
        let listed = match Run::read(&path) {
            Ok(run) => Listed {
                name: name.to_owned(),
                study: run.study.name.clone(),
                started: run.header.started.clone(),
                headline: report::headline(&run).0,
                state: if run.is_partial() { "partial" } else { "whole" },
                trials: format!("{} of {}", run.trials.len(), run.header.trials_planned),
            },
            Err(error) => Listed {
                name: name.to_owned(),
                study: String::new(),
                started: String::new(),
                headline: error.to_string(),
                state: "unreadable",
                trials: String::new(),
            },
        };
        // What could not be read may be mended.
        if listed.state != "unreadable" {
            known().insert(name.to_owned(), (changed, listed.clone()));
        }
        listed
    }

    pub(crate) fn run(&self, name: &str) -> Page {
        let Some(path) = self.place(name) else { return Ok(None) };
        let run = Run::read(&path).map_err(|error| error.to_string())?;
        html(&[run]).map(Some).map_err(|error| error.to_string())
    }

    pub(crate) fn trend(&self, study: &str) -> Page {
        let of_study = |name: &String| self.listed(name).study == *study;
        let names: Vec<String> = self.names().into_iter().filter(of_study).collect();
        if names.is_empty() {
            return Ok(None);
        }
        let paths = names.iter().take(TREND_RUNS_MAX).map(|name| self.folder.join(name));
        let runs: Vec<Run> = paths.filter_map(|path| Run::read(&path).ok()).collect();
        trend_page(study, &trends(&runs)).map(Some).map_err(|error| error.to_string())
    }

    /// The page that follows a run.
    pub(crate) fn live(&self, name: &str) -> Page {
        match self.place(name) {
            Some(_) => follow_page(name).map(Some).map_err(|error| error.to_string()),
            None => Ok(None),
        }
    }

    /// What goes on in a run, as JSON, `null` where nothing does; none where there is no such run.
    pub(crate) fn told(&self, name: &str) -> Page {
        let Some(path) = self.place(name) else { return Ok(None) };
        let live = follow::ask(&path).map_err(|error| error.to_string())?;
        Ok(Some(serde_json::to_string(&live).expect("invariant: plain data is JSON")))
    }
}
