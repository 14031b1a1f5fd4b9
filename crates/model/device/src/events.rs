//! A queue of events ordered by time, first in first out among equals.
//!
//! Invariant: deterministic order.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use units::Nanos;

/// A queue of events of type `E`, sorted by time. Events that arrive in time order, most of a FIFO server's,
/// cost O(1); others O(log n). Allocates only while it grows.
#[derive(Debug, Clone)]
pub struct EventQueue<E> {
    /// Events that arrived in time order.
    run: VecDeque<Entry<E>>,
    /// All other events.
    heap: BinaryHeap<Entry<E>>,
    pushed: u64,
}

#[derive(Debug, Clone)]
struct Entry<E> {
    at: u64,
    /// Sequence number of arrival, for events at the same time.
    order: u64,
    event: E,
}

impl<E> Entry<E> {
    /// Time in the upper half, order of arrival in the lower: one comparison without a branch.
    #[inline(always)]
    fn key(&self) -> u128 {
        u128::from(self.at) << 64 | u128::from(self.order)
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self { run: VecDeque::with_capacity(64), heap: BinaryHeap::new(), pushed: 0 }
    }
}

impl<E> EventQueue<E> {
    /// Adds an event at `at`.
    #[inline]
    pub fn push(&mut self, at: Nanos, event: E) {
        let entry = Entry { at: at.get(), order: self.pushed, event };
        self.pushed += 1;
        match self.run.back() {
            Some(last) if last.at > entry.at => self.heap.push(entry),
            _ => self.run.push_back(entry),
        }
    }

    /// The first event, and whether it is in `run`.
    #[inline]
    fn first(&self) -> Option<(bool, &Entry<E>)> {
        match (self.run.front(), self.heap.peek()) {
            (Some(run), Some(heap)) if run.key() > heap.key() => Some((false, heap)),
            (Some(run), _) => Some((true, run)),
            (None, heap) => heap.map(|heap| (false, heap)),
        }
    }

    /// The first event and its time.
    #[inline]
    #[must_use]
    pub fn peek(&self) -> Option<(Nanos, &E)> {
        self.first().map(|(_, entry)| (Nanos(entry.at), &entry.event))
    }

    /// Time of the first event.
    #[inline]
    #[must_use]
    pub fn next_time(&self) -> Option<Nanos> {
        self.peek().map(|(at, _)| at)
    }

    /// Takes the first event if it is due by `now`.
    #[inline]
    pub fn pop_due(&mut self, now: Nanos) -> Option<(Nanos, E)> {
        let (in_run, first) = self.first()?;
        if first.at > now.get() {
            return None;
        }
        let entry = if in_run { self.run.pop_front() } else { self.heap.pop() };
        entry.map(|entry| (Nanos(entry.at), entry.event))
    }

    /// Number of events.
    #[must_use]
    pub fn len(&self) -> usize {
        self.run.len() + self.heap.len()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.run.is_empty() && self.heap.is_empty()
    }
}

/// An event in one word: its kind (a small number) and its object.
///
/// An enum with data is written in two parts and read back in one, which stalls the CPU at every step of the
/// queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event(u64);

impl Event {
    /// An event of `kind` that concerns the object `of`.
    #[inline(always)]
    #[must_use]
    pub const fn new(kind: u32, of: u32) -> Self {
        Self((kind as u64) << 32 | of as u64)
    }

    /// Its kind.
    #[inline(always)]
    #[must_use]
    pub const fn kind(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Its object.
    #[inline(always)]
    #[must_use]
    pub const fn of(self) -> u32 {
        self.0 as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn events_come_by_time_then_by_order_of_arrival() {
        let mut queue = EventQueue::default();
        for (at, name) in [(5, 'a'), (3, 'b'), (5, 'c'), (3, 'd')] {
            queue.push(Nanos(at), name);
        }
        assert_eq!(queue.pop_due(Nanos(2)), None);
        let mut order = Vec::new();
        while let Some((_, name)) = queue.pop_due(Nanos(9)) {
            order.push(name);
        }
        assert_eq!(order, ['b', 'd', 'a', 'c']);
        assert!(queue.is_empty() && queue.is_empty() && queue.next_time().is_none());
    }

    proptest! {
        /// Events at the same time must keep their order, or runs would not be reproducible.
        #[test]
        fn whatever_comes_leaves_by_time_then_by_order_of_arrival(
            steps in prop::collection::vec((0u64..30, 0u8..4), 1..300),
        ) {
            let (mut queue, mut plain) = (EventQueue::default(), Vec::new());
            let mut now = 0;
            for (number, (ahead, take)) in steps.into_iter().enumerate() {
                queue.push(Nanos(now + ahead), number);
                plain.push((now + ahead, number));
                if take == 0 {
                    now += ahead / 2;
                    plain.sort_unstable();
                    let due = plain.iter().take_while(|(at, _)| *at <= now).count();
                    for (at, number) in plain.drain(..due) {
                        prop_assert_eq!(queue.next_time(), Some(Nanos(at)));
                        prop_assert_eq!(queue.pop_due(Nanos(now)), Some((Nanos(at), number)));
                    }
                    prop_assert_eq!(queue.pop_due(Nanos(now)), None);
                }
                prop_assert_eq!(queue.len(), plain.len());
                prop_assert_eq!(queue.is_empty(), plain.is_empty());
            }
        }
    }
}
