//! The seam between models and drivers: virtual and real time must give the same service times, or an
//! emulated disk is not the predicted one.

use crosspoint_realtime::RealTime;
use device::{Completion, Condition, Device, Model, Profile, Request};
use sim::{BlockPath, HostModel, run};
use stats::Timeline;
use units::{Nanos, Seed};
use workload::{BlockGroup, BlockPlan};

const PROFILES: [&str; 3] = [
    include_str!("../../../../devices/intel-p4800x.toml"),
    include_str!("../../../../devices/intel-p3700.toml"),
    include_str!("../../../../devices/intel-s3510.toml"),
];

/// Log of a closed loop on the wall clock: `(request, time of submission)`, completions, lateness of each.
type Log = (Vec<(Request, Nanos)>, Vec<Completion>, Vec<Nanos>);

/// Passes time until something completes or nothing is pending, like a front end without requests.
fn wait(driver: &mut RealTime<Model>, done: &mut Vec<Completion>) {
    let before = done.len();
    while done.len() == before {
        match driver.left() {
            None => return,
            Some(left) if left > Nanos::ZERO => std::hint::spin_loop(),
            Some(_) => driver.advance(done),
        }
    }
}

/// Keeps `depth` requests in flight for `length` by the wall clock, a third of them writes.
fn closed_loop(profile: &Profile, depth: u64, length: Nanos) -> Log {
    let mut driver = RealTime::new(Model::new(profile, Condition::Steady, Seed(5)));
    let (mut told, mut done, mut late) = (Vec::new(), Vec::new(), Vec::new());
    let mut issue = |driver: &mut RealTime<Model>, done: &mut Vec<Completion>| {
        let id = told.len() as u64;
        let offset = Seed(id).derive("block", 0).0 % 100_000 * 4096;
        let request = match id.is_multiple_of(3) {
            true => Request::write(id, offset, 4096),
            false => Request::read(id, offset, 4096),
        };
        told.push((request, driver.submit(request, done)));
    };
    for _ in 0..depth {
        issue(&mut driver, &mut done);
    }
    let mut seen = 0;
    while driver.now() < length || seen < done.len() {
        while seen < done.len() {
            late.push(driver.now().since(done[seen].at));
            seen += 1;
            if driver.now() < length {
                issue(&mut driver, &mut done);
            }
        }
        wait(&mut driver, &mut done);
    }
    (told, done, late)
}

/// The same requests at the same instants complete at the same nanosecond in virtual time, whatever the
/// machine did to the real-time driver meanwhile.
#[test]
fn real_time_and_virtual_time_give_the_same_service_times() {
    for text in PROFILES {
        let profile = Profile::parse(text).expect("it ships");
        let (told, real, mut late) = closed_loop(&profile, 4, Nanos::from_millis(150));
        assert_eq!(told.len(), real.len(), "every request completes once");
        let mut model = Model::new(&profile, Condition::Steady, Seed(5));
        let mut virtual_time = Vec::new();
        for (request, at) in &told {
            model.advance(*at, &mut virtual_time);
            model.submit(*at, *request);
        }
        model.advance(Nanos::MAX, &mut virtual_time);
        assert_eq!(real, virtual_time, "{}", profile.name);
        late.sort();
        println!(
            "{}: {} requests, late by {} (median)",
            profile.name,
            late.len(),
            late[late.len() / 2]
        );
    }
}

/// At depth 1 the device is always idle, so the real-time driver must give the same median as virtual time.
#[test]
fn at_depth_1_the_median_is_that_of_virtual_time() {
    let profile = Profile::parse(PROFILES[1]).expect("it ships");
    let mut driver = RealTime::new(Model::new(&profile, Condition::Steady, Seed(5)));
    let (mut done, mut took) = (Vec::new(), Vec::new());
    for id in 0..2_000u64 {
        let offset = Seed(id).derive("block", 0).0 % 100_000 * 4096;
        let request = Request::read(id, offset, 4096);
        let at = driver.submit(request, &mut done);
        while done.is_empty() {
            wait(&mut driver, &mut done);
        }
        took.extend(done.drain(..).map(|completion| completion.at.since(at)));
    }
    took.sort();
    let second = Nanos::from_secs(1);
    let timeline = Timeline { warm_up: Nanos::ZERO, measure: second, interval: second };
    let plan = BlockPlan::reads(4096, profile.capacity, timeline.end());
    let host = HostModel::named("none").expect("it is known");
    let device = Model::new(&profile, Condition::Steady, Seed(9));
    let target = BlockPath::new(device, host, 1, Seed(9));
    let total = run(target, BlockGroup::new(plan).clients(Seed(9)), timeline).total(None);
    let (real, predicted) = (took[1_000].get() as f64, total.latency.value_at_quantile(0.5) as f64);
    assert!(
        (real / predicted - 1.0).abs() < 0.02,
        "{real} ns by the clock, {predicted} ns predicted"
    );
}

/// A disk scaled tenfold must be ten times slower, and a completion that is handed out early must be reported
/// at its promised time.
#[test]
fn time_can_be_stretched_and_the_way_to_the_client_taken_off() {
    let profile = Profile::parse(PROFILES[0]).expect("it ships");
    let model = Model::new(&profile, Condition::Steady, Seed(5));
    let lead = Nanos::from_micros(20);
    let mut driver = RealTime::new(model).stretched(100);
    driver.lead_by(lead);
    let mut done = Vec::new();
    for id in 0..20u64 {
        let began = std::time::Instant::now();
        let at = driver.submit(Request::read(id, id * 4096, 4096), &mut done);
        while done.is_empty() {
            wait(&mut driver, &mut done);
        }
        let took = Nanos::from(began.elapsed());
        let promised = done.pop().expect("one").at.since(at);
        let least = Nanos(promised.get() * 100).since(lead + Nanos(200));
        assert!(took >= least, "{took} of {promised} x 100");
    }
}

/// A lead that accumulates would make a disk faster than its model: larger reads have many events in a row.
#[test]
fn nothing_is_handed_out_earlier_than_the_lead() {
    let profile = Profile::parse(PROFILES[1]).expect("it ships");
    let mut driver = RealTime::new(Model::new(&profile, Condition::Steady, Seed(5)));
    let lead = Nanos::from_micros(10);
    driver.lead_by(lead);
    let mut done = Vec::new();
    for id in 0..200u64 {
        let began = std::time::Instant::now();
        let at = driver.submit(Request::read(id, id * (128 << 10), 128 << 10), &mut done);
        wait(&mut driver, &mut done);
        let took = Nanos::from(began.elapsed());
        let promised = done.pop().expect("one").at.since(at);
        assert!(took + lead >= promised, "{took} of {promised}");
    }
}
