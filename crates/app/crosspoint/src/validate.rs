//! `crosspoint validate`: fits a model to a disk, runs databases on the disk and on the model, and keeps the
//! errors for the pages of later runs on this host.
//!
//! Invariants: nothing in the fit comes from a database; errors of another kernel or CPU are not shown.

use std::path::Path;

use analysis::own_disk::{OwnDiskJob, own_disk_jobs, own_disk_ratios};
use archive::{OwnDisk, Run};
use observe::StorageFacts;
use runner::{Ending, RunEnd, RunnerError};
use serde_json::json;
use stack::{StackError, state_directory};
use units::{Nanos, human_count};

use crate::exit::{self, ExitCode};
use crate::own_disk_file::{Kept, file};
use crate::progress::ProgressKind;
use crate::result_file::Output;
use crate::running::Running;
use crate::show::Failure;
use crate::{calibrate, fit};

/// The built-in study that is run.
const STUDY: &str = "validate";
/// Repetitions of the jobs of the fit; `device fit` has 12.
const FIT_REPETITIONS: u32 = 3;
/// Name of the fitted profile.
const PROFILE: &str = "this-disk";

/// Validates simulations on the disk of `directory`.
pub fn run(directory: &Path, progress: ProgressKind, json: bool) -> Result<ExitCode, Failure> {
    let state = state_directory()?;
    let place = std::path::absolute(directory).map_err(StackError::io("find", directory))?;
    let mut running = Running::start()?;
    if !running.is_calibrated() && !calibrate::measure(&place, &mut running)? {
        return Ok(exit::INTERRUPTED);
    }
    let there = format!("directory={}", crate::quick::quoted(&place.display().to_string()));
    let set = [format!("stack.target.{there}"), format!("experiment.*.repeat={FIT_REPETITIONS}")];
    let study = (runner::load_study(fit::STUDY)?, &set[..]);
    let end = running.execute_with(study, (None, &[]), progress)?;
    if end.ending == Ending::Interrupted {
        return Ok(exit::INTERRUPTED);
    }
    // A fit leaves failed trials out.
    let fitted = Run::read(&end.path, engines::list())?;
    let profile = fit::profile_of(&fitted, &fit::naming(PROFILE, &fitted)).map_err(|error| {
        RunnerError::Profile { name: PROFILE.into(), reason: error.to_string() }
    })?;
    let path = state.join(format!("{PROFILE}.toml"));
    let text = format!("# Fitted by `crosspoint validate`.\n{}", profile.to_toml());
    Output::own(&path).write(text.as_bytes())?;
    let model = crate::quick::quoted(&format!("model:{}", path.display()));
    let mut set = vec![
        format!("stack.disk.{there}"),
        format!("stack.model.device={model}"),
        format!("stack.blocks.device={model}"),
    ];
    let storage = fitted.header.stacks.first().and_then(|stack| stack.storage.as_ref());
    match storage.map(StorageFacts::ext4_journal) {
        Some(Some(false)) => set.push("stack.model.file_system=ext4_no_journal".into()),
        Some(None) => say!("note: only ext4 is simulated, so the errors contain the file system's"),
        Some(Some(true)) | None => {}
    }
    let study = (runner::load_study(STUDY)?, &set[..]);
    let end = running.execute_with(study, (None, &[]), progress)?;
    if end.ending == Ending::Interrupted {
        return Ok(exit::INTERRUPTED);
    }
    let run = Run::read(&end.path, engines::list())?;
    let jobs = own_disk_jobs(&run);
    print(&jobs, (&end.path, &path), json);
    let ratios = own_disk_ratios(&jobs);
    if ratios.is_empty() || end.ending != Ending::Complete {
        return Ok(ended(&end));
    }
    let classes = ratios.len();
    let kept = OwnDisk { directory: place.display().to_string(), ratios };
    let text = serde_json::to_string_pretty(&Kept::new(run.name, kept)).unwrap_or_default() + "\n";
    Output::own(&file(&state)).write(text.as_bytes())?;
    if !json {
        out!("pages of later runs on this host print {classes} classes of this");
    }
    Ok(ended(&end))
}

fn ended(end: &RunEnd) -> ExitCode {
    match end.ending {
        Ending::Complete => exit::OK,
        Ending::Interrupted => exit::INTERRUPTED,
        Ending::Failed => {
            say!(
                "error: trials failed: crosspoint figures {} shows the others",
                end.path.display()
            );
            exit::TARGET_FAILED
        }
    }
}

fn print(jobs: &[OwnDiskJob], (run, profile): (&Path, &Path), json: bool) {
    if json {
        let rows = jobs.iter().map(|job| {
            json!({"engine": job.engine, "point": job.point, "metric": job.counted.words(),
                   "measured": job.measured, "simulated": job.simulated, "error": job.error()})
        });
        let rows: Vec<_> = rows.collect();
        return out!("{:#}", json!({"schema": 1, "run": run, "profile": profile, "jobs": rows}));
    }
    out!("{:<9} {:<20} {:>10} {:>10} {:>8}  job", "engine", "", "disk", "simulated", "error");
    for job in jobs {
        let value = |value: f64| match job.counted.is_rate() {
            true => human_count(value),
            false => Nanos(value as u64).to_string(),
        };
        out!(
            "{:<9} {:<20} {:>10} {:>10} {:>+6.1} %  {}",
            job.engine,
            job.counted.words(),
            value(job.measured),
            value(job.simulated),
            job.error() * 100.0,
            job.point
        );
    }
    out!("model: {}", profile.display());
    out!("run:   {}", run.display());
}
