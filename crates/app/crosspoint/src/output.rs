//! Writing to stdout and stderr without dying of a closed pipe, and without losing results in silence.
//!
//! `crosspoint figures RUN | head` must not panic, and a run must not end because nobody reads its progress
//! any more; but `crosspoint figures RUN > full-disk` must not exit with 0. Invariants: results through
//! `out!`, everything else through `say!`; what others have named reaches a terminal without control
//! characters.

use std::io::{self, Write};
use std::sync::Mutex;

/// The first failure to write a result, other than a reader that has gone away.
static LOST: Mutex<Option<io::Error>> = Mutex::new(None);

/// Writes a line of the result.
pub fn result_line(line: std::fmt::Arguments<'_>) {
    note(writeln!(io::stdout(), "{line}"));
}

/// A reader that has gone away wanted no more; anything else is a loss.
fn note(written: io::Result<()>) {
    let Err(error) = written else { return };
    if error.kind() != io::ErrorKind::BrokenPipe
        && let Ok(mut lost) = LOST.lock()
    {
        lost.get_or_insert(error);
    }
}

/// What of the results was lost, once all is written.
pub fn lost() -> Option<io::Error> {
    note(io::stdout().flush());
    LOST.lock().ok()?.take()
}

/// A text of somebody else's without control characters, which would steer a terminal.
pub fn plain(text: &str) -> String {
    let bad = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    text.replace(bad, "\u{fffd}")
}

/// A line of the result, on stdout.
macro_rules! out {
    ($($part:tt)*) => { $crate::output::result_line(format_args!($($part)*)) };
}

/// A line that is not the result, on stderr.
macro_rules! say {
    ($($part:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($part)*);
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A title must not be able to clear the screen or to write a command.
    #[test]
    fn control_characters_do_not_reach_a_terminal() {
        assert_eq!(plain("a\u{1b}[2Jb\r\nc\td"), "a\u{fffd}[2Jb\u{fffd}\nc\td");
    }
}
