//! The stored calibration of this host.
//!
//! Invariant: calibrations of another kernel or CPU are not used, which is reported.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use sim::Calibration;

/// Path of the calibration.
pub fn file(state: &Path) -> PathBuf {
    state.join("host.toml")
}

/// The calibration of this host; `None` if there is none or it is unusable, which is reported. Studies of
/// real disks do not need it.
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
