//! What a SQL experiment must hold to.
//!
//! Invariant: one that passes can be planned and run; no message repeats a password.

use units::Bytes;

use crate::sql::FLUSH_METHODS;
use crate::sql_settings::{check_setting, check_value};
use crate::{
    Engines, Experiment, Memory, Operations, SqlCompression, SqlDialect, SqlMatrix, Study,
    StudyError,
};

/// Least pool: InnoDB refuses less.
const POOL_MIN: Bytes = Bytes(5 << 20);
/// And at most: what no host has.
const POOL_MAX: Bytes = Bytes(1 << 50);

/// Whether what goes together does.
///
/// # Errors
/// [`StudyError`] with what is allowed.
pub(crate) fn check_sql(study: &Study, one: &Experiment, text: &str) -> Result<(), StudyError> {
    let Some(sql) = &one.sql else { return Ok(()) };
    let wrong = |key: &str, message: String| {
        let message = format!("experiment `{}`: {message}", one.name);
        let error = StudyError::general(message);
        // What holds a password is not shown, and so not pointed at.
        if key == SECRET { error } else { error.at_key(text, key, |_| true) }
    };
    let range = |key: &'static str, value: u64, least: u64, most: u64| {
        if (least..=most).contains(&value) {
            return Ok(());
        }
        Err(wrong(key, format!("{key} = {value}; allowed: {least} to {most}")))
    };
    for engine in sql.engine.values() {
        if let Some(allowed) = study.engines.unknown(engine, Operations::Sql) {
            let name: String = engine.word().chars().take(100).collect();
            return Err(wrong("engine", format!("engine = \"{name}\"; allowed: {allowed}")));
        }
    }
    range("tables", u64::from(sql.tables), 1, 1000)?;
    range("rows", sql.rows, 1, 2_000_000_000)?;
    range("range_size", u64::from(sql.range_size), 1, 1_000_000)?;
    range("load_threads", u64::from(sql.load_threads), 1, 256)?;
    for threads in sql.threads.values() {
        range("threads", u64::from(*threads), 1, 1024)?;
    }
    for rate in sql.rate.iter().flat_map(|rates| rates.values()) {
        range("rate", rate.get(), 1, 10_000_000)?;
    }
    for size in sql.page_size.values() {
        if ![4, 8, 16, 32, 64].contains(&(size.get() >> 10)) || size.get() % 1024 != 0 {
            let message = format!("page_size = {}; allowed: 4, 8, 16, 32 or 64 KiB", size.exact());
            return Err(wrong("page_size", message));
        }
    }
    for pool in sql.buffer_pool.values() {
        match pool {
            Memory::Size(size) if (POOL_MIN..=POOL_MAX).contains(size) => {}
            Memory::Share(_) => {}
            other => {
                let message = format!(
                    "buffer_pool = {}; allowed: {POOL_MIN} to {POOL_MAX}, or a share of the database \
                     such as 10%",
                    other.text()
                );
                return Err(wrong("buffer_pool", message));
            }
        }
    }
    for method in sql.flush_method.values() {
        if !FLUSH_METHODS.contains(&method.as_str()) {
            let allowed = FLUSH_METHODS.join(", ");
            let message = format!("flush_method = {method}; allowed: {allowed}");
            return Err(wrong("flush_method", message));
        }
    }
    listen_port(&sql.listen).map_err(|message| wrong("listen", message))?;
    check_together(study.engines, sql).map_err(|(key, message)| wrong(key, message))?;
    check_of_a_server(sql).map_err(|(key, message)| wrong(key, message))?;
    check_race(study, one, sql).map_err(|(key, message)| wrong(key, message))
}

/// The port of the loopback on which a private server listens; none for a socket of its own. Ports below 1024
/// are not for a user without rights.
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

/// What the server of a dsn decides about, and a study cannot: what would be printed is not what was.
fn check_of_a_server(sql: &SqlMatrix) -> Result<(), Wrong> {
    if sql.dsn.is_none() {
        return Ok(());
    }
    let own: SqlMatrix =
        toml::from_str("rows = 1").expect("invariant: every other key has a default");
    let given = [
        ("server", sql.server != own.server),
        ("listen", sql.listen != own.listen),
        ("durability", sql.durability != own.durability),
        ("buffer_pool", sql.buffer_pool != own.buffer_pool),
        ("page_size", sql.page_size != own.page_size),
        ("doublewrite", sql.doublewrite != own.doublewrite),
        ("flush_method", sql.flush_method != own.flush_method),
        ("redo_log", sql.redo_log != own.redo_log),
        ("settings", sql.settings != own.settings),
        ("memory", sql.memory != own.memory),
    ];
    given.into_iter().find(|(_, given)| *given).map_or(Ok(()), |(key, _)| {
        let message = format!(
            "{key} is decided by the server of the dsn; leave it out, or set a variable while it runs: change"
        );
        Err((key, message))
    })
}

type Wrong = (&'static str, String);

/// In the place of a key: the value is a secret.
const SECRET: &str = "";

/// An embedded engine has no server to reach, to set or to change.
fn check_embedded(engines: Engines, sql: &SqlMatrix) -> Result<(), Wrong> {
    let embedded = sql
        .engine
        .values()
        .iter()
        .any(|name| engines.find(name, Operations::Sql).is_some_and(|engine| !engine.server));
    let server_only = [
        ("dsn", sql.dsn.is_some()),
        ("settings", !sql.settings.is_empty()),
        ("compression", sql.compression.values() != [SqlCompression::None]),
        ("change", !sql.change.is_empty()),
    ];
    if let Some((key, _)) = server_only.into_iter().find(|(_, set)| embedded && *set) {
        let servers = engines.with(Operations::Sql).filter(|one| one.server);
        let names: Vec<&str> = servers.map(|one| one.name).collect();
        return Err((key, format!("{key} needs an engine with a server: {}", names.join(", "))));
    }
    Ok(())
}

fn check_together(engines: Engines, sql: &SqlMatrix) -> Result<(), Wrong> {
    let both = sql.compression.values().contains(&SqlCompression::Table)
        && sql.page_size.values().iter().any(|size| size.get() > 16 << 10);
    if both {
        let message = "compression = table needs pages of at most 16 KiB";
        return Err(("compression", message.into()));
    }
    let enough = match sql.memory {
        Memory::Share(_) => false,
        Memory::Size(size) => size >= Memory::LEAST,
        Memory::Unlimited => true,
    };
    if !enough {
        let (wanted, least) = (sql.memory.text(), Memory::LEAST);
        let message =
            format!("memory = {wanted}; allowed: unlimited, or a size of at least {least}");
        return Err(("memory", message));
    }
    for (key, pairs) in [("settings", sql.settings.as_str())]
        .into_iter()
        .chain(sql.change.iter().map(|change| ("set", change.set.as_str())))
    {
        // A change is of a server that runs, so what is ours of a start may be changed.
        let check = |pair: &str| match key {
            "settings" => check_setting(pair),
            _ => check_change(pair),
        };
        let wrong = pairs.split(';').filter(|p| !p.is_empty()).find_map(|p| check(p).err());
        if let Some(message) = wrong {
            return Err((key, message));
        }
    }
    check_embedded(engines, sql)?;
    if sql.prepared && sql.dialect == SqlDialect::Sysbench10 {
        // 9 statements a table and connection: the server's own limit is a million at most.
        let most = sql.threads.values().iter().max().copied().unwrap_or(1);
        if u64::from(sql.tables) * u64::from(most) * 9 > 1_000_000 {
            let message = "tables x threads x 9 prepared statements are more than a server holds; \
                           prepared = false";
            return Err(("tables", message.into()));
        }
    }
    if sql.change.len() > 100 {
        return Err(("change", "more than 100 changes".into()));
    }
    match (&sql.dsn, &sql.allow_overwrite) {
        (Some(dsn), None) => check_dsn(dsn),
        (Some(dsn), Some(name)) => {
            let database = check_dsn(dsn).map(|()| dsn.rsplit([':', '/']).next())?;
            if database == Some(name) {
                return Ok(());
            }
            let message = "allow_overwrite; allowed: the name of the dsn's database, no other";
            Err(("allow_overwrite", message.into()))
        }
        (None, Some(_)) => {
            Err(("allow_overwrite", "allow_overwrite is for a server of the dsn".into()))
        }
        (None, None) => Ok(()),
    }
}

/// Whether `name=value` may be set while a server runs: what may be set at its start, and what the keys of a
/// study decide about there.
fn check_change(pair: &str) -> Result<(), String> {
    let name = pair.split('=').next().unwrap_or_default().to_ascii_lowercase().replace('-', "_");
    let of_keys =
        ["innodb_buffer_pool_size", "innodb_flush_log_at_trx_commit", "innodb_log_file_size"];
    if of_keys.contains(&name.as_str()) {
        let value = pair.split_once('=').map_or("", |(_, value)| value);
        return check_value(value).map_err(|why| format!("{name}: {why}"));
    }
    check_setting(pair)
}

/// `mysql://USER@HOST[:PORT]/DATABASE`; never repeats what might be a password.
fn check_dsn(dsn: &str) -> Result<(), Wrong> {
    let form = "allowed: mysql://USER@HOST:PORT/DATABASE or mysql://USER@/path/of/socket:DATABASE";
    let wrong = |what: &str| ("dsn", format!("the dsn {what}; {form}"));
    let rest = dsn.strip_prefix("mysql://").ok_or_else(|| wrong("has another form"))?;
    let (user, place) = rest.rsplit_once('@').ok_or_else(|| wrong("names no user"))?;
    if user.contains(':') {
        return Err((
            SECRET,
            "the dsn holds a password, and a study is kept with its run; put the password into the \
             environment variable CROSSPOINT_SQL_PASSWORD"
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

fn check_race(study: &Study, one: &Experiment, sql: &SqlMatrix) -> Result<(), Wrong> {
    if !sql.race {
        return Ok(());
    }
    let all = one.stacks.is_empty();
    let stacks = if all { study.stack.len() } else { one.stacks.len() };
    if !(2..=4).contains(&stacks) {
        return Err(("race", format!("a race has two to four stacks, not {stacks}")));
    }
    if sql.transactions.is_none() {
        return Err(("race", "a race needs transactions, to know who was first".into()));
    }
    if sql.dsn.is_some() {
        return Err(("race", "a race needs private servers; leave out dsn".into()));
    }
    if sql.listen != "auto" {
        return Err(("race", "a race needs listen = \"auto\"".into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::ENGINES;
    use crate::parse;

    fn study(keys: &str) -> Result<Study, StudyError> {
        parse(
            &format!(
                "schema = 1\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n[[experiment]]\n\
             name = \"e\"\n[experiment.sql]\nrows = 1000\n{keys}"
            ),
            ENGINES,
        )
    }

    #[test]
    fn what_does_not_go_together_is_told_with_what_does() {
        for (keys, told) in [
            ("tables = 0\n", "1 to 1000"),
            ("page_size = \"5KiB\"\n", "4, 8, 16"),
            ("buffer_pool = \"1MiB\"\n", "a share of the database"),
            ("buffer_pool = \"unlimited\"\n", "a share of the database"),
            ("buffer_pool = \"18446744073709551615B\"\n", "a share of the database"),
            ("memory = \"1B\"\n", "a size of at least"),
            ("compression = \"table\"\npage_size = \"64KiB\"\n", "16 KiB"),
            ("settings = \"innodb_io_capacity=1;b\"\n", "name=value"),
            ("settings = \"datadir=/x\"\n", "setting `datadir=/x`"),
            ("race = true\n", "two to four"),
            ("engine = \"sqlite\"\nsettings = \"innodb_io_capacity=1\"\n", "mysql"),
            ("dsn = \"server/db\"\n", "mysql://USER"),
            ("listen = \"0.0.0.0:3306\"\n", "1024"),
            ("listen = \"127.0.0.1:0\"\n", "1024"),
            ("dsn = \"mysql://me@h/d\"\ndurability = \"none\"\n", "decided by the server"),
            ("dsn = \"mysql://me@h/d\"\nbuffer_pool = \"64MiB\"\n", "decided by the server"),
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
