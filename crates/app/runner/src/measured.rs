//! Block trials on real files and devices.
//!
//! Invariant: the target is opened once a trial, behind the safety guard when it is a device. What it
//! is not: preparation; the file was filled before.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use block::{RunError, RunResult, Spec};
use observe::Control;
use stack::{Access, StackError, open_device};
use study::{BlockJob, Experiment, OnError, Pattern, Stack, Submission, Trial};
use units::{Bytes, Nanos, Seed, Share};
use workload::BlockPlan;

use crate::RunnerError;

/// `O_DIRECT` on Linux for the architectures that Rust's standard library can open with.
const O_DIRECT: i32 = libc::O_DIRECT;

/// The workload's view of a block job.
pub(crate) fn block_plan(job: &BlockJob, span: Bytes, end: Nanos) -> BlockPlan {
    BlockPlan {
        pattern: match job.pattern {
            Pattern::Random => workload::Pattern::Random,
            Pattern::Sequential => workload::Pattern::Sequential,
        },
        read_share: job.read_share,
        block_size: job.block_size,
        span,
        queue_depth: job.queue_depth,
        arrivals: match job.arrivals {
            study::Arrivals::Closed => workload::Arrivals::Closed { think: job.think_time },
            study::Arrivals::Constant => workload::Arrivals::Constant(job.rate),
            study::Arrivals::Poisson => workload::Arrivals::Poisson(job.rate),
        },
        end,
    }
}

/// Opens the temporary file of a stack.
pub(crate) fn open_file(path: &Path, direct: bool) -> Result<File, RunnerError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    if direct {
        options.custom_flags(O_DIRECT);
    }
    Ok(options.open(path).map_err(StackError::io("open", path))?)
}

/// Opens the block device of a stack past the guard. Without `allow_write` only reads are possible.
pub(crate) fn open_block_device(
    stack: &Stack,
    path: &str,
    confirmed: Option<&str>,
) -> Result<File, RunnerError> {
    let access = if stack.allow_write { Access::Destroy { confirmed } } else { Access::ReadOnly };
    Ok(open_device(Path::new(path), access, stack.direct)?)
}

/// Refuses a plan that would write to a stack that may only be read.
pub(crate) fn check_writes(stack: &Stack, jobs: &[&BlockJob]) -> Result<(), RunnerError> {
    let writes = jobs.iter().any(|job| job.read_share != Share::ALL);
    if writes && !stack.allow_write {
        return Err(RunnerError::Stack(StackError::Refused {
            device: stack.device.text(),
            reason: format!("the study writes to it, but stack `{}` allows no writes", stack.name),
            next: format!("if its data may be lost: --set stack.{}.allow_write=true", stack.name),
        }));
    }
    Ok(())
}

/// Runs one trial on an open target.
pub(crate) fn run(
    target: &File,
    stack: &Stack,
    experiment: &Experiment,
    (trial, job): (&Trial, &BlockJob),
    (seed, control): (Seed, &Control<'_>),
) -> Result<RunResult, RunnerError> {
    let spec = Spec {
        plan: block_plan(job, stack.size, trial.timeline.end()),
        threads: job.threads,
        batch: job.batch,
        timeline: trial.timeline,
        seed,
        path: match stack.submission {
            Submission::Auto => block::Path::Auto,
            Submission::IoUring => block::Path::IoUring,
            Submission::Psync => block::Path::Psync,
        },
        stop_on_error: experiment.on_error == OnError::Stop,
    };
    block::run(target, &spec, control).map_err(|error| {
        let next = match &error {
            RunError::NoIoUring(_) => format!(
                "use threads instead: --set stack.{}.submission=psync; crosspoint doctor says more",
                stack.name
            ),
            RunError::TooSmall { have, .. } => {
                format!("--set stack.{}.size={}", stack.name, have.exact())
            }
            _ => "crosspoint doctor".into(),
        };
        RunnerError::Environment { stack: stack.name.clone(), reason: error.to_string(), next }
    })
}
