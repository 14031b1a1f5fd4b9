//! How fast virtual time runs (simulated operations a second, virtual over real seconds), and what the
//! workload and the recorder cost an operation when the target costs nothing.
//!
//! A bench, not a test: its figures belong to the machine it ran on. What it is not: a comparison.

use std::path::Path;
use std::time::Instant;

use device::{Model, Profile};
use sim::{BlockRun, HostModel, run_block};
use stats::{Recorder, Sample, Timeline};
use units::{Bytes, Nanos, Seed, Share};
use workload::{Arrivals, BlockClient, BlockPlan, ClientIndex, Outcome, Pattern, Step, Workload};

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

/// Operations in flight, and so taken with one clock reading, in the measurement of our own cost.
const BATCH: u32 = 32;

/// Prints what one operation costs in client, recorder and clock when it completes at once.
pub fn own_cost() {
    let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| null_round(4_000_000)).collect();
    rounds.sort_by(f64::total_cmp);
    println!(
        "own cost with a null target, batches of {BATCH}: {:.1} ns/operation",
        rounds[ROUNDS / 2]
    );
}

/// Nanoseconds an operation: issue a batch, read the clock, record and complete the batch.
fn null_round(operations: u64) -> f64 {
    let plan = BlockPlan {
        pattern: Pattern::Random,
        read_share: Share::ALL,
        block_size: Bytes(4096),
        span: Bytes::mib(1024),
        queue_depth: BATCH,
        arrivals: Arrivals::Closed { think: Nanos::ZERO },
        end: Nanos::MAX,
    };
    let second = Nanos::from_secs(1);
    let timeline = Timeline { warm_up: Nanos::ZERO, measure: second * 3600, interval: second };
    let mut client = BlockClient::new(plan, Seed(1), ClientIndex { index: 0, of: 1 });
    let mut recorder = Recorder::new(timeline);
    let mut batch = Vec::with_capacity(BATCH as usize);
    let (began, mut done, mut now) = (Instant::now(), 0, Nanos::ZERO);
    while done < operations {
        while let Step::Issue(issue) = client.next(now) {
            batch.push(std::hint::black_box(issue));
        }
        let issued = now;
        now = Nanos::from(began.elapsed());
        recorder.poll(now);
        for issue in batch.drain(..) {
            recorder.record(Sample {
                class: issue.op.class,
                intended: issue.intended,
                issued,
                completed: now,
                bytes: issue.op.length,
                outcome: Outcome::Done,
                position: issue.op.offset,
            });
            client.completed(issue.id, Outcome::Done, now);
            done += 1;
        }
    }
    let total = began.elapsed().as_secs_f64() * 1e9 / done as f64;
    std::hint::black_box(recorder.finish(now));
    total
}

/// One run of 20 virtual seconds: (virtual IOPS, operations a real second, virtual over real time).
fn round(profile: &Profile, queue_depth: u32) -> (f64, f64, f64) {
    let second = Nanos::from_secs(1);
    let timeline = Timeline { warm_up: second, measure: Nanos::from_secs(20), interval: second };
    let plan = BlockPlan {
        pattern: Pattern::Random,
        read_share: Share::ALL,
        block_size: Bytes(4096),
        span: Bytes::mib(1024),
        queue_depth,
        arrivals: Arrivals::Closed { think: Nanos::ZERO },
        end: timeline.end(),
    };
    let seed = Seed(1);
    let client = BlockClient::new(plan, seed, ClientIndex { index: 0, of: 1 });
    let began = Instant::now();
    let recording = run_block(BlockRun {
        device: Model::new(profile, seed),
        host: HostModel::io_uring(),
        clients: vec![client],
        timeline,
        open_loop: false,
        seed,
    });
    let real = began.elapsed().as_secs_f64();
    let ops: u64 = recording.intervals.iter().map(|interval| interval.counts().ops).sum();
    let iops = recording.total(None).counts.ops as f64 / recording.seconds();
    (iops, ops as f64 / real, timeline.end().as_secs_f64() / real)
}
