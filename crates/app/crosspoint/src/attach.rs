//! `crosspoint attach` and `detach`: modelled devices as live disks.
//!
//! A process of this program of its own serves each disk, and owns the undo journal of what it made, so
//! that `clean` undoes it when that process was killed. Invariants: a disk that is in use is not detached;
//! what was delivered is said when it is.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use attach::{AttachError, Attached, Pace, SPIN_MAX, Spin, Store, Transport};
use device::{FaultPlan, FaultPlanError, Model};
use runner::attached::{Disk, DiskEntry, NotServed, all, find};
use runner::{ExitClass, RunnerError};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use sim::HostModel;
use stack::{
    Journal, StackError, Undo, WorkArea, check_directory, is_loop_over, loop_over, release,
    state_directory, still_used,
};
use stats::Served;
use units::{Bytes, Nanos, Seed};

use crate::cli::{AttachArguments, TransportWord};
use crate::exit::{self, ExitCode};
use crate::show::Failure;

/// How often the state of a disk is written down.
const TELL: Duration = Duration::from_millis(100);
/// Characters that are kept of who uses a disk.
const USERS_MAX: usize = 1000;
/// Time that a disk has to be there, and to go.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time after which whoever has a disk open uses it, and does not only pass by.
const PASSING_BY: Duration = Duration::from_secs(1);
/// The same of what a run has made for itself.
const RUN_ENDS: Duration = Duration::from_secs(10);

/// Does what was asked.
pub fn run(arguments: &AttachArguments) -> Result<ExitCode, Failure> {
    match &arguments.model {
        None => list(arguments.json),
        Some(model) if arguments.foreground => report_to_owner(serve(model, arguments), arguments),
        Some(_) => start(arguments),
    }
}

fn refused(device: String, reason: String, next: &str) -> Failure {
    StackError::Refused { device, reason, next: next.to_owned() }.into()
}

/// What a disk's own run gets in its place, where it is too fast for this machine: that fails its trial,
/// and the run goes on. What else is wrong ends the run.
fn report_to_owner(
    served: Result<ExitCode, Failure>,
    arguments: &AttachArguments,
) -> Result<ExitCode, Failure> {
    let said = match &served {
        Err(Failure::Runner(error, _)) if arguments.owner.is_some() => match error.as_ref() {
            RunnerError::NotAttached { reason, next, scale, .. } => {
                Some(NotServed { refused: reason.clone(), next: next.clone(), scale: *scale })
            }
            _ => None,
        },
        _ => None,
    };
    let Some(said) = said else { return served };
    out!("{}", serde_json::to_string(&said).unwrap_or_default());
    Ok(ExitClass::Refused.into())
}

/// Starts a process that serves, and waits until the disk is there.
fn start(arguments: &AttachArguments) -> Result<ExitCode, Failure> {
    let failed = |error| StackError::io("start", Path::new("crosspoint attach"))(error);
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

/// Reads a plan of faults.
fn plan_of_faults(path: &Path) -> Result<FaultPlan, Failure> {
    let text = runner::read_text(path).map_err(StackError::io("read", path))?;
    let wrong = |error: FaultPlanError| RunnerError::Faults {
        of: path.display().to_string(),
        reason: error.to_string(),
    };
    Ok(FaultPlan::parse(&text).map_err(wrong)?)
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
        "floor:  {floor} through FUSE ({}){block} and back; clients see the model's times and a \
         kernel's, no more",
        disk.transport.word()
    );
    let short = disk.block.as_ref().unwrap_or(&disk.file);
    out!("detach: crosspoint detach {}", short.display());
}

/// What signals have asked for.
#[derive(Default)]
struct Asked {
    /// To detach, and nothing else: a second one must not take a disk from under its users.
    stop: Arc<AtomicBool>,
    /// To count anew, by one that measures on the disk.
    anew: Arc<AtomicBool>,
    /// To begin or end staging, by one that loads what the drive holds before its life begins.
    stage: Arc<AtomicBool>,
}

impl Asked {
    fn listen() -> std::io::Result<Self> {
        let asked = Self::default();
        let (stop, anew, stage) = (&asked.stop, &asked.anew, &asked.stage);
        let all =
            [(SIGINT, stop), (SIGTERM, stop), (SIGHUP, stop), (SIGUSR1, anew), (SIGUSR2, stage)];
        for (signal, flag) in all {
            signal_hook::flag::register(signal, Arc::clone(flag))?;
        }
        Ok(asked)
    }
}

/// A disk is of whole blocks, and no larger than its drive.
fn check_size(model: &str, size: Bytes, capacity: Bytes) -> Result<(), Failure> {
    if size.get() > 0 && size.get().is_multiple_of(4096) && size <= capacity {
        return Ok(());
    }
    let reason = format!(
        "a disk of {} is not possible: whole blocks of 4 KiB, one at least, at most {capacity}",
        size.exact()
    );
    Err(refused(format!("model:{model}"), reason, "--size 4GiB"))
}

/// Serves until a signal asks to detach or somebody unmounts it.
fn serve(model: &str, arguments: &AttachArguments) -> Result<ExitCode, Failure> {
    if let Err((reason, next)) = attach::available() {
        return Err(refused(format!("model:{model}"), reason, &next));
    }
    let profile = runner::profile(model)?;
    check_size(model, arguments.size, profile.capacity)?;
    let faults = arguments.faults.as_deref().map(plan_of_faults).transpose()?;
    let condition = runner::condition_of(arguments.condition);
    let state = state_directory()?;
    let asked = Asked::listen().map_err(StackError::io("take signals in", &state))?;
    let journal = Journal::new(&state, engines::restore);
    let fresh = arguments.store.as_ref().filter(|path| !path.exists());
    // From here on it is locked: what is removed below is nobody else's.
    let store = store(arguments)?;
    let made =
        make(&journal, (model, arguments), (Model::new(&profile, condition, Seed(1)), store));
    // What was made for nothing would stand in the way of another size.
    let (attached, mut disk) = made.inspect_err(|_| {
        let _ = fresh.map(std::fs::remove_file);
    })?;
    disk.title = profile.title;
    disk.staging = arguments.staged;
    if disk.staging {
        attached.stage(true);
    }
    attached.begin_faults(faults.clone().filter(|_| !disk.staging));
    let entry = match DiskEntry::new(&state, &disk) {
        Ok(entry) => entry,
        Err(error) => {
            let _ = let_go(&mut disk);
            let _ = attached.ended();
            return Err(error.into());
        }
    };
    show(&disk, arguments.json);
    while attached.is_served() {
        std::thread::park_timeout(TELL);
        if asked.anew.swap(false, Ordering::Relaxed) {
            attached.begin_anew();
        }
        if asked.stage.swap(false, Ordering::Relaxed) {
            disk.staging = !disk.staging;
            attached.stage(disk.staging);
            attached.begin_faults(faults.clone().filter(|_| !disk.staging));
        }
        disk.served = attached.served();
        disk.powerless = attached.power_cut().is_some();
        // The next one comes soon.
        let _ = entry.tell(&disk);
        if asked.stop.swap(false, Ordering::Relaxed) {
            match let_go(&mut disk) {
                Ok(()) => break,
                Err(reason) => {
                    say!("{} stays: {reason}", disk.file.display());
                    disk.stayed += 1;
                    disk.used_by = reason.chars().take(USERS_MAX).collect();
                    let _ = entry.tell(&disk);
                }
            }
        }
    }
    disk.powerless = attached.power_cut().is_some();
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

/// Takes a disk off, if nobody uses it. A run's own has only its own users, which it has ended: their mounts
/// are taken apart in their own time.
fn let_go(disk: &mut Disk) -> Result<(), String> {
    let patience = if disk.owner.is_some() { RUN_ENDS } else { PASSING_BY };
    let users = still_used(&disk.file, disk.block.as_deref(), patience);
    if !users.is_empty() {
        return Err(format!("it is in use by {}", users.join(", ")));
    }
    let place = disk.file.parent().unwrap_or(Path::new("/"));
    let backing = disk.block.is_some().then_some(disk.file.as_path());
    let released = release(place, backing);
    disk.block.take_if(|block| !is_loop_over(block, &disk.file));
    released.map_err(|error| match error {
        StackError::Refused { reason, .. } => reason,
        error => error.to_string(),
    })
}

/// Where the data are kept.
fn store(arguments: &AttachArguments) -> Result<Store, Failure> {
    let Some(path) = &arguments.store else {
        let made = Store::in_memory(arguments.size);
        return Ok(made.map_err(StackError::io("keep data in", Path::new("memory")))?);
    };
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    check_directory(parent.unwrap_or(Path::new(".")))?;
    Store::in_file(path, arguments.size).map_err(|error| match error.kind() {
        std::io::ErrorKind::ResourceBusy => refused(
            path.display().to_string(),
            error.to_string(),
            "crosspoint attach lists what is attached; crosspoint detach FILE",
        ),
        _ => StackError::io("keep data in", path)(error).into(),
    })
}

/// Makes the disk: its directory, its file and its block device.
fn make(
    journal: &Journal,
    (model, arguments): (&str, &AttachArguments),
    (device, store): (Model, Store),
) -> Result<(Attached, Disk), Failure> {
    let area = WorkArea::create(journal, &arguments.at, "disk")?;
    let place = area.fresh("mount")?;
    journal.note(Undo::Unmount { path: place.clone() })?;
    let path = HostModel::named("psync").unwrap_or(HostModel::io_uring());
    let path = path.submit + path.wake + path.jitter + path.complete;
    let found = || Spin::AsSleepsOvershoot(overshoot());
    let spin = arguments.spin.map_or_else(found, Spin::Exactly);
    let pace = Pace { scale: arguments.scale, spin, path };
    let unmount = || {
        let _ = release(&place, None);
    };
    let transport = match arguments.transport {
        TransportWord::Auto => None,
        TransportWord::Rings => Some(Transport::Rings),
        TransportWord::Classic => Some(Transport::Classic),
    };
    let next = |error: &AttachError| match error {
        AttachError::NoRings => "--transport classic".to_owned(),
        AttachError::TooFast { scale, .. } => format!("--scale {scale}"),
        AttachError::Io(..) => "crosspoint doctor".to_owned(),
    };
    let failed = |error: AttachError| -> Failure {
        let (device, reason, next) = (format!("model:{model}"), error.to_string(), next(&error));
        match error {
            AttachError::TooFast { scale, .. } => {
                // Emulation overhead varies: twice of what it takes now.
                let scale = Some(scale.saturating_mul(2));
                RunnerError::NotAttached { device, reason, next, scale }.into()
            }
            _ => refused(device, reason, &next),
        }
    };
    // Killed in the middle of it, it stays allowed until `clean`.
    let meanwhile = Journal::new(&state_directory()?, engines::restore);
    if transport != Some(Transport::Classic) && attach::allows_rings() {
        meanwhile.note(Undo::ForbidRings)?;
    }
    let made = Attached::new(&place, (device, store), (pace, transport), &unmount);
    let _ = meanwhile.undo_all();
    let mut attached = made.map_err(failed)?;
    let file = attached.file();
    let mut block = None;
    if arguments.block {
        let made = loop_over(journal, &file).map_err(Failure::from).and_then(|made| {
            attached.measure(&made).map_err(failed)?;
            Ok(made)
        });
        block = Some(made.inspect_err(|_| {
            let _ = release(&place, Some(&file));
        })?);
    }
    let disk = Disk {
        process: std::process::id(),
        model: model.to_owned(),
        title: String::new(),
        size: arguments.size.get(),
        store: arguments.store.clone(),
        transport: attached.transport(),
        floor_ns: attached.floor().get(),
        file,
        block,
        served: Served::default(),
        staging: false,
        owner: arguments.owner,
        powerless: false,
        stayed: 0,
        used_by: String::new(),
        ended: false,
    };
    Ok((attached, disk))
}

/// How much too long nine of ten sleeps are here, at most [`SPIN_MAX`].
fn overshoot() -> Nanos {
    let sleeps = observe::interrupt_wake_ups().map(|(sleeps, _)| sleeps).unwrap_or_default();
    let at = sleeps.len().saturating_sub(1) * 9 / 10;
    sleeps.get(at).copied().unwrap_or(SPIN_MAX).min(SPIN_MAX)
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
            out!(
                "  its power is gone, as its faults planned: every request fails until it is attached anew"
            );
        }
    }
    Ok(exit::OK)
}

/// Says what helps where killed processes have left something.
pub fn say_abandoned() -> Result<(), Failure> {
    let left = match stack::abandoned(&state_directory()?)? {
        0 => return Ok(()),
        1 => "a process that was killed has".to_owned(),
        count => format!("{count} processes that were killed have"),
    };
    say!("warning: {left} left on this host what was made\n  next: crosspoint clean");
    Ok(())
}

/// Detaches one disk, or all that no run has made for itself.
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
            // The others go all the same.
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
                out!("  its power had gone, as its faults planned");
            }
        }
        if of_runs > 0 {
            out!("left alone: {of_runs} of runs that are going on");
        } else if served.is_empty() && failed.is_none() {
            out!("nothing is attached");
        }
    }
    failed.map_or(Ok(exit::OK), Err)
}

/// The run that is going on and made a disk for itself.
fn run_of(disk: &Disk) -> Option<u32> {
    disk.owner.filter(|owner| Path::new(&format!("/proc/{owner}")).exists())
}

fn detach_one(disk: Disk, state: &Path) -> Result<Disk, Failure> {
    if let Some(run) = run_of(&disk) {
        let reason = format!("process {run}, a run that is going on, made it for itself");
        return Err(refused(disk.file.display().to_string(), reason, "end that first"));
    }
    disk.goes_on()?;
    let users = still_used(&disk.file, disk.block.as_deref(), PASSING_BY);
    if !users.is_empty() {
        let reason = format!("it is in use by {}", users.join(", "));
        return Err(refused(disk.file.display().to_string(), reason, "end that first"));
    }
    Ok(disk.end(state, PATIENCE)?)
}
