//! Speed of virtual time: simulated operations per second, virtual over real seconds. With a number, only
//! that row of the table: `cargo bench -p crosspoint-sim --bench speed -- 4`.

use std::path::Path;
use std::time::Instant;

use crosspoint_sim::{BlockPath, HostModel, run};
use device::{Condition, Model, Profile};
use stats::Timeline;
use units::{Bytes, Nanos, Seed, Share};
use workload::{BlockGroup, BlockPlan};

/// Repetitions of each row; the median is printed.
const ROUNDS: usize = 5;

/// `(profile, queue depth, share of reads)` of each row; with writes, garbage collection is active.
const ROWS: [(&str, u32, &str); 11] = [
    ("intel-p4800x", 1, "100%"),
    ("intel-p4800x", 32, "100%"),
    ("samsung-980-pro", 1, "100%"),
    ("samsung-980-pro", 32, "100%"),
    ("intel-p3700", 32, "100%"),
    ("intel-p3700", 32, "70%"),
    ("intel-p4500", 32, "0%"),
    (RAID5_OF_8, 32, "100%"),
    (RAID5_OF_8, 32, "70%"),
    ("cas-p4800x-over-raid5-s3520", 32, "70%"),
    ("page-cache-over-s3510", 32, "70%"),
];

/// The built-in array of three, with eight members.
const RAID5_OF_8: &str = "raid5-8x-s3520";

fn main() -> Result<(), String> {
    // Cargo adds an argument of its own.
    let only = std::env::args().skip(1).find_map(|word| word.parse().ok());
    let devices = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../devices");
    table(&devices, only)
}

/// Prints a table row for each profile and load; with `only`, just that row.
fn table(devices: &Path, only: Option<usize>) -> Result<(), String> {
    println!(
        "| device | depth | reads | IOPS in virtual time | million operations/s | virtual s / real s |"
    );
    println!("|---|---|---|---|---|---|");
    for (number, (name, depth, share)) in ROWS.into_iter().enumerate() {
        if only.is_some_and(|only| only != number) {
            continue;
        }
        let read_share: Share = share.parse().map_err(|error| format!("{share}: {error:?}"))?;
        let profile = profile(devices, name)?;
        let mut rounds: Vec<(f64, f64, f64)> =
            (0..ROUNDS).map(|_| round(&profile, depth, read_share)).collect();
        rounds.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (iops, rate, speed) = rounds[ROUNDS / 2];
        println!("| {name} | {depth} | {share} | {iops:.0} | {:.1} | {speed:.0} |", rate / 1e6);
    }
    Ok(())
}

fn profile(devices: &Path, name: &str) -> Result<Profile, String> {
    let file = if name == RAID5_OF_8 { "raid5-3x-s3520" } else { name };
    let path = devices.join(format!("{file}.toml"));
    let mut text = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
    if name == RAID5_OF_8 {
        let member = "\"intel-s3520\", ";
        text = text.replacen(member, &member.repeat(6), 1);
    }
    let lookup = |name: &str| {
        std::fs::read_to_string(devices.join(format!("{name}.toml")))
            .map_err(|error| error.to_string())
    };
    Profile::parse_with(&text, &lookup).map_err(|error| error.to_string())
}

/// One run of 20 virtual seconds: (virtual IOPS, operations per real second, virtual over real time).
fn round(profile: &Profile, queue_depth: u32, read_share: Share) -> (f64, f64, f64) {
    let second = Nanos::from_secs(1);
    let timeline = Timeline { warm_up: second, measure: Nanos::from_secs(20), interval: second };
    let plan = BlockPlan {
        queue_depth,
        read_share,
        ..BlockPlan::reads(4096, profile.capacity.min(Bytes::mib(1 << 20)), timeline.end())
    };
    let seed = Seed(1);
    let began = Instant::now();
    let device = Model::new(profile, Condition::Steady, seed);
    let target = BlockPath::new(device, HostModel::io_uring(), 1, seed);
    let recording = run(target, BlockGroup::new(plan).clients(seed), timeline);
    let real = began.elapsed().as_secs_f64();
    let ops: u64 = recording.intervals.iter().map(|interval| interval.counts().ops).sum();
    let iops = recording.total(None).counts.ops as f64 / recording.seconds();
    (iops, ops as f64 / real, timeline.end().as_secs_f64() / real)
}
