//! Texts in a trial's document, bounded when they are written and when they are read.

use stats::Limit;

/// Size limits in bytes: a point, another map, a note or failure, and all notes of a trial.
pub(crate) const POINT_MAX: usize = 64 << 10;
pub(crate) const TEXTS_MAX: usize = 1 << 20;
pub(crate) const TEXT_MAX: usize = 256 << 10;
pub(crate) const NOTES_MAX: usize = 1 << 20;

/// Size of a note besides its text.
pub(crate) const NOTE: usize = 64;

/// The first notes, up to a reader's limit.
pub(crate) fn bounded_notes(notes: &[String]) -> Vec<String> {
    let mut bytes = 0;
    let fits = |note: &String| {
        bytes += note.len() + NOTE;
        bytes <= NOTES_MAX
    };
    notes.iter().map(|note| shortened(note)).take_while(fits).collect()
}

/// Shortens a text to the stored maximum.
pub(crate) fn shortened(text: &str) -> String {
    text.char_indices().take_while(|(at, _)| *at < TEXT_MAX - 4).map(|(_, one)| one).collect()
}

/// Prefix of such notes in earlier formats.
const THREAD: &str = "the submitting thread, not the device, sets this rate";
const PROCESSORS: &str = "this host's CPUs, not the device alone, set these latencies";

/// The limit that a note reports, for trials recorded before limits had a field.
pub(crate) fn limit_of(note: &str) -> Option<Limit> {
    let percent = |text: &str| {
        let number = text.split('%').next()?.trim().rsplit(' ').next()?;
        Some(number.parse::<f64>().ok()? / 100.0)
    };
    if let Some(rest) = note.strip_prefix(THREAD) {
        return Some(Limit::Thread { busy: percent(rest)? });
    }
    let rest = note.strip_prefix(PROCESSORS)?;
    let (busy, others) = rest.split_once(',')?;
    Some(Limit::Processors { busy: percent(busy)?, others: percent(others)? })
}
