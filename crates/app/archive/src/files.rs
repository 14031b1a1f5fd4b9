//! Names of the files of a run, and reading one of them.

use std::fs;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::ArchiveError;

/// Folder of the trials.
pub(crate) const TRIALS: &str = "trials";
/// What ran where; a folder that has it is a run.
pub(crate) const HEADER: &str = "run.json";
/// The study, resolved.
pub(crate) const STUDY: &str = "study.toml";
/// The study as it was given.
pub(crate) const ORIGINAL: &str = "study.original.toml";
/// Of a trial: all but its histograms.
pub(crate) const TRIAL: &str = "trial.json";
/// Of a trial: its histograms.
pub(crate) const LOG: &str = "latency.hlog";

/// The bytes of a file of a run; what is no file (a pipe would be waited for) is damage.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, ArchiveError> {
    let read = || {
        let mut options = fs::OpenOptions::new();
        let mut file = options.read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(std::io::Error::other("it is no file"));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read().map_err(|error: std::io::Error| ArchiveError::damaged(path, error))
}
