//! Requests with a known completion time: a queue sorted by time.
//!
//! Invariant: each leaves once, in time order.

use units::Nanos;

use crate::slab::Slab;
use crate::{Completion, EventQueue, Stages};

/// Completions that are due later. The heap holds numbers, not the completions themselves.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pending {
    due: EventQueue<u32>,
    completions: Slab<Completion>,
}

impl Pending {
    /// Adds a completion.
    #[inline]
    pub fn push(&mut self, completion: Completion) {
        let place = self.completions.put(completion);
        self.due.push(completion.at, place);
    }

    /// Completes a request without work immediately.
    pub fn at_once(&mut self, now: Nanos, id: u64) {
        self.push(Completion { id, at: now, stages: Stages::default() });
    }

    /// Time of the first completion.
    #[inline]
    pub fn next_time(&self) -> Option<Nanos> {
        self.due.next_time()
    }

    /// Appends the completions due by `now`; returns their number.
    #[inline]
    pub fn take_due(&mut self, now: Nanos, done: &mut Vec<Completion>) -> usize {
        let before = done.len();
        while let Some((_, place)) = self.due.pop_due(now) {
            done.push(self.completions.take(place));
        }
        done.len() - before
    }
}
