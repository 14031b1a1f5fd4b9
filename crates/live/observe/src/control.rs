//! How a running trial is stopped, and how it says where it is.
//!
//! Drivers touch it once an interval, never once an operation. Invariant: sending progress never blocks;
//! when nobody keeps up, messages are dropped.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;

use serde::{Deserialize, Serialize};
use stats::{Recorder, Recording, Summary};
use units::Nanos;

/// An interval that one client has ended.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
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
    /// Where intervals are reported.
    pub progress: Option<SyncSender<Progress>>,
    /// Where they are kept while a long trial runs.
    pub keep: Option<&'a dyn Keep>,
}

/// Keeps intervals that have ended outside of memory, so that a kill does not lose them.
///
/// What is kept of a trial is whole: of no interval what some clients have handed on and others not yet.
pub trait Keep: std::fmt::Debug + Sync {
    /// This many clients will hand on.
    fn expect(&self, clients: u32);
    /// Takes what a client has ended, up to the end of the last of it; never blocks.
    fn keep(&self, client: u32, ended: Recording);
    /// A client has ended, and has handed on all intervals that it ended.
    fn left(&self, client: u32);
    /// Gives back all that it has taken; called once, when the clients have ended.
    ///
    /// # Errors
    /// Why some of it cannot be given back, in words.
    fn take_back(&self) -> Result<Recording, String>;
}

/// Clients hand on in this many groups, one after the other.
const TURNS: u64 = 8;
/// Time between pieces of one client.
const KEEP_EVERY: Nanos = Nanos::from_secs(1);

impl Control<'_> {
    /// Whether the trial should stop at the next end of an interval.
    #[must_use]
    pub fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Hands on what the recorder of `client` has of ended intervals, from time to time; not all clients at
    /// the same instant, where hundreds would encode their histograms in each other's way.
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

    /// Says how many clients will hand on; before any of them does.
    pub fn expect(&self, clients: u32) {
        if let Some(keep) = self.keep {
            keep.expect(clients);
        }
    }

    /// Hands on the rest of what a client has ended that will record nothing more.
    pub fn leave(&self, recorder: &mut Recorder, client: u32, now: Nanos) {
        let Some(keep) = self.keep else { return };
        if let Some(ended) = recorder.take_ended(now, Nanos::ZERO) {
            keep.keep(client, ended);
        }
        keep.left(client);
    }

    /// Adds what was handed on to what the clients still had; what is to be said of it.
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

    /// Tells of an ended interval; never blocks.
    pub fn tell(&self, client: u32, summary: Summary) {
        if let Some(progress) = &self.progress {
            // A full channel means that nobody is reading: nothing is lost but a progress line.
            let _ = progress.try_send(Progress { client, summary });
        }
    }
}
