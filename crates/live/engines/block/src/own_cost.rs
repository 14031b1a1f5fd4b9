//! Harness overhead per operation: on a null target, and on a ring of no-ops.
//!
//! Both run the client and recorder of a trial, with every percentile. Invariant: nothing touches a device.

use io_uring::{IoUring, opcode};
use observe::Clock;
use stats::{Recorder, Sample, Timeline};
use units::{Bytes, Nanos, Seed};
use workload::{
    BlockClient, BlockOp, BlockPlan, ClientIndex, Issue, OpClass, Outcome, Step, Workload,
};

/// Operations in flight, and so per clock reading.
const BATCH: u32 = 32;
/// Operations of one round.
const OPERATIONS: u64 = 200_000;
/// Rounds; the median counts.
const ROUNDS: usize = 5;

/// Harness overhead, nanoseconds of CPU per operation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OwnCost {
    /// Client, recorder and clock, one operation at a time: the upper bound in every latency.
    pub single_ns: f64,
    /// The same in batches of 32.
    pub batch_ns: f64,
    /// Cost that client and recorder add to a ring of no-ops, in batches of 32; `None` without io_uring.
    pub ring_ns: Option<f64>,
    /// The bare ring: the kernel's part.
    pub bare_ring_ns: Option<f64>,
}

/// Measures it; takes about 0.1 s.
#[must_use]
pub fn own_cost() -> OwnCost {
    let median = |round: &dyn Fn() -> Option<f64>| {
        let mut rounds: Vec<f64> = (0..ROUNDS).filter_map(|_| round()).collect();
        rounds.sort_by(f64::total_cmp);
        rounds.get(rounds.len() / 2).copied()
    };
    let bare = median(&|| bare_ring_round().ok());
    let whole = median(&|| ring_round().ok());
    OwnCost {
        single_ns: median(&|| Some(null_round(1))).unwrap_or(0.0),
        batch_ns: median(&|| Some(null_round(BATCH))).unwrap_or(0.0),
        ring_ns: whole.zip(bare).map(|(whole, bare)| (whole - bare).max(0.0)),
        bare_ring_ns: bare,
    }
}

fn client_and_recorder(depth: u32) -> (BlockClient, Recorder) {
    let plan =
        BlockPlan { queue_depth: depth, ..BlockPlan::reads(4096, Bytes::mib(1024), Nanos::MAX) };
    let second = Nanos::from_secs(1);
    let timeline = Timeline { warm_up: Nanos::ZERO, measure: second * 3600, interval: second };
    let client = BlockClient::new(plan, Seed(1), ClientIndex { index: 0, of: 1 });
    (client, Recorder::new(timeline, &[OpClass::Read]))
}

/// Nanoseconds per operation: issue a batch, read the clock, record and complete the batch.
fn null_round(depth: u32) -> f64 {
    let (mut client, mut recorder) = client_and_recorder(depth);
    let mut batch = Vec::with_capacity(depth as usize);
    let (clock, mut done, mut now) = (Clock::start(), 0, Nanos::ZERO);
    while done < OPERATIONS {
        while let Step::Issue(issue) = client.next(now) {
            batch.push(std::hint::black_box(issue));
        }
        let issued = now;
        now = clock.now();
        recorder.poll(now);
        for issue in batch.drain(..) {
            recorder.record(Sample::of(&issue, (issued, now), (Outcome::Done, issue.op.length)));
            client.completed(issue.id, Outcome::Done, now);
            done += 1;
        }
    }
    let total = clock.now().get() as f64 / done as f64;
    std::hint::black_box(recorder.finish(now));
    total
}

fn new_ring() -> std::io::Result<IoUring> {
    let mut best = IoUring::builder();
    best.setup_single_issuer().setup_defer_taskrun().setup_no_sqarray();
    best.build(BATCH).or_else(|_| IoUring::new(BATCH))
}

/// Nanoseconds per operation of a bare ring of no-ops.
fn bare_ring_round() -> std::io::Result<f64> {
    let mut ring = new_ring()?;
    let (clock, mut done) = (Clock::start(), 0);
    while done < OPERATIONS {
        for slot in 0..BATCH {
            let entry = opcode::Nop::new().build().user_data(u64::from(slot));
            // SAFETY: a NOP refers to no memory.
            unsafe { ring.submission().push(&entry) }.map_err(std::io::Error::other)?;
        }
        ring.submit_and_wait(BATCH as usize)?;
        done += ring.completion().map(std::hint::black_box).count() as u64;
    }
    Ok(clock.now().get() as f64 / done as f64)
}

/// The same with client, recorder and clock.
fn ring_round() -> std::io::Result<f64> {
    let mut ring = new_ring()?;
    let (mut client, mut recorder) = client_and_recorder(BATCH);
    let mut slots: Vec<Option<(Issue<BlockOp>, Nanos)>> = vec![None; BATCH as usize];
    let (clock, mut done, mut now) = (Clock::start(), 0, Nanos::ZERO);
    while done < OPERATIONS {
        while let Step::Issue(issue) = client.next(now) {
            let entry = opcode::Nop::new().build().user_data(u64::from(issue.id.0));
            // SAFETY: a NOP refers to no memory.
            unsafe { ring.submission().push(&entry) }.map_err(std::io::Error::other)?;
            slots[issue.id.0 as usize] = Some((issue, now));
        }
        ring.submit_and_wait(BATCH as usize)?;
        now = clock.now();
        recorder.poll(now);
        for entry in ring.completion() {
            if let Some((issue, issued)) = slots[entry.user_data() as usize].take() {
                recorder.record(Sample::of(
                    &issue,
                    (issued, now),
                    (Outcome::Done, issue.op.length),
                ));
                client.completed(issue.id, Outcome::Done, now);
                done += 1;
            }
        }
    }
    let total = clock.now().get() as f64 / done as f64;
    std::hint::black_box(recorder.finish(now));
    Ok(total)
}
