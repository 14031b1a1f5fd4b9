//! Output to stdout and stderr that survives a closed pipe and never loses results silently.
//!
//! `crosspoint figures RUN | head` must not panic, and a run must not end because its progress is not read;
//! but `crosspoint figures RUN > full-disk` must not exit with 0. Invariants: results through `out!`,
//! everything else through `say!`.

use std::io::{self, Write};
use std::sync::Mutex;

/// The first error of writing a result, except a closed pipe.
static LOST: Mutex<Option<io::Error>> = Mutex::new(None);

/// Writes a line of the result.
pub fn result_line(line: std::fmt::Arguments<'_>) {
    note(writeln!(io::stdout(), "{line}"));
}

/// Records a failed write; a closed pipe is not an error.
pub fn note(written: io::Result<()>) {
    let Err(error) = written else { return };
    if error.kind() != io::ErrorKind::BrokenPipe
        && let Ok(mut lost) = LOST.lock()
    {
        lost.get_or_insert(error);
    }
}

/// The error that lost results, if any.
pub fn lost() -> Option<io::Error> {
    note(io::stdout().flush());
    LOST.lock().ok()?.take()
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
