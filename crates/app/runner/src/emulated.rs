//! Stacks of attached models: a process that serves the disk of one, for as long as the stack is used.
//!
//! Invariants: the process ends before its directory goes; a disk begins anew, as the study says its drive
//! is, whenever its stack does.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use device::{FaultPlan, FaultPlanError};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use stack::{Journal, StackError, WorkArea, release, state_directory};
use stats::Served;
use study::Stack;
use units::Bytes;

use crate::RunnerError;
use crate::attached::{Disk, NotServed, all};
use crate::watch::{Event, Watcher};

/// Word of the verb that attaches.
const VERB: &str = "attach";
/// How often it says how it is, and time within which it has.
const SAYS_EVERY: Duration = Duration::from_millis(100);
const SAID_WITHIN: Duration = Duration::from_secs(2);
/// Time that it has to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// Whether what is to go wrong with a stack's drive can.
///
/// # Errors
/// [`RunnerError::Faults`] with what is allowed.
pub fn check_faults(stack: &Stack) -> Result<(), RunnerError> {
    let Some(faults) = &stack.faults else { return Ok(()) };
    let parsed = FaultPlan::parse(&faults.text());
    parsed.map(|_| ()).map_err(|error| RunnerError::Faults {
        of: format!("stack `{}`", stack.name),
        reason: match error {
            // Its place is not that in the study.
            FaultPlanError::Syntax(error) => error.message().to_owned(),
            error => error.to_string(),
        },
    })
}

/// An attached disk of a stack.
#[derive(Debug)]
pub(crate) struct Emulated {
    child: Child,
    disk: Disk,
    /// Its directory, inside the work area of the stack.
    place: PathBuf,
    /// Whether what is put on it is there before its life begins.
    staging: bool,
}

impl Emulated {
    /// Attaches the model of that name for a stack, in `area`; with a block device if need be.
    pub fn start(
        journal: &Journal,
        area: &WorkArea,
        (stack, model, capacity): (&Stack, &str, Bytes),
        block: bool,
    ) -> Result<Self, RunnerError> {
        let failed = StackError::io("attach a disk in", area.path());
        let at = area.fresh("attached")?;
        let size = stack.size().min(capacity);
        let mut command = match std::env::current_exe() {
            Ok(program) => Command::new(program),
            Err(error) => return Err(failed(error).into()),
        };
        command.args([VERB, model, "--foreground", "--json", "--size"]).arg(size.exact());
        command.arg("--at").arg(&at).args(["--condition", stack.condition.word()]);
        command.args(["--scale", &stack.scale.to_string()]);
        command.args(["--owner", &std::process::id().to_string()]);
        if block {
            command.arg("--block");
        }
        if stack.staged {
            command.arg("--staged");
        }
        if let Some(faults) = &stack.faults {
            let path = area.fresh("faults")?.join("plan.toml");
            let written = archive::output::write_durably(&path, faults.text().as_bytes());
            written.map_err(StackError::io("write", &path))?;
            command.arg("--faults").arg(path);
        }
        // Ctrl-C is for the run: the disk goes when its users have gone.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
        journal.mark().put_on(&mut command);
        let mut child = command.spawn().map_err(failed)?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            let _ = BufReader::new(output).read_line(&mut line);
        }
        let Ok(disk) = serde_json::from_str::<Disk>(&line) else {
            let _ = child.wait();
            let device = stack.device.text();
            return Err(match serde_json::from_str::<NotServed>(&line) {
                Ok(NotServed { refused: reason, next, scale }) => {
                    let with = |scale: u32| {
                        let name = &stack.name;
                        format!(
                            "--set stack.{name}.scale={scale} for this and the other stacks of its \
                             experiments"
                        )
                    };
                    let next = scale.map_or(next, with);
                    RunnerError::NotAttached { device, reason, next, scale }
                }
                Err(_) => StackError::Refused {
                    device,
                    reason: "it could not be attached".into(),
                    next: "what is said above; crosspoint doctor".into(),
                }
                .into(),
            });
        };
        let place = disk.file.parent().unwrap_or(Path::new("/")).to_owned();
        // What undoes it is noted by the process that serves.
        Ok(Self { child, disk, place, staging: stack.staged })
    }

    /// The file that is the disk.
    pub fn file(&self) -> &Path {
        &self.disk.file
    }

    /// Its block device, and the file that this is over.
    pub fn block(&self) -> Result<(&Path, &Path), StackError> {
        let block = self.disk.block.as_deref().map(|block| (block, self.file()));
        block.ok_or_else(|| StackError::Refused {
            device: self.file().display().to_string(),
            reason: "it has no block device".into(),
            next: "crosspoint doctor".into(),
        })
    }

    /// What it has delivered since counting began anew for the `marks`th time; none where that is not known.
    pub fn served(&self, marks: u32) -> Option<Served> {
        let state = state_directory().ok()?;
        let began = Instant::now();
        // It says how it is ten times a second: once more for what happened until now.
        std::thread::sleep(SAYS_EVERY * 2);
        while began.elapsed() < SAID_WITHIN {
            let own = all(&state).ok()?.into_iter().find(|disk| disk.file == self.disk.file)?;
            if own.served.marks >= marks {
                return Some(own.served);
            }
            std::thread::sleep(SAYS_EVERY);
        }
        None
    }

    /// What is put on it from now on is there before its life begins, until that ends.
    pub fn stage(&mut self, staging: bool) -> Result<(), StackError> {
        if self.staging == staging {
            return Ok(());
        }
        let state = state_directory()?;
        if let Some(server) = self.process() {
            let _ = pidfd_send_signal(server, Signal::USR2);
        }
        let began = Instant::now();
        let said = || all(&state).ok()?.into_iter().find(|disk| disk.file == self.disk.file);
        while said().is_none_or(|disk| disk.staging != staging) {
            if began.elapsed() > SAID_WITHIN {
                return Err(StackError::Refused {
                    device: self.disk.file.display().to_string(),
                    reason: "what serves it does not answer".into(),
                    next: "crosspoint attach".into(),
                });
            }
            std::thread::sleep(SAYS_EVERY);
        }
        self.staging = staging;
        Ok(())
    }

    /// The process that serves it.
    pub fn process(&self) -> Option<OwnedFd> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)?;
        pidfd_open(pid, PidfdFlags::empty()).ok()
    }
}

/// The process that serves a stack.
#[derive(Debug)]
struct StackServer {
    process: OwnedFd,
    /// How often it was to count anew.
    marks: u32,
    /// Whether it counted in the trial that runs, or ran last: an interval has ended since it was to.
    counted: bool,
}

/// The processes that serve the stacks of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Servers(Arc<Mutex<BTreeMap<String, StackServer>>>);

impl Servers {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, StackServer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// That of a stack, from now on.
    pub fn note(&self, stack: &str, server: Option<OwnedFd>) {
        let mut servers = self.all();
        servers.remove(stack);
        let made = |process| StackServer { process, marks: 0, counted: false };
        servers.extend(server.map(|server| (stack.to_owned(), made(server))));
    }

    /// A trial begins on a stack: nothing of it was counted yet.
    fn begin(&self, stack: &str) {
        if let Some(server) = self.all().get_mut(stack) {
            server.counted = false;
        }
    }

    /// An interval of a trial has ended: at the `first` the one of its stack is to count anew.
    fn interval(&self, stack: &str, first: bool) {
        let mut servers = self.all();
        let Some(server) = servers.get_mut(stack) else { return };
        if first {
            let _ = pidfd_send_signal(&server.process, Signal::USR1);
            server.marks += 1;
        }
        server.counted = !first;
    }

    /// How often the one of a stack was to count anew; none when it did not in the last trial.
    pub fn marks(&self, stack: &str) -> Option<u32> {
        self.all().get(stack).filter(|server| server.counted).map(|server| server.marks)
    }
}

/// A watcher that lets emulated drives count anew when a trial's first interval has ended: what was delivered
/// before was for loading. Of a trial of one interval nothing is counted.
pub(crate) struct CountingAnew<'a> {
    inner: &'a mut dyn Watcher,
    servers: Servers,
    begun: BTreeSet<u32>,
}

impl<'a> CountingAnew<'a> {
    pub const fn new(inner: &'a mut dyn Watcher, servers: Servers) -> Self {
        Self { inner, servers, begun: BTreeSet::new() }
    }
}

impl Watcher for CountingAnew<'_> {
    fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::TrialStarted { trial } => self.servers.begin(&trial.stack),
            Event::Interval { trial, .. } => {
                let first = self.begun.insert(trial.number);
                self.servers.interval(&trial.stack, first);
            }
            _ => {}
        }
        self.inner.event(event);
    }
}

impl Drop for Emulated {
    fn drop(&mut self) {
        let number = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = number {
            let _ = kill_process(pid, Signal::TERM);
        }
        let began = Instant::now();
        while began.elapsed() < PATIENCE && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        // One that was stopped, or whose disk is held: its clients get errors, and nothing waits for it.
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The loop device first: once it is unmounted nobody knows what that is over.
        let backing = self.disk.block.is_some().then_some(self.disk.file.as_path());
        let _ = release(&self.place, backing);
        // What it noted of itself goes, too.
        let _ = state_directory().map(|state| all(&state));
    }
}
