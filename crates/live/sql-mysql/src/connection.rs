//! Connections to a server: where it is, who asks, and what is looked at before anything is measured.
//!
//! Invariant: a password is taken from the environment, kept in no structure that is written anywhere, and
//! in no message. What it is not: statements.

use std::collections::BTreeMap;
use std::time::Duration;

use mysql::prelude::Queryable;
use mysql::{Conn, Opts, OptsBuilder};
use observe::Counter;
use sql::{Address, Engine, Flavour, Place, Refusal, Secret, SqlError, Target};
use stack::PASSWORD_VARIABLE;
use study::SqlJob;

use crate::binary::check_version;
use crate::owner;
use crate::session::MysqlSession;
use crate::status;

/// The password for a server that others use too, if the environment has one.
#[must_use]
pub fn password_from_environment() -> Option<Secret> {
    std::env::var(PASSWORD_VARIABLE).ok().map(Secret::new)
}

/// Reaching a server.
pub trait Reach {
    /// Connects.
    ///
    /// # Errors
    /// [`SqlError::Refused`] with what to do.
    fn connect(&self) -> Result<Conn, SqlError>;

    /// What the server calls itself, and whether it can be used: its version, that the database is ours or
    /// given up by the study, and the right to make, fill and drop tables in it.
    ///
    /// # Errors
    /// [`SqlError::Refused`] with what to do.
    fn check(&self, job: &SqlJob) -> Result<(Flavour, String), SqlError>;
}

impl Reach for Target {
    fn connect(&self) -> Result<Conn, SqlError> {
        connect_briefly(self)
    }

    fn check(&self, job: &SqlJob) -> Result<(Flavour, String), SqlError> {
        let mut conn = self.connect()?;
        let version: Option<String> = conn.query_first("SELECT VERSION()").map_err(told)?;
        let version = version.unwrap_or_default();
        let maria = version.contains("MariaDB");
        let flavour = if maria { Flavour::MariaDb } else { Flavour::MySql };
        check_version(flavour, &version).map_err(|reason| {
            SqlError::Refused(Refusal { reason, next: "use a newer server".into() })
        })?;
        if let Some(database) = &self.database {
            owner::look(&mut conn, job)?;
            owner::drop_left_probe(&mut conn)?;
            let probe = owner::PROBE;
            for statement in [
                // Fails where a table of somebody else's has this name.
                format!(
                    "CREATE TABLE {probe} (id INT PRIMARY KEY, k INT) COMMENT='{}'",
                    owner::COMMENT
                ),
                format!("CREATE INDEX k ON {probe}(k)"),
                format!("INSERT INTO {probe} VALUES (1, 1)"),
                format!("UPDATE {probe} SET k=2"),
                format!("SELECT k FROM {probe}"),
                format!("DELETE FROM {probe}"),
                format!("DROP TABLE {probe}"),
            ] {
                let result = conn.query_drop(&statement).map_err(told);
                result.map_err(|error| not_allowed(&self.user, database, &statement, &error))?;
            }
        }
        Ok((flavour, version))
    }
}

fn connect_within(
    target: &Target,
    statements: usize,
    answer: Option<Duration>,
) -> Result<Conn, SqlError> {
    let options = OptsBuilder::new()
        .user(Some(target.user.clone()))
        .pass(target.password.as_ref().map(Secret::text))
        .db_name(target.database.clone())
        .prefer_socket(false)
        .stmt_cache_size(statements)
        .tcp_connect_timeout(Some(ANSWER_MAX))
        .read_timeout(answer)
        .write_timeout(answer);
    let options = match &target.address {
        Address::Socket(path) => options.socket(Some(path.display().to_string())),
        Address::Tcp { host, port } => options.ip_or_hostname(Some(host.clone())).tcp_port(*port),
    };
    Conn::new(Opts::from(options)).map_err(|error| refused(target, &error))
}

/// Connects, and does not wait for ever for an answer: for questions that are answered at once.
pub(crate) fn connect_briefly(target: &Target) -> Result<Conn, SqlError> {
    connect_within(target, 32, Some(ANSWER_MAX))
}

/// Connects, for so many prepared statements.
pub(crate) fn connect_with(target: &Target, statements: usize) -> Result<Conn, SqlError> {
    connect_within(target, statements, None)
}

/// Time that a server has for an answer that needs no work.
const ANSWER_MAX: Duration = Duration::from_secs(10);

fn refused(target: &Target, error: &mysql::Error) -> SqlError {
    let (code, reason) = match error {
        mysql::Error::MySqlError(error) => (error.code, error.message.clone()),
        other => (0, other.to_string()),
    };
    let next = match code {
        1044 | 1045 | 1698 => format!(
            "check the user of the dsn; the password comes from the environment: \
             {PASSWORD_VARIABLE}=... crosspoint run STUDY"
        ),
        1049 => {
            format!(
                "make it first: CREATE DATABASE {}",
                target.database.as_deref().unwrap_or("NAME")
            )
        }
        1040 => "the server takes no more connections: fewer threads, or raise its max_connections"
            .into(),
        _ => "check host and port, or the socket, of the dsn; is the server running?".into(),
    };
    let reason = format!("no connection to {} as {}: {reason}", target.address, target.user);
    SqlError::Refused(Refusal { reason, next })
}

fn not_allowed(user: &str, database: &str, statement: &str, error: &SqlError) -> SqlError {
    let word = statement.split(' ').next().unwrap_or_default();
    let right = if statement.starts_with("CREATE INDEX") { "INDEX" } else { word };
    SqlError::Refused(Refusal {
        reason: format!("user {user} may not {right} in database {database}: {error}"),
        next: format!(
            "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, INDEX ON {database}.* TO {user}"
        ),
    })
}

/// Numbers of errors after which a connection is of no use: the server goes down, or is gone.
const GONE: [u16; 4] = [1053, 1927, 2006, 2013];

/// An error of the client library in our words.
pub(crate) fn told(error: mysql::Error) -> SqlError {
    match error {
        mysql::Error::MySqlError(error) => of_server(error.code, error.message),
        other => SqlError::Lost(other.to_string()),
    }
}

/// An error that the server told by its number.
pub(crate) fn of_server(code: u16, reason: String) -> SqlError {
    if GONE.contains(&code) { SqlError::Lost(reason) } else { SqlError::Statement { code, reason } }
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
}

impl Engine for Mysql {
    type Session = MysqlSession;

    fn open(place: &Place, job: &SqlJob) -> Result<Self, SqlError> {
        match place {
            Place::Server { target, flavour } => Ok(Self::new(target.clone(), *flavour, job)),
            Place::Directory(dir) => Err(SqlError::Refused(Refusal {
                reason: format!("{} is no server", dir.display()),
                next: "please report this".into(),
            })),
        }
    }

    fn claim(&self) -> Result<(), SqlError> {
        match self.job.dsn {
            Some(_) => owner::claim(&mut self.target.connect()?, &self.job),
            None => Ok(()),
        }
    }

    fn session(&self, statements: bool) -> Result<MysqlSession, SqlError> {
        MysqlSession::open(&self.target, self.flavour, &self.job, statements)
    }

    fn counters(&self) -> Vec<Counter> {
        self.ask(status::counters).unwrap_or_default()
    }

    fn set(&self, setting: &str) -> Result<(), SqlError> {
        let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
        owner::set(&mut self.target.connect()?, name, value)
    }

    fn version(&self) -> String {
        let said = self.ask(|conn| conn.query_first::<String, _>("SELECT VERSION()")).flatten();
        said.unwrap_or_else(|| "unknown".into())
    }

    fn settings(&self) -> Vec<(String, String)> {
        let rows: Vec<(String, String)> =
            self.ask(|conn| conn.query("SHOW GLOBAL VARIABLES")).unwrap_or_default();
        let secret = |name: &str| name.contains("password") || name.contains("secret");
        rows.into_iter().filter(|(name, _)| !secret(name)).collect()
    }

    fn table_bytes(&self) -> u64 {
        // What the files occupy, where the server tells it.
        let files = "SELECT CAST(COALESCE(SUM(allocated_size), 0) AS UNSIGNED) FROM \
                     information_schema.innodb_sys_tablespaces \
                     WHERE name LIKE CONCAT(DATABASE(), '/sbtest%')";
        let told = self.ask(|conn| conn.query_first::<u64, _>(files)).flatten();
        told.filter(|bytes| *bytes > 0).unwrap_or_else(|| self.page_bytes())
    }

    fn page_bytes(&self) -> u64 {
        let pages = "SELECT CAST(COALESCE(SUM(data_length + index_length), 0) AS UNSIGNED) \
                     FROM information_schema.tables WHERE table_schema = DATABASE() \
                     AND table_name LIKE 'sbtest%'";
        self.ask(|conn| conn.query_first::<u64, _>(pages)).flatten().unwrap_or(0)
    }

    fn sums(&self) -> BTreeMap<String, f64> {
        self.ask(status::sums).unwrap_or_default()
    }

    fn totals(&self, earlier: &BTreeMap<String, f64>) -> Vec<(&'static str, f64)> {
        status::totals(earlier, &self.sums(), self.job.page_size.get())
    }
}
