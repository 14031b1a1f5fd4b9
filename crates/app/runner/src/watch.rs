//! Events of a run for its watchers.
//!
//! Invariant: events come from the thread that called `execute`, in order.

use std::path::Path;
use std::time::Duration;

use observe::Progress;
use study::{Plan, Study, Trial};
use units::Bytes;

/// An event.
#[derive(Debug)]
pub enum Event<'a> {
    /// The plan is ready; the estimate is `seconds`.
    Started {
        /// Its folder.
        folder: &'a Path,
        /// Its question.
        study: &'a Study,
        /// All trials.
        plan: &'a Plan,
        /// Finished trials of a resumed run.
        done: u32,
        /// Estimated time.
        seconds: f64,
    },
    /// The target of a stack is being created.
    Preparing {
        /// The stack.
        stack: &'a str,
        /// Bytes done.
        done: Bytes,
        /// Bytes in total.
        of: Bytes,
    },
    /// A trial begins.
    TrialStarted {
        /// The trial.
        trial: &'a Trial,
    },
    /// Records are being loaded.
    Loading {
        /// Records done.
        done: u64,
        /// Records in total.
        of: u64,
    },
    /// A client ended an interval.
    Interval {
        /// The trial.
        trial: &'a Trial,
        /// Its counts.
        progress: &'a Progress,
    },
    /// A trial ended.
    TrialEnded {
        /// The trial.
        trial: &'a Trial,
        /// Its result in one line.
        headline: &'a str,
        /// How long it took.
        took: Duration,
        /// Estimated time left in the run.
        seconds_left: f64,
    },
    /// A message for the user.
    Note(&'a str),
}

/// Receives events.
pub trait Watcher {
    /// Called for each event.
    fn event(&mut self, event: &Event<'_>);
}
