//! Every fuzz target in one program: libFuzzer runs the one that `CROSSPOINT_FUZZ` names.
#![no_main]

mod act;
mod archive;
mod calibration;
mod error;
mod faults;
mod fio;
mod fuse;
mod header;
mod host;
mod journal;
mod profile;
mod quantity;
mod recording;
mod reply;
mod set;
mod settings;
mod study;
mod sums;
mod trial;
mod wire;

/// The program draws errors; it is not a library.
#[path = "../../crates/app/crosspoint/src/place.rs"]
mod place;
#[path = "../../crates/app/crosspoint/src/words.rs"]
mod words;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<String> =
    LazyLock::new(|| std::env::var("CROSSPOINT_FUZZ").expect("CROSSPOINT_FUZZ names a target"));

fuzz_target!(|bytes: &[u8]| {
    let text = std::str::from_utf8(bytes);
    match (TARGET.as_str(), text) {
        ("act", Ok(text)) => act::run(text),
        ("archive", _) => archive::run(bytes),
        ("calibration", _) => calibration::run(bytes),
        ("error", _) => error::run(bytes),
        ("faults", _) => faults::run(bytes),
        ("fio", Ok(text)) => fio::run(text),
        ("fuse", _) => fuse::run(bytes),
        ("header", _) => header::run(bytes),
        ("host", _) => host::run(bytes),
        ("journal", _) => journal::run(bytes),
        ("profile", Ok(text)) => profile::run(text),
        ("quantity", Ok(text)) => quantity::run(text),
        ("recording", _) => recording::run(bytes),
        ("reply", _) => reply::run(bytes),
        ("set", Ok(text)) => set::run(text),
        ("settings", Ok(text)) => settings::run(text),
        ("study", Ok(text)) => study::run(text),
        ("sums", _) => sums::run(bytes),
        ("trial", Ok(text)) => trial::run(text),
        ("wire", _) => wire::run(bytes),
        (
            "act" | "fio" | "profile" | "quantity" | "set" | "settings" | "study" | "trial",
            Err(_),
        ) => {}
        (other, _) => panic!("no fuzz target is named `{other}`"),
    }
});
