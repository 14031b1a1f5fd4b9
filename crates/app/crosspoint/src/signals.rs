//! Ctrl-C: once finishes the interval and saves; twice undoes what was made on the host and leaves.
//!
//! SIGTERM and SIGHUP count as Ctrl-C. Invariant: however the process leaves, the undo journal is played or
//! kept for `clean`. What it is not: asynchronous; a thread waits for signals.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use stack::Journal;

use crate::exit;

/// Starts waiting for signals; the result is set at the first.
pub fn watch(journal: Arc<Journal>) -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    // Without signals the default holds: the process ends and `clean` undoes.
    if let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGHUP]) {
        std::thread::spawn(move || {
            for _ in &mut signals {
                if flag.swap(true, Ordering::Relaxed) {
                    journal.undo_all();
                    std::process::exit(exit::INTERRUPTED.number());
                }
                say!("stopping at the end of this interval; once more to stop at once");
            }
        });
    }
    stop
}
