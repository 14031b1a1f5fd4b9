//! Any bytes as the header of a run: rejected, or written back identically.
pub fn run(bytes: &[u8]) {
    if let Ok(header) = serde_json::from_slice::<archive::RunHeader>(bytes) {
        let text = serde_json::to_vec(&header).expect("plain data is JSON");
        let again: archive::RunHeader = serde_json::from_slice(&text).expect("it reads back");
        assert_eq!(again.trials_planned, header.trials_planned);
    }
}
