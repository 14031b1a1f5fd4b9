//! Any message at any place of any text: drawn in bounded, plain characters.
#![no_main]

#[path = "../../crates/app/crosspoint/src/place.rs"]
mod place;
#[path = "../../crates/app/crosspoint/src/words.rs"]
mod words;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u16, u16, &str, &str)| {
    let (start, length, message, text) = input;
    let span = usize::from(start)..usize::from(start) + usize::from(length);
    let place = place::TextPlace { message, span, name: "study.toml", text, next: message };
    let drawn = place::render(&place, false);
    assert!(drawn.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\t' | '\r')), "{drawn:?}");
});
