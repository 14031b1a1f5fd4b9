//! What holds for every device model that ships: requests are conserved, time goes forward, nothing
//! finishes before its service time, admission is limited, the same seed gives the same completions.

use crosspoint_device::{Completion, Device, Direction, Model, Parameters, Profile, Request};
use proptest::prelude::*;
use units::{Nanos, Seed};

const PROFILES: [&str; 3] = [
    include_str!("../../../../devices/intel-p4800x.toml"),
    include_str!("../../../../devices/samsung-980-pro.toml"),
    include_str!("../../../../devices/intel-s3510.toml"),
];

/// The least time that any request can take, from the constants.
fn floor(profile: &Profile, direction: Direction) -> Nanos {
    match (&profile.parameters, direction) {
        (Parameters::XPoint(p), _) => p.serial_time.value + p.media_time.value + p.fixed_time.value,
        // Half the mean is the least that the spread of a flash read allows.
        (Parameters::Nand(p), Direction::Read) => {
            p.front_time.value + p.controller_time.value + Nanos(p.read_time.value.get() / 2)
        }
        (Parameters::Nand(p), Direction::Write) => p.front_time.value + p.write_ack_time.value,
        _ => Nanos::ZERO,
    }
}

/// `(gap to the one before in ns, 4 KiB block, length in 512 B, is a read)`
type Arrival = (u64, u64, u32, bool);

fn drive(profile: &Profile, arrivals: &[Arrival]) -> (Vec<Request>, Vec<Nanos>, Vec<Completion>) {
    let mut model = Model::new(profile, Seed(3));
    let (mut now, mut done) = (Nanos::ZERO, Vec::new());
    let (mut requests, mut submitted) = (Vec::new(), Vec::new());
    for (id, &(gap, block, sectors, read)) in arrivals.iter().enumerate() {
        now += Nanos(gap);
        model.advance(now, &mut done);
        let direction = if read { Direction::Read } else { Direction::Write };
        let request =
            Request { id: id as u64, direction, offset: block * 4096, length: sectors * 512 };
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
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// A lost request hangs a study; an early one is a rate that no device gives.
    #[test]
    fn requests_are_conserved_and_never_early(
        profile in 0usize..3,
        arrivals in prop::collection::vec((0u64..50_000, 0u64..100_000, 1u32..300, any::<bool>()), 1..300),
    ) {
        let profile = Profile::parse(PROFILES[profile]).unwrap();
        let (requests, submitted, done) = drive(&profile, &arrivals);
        prop_assert_eq!(done.len(), requests.len());
        let mut seen = vec![false; requests.len()];
        let mut last = Nanos::ZERO;
        for completion in &done {
            let id = completion.id as usize;
            prop_assert!(!seen[id], "completed twice");
            seen[id] = true;
            prop_assert!(completion.at >= last, "time went back");
            last = completion.at;
            let least = floor(&profile, requests[id].direction);
            prop_assert!(completion.at.since(submitted[id]) >= least, "before its service time");
        }
        let (_, _, again) = drive(&profile, &arrivals);
        prop_assert_eq!(done, again);
    }
}

/// SATA takes 32 commands at once: the 33rd must wait for one to finish.
#[test]
fn admission_is_limited() {
    let profile = Profile::parse(PROFILES[2]).unwrap();
    let burst: Vec<Arrival> = (0..200).map(|block| (0, block * 7, 8, true)).collect();
    let (_, _, done) = drive(&profile, &burst);
    // The serial link serves one every 19 us; whoever waited outside still came in order of arrival
    // within the reach of the 32 that were inside.
    for (place, completion) in done.iter().enumerate() {
        assert!((completion.id as usize) < place + 32 + 1, "{place} served {}", completion.id);
    }
}
