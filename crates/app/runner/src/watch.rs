//! What a run tells whoever watches it.
//!
//! Invariant: events come from the thread that called `execute`, in order.

use std::path::Path;
use std::time::Duration;

use observe::Progress;
use study::{Plan, Study, Trial};
use units::Bytes;

/// Something happened.
#[derive(Debug)]
pub enum Event<'a> {
    /// The plan is made; about `seconds` from here.
    Started {
        /// Its folder.
        folder: &'a Path,
        /// Its question.
        study: &'a Study,
        /// All trials.
        plan: &'a Plan,
        /// Trials that are there already (resumed).
        done: u32,
        /// Estimated time.
        seconds: f64,
    },
    /// The target of a stack is being made.
    Preparing {
        /// The stack.
        stack: &'a str,
        /// Bytes done.
        done: Bytes,
        /// Bytes in all.
        of: Bytes,
    },
    /// A trial begins.
    TrialStarted {
        /// Which.
        trial: &'a Trial,
    },
    /// Records are being loaded.
    Loading {
        /// Records done.
        done: u64,
        /// Records in all.
        of: u64,
    },
    /// A client ended an interval.
    Interval {
        /// Of which trial.
        trial: &'a Trial,
        /// What was in it.
        progress: &'a Progress,
    },
    /// A trial ended.
    TrialEnded {
        /// Which.
        trial: &'a Trial,
        /// Its result in one line.
        headline: &'a str,
        /// How long it took.
        took: Duration,
        /// Estimated time left in the run.
        seconds_left: f64,
    },
    /// Something that the user must know.
    Note(&'a str),
}

/// Who watches.
pub trait Watcher {
    /// Called for each event.
    fn event(&mut self, event: &Event<'_>);
}
