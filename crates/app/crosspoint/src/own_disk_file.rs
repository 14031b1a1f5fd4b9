//! How far off simulations were on a disk of this host, as measured by `validate`.
//!
//! Invariants: what another kernel, CPU or version of this program found is not used; a new calibration makes
//! it void.

use std::path::{Path, PathBuf};

use archive::OwnDisk;
use serde::{Deserialize, Serialize};
use stack::state_directory;

/// What is kept.
#[derive(Serialize, Deserialize)]
pub struct Kept {
    /// Kernel and processors.
    host: String,
    version: String,
    /// Name of the run.
    run: String,
    own_disk: OwnDisk,
}

impl Kept {
    /// What was found on this host by this version.
    pub fn new(run: String, own_disk: OwnDisk) -> Self {
        Self { host: runner::host_name(), version: VERSION.into(), run, own_disk }
    }
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Path of what is kept.
pub fn file(state: &Path) -> PathBuf {
    state.join("validation.json")
}

/// Forgets what was found with another calibration.
pub fn forget(state: &Path) {
    // Without the file there is nothing to forget.
    _ = std::fs::remove_file(file(state));
}

/// What was found; `None` if nothing was validated with this host's present calibration.
pub fn own_disk() -> Option<OwnDisk> {
    let text = std::fs::read_to_string(file(&state_directory().ok()?)).ok()?;
    let kept: Kept = serde_json::from_str(&text).ok()?;
    (kept.host == runner::host_name() && kept.version == VERSION).then_some(kept.own_disk)
}
