//! How fast virtual time runs (simulated operations a second, virtual over real seconds), and what the
//! workload and the recorder cost an operation when the target costs nothing.
//!
//! A bench, not a test: its figures belong to the machine it ran on. What it is not: a comparison.

use std::path::Path;
use std::time::Instant;

use device::{Condition, Model, Profile};
use sim::{BlockRun, Client, HostModel, run_block};
use stats::Timeline;
use units::{Bytes, Nanos, Seed};
use workload::BlockPlan;

/// Repetitions of each row; the median is printed.
const ROUNDS: usize = 5;

/// Prints a table row for each profile and queue depth.
pub fn table(devices: &Path) -> Result<(), String> {
    println!(
        "| device | depth | IOPS in virtual time | million operations/s | virtual s / real s |"
    );
    println!("|---|---|---|---|---|");
    for (name, depth) in
        [("intel-p4800x", 1), ("intel-p4800x", 32), ("samsung-980-pro", 1), ("samsung-980-pro", 32)]
    {
        let path = devices.join(format!("{name}.toml"));
        let text = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
        let profile = Profile::parse(&text).map_err(|error| error.to_string())?;
        let mut rounds: Vec<(f64, f64, f64)> =
            (0..ROUNDS).map(|_| round(&profile, depth)).collect();
        rounds.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (iops, rate, speed) = rounds[ROUNDS / 2];
        println!("| {name} | {depth} | {iops:.0} | {:.1} | {speed:.0} |", rate / 1e6);
    }
    Ok(())
}

/// Prints what one operation costs us when its target costs nothing.
pub fn own_cost() {
    let own = block::own_cost();
    println!(
        "own cost with a null target: {:.1} ns/operation one at a time, {:.1} ns in batches of 32",
        own.single_ns, own.batch_ns
    );
    match own.ring_ns.zip(own.bare_ring_ns) {
        Some((ring, bare)) => {
            println!(
                "own cost with io_uring NOP, batches of 32: {ring:.1} ns/operation, beside {bare:.1} ns of \
                 the ring itself"
            );
        }
        None => println!("own cost with io_uring NOP: io_uring is not available"),
    }
}

/// One run of 20 virtual seconds: (virtual IOPS, operations a real second, virtual over real time).
fn round(profile: &Profile, queue_depth: u32) -> (f64, f64, f64) {
    let second = Nanos::from_secs(1);
    let timeline = Timeline { warm_up: second, measure: Nanos::from_secs(20), interval: second };
    let plan =
        BlockPlan { queue_depth, ..BlockPlan::reads(4096, Bytes::mib(1024), timeline.end()) };
    let seed = Seed(1);
    let began = Instant::now();
    let recording = run_block(BlockRun {
        device: Model::new(profile, Condition::Steady, seed),
        host: HostModel::io_uring(),
        clients: Client::group(&plan, 1, seed),
        timeline,
        seed,
    });
    let real = began.elapsed().as_secs_f64();
    let ops: u64 = recording.intervals.iter().map(|interval| interval.counts().ops).sum();
    let iops = recording.total(None).counts.ops as f64 / recording.seconds();
    (iops, ops as f64 / real, timeline.end().as_secs_f64() / real)
}
