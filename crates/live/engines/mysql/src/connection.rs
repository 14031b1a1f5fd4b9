//! A server as an engine: checks before a measurement, queries during it.
//!
//! Invariant: nothing is measured on an unchecked server.

use std::collections::BTreeMap;

use engine::{Engine, EngineError, Home, Place, ServerVerbs, SqlEngine, Target};
use mysql::Conn;
use mysql::prelude::Queryable;
use observe::Counter;
use stats::ROUND_TRIP;
use study::{Descriptor, SqlJob};

use crate::binary::{Binary, check_version, flavour_of};
use crate::hosting::SERVER;
use crate::options::{MYSQL, Own};
use crate::owner;
use crate::reach::{connect_briefly, told};
use crate::session::MysqlSession;
use crate::status;

/// Checks that a server is usable: new enough, the database is ours or released by
/// the study, and the account may create, fill and drop tables.
pub(crate) fn check(target: &Target, job: &SqlJob) -> Result<(), EngineError> {
    let mut conn = connect_briefly(target)?;
    let version: Option<String> = conn.query_first("SELECT VERSION()").map_err(told)?;
    let version = version.unwrap_or_default();
    check_version(flavour_of(&version), &version)
        .map_err(|reason| EngineError::refused(reason, "use a newer server"))?;
    if let Some(database) = &target.database {
        owner::look(&mut conn, job)?;
        owner::drop_left_probe(&mut conn)?;
        let probe = owner::PROBE;
        for statement in [
            // Fails if a foreign table has this name.
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
            result.map_err(|error| not_allowed(&target.user, database, &statement, &error))?;
        }
    }
    Ok(())
}

fn not_allowed(user: &str, database: &str, statement: &str, error: &EngineError) -> EngineError {
    let word = statement.split(' ').next().unwrap_or_default();
    let right = if statement.starts_with("CREATE INDEX") { "INDEX" } else { word };
    EngineError::refused(
        format!("user {user} lacks {right} in database {database}: {error}"),
        format!(
            "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, INDEX ON {database}.* TO {user}"
        ),
    )
}

/// A MariaDB or MySQL server as an engine.
#[derive(Debug)]
pub struct Mysql {
    target: Target,
    job: SqlJob,
    /// The monitoring connection.
    status: std::sync::Mutex<Option<Conn>>,
}

impl Mysql {
    /// For a server that was checked.
    #[must_use]
    pub fn new(target: Target, job: &SqlJob) -> Self {
        Self { target, job: job.clone(), status: std::sync::Mutex::default() }
    }

    /// Runs a query on the monitoring connection; `None` without one.
    pub(crate) fn ask<T>(&self, question: impl FnOnce(&mut Conn) -> mysql::Result<T>) -> Option<T> {
        let mut status = self.status.lock().ok()?;
        if status.is_none() {
            *status = connect_briefly(&self.target).ok();
        }
        let answer = question(status.as_mut()?);
        if answer.is_err() {
            *status = None;
        }
        answer.ok()
    }
}

impl Engine for Mysql {
    const DESCRIPTOR: &'static Descriptor = &MYSQL;

    type Job = SqlJob;

    /// Checks the private server of a job; a running one is checked when it is reached.
    fn probe(job: Option<&SqlJob>) -> Result<String, EngineError> {
        let binary = Binary::find(job.map_or("auto", Own::server))?;
        Home::possible()?;
        Ok(format!("{} ({})", binary.version, binary.path.display()))
    }

    fn open(place: &Place, job: &SqlJob) -> Result<Self, EngineError> {
        match place {
            Place::Server(target) => Ok(Self::new(target.clone(), job)),
            Place::Directory(dir) => Err(EngineError::refused(
                format!("{} is not a server", dir.display()),
                "please report this",
            )),
        }
    }

    fn counters(&self) -> Vec<Counter> {
        self.ask(status::counters).unwrap_or_default()
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

    fn sums(&self) -> BTreeMap<String, f64> {
        let mut sums = self.ask(status::sums).unwrap_or_default();
        // A server that is not ours may be far away, and is not observed.
        let trip = self.job.dsn.as_ref().and_then(|_| self.ask(status::round_trip));
        sums.extend(trip.map(|trip| (ROUND_TRIP.to_owned(), trip)));
        sums
    }

    fn totals(&self, earlier: &BTreeMap<String, f64>) -> Vec<(&'static str, f64)> {
        let now = self.ask(status::sums).unwrap_or_default();
        let mut totals = status::totals(earlier, &now, Own::of(&self.job).page_size.get());
        totals.extend(earlier.get(ROUND_TRIP).map(|trip| (ROUND_TRIP, *trip)));
        totals
    }
}

impl SqlEngine for Mysql {
    type Connection = MysqlSession;

    const SERVER: Option<ServerVerbs> = Some(SERVER);

    fn claim(&self) -> Result<(), EngineError> {
        match self.job.dsn {
            Some(_) => owner::claim(&mut connect_briefly(&self.target)?, &self.job),
            None => Ok(()),
        }
    }

    fn connect(&self, statements: bool) -> Result<MysqlSession, EngineError> {
        MysqlSession::open(&self.target, &self.job, statements)
    }

    fn set(&self, setting: &str) -> Result<(), EngineError> {
        let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
        owner::set(&mut connect_briefly(&self.target)?, name, value)
    }

    fn table_bytes(&self) -> u64 {
        // Size of the files, if the server reports it.
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
}
