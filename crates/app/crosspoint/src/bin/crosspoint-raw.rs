//! `crosspoint-raw`: the host of the LMDB that can have a block device to itself.
//!
//! A program of its own: two LMDBs in one would merge silently. Invariant: refers to no other engine.
//! What it is not: for users; `crosspoint` starts it.

use kv_lmdb_raw::Lmdb;
use study::Engine;
use worker::{Handler, Handlers};

fn main() -> std::io::Result<()> {
    let handler = |engine| (engine == Engine::Lmdb).then(Handler::of::<Lmdb>);
    worker::serve(&Handlers { prepare: &|_, _| Ok(()), kv: &handler, sql: &|_| None })
}
