//! Any text as a host calibration: parsed, or rejected with a short message.
pub fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Err(reason) = sim::Calibration::parse(text) {
        assert!(reason.chars().count() < 5000, "{reason}");
    }
}
