//! `crosspoint-raw`: the host of the LMDB branch for raw devices, started by `crosspoint`.
//!
//! A separate program: two LMDBs in one would merge silently. It links no other engine.

use engine_lmdb_raw::Lmdb;
use worker::Handler;

fn main() -> std::io::Result<()> {
    worker::serve(&[Handler::key_value::<Lmdb>()])
}
