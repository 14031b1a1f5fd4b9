//! The target of a workload's operations in virtual time: a block device behind a submission path, or an
//! engine model.
//!
//! Invariants: no clock; every submitted operation ends exactly once, never before it was submitted.

use stats::Recorded;
use units::Nanos;
use workload::Outcome;

/// An operation in flight, and whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// Number of the client, from 0; each has its own thread.
    pub client: u32,
    /// Number of the operation among those in flight; small, and reused once it has ended.
    pub slot: u32,
}

/// A completed operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// Its client and slot.
    pub ticket: Ticket,
    /// When the client's thread had the result.
    pub at: Nanos,
    /// How it ended.
    pub outcome: Outcome,
    /// Bytes moved.
    pub bytes: u32,
}

/// A target of operations. Calls carry instants that never decrease.
pub trait Target {
    /// Type of the operations.
    type Op: Recorded;

    /// Takes an operation that a client's thread issues at `now`, or as soon as that thread is free.
    fn submit(&mut self, now: Nanos, ticket: Ticket, op: Self::Op);

    /// When the thread of `client` can issue its next operation; the past if it can now.
    fn free_at(&self, client: u32) -> Nanos;

    /// Time of the next internal event; `None` when idle.
    fn next_event(&self) -> Option<Nanos>;

    /// Processes one event due at `now`, and returns the completion if it was one; called again as long as
    /// something is due. Completions of one instant are returned one by one, so that each client can continue
    /// first.
    fn advance(&mut self, now: Nanos) -> Option<Done>;
}
