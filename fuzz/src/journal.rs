//! Any bytes as an undo journal: its entries are those of whole lines, the rest is reported.
pub fn run(bytes: &[u8]) {
    if let Ok(Some(parsed)) = stack::parsing::journal(bytes) {
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
        assert!(parsed.entries.len() + parsed.unknown.len() < lines, "more entries than lines");
    }
}
