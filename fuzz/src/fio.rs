//! Any text as a fio job file: it is refused, or becomes a study that is one.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(imported) = study::import_fio(text, "fuzzed") {
        study::parse(&imported.text).expect("an imported study is a study");
    }
});
