//! Any bytes as the list of a run's checksums: read, or refused with the number of a line of it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = archive::Sums::parse(bytes);
});
