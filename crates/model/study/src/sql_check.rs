//! Checks of a SQL experiment.
//!
//! Invariant: an experiment that passes can be planned and run; no message repeats a password.

use crate::error::Place;
use crate::sql::{DEFAULT_RANGE, DEFAULT_TABLES};
use crate::{Experiment, Memory, Operations, SqlJob, Study, StudyError};

/// Checks the values of a SQL experiment's settings, and their combinations.
pub(crate) fn check_sql(
    study: &Study,
    one: &Experiment,
    sql: &SqlJob,
    text: Place<'_>,
) -> Result<(), StudyError> {
    let wrong = |(key, message): Wrong| {
        let error = StudyError::general(message);
        // A value with a password is not shown, so errors do not point at it.
        if key == SECRET { error } else { error.at_key(text, &key, |_| true) }
    };
    let ranges = [
        ("tables", u64::from(sql.tables), 1000),
        ("records", sql.records, 2_000_000_000),
        ("range_size", u64::from(sql.range_size), 1_000_000),
        ("load_threads", u64::from(sql.load_threads), 256),
        ("clients", u64::from(sql.clients), 1024),
        ("rate", sql.rate.map_or(1, units::Rate::get), 10_000_000),
    ];
    for (key, value, most) in ranges {
        if !(1..=most).contains(&value) {
            return Err(wrong((key.into(), format!("{key} = {value}; allowed: 1 to {most}"))));
        }
    }
    listen_port(&sql.listen).map_err(|message| wrong(("listen".into(), message)))?;
    check_together(study, sql).map_err(wrong)?;
    check_of_a_server(sql).map_err(wrong)?;
    check_race(study, one, sql).map_err(wrong)
}

/// The loopback port on which a private server listens; `None` for a socket of its own. Ports below 1024 need
/// privileges.
///
/// # Errors
/// What is allowed.
pub fn listen_port(listen: &str) -> Result<Option<u16>, String> {
    if listen == "auto" {
        return Ok(None);
    }
    let port = listen.strip_prefix("127.0.0.1:").and_then(|port| port.parse::<u16>().ok());
    port.filter(|port| *port >= 1024).map(Some).ok_or_else(|| {
        let listen: String = listen.chars().take(200).collect();
        format!("listen = {listen}; allowed: auto, 127.0.0.1:PORT with a port of 1024 to 65535")
    })
}

/// Rejects settings that a study cannot change on a running server: reported values would be wrong.
fn check_of_a_server(sql: &SqlJob) -> Result<(), Wrong> {
    if sql.dsn.is_none() {
        return Ok(());
    }
    // Compression is a property of the tables, which are created for the run.
    let option = sql.options.changed(&["compression"]);
    let given = [
        ("listen", sql.listen != "auto"),
        ("durability", sql.durability != crate::Durability::Device),
        ("memory", sql.memory != Memory::Unlimited),
        (option.unwrap_or_default(), option.is_some()),
    ];
    given.into_iter().find(|(_, given)| *given).map_or(Ok(()), |(key, _)| {
        let message = format!(
            "{key} is set by the dsn's server; leave it out, or use `change` to set a variable"
        );
        Err((key.into(), message))
    })
}

/// The key, and what is wrong.
type Wrong = (String, String);

/// In place of a key: the value is a secret.
const SECRET: &str = "";

fn check_together(study: &Study, sql: &SqlJob) -> Result<(), Wrong> {
    let wrong = |key: &str, message: &str| Err((key.to_owned(), message.to_owned()));
    let enough = match sql.memory {
        Memory::Share(_) => false,
        Memory::Size(size) => size >= Memory::LEAST,
        Memory::Unlimited => true,
    };
    if !enough {
        let (wanted, least) = (sql.memory.text(), Memory::LEAST);
        let message =
            format!("memory = {wanted}; allowed: unlimited, or a size of at least {least}");
        return wrong("memory", &message);
    }
    if sql.workload.is_of_pgbench() {
        if sql.engine.word() != "postgres" {
            return wrong("workload", "the scripts of pgbench need engine = \"postgres\"");
        }
        if !sql.records.is_multiple_of(workload::ACCOUNTS) {
            let message = "records; allowed: multiples of 100000, one for each branch of pgbench";
            return wrong("records", message);
        }
        let of_sysbench = [
            ("dialect", sql.dialect == crate::SqlDialect::Sysbench05),
            ("tables", ![1, DEFAULT_TABLES].contains(&sql.tables)),
            ("range_size", sql.range_size != DEFAULT_RANGE),
        ];
        if let Some((key, _)) = of_sysbench.into_iter().find(|(_, given)| *given) {
            return wrong(
                key,
                &format!("{key} is for sysbench's scripts; those of pgbench have none"),
            );
        }
    }
    if sql.change.len() > 100 {
        return wrong("change", "more than 100 changes");
    }
    // 9 statements per table and connection; the server's limit is a million at most.
    if sql.is_prepared() && u64::from(sql.tables) * u64::from(sql.clients) * 9 > 1_000_000 {
        let message = "too many prepared statements (tables x clients x 9); set prepared = false";
        return wrong("tables", message);
    }
    if let Some(engine) = study.engines.find(&sql.engine, Operations::Sql) {
        let server_only = [("dsn", sql.dsn.is_some()), ("change", !sql.change.is_empty())];
        let given = server_only.into_iter().find(|(_, given)| *given);
        if let Some((key, _)) = given.filter(|_| engine.server.is_none()) {
            let servers = study.engines.with(Operations::Sql).filter(|one| one.server.is_some());
            let names: Vec<&str> = servers.map(|one| one.name).collect();
            let message = format!("{key} needs an engine with a server: {}", names.join(", "));
            return wrong(key, &message);
        }
        let pairs = sql.change.iter().flat_map(|change| change.set.split(';'));
        for pair in pairs.filter(|pair| !pair.is_empty()) {
            (engine.check_change)(pair).map_err(|message| ("set".to_owned(), message))?;
        }
        if let (Some(dsn), Some(scheme)) = (&sql.dsn, engine.server) {
            check_dsn(dsn, scheme)?;
        }
    }
    match (&sql.dsn, &sql.allow_overwrite) {
        (_, None) => Ok(()),
        (Some(dsn), Some(name)) if dsn.rsplit([':', '/']).next() == Some(name) => Ok(()),
        (Some(_), Some(_)) => wrong(
            "allow_overwrite",
            "allow_overwrite; allowed: the name of the dsn's database, no other",
        ),
        (None, Some(_)) => wrong("allow_overwrite", "allow_overwrite is for a server of the dsn"),
    }
}

/// Parses `SCHEME://USER@HOST[:PORT]/DATABASE`; errors never repeat a possible password.
fn check_dsn(dsn: &str, scheme: &str) -> Result<(), Wrong> {
    let form = format!(
        "allowed: {scheme}://USER@HOST:PORT/DATABASE or {scheme}://USER@/path/of/socket:DATABASE"
    );
    let wrong = |what: &str| ("dsn".to_owned(), format!("the dsn {what}; {form}"));
    let rest = dsn.strip_prefix(scheme).and_then(|rest| rest.strip_prefix("://"));
    let rest = rest.ok_or_else(|| wrong("has another form"))?;
    let (user, place) = rest.rsplit_once('@').ok_or_else(|| wrong("names no user"))?;
    if user.contains(':') {
        return Err((
            SECRET.into(),
            "the dsn contains a password, and studies are stored with runs; use the environment \
             variable CROSSPOINT_SQL_PASSWORD"
                .into(),
        ));
    }
    let separator = if place.starts_with('/') { ':' } else { '/' };
    let (place, database) =
        place.rsplit_once(separator).ok_or_else(|| wrong("names no database"))?;
    let plain = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
    };
    if user.is_empty() || place.is_empty() || !plain(database) {
        return Err(wrong("is incomplete"));
    }
    Ok(())
}

fn check_race(study: &Study, one: &Experiment, sql: &SqlJob) -> Result<(), Wrong> {
    let stacks = if one.stacks.is_empty() { study.stack.len() } else { one.stacks.len() };
    let message = match sql {
        _ if !sql.race => return Ok(()),
        _ if !(2..=4).contains(&stacks) => {
            format!("a race has two to four stacks, not {stacks}")
        }
        SqlJob { operations: None, .. } => "a race needs operations".to_owned(),
        SqlJob { dsn: Some(_), .. } => "a race needs private servers; leave out dsn".to_owned(),
        _ if sql.listen != "auto" => "a race needs listen = \"auto\"".to_owned(),
        _ => return Ok(()),
    };
    Err(("race".into(), message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::ENGINES;
    use crate::parse;

    fn study(keys: &str) -> Result<Study, StudyError> {
        let engine = if keys.contains("engine") { "" } else { "engine = \"mysql\"\n" };
        parse(
            &format!(
                "schema = 2\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n[[experiment]]\n\
                 name = \"e\"\n[experiment.job]\n{engine}workload = \"read_write\"\nrecords = 1000\n{keys}"
            ),
            ENGINES,
        )
    }

    #[test]
    fn what_does_not_go_together_is_told_with_what_does() {
        for (keys, told) in [
            ("tables = 0\n", "1 to 1000"),
            ("options.page_size = \"5KiB\"\n", "4KiB, 16KiB"),
            ("options.buffer_pool = \"1MiB\"\n", "a share of the database"),
            ("options.buffer_pool = \"unlimited\"\n", "a share of the database"),
            ("options.buffer_pool = \"18446744073709551615B\"\n", "a share of the database"),
            ("memory = \"1B\"\n", "a size of at least"),
            ("options.compression = \"x\"\n", "none, zlib"),
            ("options.write_map = true\n", "mysql has no option `write_map`; allowed: buffer_pool"),
            ("race = true\n", "two to four"),
            ("engine = \"sqlite\"\ndsn = \"mysql://me@h/d\"\n", "mysql"),
            ("dsn = \"server/db\"\n", "mysql://USER"),
            ("listen = \"0.0.0.0:3306\"\n", "1024"),
            ("listen = \"127.0.0.1:0\"\n", "1024"),
            ("dsn = \"mysql://me@h/d\"\ndurability = \"none\"\n", "set by the dsn's server"),
            (
                "dsn = \"mysql://me@h/d\"\noptions.buffer_pool = \"64MiB\"\n",
                "set by the dsn's server",
            ),
            ("change = [{ at = \"1s\", set = \"read_only=1\" }]\n", "read_only"),
        ] {
            let error = study(keys).unwrap_err().to_string();
            assert!(error.contains(told), "{keys}: {error}");
        }
        assert!(study("dsn = \"mysql://me@localhost:3306/test\"\n").is_ok());
        assert!(study("dsn = \"mysql://me@/run/mysqld/mysqld.sock:test\"\n").is_ok());
    }

    /// A study is copied into the run folder and shown in reports.
    #[test]
    fn a_password_in_a_study_is_refused_and_not_repeated() {
        let error = study("dsn = \"mysql://me:hunter2@localhost/test\"\n").unwrap_err();
        let said = format!("{error} {:?}", error.help);
        assert!(said.contains("CROSSPOINT_SQL_PASSWORD"), "{said}");
        assert!(!error.to_string().contains("hunter2"), "{said}");
    }
}
