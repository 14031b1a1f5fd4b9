//! Any text as what was measured of a host: understood or refused in few words.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Err(reason) = sim::Calibration::parse(text) {
        assert!(reason.chars().count() < 5000, "{reason}");
    }
});
