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

/// No file of a run is longer.
const LONGEST: u64 = 1 << 30;

/// The bytes of a file of a run; what is no file (a pipe would be waited for) is damage.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, ArchiveError> {
    let read = || {
        let mut options = fs::OpenOptions::new();
        // A link may lead out of the run, to what its reader may read and its viewer may not.
        let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
        let opened = options.read(true).custom_flags(flags).open(path);
        let mut file = opened.map_err(|error| match error.raw_os_error() {
            Some(libc::ELOOP) => std::io::Error::other("it is a link"),
            _ => error,
        })?;
        let facts = file.metadata()?;
        if !facts.is_file() {
            return Err(std::io::Error::other("it is no file"));
        }
        if facts.len() > LONGEST {
            return Err(std::io::Error::other("it is longer than 1 GiB"));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read().map_err(|error: std::io::Error| ArchiveError::damaged(path, error))
}
