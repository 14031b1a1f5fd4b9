//! A block device behind a host's submission path, as a target.
//!
//! Invariants: an operation at queue depth 1 takes exactly submission + device + wake-up + completion (for a
//! device whose times include submission: the longer of the first two terms instead of their sum); ties are
//! resolved in a fixed order (the device first, then host events in order of arrival). There is no page
//! cache: every operation reaches the device.

use device::{Completion, Device, Event, EventQueue, Request, StageTimes};
use units::{Nanos, Seed};
use workload::{BlockOp, OpClass};

use crate::cores::Cores;
use crate::{HostModel, Jitter};

/// The operation in this slot reaches the device.
const SUBMIT: u32 = 0;
/// The client sees the completion of this slot.
const VISIBLE: u32 = 1;

/// An operation in flight with its client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticket {
    /// Number of the client, from 0; each has its own thread.
    pub client: u32,
    /// Number of the operation among those in flight; small, and reused once it has ended.
    pub slot: u32,
}

/// A completed operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Done {
    pub slot: u32,
    /// When the client's thread had the result.
    pub at: Nanos,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    client: u32,
    op: BlockOp,
}

/// A device behind a submission path.
#[derive(Debug)]
pub struct BlockPath<D> {
    device: D,
    /// Time of the device's next event; `Nanos::MAX` if none.
    device_next: Nanos,
    host: HostModel,
    cores: Cores,
    events: EventQueue<Event>,
    /// `[client]`: when its last wake-up ends.
    awake: Vec<Nanos>,
    /// `[slot]`.
    slots: Vec<Slot>,
    completions: Vec<Completion>,
    jitter: Jitter,
    times: StageTimes,
}

impl<D: Device> BlockPath<D> {
    /// An idle device behind `host`, for this many client threads; `seed` determines the host's jitter.
    #[must_use]
    pub fn new(device: D, host: HostModel, threads: usize, seed: Seed) -> Self {
        Self {
            device_next: device.next_event().unwrap_or(Nanos::MAX),
            device,
            host,
            cores: Cores::new(threads, (host.cores, host.siblings)),
            events: EventQueue::default(),
            awake: vec![Nanos::ZERO; threads],
            slots: Vec::new(),
            completions: Vec::with_capacity(64),
            jitter: Jitter::new(host.jitter, seed),
            times: StageTimes::default(),
        }
    }

    /// Times of all requests that the device has completed.
    #[must_use]
    pub fn stage_times(&self) -> StageTimes {
        self.times
    }

    /// When the client sees a completion at `at`: immediately if its thread is running, with a wake-up that
    /// is already in progress, otherwise after a wake-up of its own.
    fn seen(&mut self, at: Nanos, slot: u32) -> Nanos {
        let client = self.slots[slot as usize].client;
        if self.cores.free_at(client) > at {
            return at;
        }
        if self.awake[client as usize] <= at {
            self.awake[client as usize] = at + self.host.wake + self.jitter.draw();
        }
        self.awake[client as usize]
    }

    fn reach(&mut self, now: Nanos, slot: u32) {
        let Slot { client, op } = self.slots[slot as usize];
        let id = u64::from(slot);
        let request = match op.class {
            OpClass::Read | OpClass::BackgroundRead => Request::read(id, op.offset, op.length),
            OpClass::Write | OpClass::BackgroundWrite => {
                Request { fua: op.dsync, ..Request::write(id, op.offset, op.length) }
            }
            // Block workloads have no other classes.
            _ => Request::flush(id),
        };
        // One submission queue per thread, as if on a CPU of its own; beyond 65,536 threads some share one.
        self.device.submit(now, request.by(client as u16));
        self.look();
    }

    #[inline]
    fn look(&mut self) {
        self.device_next = self.device.next_event().unwrap_or(Nanos::MAX);
    }

    /// The completion is visible; reaping it needs the client's thread.
    #[inline]
    fn visible(&mut self, now: Nanos, slot: u32) -> Option<Done> {
        let Slot { client, .. } = self.slots[slot as usize];
        let free = self.cores.free_at(client);
        if free > now && self.cores.shared() {
            // Cores go to whichever thread needs one now, so a busy thread asks again later.
            self.events.push(free, Event::new(VISIBLE, slot));
            return None;
        }
        let at = self.cores.compute(client, now, self.host.complete, now);
        if self.host.between > Nanos::ZERO {
            self.cores.compute(client, at, self.host.between, now);
        }
        Some(Done { slot, at })
    }

    /// Takes an operation that a client's thread issues at `now`, or as soon as that thread is free.
    #[inline]
    pub(crate) fn submit(&mut self, now: Nanos, ticket: Ticket, op: BlockOp) {
        let Ticket { client, slot } = ticket;
        let of = Slot { client, op };
        match self.slots.get_mut(slot as usize) {
            Some(there) => *there = of,
            None => self.slots.push(of),
        }
        let write = matches!(op.class, OpClass::Write | OpClass::BackgroundWrite);
        let takes = if write { self.host.submit_write } else { self.host.submit };
        let submitted = self.cores.compute(client, now, takes, now);
        // Delay by other work on the core is added by the host.
        let reaches = if self.host.contained { submitted.since(takes) } else { submitted };
        self.events.push(reaches.max(now), Event::new(SUBMIT, slot));
    }

    /// When the thread of `client` can issue its next operation; in the past if it can now.
    #[inline]
    pub(crate) fn free_at(&self, client: u32) -> Nanos {
        self.cores.free_at(client)
    }

    /// Time of the next internal event; `None` when idle.
    #[inline]
    pub(crate) fn next_event(&self) -> Option<Nanos> {
        let next = self.events.next_time().unwrap_or(Nanos::MAX).min(self.device_next);
        (next < Nanos::MAX).then_some(next)
    }

    /// Processes one event due at `now`, and returns the completion if it was one; called again as long as
    /// something is due. Simultaneous completions are returned one by one, so that each client can continue
    /// first.
    #[inline]
    pub(crate) fn advance(&mut self, now: Nanos) -> Option<Done> {
        if self.device_next <= now {
            let mut completions = std::mem::take(&mut self.completions);
            self.device.advance(now, &mut completions);
            for completion in completions.drain(..) {
                let slot = completion.id as u32;
                let row = match self.slots[slot as usize].op.class {
                    OpClass::Read | OpClass::BackgroundRead => 0,
                    OpClass::Write | OpClass::BackgroundWrite => 1,
                    _ => 2,
                };
                self.times.add(row, &completion.stages);
                let seen = self.seen(completion.at, slot);
                self.events.push(seen, Event::new(VISIBLE, slot));
            }
            self.completions = completions;
            self.look();
            return None;
        }
        let (at, event) = self.events.pop_due(now)?;
        match event.kind() {
            SUBMIT => {
                self.reach(at, event.of());
                None
            }
            _ => self.visible(at, event.of()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cores::SIBLING_BUSY_PERCENT;
    use crate::run as drive;
    use device::{EventQueue as Queue, Stages};
    use proptest::prelude::*;
    use stats::{Recording, Timeline};
    use units::Bytes;
    use workload::{Arrivals, Spacing};
    use workload::{BlockGroup, BlockPlan};

    /// Serves `servers` requests at once, `service` each.
    struct Fixed {
        free: Vec<Nanos>,
        service: Nanos,
        done: Queue<u64>,
        submitted: u64,
    }

    impl Device for Fixed {
        fn submit(&mut self, now: Nanos, request: Request) {
            let server = self.free.iter_mut().min().expect("a server");
            *server = (*server).max(now) + self.service;
            self.done.push(*server, request.id);
            self.submitted += 1;
        }
        fn next_event(&self) -> Option<Nanos> {
            self.done.next_time()
        }
        fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
            while let Some((at, id)) = self.done.pop_due(now) {
                done.push(Completion { id, at, stages: Stages::default() });
            }
        }
    }

    const NO_HOST: HostModel = HostModel {
        name: "none",
        submit: Nanos::ZERO,
        submit_write: Nanos::ZERO,
        wake: Nanos::ZERO,
        complete: Nanos::ZERO,
        between: Nanos::ZERO,
        jitter: Nanos::ZERO,
        cores: 0,
        siblings: true,
        contained: false,
        source: "test",
    };

    fn run(host: HostModel, servers: usize, depth: u32, threads: u32, seed: u64) -> Recording {
        let timeline = Timeline {
            warm_up: Nanos::from_millis(1),
            measure: Nanos::from_millis(10),
            interval: Nanos::from_millis(1),
        };
        let plan = BlockPlan {
            queue_depth: depth,
            ..BlockPlan::reads(4096, Bytes::mib(64), timeline.end())
        };
        let group = BlockGroup { clients: threads, ..BlockGroup::new(plan) };
        let clients = group.clients(Seed(seed));
        let device = Fixed {
            free: vec![Nanos::ZERO; servers],
            service: Nanos(10_000),
            done: Queue::default(),
            submitted: 0,
        };
        drive(BlockPath::new(device, host, clients.len(), Seed(seed)), clients, timeline)
    }

    /// Little's law at saturation: N in flight over one server of 10 us take N * 10 us each.
    #[test]
    fn a_saturated_server_follows_littles_law() {
        let total = run(NO_HOST, 1, 8, 1, 1).total(None);
        assert_eq!(total.counts.ops, 1000);
        assert_eq!(total.latency.value_at_quantile(0.5), total.latency.highest_equivalent(80_000));
    }

    #[test]
    fn a_thread_is_limited_by_its_cpu() {
        let host = HostModel { submit: Nanos(3_000), complete: Nanos(2_000), ..NO_HOST };
        let total = run(host, 64, 32, 1, 1).total(None);
        // 5 us of CPU per operation: 200k/s, 2000 in 10 ms.
        assert!((1_990..=2_010).contains(&total.counts.ops), "{}", total.counts.ops);
        let two = run(host, 64, 32, 2, 1).total(None);
        assert!((3_980..=4_020).contains(&two.counts.ops), "{}", two.counts.ops);
    }

    /// Threads of 5 us per operation on two cores: two have a core each, many share them and reach 1.3 times
    /// as much together (SMT).
    #[test]
    fn threads_share_the_cores_that_there_are() {
        let (submit, complete) = (Nanos(3_000), Nanos(2_000));
        // Without jitter, siblings would start and end simultaneously and never affect each other.
        let host = HostModel { submit, complete, cores: 2, jitter: Nanos(700), ..NO_HOST };
        let ops = |depth, threads| run(host, 64, depth, threads, 1).total(None).counts.ops;
        assert!((3_980..=4_020).contains(&ops(32, 2)), "{}", ops(32, 2));
        let shared = 4_000 * 200 / SIBLING_BUSY_PERCENT;
        // Bursts that reserved a core in advance leave gaps: about a tenth is lost.
        for threads in [32, 64] {
            let found = ops(1, threads);
            assert!((shared * 85 / 100..=shared).contains(&found), "{found}, at most {shared}");
        }
    }

    /// A thread that is running when a request completes must not pay for a wake-up: 12 us of submission with
    /// 10 us of device time in parallel give one operation per 12 us, whatever a wake-up takes.
    #[test]
    fn who_is_awake_is_not_woken() {
        let host = HostModel { submit: Nanos(12_000), wake: Nanos(30_000), ..NO_HOST };
        let ops = run(host, 64, 2, 1, 1).total(None).counts.ops;
        assert!((825..=840).contains(&ops), "{ops}");
        // A single request in flight sleeps each time.
        let ops = run(host, 64, 1, 1, 1).total(None).counts.ops;
        assert!((190..=194).contains(&ops), "{ops}");
    }

    /// If the measurement of a device includes submission, a lone operation takes the longer of the device's
    /// time and the thread's, and the thread still limits the rate.
    #[test]
    fn a_submission_within_the_devices_time_is_not_added_to_it() {
        let ops = |submit: u64, depth| {
            let host = HostModel { submit: Nanos(submit), contained: true, ..NO_HOST };
            run(host, 64, depth, 1, 1).total(None).counts.ops
        };
        assert_eq!(ops(4_000, 1), 1_000, "10 us of the device each");
        assert_eq!(ops(12_000, 1), 833, "12 us of the thread each");
        assert!((2_480..=2_520).contains(&ops(4_000, 16)), "{}", ops(4_000, 16));
    }

    /// Without SMT, two cores do the work of two threads, however many threads share them.
    #[test]
    fn cores_of_one_hardware_thread_slow_nobody_down() {
        let host = HostModel {
            submit: Nanos(3_000),
            complete: Nanos(2_000),
            cores: 2,
            siblings: false,
            jitter: Nanos(700),
            ..NO_HOST
        };
        let found = run(host, 64, 1, 32, 1).total(None).counts.ops;
        assert!((3_600..=4_000).contains(&found), "{found}");
    }

    /// Serves at once, but not while it is stalled.
    struct Stalled {
        from: Nanos,
        to: Nanos,
        done: Queue<u64>,
    }

    impl Device for Stalled {
        fn submit(&mut self, now: Nanos, request: Request) {
            let stalled = self.from <= now && now < self.to;
            let start = if stalled { self.to } else { now };
            self.done.push(start + Nanos(1_000), request.id);
        }
        fn next_event(&self) -> Option<Nanos> {
            self.done.next_time()
        }
        fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
            while let Some((at, id)) = self.done.pop_due(now) {
                done.push(Completion { id, at, stages: Stages::default() });
            }
        }
    }

    /// 1000 arrivals per second for 10 s across one stall of 1 s: a tenth are delayed, evenly from 1 s to
    /// nothing, so p99 of the response time is 0.9 s. The service time with one slot shows almost none of it;
    /// that is what tools without a schedule print (coordinated omission).
    #[test]
    fn a_stall_is_charged_to_every_request_that_was_due() {
        let second = Nanos::from_secs(1);
        let timeline = Timeline { warm_up: Nanos::ZERO, measure: second * 10, interval: second };
        let plan = BlockPlan {
            arrivals: Arrivals::open(Spacing::Constant, units::Rate(1000)),
            ..BlockPlan::reads(4096, Bytes::mib(64), timeline.end())
        };
        let clients = BlockGroup::new(plan).clients(Seed(1));
        let device = Stalled { from: second * 4, to: second * 5, done: Queue::default() };
        let recording = drive(BlockPath::new(device, NO_HOST, 1, Seed(1)), clients, timeline);
        let total = recording.total(None);
        assert_eq!((total.counts.ops, recording.missed_arrivals), (10_000, 0));
        let p99 = total.latency.value_at_quantile(0.99) as f64 / 1e9;
        assert!((p99 - 0.9).abs() < 0.003, "p99 {p99}");
        assert!(total.service.value_at_quantile(0.99) < 2_000);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        /// A lost or duplicated request would give a rate that no device reached.
        #[test]
        fn every_request_completes_once(seed: u64, depth in 1u32..20, threads in 1u32..4,
                                        servers in 1usize..5, jitter in 0u64..5_000) {
            let host = HostModel { jitter: Nanos(jitter), ..HostModel::io_uring() };
            let recording = run(host, servers, depth, threads, seed);
            let ops: u64 = recording.intervals.iter().map(|i| i.counts().ops).sum();
            // All operations in flight at the end complete: depth * threads more than were done by then.
            let drains = recording.intervals.iter().filter(|i| i.phase == stats::Phase::Drain);
            let drained: u64 = drains.map(|i| i.counts().ops).sum();
            prop_assert!(drained <= u64::from(depth * threads));
            prop_assert!(ops > 0);
            for interval in &recording.intervals {
                let latency = interval.tallies[OpClass::Read].latency.histogram();
                prop_assert!(latency.is_empty() || latency.min() >= 10_000);
            }
            let again = run(host, servers, depth, threads, seed);
            prop_assert!(recording.intervals == again.intervals, "another run differs");
        }
    }
}
