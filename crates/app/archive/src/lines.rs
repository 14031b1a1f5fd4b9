//! A trial as one message: between processes, and as a line of a journal.

use std::path::Path;

use serde::{Deserialize, Serialize};
use stats::{TrialResult, read_log, write_log};

use crate::document::TrialDocument;
use crate::files::{SizeLimit, values};
use crate::{ArchiveError, TrialRecord};

/// A trial's record for another process: its document, and the text of its histogram log.
#[derive(Debug, Serialize, Deserialize)]
pub struct TrialMessage(TrialDocument, String);

impl TrialMessage {
    /// The message with a result, for a reader that already knows the trial.
    ///
    /// # Errors
    /// If its histograms cannot be encoded.
    pub fn of_result(result: TrialResult) -> Result<Self, ArchiveError> {
        Self::new(&TrialRecord::unnamed(result))
    }

    fn new(trial: &TrialRecord) -> Result<Self, ArchiveError> {
        let log = write_log(&trial.result.recording).map_err(|error| damaged(&error))?;
        let document = TrialDocument::new(trial, log.len() as u64, crc32fast::hash(&log));
        Ok(Self(document, String::from_utf8_lossy(&log).into_owned()))
    }

    /// Returns the record.
    ///
    /// # Errors
    /// [`ArchiveError::Damaged`] if it is invalid.
    pub fn into_record(self) -> Result<TrialRecord, ArchiveError> {
        let Self(document, log) = self;
        let mut trial = document.into_record(String::new()).map_err(|reason| damaged(&reason))?;
        read_log(log.as_bytes(), &mut trial.result.recording).map_err(|error| damaged(&error))?;
        Ok(trial)
    }
}

fn damaged(reason: &dyn std::fmt::Display) -> ArchiveError {
    ArchiveError::damaged(Path::new("the record of another process"), reason)
}

/// A trial's record in one line of a journal.
pub(crate) fn to_line(trial: &TrialRecord) -> Result<String, ArchiveError> {
    let message = TrialMessage::new(trial)?;
    Ok(serde_json::to_string(&message).expect("invariant: plain data is JSON"))
}

/// The record that [`to_line`] wrote.
pub(crate) fn from_line(line: &str) -> Result<TrialRecord, ArchiveError> {
    if values(line.as_bytes()) > SizeLimit::TRIAL.values {
        return Err(damaged(&"it has more values than any trial"));
    }
    let message: TrialMessage = serde_json::from_str(line).map_err(|error| damaged(&error))?;
    message.into_record()
}
