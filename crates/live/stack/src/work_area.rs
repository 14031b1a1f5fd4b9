//! A directory of ours on the storage under test.
//!
//! Invariant: noted in the undo journal before it exists; its name carries our mark. What it is not:
//! where results are kept.

use std::fs;
use std::path::{Path, PathBuf};

use crate::journal::{MARK, sync_directory};
use crate::{Journal, StackError, Undo};

/// A working directory, removed when the journal is undone.
#[derive(Debug)]
pub struct WorkArea {
    path: PathBuf,
}

impl WorkArea {
    /// Makes a working directory inside `parent` for the stack of that name.
    ///
    /// # Errors
    /// When `parent` does not exist or can not be written to.
    pub fn create(journal: &Journal, parent: &Path, stack: &str) -> Result<Self, StackError> {
        let parent = fs::canonicalize(parent).map_err(StackError::io("use directory", parent))?;
        let path = parent.join(format!("{MARK}{}-{stack}", std::process::id()));
        journal.note(Undo::RemoveTree { path: path.clone() })?;
        fs::create_dir(&path).map_err(StackError::io("create", &path))?;
        sync_directory(&parent).map_err(StackError::io("sync", &parent))?;
        Ok(Self { path })
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// An empty directory inside, for one trial; a former one of that name is removed.
    ///
    /// # Errors
    /// When it can not be made.
    pub fn fresh(&self, name: &str) -> Result<PathBuf, StackError> {
        let path = self.path.join(name);
        if path.exists() {
            fs::remove_dir_all(&path).map_err(StackError::io("remove", &path))?;
        }
        fs::create_dir(&path).map_err(StackError::io("create", &path))?;
        Ok(path)
    }
}
