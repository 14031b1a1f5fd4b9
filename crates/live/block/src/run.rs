//! One block trial on an open file or device: choosing the path, running it, saying what was done.
//!
//! Invariant: a fallback is never silent; the result names the path that ran and why. What it is not:
//! preparation of the target.

use observe::{Clock, Control, IoWorkers};
use stats::{Limit, Recording, TrialResult};
use thiserror::Error;
use units::{Bytes, Nanos};
use workload::{BlockGroup, ClientIndex};

use crate::psync::{run_psync, threads_of};
use crate::shared::{BlockShared, ClientEnd};
use crate::spec::{BlockSpec, Path};
use crate::uring::{UringFailure, run_uring};
use crate::{Corruption, Target, io_uring_available};

/// Why a trial could not run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// The study insists on io_uring and the kernel does not allow it.
    #[error("io_uring is not available: {0}")]
    NoIoUring(String),
    /// The ring broke down during the trial.
    #[error("io_uring failed: {0}")]
    Ring(String),
    /// Data read is not what was written.
    #[error(transparent)]
    WrongData(Box<Corruption>),
    /// The target is smaller than what the study addresses.
    #[error("the target holds {have}, the study addresses {span}")]
    TooSmall {
        /// Bytes there are.
        have: Bytes,
        /// Bytes addressed.
        span: Bytes,
    },
}

/// Runs `spec` on `target`, which holds at least the plan's span.
///
/// # Errors
/// [`RunError`] when it cannot start, the ring breaks down or data is wrong; failed operations are data
/// instead.
pub fn run(
    target: &Target,
    spec: &BlockSpec<'_>,
    control: &Control<'_>,
) -> Result<TrialResult, RunError> {
    let (have, span) = (target.smallest(), target.each());
    if have < span {
        return Err(RunError::TooSmall { have, span });
    }
    let mut notes = Vec::new();
    let paths = Paths { ring: ring_allowed(spec, &mut notes)?, nowait: target.takes_nowait() };
    let foreground = spec.groups.iter().filter(|group| !group.plan.background);
    let foreground: u32 = foreground.map(|group| clients_on(paths, spec, group)).sum();
    notes.extend(single_note(paths, spec));
    let recorded = spec.groups.iter().filter(|group| group.recorded);
    control.expect(recorded.map(|group| clients_on(paths, spec, group)).sum());
    let before = IoWorkers::now();
    let clock = Clock::start();
    let shared = BlockShared::new((target, spec), control, clock, foreground);
    let mut ends = run_clients(&shared, paths)?;
    let lag = shared.lag();
    if let Some(corruption) = shared.corruption.into_inner() {
        return Err(RunError::WrongData(corruption));
    }
    let mut result = TrialResult { notes, path: path_text(&ends), ..TrialResult::default() };
    let (mut workers, mut busy) = (IoWorkers::default(), 0.0f64);
    for (end, _) in &ends {
        workers.join(&end.workers);
        result.recording.merge(&end.recording);
        busy = busy.max(end.busy);
    }
    let over = ends.iter().map(|(end, _)| end.at).max().unwrap_or_default();
    for (client, shares) in ends.iter_mut().filter_map(|(end, _)| end.client.as_mut()) {
        result.recording.missed_by(shares, client, (&spec.timeline, over));
    }
    result.notes.extend(shared.control.take_back(&mut result.recording));
    result.notes.extend(punted_note(spec, workers.since(&before)));
    // In an open loop a thread waits actively, so there its time says little.
    let closed = spec.groups.iter().all(|group| !group.plan.arrivals.is_open());
    if closed && busy >= Limit::THREAD_BUSY {
        result.limits.push(Limit::Thread { busy: busy.min(1.0) });
    }
    result.failure = failure(spec, &result.recording, lag).or(clock.trouble());
    Ok(result)
}

/// Why a trial failed: an operation that should end it did, or the load was not kept up.
fn failure(spec: &BlockSpec<'_>, recording: &Recording, lag: Option<Nanos>) -> Option<String> {
    let failed = recording.error_samples.first().filter(|_| spec.stop_on_error);
    let failed = failed.map(|sample| {
        let (class, position) = (sample.class.word(), sample.position);
        format!("{class} at byte {position}: {}", std::io::Error::from_raw_os_error(sample.errno))
    });
    let behind = || {
        lag.map(|lag| {
            format!(
                "the load was not kept up: stopped when an operation was issued {lag} after it was due"
            )
        })
    };
    failed.or_else(behind)
}

/// Whether clients use rings; a fallback is noted.
fn ring_allowed(spec: &BlockSpec<'_>, notes: &mut Vec<String>) -> Result<bool, RunError> {
    if spec.path == Path::Psync {
        return Ok(false);
    }
    match io_uring_available() {
        Ok(()) => Ok(true),
        Err(reason) if spec.path == Path::IoUring => Err(RunError::NoIoUring(reason)),
        Err(reason) => {
            let threads: u32 = spec.groups.iter().map(threads_of).sum();
            notes.push(format!(
                "io_uring is not available ({reason}); {threads} threads with pread and pwrite instead"
            ));
            Ok(false)
        }
    }
}

/// What ways to the kernel there are.
#[derive(Debug, Clone, Copy)]
struct Paths {
    /// Rings may be used.
    ring: bool,
    /// The target takes requests without waiting.
    nowait: bool,
}

/// Whether a group runs on rings. One operation at a time is left to a plain thread where a ring would hand
/// it to a worker thread, which would be measured with it: every flush, and everything on a target that
/// does not take requests without waiting.
fn on_ring(paths: Paths, spec: &BlockSpec<'_>, group: &BlockGroup) -> bool {
    let punted = group.plan.sync_every > 0 || !paths.nowait;
    let single = group.plan.queue_depth == 1;
    paths.ring && (spec.path == Path::IoUring || !(single && punted))
}

/// What to say when one operation at a time was left to plain threads for the target's sake.
fn single_note(paths: Paths, spec: &BlockSpec<'_>) -> Option<String> {
    let left = |group: &BlockGroup| group.plan.sync_every == 0 && !on_ring(paths, spec, group);
    (paths.ring && spec.groups.iter().any(left)).then(|| {
        "the target does not take requests without waiting, and io_uring would hand each to a worker \
         thread; one at a time goes through pread and pwrite instead"
            .to_owned()
    })
}

fn clients_on(paths: Paths, spec: &BlockSpec<'_>, group: &BlockGroup) -> u32 {
    if on_ring(paths, spec, group) { group.clients } else { threads_of(group) }
}

/// Every client on a thread of its own; each with the ring features it had, none for a plain thread.
fn run_clients(
    shared: &BlockShared<'_>,
    paths: Paths,
) -> Result<Vec<(ClientEnd, Option<String>)>, RunError> {
    let spec = shared.spec;
    let results: Vec<_> = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for group in &spec.groups {
            let of = clients_on(paths, spec, group);
            for index in 0..of {
                let (index, number) = (ClientIndex { index, of }, threads.len() as u32);
                threads.push(scope.spawn(move || {
                    if on_ring(paths, spec, group) {
                        run_uring(shared, group, index, number).map(|(end, had)| (end, Some(had)))
                    } else {
                        Ok((run_psync(shared, group, index, number), None))
                    }
                }));
            }
        }
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    let mut ends = Vec::with_capacity(results.len());
    for result in results {
        let result = result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        ends.push(result.map_err(|error| match error {
            UringFailure::SetUp(reason) => RunError::NoIoUring(reason),
            UringFailure::Running(reason) => RunError::Ring(reason),
        })?);
    }
    Ok(ends)
}

fn path_text(ends: &[(ClientEnd, Option<String>)]) -> String {
    let rings = ends.iter().filter_map(|(_, had)| had.as_deref());
    let plain = ends.len() - rings.clone().count();
    let mut parts = Vec::new();
    if let Some(features) = rings.clone().next() {
        let count = rings.count();
        let threads = if count > 1 { format!(", {count} threads") } else { String::new() };
        parts.push(format!("io_uring ({features}{threads})"));
    }
    if plain > 0 {
        let word = if plain == 1 { "thread" } else { "threads" };
        parts.push(format!("pread/pwrite, {plain} {word}"));
    }
    parts.join("; ")
}

/// What to say when the kernel handed requests to worker threads. Flushes always go there.
fn punted_note(spec: &BlockSpec<'_>, (count, cpu): (usize, Nanos)) -> Option<String> {
    if spec.groups.iter().any(|group| group.plan.sync_every > 0) {
        return None;
    }
    (count > 0 && cpu > Nanos::ZERO).then(|| {
        format!(
            "the target does not take requests without waiting, so the kernel handed them to {count} \
             worker threads ({cpu} of CPU, counted)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use stats::Phase;
    use stats::Timeline;
    use std::fs::File;
    use std::sync::atomic::AtomicBool;
    use units::{Seed, Share};
    use workload::{BlockPlan, OpClass};

    fn spec(path: Path, queue_depth: u32) -> BlockSpec<'static> {
        let timeline = Timeline {
            warm_up: Nanos::from_millis(20),
            measure: Nanos::from_millis(100),
            interval: Nanos::from_millis(20),
        };
        let plan = BlockPlan {
            read_share: "50%".parse::<Share>().unwrap(),
            queue_depth,
            ..BlockPlan::reads(4096, Bytes::mib(4), timeline.end())
        };
        BlockSpec { path, ..BlockSpec::new(vec![BlockGroup::new(plan)], timeline, Seed(1)) }
    }

    fn target(size: Bytes) -> (tempfile::TempDir, Target) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        std::fs::write(&path, vec![7u8; size.get() as usize]).unwrap();
        let file = File::options().read(true).write(true).open(path).unwrap();
        (dir, Target::one(file, Bytes::mib(4)))
    }

    fn go(path: Path, depth: u32, stop: bool) -> TrialResult {
        let (_dir, file) = target(Bytes::mib(4));
        let stop = AtomicBool::new(stop);
        let control = Control { stop: &stop, progress: None, keep: None };
        run(&file, &spec(path, depth), &control).unwrap()
    }

    #[test]
    fn both_paths_record_reads_and_writes_in_every_interval() {
        for path in [Path::Auto, Path::Psync] {
            let result = go(path, 4, false);
            let measured: Vec<_> = result.recording.measured().collect();
            assert_eq!(measured.len(), 5, "{}", result.path);
            for class in [OpClass::Read, OpClass::Write] {
                assert!(result.recording.total(Some(class)).counts.ops > 0, "{}", result.path);
            }
            assert_eq!(result.recording.errors(), 0);
        }
    }

    #[test]
    fn a_stop_ends_at_the_next_interval() {
        for path in [Path::Auto, Path::Psync] {
            let result = go(path, 4, true);
            let whole = result.recording.intervals.iter().filter(|i| i.phase != Phase::Drain);
            assert_eq!(whole.count(), 1, "{}", result.path);
        }
    }

    #[test]
    fn a_target_that_is_too_small_is_refused() {
        let (_dir, file) = target(Bytes::mib(1));
        let stop = AtomicBool::new(false);
        let control = Control { stop: &stop, progress: None, keep: None };
        let error = run(&file, &spec(Path::Auto, 1), &control).unwrap_err();
        assert!(matches!(error, RunError::TooSmall { .. }));
    }

    /// A failing device must show as failed operations with their place, not as fast ones.
    #[test]
    fn failures_are_recorded_and_stop_the_trial() {
        for path in [Path::Auto, Path::Psync] {
            let dir = tempfile::tempdir().unwrap();
            let name = dir.path().join("data");
            std::fs::write(&name, vec![7u8; 4 << 20]).unwrap();
            // Opened for reading only: every write fails with EBADF.
            let file = Target::one(File::open(&name).unwrap(), Bytes::mib(4));
            let stop = AtomicBool::new(false);
            let control = Control { stop: &stop, progress: None, keep: None };
            let result = run(&file, &spec(path, 2), &control).unwrap();
            assert!(result.recording.errors() >= 1, "{}", result.path);
            assert_eq!(result.recording.error_samples[0].errno, libc::EBADF);
            assert!(result.recording.seconds() < 0.09, "went on after the failure");
        }
    }
}
