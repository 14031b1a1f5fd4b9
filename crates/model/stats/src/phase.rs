//! The phases of a trial.
//!
//! Invariant: in time order.

use serde::{Deserialize, Serialize};

/// Part of a trial that an interval belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Before measuring: recorded, shown, not counted.
    WarmUp,
    /// The measured time.
    Measure,
    /// After the last full interval: operations that were in flight then.
    Drain,
}

units::words!(Phase {
    WarmUp => "warm-up", Measure => "measure", Drain => "drain",
});
