//! The process that serves a drive: creates it, answers requests, detaches it when it is unused.
//!
//! It owns the undo journal of what it created, so `clean` can undo it after a kill.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use attach::{AttachError, Attached, Missing, Pace, SPIN_MAX, Spin, Store};
use device::{FaultPlan, Model};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR2};
use sim::HostModel;
use stack::{
    Journal, StackError, Undo, WorkArea, check_directory, is_loop_over, loop_over, release,
    state_directory, still_used,
};
use units::{Bytes, Nanos, Seed};

use super::{CutPlan, DriveSpec, NotServed, Request, Response, receive, send};
use crate::RunnerError;
use crate::attached::{Disk, DiskEntry};

/// How often the state of a drive is written down.
const TELL: Duration = Duration::from_millis(100);
/// Characters kept of the list of users.
const USERS_MAX: usize = 1000;
/// An open shorter than this does not count as use.
const PASSING_BY: Duration = Duration::from_secs(1);
/// The same limit for a drive of a run, whose users unmount it when they end.
const RUN_ENDS: Duration = Duration::from_secs(10);

/// Requests by signals.
struct Asked {
    /// Detach. A second signal must not detach a drive in use.
    stop: Arc<AtomicBool>,
    /// Begin or end the preload of a user's drive.
    stage: Arc<AtomicBool>,
}

impl Asked {
    fn listen() -> std::io::Result<Self> {
        let asked = Self { stop: Arc::default(), stage: Arc::default() };
        let (stop, stage) = (&asked.stop, &asked.stage);
        for (signal, flag) in [(SIGINT, stop), (SIGTERM, stop), (SIGHUP, stop), (SIGUSR2, stage)] {
            signal_hook::flag::register(signal, Arc::clone(flag))?;
        }
        Ok(asked)
    }
}

/// A drive that is served.
struct Serving {
    attached: Attached,
    disk: Disk,
    entry: DiskEntry,
    journal: Journal,
    faults: Option<FaultPlan>,
    /// When its state was written down last.
    told: Instant,
}

/// Serves a drive in this process until a signal detaches it or it is unmounted; calls `ready` once the drive
/// exists and `stays` with the reason whenever a detach is refused. Returns its final state.
///
/// # Errors
/// As [`super::DriveProcess::start`].
pub fn serve_attached(
    spec: &DriveSpec,
    ready: &mut dyn FnMut(&Disk),
    stays: &mut dyn FnMut(&Disk, &str),
) -> Result<Disk, RunnerError> {
    let asked = Asked::listen().map_err(StackError::io("take signals in", &spec.at))?;
    let mut serving = Serving::begin(spec)?;
    ready(&serving.disk);
    while serving.attached.is_served() {
        std::thread::park_timeout(TELL);
        if asked.stage.swap(false, Ordering::Relaxed) {
            serving.stage(!serving.disk.staging);
        }
        serving.tell();
        if asked.stop.swap(false, Ordering::Relaxed) {
            match serving.detach() {
                Ok(()) => break,
                Err(reason) => stays(&serving.disk, &reason),
            }
        }
    }
    Ok(serving.end())
}

/// Serves a drive for another process of this program, which sends requests over standard input.
///
/// A user's drive stays when that process has ended, and is detached by a signal.
///
/// # Errors
/// Standard input holds an invalid request, or stdout is closed.
pub fn serve_drive() -> std::io::Result<()> {
    let requests = receive(std::io::stdin());
    let Request::Serve(spec) = requests.recv().map_err(std::io::Error::other)?? else {
        return Err(std::io::Error::other("no drive was requested"));
    };
    let asked = Asked::listen()?;
    let mut serving = match Serving::begin(&spec) {
        Ok(serving) => serving,
        Err(error) => return send(std::io::stdout(), &refusal(error)),
    };
    send(std::io::stdout(), &Response::Serving(Box::new(serving.disk.clone())))?;
    while serving.attached.is_served() {
        match requests.recv_timeout(TELL) {
            Ok(request) => {
                let end = matches!(request, Ok(Request::End));
                let response = serving.handle(request?);
                let ended = end && matches!(response, Response::Done);
                send(std::io::stdout(), &response)?;
                if ended {
                    break;
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => std::thread::park_timeout(TELL),
        }
        if asked.stage.swap(false, Ordering::Relaxed) && serving.disk.owner.is_none() {
            serving.stage(!serving.disk.staging);
        }
        serving.tell();
        if asked.stop.swap(false, Ordering::Relaxed) && serving.detach().is_ok() {
            break;
        }
    }
    serving.end();
    Ok(())
}

fn refusal(error: RunnerError) -> Response {
    match error {
        RunnerError::NotAttached { device, reason, next, scale } => {
            Response::Refused(NotServed { device, reason, next, scale })
        }
        RunnerError::Stack(StackError::Refused { device, reason, next }) => {
            Response::Refused(NotServed { device, reason, next, scale: None })
        }
        other => Response::Failed(other.to_string()),
    }
}

fn refused(device: &str, reason: String, next: &str) -> RunnerError {
    StackError::refused(device, reason, next.to_owned()).into()
}

/// Checks that a drive has whole blocks and at most its model's size.
fn check_size(model: &str, size: Bytes, capacity: Bytes) -> Result<(), RunnerError> {
    if size.get() > 0 && size.get().is_multiple_of(4096) && size <= capacity {
        return Ok(());
    }
    let reason = format!(
        "a disk of {} is not possible: whole blocks of 4 KiB, one at least, at most {capacity}",
        size.exact()
    );
    Err(refused(&format!("model:{model}"), reason, "--size 4GiB"))
}

impl Serving {
    fn begin(spec: &DriveSpec) -> Result<Self, RunnerError> {
        let model = &spec.model;
        if let Err(Missing { reason, next }) = attach::available() {
            return Err(refused(&format!("model:{model}"), reason, &next));
        }
        let profile = crate::profile(model)?;
        check_size(model, spec.size, profile.capacity)?;
        let faults = spec.fault_plan().map_err(|error| RunnerError::Faults {
            of: format!("model:{model}"),
            reason: error.to_string(),
        })?;
        let state = state_directory()?;
        let journal = Journal::new(&state, engines::restore);
        let fresh = spec.store.as_ref().filter(|path| !path.exists());
        // Locked from here on: files removed below belong to nobody else.
        let store = store(spec)?;
        let condition = crate::condition_of(spec.condition);
        let device = Model::new(&profile, condition, Seed(spec.seed));
        // Files left by a failure would prevent another size.
        let made = make(&journal, spec, (device, store)).inspect_err(|_| {
            let _ = fresh.map(std::fs::remove_file);
        });
        let (attached, mut disk) = made?;
        disk.title = profile.title;
        let entry = match DiskEntry::new(&state, &disk) {
            Ok(entry) => entry,
            Err(error) => {
                let _ = let_go(&mut disk);
                let _ = attached.ended();
                return Err(error.into());
            }
        };
        let told = Instant::now();
        let mut serving = Self { attached, disk, entry, journal, faults, told };
        serving.stage(spec.staged);
        serving.write_down();
        Ok(serving)
    }

    /// Begins or ends the preload.
    fn stage(&mut self, staging: bool) {
        self.disk.staging = staging;
        self.attached.stage(staging);
        self.attached.begin_faults(self.faults.clone().filter(|_| !staging));
    }

    fn handle(&mut self, request: Request) -> Response {
        let words = |result: std::io::Result<()>| match result {
            Ok(()) => Response::Done,
            Err(error) => Response::Failed(error.to_string()),
        };
        match request {
            Request::Serve(_) => Response::Failed("a drive is already being served".into()),
            Request::ResetCounts => {
                self.attached.begin_anew();
                Response::Done
            }
            Request::GetServed => Response::Served(self.attached.served()),
            Request::Stage(staging) => {
                self.stage(staging);
                Response::Done
            }
            Request::Begin(plan) => {
                self.attached.begin_faults(plan.map(CutPlan::faults));
                Response::Done
            }
            Request::CutPower => words(self.attached.cut_power()),
            Request::GetPowerCut => Response::PowerCut(self.attached.power_cut()),
            Request::CopyTo(path) => words(self.attached.copy_to(&path)),
            Request::End => words(self.detach().map_err(std::io::Error::other)),
        }
    }

    /// Updates the registry entry periodically.
    fn tell(&mut self) {
        if self.told.elapsed() >= TELL {
            self.write_down();
        }
    }

    fn write_down(&mut self) {
        self.told = Instant::now();
        self.disk.served = self.attached.served();
        self.disk.powerless = self.attached.power_cut().is_some();
        // The next update follows soon.
        let _ = self.entry.tell(&self.disk);
    }

    /// Detaches the drive if it is unused; otherwise returns its users.
    fn detach(&mut self) -> Result<(), String> {
        let let_go = let_go(&mut self.disk);
        if let Err(reason) = &let_go {
            self.disk.stayed += 1;
            self.disk.used_by = reason.chars().take(USERS_MAX).collect();
            let _ = self.entry.tell(&self.disk);
        }
        let_go
    }

    fn end(mut self) -> Disk {
        self.disk.powerless = self.attached.power_cut().is_some();
        self.disk.served = self.attached.ended().unwrap_or(self.disk.served);
        self.disk.ended = true;
        for failed in self.journal.undo_all() {
            eprintln!("could not be undone: {failed}; try: crosspoint clean");
        }
        let _ = self.entry.tell(&self.disk);
        self.disk
    }
}

/// Detaches a drive if it is unused.
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

/// Location of the data.
fn store(spec: &DriveSpec) -> Result<Store, RunnerError> {
    let Some(path) = &spec.store else {
        let made = Store::in_memory(spec.size);
        return Ok(made.map_err(StackError::io("keep data in", Path::new("memory")))?);
    };
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    check_directory(parent.unwrap_or(Path::new(".")))?;
    Store::in_file(path, spec.size).map_err(|error| match error.kind() {
        std::io::ErrorKind::ResourceBusy => refused(
            &path.display().to_string(),
            error.to_string(),
            "crosspoint attach lists what is attached; crosspoint detach FILE",
        ),
        _ => StackError::io("keep data in", path)(error).into(),
    })
}

/// Creates the drive: directory, file and block device.
fn make(
    journal: &Journal,
    spec: &DriveSpec,
    (device, store): (Model, Store),
) -> Result<(Attached, Disk), RunnerError> {
    let area = WorkArea::create(journal, &spec.at, "disk")?;
    let place = area.fresh("mount")?;
    journal.note(Undo::Unmount { path: place.clone() })?;
    let host = || {
        let path = HostModel::named("psync").unwrap_or(HostModel::io_uring());
        path.submit + path.wake + path.jitter + path.complete
    };
    let found = || Spin::AsSleepsOvershoot(overshoot());
    let spin = spec.spin.map_or_else(found, Spin::Exactly);
    let pace = Pace { scale: spec.scale, spin, path: spec.path.unwrap_or_else(host) };
    let unmount = || {
        let _ = release(&place, None);
    };
    let failed = |error: AttachError| -> RunnerError {
        let (device, reason) = (format!("model:{}", spec.model), error.to_string());
        match error {
            AttachError::Missing(Missing { next, .. }) => refused(&device, reason, &next),
            AttachError::Io(..) => refused(&device, reason, "crosspoint doctor"),
            AttachError::TooFast { scale, .. } => {
                let next = format!("--scale {scale}");
                // Emulation overhead varies: suggest twice the current scale.
                let scale = Some(scale.saturating_mul(2));
                RunnerError::NotAttached { device, reason, next, scale }
            }
        }
    };
    // If killed in between, it stays permitted until `clean`.
    let meanwhile = Journal::new(&state_directory()?, engines::restore);
    if attach::changes_host(spec.transport.as_deref()) {
        meanwhile.note(Undo::ForbidRings)?;
    }
    let made = Attached::new(&place, (device, store), (pace, spec.transport.as_deref()), &unmount);
    let _ = meanwhile.undo_all();
    let mut attached = made.map_err(failed)?;
    let file = attached.file().to_owned();
    let mut block = None;
    if spec.block {
        let made = loop_over(journal, &file).map_err(RunnerError::from).and_then(|made| {
            attached.measure(&made).map_err(failed)?;
            Ok(made)
        });
        block = Some(made.inspect_err(|_| {
            let _ = release(&place, Some(&file));
        })?);
    }
    let disk = Disk {
        process: std::process::id(),
        model: spec.model.clone(),
        size: spec.size.get(),
        store: spec.store.clone(),
        transport: attached.transport().to_owned(),
        floor_ns: attached.floor().get(),
        file,
        block,
        owner: spec.owner,
        ..Disk::default()
    };
    Ok((attached, disk))
}

/// The p90 oversleep on this host, at most [`SPIN_MAX`].
fn overshoot() -> Nanos {
    let sleeps = observe::interrupt_wake_ups().map(|(sleeps, _)| sleeps).unwrap_or_default();
    let at = sleeps.len().saturating_sub(1) * 9 / 10;
    sleeps.get(at).copied().unwrap_or(SPIN_MAX).min(SPIN_MAX)
}
