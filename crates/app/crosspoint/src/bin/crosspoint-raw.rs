//! `crosspoint-raw`: runs the LMDB branch for raw devices; started by `crosspoint`.
//!
//! A separate program, because the symbols of two LMDBs in one program would merge silently. It links no
//! other engine.

use engine_lmdb_raw::Lmdb;
use worker::Handler;

fn main() -> std::io::Result<()> {
    worker::serve(&[Handler::key_value::<Lmdb>()])
}
