//! `crosspoint attach` and `detach`: modelled devices as live disks.
//!
//! A process of this program of its own serves each disk, and owns the undo journal of what it made, so
//! that `clean` undoes it when that process was killed. Invariants: a disk that is in use is not detached;
//! what was delivered is said when it is. What it is not: serving, which is the crate `attach`.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use attach::{Attached, Served, Store, Wanted};
use device::{Condition, Model};
use runner::attached::{Disk, Entry, all, find};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use sim::HostModel;
use stack::{Journal, StackError, Undo, WorkArea, loop_over, release, state_directory, users_of};
use units::Seed;

use crate::cli::{AttachArguments, AttachCondition};
use crate::exit::{self, ExitCode};
use crate::host_file::stack_error;
use crate::show::Failure;

/// How often the state of a disk is told.
const TELL: Duration = Duration::from_millis(100);
/// Time that a disk has to be there, and to go.
const PATIENCE: Duration = Duration::from_secs(30);

/// Does what was asked.
pub fn run(arguments: &AttachArguments) -> Result<ExitCode, Failure> {
    match &arguments.model {
        None => list(arguments.json),
        Some(model) if arguments.foreground => serve(model, arguments),
        Some(_) => start(arguments),
    }
}

fn refused(device: String, reason: String, next: &str) -> Failure {
    stack_error(StackError::Refused { device, reason, next: next.to_owned() })
}

/// Starts a process that serves, and waits until the disk is there.
fn start(arguments: &AttachArguments) -> Result<ExitCode, Failure> {
    let failed =
        |error| stack_error(StackError::io("start", Path::new("crosspoint attach"))(error));
    let program = std::env::current_exe().map_err(failed)?;
    let words = std::env::args_os().skip(1).filter(|word| word != "--json");
    let mut child = Command::new(program);
    child.args(words).args(["--foreground", "--json"]);
    // Of no terminal: closing one must not take the disk away.
    // Neither its output nor its errors are this one's: who waits for those to end must not wait for it.
    child.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = child.spawn().map_err(failed)?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        let _ = BufReader::new(output).read_line(&mut line);
    }
    let Ok(disk) = serde_json::from_str::<Disk>(&line) else {
        // It has said why, and ended.
        let mut why = String::new();
        if let Some(mut errors) = child.stderr.take() {
            let _ = errors.read_to_string(&mut why);
        }
        say!("{}", why.trim_end());
        let code = child.wait().ok().and_then(|status| status.code());
        return Ok(exit::of_number(code.unwrap_or(1)));
    };
    show(&disk, arguments.json);
    if let Some(unknown) = runner::profile(&disk.model)?.parameters.unknown_flush() {
        say!(
            "note: a flush takes an unknown time on this model and is answered at once: {unknown}"
        );
    }
    Ok(exit::OK)
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
    let floor = units::Nanos(disk.floor_ns);
    out!(
        "floor:  {floor} through FUSE and back; clients see the model's times and a kernel's, no more"
    );
    out!("detach: crosspoint detach {}", disk.file.display());
}

/// Serves until it is told to stop or somebody unmounts it.
fn serve(model: &str, arguments: &AttachArguments) -> Result<ExitCode, Failure> {
    if let Err((reason, next)) = attach::available() {
        return Err(refused(format!("model:{model}"), reason, &next));
    }
    let profile = runner::profile(model)?;
    if arguments.size > profile.capacity || !arguments.size.get().is_multiple_of(4096) {
        let reason = format!(
            "a disk of {} cannot be had: whole blocks of 4 KiB, at most {}",
            arguments.size, profile.capacity
        );
        return Err(refused(format!("model:{model}"), reason, "--size 4GiB"));
    }
    let condition = match arguments.condition {
        AttachCondition::Steady => Condition::Steady,
        AttachCondition::Fresh => Condition::Fresh,
        AttachCondition::Filled => Condition::Filled,
    };
    let state = state_directory().map_err(stack_error)?;
    // Signals ask for nothing but to detach: a second one must not take a disk from under its users.
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|error| stack_error(StackError::io("hear signals in", &state)(error)))?;
    }
    let journal = Journal::new(&state, sql_mysql::restore);
    let made = make(&journal, (model, arguments), Model::new(&profile, condition, Seed(1)));
    let (attached, mut disk) = made?;
    disk.title = profile.title;
    let entry = match Entry::new(&state, &disk) {
        Ok(entry) => entry,
        Err(error) => {
            let _ = let_go(&disk);
            let _ = attached.ended();
            return Err(stack_error(error));
        }
    };
    show(&disk, arguments.json);
    while attached.is_served() {
        std::thread::park_timeout(TELL);
        disk.served = attached.served();
        // Who cannot be told will ask again.
        let _ = entry.tell(&disk);
        if stop.swap(false, Ordering::Relaxed) {
            match let_go(&disk) {
                Ok(()) => break,
                Err(reason) => say!("{} stays: {reason}", disk.file.display()),
            }
        }
    }
    disk.served = attached.ended().unwrap_or(disk.served);
    disk.ended = true;
    for failed in journal.undo_all() {
        say!("could not be undone: {failed}; try: crosspoint clean");
    }
    let _ = entry.tell(&disk);
    if !arguments.json {
        out!("{}", disk.served);
    }
    Ok(exit::OK)
}

/// Takes a disk off, if nobody uses it.
fn let_go(disk: &Disk) -> Result<(), String> {
    let users = users_of(&disk.file, disk.block.as_deref());
    if !users.is_empty() {
        return Err(format!("it is in use by {}", users.join(", ")));
    }
    let place = disk.file.parent().unwrap_or(Path::new("/"));
    let backing = disk.block.is_some().then_some(disk.file.as_path());
    release(place, backing).map_err(|error| error.to_string())
}

/// Makes the disk: its directory, its file and its block device.
fn make(
    journal: &Journal,
    (model, arguments): (&str, &AttachArguments),
    device: Model,
) -> Result<(Attached, Disk), Failure> {
    let fresh = arguments.store.as_ref().filter(|path| !path.exists());
    let store = match &arguments.store {
        Some(path) => Store::in_file(path, arguments.size)
            .map_err(|error| stack_error(StackError::io("keep data in", path)(error)))?,
        None => Store::in_memory(arguments.size).map_err(|error| {
            stack_error(StackError::io("keep data in", Path::new("memory"))(error))
        })?,
    };
    let area = WorkArea::create(journal, &arguments.at, "disk").map_err(stack_error)?;
    let place = area.fresh("mount").map_err(stack_error)?;
    journal.note(Undo::Unmount { path: place.clone() }).map_err(stack_error)?;
    let path = HostModel::named("psync").unwrap_or(HostModel::io_uring());
    let path = path.submit + path.wake + path.jitter + path.complete;
    let wanted = Wanted { scale: arguments.scale, spin: arguments.spin, path };
    let unmount = || {
        let _ = release(&place, None);
    };
    let attached = Attached::new(&place, (device, store), wanted, &unmount).map_err(|error| {
        // What was made for nothing would stand in the way of another size.
        let _ = fresh.map(std::fs::remove_file);
        let next = match &error {
            attach::AttachError::TooFast { scale, .. } => format!("--scale {scale}"),
            attach::AttachError::Io(..) => "crosspoint doctor".to_owned(),
        };
        refused(format!("model:{model}"), error.to_string(), &next)
    })?;
    let file = attached.file();
    let block = match arguments.block {
        true => match loop_over(journal, &file) {
            Ok(block) => Some(block),
            Err(error) => {
                unmount();
                return Err(stack_error(error));
            }
        },
        false => None,
    };
    let disk = Disk {
        process: std::process::id(),
        model: model.to_owned(),
        title: String::new(),
        size: arguments.size.get(),
        store: arguments.store.clone(),
        floor_ns: attached.floor().get(),
        file,
        block,
        served: Served::default(),
        ended: false,
    };
    Ok((attached, disk))
}

fn list(json: bool) -> Result<ExitCode, Failure> {
    let disks = all(&state_directory().map_err(stack_error)?).map_err(stack_error)?;
    if json {
        out!("{:#}", json!({"schema": 1, "disks": disks}));
        return Ok(exit::OK);
    }
    if disks.is_empty() {
        out!("nothing is attached");
    }
    for disk in disks {
        let block = disk.block.as_ref().map_or(String::new(), |b| format!(" ({})", b.display()));
        out!("{}{block}: model:{}", disk.file.display(), disk.model);
        out!("  {}", disk.served);
    }
    Ok(exit::OK)
}

/// Detaches one disk, or all.
pub fn detach(disk: Option<&Path>, json: bool) -> Result<ExitCode, Failure> {
    let state = state_directory().map_err(stack_error)?;
    let wanted = match disk {
        Some(disk) => vec![find(&state, disk).map_err(stack_error)?],
        None => all(&state).map_err(stack_error)?,
    };
    let mut served = Vec::new();
    for disk in wanted {
        let users = users_of(&disk.file, disk.block.as_deref());
        if !users.is_empty() {
            let reason = format!("it is in use by {}", users.join(", "));
            return Err(refused(disk.file.display().to_string(), reason, "end that first"));
        }
        served.push(disk.end(&state, PATIENCE).map_err(stack_error)?);
    }
    if json {
        out!("{:#}", json!({"schema": 1, "disks": served}));
    } else {
        for disk in &served {
            out!("{} is detached: {}", disk.file.display(), disk.served);
        }
        if served.is_empty() {
            out!("nothing is attached");
        }
    }
    Ok(exit::OK)
}
