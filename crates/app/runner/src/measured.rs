//! Block trials on real files and devices.
//!
//! Invariant: the target is opened once per trial, behind the safety guard if it is a device. Files were
//! filled before.

use std::any::Any;
use std::fs::File;
use std::path::Path;

use block::{BlockSpec, Ledger, OwnCost, RunError, Target};
use observe::{Control, HostCpu};
use stack::{Journal, OpenMode, StackError, open_quietly};
use stats::{DiskCounters, Limit, TrialResult};
use study::{
    Experiment, Extent, Job, OnError, Precondition, Stack, Submission, Trial, block_groups,
};
use units::{Nanos, Seed};

use crate::RunnerError;
use crate::precondition::precondition;
use crate::traced;

/// Opens the temporary file of a stack.
pub(crate) fn open_file(path: &Path, direct: bool) -> Result<File, RunnerError> {
    let opened = open_quietly(path, OpenMode { write: true, direct });
    Ok(opened.map_err(StackError::io("open", path))?)
}

/// Refuses a plan that would write to a read-only stack.
pub(crate) fn check_writes(stack: &Stack, jobs: &[&Job]) -> Result<(), RunnerError> {
    if jobs.iter().any(|job| job.writes_blocks()) && !stack.allow_write {
        return Err(RunnerError::Stack(StackError::refused(
            &stack.device.text(),
            format!("the study writes to it, but stack `{}` allows no writes", stack.name),
            format!("if its data may be lost: --set stack.{}.allow_write=true", stack.name),
        )));
    }
    Ok(())
}

/// The environment of a block trial.
pub(crate) struct BlockPlace<'a> {
    pub stack: &'a Stack,
    pub experiment: &'a Experiment,
    /// Open files or devices.
    pub files: Vec<File>,
    /// Fill passes of preconditioning that are still due on this stack.
    pub fills: u32,
    pub own_cost: OwnCost,
    /// Where the ledger of a verified trial is.
    pub ledger: &'a Path,
    /// The undo journal, for tracing.
    pub journal: &'a Journal,
    /// Guards the trace, as in the options of a run.
    pub guard: fn() -> Option<Box<dyn Any>>,
    /// The drives' counters since the trial began.
    pub disk: &'a (dyn Fn() -> Option<DiskCounters> + Sync),
    /// Whether the target outlives the program, so that an existing ledger applies to it.
    pub lasting: bool,
}

/// Result of a block trial; `None` if it was stopped while preconditioning.
pub(crate) type Measured = Option<TrialResult>;

/// Runs one trial on open targets.
pub(crate) fn run(
    place: BlockPlace<'_>,
    trial: &Trial,
    (seed, control): (Seed, &Control<'_>),
) -> Result<Measured, RunnerError> {
    let stack = place.stack;
    let devices = u32::try_from(place.files.len()).unwrap_or(1);
    let (wanted, path) = (precondition_of(&trial.job, place.fills), path_of(stack, &trial.job));
    let smallest = smallest_request(&place.files[0]);
    let extent = Extent {
        device: stack.size(),
        devices,
        smallest_request: smallest,
        cpus: observe::cpus(),
        until: trial.timeline.until(),
    };
    let refuse =
        |reason: String| RunnerError::environment(&stack.name, reason, "crosspoint plan STUDY");
    let (groups, each) = block_groups(&trial.job, extent).map_err(refuse)?;
    let target = Target::new(place.files, each);
    let max_lag = match &trial.job {
        Job::Act(job) => {
            let most = job.config().map_or(0, |config| config.max_lag_sec);
            (most > 0).then(|| Nanos::from_secs(u64::from(most)))
        }
        _ => None,
    };
    let mut notes = Vec::new();
    let ledger = match &trial.job {
        Job::Block(job) if job.verify => {
            let span = units::Bytes(each.get() * u64::from(devices));
            let opened = open_ledger(&target, place.ledger, (job.block_size, span), place.lasting);
            let (ledger, note) = opened?;
            notes.extend(note);
            Some(ledger)
        }
        _ => None,
    };
    let spec = BlockSpec {
        path,
        spin: !in_phase(&trial.job),
        stop_on_error: place.experiment.on_error == OnError::Stop,
        max_lag,
        verify: ledger.as_ref(),
        ..BlockSpec::new(groups, trial.timeline, seed)
    };
    let failed = |error: RunError| run_error(stack, error);
    if let Some(wanted) = wanted {
        // Preconditioning rounds are not part of the trial's record.
        let control = &Control { keep: None, ..control.clone() };
        match precondition(&target, &spec, &wanted, (place.fills, control)).map_err(failed)? {
            Some(note) => notes.push(note),
            None => return Ok(None),
        }
    }
    let (host, usage) = (HostCpu::now(), observe::usage());
    let mut result = block::run(&target, &spec, control).map_err(failed)?;
    let own = observe::usage().since(&usage).cpu();
    notes.append(&mut result.notes);
    let wall = result.recording.intervals.iter().map(|i| i.end).max().unwrap_or_default();
    notes.extend(cost_note(&result, place.own_cost));
    result.limits.extend(HostCpu::now().busy_since(&host, own, wall).and_then(Limit::of_host));
    result.disk = (place.disk)();
    if matches!(&trial.job, Job::Block(job) if job.trace) && !control.stopping() {
        let job = (&trial.job, extent);
        let _guard = (place.guard)();
        notes.push(traced::trace((&target, &spec), job, place.journal, &mut result));
    }
    if let Some(ledger) = &ledger {
        notes.push(read_back(&target, ledger, ledger.checked(), control)?);
        if !control.stopping() {
            // All blocks were verified: a later run has nothing left to check.
            let _ = std::fs::remove_file(place.ledger);
        }
    }
    result.notes = notes;
    Ok(Some(result))
}

fn precondition_of(job: &Job, fills: u32) -> Option<Precondition> {
    match job {
        Job::Block(job) => job.precondition,
        // ACT's own preparation: filled, without rounds.
        Job::Act(_) if fills > 0 => Some(Precondition { fills, round: Nanos::ZERO, rounds_max: 0 }),
        _ => None,
    }
}

fn in_phase(job: &Job) -> bool {
    matches!(job, Job::Act(job) if job.phase == study::ActPhase::Act)
}

fn path_of(stack: &Stack, job: &Job) -> block::Path {
    match stack.submission {
        // ACT uses a thread per request, which its phase reproduces.
        _ if in_phase(job) => block::Path::Psync,
        Submission::Auto => block::Path::Auto,
        Submission::IoUring => block::Path::IoUring,
        Submission::Psync => block::Path::Psync,
    }
}

/// The smallest request that a target accepts, bytes: 512 if nothing smaller than that is refused.
fn smallest_request(file: &File) -> u32 {
    [512u32, 1024, 2048].into_iter().find(|size| stack::reads_of(file, *size)).unwrap_or(4096)
}

fn run_error(stack: &Stack, error: RunError) -> RunnerError {
    let next = match error {
        RunError::WrongData(corruption) => return RunnerError::WrongBlock(corruption),
        RunError::NoIoUring(_) => format!(
            "use threads instead: --set stack.{}.submission=psync; crosspoint doctor says more",
            stack.name
        ),
        RunError::TooSmall { have, .. } => {
            format!("--set stack.{}.size={}", stack.name, have.exact())
        }
        _ => "crosspoint doctor".into(),
    };
    RunnerError::environment(&stack.name, error.to_string(), next)
}

/// The ledger of a verified trial. One left by an earlier, killed process on a lasting target is checked
/// first.
fn open_ledger(
    target: &Target,
    path: &Path,
    (block, span): (units::Bytes, units::Bytes),
    lasting: bool,
) -> Result<(Ledger, Option<String>), RunnerError> {
    let failed = |error: std::io::Error| StackError::io("use ledger", path)(error);
    let mut note = None;
    if path.exists() {
        if lasting {
            let (ledger, _) = Ledger::open(path, 0, block, span).map_err(failed)?;
            let checked = block::read_back(target, &ledger, &|| true).map_err(failed)?;
            let checked = checked.map_err(RunnerError::WrongBlock)?;
            note = Some(format!(
                "verified after the end of the program before: {checked} blocks that had been \
                 acknowledged then are there"
            ));
        }
        std::fs::remove_file(path).map_err(failed)?;
    }
    // A new ID, so that blocks of earlier runs are not taken for ours.
    let run = jiff::Timestamp::now().as_nanosecond() as u64;
    let (ledger, _) = Ledger::open(path, run, block, span).map_err(failed)?;
    Ok((ledger, note))
}

fn read_back(
    target: &Target,
    ledger: &Ledger,
    during: u64,
    control: &Control<'_>,
) -> Result<String, RunnerError> {
    let checked = block::read_back(target, ledger, &|| !control.stopping());
    let checked = checked.map_err(StackError::io("read back", Path::new("the target")))?;
    let checked = checked.map_err(RunnerError::WrongBlock)?;
    Ok(format!(
        "verified: {during} reads during the trial, and {checked} written blocks read back at its end; \
         rates include stamping and checking"
    ))
}

/// Note on the harness's share of the latency.
fn cost_note(result: &TrialResult, own: OwnCost) -> Option<String> {
    let total = result.recording.total(None).counts;
    let mean = total.latency_sum.get() as f64 / total.ops.max(1) as f64;
    (total.ops > 0).then(|| {
        format!(
            "harness overhead {:.0} ns per operation, at most {:.2} % of mean latency",
            own.single_ns,
            own.single_ns / mean.max(1.0) * 100.0
        )
    })
}
