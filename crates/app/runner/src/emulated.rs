//! Stacks of attached models: a process that serves the disk of one, for as long as the stack is used.
//!
//! Invariants: the process ends before its directory goes; a disk begins anew, as the study says its drive
//! is, whenever its stack does. What it is not: serving; that is `crosspoint attach`.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use stack::{Journal, StackError, Undo, WorkArea, release, state_directory};
use study::{Condition, Stack};
use units::Bytes;

use crate::attached::{Disk, all};

/// Word of the verb that attaches.
const VERB: &str = "attach";
/// Time that it has to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// An attached disk of a stack.
#[derive(Debug)]
pub(crate) struct Emulated {
    child: Child,
    disk: Disk,
    /// Its directory, inside the work area of the stack.
    place: PathBuf,
}

impl Emulated {
    /// Attaches the model of that name for a stack, in `area`.
    pub fn start(
        journal: &Journal,
        area: &WorkArea,
        (stack, model, capacity): (&Stack, &str, Bytes),
    ) -> Result<Self, StackError> {
        let failed = StackError::io("attach a disk in", area.path());
        let refused = |reason: String| StackError::Refused {
            device: stack.device.text(),
            reason,
            next: format!("crosspoint attach {model}, to see why"),
        };
        let at = area.fresh("attached")?;
        let size = stack.size().min(capacity);
        let mut command = match std::env::current_exe() {
            Ok(program) => Command::new(program),
            Err(error) => return Err(failed(error)),
        };
        command.args([VERB, model, "--foreground", "--json", "--size"]).arg(size.exact());
        command.arg("--at").arg(&at).arg("--condition").arg(match stack.condition {
            Condition::Steady => "steady",
            Condition::Fresh => "fresh",
            Condition::Filled => "filled",
        });
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
            return Err(refused("it could not be attached".into()));
        };
        let place = disk.file.parent().unwrap_or(Path::new("/")).to_owned();
        let made = Self { child, disk, place };
        journal.note(Undo::Unmount { path: made.place.clone() })?;
        Ok(made)
    }

    /// The file that is the disk.
    pub fn file(&self) -> &Path {
        &self.disk.file
    }

    /// What it has delivered since it was attached, for people; none where it cannot be told.
    pub fn served(&self) -> Option<String> {
        let disks = all(&state_directory().ok()?).ok()?;
        let own = disks.into_iter().find(|disk| disk.file == self.disk.file)?;
        Some(format!("emulated: {}", own.served))
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
        let _ = release(&self.place, None);
        // What it noted of itself goes, too.
        let _ = state_directory().map(|state| all(&state));
    }
}
