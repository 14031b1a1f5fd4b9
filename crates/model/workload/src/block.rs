//! Block workloads: random or sequential reads and writes, closed loop or open.
//!
//! Invariants: never more than `queue_depth` operations in flight; every offset is a multiple of
//! the block size and inside the span; no operation is issued at or after `end`. In an open loop an
//! operation that finds no room is issued late, with its intended time kept.
//! What it is not: a driver.

use std::collections::VecDeque;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Bytes, Nanos, Seed, Share};

use crate::arrivals::Schedule;
use crate::{Arrivals, Issue, OpClass, OpId, Outcome, Step, Workload};

/// Where the next block lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// Uniformly anywhere in the span.
    Random,
    /// The block after the last one, each client in its own part of the span.
    Sequential,
}

/// One block operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockOp {
    /// Read or write.
    pub class: OpClass,
    /// First byte, a multiple of `length`.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
}

/// What every client of a block trial does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockPlan {
    /// Random or sequential.
    pub pattern: Pattern,
    /// Share of operations that read; the rest write.
    pub read_share: Share,
    /// Bytes an operation.
    pub block_size: Bytes,
    /// Bytes of the target that are addressed, from its start.
    pub span: Bytes,
    /// Operations each client keeps in flight at most.
    pub queue_depth: u32,
    /// When operations are due.
    pub arrivals: Arrivals,
    /// No operation is issued from this instant on.
    pub end: Nanos,
}

/// Which client of how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientIndex {
    /// From 0.
    pub index: u32,
    /// Number of clients, at least 1.
    pub of: u32,
}

/// One client. Made from (plan, seed, client).
#[derive(Debug, Clone)]
pub struct BlockClient {
    plan: BlockPlan,
    blocks: u64,
    next_block: u64,
    /// A random word below this reads; `None` when every operation reads.
    read_below: Option<u64>,
    /// Slots without an operation, and from when on they may have one; in order of that time.
    free: VecDeque<(Nanos, OpId)>,
    think: Nanos,
    schedule: Option<Schedule>,
    random: Xoshiro256PlusPlus,
}

impl BlockClient {
    /// A client of `plan`.
    ///
    /// # Panics
    /// If the span holds no block, the block does not fit 32 bits, or the queue depth is 0; study
    /// validation refuses such plans.
    #[must_use]
    pub fn new(plan: BlockPlan, seed: Seed, client: ClientIndex) -> Self {
        let blocks = plan.span.get() / plan.block_size.get().max(1);
        assert!(blocks > 0 && plan.queue_depth > 0 && client.of > 0, "plan without work");
        assert!(u32::try_from(plan.block_size.get()).is_ok(), "block larger than 4 GiB");
        let seed = seed.derive("block-client", u64::from(client.index));
        let start = u128::from(blocks) * u128::from(client.index) / u128::from(client.of);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed.0);
        let think = match plan.arrivals {
            Arrivals::Closed { think } => think,
            Arrivals::Constant(_) | Arrivals::Poisson(_) => Nanos::ZERO,
        };
        Self {
            plan,
            blocks,
            next_block: u64::try_from(start).unwrap_or(0),
            read_below: (plan.read_share != Share::ALL)
                .then(|| (plan.read_share.fraction() * 2f64.powi(64)) as u64),
            free: (0..plan.queue_depth).map(|id| (Nanos::ZERO, OpId(id))).collect(),
            think,
            schedule: Schedule::new(plan.arrivals, client, &mut random),
            random,
        }
    }

    fn next_op(&mut self) -> BlockOp {
        let block = match self.plan.pattern {
            // Lemire's multiply-shift: unbiased to 2^-64 * blocks, without a division.
            Pattern::Random => {
                ((u128::from(self.random.next_u64()) * u128::from(self.blocks)) >> 64) as u64
            }
            Pattern::Sequential => {
                let block = self.next_block;
                self.next_block = if block + 1 == self.blocks { 0 } else { block + 1 };
                block
            }
        };
        let class = match self.read_below {
            Some(bound) if self.random.next_u64() >= bound => OpClass::Write,
            _ => OpClass::Read,
        };
        let length = self.plan.block_size.get() as u32;
        BlockOp { class, offset: block * u64::from(length), length }
    }
}

impl Workload for BlockClient {
    type Op = BlockOp;

    fn next(&mut self, now: Nanos) -> Step<BlockOp> {
        if now >= self.plan.end {
            return if self.free.len() == self.plan.queue_depth as usize {
                Step::Finished
            } else {
                Step::WaitCompletion
            };
        }
        let Some(&(ready, id)) = self.free.front() else { return Step::WaitCompletion };
        let due = self.schedule.as_ref().map_or(ready, Schedule::next);
        if due > now {
            return Step::WaitUntil(due.min(self.plan.end));
        }
        self.free.pop_front();
        let intended = match &mut self.schedule {
            // Late or not, response time counts from here.
            Some(schedule) => {
                schedule.advance(&mut self.random);
                due
            }
            None => now,
        };
        Step::Issue(Issue { id, op: self.next_op(), intended })
    }

    fn missed(&mut self) -> u64 {
        match &self.schedule {
            Some(schedule) => schedule.missed(self.plan.end, &mut self.random),
            None => 0,
        }
    }

    fn completed(&mut self, id: OpId, _outcome: Outcome, now: Nanos) {
        debug_assert!(self.free.len() < self.plan.queue_depth as usize, "completed twice");
        self.free.push_back((now + self.think, id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plan(read_share: &str, queue_depth: u32) -> BlockPlan {
        BlockPlan {
            pattern: Pattern::Random,
            read_share: read_share.parse().unwrap(),
            block_size: Bytes(4096),
            span: Bytes::mib(8),
            queue_depth,
            arrivals: Arrivals::Closed { think: Nanos::ZERO },
            end: Nanos::from_secs(1),
        }
    }

    const ONLY: ClientIndex = ClientIndex { index: 0, of: 1 };

    fn take(client: &mut BlockClient, count: usize) -> Vec<BlockOp> {
        (0..count)
            .map(|_| match client.next(Nanos::ZERO) {
                Step::Issue(issue) => {
                    client.completed(issue.id, Outcome::Done, Nanos::ZERO);
                    issue.op
                }
                other => panic!("expected an operation, got {other:?}"),
            })
            .collect()
    }

    proptest! {
        /// An operation outside the span would overwrite what the user did not name.
        #[test]
        fn operations_stay_inside_the_span(seed: u64, blocks in 1u64..5000, sequential: bool) {
            let plan = BlockPlan {
                pattern: if sequential { Pattern::Sequential } else { Pattern::Random },
                span: Bytes(blocks * 4096 + 17),
                ..plan("50%", 3)
            };
            let client = ClientIndex { index: 2, of: 3 };
            let mut client = BlockClient::new(plan, Seed(seed), client);
            for op in take(&mut client, 200) {
                prop_assert_eq!(op.offset % 4096, 0);
                prop_assert!(op.offset + u64::from(op.length) <= blocks * 4096);
            }
        }

        /// More in flight than asked would measure another queue depth than the one reported.
        #[test]
        fn queue_depth_is_never_exceeded(seed: u64, depth in 1u32..64) {
            let mut client = BlockClient::new(plan("50%", depth), Seed(seed), ONLY);
            let mut issued = 0;
            while let Step::Issue(_) = client.next(Nanos::ZERO) { issued += 1; }
            prop_assert_eq!(issued, depth);
        }
    }

    #[test]
    fn the_mix_is_the_asked_share() {
        let mut client = BlockClient::new(plan("70%", 1), Seed(9), ONLY);
        let ops = take(&mut client, 100_000);
        let reads = ops.iter().filter(|op| op.class == OpClass::Read).count();
        assert!((69_000..71_000).contains(&reads), "{reads}");
        let all_reads = take(&mut BlockClient::new(plan("100%", 1), Seed(9), ONLY), 1000);
        assert!(all_reads.iter().all(|op| op.class == OpClass::Read));
        let no_reads = take(&mut BlockClient::new(plan("0%", 1), Seed(9), ONLY), 1000);
        assert!(no_reads.iter().all(|op| op.class == OpClass::Write));
    }

    #[test]
    fn sequential_clients_start_apart_and_wrap() {
        let plan = BlockPlan { pattern: Pattern::Sequential, ..plan("100%", 1) };
        let mut second = BlockClient::new(plan, Seed(1), ClientIndex { index: 1, of: 2 });
        let ops = take(&mut second, 1025);
        assert_eq!(ops[0].offset, 4 << 20);
        assert_eq!(ops[1024].offset, 0);
    }

    /// The backlog of a stalled device must be issued with the times at which it was due.
    #[test]
    fn an_open_loop_keeps_its_schedule_through_a_stall() {
        let arrivals = Arrivals::Constant(units::Rate(1000));
        let mut client = BlockClient::new(BlockPlan { arrivals, ..plan("100%", 2) }, Seed(1), ONLY);
        let Step::Issue(first) = client.next(Nanos::ZERO) else { panic!("no operation") };
        assert_eq!(client.next(Nanos::ZERO), Step::WaitUntil(Nanos::from_millis(1)));
        let Step::Issue(second) = client.next(Nanos::from_millis(1)) else { panic!("none") };
        let late = Nanos::from_millis(500);
        assert_eq!(client.next(late), Step::WaitCompletion);
        client.completed(first.id, Outcome::Done, late);
        let Step::Issue(third) = client.next(late) else { panic!("no operation") };
        assert_eq!(third.intended, Nanos::from_millis(2));
        for id in [second.id, third.id] {
            client.completed(id, Outcome::Done, Nanos::from_secs(1));
        }
        assert_eq!(client.next(Nanos::from_secs(1)), Step::Finished);
        // 1000 were due in the second, 3 were issued.
        assert_eq!(client.missed(), 997);
    }

    #[test]
    fn think_time_keeps_a_slot_back() {
        let think = Nanos::from_millis(3);
        let arrivals = Arrivals::Closed { think };
        let mut client = BlockClient::new(BlockPlan { arrivals, ..plan("100%", 1) }, Seed(1), ONLY);
        let Step::Issue(first) = client.next(Nanos::ZERO) else { panic!("no operation") };
        client.completed(first.id, Outcome::Done, Nanos::from_millis(1));
        assert_eq!(client.next(Nanos::from_millis(1)), Step::WaitUntil(Nanos::from_millis(4)));
        assert!(matches!(client.next(Nanos::from_millis(4)), Step::Issue(_)));
    }

    #[test]
    fn at_the_end_it_waits_for_what_is_in_flight() {
        let mut client = BlockClient::new(plan("100%", 2), Seed(1), ONLY);
        let Step::Issue(issue) = client.next(Nanos::ZERO) else { panic!("no operation") };
        let end = Nanos::from_secs(1);
        assert_eq!(client.next(end), Step::WaitCompletion);
        client.completed(issue.id, Outcome::Done, end);
        assert_eq!(client.next(end), Step::Finished);
    }
}
