//! Measures the overhead of this host's I/O path on a file.
//!
//! On a slow disk the fixed cost of a round is included. Invariants: needs no privileges; everything created
//! is in the undo journal; rounds are interleaved and their medians used, so a busy moment affects all alike.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use block::{BlockSpec, Target};
use observe::{Control, Provenance, Waking};
use sim::{Calibration, HostModel, PathCost, WakeUps};
use stack::{Journal, StackError, WorkArea, fill};
use stats::Timeline;
use units::{Bytes, Nanos, Seed};
use workload::{BlockGroup, BlockPlan};

use crate::RunnerError;
use crate::measured::open_file;

/// Size of the temporary file that calibration uses.
const SIZE: Bytes = Bytes::mib(64);
/// Number of rounds; medians are used.
const ROUNDS: usize = 5;
/// Queue depths. With pread a thread sleeps in every operation, so the overhead of the path cannot be
/// separated from that of sleeping; psync gets io_uring's.
const DEPTHS: [u32; 4] = [1, 4, 16, 64];

/// Identifies this host in a calibration, which is invalid on another kernel or CPU.
#[must_use]
pub fn host_name() -> String {
    let facts = Provenance::read("", "");
    let (cores, siblings) = observe::cores();
    let twice = if siblings { " of two hardware threads" } else { "" };
    format!("{}; {}; processors {}, cores {cores}{twice}", facts.kernel, facts.cpu, facts.cpus)
}

/// Measures the I/O path on a file in `directory`; `None` if stopped. `tell` receives the number of completed
/// steps and their total. Takes about 15 s.
///
/// # Errors
/// The directory has no space for 128 MiB or no direct I/O, or the kernel has no io_uring.
pub fn calibrate(
    directory: &Path,
    (journal, stop): (&Journal, &AtomicBool),
    tell: &mut dyn FnMut(usize, usize),
) -> Result<Option<Calibration>, RunnerError> {
    stack::check_directory(directory)?;
    let area = WorkArea::create(journal, directory, "calibrate")?;
    let path = area.path().join("block.data");
    let stopping = || stop.load(Ordering::Relaxed);
    if fill(&path, SIZE, true, &mut |_| !stopping())?.is_none() {
        return Ok(None);
    }
    let steps = DEPTHS.len() * ROUNDS;
    let mut found: Vec<Vec<Cost>> = vec![Vec::new(); DEPTHS.len()];
    let mut sleeps = Vec::new();
    for round in 0..ROUNDS {
        sleeps.push(sleeps_of()?);
        for (place, depth) in DEPTHS.into_iter().enumerate() {
            tell(round * DEPTHS.len() + place, steps);
            found[place].extend(cost_of(&path, depth, stop)?);
            if stopping() {
                return Ok(None);
            }
        }
    }
    tell(steps, steps);
    let client = Nanos(block::own_cost().single_ns as u64);
    let cost = |(depth, rounds): (u32, Vec<Cost>)| PathCost {
        name: HostModel::io_uring().name.to_owned(),
        depth,
        cpu: Nanos(median(rounds.iter().map(|one| one.cpu_ns)) as u64),
        sleeps: (median(rounds.iter().map(|one| one.sleeps)) * 1000.0).round() / 1000.0,
        client,
        rate: median(rounds.iter().map(|one| one.rate)).round(),
    };
    let path = DEPTHS.into_iter().zip(found).map(cost).collect();
    let names = (host_name(), jiff::Zoned::now().date().to_string());
    let (same, other) = observe::hops(Waking::Event).map_err(thread_error)?;
    let (same_cpu, other_cpu) = (same.time, other.map(|hop| hop.time));
    let time = |place: usize| {
        Nanos(median(sleeps.iter().map(|round: &[Nanos; 3]| round[place].get() as f64)) as u64)
    };
    let (interrupt, interrupt_p90, cpu) = (time(0), time(1), time(2));
    let wake_ups = WakeUps { interrupt, interrupt_p90, cpu, same_cpu, other_cpu };
    let mut found = Calibration::new(names, observe::cores(), wake_ups, path);
    found.page_cache = observe::page_cache_costs(area.path()).ok();
    found.possible().map_err(|reason| unfit(directory, &reason))?;
    // Work of kernel worker threads is not part of this thread's path.
    match found.path.iter().find(|path| path.depth >= 16 && path.sleeps > SLEEPS_MAX) {
        Some(_) => {
            Err(unfit(directory, "the kernel hands requests of this file to worker threads"))
        }
        None if stopping() => Ok(None),
        None => Ok(Some(found)),
    }
}

/// Maximum number of sleeps per operation at a deep queue.
const SLEEPS_MAX: f64 = 0.5;

fn unfit(directory: &Path, reason: &str) -> RunnerError {
    let file = format!("the file in {}", directory.display());
    RunnerError::environment(
        &file,
        reason,
        "crosspoint calibrate DIRECTORY, on another disk, not in memory",
    )
}

/// The cost measured by one round.
#[derive(Debug, Clone, Copy)]
struct Cost {
    /// CPU time per operation.
    cpu_ns: f64,
    /// Sleeps per operation.
    sleeps: f64,
    /// Operations per second.
    rate: f64,
}

/// One round; `None` if nothing completed.
fn cost_of(path: &Path, depth: u32, stop: &AtomicBool) -> Result<Option<Cost>, RunnerError> {
    let timeline = Timeline {
        warm_up: Nanos::from_millis(50),
        measure: Nanos::from_millis(600),
        interval: Nanos::from_millis(200),
    };
    let plan = BlockPlan { queue_depth: depth, ..BlockPlan::reads(4096, SIZE, timeline.until()) };
    let spec = BlockSpec {
        path: block::Path::IoUring,
        ..BlockSpec::new(vec![BlockGroup::new(plan)], timeline, Seed(1))
    };
    let target = Target::one(open_file(path, true)?, SIZE);
    let before = observe::usage();
    let control = Control { stop, progress: None, keep: None };
    let result = block::run(&target, &spec, &control).map_err(|error| {
        RunnerError::environment("calibrate", error.to_string(), "crosspoint doctor")
    })?;
    let used = observe::usage().since(&before);
    if let Some(reason) = result.failure {
        let next = "crosspoint calibrate DIRECTORY, on another disk";
        return Err(RunnerError::environment("calibrate", reason, next));
    }
    let all: u64 = result.recording.intervals.iter().map(|interval| interval.counts().ops).sum();
    let total = result.recording.total(None).counts.ops as f64;
    let rate = total / result.recording.seconds().max(1e-9);
    let each = |count: u64| count as f64 / all as f64;
    let (cpu_ns, sleeps) = (each(used.cpu().get()), each(used.switches_voluntary));
    Ok((all > 0).then_some(Cost { cpu_ns, sleeps, rate }))
}

/// Median and p90 of a sleeper's wake-up latency, and the CPU time of a sleep.
fn sleeps_of() -> Result<[Nanos; 3], RunnerError> {
    let (sleeps, cpu) = observe::interrupt_wake_ups().map_err(thread_error)?;
    let at = |part: usize| sleeps.get(sleeps.len() * part / 100).copied().unwrap_or_default();
    Ok([at(50), at(90), cpu])
}

fn thread_error(error: std::io::Error) -> RunnerError {
    StackError::io("make threads in", Path::new("/proc/self"))(error).into()
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
