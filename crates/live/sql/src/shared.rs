//! What the threads of a trial share.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Barrier, OnceLock};

use observe::{Clock, Control};
use stats::Timeline;
use study::SqlChange;

/// A SQL trial.
#[derive(Debug, Clone)]
pub struct SqlSpec {
    /// Phases and interval.
    pub timeline: Timeline,
    /// End the trial at the first failed statement that the server did not just give up.
    pub stop_on_error: bool,
    /// Variables that are set on the way.
    pub changes: Vec<SqlChange>,
}

/// Failures of one thread after which it does not go on, whatever the study says.
pub(crate) const FAILURES_MAX: u32 = 1000;

pub(crate) struct SqlShared<'a> {
    pub spec: &'a SqlSpec,
    pub control: &'a Control<'a>,
    pub start: Barrier,
    /// The common origin of time, read by whoever passes the barrier first.
    pub clock: OnceLock<Clock>,
    pub failed: AtomicBool,
    pub given_up: AtomicU64,
}
