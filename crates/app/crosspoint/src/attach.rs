//! `crosspoint attach` and `detach`: modelled devices as live disks.
//!
//! A separate process serves each disk and owns the undo journal of what it created, so `clean` can undo it
//! after a kill. Invariants: a disk in use is not detached; detaching prints the accuracy.

use std::path::Path;
use std::time::Duration;

use device::{FaultPlan, FaultPlanError};
use runner::RunnerError;
use runner::attached::{Disk, all, find};
use runner::drives::{DriveProcess, DriveSpec, serve_attached};
use serde_json::json;
use stack::{StackError, state_directory, still_used};
use units::Nanos;

use crate::cli::{AUTO, AttachArguments};
use crate::exit::{self, ExitCode};
use crate::show::Failure;

/// Time limit for a disk to detach.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time after which an open file counts as use.
const PASSING_BY: Duration = Duration::from_secs(1);

pub fn run(arguments: &AttachArguments) -> Result<ExitCode, Failure> {
    match &arguments.model {
        None => list(arguments.json),
        Some(model) if arguments.foreground => serve(model, arguments),
        Some(model) => start(model, arguments),
    }
}

fn refused(device: &str, reason: String, next: &str) -> Failure {
    StackError::refused(&device, reason, next.to_owned()).into()
}

/// The drive that the arguments describe; errors in them are found here, not in the server process.
fn spec_of(model: &str, arguments: &AttachArguments) -> Result<DriveSpec, Failure> {
    runner::profile(model)?;
    let faults = arguments.faults.as_deref().map(plan_of_faults).transpose()?;
    let transport = Some(arguments.transport.clone()).filter(|word| word != AUTO);
    Ok(DriveSpec {
        condition: arguments.condition,
        store: arguments.store.clone(),
        scale: arguments.scale,
        spin: arguments.spin,
        transport,
        block: arguments.block,
        staged: arguments.staged,
        faults,
        owner: arguments.owner,
        ..DriveSpec::own(model, arguments.size, arguments.at.clone())
    })
}

/// Starts a process that serves, and leaves it running once the drive exists.
fn start(model: &str, arguments: &AttachArguments) -> Result<ExitCode, Failure> {
    let drive = DriveProcess::start(&spec_of(model, arguments)?, None)?;
    show(drive.disk(), arguments.json);
    let disk = drive.disk().model.clone();
    drive.leave();
    if let Some(unknown) = runner::profile(&disk)?.parameters.unknown_flush() {
        say!(
            "note: a flush takes an unknown time on this model and is answered at once: {unknown}"
        );
    }
    Ok(exit::OK)
}

/// Serves in this process, until Ctrl-C.
fn serve(model: &str, arguments: &AttachArguments) -> Result<ExitCode, Failure> {
    let spec = spec_of(model, arguments)?;
    let mut ready = |disk: &Disk| show(disk, arguments.json);
    let mut stays = |disk: &Disk, reason: &str| {
        say!("{} stays: {reason}", disk.file.display());
    };
    let disk = serve_attached(&spec, &mut ready, &mut stays)?;
    if !arguments.json {
        out!("{}", disk.served);
    }
    Ok(exit::OK)
}

/// Reads a fault plan and checks it; returns its text.
fn plan_of_faults(path: &Path) -> Result<String, Failure> {
    let text = runner::read_text(path).map_err(StackError::io("read", path))?;
    let wrong = |error: FaultPlanError| RunnerError::Faults {
        of: path.display().to_string(),
        reason: error.to_string(),
    };
    FaultPlan::parse(&text).map_err(wrong)?;
    Ok(text)
}

fn show(disk: &Disk, json: bool) {
    if json {
        return out!("{}", serde_json::to_string(disk).unwrap_or_default());
    }
    out!("disk:   {}", disk.file.display());
    if let Some(block) = &disk.block {
        out!("block:  {}", block.display());
    }
    out!("model:  {} ({})", disk.model, disk.title);
    let floor = Nanos(disk.floor_ns);
    let block = if disk.block.is_some() { " and a loop device" } else { "" };
    out!(
        "overhead: {floor} through FUSE ({}){block}; clients see the model's latency plus a kernel I/O path",
        disk.transport
    );
    let short = disk.block.as_ref().unwrap_or(&disk.file);
    out!("detach: crosspoint detach {}", short.display());
}

fn list(json: bool) -> Result<ExitCode, Failure> {
    let disks = all(&state_directory()?)?;
    if json {
        out!("{:#}", json!({"schema": 1, "disks": disks}));
        return Ok(exit::OK);
    }
    if disks.is_empty() {
        out!("nothing is attached");
    }
    say_abandoned()?;
    for disk in disks {
        let block = disk.block.as_ref().map_or(String::new(), |b| format!(" ({})", b.display()));
        out!("{}{block}: model:{}", disk.file.display(), disk.model);
        out!("  {}", disk.served);
        if disk.powerless {
            out!("  power cut by its fault plan: every request fails until it is attached again");
        }
    }
    Ok(exit::OK)
}

/// Prints help if killed processes left something behind.
pub fn say_abandoned() -> Result<(), Failure> {
    let left = match stack::abandoned(&state_directory()?)? {
        0 => return Ok(()),
        1 => "a killed process".to_owned(),
        count => format!("{count} killed processes"),
    };
    say!("warning: {left} left devices, mounts or files behind\n  help: crosspoint clean");
    Ok(())
}

/// Detaches one disk, or all that do not belong to a run.
pub fn detach(disk: Option<&Path>, json: bool) -> Result<ExitCode, Failure> {
    let state = state_directory()?;
    let (wanted, of_runs) = match disk {
        Some(disk) => (vec![find(&state, disk)?], 0),
        None => {
            say_abandoned()?;
            let all = all(&state)?;
            let count = all.len();
            let own: Vec<Disk> = all.into_iter().filter(|disk| run_of(disk).is_none()).collect();
            let of_runs = count - own.len();
            (own, of_runs)
        }
    };
    let (mut served, mut failed) = (Vec::new(), None);
    for disk in wanted {
        match detach_one(disk, &state) {
            Ok(disk) => served.push(disk),
            // The others are detached all the same.
            Err(error) => match failed.replace(error) {
                None => {}
                Some(first) => {
                    failed.replace(first).inspect(|error| {
                        error.report();
                    });
                }
            },
        }
    }
    if json {
        out!("{:#}", json!({"schema": 1, "disks": served}));
    } else {
        for disk in &served {
            out!("{} is detached: {}", disk.file.display(), disk.served);
            if disk.powerless {
                out!("  power was cut by its fault plan");
            }
        }
        if of_runs > 0 {
            out!("skipped: {of_runs} of running studies");
        } else if served.is_empty() && failed.is_none() {
            out!("nothing is attached");
        }
    }
    failed.map_or(Ok(exit::OK), Err)
}

/// The running study that created a disk.
fn run_of(disk: &Disk) -> Option<u32> {
    disk.owner.filter(|owner| Path::new(&format!("/proc/{owner}")).exists())
}

fn detach_one(disk: Disk, state: &Path) -> Result<Disk, Failure> {
    if let Some(run) = run_of(&disk) {
        let reason = format!("it belongs to process {run}, which is still running");
        return Err(refused(&disk.file.display().to_string(), reason, "end that first"));
    }
    disk.goes_on()?;
    let users = still_used(&disk.file, disk.block.as_deref(), PASSING_BY);
    if !users.is_empty() {
        let reason = format!("it is in use by {}", users.join(", "));
        return Err(refused(&disk.file.display().to_string(), reason, "end that first"));
    }
    Ok(disk.end(state, PATIENCE)?)
}
