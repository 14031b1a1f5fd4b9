//! How a running trial is told to stop, and how it says where it is.
//!
//! Drivers touch it once an interval, never once an operation. Invariant: sending progress never
//! blocks; when nobody keeps up, messages are dropped. What it is not: the record of the trial.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;

use stats::Summary;

/// An interval that one client has ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Client thread, from 0.
    pub client: u32,
    /// What was in the interval.
    pub summary: Summary,
}

/// The line between a trial's driver and whoever watches it.
#[derive(Debug, Clone)]
pub struct Control<'a> {
    /// Set from outside: finish the interval, then stop.
    pub stop: &'a AtomicBool,
    /// Where intervals are told.
    pub progress: Option<SyncSender<Progress>>,
}

impl Control<'_> {
    /// Whether the trial should stop at the next end of an interval.
    #[must_use]
    pub fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Tells of an ended interval; never blocks.
    pub fn tell(&self, client: u32, summary: Summary) {
        if let Some(progress) = &self.progress {
            // A full channel means that nobody is reading: nothing is lost but a progress line.
            let _ = progress.try_send(Progress { client, summary });
        }
    }
}
