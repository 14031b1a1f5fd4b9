//! `crosspoint-raw`: the host of the LMDB that runs on a bare block device, started by `crosspoint`.
//!
//! A program of its own: two LMDBs in one would merge silently. It refers to no other engine.

use engine_lmdb_raw::Lmdb;
use worker::Handler;

fn main() -> std::io::Result<()> {
    worker::serve(&[Handler::key_value::<Lmdb>()])
}
