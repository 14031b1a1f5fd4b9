//! The engine's description, and the configuration of a private server.
//!
//! Invariant: everything that affects I/O is set, so that two servers differ by the study alone.

use engine::Listen;
use serde::Deserialize;
use study::{Descriptor, Durability, Memory, Operations, OptionKind, SqlJob, VirtualTime};
use units::Bytes;

use crate::settings::{check_setting, check_value, split};

pub(crate) static POSTGRES: Descriptor = Descriptor {
    server: Some("postgresql"),
    needs: Some("PostgreSQL"),
    install: "apt-get install postgresql",
    durability: [
        "fsync = off: nothing is flushed",
        "synchronous_commit = off: the log is written and flushed within 0.6 s after a commit",
        "synchronous_commit = on: the log is flushed at every commit",
    ],
    options: study::option_docs! {
        buffer_pool: OptionKind::Pool(128 << 10, 1 << 50), Some("128MiB"), Always,
            "shared_buffers, the server's own cache; the kernel's page cache holds pages as well";
        wal_level: OptionKind::Words(&["minimal", "replica", "logical"]), Some("replica"), Differs,
            "How much the write-ahead log holds";
        full_page_writes: OptionKind::Flag, Some("true"), Differs,
            "A page's first change after a checkpoint logs the whole page, to repair torn pages";
        checkpoint_timeout: OptionKind::Text(check_value_of, "a time such as `5min`"), Some("5min"), Differs,
            "Longest time between checkpoints: 30s to 1d";
        max_wal_size: OptionKind::Size(32 << 20, 1 << 46), Some("1GiB"), Differs,
            "Size of the write-ahead log that starts a checkpoint";
        data_checksums: OptionKind::Flag, Some("false"), Differs,
            "Each page has a checksum, which is compared when it is read";
        settings: OptionKind::Text(check_settings, "name=value;name=value"), Some(""), Differs,
            "Other variables: of the write-ahead log, checkpoints, vacuum, the planner, memory and \
                  input/output; none that is an option itself, and no path";
        server: OptionKind::Text(|_| Ok(()), "a path, or `auto`"), Some("auto"), Never,
            "Program of the private server; `auto`: the newest installed `postgres`";
    },
    check_change,
    wal: Some(WAL),
    power_cuts: Some(
        "workload = \"read_write\"\nrecords = 1\ntables = 4\nclients = 4\ndurability = \"device\"\n\
         options = { buffer_pool = \"8MiB\", max_wal_size = \"64MiB\", data_checksums = true }\n",
    ),
    virtual_time: VirtualTime::AnyDirectory,
    ..Descriptor::new("postgres", "PostgreSQL", Operations::Sql)
};

/// Folder of its write-ahead log.
pub(crate) const WAL: &str = "data/pg_wal";

/// PostgreSQL's own options.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Own {
    pub buffer_pool: Memory,
    pub wal_level: String,
    pub full_page_writes: bool,
    pub checkpoint_timeout: String,
    pub max_wal_size: Bytes,
    pub data_checksums: bool,
    pub settings: String,
    pub server: String,
}

impl Own {
    pub fn of(job: &SqlJob) -> Self {
        job.options.typed()
    }

    /// Program of a job's private server, or `auto`.
    pub fn server(job: &SqlJob) -> &str {
        Some(job.options.text("server")).filter(|server| !server.is_empty()).unwrap_or("auto")
    }
}

fn check_value_of(value: &str) -> Result<(), String> {
    check_value(value).map_err(Into::into)
}

fn check_settings(settings: &str) -> Result<(), String> {
    settings.split(';').filter(|pair| !pair.is_empty()).try_for_each(check_setting)
}

/// Checks a `name=value` that is set at run time: like a setting at start-up, but variables that have an
/// option and need no restart are allowed, too.
fn check_change(pair: &str) -> Result<(), String> {
    let (name, value) = split(pair)?;
    let of_options = ["max_wal_size", "checkpoint_timeout", "full_page_writes"];
    if of_options.contains(&name.as_str()) {
        return check_value(value).map_err(|why| format!("{name}: {why}"));
    }
    check_setting(pair)
}

/// The port of a server; without TCP it only names the socket.
pub(crate) const fn port(listen: &Listen) -> u16 {
    match listen {
        Listen::Own => 5432,
        Listen::Port(port) => *port,
    }
}

/// The configuration of a private server with `pool` bytes of shared buffers. The study's settings come after
/// our defaults and before the fixed ones, which override them.
pub(crate) fn configuration(job: &SqlJob, listen: &Listen, pool: Bytes) -> String {
    let own = Own::of(job);
    let on = |is: bool| if is { "on" } else { "off" }.to_owned();
    let mut text = String::from("# Written by Crosspoint at each start.\n");
    let mut add = |name: &str, value: &str| text.push_str(&format!("{name} = '{value}'\n"));
    for (name, value) in [
        // Planning would compile statements that run for microseconds.
        ("jit", "off"),
        ("max_wal_senders", "0"),
        ("min_wal_size", "80MB"),
        ("shared_memory_type", "mmap"),
        // Its own name space has nothing else; files would be left by a killed server.
        ("dynamic_shared_memory_type", "sysv"),
        ("timezone", "UTC"),
        ("log_timezone", "UTC"),
        ("datestyle", "iso, mdy"),
        ("log_checkpoints", "on"),
    ] {
        add(name, value);
    }
    for pair in own.settings.split(';').filter(|pair| !pair.is_empty()) {
        let (name, value) = split(pair).unwrap_or_default();
        add(&name, value);
    }
    let kilobytes = |bytes: Bytes| format!("{}kB", bytes.get() >> 10);
    let addresses = match listen {
        Listen::Own => "",
        Listen::Port(_) => "127.0.0.1",
    };
    for (name, value) in [
        ("shared_buffers", kilobytes(pool)),
        ("fsync", on(job.durability != Durability::None)),
        ("synchronous_commit", on(job.durability == Durability::Device)),
        ("full_page_writes", on(own.full_page_writes)),
        ("wal_level", own.wal_level),
        ("checkpoint_timeout", own.checkpoint_timeout),
        ("max_wal_size", kilobytes(own.max_wal_size)),
        // Three of them are kept for administrators, and autovacuum needs none.
        ("max_connections", (job.clients.max(job.load_threads) + 13).to_string()),
        ("listen_addresses", addresses.to_owned()),
        ("port", port(listen).to_string()),
        // Relative to the data directory.
        ("unix_socket_directories", ".".into()),
        ("unix_socket_permissions", "0700".into()),
    ] {
        add(name, &value);
    }
    text
}

#[cfg(test)]
mod tests {
    use study::Options;

    use super::*;

    /// An option that does not reach the server would be claimed by the report without being true.
    #[test]
    fn the_descriptor_has_the_options_that_servers_are_started_with() {
        let own: Own = Options::of(POSTGRES.options).typed();
        assert_eq!((own.max_wal_size, own.server.as_str()), (Bytes(1 << 30), "auto"));
        assert!(check_settings("work_mem=1;b").unwrap_err().contains("name=value"));
        assert!(check_settings("data_directory=x").unwrap_err().contains("data_directory=x"));
        assert!(check_change("max_wal_size=2GB").is_ok() && check_change("fsync=off").is_err());
    }
}
