//! Connections to a server: where it is, who asks, and what is looked at before anything is measured.
//!
//! Invariant: a password is taken from the environment, kept in no structure that is written anywhere, and
//! in no message. What it is not: statements.

use std::fmt;
use std::path::PathBuf;

use mysql::prelude::Queryable;
use mysql::{Conn, Opts, OptsBuilder};
use observe::Counter;
use sql::{Engine, Refusal, SqlError};
use study::SqlJob;

use crate::binary::{Flavour, check_version};
use crate::session::MysqlSession;
use crate::status;

/// Environment variable that holds the password.
pub const PASSWORD_VARIABLE: &str = "CROSSPOINT_SQL_PASSWORD";

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
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

/// A database on a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Where the server is.
    pub address: Address,
    /// Who asks.
    pub user: String,
    /// The database, if it is there already.
    pub database: Option<String>,
    /// A server that others use too, with a password from the environment.
    pub shared: bool,
}

impl Target {
    /// The `root` of a private server at `address`.
    #[must_use]
    pub fn private(address: Address, database: Option<&str>) -> Self {
        Self { address, user: "root".into(), database: database.map(Into::into), shared: false }
    }

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
        Ok(Self { address, user: user.into(), database: Some(database.into()), shared: true })
    }

    /// Connects.
    ///
    /// # Errors
    /// [`SqlError::Refused`] with what to do.
    pub fn connect(&self) -> Result<Conn, SqlError> {
        self.connect_with(32)
    }

    /// Connects, for so many prepared statements.
    pub(crate) fn connect_with(&self, statements: usize) -> Result<Conn, SqlError> {
        let password = self.shared.then(|| std::env::var(PASSWORD_VARIABLE).ok()).flatten();
        let options = OptsBuilder::new()
            .user(Some(self.user.clone()))
            .pass(password)
            .db_name(self.database.clone())
            .prefer_socket(false)
            .stmt_cache_size(statements)
            .tcp_connect_timeout(Some(std::time::Duration::from_secs(10)));
        let options = match &self.address {
            Address::Socket(path) => options.socket(Some(path.display().to_string())),
            Address::Tcp { host, port } => options.ip_or_hostname(Some(host.clone())).tcp_port(*port),
        };
        Conn::new(Opts::from(options)).map_err(|error| self.refused(&error))
    }

    fn refused(&self, error: &mysql::Error) -> SqlError {
        let (code, reason) = match error {
            mysql::Error::MySqlError(error) => (error.code, error.message.clone()),
            other => (0, other.to_string()),
        };
        let next = match code {
            1044 | 1045 | 1698 => format!(
                "check the user of the dsn; the password comes from the environment: \
                 {PASSWORD_VARIABLE}=... crosspoint run STUDY"
            ),
            1049 => format!(
                "make it first: CREATE DATABASE {}",
                self.database.as_deref().unwrap_or("NAME")
            ),
            1040 => "the server takes no more connections: fewer threads, or raise its \
                     max_connections"
                .into(),
            _ => "check host and port, or the socket, of the dsn; is the server running?".into(),
        };
        SqlError::Refused(Refusal {
            reason: format!("no connection to {} as {}: {reason}", self.address, self.user),
            next,
        })
    }

    /// What the server calls itself, and whether it can be used: its version, and the right to make, fill
    /// and drop tables in the database.
    ///
    /// # Errors
    /// [`SqlError::Refused`] with what to do.
    pub fn check(&self) -> Result<(Flavour, String), SqlError> {
        let mut conn = self.connect()?;
        let version: Option<String> = conn.query_first("SELECT VERSION()").map_err(told)?;
        let version = version.unwrap_or_default();
        let maria = version.contains("MariaDB");
        let flavour = if maria { Flavour::MariaDb } else { Flavour::MySql };
        check_version(flavour, &version).map_err(|reason| {
            SqlError::Refused(Refusal { reason, next: "use a newer server".into() })
        })?;
        if let Some(database) = &self.database {
            let probe = "crosspoint_may_this_user";
            for statement in [
                format!("CREATE TABLE {probe} (id INT PRIMARY KEY, k INT)"),
                format!("CREATE INDEX k ON {probe}(k)"),
                format!("INSERT INTO {probe} VALUES (1, 1)"),
                format!("UPDATE {probe} SET k=2"),
                format!("SELECT k FROM {probe}"),
                format!("DELETE FROM {probe}"),
                format!("DROP TABLE {probe}"),
            ] {
                let result = conn.query_drop(&statement).map_err(told);
                result.map_err(|error| self.not_allowed(database, &statement, &error))?;
            }
        }
        Ok((flavour, version))
    }

    fn not_allowed(&self, database: &str, statement: &str, error: &SqlError) -> SqlError {
        let word = statement.split(' ').next().unwrap_or_default();
        let right = if statement.starts_with("CREATE INDEX") { "INDEX" } else { word };
        SqlError::Refused(Refusal {
            reason: format!("user {} may not {right} in database {database}: {error}", self.user),
            next: format!(
                "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, INDEX ON {database}.* TO {}",
                self.user
            ),
        })
    }
}

/// Numbers of errors after which a connection is of no use: the server goes down, or is gone.
const GONE: [u16; 4] = [1053, 1927, 2006, 2013];

/// An error of the client library in our words.
pub(crate) fn told(error: mysql::Error) -> SqlError {
    match error {
        mysql::Error::MySqlError(error) if !GONE.contains(&error.code) => {
            SqlError::Statement { code: error.code, reason: error.message }
        }
        other => SqlError::Lost(other.to_string()),
    }
}

/// A MariaDB or MySQL server as an engine.
#[derive(Debug)]
pub struct Mysql {
    target: Target,
    flavour: Flavour,
    job: SqlJob,
    /// The connection of whoever watches the server.
    status: std::sync::Mutex<Option<Conn>>,
}

impl Mysql {
    /// Of a server that was checked.
    #[must_use]
    pub fn new(target: Target, flavour: Flavour, job: &SqlJob) -> Self {
        Self { target, flavour, job: job.clone(), status: std::sync::Mutex::default() }
    }

    /// Asks something over the connection that watches; `None` when there is no connection.
    pub(crate) fn ask<T>(&self, question: impl FnOnce(&mut Conn) -> mysql::Result<T>) -> Option<T> {
        let mut status = self.status.lock().ok()?;
        if status.is_none() {
            *status = self.target.connect().ok();
        }
        let answer = question(status.as_mut()?);
        if answer.is_err() {
            *status = None;
        }
        answer.ok()
    }

    /// Every variable of the server with its value, passwords and keys left out; empty without a connection.
    #[must_use]
    pub fn settings(&self) -> Vec<(String, String)> {
        let rows: Vec<(String, String)> =
            self.ask(|conn| conn.query("SHOW GLOBAL VARIABLES")).unwrap_or_default();
        let secret = |name: &str| name.contains("password") || name.contains("secret");
        rows.into_iter().filter(|(name, _)| !secret(name)).collect()
    }

    /// Bytes that the tables take: data and indexes, as the server counts them; its files where it tells.
    #[must_use]
    pub fn table_bytes(&self) -> u64 {
        let query = "SELECT CAST(COALESCE(SUM(data_length + index_length), 0) AS UNSIGNED) \
                     FROM information_schema.tables WHERE table_schema = DATABASE() \
                     AND table_name LIKE 'sbtest%'";
        self.ask(|conn| conn.query_first::<u64, _>(query)).flatten().unwrap_or(0)
    }

    /// Drops the tables of the workload.
    ///
    /// # Errors
    /// What the server said.
    pub fn drop_tables(&self) -> Result<(), SqlError> {
        let mut conn = self.target.connect()?;
        for table in 1..=self.job.tables {
            conn.query_drop(format!("DROP TABLE IF EXISTS sbtest{table}")).map_err(told)?;
        }
        Ok(())
    }

    /// What was counted since the server began.
    #[must_use]
    pub fn totals(&self) -> status::Totals {
        self.ask(status::totals).unwrap_or_default()
    }
}

impl Engine for Mysql {
    type Session = MysqlSession;

    fn session(&self, statements: bool) -> Result<MysqlSession, SqlError> {
        MysqlSession::open(&self.target, self.flavour, &self.job, statements)
    }

    fn counters(&self) -> Vec<Counter> {
        self.ask(status::counters).unwrap_or_default()
    }

    fn set(&self, setting: &str) -> Result<(), SqlError> {
        let (name, value) = setting.split_once('=').unwrap_or((setting, "DEFAULT"));
        let number = status::bytes_of(value);
        let value = number.map_or_else(|| value.to_owned(), |number| number.to_string());
        let mut conn = self.target.connect()?;
        conn.query_drop(format!("SET GLOBAL {} = {value}", name.replace('-', "_"))).map_err(told)
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
    }
}
