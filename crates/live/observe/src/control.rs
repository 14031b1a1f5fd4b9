//! Stopping a running trial, and reporting its progress.
//!
//! Drivers use it once per interval, never per operation. Invariant: sending progress never blocks; messages
//! are dropped if nobody keeps up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;

use serde::{Deserialize, Serialize};
use stats::{Recorder, Recording, Summary};
use units::Nanos;

/// An ended interval of one client.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Client thread, from 0.
    pub client: u32,
    /// Summary of the interval.
    pub summary: Summary,
}

/// The channel between a trial's driver and its watcher.
#[derive(Debug, Clone)]
pub struct Control<'a> {
    /// Set from outside: finish the interval, then stop.
    pub stop: &'a AtomicBool,
    /// Where intervals are reported.
    pub progress: Option<SyncSender<Progress>>,
    /// Stores ended intervals while a long trial runs.
    pub keep: Option<&'a dyn Keep>,
}

/// Stores ended intervals outside of memory, to survive a kill.
///
/// Invariant: the stored part of a trial is complete for all clients.
pub trait Keep: std::fmt::Debug + Sync {
    /// Announces the number of clients.
    fn expect(&self, clients: u32);
    /// Takes a client's ended intervals; never blocks.
    fn keep(&self, client: u32, ended: Recording);
    /// A client has ended, and has handed over all of its intervals.
    fn left(&self, client: u32);
    /// Returns everything that it stored; called once, when the clients have ended.
    ///
    /// # Errors
    /// Why a part cannot be returned.
    fn take_back(&self) -> Result<Recording, String>;
}

/// Clients hand over their records in this many groups, one after the other.
const TURNS: u64 = 8;
/// Interval between records of one client.
const KEEP_EVERY: Nanos = Nanos::from_secs(1);

impl Control<'_> {
    /// Whether the trial should stop at the next end of an interval.
    #[must_use]
    pub fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Hands over ended intervals of a client's recorder from time to time; staggered, because hundreds of
    /// clients would encode histograms at the same instant.
    #[inline]
    pub fn keep(&self, recorder: &mut Recorder, client: u32, now: Nanos) {
        let Some(keep) = self.keep else { return };
        let turn = Nanos(KEEP_EVERY.get() / TURNS * (u64::from(client) % TURNS));
        if now >= KEEP_EVERY + turn
            && let Some(ended) = recorder.take_ended(now, KEEP_EVERY)
        {
            keep.keep(client, ended);
        }
    }

    /// Announces the number of clients, before they begin.
    pub fn expect(&self, clients: u32) {
        if let Some(keep) = self.keep {
            keep.expect(clients);
        }
    }

    /// Hands over the rest of a client that has ended.
    pub fn leave(&self, recorder: &mut Recorder, client: u32, now: Nanos) {
        let Some(keep) = self.keep else { return };
        if let Some(ended) = recorder.take_ended(now, Nanos::ZERO) {
            keep.keep(client, ended);
        }
        keep.left(client);
    }

    /// Merges the stored intervals into the recording; returns a note, if any.
    #[must_use]
    pub fn take_back(&self, recording: &mut Recording) -> Option<String> {
        match self.keep?.take_back() {
            Ok(kept) => {
                recording.merge(&kept);
                None
            }
            Err(reason) => Some(reason),
        }
    }

    /// Reports an ended interval; never blocks.
    pub fn tell(&self, client: u32, summary: Summary) {
        if let Some(progress) = &self.progress {
            // A full channel means that nobody is reading: only progress is lost.
            let _ = progress.try_send(Progress { client, summary });
        }
    }
}
