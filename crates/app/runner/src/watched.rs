//! Running a trial on a thread of its own while the caller's thread tells whoever watches.
//!
//! Invariant: events come from the calling thread. What it is not: a scheduler; one trial at a time.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::sync_channel;

use observe::{Control, Progress};
use study::Trial;

use crate::watch::{Event, Watcher};

/// Runs `work` on a thread of its own and tells the watcher of its intervals meanwhile.
pub(crate) fn watched<T: Send>(
    stop: &AtomicBool,
    trial: &Trial,
    watcher: &mut dyn Watcher,
    work: impl FnOnce(&Control<'_>) -> T + Send,
) -> T {
    let (send, receive) = sync_channel::<Progress>(1024);
    let control = Control { stop, progress: Some(send) };
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || work(&control));
        for progress in receive {
            watcher.event(&Event::Interval { trial, progress });
        }
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
