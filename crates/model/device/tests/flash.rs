//! Interference between reads and writes, on a built-in flash drive with some constants changed.

use crosspoint_device::{
    BUILT_IN, Completion, Condition, Device, Model, Operation, Profile, Request,
};
use units::{Bytes, Nanos, Seed};

/// The drive with some constants changed, erased; `None` removes one.
fn drive(changes: &[(&str, Option<&str>)]) -> Model {
    drive_in(Condition::Fresh, changes)
}

/// The same drive in steady state.
fn steady(changes: &[(&str, Option<&str>)]) -> Model {
    drive_in(Condition::Steady, changes)
}

fn drive_in(condition: Condition, changes: &[(&str, Option<&str>)]) -> Model {
    let keep = |line: &&str| changes.iter().all(|(key, _)| !line.starts_with(&format!("{key} =")));
    let drive = BUILT_IN.iter().find(|(name, _)| *name == "micron-7450-pro");
    let mut text: String = drive
        .expect("it ships")
        .1
        .split("[[acceptance]]")
        .next()
        .expect("constants")
        .lines()
        .filter(keep)
        .map(|line| format!("{line}\n"))
        .collect();
    for (key, value) in changes {
        if let Some(value) = value {
            text +=
                &format!("{key} = {{ value = {value}, kind = \"assumed\", source = \"test\" }}\n");
        }
    }
    let profile = Profile::parse(&text).expect("a profile");
    let small = Profile { capacity: Bytes(1 << 30), ..profile };
    Model::new(&small, condition, Seed(1))
}

/// Submits requests at their times; returns their completion times by number.
fn ends(device: &mut Model, requests: &[(u64, Request)]) -> Vec<u64> {
    let mut done: Vec<Completion> = Vec::new();
    for (id, (at, request)) in requests.iter().enumerate() {
        device.advance(Nanos(*at), &mut done);
        device.submit(Nanos(*at), Request { id: id as u64, ..*request });
    }
    while let Some(at) = device.next_event() {
        device.advance(at, &mut done);
    }
    let mut ends = vec![0; requests.len()];
    done.iter().for_each(|one| ends[one.id as usize] = one.at.get());
    ends
}

fn writes(count: u64, from: u64, every: u64) -> Vec<(u64, Request)> {
    (0..count).map(|n| (from + n * every, Request::write(0, n * 4096 * 7, 4096))).collect()
}

/// Mean latency of reads, one per 200 us, with a write every 10 us.
fn reads_beside_writes(device: &mut Model) -> f64 {
    let mut all = writes(10_000, 0, 10_000);
    let reads =
        (0..400u64).map(|n| (10_000_000 + n * 200_000, Request::read(0, n * 977 * 4096, 4096)));
    all.extend(reads);
    all.sort_by_key(|(at, _)| *at);
    let ends = ends(device, &all);
    let latencies = all.iter().zip(&ends).filter(|((_, r), _)| r.operation == Operation::Read);
    latencies.map(|((at, _), end)| (end - at) as f64).sum::<f64>() / 400.0
}

/// A drive that suspends programs for reads must not be predicted as one whose reads wait for whole programs.
#[test]
fn reads_that_go_first_wait_for_the_suspension_and_others_for_the_program() {
    let suspended = [("suspend_least", None), ("suspend_time", Some("\"50us\""))];
    let first = reads_beside_writes(&mut drive(&suspended));
    let none = [("reads_first", None), ("suspend_least", None), ("suspend_time", None)];
    let in_order = reads_beside_writes(&mut drive(&none));
    let idle = ends(&mut drive(&[]), &[(0, Request::read(0, 4096, 4096))])[0] as f64;
    println!("idle {idle} first {first} in order {in_order}");
    assert!(first > idle + 5_000.0 && first < idle + 50_000.0, "{first} {idle}");
    assert!(in_order > first + 50_000.0, "{in_order} {first}");
}

/// Sixteen pages of a large read on two units of eight are eight reads in sequence; on sixteen units, one.
#[test]
fn a_large_read_takes_rounds_on_its_units() {
    let takes = |stripe: &str| {
        let changes = [
            ("flash_page", Some("\"4KiB\"")),
            ("stripe", Some(stripe)),
            ("read_time_sigma", Some("\"0us\"")),
            ("channel_time", Some("\"0us\"")),
        ];
        ends(&mut drive(&changes), &[(0, Request::read(0, 0, 65_536))])[0]
    };
    let (one, eight) = (takes("\"4KiB\""), takes("\"32KiB\""));
    let read = 34_100;
    assert!((eight - one).abs_diff(7 * read) < read / 2, "{one} {eight}");
}

/// A write of 512 bytes costs a flash read and a program of the whole 4 KiB, so its rate must not exceed that
/// of whole chunks.
#[test]
fn a_write_of_part_of_a_chunk_costs_no_less_than_one_of_it_all() {
    let last = |length: u32, offset: u64| {
        let requests: Vec<(u64, Request)> = (0..40_000u64)
            .map(|n| (0, Request::write(0, n * 4096 * 5 % (1 << 30) + offset, length)))
            .collect();
        ends(&mut drive(&[("over_provisioning", Some("\"1%\""))]), &requests).into_iter().max()
    };
    let (whole, part, across) = (last(4096, 0), last(512, 512), last(4096, 512));
    assert!(part > whole, "{part:?} {whole:?}");
    // Two chunks, both partly written.
    assert!(across.unwrap() as f64 > whole.unwrap() as f64 * 1.9, "{across:?} {whole:?}");
}

/// Reads that arrive after a write has waited for too long must wait behind it; others must not.
#[test]
fn reads_wait_behind_writes_that_have_waited_too_long() {
    let read_beside_a_burst = |most: &str| {
        let mut all = writes(4_000, 0, 0);
        all.push((8_000_000, Request::read(0, 4096, 4096)));
        let changes = [("write_wait_max", Some(most)), ("write_buffer", Some("\"64KiB\""))];
        ends(&mut drive(&changes), &all)[4_000] - 8_000_000
    };
    let (patient, strict) = (read_beside_a_burst("\"10s\""), read_beside_a_burst("\"2ms\""));
    assert!(patient < 1_000_000, "{patient}");
    assert!(strict > 2_000_000, "{strict}");
}

/// On a real drive one write in seven took up to six times as long while the flash was almost idle: the
/// handover of a program's data.
#[test]
fn writes_wait_while_the_data_of_a_program_is_handed_on() {
    // One per 10 us; the sixteenth completes a program of 64 KiB.
    let latencies = |handover: Option<&str>| {
        let changes = [("handover_time", handover), ("program_size", Some("\"64KiB\""))];
        let all = writes(20, 0, 10_000);
        let ends = ends(&mut drive(&changes), &all);
        all.iter().zip(ends).map(|((at, _), end)| end - at).collect::<Vec<u64>>()
    };
    let (plain, waits) = (latencies(None), latencies(Some("\"25us\"")));
    // The write itself is acknowledged; the next ones wait for the rest of the handover, and the fourth does
    // not wait.
    assert_eq!(waits[..16], plain[..16]);
    let more: Vec<u64> = (16..19).map(|n| waits[n] - plain[n]).collect();
    assert_eq!(more, [15_000, 5_000, 0], "{waits:?}");
}

/// Collection in bursts must stall writes; the same collection as it falls due must not.
#[test]
fn bursts_of_collection_stall_writes_far_below_the_highest_rate() {
    let worst = |burst: Option<&str>| {
        let changes = [("collection_burst", burst), ("write_buffer", Some("\"64KiB\""))];
        let mut device = drive(&changes);
        // Writes the drive twice: collection starts after its raw capacity.
        let all: Vec<(u64, Request)> = (0..600_000u64)
            .map(|n| {
                let page = Seed(n).derive("page", 0).0 % (1 << 18);
                (n * 40_000, Request::write(0, page * 4096, 4096))
            })
            .collect();
        let ends = ends(&mut device, &all);
        all.iter().zip(ends).skip(400_000).map(|((at, _), end)| end - at).max()
    };
    let (smooth, bursts) = (worst(None).unwrap(), worst(Some("\"8MiB\"")).unwrap());
    assert!(bursts > 2_000_000 && smooth < bursts / 2, "{smooth} {bursts}");
}

/// Completion times of the last of 200 writes in one queue, and of one submitted after them in `queue`, on a
/// drive that fetches two.
fn a_lone_write_beside_a_deep_queue(inside: Option<&str>, queue: u16) -> (u64, u64) {
    let changes = [
        ("commands_inside", inside),
        ("max_in_flight", Some("2")),
        ("write_buffer", Some("\"64KiB\"")),
        ("program_units", Some("1")),
    ];
    let mut all: Vec<(u64, Request)> =
        (0..200).map(|n| (0, Request::write(0, n * 4096 * 7, 4096))).collect();
    all.push((1, Request::write(0, 1 << 20, 4096).by(queue)));
    let ends = ends(&mut drive(&changes), &all);
    (ends[199], ends[200])
}

/// A log writer's single request must not wait for the whole queues of other clients.
#[test]
fn a_drive_that_takes_in_a_part_looks_at_each_queue_in_turn() {
    let (last, lone) = a_lone_write_beside_a_deep_queue(Some("2"), 1);
    assert!(lone * 5 < last, "{lone} {last}");
    // In the same queue, or with a single queue, it comes after the earlier requests.
    let (last, lone) = a_lone_write_beside_a_deep_queue(Some("2"), 0);
    assert!(lone > last, "{lone} {last}");
    let (last, lone) = a_lone_write_beside_a_deep_queue(None, 1);
    assert!(lone > last, "{lone} {last}");
}

/// The longest of writes at the highest rate that the drive sustains.
fn longest_write(meters: &str) -> u64 {
    let changes = [
        ("meters", Some(meters)),
        ("collection_burst", Some("\"64MiB\"")),
        ("over_provisioning", Some("\"10%\"")),
    ];
    let mut device = steady(&changes);
    let mut done: Vec<Completion> = Vec::new();
    let (mut submitted, mut longest) = (vec![0u64; 40_000], 0);
    let write = |n: usize| Request::write(n as u64, n as u64 * 4096 * 7 % (1 << 30), 4096);
    let mut next = 64;
    (0..next).for_each(|n| device.submit(Nanos::ZERO, write(n)));
    while let Some(at) = device.next_event() {
        device.advance(at, &mut done);
        for one in done.drain(..) {
            longest = longest.max(one.at.get() - submitted[one.id as usize]);
            if next < submitted.len() {
                submitted[next] = one.at.get();
                device.submit(one.at, write(next));
                next += 1;
            }
        }
    }
    longest
}

/// A full drive must throttle or stall in bursts, depending on `meters`.
#[test]
fn a_full_drive_meters_or_stops_for_bursts() {
    let (meters, stops) = (longest_write("true"), longest_write("false"));
    assert!(stops > meters * 3, "{stops} {meters}");
}
