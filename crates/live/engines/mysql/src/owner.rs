//! Ownership of a database on the user's server, and its variables.
//!
//! Invariants: a database with tables is written to only if it has our mark for the same tables, or the study
//! releases it by name; a variable is changed only after its original value was read.

use engine::{EngineError, Target};
use mysql::prelude::Queryable;
use mysql::{Conn, Value};
use study::SqlJob;

use crate::reach::{connect_briefly, target_of, told};
use crate::status::bytes_of;

/// Table that marks ownership.
const MARK: &str = "crosspoint_mark";
/// Table for testing privileges.
pub(crate) const PROBE: &str = "crosspoint_may_this_user";
/// Comment of our auxiliary tables: a name alone proves nothing.
pub(crate) const COMMENT: &str = "made by Crosspoint";
/// MariaDB's and MySQL's number for a wrong user or password.
const ACCESS_DENIED: i32 = 1045;
/// Number of tables listed in a refusal.
const NAMED: usize = 3;

/// Contents of a database.
enum Found {
    Empty,
    /// Our tables for the same job.
    Ours,
    /// Tables that Crosspoint did not create (`ours` false) or created for another job.
    Others {
        tables: Vec<String>,
        ours: bool,
    },
}

/// Identifies the tables of `job`.
fn identity(job: &SqlJob) -> String {
    job.identity().chars().take(180).collect()
}

/// Procedures, functions and events: a database with one is not empty, and not ours to take.
const ROUTINES: &str = "SELECT routine_name FROM information_schema.routines \
     WHERE routine_schema = DATABASE() UNION SELECT event_name FROM information_schema.events \
     WHERE event_schema = DATABASE()";

fn find(conn: &mut Conn, job: &SqlJob) -> Result<Found, EngineError> {
    // A leftover privilege test of a killed run does not count.
    let all = format!(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() \
         AND NOT (table_name = '{PROBE}' AND table_comment = '{COMMENT}') ORDER BY table_name"
    );
    let mut tables: Vec<String> = conn.query(all).map_err(told)?;
    let marked = format!(
        "SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() \
         AND table_name = '{MARK}' AND table_comment = '{COMMENT}'"
    );
    // A name alone proves nothing.
    let ours = conn.query_first::<u8, _>(marked).map_err(told)?.is_some();
    if !ours && tables.iter().any(|name| name == MARK) {
        return Err(EngineError::not_ours(
            format!("the database has a table {MARK} that Crosspoint did not make"),
            "name another database",
        ));
    }
    if ours {
        let marks: Vec<String> =
            conn.query(format!("SELECT identity FROM {MARK}")).map_err(told)?;
        if marks == [identity(job)] {
            return Ok(Found::Ours);
        }
        if marks.is_empty() && tables.len() == 1 {
            return Ok(Found::Empty);
        }
    }
    tables.extend(conn.query::<String, _>(ROUTINES).map_err(told)?);
    if tables.is_empty() {
        return Ok(Found::Empty);
    }
    Ok(Found::Others { tables, ours })
}

/// Whether the study releases the database by name.
fn given_up(job: &SqlJob) -> bool {
    let database = job.dsn.as_deref().and_then(|dsn| target_of(dsn).ok()?.database);
    database.is_some() && database == job.allow_overwrite
}

/// Checks that the database may be written to; changes nothing.
pub(crate) fn look(conn: &mut Conn, job: &SqlJob) -> Result<(), EngineError> {
    let Found::Others { tables, ours } = find(conn, job)? else { return Ok(()) };
    if given_up(job) {
        return Ok(());
    }
    let named = tables.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    let more = if tables.len() > NAMED { ", ..." } else { "" };
    let whose =
        if ours { "tables of another study" } else { "tables that Crosspoint did not make" };
    let database = conn.query_first::<String, _>("SELECT DATABASE()").map_err(told)?;
    let database = database.unwrap_or_default();
    Err(EngineError::not_ours(
        format!("database {database} has {whose}: {named}{more}"),
        format!(
            "name an empty database; or, if its tables sbtest1 to sbtest{} may be lost: \
             allow_overwrite = \"{database}\"",
            job.tables
        ),
    ))
}

/// Drops a leftover privilege test; a table of that name without our comment stays.
pub(crate) fn drop_left_probe(conn: &mut Conn) -> Result<(), EngineError> {
    let left = format!(
        "SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() \
         AND table_name = '{PROBE}' AND table_comment = '{COMMENT}'"
    );
    if conn.query_first::<u8, _>(left).map_err(told)?.is_some() {
        conn.query_drop(format!("DROP TABLE {PROBE}")).map_err(told)?;
    }
    Ok(())
}

/// Takes ownership: marks the database and drops tables of another job.
pub(crate) fn claim(conn: &mut Conn, job: &SqlJob) -> Result<(), EngineError> {
    look(conn, job)?;
    let tables = match find(conn, job)? {
        Found::Ours => return Ok(()),
        Found::Empty => Vec::new(),
        Found::Others { tables, .. } => tables,
    };
    // A statement waiting for a lock would be executed after we left.
    conn.query_drop("SET SESSION lock_wait_timeout = 5").map_err(told)?;
    // Exactly the tables that the study fills.
    let mut due: Vec<String> = (1..=job.tables).map(|number| format!("sbtest{number}")).collect();
    due.push(MARK.to_owned());
    due.retain(|name| tables.contains(name));
    check_obstacles(conn, &due)?;
    for table in due {
        conn.query_drop(format!("DROP TABLE {table}")).map_err(told)?;
    }
    conn.query_drop(format!(
        "CREATE TABLE IF NOT EXISTS {MARK} (identity VARCHAR(190) NOT NULL PRIMARY KEY) \
         COMMENT='{COMMENT}'"
    ))
    .map_err(told)?;
    conn.exec_drop(format!("INSERT INTO {MARK} VALUES (?)"), (identity(job),)).map_err(told)
}

/// Checks for what would stop the dropping half-way: views, and foreign keys of other tables.
fn check_obstacles(conn: &mut Conn, due: &[String]) -> Result<(), EngineError> {
    if due.is_empty() {
        return Ok(());
    }
    let names = due.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
    let views = format!(
        "SELECT CONCAT(table_name, ' is a view') FROM information_schema.tables \
         WHERE table_schema = DATABASE() AND table_name IN ({names}) AND table_type <> 'BASE TABLE'"
    );
    let keys = format!(
        "SELECT CONCAT(constraint_schema, '.', table_name, ' has a foreign key to ', referenced_table_name) \
         FROM information_schema.referential_constraints WHERE unique_constraint_schema = DATABASE() \
         AND referenced_table_name IN ({names})"
    );
    for question in [views, keys] {
        if let Some(obstacle) = conn.query_first::<String, _>(question).map_err(told)? {
            return Err(EngineError::not_ours(
                format!("not all tables can be dropped: {obstacle}; none was dropped"),
                "name another database",
            ));
        }
    }
    Ok(())
}

/// Checks a variable's name for use in a statement.
fn name_of(name: &str) -> Result<String, EngineError> {
    let name = name.trim().replace('-', "_").to_ascii_lowercase();
    let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if plain {
        return Ok(name);
    }
    let reason = "a variable has letters, digits and _ in its name".to_owned();
    Err(EngineError::refused(reason, "correct the study"))
}

/// Sets a variable of the running server; the value is a parameter, never part of the statement.
pub(crate) fn set(conn: &mut Conn, name: &str, value: &str) -> Result<(), EngineError> {
    let value = match (bytes_of(value), value.parse::<f64>()) {
        (Some(number), _) => Value::UInt(number),
        (None, Ok(number)) => Value::Double(number),
        (None, Err(_)) => Value::Bytes(value.as_bytes().to_vec()),
    };
    conn.exec_drop(format!("SET GLOBAL {} = ?", name_of(name)?), (value,)).map_err(told)
}

/// A user's server held for one trial: no other run of this program uses it meanwhile.
#[derive(Debug)]
pub struct Held(#[allow(dead_code, reason = "the lock is this connection's")] Conn);

/// Locks the user's server: two runs at once would restore each other's changes and load into each other's
/// tables.
///
/// # Errors
/// [`engine::ErrorKind::Refused`] if another run holds it.
pub fn hold(target: &Target) -> Result<Held, EngineError> {
    let mut conn = connect_briefly(target)?;
    conn.query_drop("SET SESSION wait_timeout = 2147483").map_err(told)?;
    let got: Option<Option<u8>> =
        conn.query_first("SELECT GET_LOCK('crosspoint', 5)").map_err(told)?;
    if got.flatten() == Some(1) {
        return Ok(Held(conn));
    }
    Err(EngineError::refused("another Crosspoint run uses this server", "wait until it ends"))
}

/// Variables that change with another one and do not change back.
const FOLLOWERS: [(&str, &str); 4] = [
    ("innodb_io_capacity", "innodb_io_capacity_max"),
    ("innodb_io_capacity_max", "innodb_io_capacity"),
    ("innodb_max_dirty_pages_pct_lwm", "innodb_max_dirty_pages_pct"),
    ("innodb_max_dirty_pages_pct", "innodb_max_dirty_pages_pct_lwm"),
];

/// Values of the variables that a job changes on the user's server, in journal order: restored in reverse, so
/// that none blocks another. Each is set to its own value to test the privilege.
///
/// # Errors
/// [`engine::ErrorKind::Refused`] without the privilege, or the server's message.
pub fn before_change(target: &Target, job: &SqlJob) -> Result<Vec<(String, String)>, EngineError> {
    let mut conn = connect_briefly(target)?;
    let mut before = Vec::new();
    for change in &job.change {
        for setting in change.set.split(';').filter(|setting| !setting.is_empty()) {
            let name = name_of(setting.split('=').next().unwrap_or_default())?;
            let with = FOLLOWERS.into_iter().find(|(leader, _)| *leader == name);
            let follower = with.map(|(_, follower)| follower.to_owned());
            for name in follower.into_iter().chain([name]) {
                if before.iter().any(|(noted, _)| *noted == name) {
                    continue;
                }
                let value = value_of(&mut conn, &name)?;
                set(&mut conn, &name, &value).map_err(|error| not_settable(&name, &error))?;
                before.push((name, value));
            }
        }
    }
    Ok(before)
}

fn value_of(conn: &mut Conn, name: &str) -> Result<String, EngineError> {
    let asked = format!("SELECT CAST(@@GLOBAL.{} AS CHAR)", name_of(name)?);
    let value: Option<Option<String>> = conn.query_first(asked).map_err(told)?;
    Ok(value.flatten().unwrap_or_default())
}

fn not_settable(name: &str, error: &EngineError) -> EngineError {
    EngineError::refused(
        format!("{name} of this server cannot be changed: {error}"),
        "leave it out of `change`, or use an account with SUPER or SYSTEM_VARIABLES_ADMIN",
    )
}

/// Restores a variable of the user's server, unless it is unchanged.
///
/// # Errors
/// A message.
pub fn restore(dsn: &str, name: &str, value: &str) -> Result<(), String> {
    let target = target_of(dsn)?;
    let done = connect_briefly(&target).and_then(|mut conn| {
        if value_of(&mut conn, name)? == value {
            return Ok(());
        }
        set(&mut conn, name, value)
    });
    done.map_err(|error| match error.code() {
        ACCESS_DENIED if target.password.is_none() => format!(
            "{error}; help: set password into the environment variable CROSSPOINT_SQL_PASSWORD, then again"
        ),
        _ => error.to_string(),
    })
}
