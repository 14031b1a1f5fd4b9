//! The list of engines: the only place that names them all.
//!
//! Command line, `doctor`, power cuts, page titles and reference docs iterate over it.

use std::sync::LazyLock;

use engine_lmdb::Lmdb;
use engine_mysql::Mysql;
use engine_postgres::Postgres;
use engine_rocksdb::RocksDb;
use engine_sqlite::{Sqlite, SqliteOltp};
use study::{Descriptor, Engines, Operations};
use worker::Handler;

/// Every engine, in listing order.
pub static ENGINES: &[Handler] = &[
    Handler::block(&block::DESCRIPTOR, block::probe),
    Handler::key_value::<Lmdb>(),
    Handler::key_value::<RocksDb>(),
    Handler::key_value::<Sqlite>(),
    Handler::sql::<Mysql>(),
    Handler::sql::<Postgres>(),
    Handler::sql::<SqliteOltp>(),
    #[cfg(feature = "skeleton")]
    Handler::key_value::<engine_skeleton::Skeleton>(),
];

static DESCRIPTORS: LazyLock<Vec<&Descriptor>> =
    LazyLock::new(|| ENGINES.iter().map(|one| one.descriptor).collect());

/// The engines available to studies.
#[must_use]
pub fn list() -> Engines {
    Engines::of(&DESCRIPTORS)
}

/// The descriptions of all engines.
pub fn descriptors() -> impl Iterator<Item = &'static Descriptor> {
    DESCRIPTORS.iter().copied()
}

/// Finds the engine `name` for jobs with these operations.
#[must_use]
pub fn find(name: &str, operations: Operations) -> Option<&'static Handler> {
    ENGINES
        .iter()
        .find(|one| one.descriptor.name == name && one.descriptor.operations == operations)
}

/// Command-line names for ad-hoc jobs, each once, with the engine that runs it.
pub fn commands() -> impl Iterator<Item = &'static Descriptor> {
    descriptors().enumerate().filter(|(at, one)| first(*at, one)).map(|(_, one)| one)
}

/// Whether no engine before `at` has this command.
fn first(at: usize, one: &Descriptor) -> bool {
    descriptors().take(at).all(|other| other.command != one.command)
}

/// Title of an engine on pages: from its name in stored runs and its version, if known.
#[must_use]
pub fn title<'a>(name: &'a str, version: &str) -> &'a str {
    let found = descriptors().find(|one| one.name == name);
    found.map_or(name, |one| one.title_of(version))
}

/// Restores a variable of the user's server; the dsn names the engine.
///
/// # Errors
/// The server's message, or that no engine has this scheme.
pub fn restore(dsn: &str, name: &str, value: &str) -> Result<(), String> {
    let scheme = dsn.split_once("://").map_or("", |(scheme, _)| scheme);
    let found = ENGINES.iter().find(|one| one.descriptor.server == Some(scheme));
    let server = found.and_then(|one| one.server);
    let server = server.ok_or_else(|| format!("no engine has servers of the scheme {scheme:?}"))?;
    (server.restore)(dsn, name, value)
}
