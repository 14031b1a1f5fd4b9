//! Errors of a stack, with the next command.
//!
//! Invariant: each variant maps to one exit code.

use std::io;
use std::path::PathBuf;

use thiserror::Error;
use units::Bytes;

/// Why a stack cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StackError {
    /// The safety guard refuses the device.
    #[error("refused: {device}: {reason}")]
    Refused {
        /// Path of the device.
        device: String,
        /// Why.
        reason: String,
        /// What to do instead.
        next: String,
    },
    /// Not enough free space.
    #[error("{path} has {free} free, the study needs {needed}")]
    NoSpace {
        /// Directory.
        path: PathBuf,
        /// Bytes free to this user.
        free: Bytes,
        /// Bytes needed, with a margin.
        needed: Bytes,
    },
    /// The file system cannot bypass the page cache.
    #[error("{path}: the file system ({file_system}) does not support O_DIRECT")]
    NoDirectIo {
        /// Directory.
        path: PathBuf,
        /// Its type.
        file_system: String,
    },
    /// An action on the host failed.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// The action.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl StackError {
    /// Refuses `what` with a reason and what to do instead.
    pub fn refused(
        device: &(impl std::fmt::Display + ?Sized),
        reason: impl Into<String>,
        next: impl Into<String>,
    ) -> Self {
        Self::Refused { device: device.to_string(), reason: reason.into(), next: next.into() }
    }

    /// Whether the resource was in use.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::ResourceBusy)
    }

    /// For `map_err` after an operation on `path`.
    pub fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}
