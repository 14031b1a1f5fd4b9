//! Any text as the record of a trial: it is refused or read, never a crash.
pub fn run(text: &str) {
    let message = serde_json::from_str::<archive::TrialMessage>(&format!("[{text},\"\"]"));
    if let Ok(record) = message.map_err(drop).and_then(|one| one.into_record().map_err(drop)) {
        let _ = archive::TrialMessage::of_result(record.result);
    }
}
