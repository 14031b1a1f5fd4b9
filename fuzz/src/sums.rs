//! Any bytes as a run's checksum list: parsed, or rejected with the number of a line.
pub fn run(bytes: &[u8]) {
    let _ = archive::Sums::parse(bytes);
}
