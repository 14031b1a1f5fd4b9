//! Block workloads: reads, writes and flushes, closed loop or open.
//!
//! Invariants: never more than `queue_depth` operations in flight; every operation lies inside the span and
//! on one device; nothing is issued after the end; a flush is issued when every earlier write of the client
//! has completed, and nothing is issued until it has. In an open loop an operation that finds no free slot is
//! issued late, with its intended time kept.

use std::collections::VecDeque;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Bytes, Nanos, Seed, Share};

use crate::arrivals::Schedule;
use crate::offsets::{Offsets, Sampler};
use crate::{
    Arrivals, ClientIndex, Issue, OpClass, OpId, Operation, Outcome, Sizes, Step, Until, Workload,
};

/// Position of the next block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pattern {
    /// Drawn again each time.
    Random(Offsets),
    /// Sequential, each client starting in its own part of the span.
    Sequential,
}

impl Pattern {
    /// Random, all blocks equally likely.
    pub const UNIFORM: Self = Self::Random(Offsets::Uniform);
}

/// One block operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockOp {
    /// Class of the operation.
    pub class: OpClass,
    /// First byte.
    pub offset: u64,
    /// Bytes; 0 for a flush.
    pub length: u32,
    /// A write that is on the medium when it ends (force unit access), as in a file opened with O_DSYNC.
    pub dsync: bool,
}

impl Operation for BlockOp {
    #[inline]
    fn class(&self) -> OpClass {
        self.class
    }
    #[inline]
    fn position(&self) -> u64 {
        self.offset
    }
}

/// The plan of every client of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockPlan {
    /// Positions of blocks.
    pub pattern: Pattern,
    /// Share of operations that read; the rest write.
    pub read_share: Share,
    /// Bytes per operation.
    pub sizes: Sizes,
    /// Offsets are multiples of this.
    pub alignment: Bytes,
    /// Bytes that are addressed, of all devices together.
    pub span: Bytes,
    /// Number of devices, each with an equal consecutive part of the span; at least 1.
    pub devices: u32,
    /// Maximum operations in flight per client.
    pub queue_depth: u32,
    /// When operations are due.
    pub arrivals: Arrivals,
    /// Flush after this many writes of a client; 0: never.
    pub sync_every: u32,
    /// Each write is on the medium when it ends.
    pub dsync: bool,
    /// Recorded separately, as background load.
    pub background: bool,
    /// Each client keeps to its own part of the span, with at most one operation in flight per block, so that
    /// the expected data of a read are known.
    pub exclusive: bool,
    /// Operations of all clients together after which they end; flushes do not count.
    pub operations: Option<u64>,
    /// When the trial ends.
    pub until: Until,
}

impl BlockPlan {
    /// Uniform random reads of one size in a closed loop at queue depth 1, to be changed as needed.
    #[must_use]
    pub fn reads(size: u32, span: Bytes, until: impl Into<Until>) -> Self {
        Self {
            pattern: Pattern::UNIFORM,
            read_share: Share::ALL,
            sizes: Sizes::one(size),
            alignment: Bytes(u64::from(size)),
            span,
            devices: 1,
            queue_depth: 1,
            arrivals: Arrivals::CLOSED,
            sync_every: 0,
            dsync: false,
            background: false,
            exclusive: false,
            operations: None,
            until: until.into(),
        }
    }

    /// The classes of operations that its clients issue.
    #[must_use]
    pub fn classes(&self) -> Vec<OpClass> {
        let mut classes = Vec::with_capacity(3);
        let mut add = |class: OpClass| classes.push(class.beside(self.background));
        if self.read_share > Share::NONE {
            add(OpClass::Read);
        }
        if self.read_share < Share::ALL {
            add(OpClass::Write);
            if self.sync_every > 0 {
                add(OpClass::Sync);
            }
        }
        classes
    }

    /// Bytes of each device.
    fn device_bytes(&self) -> u64 {
        self.span.get() / u64::from(self.devices.max(1))
    }

    /// Positions on all devices that fit an operation of the largest size.
    #[must_use]
    pub fn sites(&self) -> u64 {
        self.sites_a_device().saturating_mul(u64::from(self.devices.max(1)))
    }

    /// Positions on one device that fit an operation of the largest size.
    fn sites_a_device(&self) -> u64 {
        let room = self.device_bytes().checked_sub(u64::from(self.sizes.largest()));
        room.map_or(0, |room| room / self.alignment.get().max(1) + 1)
    }
}

/// Redraws of a block with an operation in flight before waiting for a completion.
const REDRAWS: u32 = 64;
/// No block: a slot without an operation, or with a flush.
const NOWHERE: u64 = u64::MAX;

/// One client, made from (plan, seed, client).
#[derive(Debug, Clone)]
pub struct BlockClient {
    plan: BlockPlan,
    sampler: Sampler,
    /// First site that this client may draw; the sampler counts from there.
    first_site: u64,
    sites_a_device: u64,
    /// Sequential: start of the next operation, and the bounds within which it wraps.
    cursor: u64,
    bounds: (u64, u64),
    /// A random word below this reads; `None` when every operation reads.
    read_below: Option<u64>,
    /// Free slots, and when they may be used; in order of that time.
    free: VecDeque<(Nanos, OpId)>,
    /// `[slot]`: block of its operation; only in exclusive plans.
    busy: Vec<u64>,
    think: Nanos,
    schedule: Option<Schedule>,
    /// Operations until the client is finished.
    left: u64,
    writes_since_sync: u32,
    syncing: Option<OpId>,
    random: Xoshiro256PlusPlus,
}

impl BlockClient {
    /// A client of `plan`.
    ///
    /// # Panics
    /// If no operation fits the span, or the queue depth is 0; study validation refuses such plans.
    #[must_use]
    pub fn new(plan: BlockPlan, seed: Seed, client: ClientIndex) -> Self {
        let sites_a_device = plan.sites_a_device();
        let sites = plan.sites();
        assert!(sites > 0 && plan.queue_depth > 0 && client.of > 0, "plan without work");
        let seed = seed.derive("block-client", u64::from(client.index));
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed.0);
        let (first, after) = client.part(sites);
        let (first_site, own) =
            if plan.exclusive { (first, (after - first).max(1)) } else { (0, sites) };
        let offsets = match plan.pattern {
            Pattern::Random(offsets) => offsets,
            Pattern::Sequential => Offsets::Uniform,
        };
        let think = match plan.arrivals {
            Arrivals::Closed { think } => think,
            Arrivals::Open(_) => Nanos::ZERO,
        };
        let depth = plan.queue_depth;
        let (from, until) = client.part(plan.operations.unwrap_or(u64::MAX));
        let mut made = Self {
            sampler: Sampler::new(offsets, own),
            first_site,
            sites_a_device,
            cursor: 0,
            bounds: (0, plan.span.get()),
            read_below: (plan.read_share != Share::ALL)
                .then(|| (plan.read_share.fraction() * 2f64.powi(64)) as u64),
            free: (0..depth).map(|id| (Nanos::ZERO, OpId(id))).collect(),
            busy: if plan.exclusive { vec![NOWHERE; depth as usize] } else { Vec::new() },
            think,
            schedule: Schedule::new(&plan.arrivals, client, &mut random),
            left: if plan.operations.is_some() { until - from } else { u64::MAX },
            writes_since_sync: 0,
            syncing: None,
            random,
            plan,
        };
        made.cursor = made.offset_of(first);
        if made.plan.exclusive {
            let last = made.offset_of(first_site + own - 1);
            made.bounds = (made.cursor, last + u64::from(made.plan.sizes.largest()));
        }
        made
    }

    fn offset_of(&self, site: u64) -> u64 {
        let alignment = self.plan.alignment.get();
        if self.plan.devices <= 1 {
            return site * alignment;
        }
        let (device, site) = (site / self.sites_a_device, site % self.sites_a_device);
        device * self.plan.device_bytes() + site * alignment
    }

    /// The place of an operation of `length` bytes.
    fn place(&mut self, length: u32) -> u64 {
        if matches!(self.plan.pattern, Pattern::Random(_)) {
            let site = self.sampler.draw(&mut self.random);
            return self.offset_of(self.first_site + site);
        }
        let (start, end) = self.bounds;
        let device = self.plan.device_bytes();
        let length = u64::from(length);
        let mut offset = self.cursor;
        if offset % device + length > device {
            offset = (offset / device + 1) * device;
        }
        if offset + length > end {
            offset = start;
        }
        let next_device = (offset / device + 1) * device;
        let next = offset + length.next_multiple_of(self.plan.alignment.get().max(1));
        let next = next.min(next_device);
        self.cursor = if next >= end { start } else { next };
        offset
    }

    /// The next read or write; `None` when every drawn block has an operation in flight.
    fn next_op(&mut self) -> Option<BlockOp> {
        let length = self.plan.sizes.draw(&mut self.random);
        let mut offset = self.place(length);
        if self.plan.exclusive {
            let mut redraws = 0;
            while self.busy.contains(&offset) {
                if redraws == REDRAWS {
                    return None;
                }
                redraws += 1;
                offset = self.place(length);
            }
        }
        let class = match self.read_below {
            Some(bound) if self.random.next_u64() >= bound => OpClass::Write,
            _ => OpClass::Read,
        };
        Some(BlockOp { class, offset, length, dsync: self.plan.dsync && class == OpClass::Write })
    }

    fn in_flight(&self) -> bool {
        self.free.len() < self.plan.queue_depth as usize
    }

    /// Issues a due flush as soon as nothing is in flight.
    fn sync_step(&mut self, now: Nanos) -> Step<BlockOp> {
        if self.in_flight() {
            return Step::WaitCompletion;
        }
        let Some((_, id)) = self.free.pop_front() else { return Step::WaitCompletion };
        self.writes_since_sync = 0;
        self.syncing = Some(id);
        let class = OpClass::Sync.beside(self.plan.background);
        Step::Issue(Issue {
            id,
            op: BlockOp { class, offset: 0, length: 0, dsync: false },
            intended: now,
        })
    }
}

impl Workload for BlockClient {
    type Op = BlockOp;

    fn next(&mut self, now: Nanos) -> Step<BlockOp> {
        let scheduled = self.schedule.as_ref().map_or(now, Schedule::next);
        if self.plan.until.is_over(now, scheduled) || self.left == 0 {
            return if self.in_flight() { Step::WaitCompletion } else { Step::Finished };
        }
        if self.plan.sync_every > 0 {
            if self.syncing.is_some() {
                return Step::WaitCompletion;
            }
            if self.writes_since_sync >= self.plan.sync_every {
                return self.sync_step(now);
            }
        }
        let Some(&(ready, id)) = self.free.front() else { return Step::WaitCompletion };
        let due = self.schedule.as_ref().map_or(ready, Schedule::next);
        if due > now {
            return Step::WaitUntil(due.min(self.plan.until.due));
        }
        let Some(mut op) = self.next_op() else { return Step::WaitCompletion };
        self.free.pop_front();
        self.left -= 1;
        if op.class == OpClass::Write {
            self.writes_since_sync += 1;
        }
        if let Some(busy) = self.busy.get_mut(id.0 as usize) {
            *busy = op.offset;
        }
        op.class = op.class.beside(self.plan.background);
        let intended = match &mut self.schedule {
            // Late or not, response time counts from here.
            Some(schedule) => {
                schedule.advance(&mut self.random);
                due
            }
            None => now,
        };
        Step::Issue(Issue { id, op, intended })
    }

    fn missed(&mut self, until: Nanos) -> u64 {
        let end = self.plan.until.due.min(until);
        match &self.schedule {
            Some(schedule) => schedule.missed(end, &mut self.random).min(self.left),
            _ => 0,
        }
    }

    fn completed(&mut self, id: OpId, _outcome: Outcome, now: Nanos) {
        debug_assert!(self.in_flight(), "completed twice");
        if self.syncing == Some(id) {
            self.syncing = None;
        }
        if let Some(busy) = self.busy.get_mut(id.0 as usize) {
            *busy = NOWHERE;
        }
        self.free.push_back((now + self.think, id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plan(read_share: &str, queue_depth: u32) -> BlockPlan {
        BlockPlan {
            read_share: read_share.parse().unwrap(),
            queue_depth,
            ..BlockPlan::reads(4096, Bytes::mib(8), Nanos::from_secs(1))
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
                pattern: if sequential { Pattern::Sequential } else { Pattern::UNIFORM },
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
        let arrivals = Arrivals::open(crate::Spacing::Constant, units::Rate(1000));
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
        assert_eq!(client.missed(Nanos::MAX), 997);
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

    proptest! {
        /// With several devices an operation across a border would fail or hit the wrong device.
        #[test]
        fn operations_stay_on_one_device(seed: u64, devices in 1u32..5, sequential: bool,
                                         align in 1u64..9) {
            let device = 1_000_000u64;
            let plan = BlockPlan {
                pattern: if sequential { Pattern::Sequential } else { Pattern::UNIFORM },
                sizes: Sizes::mix(&[(1536, 1.0), (131_072, 0.2)]),
                alignment: Bytes(align * 512),
                devices,
                span: Bytes(device * u64::from(devices)),
                ..plan("50%", 1)
            };
            let mut client = BlockClient::new(plan, Seed(seed), ONLY);
            for op in take(&mut client, 300) {
                let last = op.offset + u64::from(op.length) - 1;
                prop_assert_eq!(op.offset / device, last / device);
                prop_assert_eq!(op.offset % device % (align * 512), 0);
                prop_assert!(last < device * u64::from(devices));
            }
        }

        /// Verification knows the expected data only if no other operation is on the block.
        #[test]
        fn exclusive_clients_never_meet(seed: u64, sequential: bool, depth in 1u32..9) {
            let plan = BlockPlan {
                pattern: if sequential { Pattern::Sequential } else { Pattern::UNIFORM },
                span: Bytes(40 * 4096),
                exclusive: true,
                ..plan("50%", depth)
            };
            let mut seen = Vec::new();
            for index in 0..3 {
                let index = ClientIndex { index, of: 3 };
                let mut client = BlockClient::new(plan.clone(), Seed(seed), index);
                let mut flying: Vec<(OpId, u64)> = Vec::new();
                let mut own = Vec::new();
                for _ in 0..200 {
                    match client.next(Nanos::ZERO) {
                        Step::Issue(issue) => {
                            let offset = issue.op.offset;
                            prop_assert!(flying.iter().all(|(_, other)| *other != offset));
                            prop_assert!(offset + 4096 <= 40 * 4096);
                            flying.push((issue.id, offset));
                            own.push(offset);
                        }
                        _ => {
                            let (id, _) = flying.remove(0);
                            client.completed(id, Outcome::Done, Nanos::ZERO);
                        }
                    }
                }
                prop_assert!(own.iter().all(|offset| !seen.contains(offset)));
                seen.extend(own);
            }
        }
    }

    /// A flush that overtakes its writes would acknowledge data that is not durable.
    #[test]
    fn a_flush_waits_for_its_writes_and_holds_the_next() {
        let mut client =
            BlockClient::new(BlockPlan { sync_every: 2, ..plan("0%", 4) }, Seed(1), ONLY);
        let issue = |client: &mut BlockClient| match client.next(Nanos::ZERO) {
            Step::Issue(issue) => Some(issue),
            _ => None,
        };
        let (first, second) = (issue(&mut client).unwrap(), issue(&mut client).unwrap());
        assert!(issue(&mut client).is_none(), "two writes are due a flush");
        client.completed(first.id, Outcome::Done, Nanos::ZERO);
        assert!(issue(&mut client).is_none(), "one write is still in flight");
        client.completed(second.id, Outcome::Done, Nanos::ZERO);
        let flush = issue(&mut client).unwrap();
        assert_eq!((flush.op.class, flush.op.length), (OpClass::Sync, 0));
        assert!(issue(&mut client).is_none(), "nothing next to a flush");
        client.completed(flush.id, Outcome::Done, Nanos::ZERO);
        assert_eq!(issue(&mut client).unwrap().op.class, OpClass::Write);
    }

    #[test]
    fn a_number_of_operations_is_done_and_no_more() {
        let mut done = 0;
        for index in 0..3 {
            let plan = BlockPlan { operations: Some(100), ..plan("50%", 2) };
            let mut client = BlockClient::new(plan, Seed(1), ClientIndex { index, of: 3 });
            while let Step::Issue(issue) = client.next(Nanos::ZERO) {
                client.completed(issue.id, Outcome::Done, Nanos::ZERO);
                done += 1;
            }
            assert_eq!(client.next(Nanos::ZERO), Step::Finished);
        }
        assert_eq!(done, 100);
    }

    #[test]
    fn what_goes_on_beside_is_recorded_apart() {
        let plan = BlockPlan { background: true, sync_every: 1, ..plan("50%", 1) };
        let classes = plan.classes();
        assert_eq!(
            classes,
            [OpClass::BackgroundRead, OpClass::BackgroundWrite, OpClass::BackgroundSync]
        );
        let ops = take(&mut BlockClient::new(plan, Seed(1), ONLY), 50);
        assert!(ops.iter().all(|op| classes.contains(&op.class)));
    }
}
