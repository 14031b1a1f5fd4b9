//! Any message at any position of any text: drawn in a bounded number of printable characters.
use crate::place;

pub fn run(bytes: &[u8]) {
    // Where the place begins, its length, then the message and the text, half of the rest each.
    let [a, b, c, d, rest @ ..] = bytes else { return };
    let (start, length) = (u16::from_le_bytes([*a, *b]), u16::from_le_bytes([*c, *d]));
    let (message, text) = rest.split_at(rest.len() / 2);
    let (message, text) = (String::from_utf8_lossy(message), String::from_utf8_lossy(text));
    let (message, text) = (message.as_ref(), text.as_ref());
    let span = usize::from(start)..usize::from(start) + usize::from(length);
    let place = place::TextPlace { message, span, name: "study.toml", text, next: message };
    let drawn = place::render(&place, false);
    assert!(drawn.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\t' | '\r')), "{drawn:?}");
}
