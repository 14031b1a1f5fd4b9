//! Any bytes as a request of the kernel's to an attached disk: read or refused; never a crash.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = attach::parsing::request(bytes);
});
