//! A trial as one line: what a process sends to another, and what the journal of a trial holds.

use std::path::Path;

use stats::{read_log, write_log};

use crate::document::TrialDocument;
use crate::files::{SizeLimit, values};
use crate::{ArchiveError, TrialRecord};

/// A trial's record in one line, for another process.
///
/// # Errors
/// When its histograms cannot be written.
pub fn to_line(trial: &TrialRecord) -> Result<String, ArchiveError> {
    let log = write_log(&trial.result.recording)
        .map_err(|error| ArchiveError::damaged(Path::new("the record"), error))?;
    let document = TrialDocument::new(trial, log.len() as u64, crc32fast::hash(&log));
    let both = (document, String::from_utf8_lossy(&log).into_owned());
    Ok(serde_json::to_string(&both).expect("invariant: plain data is JSON"))
}

/// The record that [`to_line`](crate::to_line) wrote.
///
/// # Errors
/// [`ArchiveError::Damaged`] when it is not one.
pub fn from_line(line: &str) -> Result<TrialRecord, ArchiveError> {
    let path = Path::new("the record of another process");
    if values(line.as_bytes()) > SizeLimit::TRIAL.values {
        return Err(ArchiveError::damaged(path, "it has more values than any trial"));
    }
    let (document, log): (TrialDocument, String) =
        serde_json::from_str(line).map_err(|error| ArchiveError::damaged(path, error))?;
    let mut trial = document
        .into_record(String::new())
        .map_err(|reason| ArchiveError::damaged(path, reason))?;
    read_log(log.as_bytes(), &mut trial.result.recording)
        .map_err(|error| ArchiveError::damaged(path, error))?;
    Ok(trial)
}
