//! What was measured of this host, as it is kept.
//!
//! Invariant: what was measured of another kernel or other processors is not used, and that is said. What it
//! is not: the measurement.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use sim::Calibration;
use stack::StackError;

use crate::show::Failure;

/// Where it is kept.
pub fn file(state: &Path) -> PathBuf {
    state.join("host.toml")
}

/// What was measured of this host; none where nothing was, or only of another.
///
/// # Errors
/// When the file cannot be read or is none of ours.
pub fn here(state: &Path) -> Result<Option<Calibration>, Failure> {
    let path = file(state);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) => {
            return Ok(None);
        }
        Err(error) => return Err(stack_error(StackError::io("read", &path)(error))),
    };
    let found = Calibration::parse(&text).map_err(|reason| {
        let (device, next) = (path.display().to_string(), "crosspoint calibrate --forget".into());
        stack_error(StackError::Refused { device, reason, next })
    })?;
    if found.host == runner::host_name() {
        return Ok(Some(found));
    }
    say!(
        "note: {} was measured on another kernel or other processors and is not used; again with: \
         crosspoint calibrate",
        path.display()
    );
    Ok(None)
}

/// An error of the machine as this program reports it.
pub fn stack_error(error: StackError) -> Failure {
    Failure::from(runner::RunnerError::from(error))
}
