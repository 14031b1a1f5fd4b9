//! A block trial once more, for a second, while the kernel reports each request's path.
//!
//! Invariants: the trial itself is not traced, so its figures do not include the cost; the trace's times are
//! used as shares only. A trace that fails costs the trial a note.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use block::{BlockSpec, Target};
use capture::Timeline;
use observe::Control;
use stack::Journal;
use stats::TrialResult;
use study::{Extent, Job, block_groups};
use tracer::{RecordOptions, TracerError};
use units::Nanos;

/// The job runs before the trace begins.
const SETTLE: Duration = Duration::from_millis(100);
/// Traced time, and the longest that tracing may take to begin.
const TRACED: Duration = Duration::from_secs(1);
const LONGEST: Nanos = Nanos::from_secs(60);
/// Bytes of events: about ten million.
const BYTES_MAX: usize = 64 << 20;

/// Adds the requests' paths to the trial's counters; returns a note.
pub(crate) fn trace(
    (target, spec): (&Target, &BlockSpec<'_>),
    (job, extent): (&Job, Extent),
    journal: &Journal,
    result: &mut TrialResult,
) -> String {
    // It runs until it is stopped.
    let measure = spec.timeline.measure + LONGEST;
    let timeline = stats::Timeline { measure, ..spec.timeline };
    let groups = match block_groups(job, Extent { until: timeline.until(), ..extent }) {
        Ok((groups, _)) => groups,
        Err(reason) => return format!("not traced: {reason}"),
    };
    let spec = &BlockSpec { groups, timeline, ..spec.clone() };
    let over = AtomicBool::new(false);
    let traced = std::thread::scope(|scope| {
        let control = Control { stop: &over, progress: None, keep: None };
        let job = scope.spawn(move || block::run(target, spec, &control));
        std::thread::sleep(SETTLE);
        let recorded = record(journal);
        over.store(true, Ordering::Relaxed);
        // An error of the job itself would be the trial's, which has ended well.
        job.join().ok().and_then(Result::ok).map(|job| (job, recorded))
    });
    let (job, recording) = match traced {
        Some((job, Ok(recording))) => (job, recording),
        Some((_, Err(error))) => return format!("not traced: {error}"),
        None => return "not traced: the job failed when it ran again".to_owned(),
    };
    let events = recording.events().unwrap_or_default();
    let timeline = Timeline::new(&recording.header, &events);
    for (kind, path) in ["read", "write"].into_iter().zip(&timeline.paths) {
        let counters = [
            ("submission", path.submission),
            ("block_layer", path.queue),
            ("drive", path.drive),
            ("wake_up", path.wake),
            ("completion", path.completion),
        ];
        for (name, time) in counters.into_iter().filter(|_| path.count > 0) {
            let _ = result.totals.insert(stats::path_total(kind, name), time as f64 / 1e9);
        }
    }
    let (own, traced) = (mean(result), mean(&job));
    let requests: u64 = timeline.paths.iter().map(|path| path.count).sum();
    format!(
        "traced for {} after the trial: {requests} requests; operations took {:+.0} % of the trial's time",
        Nanos(TRACED.as_nanos() as u64),
        (traced / own.max(1.0) - 1.0) * 100.0,
    )
}

fn record(journal: &Journal) -> Result<capture::Recording, TracerError> {
    let wanted = RecordOptions {
        pids: vec![std::process::id()],
        time: TRACED,
        overhead_max: 1.0,
        bytes_max: BYTES_MAX,
        at_once: true,
    };
    tracer::record(&wanted, (journal, &AtomicBool::new(false)), &mut |_| {})
}

/// Mean time of an operation, ns; 0 without any.
fn mean(result: &TrialResult) -> f64 {
    let total = result.recording.total(None).counts;
    total.latency_sum.get() as f64 / total.ops.max(1) as f64
}
