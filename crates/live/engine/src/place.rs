//! Location of a database: the directory or device of an embedded engine, or a database on a server.
//! Passwords in it are never printed.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::EngineError;

/// Location of a database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// A directory, or a block device owned by an embedded engine.
    Directory(PathBuf),
    /// A database on a server.
    Server(Target),
}

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Address {
    /// A unix socket.
    Socket(PathBuf),
    /// A TCP port.
    Tcp {
        /// Host name or address.
        host: String,
        /// Port.
        port: u16,
    },
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => write!(out, "{}", path.display()),
            Self::Tcp { host, port } => write!(out, "{host}:{port}"),
        }
    }
}

/// A password: passed through pipes to our processes, never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret(String);

impl Secret {
    /// Holds `text`.
    #[must_use]
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("(a password)")
    }
}

/// A database on a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Where the server is.
    pub address: Address,
    /// User name.
    pub user: String,
    /// The database, if it exists already.
    pub database: Option<String>,
    /// The password, if the account has one.
    pub password: Option<Secret>,
}

impl Place {
    /// Directory or device of an embedded database.
    ///
    /// # Errors
    /// When it is a server.
    pub fn path(&self) -> Result<&Path, EngineError> {
        match self {
            Self::Directory(path) => Ok(path),
            Self::Server(target) => Err(EngineError::refused(
                format!("{} is a server; the engine is embedded", target.address),
                "please report this",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passwords end up in logs that are shared.
    #[test]
    fn a_password_is_never_shown() {
        let target = Target {
            address: Address::Socket("/run/s.sock".into()),
            user: "me".into(),
            database: None,
            password: Some(Secret::new("hunter2".into())),
        };
        assert!(!format!("{target:?}").contains("hunter2"));
    }
}
