//! Instances of the kernel's event tracing: private buffers, removed like everything else.
//!
//! Invariants: an instance is in the undo journal before it exists; its name carries the mark.

use std::fs;
use std::path::{Path, PathBuf};

use crate::tracefs::Tracefs;
use crate::{Journal, StackError, Undo};

/// A buffer of kernel events.
#[derive(Debug)]
pub struct TraceInstance {
    path: PathBuf,
    /// Keeps the path valid.
    _mount: Tracefs,
}

impl TraceInstance {
    /// Creates an instance; its events are disabled. `label` is part of its name.
    ///
    /// # Errors
    /// Without root, or if the kernel has no event tracing.
    pub fn create(journal: &Journal, label: &str) -> Result<Self, StackError> {
        let mount = Tracefs::open()?;
        let name = format!("{}{label}", journal.mark().group_prefix());
        let path = mount.instances().join(&name);
        journal.note(Undo::RemoveTraceInstance { name })?;
        fs::create_dir(&path).map_err(StackError::io("create the trace instance", &path))?;
        Ok(Self { path, _mount: mount })
    }

    /// Its directory, valid while this value exists.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TraceInstance {
    fn drop(&mut self) {
        // If a file of it is still open, the journal's entry removes it later.
        let _ = fs::remove_dir(&self.path);
    }
}
