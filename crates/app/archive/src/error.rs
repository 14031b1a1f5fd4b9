//! Errors of run folders.
//!
//! Invariant: each names the file.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a run folder cannot be written or read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// An I/O error of the operating system.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// The action.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// This is no run folder.
    #[error("{0} is not a run folder (it has no run.json)")]
    NotARun(PathBuf),
    /// Written by another version.
    #[error("{path} has format {found}; this version reads format {known}")]
    Format {
        /// The file.
        path: PathBuf,
        /// Format found.
        found: u32,
        /// The newest format that this version reads.
        known: u32,
    },
    /// A file is damaged.
    #[error("{path} is damaged: {reason}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A run or a trial that no reader would accept.
    #[error("{0} cannot be written: larger than the limit of a run or trial")]
    TooLarge(PathBuf),
    /// A directory with files that are not a run's.
    #[error("{0} exists and is not empty, or is not a directory")]
    Foreign(PathBuf),
    /// Another process writes to the run.
    #[error("another process is writing to {0}")]
    Busy(PathBuf),
}

impl ArchiveError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    pub(crate) fn damaged(path: &Path, reason: impl std::fmt::Display) -> Self {
        Self::Damaged { path: path.to_owned(), reason: reason.to_string() }
    }
}
