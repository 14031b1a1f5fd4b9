//! Where a database is: a directory of an embedded engine, or a database on a server.
//!
//! Invariant: a password in it is never shown. What it is not: a connection.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Whose server it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Flavour {
    /// MariaDB.
    MariaDb,
    /// MySQL, or a server that calls itself so.
    MySql,
}

/// Where a database is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// A directory.
    Directory(PathBuf),
    /// A server.
    Server {
        /// The database on it.
        target: Target,
        /// Whose it is.
        flavour: Flavour,
    },
}

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Address {
    /// A unix socket.
    Socket(PathBuf),
    /// A port.
    Tcp {
        /// Name or number of the machine.
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

/// A password: goes through pipes to processes of ours, and is shown nowhere.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret(String);

impl Secret {
    /// Holds `text`.
    #[must_use]
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// What it is.
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
    /// Who asks.
    pub user: String,
    /// The database, if it is there already.
    pub database: Option<String>,
    /// Their password, if they have one.
    pub password: Option<Secret>,
}

impl Target {
    /// From a study's dsn, which was checked for its form.
    ///
    /// # Errors
    /// When it has another form.
    pub fn parse(dsn: &str) -> Result<Self, String> {
        let form = || "a dsn is mysql://USER@HOST:PORT/DATABASE".to_owned();
        let rest = dsn.strip_prefix("mysql://").ok_or_else(form)?;
        let (user, place) = rest.rsplit_once('@').ok_or_else(form)?;
        let socket = place.starts_with('/');
        let (place, database) =
            place.rsplit_once(if socket { ':' } else { '/' }).ok_or_else(form)?;
        let address = if socket {
            Address::Socket(PathBuf::from(place))
        } else {
            let (host, port) = place.rsplit_once(':').unwrap_or((place, "3306"));
            let port = port.parse().map_err(|_| form())?;
            Address::Tcp { host: host.into(), port }
        };
        Ok(Self { address, user: user.into(), database: Some(database.into()), password: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn a_dsn_names_a_port_or_a_socket() {
        let tcp = Target::parse("mysql://me@db.example:3307/test").unwrap();
        let address = Address::Tcp { host: "db.example".into(), port: 3307 };
        assert_eq!((tcp.address, tcp.user.as_str()), (address, "me"));
        let socket = Target::parse("mysql://me@/run/s.sock:test").unwrap();
        assert_eq!(socket.address, Address::Socket("/run/s.sock".into()));
        assert_eq!(socket.database.as_deref(), Some("test"));
        let known = Target { password: Some(Secret::new("hunter2".into())), ..socket };
        assert!(!format!("{known:?}").contains("hunter2"));
    }
}
