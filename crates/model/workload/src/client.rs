//! Clients for drivers: a workload, and how its operations are recorded.
//!
//! Invariant: measured and predicted trials of a job have the same clients.

use crate::OpClass;

/// Properties that every operation reports, whatever its target.
pub trait Operation: Copy {
    /// The class that it is recorded under.
    fn class(&self) -> OpClass;
    /// Byte offset, record or row: kept of a failed operation.
    fn position(&self) -> u64;
}

/// One client of a trial.
#[derive(Debug, Clone)]
pub struct Client<W> {
    /// Its workload.
    pub workload: W,
    /// Classes of its operations.
    pub classes: Vec<OpClass>,
    /// Operations follow a schedule, so service times are kept as well.
    pub open_loop: bool,
    /// Whether its operations are recorded at all.
    pub recorded: bool,
}

/// Number of a client, and of all clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientIndex {
    /// From 0.
    pub index: u32,
    /// Number of clients, at least 1.
    pub of: u32,
}

impl ClientIndex {
    /// This client's part of `whole`: its first element and the one after its last.
    pub(crate) fn part(self, whole: u64) -> (u64, u64) {
        let at = |index: u32| {
            let share = u128::from(whole) * u128::from(index) / u128::from(self.of.max(1));
            u64::try_from(share).unwrap_or(0)
        };
        (at(self.index), at(self.index + 1))
    }
}
