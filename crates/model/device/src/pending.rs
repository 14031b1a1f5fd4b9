//! Requests whose end is known: a queue of completions by time.
//!
//! Invariant: each leaves once, in order of time.

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
    /// A request ends so.
    #[inline]
    pub fn push(&mut self, completion: Completion) {
        let place = self.completions.put(completion);
        self.due.push(completion.at, place);
    }

    /// Completes a request that has nothing to do here.
    pub fn at_once(&mut self, now: Nanos, id: u64) {
        self.push(Completion { id, at: now, stages: Stages::default() });
    }

    /// When the first ends.
    #[inline]
    pub fn next_time(&self) -> Option<Nanos> {
        self.due.next_time()
    }

    /// Appends those that end by `now`; returns their number.
    #[inline]
    pub fn take_due(&mut self, now: Nanos, done: &mut Vec<Completion>) -> usize {
        let before = done.len();
        while let Some((_, place)) = self.due.pop_due(now) {
            done.push(self.completions.take(place));
        }
        done.len() - before
    }
}
