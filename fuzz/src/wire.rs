//! Any bytes as what a server sends: a whole result, a part of one, or an error; never a crash.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = engine_mysql::parsing::result(bytes);
});
