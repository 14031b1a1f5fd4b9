//! How a modelled disk is reached: what each transport has to bring.
//!
//! A transport makes the disk visible as a file or a block device, takes block requests from the kernel and
//! hands them to [`ServedDisk`], which knows data, model and faults. A new one is a module with this trait
//! and one line of `TRANSPORTS`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use thiserror::Error;
use units::Nanos;

use crate::timed::ServedDisk;

/// What a transport needs and this machine lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// What is not there.
    pub reason: String,
    /// What to do about it.
    pub next: String,
}

impl Missing {
    pub(crate) fn new(reason: impl Into<String>, next: impl Into<String>) -> Self {
        Self { reason: reason.into(), next: next.into() }
    }
}

/// Why a device cannot be attached.
#[derive(Debug, Error)]
pub enum AttachError {
    /// What failed, and how.
    #[error("{0}: {1}")]
    Io(&'static str, io::Error),
    /// The transport cannot be used here.
    #[error("{}", .0.reason)]
    Missing(Missing),
    /// The way there and back takes longer than the device.
    #[error(
        "too fast to be emulated on this machine now: the drive's read takes {takes} plus {path} of \
         kernel I/O path, the emulation overhead is {floor}; it can be attached at scale {scale}"
    )]
    TooFast {
        /// What the device takes for a read of 4 KiB.
        takes: Nanos,
        /// What the way to a real device takes.
        path: Nanos,
        /// What the way takes.
        floor: Nanos,
        /// The least scale with which it can be attached.
        scale: u32,
    },
}

/// A disk that is reachable.
pub(crate) struct Opened {
    /// The file or block device that is the disk.
    pub file: PathBuf,
    /// The threads that serve it, until it is gone or [`ServedDisk`] is to end; or why one could not start.
    pub threads: Vec<Result<JoinHandle<io::Result<()>>, AttachError>>,
}

/// A way for requests to come from the kernel.
pub(crate) trait Transport: Sync {
    /// The word in options and figures.
    fn word(&self) -> &'static str;

    /// What it is, in a few words.
    fn about(&self) -> &'static str;

    /// Whether it can be used here.
    ///
    /// # Errors
    /// What is missing.
    fn available(&self) -> Result<(), Missing>;

    /// Whether opening changes a setting of the host for a moment, which a killed process would leave.
    fn changes_host(&self) -> bool {
        false
    }

    /// Makes `disk` reachable, at the empty directory `place` if it is a file, and starts serving it.
    ///
    /// # Errors
    /// [`AttachError`]; then nothing is mounted.
    fn open(&self, place: &Path, disk: &Arc<ServedDisk>) -> Result<Opened, AttachError>;
}
