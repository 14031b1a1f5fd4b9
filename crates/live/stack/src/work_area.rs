//! A work area: our directory on the storage under test.
//!
//! Invariants: recorded in the undo journal before it exists; its name contains this process's mark; nobody
//! else can enter or replace it.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::journal::sync_directory;
use crate::{Journal, StackError, Undo, check_directory};

/// A working directory, removed when the journal is undone.
#[derive(Debug)]
pub struct WorkArea {
    path: PathBuf,
}

impl WorkArea {
    /// Creates a work area inside `parent` for the stack of that name.
    ///
    /// # Errors
    /// `parent` does not exist or is not writable.
    pub fn create(journal: &Journal, parent: &Path, stack: &str) -> Result<Self, StackError> {
        let parent = fs::canonicalize(parent).map_err(StackError::io("use directory", parent))?;
        check_directory(&parent)?;
        let prefix = journal.mark().area_prefix();
        let path = parent.join(format!("{prefix}{}-{stack}", journal.number()));
        journal.note(Undo::RemoveTree { path: path.clone() })?;
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(StackError::io("create", &path))?;
        sync_directory(&parent).map_err(StackError::io("sync", &parent))?;
        Ok(Self { path })
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// An empty directory inside, for one trial; an existing one of that name is removed.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn fresh(&self, name: &str) -> Result<PathBuf, StackError> {
        let path = self.path.join(name);
        if path.exists() {
            fs::remove_dir_all(&path).map_err(StackError::io("remove", &path))?;
        }
        fs::create_dir(&path).map_err(StackError::io("create", &path))?;
        Ok(path)
    }
}
