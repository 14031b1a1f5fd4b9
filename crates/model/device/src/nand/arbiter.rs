//! Arbitration of host queues: round robin among queues with requests that the drive has not fetched.
//!
//! An NVMe drive fetches commands from its host's submission queues in turn (NVM Express base specification
//! 2.0, section 3.4.4, round robin). A client with few requests has a short queue and does not wait behind
//! other clients' requests, only behind those that the drive has fetched.
//!
//! Invariants: arrival order within a queue; no non-empty queue is skipped. Weighted classes and arbitration
//! bursts are not modelled.

use std::collections::VecDeque;

use units::Nanos;

use crate::Request;

/// Requests not yet fetched by the drive, each with its submission time.
#[derive(Debug, Clone, Default)]
pub(super) struct Arbiter {
    /// `[queue]`.
    queues: Vec<VecDeque<(Request, Nanos)>>,
    /// Non-empty queues, the next in turn first.
    turns: VecDeque<u16>,
}

impl Arbiter {
    /// Appends a request to its queue.
    pub fn push(&mut self, queue: u16, request: Request, submitted: Nanos) {
        let place = usize::from(queue);
        if self.queues.len() <= place {
            self.queues.resize_with(place + 1, VecDeque::new);
        }
        let waiting = &mut self.queues[place];
        if waiting.is_empty() {
            self.turns.push_back(queue);
        }
        waiting.push_back((request, submitted));
    }

    /// Dequeues the head of the queue whose turn it is.
    pub fn pop(&mut self) -> Option<(Request, Nanos)> {
        let queue = self.turns.pop_front()?;
        let waiting = &mut self.queues[usize::from(queue)];
        let next = waiting.pop_front();
        if !waiting.is_empty() {
            self.turns.push_back(queue);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A log writer with one request at a time must not wait for the whole queues of others.
    #[test]
    fn a_short_queue_does_not_wait_for_a_long_one() {
        let mut arbiter = Arbiter::default();
        for id in 0..100 {
            arbiter.push(0, Request::write(id, 0, 4096), Nanos::ZERO);
        }
        arbiter.push(1, Request::write(100, 0, 4096), Nanos::ZERO);
        let order: Vec<u64> =
            std::iter::from_fn(|| arbiter.pop()).map(|(request, _)| request.id).collect();
        assert_eq!(order[..4], [0, 100, 1, 2]);
        assert_eq!(order.len(), 101);
    }

    proptest! {
        /// Each request must be fetched once, in queue order, and no queue may starve: a lost request would
        /// hang its client.
        #[test]
        fn each_comes_once_in_the_order_of_its_queue_and_none_is_passed_over(
            steps in proptest::collection::vec((0u16..5, any::<bool>()), 1..200),
        ) {
            let mut arbiter = Arbiter::default();
            let mut waiting: [VecDeque<u64>; 5] = Default::default();
            // Turns of other queues since a non-empty queue had its own.
            let mut passed = [0usize; 5];
            for (id, (queue, take)) in steps.into_iter().enumerate() {
                arbiter.push(queue, Request::read(id as u64, 0, 4096), Nanos::ZERO);
                waiting[usize::from(queue)].push_back(id as u64);
                if !take {
                    continue;
                }
                let next = arbiter.pop().expect("there is one").0.id;
                let from = waiting.iter().position(|ids| ids.front() == Some(&next));
                let from = from.expect("the first of its queue");
                waiting[from].pop_front();
                for queue in 0..5 {
                    let left = queue != from && !waiting[queue].is_empty();
                    passed[queue] = if left { passed[queue] + 1 } else { 0 };
                    prop_assert!(passed[queue] < 5);
                }
            }
            let left = std::iter::from_fn(|| arbiter.pop()).count();
            prop_assert_eq!(left, waiting.iter().map(VecDeque::len).sum::<usize>());
        }
    }
}
