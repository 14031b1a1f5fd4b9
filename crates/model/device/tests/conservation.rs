//! Invariants of every built-in device model: requests are conserved, time does not go back, nothing finishes
//! before its service time, admission is limited, the same seed gives the same completions.

use crosspoint_device::{
    BUILT_IN, Completion, Condition, Device, Model, Operation, Parameters, Profile, Request, Stage,
};
use proptest::prelude::*;
use units::{Nanos, Seed};

fn text(name: &str) -> Result<String, String> {
    let found = BUILT_IN.iter().find(|(known, _)| *known == name);
    found.map(|(_, text)| (*text).to_owned()).ok_or_else(|| format!("{name}: no such profile"))
}

fn profiles() -> Vec<Profile> {
    let parse = |(name, own): &(&str, &str)| {
        Profile::parse_with(own, &text).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    BUILT_IN.iter().map(parse).collect()
}

fn profile(name: &str) -> Profile {
    profiles().into_iter().find(|profile| profile.name == name).expect("it ships")
}

/// The minimum latency of any request, from the constants.
fn floor(profile: &Profile, operation: Operation) -> Nanos {
    if !matches!(operation, Operation::Read | Operation::Write) {
        return Nanos::ZERO;
    }
    match (&profile.parameters, operation) {
        (Parameters::XPoint(p), _) => p.serial_time.value + p.media_time.value + p.fixed_time.value,
        // The spread of a flash read is limited to half the mean.
        (Parameters::Nand(p), Operation::Read) => {
            p.front_time.value + p.controller_time.value + Nanos(p.read_time.value.get() / 2)
        }
        (Parameters::Nand(p), _) => p.front_time_write.value + p.write_ack_time.value,
        (Parameters::Ram(p), _) => p.serial_time.value + p.copy_time.value + p.fixed_time.value,
        (Parameters::Hdd(p), _) => p.transfer_time.value,
        (Parameters::Raid(p, members), _) => {
            let least = members.iter().map(|member| floor(member, operation)).min();
            p.request_time.value + least.unwrap_or_default()
        }
        (Parameters::Cache(p, both), _) => {
            p.lookup_time.value + floor(&both.0, operation).min(floor(&both.1, operation))
        }
        (Parameters::Hop(p, device), _) => {
            Nanos(p.round_trip.value.get() / 2 * 2) + p.serial_time.value + floor(device, operation)
        }
        _ => Nanos::ZERO,
    }
}

/// `(gap to the previous one in ns, 4 KiB block, length in 512 B, index into WHAT)`.
type Arrival = (u64, u64, u32, usize);

/// Operations, and whether they are forced to the medium.
const WHAT: [(Operation, bool); 6] = [
    (Operation::Read, false),
    (Operation::Write, false),
    (Operation::Write, true),
    (Operation::Flush, false),
    (Operation::Discard, false),
    (Operation::WriteZeroes, false),
];
const READ: usize = 0;
const WRITE: usize = 1;

fn drive(profile: &Profile, arrivals: &[Arrival]) -> (Vec<Request>, Vec<Nanos>, Vec<Completion>) {
    let mut model = Model::new(profile, Condition::Steady, Seed(3));
    let (mut now, mut done) = (Nanos::ZERO, Vec::new());
    let (mut requests, mut submitted) = (Vec::new(), Vec::new());
    for (id, &(gap, block, sectors, what)) in arrivals.iter().enumerate() {
        now += Nanos(gap);
        model.advance(now, &mut done);
        let (operation, fua) = WHAT[what];
        let request = match operation {
            Operation::Flush => Request::flush(id as u64),
            _ => {
                Request { operation, fua, ..Request::read(id as u64, block * 4096, sectors * 512) }
            }
        };
        model.submit(now, request);
        requests.push(request);
        submitted.push(now);
    }
    while let Some(next) = model.next_event() {
        model.advance(next, &mut done);
    }
    (requests, submitted, done)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    /// A lost request would hang a study; an early one would give a rate that no device reaches.
    #[test]
    fn requests_are_conserved_and_never_early(
        profile in 0usize..100,
        arrivals in prop::collection::vec((0u64..50_000, 0u64..100_000, 1u32..300, 0..WHAT.len()), 1..300),
    ) {
        let all = profiles();
        let profile = &all[profile % all.len()];
        let (requests, submitted, done) = drive(profile, &arrivals);
        prop_assert_eq!(done.len(), requests.len());
        let mut seen = vec![false; requests.len()];
        let mut last = Nanos::ZERO;
        for completion in &done {
            let id = completion.id as usize;
            prop_assert!(!seen[id], "completed twice");
            seen[id] = true;
            prop_assert!(completion.at >= last, "time went back");
            last = completion.at;
            let took = completion.at.since(submitted[id]);
            prop_assert!(took >= floor(profile, requests[id].operation), "before its service time");
            // The stages must sum to the latency.
            prop_assert_eq!(completion.stages.total(), took, "{} {:?}", profile.name, requests[id]);
        }
        let (_, _, again) = drive(profile, &arrivals);
        prop_assert_eq!(done, again);
    }
}

/// SATA takes 32 commands at once: the 33rd must wait for one to finish.
#[test]
fn admission_is_limited() {
    let profile = profile("intel-s3510");
    let burst: Vec<Arrival> = (0..200).map(|block| (0, block * 7, 8, READ)).collect();
    let (_, _, done) = drive(&profile, &burst);
    // The serial link serves one every 19 us; those that waited in the host complete in arrival order, up to
    // the 32 that were inside.
    for (place, completion) in done.iter().enumerate() {
        assert!((completion.id as usize) < place + 32 + 1, "{place} served {}", completion.id);
    }
}

/// One server with a fixed service time and random arrivals: the mean wait is
/// `load * service / (2 * (1 - load))` (Pollaczek and Khinchine).
#[test]
fn a_single_server_waits_as_m_d_1() {
    let profile = profile("ram-disk");
    let Parameters::Ram(parameters) = &profile.parameters else { panic!("no RAM") };
    let service = (parameters.serial_time.value + parameters.copy_time.value).get() as f64;
    let load = 0.8;
    let mut model = Model::new(&profile, Condition::Steady, Seed(1));
    let (mut word, mut now, mut waited) = (1u64, 0.0f64, 0.0);
    let (count, mut done) = (1_000_000u32, Vec::new());
    let mut submitted = Vec::with_capacity(count as usize);
    for id in 0..count {
        word = Seed(word).derive("arrival", 0).0;
        let uniform = (word >> 11) as f64 / (1u64 << 53) as f64;
        now += -(1.0 - uniform).ln() * service / load;
        let at = Nanos(now as u64);
        model.advance(at, &mut done);
        submitted.push(at);
        model.submit(at, Request::read(u64::from(id), 0, 4096));
    }
    model.advance(Nanos::MAX, &mut done);
    for completion in &done {
        let took = completion.at.since(submitted[completion.id as usize]).get() as f64;
        waited += took - service;
    }
    let (mean, exact) = (waited / f64::from(count), load * service / (2.0 * (1.0 - load)));
    assert!((mean / exact - 1.0).abs() < 0.01, "waited {mean:.1} ns, M/D/1 {exact:.1} ns");
}

/// Six virtual machines together use what a single one cannot: a claim of the ICPADS 2018 study.
#[test]
fn several_paths_use_what_one_can_not() {
    let most = |name: &str| {
        let profile = profile(name);
        let burst: Vec<Arrival> = (0..20_000).map(|block| (0, block, 8, READ)).collect();
        let (_, _, done) = drive(&profile, &burst);
        20_000.0 / done.last().expect("all").at.as_secs_f64()
    };
    let (one, six) = (most("900p-in-vm"), most("900p-in-6-vms"));
    assert!((95e3..101e3).contains(&one), "one: {one:.0}");
    assert!(six > 500e3, "six: {six:.0}");
}

/// An array of three must show the cost of small writes and the drives' own limits.
#[test]
fn a_raid_5_of_three_writes_slower_than_it_reads() {
    let profile = profile("raid5-3x-s3520");
    let most = |what: usize| {
        let blocks = (0..6_000).map(|block| (0, block * 37, 8, what));
        let (_, _, done) = drive(&profile, &blocks.collect::<Vec<_>>());
        6_000.0 / done.last().expect("all").at.as_secs_f64()
    };
    let (reads, writes) = (most(READ), most(WRITE));
    assert!(reads > 150e3, "three drives of 74k: {reads:.0}");
    assert!(writes < reads / 2.0, "{writes:.0} of {reads:.0}");
}

/// The formula of the ICPADS 2018 study for a file cache: mean latency is `t_io * (1 - H) + t_load * H`.
/// Reads over twice the cache size hit half the time.
#[test]
fn a_page_cache_answers_as_its_hit_ratio_says() {
    let profile = profile("page-cache-over-s3510");
    let Parameters::Cache(parameters, _) = &profile.parameters else { panic!("no cache") };
    let mut small = parameters.as_ref().clone();
    small.size.value = units::Bytes(1024 * 4096);
    let Parameters::Cache(_, both) = profile.parameters else { panic!("no cache") };
    let fast = Model::new(&both.0, Condition::Steady, Seed(1));
    let slow = Model::new(&both.1, Condition::Steady, Seed(1));
    let mut cache = crosspoint_device::Cache::new(&small, fast, slow);
    let (mut now, mut hits, mut misses, mut done) =
        (Nanos::ZERO, Vec::new(), Vec::new(), Vec::new());
    for id in 0..40_000u64 {
        now += Nanos::from_millis(1);
        cache.advance(now, &mut Vec::new());
        let offset = Seed(id).derive("page", 0).0 % 2048 * 4096;
        cache.submit(now, Request::read(id, offset, 4096));
        while done.is_empty() {
            cache.advance(cache.next_event().expect("something happens"), &mut done);
        }
        let took = done.remove(0).at.since(now).as_secs_f64() * 1e6;
        done.clear();
        // After the cache has filled.
        if id >= 10_000 {
            if took < 5.0 { hits.push(took) } else { misses.push(took) }
        }
    }
    let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
    let ratio = hits.len() as f64 / 30_000.0;
    assert!((ratio - 0.5).abs() < 0.01, "hit ratio {ratio}");
    assert!((mean(&hits) - 1.0).abs() < 0.2, "t_load {} us", mean(&hits));
    assert!((40.0..55.0).contains(&mean(&misses)), "t_io {} us", mean(&misses));
}

/// On an idle device the stages of a 4 KiB request must equal the constants: there is no queueing.
#[test]
fn stages_of_a_lone_request_are_its_constants() {
    let lone = |name: &str, request: Request| {
        let mut model = Model::new(&profile(name), Condition::Fresh, Seed(1));
        let mut done = Vec::new();
        model.submit(Nanos(1000), request);
        while done.is_empty() {
            model.advance(model.next_event().expect("something happens"), &mut done);
        }
        done[0].stages
    };
    let (read, write) = (Request::read(0, 0, 4096), Request::write(0, 0, 4096));
    let Parameters::XPoint(p) = profile("intel-p4800x").parameters else { panic!("3D XPoint") };
    let stages = lone("intel-p4800x", read);
    assert_eq!(stages.of(Stage::Media), p.media_time.value);
    assert_eq!(stages.of(Stage::Controller), p.serial_time.value + p.fixed_time.value);
    assert_eq!(stages.of(Stage::Queue), Nanos::ZERO);
    let Parameters::Nand(p) = profile("samsung-970-pro").parameters else { panic!("flash") };
    let stages = lone("samsung-970-pro", read);
    assert_eq!(stages.of(Stage::Controller), p.front_time.value + p.controller_time.value);
    assert_eq!(stages.of(Stage::Transfer), p.channel_time.value + p.link_time.value);
    assert!(stages.of(Stage::Media) > p.read_time.value - p.read_time_sigma.value * 5);
    assert_eq!(stages.of(Stage::Queue), Nanos::ZERO);
    let forced = lone("samsung-970-pro", Request { fua: true, ..write });
    let program = p.flush_program_time.expect("it is known").value;
    // Its acknowledgement overlaps with the first program.
    let beside = program * 2 - forced.of(Stage::Media);
    assert!(beside <= p.write_ack_time.value + p.link_time.value, "{beside}");
    let Parameters::Hop(p, _) = profile("p4800x-over-nvmeof-rdma").parameters else {
        panic!("hop")
    };
    let stages = lone("p4800x-over-nvmeof-rdma", read);
    assert!(stages.of(Stage::Hop) >= p.serial_time.value + Nanos(p.round_trip.value.get() / 2 * 2));
    assert_eq!(stages.of(Stage::Queue), Nanos::ZERO);
    let Parameters::Cache(p, _) = profile("page-cache-over-s3510").parameters else {
        panic!("cache")
    };
    assert_eq!(lone("page-cache-over-s3510", write).of(Stage::Cache), p.lookup_time.value);
}

/// A flush must be free after a FUA write and pay for everything after an ordinary one.
#[test]
fn a_flush_pays_for_what_is_not_durable_yet() {
    let after = |fua: bool| {
        let mut model = Model::new(&profile("samsung-970-pro"), Condition::Fresh, Seed(1));
        let mut done = Vec::new();
        model.submit(Nanos::ZERO, Request { fua, ..Request::write(0, 0, 4096) });
        model.advance(Nanos::from_secs(1), &mut done);
        model.submit(Nanos::from_secs(1), Request::flush(1));
        model.advance(Nanos::from_secs(2), &mut done);
        done[1].at.since(Nanos::from_secs(1))
    };
    assert!(after(true) < Nanos::from_micros(100), "{}", after(true));
    assert!(after(false) > Nanos::from_millis(2), "{}", after(false));
}

/// A flush must wait for writes that an earlier flush is still programming.
#[test]
fn a_flush_ends_no_sooner_than_one_before_it() {
    let mut model = Model::new(&profile("samsung-970-pro"), Condition::Fresh, Seed(1));
    let mut done = Vec::new();
    // A whole program unit, so that the first flush has a mapping of its own to program after it.
    model.submit(Nanos::ZERO, Request::write(0, 0, 32 << 10));
    model.advance(Nanos::from_micros(100), &mut done);
    model.submit(Nanos::from_micros(100), Request::flush(1));
    model.submit(Nanos::from_micros(100), Request::write(2, 1 << 20, 4096));
    model.advance(Nanos::from_micros(140), &mut done);
    model.submit(Nanos::from_micros(140), Request::flush(3));
    model.advance(Nanos::from_secs(1), &mut done);
    let end = |id: u64| done.iter().find(|one| one.id == id).expect("it ended").at;
    assert!(end(3) >= end(1), "{} before {}", end(3), end(1));
}

/// A fitted profile must read back exactly, or it would predict another drive than the one that was
/// validated.
#[test]
fn every_shipped_profile_reads_back_as_it_was_written() {
    for profile in profiles() {
        let written = profile.to_toml();
        let back = Profile::parse_with(&written, &text)
            .unwrap_or_else(|error| panic!("{}: {error}\n{written}", profile.name));
        assert_eq!(format!("{profile:?}"), format!("{back:?}"), "{}", profile.name);
    }
}
