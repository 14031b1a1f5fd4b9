//! Writing to stdout and stderr without dying of a closed pipe.
//!
//! `crosspoint figures RUN | head` must not panic, and a run must not end because nobody reads its
//! progress any more. Invariant: results through `out!`, everything else through `say!`.
//! What it is not: buffering.

/// A line of the result, on stdout.
macro_rules! out {
    ($($part:tt)*) => {{
        use std::io::Write as _;
        // A reader that has gone away wanted no more.
        let _ = writeln!(std::io::stdout(), $($part)*);
    }};
}

/// A line that is not the result, on stderr.
macro_rules! say {
    ($($part:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($part)*);
    }};
}
