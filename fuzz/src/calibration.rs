//! Any text as what was measured of a host: understood or refused in few words.
pub fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Err(reason) = sim::Calibration::parse(text) {
        assert!(reason.chars().count() < 5000, "{reason}");
    }
}
