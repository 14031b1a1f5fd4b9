//! Threads of sequential code against closed forms: if these fail, every twin that is built on them is wrong
//! by an amount that nobody sees.

use std::cell::RefCell;
use std::rc::Rc;

use crosspoint_sim::{
    HostModel, Layout, Lock, Machine, NullEngine, PageCache, Processors, Recency, Target, Threads,
    Waiters, run,
};
use device::{Completion, Device, EventQueue, Request, Stages};
use stats::{Recording, Timeline};
use units::{Nanos, Rate, Seed};
use workload::{Arrivals, ClientIndex, KvClient, KvOp, KvRole, OpClass, Spacing};

const RECORDS: u32 = 10_000;

/// Serves one request at a time, each for the same time.
struct OneServer {
    free: Nanos,
    done: EventQueue<u64>,
    service: Nanos,
}

impl Device for OneServer {
    fn submit(&mut self, now: Nanos, request: Request) {
        self.free = self.free.max(now) + self.service;
        self.done.push(self.free, request.id);
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

fn no_host() -> HostModel {
    HostModel::named("none").expect("it is known")
}

/// Lookups over `threads` threads; `resident` says whether everything is in memory.
fn lookups(
    (threads, rate): (u32, Option<Rate>),
    (hit, resident): (Nanos, bool),
    processors: Processors,
    seconds: u64,
) -> Recording {
    let second = Nanos::from_secs(1);
    let timeline = Timeline { warm_up: second, measure: second * seconds, interval: second };
    let service = Nanos::from_micros(10);
    let device = OneServer { free: Nanos::ZERO, done: EventQueue::default(), service };
    let engine = NullEngine {
        records: RECORDS,
        layout: Layout::Flat,
        clients: threads,
        hit,
        path: no_host(),
    };
    let frames = if resident { RECORDS } else { 1 };
    let mut cache = PageCache::new(RECORDS, frames, Recency::None);
    if resident {
        (0..RECORDS).for_each(|page| assert!(!cache.access(page)));
    }
    let target = engine.over(Machine::new(device, processors), cache);
    let arrivals = rate.map_or(Arrivals::CLOSED, |rate| Arrivals::open(Spacing::Poisson, rate));
    let role = |index| KvRole {
        arrivals: arrivals.clone(),
        place: ClientIndex { index, of: threads },
        ..KvRole::READER
    };
    let roles: Vec<KvRole> = (0..threads).map(role).collect();
    let clients = KvClient::all(&roles, u64::from(RECORDS), timeline.end(), Seed(5));
    run(target, clients, timeline)
}

fn mean(recording: &Recording) -> f64 {
    let total = recording.total(Some(OpClass::Read));
    total.counts.latency_sum.get() as f64 / total.counts.ops as f64
}

/// A queue that is shared fairly has a mean response time of `S / (1 - load)`, whatever the services
/// (Kleinrock 1967).
#[test]
fn one_processor_under_poisson_arrivals_waits_as_m_g_1_ps() {
    let service = Nanos::from_micros(100);
    let one = Processors { cores: 1, siblings: false };
    for load in [0.3, 0.6, 0.8] {
        let rate = Rate((load / service.as_secs_f64()) as u64);
        let found = mean(&lookups((400, Some(rate)), (service, true), one, 60));
        let exact = service.get() as f64 / (1.0 - load);
        assert!((found / exact - 1.0).abs() < 0.02, "{load}: {found} against {exact}");
    }
}

/// Everybody computes always: each gets its share of the processors, and Little's law holds.
#[test]
fn threads_that_only_compute_share_the_processors() {
    let hit = Nanos::from_micros(10);
    for (threads, cores, speed) in [(1, 4, 1.0), (4, 4, 1.0), (64, 4, 1.0 / 16.0)] {
        let processors = Processors { cores, siblings: false };
        let found = mean(&lookups((threads, None), (hit, true), processors, 2));
        assert!((found * speed / 10_000.0 - 1.0).abs() < 0.001, "{threads} threads: {found}");
    }
}

/// Nothing is resident: the device's one server is the limit, whatever the threads.
#[test]
fn what_is_not_resident_waits_for_the_device() {
    let processors = Processors { cores: 4, siblings: false };
    for threads in [1, 8] {
        let recording = lookups((threads, None), (Nanos::ZERO, false), processors, 2);
        let total = recording.total(Some(OpClass::Read));
        let rate = total.counts.ops as f64 / recording.seconds();
        // The page that was read last is the one that is resident.
        assert!((rate / 100_000.0 - 1.0).abs() < 0.002, "{threads} threads: {rate}");
        assert!((mean(&recording) / (10_000.0 * f64::from(threads)) - 1.0).abs() < 0.002);
    }
}

/// The same seed must give the same bytes: what cannot be repeated cannot be explained.
#[test]
fn another_run_is_the_same() {
    let processors = Processors { cores: 2, siblings: true };
    let one = || lookups((16, Some(Rate(50_000))), (Nanos(3_000), false), processors, 1);
    assert!(one().intervals == one().intervals);
}

/// A lock is a first-in, first-out server: threads that compute and then hold it for a fixed time acquire it
/// one at a time, in order of arrival.
#[test]
fn a_lock_serves_one_at_a_time_in_order() {
    let device = OneServer { free: Nanos::ZERO, done: EventQueue::default(), service: Nanos(1) };
    let machine = Machine::new(device, Processors { cores: 8, siblings: false });
    let lock = Rc::new(Lock::default());
    let order = Rc::new(RefCell::new(Vec::new()));
    let mut threads = Threads::<_, KvOp>::new(machine.clone());
    for number in 0..4u64 {
        let (machine, lock, order) = (machine.clone(), Rc::clone(&lock), Rc::clone(&order));
        threads.background(async move {
            machine.sleep(Nanos(10 * (4 - number))).await;
            for _ in 0..2 {
                let held = machine.lock(&lock).await;
                machine.compute(Nanos(100)).await;
                order.borrow_mut().push((number, machine.now().get()));
                drop(held);
            }
        });
    }
    while let Some(at) = threads.next_event() {
        assert!(threads.advance(at).is_none());
    }
    // The last came first; who comes back stands behind those that wait.
    let first = [(3, 110), (2, 210), (1, 310), (0, 410)];
    let again = [(3, 510), (2, 610), (1, 710), (0, 810)];
    assert_eq!(*order.borrow(), [first, again].concat());
}

/// A target that forgets an operation must not pass for a run in which nothing happened.
#[test]
#[should_panic(expected = "2 operations never ended")]
fn operations_that_are_forgotten_are_told() {
    let device = OneServer { free: Nanos::ZERO, done: EventQueue::default(), service: Nanos(1) };
    let machine = Machine::new(device, Processors { cores: 1, siblings: false });
    let never = Rc::new(Waiters::default());
    let mut threads = Threads::<_, KvOp>::new(machine);
    for _ in 0..2 {
        let never = Rc::clone(&never);
        threads.serve(|mut desk| async move {
            desk.next().await;
            desk.machine().wait_for(&never).await;
        });
    }
    let second = Nanos::from_secs(1);
    let timeline = Timeline { warm_up: Nanos::ZERO, measure: second, interval: second };
    let roles = vec![KvRole::READER; 2];
    let _ = run(threads, KvClient::all(&roles, 10, timeline.end(), Seed(1)), timeline);
}

/// Waiters continue when notified, in order of arrival, and for no other reason.
#[test]
fn waiters_go_on_when_they_are_notified() {
    let device = OneServer { free: Nanos::ZERO, done: EventQueue::default(), service: Nanos(1) };
    let machine = Machine::new(device, Processors { cores: 1, siblings: false });
    let (waiters, order) = (Rc::new(Waiters::default()), Rc::new(RefCell::new(Vec::new())));
    let mut threads = Threads::<_, KvOp>::new(machine.clone());
    for number in 0..3 {
        let (machine, waiters, order) = (machine.clone(), Rc::clone(&waiters), Rc::clone(&order));
        threads.background(async move {
            machine.wait_for(&waiters).await;
            order.borrow_mut().push((number, machine.now().get()));
        });
    }
    threads.background(async move {
        machine.sleep(Nanos(5)).await;
        assert!(machine.notify_one(&waiters));
        machine.sleep(Nanos(5)).await;
        assert!(machine.notify_all(&waiters));
        assert!(!machine.notify_all(&waiters), "nobody waits any more");
    });
    while let Some(at) = threads.next_event() {
        assert!(threads.advance(at).is_none());
    }
    assert_eq!(*order.borrow(), [(0, 5), (1, 10), (2, 10)]);
}
