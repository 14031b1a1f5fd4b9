//! What was measured of this host, as it is kept.
//!
//! Invariant: what was measured of another kernel or other processors is not used, and that is said. What
//! it is not: the measurement.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use sim::Calibration;

/// Where it is kept.
pub fn file(state: &Path) -> PathBuf {
    state.join("host.toml")
}

/// What was measured of this host; none where nothing was, or nothing that can be used, which is said: a
/// study of real disks alone needs none.
pub fn here(state: &Path) -> Option<Calibration> {
    let path = file(state);
    let text = match std::fs::read_to_string(&path) {
        Err(error) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) => {
            return None;
        }
        text => text.map_err(|error| error.to_string()),
    };
    let found = text.and_then(|text| Calibration::parse(&text)).and_then(|found| {
        let same = found.host == runner::host_name();
        same.then_some(found).ok_or("measured on another kernel or CPU".to_owned())
    });
    found
        .inspect_err(|reason| {
            say!(
                "note: {} is not used ({}); help: crosspoint calibrate, or crosspoint calibrate --forget",
                path.display(),
                reason.trim().replace('\n', " ")
            );
        })
        .ok()
}
