//! Any bytes as a line of an engine's process: understood or refused in few words.
pub fn run(line: &[u8]) {
    if let Err(error) = worker::understood(line) {
        assert!(error.to_string().chars().count() < 500, "{error}");
    }
}
