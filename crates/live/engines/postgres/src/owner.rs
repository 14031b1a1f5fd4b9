//! Ownership of a database on the user's server, and its variables.
//!
//! Invariants: a database with tables is written to only if it has our mark for the same tables, or the study
//! releases it by name; a variable is changed only after its original value was read.

use engine::{EngineError, Target};
use study::SqlJob;

use crate::conn::Conn;
use crate::reach::{connect_briefly, target_of};

/// Table that marks ownership.
const MARK: &str = "crosspoint_mark";
/// Table for testing privileges.
const PROBE: &str = "crosspoint_may_this_user";
/// Comment of our auxiliary tables: a name alone proves nothing.
const COMMENT: &str = "made by Crosspoint";
/// Number of tables listed in a refusal.
const NAMED: usize = 3;
/// Key of the advisory lock that a run holds in the database.
const LOCK: u64 = 0x6372_6f73_7370;

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

/// Tables, views, sequences and functions of users, not of extensions: a database with one is not empty, and
/// not ours to take.
const CONTENTS: &str = "SELECT format('%I.%I', n.nspname, c.relname) \
     FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
     WHERE c.relkind IN ('r', 'p', 'v', 'm', 'S', 'f') AND n.nspname !~ '^pg_' \
     AND n.nspname <> 'information_schema' \
     AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_class'::regclass \
     AND d.objid = c.oid AND d.deptype = 'e') \
     UNION ALL SELECT format('%I.%I()', n.nspname, p.proname) \
     FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace \
     WHERE n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' \
     AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass \
     AND d.objid = p.oid AND d.deptype = 'e') ORDER BY 1";

/// The first values of rows.
fn firsts(conn: &mut Conn, text: &str) -> Result<Vec<String>, EngineError> {
    let rows = conn.rows(text)?;
    Ok(rows.into_iter().filter_map(|row| row.into_iter().next().flatten()).collect())
}

fn find(conn: &mut Conn, job: &SqlJob) -> Result<Found, EngineError> {
    let tables = firsts(conn, CONTENTS)?;
    let marked = format!("SELECT obj_description(to_regclass('{MARK}'), 'pg_class')");
    let there = format!("SELECT to_regclass('{MARK}')");
    let comment = conn.one(&marked)?;
    let ours = comment.as_deref() == Some(COMMENT);
    if !ours && conn.one(&there)?.is_some() {
        return Err(EngineError::not_ours(
            format!("the database has a table {MARK} that Crosspoint did not make"),
            "name another database",
        ));
    }
    if tables.is_empty() {
        return Ok(Found::Empty);
    }
    if ours && firsts(conn, &format!("SELECT identity FROM {MARK}"))? == [identity(job)] {
        return Ok(Found::Ours);
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
    let database = conn.one("SELECT current_database()")?.unwrap_or_default();
    Err(EngineError::not_ours(
        format!("database {database} has {whose}: {named}{more}"),
        format!(
            "name an empty database; or, if its tables {} may be lost: \
             allow_overwrite = \"{database}\"",
            job.table_names().join(", ")
        ),
    ))
}

/// Tests whether the account may create and fill tables, in a transaction that is rolled back.
pub(crate) fn probe(conn: &mut Conn) -> Result<(), EngineError> {
    let tested = conn.run(&format!(
        "BEGIN; CREATE TABLE {PROBE} (id INT PRIMARY KEY, k INT); CREATE INDEX ON {PROBE}(k); \
         INSERT INTO {PROBE} VALUES (1, 1); DROP TABLE {PROBE}"
    ));
    conn.run("ROLLBACK").and(tested)
}

/// Takes ownership: marks the database and drops tables of another job, all or none.
pub(crate) fn claim(conn: &mut Conn, job: &SqlJob) -> Result<(), EngineError> {
    look(conn, job)?;
    let tables = match find(conn, job)? {
        Found::Ours => return Ok(()),
        Found::Empty => Vec::new(),
        Found::Others { tables, .. } => tables,
    };
    let schema = conn.one("SELECT format('%I', current_schema())")?.unwrap_or_default();
    // Exactly the tables that the study fills. Without CASCADE: what depends on them stays, and so do they.
    let mut due = job.table_names();
    due.push(MARK.to_owned());
    due.retain(|name| tables.contains(&format!("{schema}.{name}")));
    // Partitions would be dropped with their table.
    let quoted = schema.replace('\'', "''");
    let names: Vec<String> =
        due.iter().map(|name| format!("'{quoted}.{name}'::regclass")).collect();
    if !names.is_empty() {
        let parents = format!(
            "SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent IN ({})",
            names.join(", ")
        );
        if let Some(part) = conn.one(&parents)? {
            return Err(EngineError::not_ours(
                format!("{part} is a partition of a table to be dropped; none was dropped"),
                "name another database",
            ));
        }
    }
    let drop = match due.is_empty() {
        true => String::new(),
        false => format!("DROP TABLE {}; ", due.join(", ")),
    };
    // A statement waiting for a lock would be executed after we left.
    let taken = conn.run(&format!(
        "SET lock_timeout = '5s'; BEGIN; {drop}CREATE TABLE {MARK} (identity TEXT PRIMARY KEY); \
         COMMENT ON TABLE {MARK} IS '{COMMENT}'; INSERT INTO {MARK} VALUES ('{}'); COMMIT",
        identity(job).replace('\'', "''")
    ));
    taken.map_err(|error| {
        EngineError::not_ours(
            format!("not all tables can be dropped: {error}; none was dropped"),
            "name another database",
        )
    })
}

/// Checks a variable's name for use in a statement.
fn name_of(name: &str) -> Result<String, EngineError> {
    let name = name.trim().to_ascii_lowercase();
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '.';
    if !name.is_empty() && name.chars().all(plain) {
        return Ok(name);
    }
    let reason = "a variable has letters, digits and _ in its name".to_owned();
    Err(EngineError::refused(reason, "correct the study"))
}

/// Sets a variable of the running server for all sessions; `None` resets it to its configuration files.
pub(crate) fn set(conn: &mut Conn, name: &str, value: Option<&str>) -> Result<(), EngineError> {
    let name = name_of(name)?;
    check_context(conn, &name)?;
    conn.run(&match value {
        Some(value) => {
            format!("ALTER SYSTEM SET {name} = '{}'", value.trim().replace('\'', "''"))
        }
        None => format!("ALTER SYSTEM RESET {name}"),
    })?;
    conn.run("SELECT pg_reload_conf()")
}

/// A user's server held for one trial: no other run of this program uses the database meanwhile.
#[derive(Debug)]
pub(crate) struct Held(#[allow(dead_code, reason = "the lock is this connection's")] Conn);

/// Locks the database on the user's server: two runs at once would load into each other's tables.
pub(crate) fn hold(target: &Target) -> Result<Held, EngineError> {
    let mut conn = connect_briefly(target)?;
    // A session that is ended for idling would drop the lock.
    conn.run("SET idle_session_timeout = 0")?;
    lock(&mut conn, "database")?;
    Ok(Held(conn))
}

fn lock(conn: &mut Conn, what: &str) -> Result<(), EngineError> {
    if conn.one(&format!("SELECT pg_try_advisory_lock({LOCK})"))?.as_deref() == Some("t") {
        return Ok(());
    }
    let reason = format!("another Crosspoint run uses this {what}");
    Err(EngineError::refused(reason, "wait until it ends"))
}

/// Locks the settings of the user's server, which all its databases share.
pub(crate) fn hold_settings(target: &Target) -> Result<Held, EngineError> {
    let mut conn = connect_briefly(&Target { database: None, ..target.clone() })?;
    conn.run("SET idle_session_timeout = 0")?;
    lock(&mut conn, "server")?;
    Ok(Held(conn))
}

/// Values that `ALTER SYSTEM` gave the variables that a job changes on the user's server; empty where it gave
/// none.
pub(crate) fn before_change(
    target: &Target,
    job: &SqlJob,
) -> Result<Vec<(String, String)>, EngineError> {
    let mut conn = connect_briefly(target)?;
    let mut before: Vec<(String, String)> = Vec::new();
    for change in &job.change {
        for setting in change.set.split(';').filter(|setting| !setting.is_empty()) {
            let name = name_of(setting.split('=').next().unwrap_or_default())?;
            if before.iter().any(|(noted, _)| *noted == name) {
                continue;
            }
            check_context(&mut conn, &name)?;
            let value = altered(&mut conn, &name).map_err(|error| not_settable(&name, &error))?;
            // Set to what it is: a test of the privilege.
            let same = Some(value.as_str()).filter(|value| !value.is_empty());
            set(&mut conn, &name, same).map_err(|error| not_settable(&name, &error))?;
            before.push((name, value));
        }
    }
    Ok(before)
}

/// Checks that a variable takes effect while the server runs.
fn check_context(conn: &mut Conn, name: &str) -> Result<(), EngineError> {
    let asked = format!("SELECT context FROM pg_settings WHERE name = '{}'", name_of(name)?);
    let reason = match conn.one(&asked)?.as_deref() {
        Some("sighup" | "superuser" | "user") => return Ok(()),
        Some(_) => format!("{name} takes effect at the server's start alone"),
        None => format!("this server has no variable {name}"),
    };
    Err(EngineError::refused(reason, "leave it out of `change`"))
}

/// The value that `ALTER SYSTEM` gave a variable; empty if none.
fn altered(conn: &mut Conn, name: &str) -> Result<String, EngineError> {
    let asked = format!(
        "SELECT setting FROM pg_file_settings WHERE name = '{}' \
         AND sourcefile LIKE '%/postgresql.auto.conf'",
        name_of(name)?
    );
    Ok(conn.one(&asked)?.unwrap_or_default())
}

fn not_settable(name: &str, error: &EngineError) -> EngineError {
    EngineError::refused(
        format!("{name} of this server cannot be changed: {error}"),
        "leave it out of `change`, or use a superuser's account",
    )
}

/// Restores a variable of the user's server, unless it is unchanged.
pub(crate) fn restore(dsn: &str, name: &str, value: &str) -> Result<(), String> {
    let target = target_of(dsn)?;
    let done = connect_briefly(&target).and_then(|mut conn| {
        if altered(&mut conn, name)? == value {
            return Ok(());
        }
        set(&mut conn, name, Some(value).filter(|value| !value.is_empty()))
    });
    done.map_err(|error| match &target.password {
        None => format!(
            "{error}; help: set password into the environment variable CROSSPOINT_SQL_PASSWORD, then again"
        ),
        Some(_) => error.to_string(),
    })
}
