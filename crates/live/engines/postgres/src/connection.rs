//! A server as an engine: checks before a measurement, queries during it.
//!
//! Invariant: nothing is measured on an unchecked server.

use std::collections::BTreeMap;
use std::sync::Mutex;

use engine::{Engine, EngineError, Home, Place, ServerVerbs, SqlEngine, Target};
use observe::Counter;
use stats::ROUND_TRIP;
use study::{Descriptor, SqlJob};

use crate::binary::{Binary, check_version, major_of};
use crate::conn::Conn;
use crate::hosting::SERVER;
use crate::options::{Own, POSTGRES};
use crate::owner;
use crate::reach::connect_briefly;
use crate::session::PostgresSession;
use crate::status;

/// Checks that a server is usable: new enough, the database is ours or released by the study, and the account
/// may create, fill and drop tables.
pub(crate) fn check(target: &Target, job: &SqlJob) -> Result<(), EngineError> {
    let mut conn = connect_briefly(target)?;
    let version = conn.one("SHOW server_version")?.unwrap_or_default();
    let major = major_of(&version).unwrap_or(0);
    check_version(major).map_err(|reason| EngineError::refused(reason, "use a newer server"))?;
    owner::look(&mut conn, job)?;
    let database = target.database.as_deref().unwrap_or_default();
    owner::probe(&mut conn).map_err(|error| {
        let user = &target.user;
        EngineError::refused(
            format!("user {user} cannot fill tables in database {database}: {error}"),
            format!(
                "GRANT CREATE, USAGE ON SCHEMA public TO {user} in {database}, or use a database that \
                 belongs to {user}"
            ),
        )
    })
}

/// A PostgreSQL server as an engine.
#[derive(Debug)]
pub struct Postgres {
    target: Target,
    job: SqlJob,
    /// The monitoring connection.
    status: Mutex<Option<Conn>>,
}

impl Postgres {
    /// For a server that was checked.
    #[must_use]
    pub fn new(target: Target, job: &SqlJob) -> Self {
        Self { target, job: job.clone(), status: Mutex::default() }
    }

    /// Runs a query on the monitoring connection; `None` without one.
    fn ask<T>(&self, question: impl FnOnce(&mut Conn) -> Result<T, EngineError>) -> Option<T> {
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

impl Engine for Postgres {
    const DESCRIPTOR: &'static Descriptor = &POSTGRES;

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
        let said = self.ask(|conn| conn.one("SHOW server_version")).flatten();
        said.map_or_else(|| "unknown".into(), |version| format!("PostgreSQL {version}"))
    }

    fn settings(&self) -> Vec<(String, String)> {
        // When it started tells one server from another.
        let all = "SELECT name, current_setting(name, true) FROM pg_settings UNION ALL \
                   SELECT 'server_started', pg_postmaster_start_time()::text ORDER BY 1";
        let rows = self.ask(|conn| conn.rows(all)).unwrap_or_default();
        let secret = |name: &str| name.contains("password") || name.contains("secret");
        let pair = |row: Vec<Option<String>>| {
            let mut values = row.into_iter();
            Some((values.next()??, values.next()?.unwrap_or_default()))
        };
        rows.into_iter().filter_map(pair).filter(|(name, _)| !secret(name)).collect()
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
        let mut totals = status::totals(earlier, &now);
        totals.extend(earlier.get(ROUND_TRIP).map(|trip| (ROUND_TRIP, *trip)));
        totals
    }
}

impl SqlEngine for Postgres {
    type Connection = PostgresSession;

    const SERVER: Option<ServerVerbs> = Some(SERVER);

    fn claim(&self) -> Result<(), EngineError> {
        match self.job.dsn {
            Some(_) => owner::claim(&mut connect_briefly(&self.target)?, &self.job),
            None => Ok(()),
        }
    }

    /// As pgbench does at its start.
    fn begin(&self) -> Result<(), EngineError> {
        if !self.job.workload.is_of_pgbench() {
            return Ok(());
        }
        let mut conn = connect_briefly(&self.target)?;
        conn.run("VACUUM pgbench_branches")?;
        conn.run("VACUUM pgbench_tellers")?;
        conn.run("TRUNCATE pgbench_history")
    }

    fn connect(&self, statements: bool) -> Result<PostgresSession, EngineError> {
        PostgresSession::open(&self.target, &self.job, statements)
    }

    fn set(&self, setting: &str) -> Result<(), EngineError> {
        let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
        owner::set(&mut connect_briefly(&self.target)?, name, Some(value))
    }

    fn table_bytes(&self) -> u64 {
        let all = "SELECT coalesce(sum(pg_total_relation_size(oid)), 0) FROM pg_class \
                   WHERE relkind = 'r' AND (relname LIKE 'sbtest%' OR relname LIKE 'pgbench%') \
                   AND relnamespace = current_schema()::regnamespace";
        let told = self.ask(|conn| conn.one(all)).flatten();
        told.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
    }
}
