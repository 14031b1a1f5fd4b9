//! The error type of every engine.
//!
//! The client loop decides by [`ErrorKind`]; each engine maps its own codes to a kind. The text is for
//! people.

use std::fmt;

use thiserror::Error;

/// Consequence of a failure for a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operation failed; the session can be used again.
    Failed,
    /// The engine rolled the transaction back (deadlock, write conflict, lock wait timeout): retry it.
    Retryable,
    /// The connection is lost; the session is of no further use.
    Disconnected,
    /// The engine cannot be used: a missing library, server or privilege, or an unknown setting.
    Refused,
    /// The directory or device holds data that is not Crosspoint's and is not overwritten.
    NotOurs,
    /// A value that was never written was read, or a record is missing.
    Corruption,
    /// Acknowledged data is lost after a crash.
    Lost,
}

/// An engine's error.
#[derive(Error)]
pub enum EngineError {
    /// An operation failed with this operating-system error number. Costs no allocation.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    Os(i32),
    /// Any other error.
    #[error("{0}")]
    Described(Box<Description>),
}

/// The details of an [`EngineError`].
#[derive(Debug)]
pub struct Description {
    kind: ErrorKind,
    code: i32,
    reason: String,
    help: Option<String>,
}

/// Code recorded if an engine gives none.
const NO_CODE: i32 = -1;

impl fmt::Display for Description {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind, self.code) {
            (ErrorKind::Disconnected, _) => write!(out, "the connection was lost: {}", self.reason),
            (ErrorKind::Failed | ErrorKind::Retryable, code) if code != NO_CODE => {
                write!(out, "error {code}: {}", self.reason)
            }
            _ => out.write_str(&self.reason),
        }
    }
}

impl fmt::Debug for EngineError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}: {self}", self.kind())
    }
}

impl EngineError {
    fn described(kind: ErrorKind, code: i32, reason: String) -> Self {
        Self::Described(Box::new(Description { kind, code, reason, help: None }))
    }

    /// `engine` failed at `action`; `reason` is the engine's own message.
    #[must_use]
    pub fn failed(engine: &str, action: &str, reason: impl fmt::Display) -> Self {
        let reason = format!("{engine}: cannot {action}: {reason}");
        Self::described(ErrorKind::Failed, NO_CODE, reason)
    }

    /// A statement failed with the engine's own `code`; `kind` is [`ErrorKind::Failed`] or
    /// [`ErrorKind::Retryable`].
    #[must_use]
    pub fn statement(kind: ErrorKind, code: i32, reason: String) -> Self {
        Self::described(kind, code, reason)
    }

    /// The connection is lost.
    #[must_use]
    pub fn disconnected(reason: String) -> Self {
        Self::described(ErrorKind::Disconnected, NO_CODE, reason)
    }

    /// The engine cannot be used; `help` says what to do about it.
    #[must_use]
    pub fn refused(reason: impl Into<String>, help: impl Into<String>) -> Self {
        Self::with_help(ErrorKind::Refused, reason.into(), help.into())
    }

    /// The directory or device holds foreign data; `help` names the next step.
    #[must_use]
    pub fn not_ours(reason: impl Into<String>, help: impl Into<String>) -> Self {
        Self::with_help(ErrorKind::NotOurs, reason.into(), help.into())
    }

    fn with_help(kind: ErrorKind, reason: String, help: String) -> Self {
        Self::Described(Box::new(Description { kind, code: NO_CODE, reason, help: Some(help) }))
    }

    /// Record number `record` is missing or corrupt.
    #[must_use]
    pub fn corruption(record: u64, what: &str) -> Self {
        Self::described(ErrorKind::Corruption, NO_CODE, format!("record {record}: {what}"))
    }

    /// `count` records are older than acknowledged under `durability`.
    #[must_use]
    pub fn lost(count: u64, durability: &str) -> Self {
        let reason = format!(
            "{count} records differ from the last acknowledged update despite durability {durability}"
        );
        Self::described(ErrorKind::Lost, NO_CODE, reason)
    }

    /// Its consequence for a trial.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Os(_) => ErrorKind::Failed,
            Self::Described(one) => one.kind,
        }
    }

    /// The number recorded with a failed operation; -1 if the engine gives none.
    #[must_use]
    pub fn code(&self) -> i32 {
        match self {
            Self::Os(code) => *code,
            Self::Described(one) => one.code,
        }
    }

    /// The engine's own message, without a prefix.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::Os(_) => self.to_string(),
            Self::Described(one) => one.reason.clone(),
        }
    }

    /// What to do about it, if known.
    #[must_use]
    pub fn help(&self) -> Option<&str> {
        match self {
            Self::Os(_) => None,
            Self::Described(one) => one.help.as_deref(),
        }
    }
}
