//! `crosspoint engine`: this program as the host of a database engine.
//!
//! Invariant: whoever started it is another process of this program. What it is not: for users.

use kv::{KvError, Options};
use kv_lmdb::Lmdb;
use kv_rocksdb::RocksDb;
use sql_mysql::Mysql;
use sql_sqlite::{Sqlite, SqliteOltp};
use study::{Engine, KvJob, SqlEngine};
use worker::{Handler, Handlers, SqlHandler};

use crate::exit::{self, ExitCode};

/// Answers one request.
pub fn host() -> ExitCode {
    let handler = |engine| match engine {
        Engine::Lmdb => Some(Handler::of::<Lmdb>()),
        Engine::Rocksdb => Some(Handler::of::<RocksDb>()),
        Engine::Sqlite => Some(Handler::of::<Sqlite>()),
    };
    let sql = |engine| match engine {
        SqlEngine::Mysql => Some(SqlHandler::of::<Mysql>()),
        SqlEngine::Sqlite => Some(SqlHandler::of::<SqliteOltp>()),
    };
    match worker::serve(&Handlers { prepare: &prepare, kv: &handler, sql: &sql }) {
        Ok(()) => exit::OK,
        Err(error) => {
            say!(
                "this verb is for other processes of this program ({error}); try: crosspoint run quickstart"
            );
            exit::ENVIRONMENT
        }
    }
}

/// Loads what is not built in, and lets it look at its options.
fn prepare(job: &KvJob, options: &Options) -> Result<(), KvError> {
    if job.engine != Engine::Rocksdb {
        return Ok(());
    }
    let library = (job.library != "auto").then(|| std::path::Path::new(&job.library));
    kv_rocksdb::load(library)?;
    kv_rocksdb::check_settings(options)
}
