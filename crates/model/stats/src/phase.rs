//! The parts of a trial.
//!
//! Invariant: in order of time.

/// Part of a trial that an interval belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Before measuring: recorded, shown, not counted.
    WarmUp,
    /// What figures are made of.
    Measure,
    /// After the last whole interval: operations that were in flight then.
    Drain,
}
