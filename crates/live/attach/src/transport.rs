//! The interface of transports, which expose a modelled disk.
//!
//! A transport makes the disk visible as a file or block device, takes block requests from the kernel and
//! passes them to [`ServedDisk`], which handles data, model and faults. A new transport is a module with this
//! trait and one line in `TRANSPORTS`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use thiserror::Error;
use units::Nanos;

use crate::timed::ServedDisk;

/// A requirement of a transport that this machine lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// What is missing.
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
    /// The failed action, and its error.
    #[error("{0}: {1}")]
    Io(&'static str, io::Error),
    /// The transport is unavailable.
    #[error("{}", .0.reason)]
    Missing(Missing),
    /// The emulation overhead exceeds the device's time.
    #[error(
        "too fast to be emulated on this machine now: the drive's read takes {takes} plus {path} of \
         kernel I/O path, the emulation overhead is {floor}; it can be attached at scale {scale}"
    )]
    TooFast {
        /// The device's time for a 4 KiB read.
        takes: Nanos,
        /// A real device's I/O path.
        path: Nanos,
        /// The emulation overhead.
        floor: Nanos,
        /// The least time scale at which it can be attached.
        scale: u32,
    },
}

/// A disk that is reachable.
pub(crate) struct Opened {
    /// The file or block device that is the disk.
    pub file: PathBuf,
    /// The threads that serve it until it is unmounted or [`ServedDisk`] is stopped; or why one could not
    /// start.
    pub threads: Vec<Result<JoinHandle<io::Result<()>>, AttachError>>,
}

/// A source of requests from the kernel.
#[derive(Debug)]
pub(crate) struct Transport {
    /// Name in options and figures.
    pub word: &'static str,
    /// Short description.
    pub about: &'static str,
    /// Checks that it is available; the error is what is missing.
    pub available: fn() -> Result<(), Missing>,
    /// Whether opening changes a host setting temporarily, which a kill would leave changed.
    pub changes_host: fn() -> bool,
    /// Exposes a disk, at the empty directory if it is a file, and starts serving it; nothing is mounted
    /// after an error.
    pub open: fn(&Path, &Arc<ServedDisk>) -> Result<Opened, AttachError>,
}
