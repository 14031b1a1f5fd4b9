//! Stalls and overload at the ends of a trial, compared with what every arrival must have waited: if a stall
//! across the end vanished, a drive that freezes would look fast.

use crosspoint_sim::{BlockPath, HostModel, run};
use device::{Completion, Device, EventQueue, Request, Stages};
use stats::{Recording, Timeline, estimate::percentile};
use units::{Bytes, Nanos, Rate, Seed};
use workload::{Arrivals, BlockGroup, BlockPlan, Spacing, Until};

/// Serves one request at a time and stops for one period.
struct Freezing {
    service: Nanos,
    frozen: (Nanos, Nanos),
    free: Nanos,
    done: EventQueue<u64>,
}

impl Device for Freezing {
    fn submit(&mut self, now: Nanos, request: Request) {
        let mut end = self.free.max(now) + self.service;
        let (from, until) = self.frozen;
        if end > from && self.free.max(now) < until {
            end = until.max(now) + self.service;
        }
        self.free = end;
        self.done.push(end, request.id);
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

fn ms(value: u64) -> Nanos {
    Nanos::from_millis(value)
}

/// A trial of 10 s after `warm_up`, over a device that takes `service` and is frozen in `frozen`.
fn trial(
    warm_up: Nanos,
    (service, frozen): (Nanos, (Nanos, Nanos)),
    (arrivals, depth): (Arrivals, u32),
) -> Recording {
    let timeline = Timeline { warm_up, measure: Nanos::from_secs(10), interval: ms(100) };
    let until: Until = if arrivals.is_open() { timeline.until() } else { timeline.end().into() };
    let plan =
        BlockPlan { arrivals, queue_depth: depth, ..BlockPlan::reads(4096, Bytes::mib(64), until) };
    let device = Freezing { service, frozen, free: Nanos::ZERO, done: EventQueue::default() };
    let host = HostModel::named("none").expect("it is known");
    let target = BlockPath::new(device, host, 1, Seed(1));
    run(target, BlockGroup::new(plan).clients(Seed(1)), timeline)
}

fn at(recording: &Recording, p: f64) -> f64 {
    let total = recording.total(None);
    let found = percentile(&total.latency, total.missed, p).expect("enough operations");
    assert!(!found.at_least, "everything ended");
    found.value / 1e9
}

fn scheduled() -> (Arrivals, u32) {
    (Arrivals::open(Spacing::Constant, Rate(1000)), 1)
}

fn near(found: f64, right: f64) {
    println!("{found:.3} s, right: {right:.3} s");
    assert!((found / right - 1.0).abs() < 0.10, "{found} s for {right} s");
}

/// A stall of 2.5 s from 9.0 s of 10 s, 1000 arrivals per second: those of the last second wait 2.5 to 1.5 s.
/// Of 10,000 the 10th longest waits 2.49 s, the 100th 2.40 s. Counting only what completes in time, p99.9
/// would be the service time.
#[test]
fn a_stall_across_the_end_counts_for_all_that_was_due() {
    let frozen = (ms(9_000), ms(11_500));
    let recording = trial(Nanos::ZERO, (Nanos(100_000), frozen), scheduled());
    near(at(&recording, 99.9), 2.49);
    near(at(&recording, 99.0), 2.41);
    assert_eq!((recording.missed_arrivals, recording.total(None).due.ops), (0, 10_000));
    assert!(recording.total(None).counts.ops <= 9_010, "the rate is of what ended in time");
}

/// Twice the capacity: the last arrival of 10 s waits for 10 s.
#[test]
fn overload_waits_as_long_as_the_backlog() {
    let never = (Nanos::MAX, Nanos::MAX);
    let recording = trial(Nanos::ZERO, (ms(2), never), scheduled());
    near(at(&recording, 99.0), 9.9);
    near(at(&recording, 50.0), 5.0);
}

/// A closed loop counts what is in flight at the end: 16 operations, 4 s.
#[test]
fn a_closed_loop_counts_what_is_in_flight_at_the_end() {
    let frozen = (ms(8_000), ms(12_000));
    let recording = trial(Nanos::ZERO, (ms(1), frozen), (Arrivals::CLOSED, 16));
    let total = recording.total(None);
    near(total.latency.max() as f64 / 1e9, 4.0);
    let stalled = total.latency.len() - total.latency.count_between(0, 1_000_000_000);
    assert_eq!(stalled, 16);
}

/// Arrivals during warm-up must not count in the latencies, even if they complete later: a stall of 1 s over
/// the end of the warm-up leaves at most 0.1 s for arrivals after that end.
#[test]
fn a_stall_of_the_warm_up_stays_there() {
    let frozen = (ms(1_100), ms(2_100));
    let recording = trial(ms(2_000), (Nanos(100_000), frozen), scheduled());
    assert!(!recording.carried.is_empty());
    // 100 of 10,000 arrivals wait 0.1 s or less, plus 0.1 s for the backlog of 1000.
    near(at(&recording, 99.9), 0.19);
    assert_eq!(recording.total(None).due.ops, 10_000);
}

/// Arrivals that are never issued must be reported as a lower bound.
#[test]
fn what_never_ends_is_at_least() {
    let never_again = (ms(5_000), Nanos::from_secs(3600));
    let recording = trial(Nanos::ZERO, (Nanos(100_000), never_again), scheduled());
    let total = recording.total(None);
    assert!(total.missed >= 4_990, "{}", total.missed);
    let p99 = percentile(&total.latency, total.missed, 99.0).expect("enough operations");
    assert!(p99.at_least);
    let median = percentile(&total.latency, total.missed, 40.0).expect("enough operations");
    assert!(!median.at_least && median.value < 1e6);
}

/// The result must depend on nothing but the seed.
#[test]
fn another_run_is_the_same() {
    let poisson = Arrivals::open(Spacing::Poisson, Rate(5_000));
    let [one, other] = [(); 2]
        .map(|()| trial(ms(100), (Nanos(150_000), (ms(500), ms(520))), (poisson.clone(), 4)));
    assert_eq!(one.intervals.len(), other.intervals.len());
    assert!(one.intervals == other.intervals, "another run differs");
}

/// Loses every request.
struct Losing;

impl Device for Losing {
    fn submit(&mut self, _: Nanos, _: Request) {}

    fn next_event(&self) -> Option<Nanos> {
        None
    }

    fn advance(&mut self, _: Nanos, _: &mut Vec<Completion>) {}
}

/// A device that loses an operation must be detected.
#[test]
#[should_panic(expected = "2 operations never ended")]
fn lost_operations_are_found() {
    let timeline = Timeline { warm_up: Nanos::ZERO, measure: ms(10), interval: ms(10) };
    let plan =
        BlockPlan { queue_depth: 2, ..BlockPlan::reads(4096, Bytes::mib(64), timeline.end()) };
    let host = HostModel::named("none").expect("it is known");
    let target = BlockPath::new(Losing, host, 1, Seed(1));
    let _ = run(target, BlockGroup::new(plan).clients(Seed(1)), timeline);
}
