//! Preconditioning: the device is filled, then worked on in rounds until it is steady (SNIA Solid State
//! Storage Performance Test Specification 2.0.2, and more strictly: `stats::steady`). A job that writes must
//! also have written twice its span: a plateau before a write cliff looks steady.
//!
//! Invariant: whether steady state was reached is reported, never assumed.

use block::{BlockSpec, Target};
use observe::Control;
use stats::Timeline;
use stats::steady::{ROUNDS, Steadiness};
use study::Precondition;
use units::{Bytes, Nanos, Share, human_count};
use workload::{BlockGroup, BlockPlan, Pattern};

/// Block size and number of fill writes in flight.
const FILL_BLOCK: u32 = 128 << 10;
const FILL_DEPTH: u32 = 32;
/// A fill ends after this time at the latest, finished or not.
const FILL_TIME_MAX: Nanos = Nanos::from_secs(7 * 24 * 3600);
/// Interval of progress while filling.
const FILL_INTERVAL: Nanos = Nanos::from_secs(10);

/// Preconditions, and returns a note; `None` if the user stopped it.
pub(crate) fn precondition(
    target: &Target,
    spec: &BlockSpec<'_>,
    wanted: &Precondition,
    (fills, control): (u32, &Control<'_>),
) -> Result<Option<String>, block::RunError> {
    let mut words = Vec::new();
    if fills > 0 {
        let (filled, errors) = fill(target, spec, fills, control)?;
        let failed = match errors {
            0 => String::new(),
            errors => format!(", but {errors} of the writes FAILED"),
        };
        words.push(format!("{fills} x {filled} written in 128 KiB{failed}"));
    }
    if control.stopping() {
        return Ok(None);
    }
    let mut rounds: Vec<f64> = Vec::new();
    let mut steady = None;
    let mut written = Written { bytes: 0, span: span_of_writes(spec) };
    let interval = wanted.round;
    let timeline = Timeline { warm_up: Nanos::ZERO, measure: interval, interval };
    while rounds.len() < wanted.rounds_max as usize {
        let mut groups = spec.groups.clone();
        groups.iter_mut().for_each(|group| group.plan.until = timeline.end().into());
        let seed = spec.seed.derive("round", rounds.len() as u64);
        let round = BlockSpec { groups, timeline, seed, verify: None, ..spec.clone() };
        let recording = block::run(target, &round, control)?.recording;
        if control.stopping() {
            return Ok(None);
        }
        let ops = recording.total(None).counts.ops;
        rounds.push(ops as f64 / recording.seconds().max(1e-9));
        let writes = |i: &stats::Interval| i.tallies[workload::OpClass::Write].counts.bytes;
        written.bytes += recording.intervals.iter().map(writes).sum::<u64>();
        steady = Steadiness::of(&rounds);
        if steady.is_some_and(|steady| steady.is_steady()) && written.is_enough() {
            break;
        }
    }
    if wanted.rounds_max > 0 {
        words.push(verdict(&rounds, steady, wanted.round, &written));
    }
    Ok(Some(format!("preconditioned: {}", words.join("; "))))
}

/// Fills the span; returns its size and the number of failed writes.
fn fill(
    target: &Target,
    spec: &BlockSpec<'_>,
    fills: u32,
    control: &Control<'_>,
) -> Result<(Bytes, u64), block::RunError> {
    let first = &spec.groups[0].plan;
    let blocks = first.span.get() / u64::from(FILL_BLOCK);
    let (warm_up, measure, interval) = (Nanos::ZERO, FILL_TIME_MAX, FILL_INTERVAL);
    let timeline = Timeline { warm_up, measure, interval };
    let plan = BlockPlan {
        pattern: Pattern::Sequential,
        read_share: Share::NONE,
        queue_depth: FILL_DEPTH,
        devices: first.devices,
        operations: Some(blocks * u64::from(fills)),
        ..BlockPlan::reads(FILL_BLOCK, first.span, timeline.end())
    };
    let groups = vec![BlockGroup::new(plan)];
    let fill = BlockSpec { groups, timeline, verify: None, max_lag: None, ..spec.clone() };
    let recording = block::run(target, &fill, control)?.recording;
    Ok((first.span, recording.errors()))
}

/// Bytes of the span that the job writes; 0 for a read-only job.
fn span_of_writes(spec: &BlockSpec<'_>) -> u64 {
    let writing = spec.groups.iter().filter(|group| group.plan.read_share < Share::ALL);
    writing.map(|group| group.plan.span.get()).max().unwrap_or(0)
}

/// Bytes written by the rounds.
struct Written {
    bytes: u64,
    span: u64,
}

impl Written {
    /// Multiples of its span that a writing job must have written.
    const SPANS: u64 = 2;

    fn is_enough(&self) -> bool {
        self.bytes >= self.span * Self::SPANS
    }
}

fn verdict(rounds: &[f64], steady: Option<Steadiness>, round: Nanos, written: &Written) -> String {
    let (count, rates) = (rounds.len(), rates_text(rounds));
    let Some(steady) = steady else {
        return format!(
            "steady state unknown: {count} rounds of {round}, {ROUNDS} required: {rates} IOPS"
        );
    };
    let (range, drift) = (steady.range * 100.0, steady.drift * 100.0);
    let shift = steady.shift * 100.0;
    let reached = match (steady.is_steady(), written.is_enough()) {
        (true, true) => "reached after".to_owned(),
        (true, false) => format!(
            "unknown: steady so far, but {:.1} times the span was written ({} required); after",
            written.bytes as f64 / written.span.max(1) as f64,
            Written::SPANS
        ),
        (false, _) => "NOT reached within".to_owned(),
    };
    format!(
        "steady state {reached} {count} rounds of {round} (last {ROUNDS}: range {range:.1} %, drift \
         {drift:.1} % of the mean, shift {shift:.1} %; limits 20 %, 10 % and 5 %): {rates} IOPS"
    )
}

fn rates_text(rounds: &[f64]) -> String {
    let rates: Vec<String> = rounds.iter().map(|rate| human_count(*rate)).collect();
    rates.join(", ")
}
