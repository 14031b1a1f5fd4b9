//! One block trial on an open file or device: chooses the path, runs it, reports it.
//!
//! A fallback is never silent: the result names the path and the reason.

use std::sync::OnceLock;

use engine::{
    ClientEnd, EngineError, ErrorKind, Seat, Setting, Starter, TrialSpec, drive, run_clients,
};
use observe::{Control, IoWorkers};
use stats::{Limit, TrialResult};
use thiserror::Error;
use units::{Bytes, Nanos};
use workload::{BlockClient, BlockGroup, BlockPlan, Client, ClientIndex};

use crate::buffers::Buffers;
use crate::checked::Checked;
use crate::psync::{Psync, threads_of};
use crate::spec::{BlockSpec, Path};
use crate::uring::Ring;
use crate::{Corruption, Target, io_uring_available};

/// Why a trial could not run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// The study insists on io_uring and the kernel does not allow it.
    #[error("io_uring is not available: {0}")]
    NoIoUring(String),
    /// A thread or a ring failed.
    #[error("block I/O failed: {0}")]
    Failed(String),
    /// Data read is not what was written.
    #[error(transparent)]
    WrongData(Box<Corruption>),
    /// The target is smaller than the study's span.
    #[error("the target holds {have}, the study addresses {span}")]
    TooSmall {
        /// Size of the target.
        have: Bytes,
        /// Bytes addressed.
        span: Bytes,
    },
}

/// Runs `spec` on `target`, which holds at least the plan's span.
///
/// # Errors
/// [`RunError`] if it cannot start, the ring fails or data is corrupt; failed operations are data.
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
    notes.extend(single_note(paths, spec));
    let before = IoWorkers::now();
    let trial = TrialSpec {
        timeline: spec.timeline,
        stop_on_error: spec.stop_on_error,
        failures_max: None,
        max_lag: spec.max_lag,
    };
    // Filling the buffers of deep queues takes longer than a short trial.
    let usage = OnceLock::new();
    let ready = || usage.set(observe::usage()).unwrap_or_default();
    let setting = Setting { spec: &trial, control, ready: &ready, watch: None };
    let corruption = OnceLock::new();
    let data = Checked { target, ledger: spec.verify, corruption: &corruption };
    let mut starters = Vec::new();
    for group in &spec.groups {
        let of = clients_on(paths, spec, group);
        for index in 0..of {
            let index = ClientIndex { index, of };
            starters.push(Starter {
                background: group.plan.background,
                recorded: group.recorded,
                body: move |seat: Seat<'_>| client(seat, (data, spec, paths), (group, index)),
            });
        }
    }
    let finished = run_clients(setting, starters);
    let used = usage.get().map(|before| observe::usage().since(before));
    if let Some(corruption) = corruption.into_inner() {
        return Err(RunError::WrongData(corruption));
    }
    let finished = finished.map_err(|error| match error.kind() {
        ErrorKind::Refused => RunError::NoIoUring(error.reason()),
        _ => RunError::Failed(error.to_string()),
    })?;
    let mut workers = IoWorkers::default();
    finished.left.iter().for_each(|(_, own)| workers.join(own));
    let mut result = TrialResult { usage: used, ..finished.result };
    (result.notes, result.path) = (notes, path_text(&finished.left));
    result.notes.extend(punted_note(spec, workers.since(&before)));
    // In an open loop a thread polls, so its CPU time says little.
    let closed = spec.groups.iter().all(|group| !group.plan.arrivals.is_open());
    if closed && finished.busy >= Limit::THREAD_BUSY {
        result.limits.push(Limit::Thread { busy: finished.busy.min(1.0) });
    }
    Ok(result)
}

/// What a client returns: the features of its ring, `None` for a plain thread, and its kernel worker threads,
/// read before they end with it.
type Left = (Option<String>, IoWorkers);

/// One client thread of a group.
fn client(
    seat: Seat<'_>,
    (data, spec, paths): (Checked<'_>, &BlockSpec<'_>, Paths),
    (group, index): (&BlockGroup, ClientIndex),
) -> Result<(ClientEnd<BlockClient>, Left), EngineError> {
    let number = u64::from(seat.number());
    let client = |plan: BlockPlan| Client {
        classes: plan.classes(),
        open_loop: plan.arrivals.is_open(),
        recorded: group.recorded,
        workload: BlockClient::new(plan, spec.seed, index),
    };
    if !on_ring(paths, spec, group) {
        let plan = BlockPlan { queue_depth: 1, ..group.plan.clone() };
        let (size, seed) = (plan.sizes.largest() as usize, spec.seed.derive("thread", number));
        let buffers = Buffers::new(1, size, group.random_payload, seed);
        let mut session = Psync { data, buffers, spin: spec.spin };
        let end = drive(seat, &mut session, client(plan))?;
        return Ok((end, (None, IoWorkers::now())));
    }
    let ring = Ring::new(data, group, spec.seed.derive("ring", number));
    let mut ring =
        ring.map_err(|error| EngineError::refused(error.to_string(), "crosspoint doctor"))?;
    let end = drive(seat, &mut ring.session(data, group), client(group.plan.clone()))?;
    Ok((end, (Some(std::mem::take(&mut ring.features)), IoWorkers::now())))
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

/// Available I/O paths.
#[derive(Debug, Clone, Copy)]
struct Paths {
    /// Rings are allowed.
    ring: bool,
    /// The target supports RWF_NOWAIT.
    nowait: bool,
}

/// Whether a group runs on rings. Queue depth 1 uses a plain thread where a ring would use a worker thread,
/// whose cost would be measured: for every flush, and on targets that block on submission.
fn on_ring(paths: Paths, spec: &BlockSpec<'_>, group: &BlockGroup) -> bool {
    let punted = group.plan.sync_every > 0 || !paths.nowait;
    let single = group.plan.queue_depth == 1;
    paths.ring && (spec.path == Path::IoUring || !(single && punted))
}

/// Note on plain threads used because the target needs them.
fn single_note(paths: Paths, spec: &BlockSpec<'_>) -> Option<String> {
    let left = |group: &BlockGroup| group.plan.sync_every == 0 && !on_ring(paths, spec, group);
    (paths.ring && spec.groups.iter().any(left)).then(|| {
        "the target blocks on submission, so io_uring would use worker threads; queue depth 1 uses \
         pread and pwrite instead"
            .to_owned()
    })
}

fn clients_on(paths: Paths, spec: &BlockSpec<'_>, group: &BlockGroup) -> u32 {
    if on_ring(paths, spec, group) { group.clients } else { threads_of(group) }
}

fn path_text(ends: &[Left]) -> String {
    let rings = ends.iter().filter_map(|(features, _)| features.as_deref());
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

/// Note on requests that the kernel gave to worker threads. Flushes always go there.
fn punted_note(spec: &BlockSpec<'_>, (count, cpu): (usize, Nanos)) -> Option<String> {
    if spec.groups.iter().any(|group| group.plan.sync_every > 0) {
        return None;
    }
    (count > 0 && cpu > Nanos::ZERO).then(|| {
        format!(
            "the target blocks on submission, so io_uring used {count} worker threads ({cpu} of CPU, counted)"
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
            // One thread on both paths: several threads would each stop at another interval.
            let result = go(path, 1, true);
            let whole = result.recording.intervals.iter().filter(|i| i.phase != Phase::Drain);
            // Intervals that pass while the thread has no CPU are empty.
            let used = whole.filter(|i| i.tallies.iter().next().is_some()).count();
            assert!(used <= 1, "{}: {used}", result.path);
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

    /// A failing device must show failed operations with their offsets, not fast ones.
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
