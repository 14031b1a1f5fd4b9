//! Running a trial on a thread of its own while the caller's thread tells whoever watches.
//!
//! Invariant: events come from the calling thread. What it is not: a scheduler; one trial at a time.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, sync_channel};

use observe::{Control, Progress};
use study::{KvJob, Trial};

use crate::kv_trial;
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

/// As `watched`, and tells of loading as well.
pub(crate) fn watched_loading<T: Send>(
    stop: &AtomicBool,
    trial: &Trial,
    (job, watcher): (&KvJob, &mut dyn Watcher),
    work: impl FnOnce(&Control<'_>, kv_trial::LoadStep<'_>) -> T + Send,
) -> T {
    let (send_load, loads): (_, Receiver<u64>) = sync_channel(1024);
    let (send, receive) = sync_channel::<Progress>(1024);
    let control = Control { stop, progress: Some(send) };
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            work(&control, &|done| {
                // A full channel loses a progress line, nothing else.
                let _ = send_load.try_send(done);
            })
        });
        let patience = std::time::Duration::from_millis(100);
        loop {
            while let Ok(done) = loads.try_recv() {
                watcher.event(&Event::Loading { done, of: job.records });
            }
            match receive.recv_timeout(patience) {
                Ok(progress) => watcher.event(&Event::Interval { trial, progress }),
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
