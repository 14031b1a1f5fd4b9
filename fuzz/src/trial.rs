//! Any text as the record of a trial: it is refused or read, never a crash.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(record) = archive::from_line(&format!("[{text},\"\"]")) {
        let _ = archive::to_line(&record);
    }
});
