//! What a workload's operations are done to in virtual time.
//!
//! Invariants: no clock; every operation submitted ends exactly once, never before it was submitted. What it
//! is not: a device; a device behind a host's submission path is one target, an engine's twin is another.

use stats::Recorded;
use units::Nanos;
use workload::Outcome;

/// An operation in flight, and whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// Number of the client, from 0; each has a thread of its own.
    pub client: u32,
    /// Number of the operation among those in flight; small, and used again once it has ended.
    pub slot: u32,
}

/// An operation that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// Whose, and which.
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
    /// What it takes.
    type Op: Recorded;

    /// Takes an operation that a client's thread issues at `now`, or as soon as that thread is free.
    fn submit(&mut self, now: Nanos, ticket: Ticket, op: Self::Op);

    /// When the thread of `client` can issue its next operation; the past if it can now.
    fn free_at(&self, client: u32) -> Nanos;

    /// When something will next happen inside; `None` when idle.
    fn next_event(&self) -> Option<Nanos>;

    /// Lets what is next happen, which is due at `now`, and gives what ended by it; called again as long as
    /// something is due. What ends at one instant comes out one by one, so that its client can continue
    /// first.
    fn advance(&mut self, now: Nanos) -> Option<Done>;
}
