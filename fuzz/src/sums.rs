//! Any bytes as the list of a run's checksums: read, or refused with the number of a line of it.
pub fn run(bytes: &[u8]) {
    let _ = archive::Sums::parse(bytes);
}
