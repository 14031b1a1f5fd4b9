//! One block trial on an open file or device: choosing the path, running it, saying what was done.
//!
//! Invariant: a fallback is never silent; the result names the path that ran and why. What it is not:
//! preparation of the target.

use std::fs::File;
use std::time::Instant;

use observe::Control;
use stats::{Recorder, Recording, Timeline};
use thiserror::Error;
use units::{Bytes, Seed};
use workload::{Arrivals, BlockPlan, ClientIndex};

use crate::psync::run_psync;
use crate::uring::{UringFailure, run_uring};
use crate::{Clock, io_uring_available};

/// How operations reach the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// io_uring if the kernel lets us, else threads.
    Auto,
    /// io_uring.
    IoUring,
    /// A thread for each operation in flight.
    Psync,
}

/// A block trial.
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    /// What each client does.
    pub plan: BlockPlan,
    /// Submitting threads, each a client.
    pub threads: u32,
    /// io_uring: completions to wait for at once, at least 1.
    pub batch: u32,
    /// Phases and interval.
    pub timeline: Timeline,
    /// Seed of offsets and payload.
    pub seed: Seed,
    /// Path to the kernel.
    pub path: Path,
    /// End the trial at the first failed operation.
    pub stop_on_error: bool,
}

impl Spec {
    /// A recorder for one client: with service times when they differ from response times.
    pub(crate) fn recorder(&self) -> Recorder {
        match self.plan.arrivals {
            Arrivals::Closed { .. } => Recorder::new(self.timeline),
            Arrivals::Constant(_) | Arrivals::Poisson(_) => Recorder::with_service(self.timeline),
        }
    }
}

/// What a trial gave.
#[derive(Debug)]
pub struct RunResult {
    /// The time series.
    pub recording: Recording,
    /// Things that the reader of the figures must know.
    pub notes: Vec<String>,
    /// The path that ran, for people.
    pub path: String,
}

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
/// [`RunError`] when it can not start or the ring breaks down; failed operations are data instead.
pub fn run(target: &File, spec: &Spec, control: &Control<'_>) -> Result<RunResult, RunError> {
    let have = size_of(target);
    if have < spec.plan.span {
        return Err(RunError::TooSmall { have, span: spec.plan.span });
    }
    let mut notes = Vec::new();
    let uring = match spec.path {
        Path::Psync => false,
        Path::IoUring | Path::Auto => match io_uring_available() {
            Ok(()) => true,
            Err(reason) if spec.path == Path::IoUring => return Err(RunError::NoIoUring(reason)),
            Err(reason) => {
                notes.push(format!(
                    "io_uring is not available ({reason}); {} threads with pread and pwrite instead",
                    spec.plan.queue_depth * spec.threads
                ));
                false
            }
        },
    };
    let clock = Clock(Instant::now());
    if uring {
        let (recording, features) = run_rings(target, spec, control, clock)?;
        return Ok(RunResult { recording, notes, path: format!("io_uring ({features})") });
    }
    let recording = run_psync(target, spec, control, clock);
    let path = format!("pread/pwrite, {} threads", spec.plan.queue_depth * spec.threads);
    Ok(RunResult { recording, notes, path })
}

/// A thread with a ring of its own for each client.
fn run_rings(
    target: &File,
    spec: &Spec,
    control: &Control<'_>,
    clock: Clock,
) -> Result<(Recording, String), RunError> {
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..spec.threads)
            .map(|index| {
                let client = ClientIndex { index, of: spec.threads };
                scope.spawn(move || run_uring(target, spec, client, control, clock))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    let (mut merged, mut features) = (Recording::default(), String::new());
    for result in results {
        let result = result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let (recording, had) = result.map_err(|error| match error {
            UringFailure::SetUp(reason) => RunError::NoIoUring(reason),
            UringFailure::Running(reason) => RunError::Ring(reason),
        })?;
        merged.merge(&recording);
        features = had;
    }
    if spec.threads > 1 {
        features.push_str(&format!(", {} threads", spec.threads));
    }
    Ok((merged, features))
}

/// Bytes that a file or block device holds.
fn size_of(target: &File) -> Bytes {
    use std::io::{Seek, SeekFrom};
    let mut handle = target;
    Bytes(handle.seek(SeekFrom::End(0)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stats::Phase;
    use std::sync::atomic::AtomicBool;
    use units::{Nanos, Share};
    use workload::{OpClass, Pattern};

    fn spec(path: Path, queue_depth: u32) -> Spec {
        let timeline = Timeline {
            warm_up: Nanos::from_millis(20),
            measure: Nanos::from_millis(100),
            interval: Nanos::from_millis(20),
        };
        let plan = BlockPlan {
            pattern: Pattern::Random,
            read_share: "50%".parse::<Share>().unwrap(),
            block_size: Bytes(4096),
            span: Bytes::mib(4),
            queue_depth,
            arrivals: Arrivals::Closed { think: Nanos::ZERO },
            end: timeline.end(),
        };
        Spec { plan, threads: 1, batch: 1, timeline, seed: Seed(1), path, stop_on_error: true }
    }

    fn target(size: Bytes) -> (tempfile::TempDir, File) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        std::fs::write(&path, vec![7u8; size.get() as usize]).unwrap();
        let file = File::options().read(true).write(true).open(path).unwrap();
        (dir, file)
    }

    fn go(path: Path, depth: u32, stop: bool) -> RunResult {
        let (_dir, file) = target(Bytes::mib(4));
        let stop = AtomicBool::new(stop);
        let control = Control { stop: &stop, progress: None };
        run(&file, &spec(path, depth), &control).unwrap()
    }

    #[test]
    fn both_paths_record_reads_and_writes_in_every_interval() {
        for path in [Path::Auto, Path::Psync] {
            let result = go(path, 4, false);
            let measured: Vec<_> = result.recording.measured().collect();
            assert_eq!(measured.len(), 5, "{}", result.path);
            for class in OpClass::ALL {
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
        let control = Control { stop: &stop, progress: None };
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
            let file = File::open(&name).unwrap();
            let stop = AtomicBool::new(false);
            let control = Control { stop: &stop, progress: None };
            let result = run(&file, &spec(path, 2), &control).unwrap();
            assert!(result.recording.errors() >= 1, "{}", result.path);
            assert_eq!(result.recording.error_samples[0].errno, libc::EBADF);
            assert!(result.recording.seconds() < 0.09, "went on after the failure");
        }
    }
}
