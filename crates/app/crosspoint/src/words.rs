//! Text from studies and runs made safe for a terminal: bounded, without control characters.
//!
//! Invariant: newlines and tabs are the only control characters that remain.

/// Maximum number of echoed characters.
const SHOWN: usize = 2000;

/// Removes control characters.
pub fn plain(text: &str) -> String {
    // Bidirectional marks can make a line read as another.
    let ranges = ['\u{200e}'..='\u{200f}', '\u{202a}'..='\u{202e}', '\u{2066}'..='\u{2069}'];
    let turns = |c: char| ranges.iter().any(|range| range.contains(&c));
    let bad = |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || turns(c);
    text.replace(bad, "\u{fffd}")
}

/// Like [`plain`], bounded in length.
pub fn bounded(words: &str) -> String {
    let mut shown: String = plain(words).chars().take(SHOWN).collect();
    if words.chars().nth(SHOWN).is_some() {
        shown.push_str(" ...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A title must not be able to clear the screen or to run a terminal command.
    #[test]
    fn control_characters_do_not_reach_a_terminal() {
        assert_eq!(plain("a\u{1b}[2Jb\r\nc\td\u{9b}"), "a\u{fffd}[2Jb\u{fffd}\nc\td\u{fffd}");
        assert_eq!(bounded(&"a".repeat(5000)).len(), SHOWN + 4);
    }
}
