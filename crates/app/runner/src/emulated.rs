//! Stacks on emulated drives: the drive of each while it is used, and its served latencies per trial.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stack::{Journal, StackError, WorkArea};
use stats::Served;
use study::Stack;
use units::Bytes;

use crate::RunnerError;
use crate::drives::{DriveProcess, DriveSpec};
use crate::watch::{Event, Watcher};

/// Starts the drive of a stack in `area`, in the study's condition, with a block device if needed.
pub(crate) fn start(
    journal: &Journal,
    area: &WorkArea,
    (stack, model, capacity): (&Stack, &str, Bytes),
    block: bool,
) -> Result<DriveProcess, RunnerError> {
    let spec = DriveSpec {
        condition: stack.condition,
        scale: stack.scale,
        staged: stack.staged,
        faults: stack.faults.as_ref().map(study::StackFaults::text),
        block,
        ..DriveSpec::own(model, stack.size().min(capacity), area.fresh("attached")?)
    };
    let with_stack = |error| match error {
        RunnerError::NotAttached { reason, next, scale, .. } => {
            let with = |scale: u32| {
                let name = &stack.name;
                format!(
                    "--set stack.{name}.scale={scale} for this and the other stacks of its experiments"
                )
            };
            let (device, next) = (stack.device.text(), scale.map_or(next, with));
            RunnerError::NotAttached { device, reason, next, scale }
        }
        other => other,
    };
    DriveProcess::start(&spec, Some(journal.mark())).map_err(with_stack)
}

/// The block device of a drive, and the file behind it.
pub(crate) fn block(drive: &DriveProcess) -> Result<(&Path, &Path), StackError> {
    let block = drive.disk().block.as_deref().map(|block| (block, drive.file()));
    block.ok_or_else(|| {
        StackError::refused(&drive.file().display(), "it has no block device", "crosspoint doctor")
    })
}

/// A drive of a stack.
#[derive(Debug, Clone)]
struct StackDrive {
    process: Arc<DriveProcess>,
    /// Its counts were reset in the current or last trial.
    reset: bool,
    /// An interval has ended since the reset.
    counted: bool,
}

/// The drives of a run, by stack.
#[derive(Debug, Clone, Default)]
pub(crate) struct Drives(Arc<Mutex<BTreeMap<String, StackDrive>>>);

impl Drives {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, StackDrive>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn of(&self, stack: &str) -> Option<Arc<DriveProcess>> {
        self.all().get(stack).map(|drive| Arc::clone(&drive.process))
    }

    /// Adds the drive of a stack that has none.
    pub fn add(&self, stack: &str, process: Arc<DriveProcess>) {
        self.all().insert(stack.to_owned(), StackDrive { process, reset: false, counted: false });
    }

    /// Ends the drive of a stack.
    pub fn remove(&self, stack: &str) {
        let removed = self.all().remove(stack);
        drop(removed);
    }

    /// Starts a trial on a stack; nothing counts before its first interval has ended.
    fn begin(&self, stack: &str) {
        if let Some(drive) = self.all().get_mut(stack) {
            (drive.reset, drive.counted) = (false, false);
        }
    }

    /// Ends an interval of a trial; the `first` one resets the counters.
    fn interval(&self, stack: &str, first: bool) {
        let mut drives = self.all();
        let Some(drive) = drives.get_mut(stack) else { return };
        if first {
            // If the server does not answer, this trial has no counters.
            drive.reset = drive.process.reset_counts().is_ok();
        } else {
            drive.counted = drive.reset;
        }
    }

    /// Delivered times of a stack's drive in the last trial; `None` if nothing was counted.
    pub fn served(&self, stack: &str) -> Option<Served> {
        let drive = self.all().get(stack).filter(|drive| drive.counted).cloned()?;
        drive.process.served().ok()
    }
}

/// A watcher that resets the served latencies after a trial's first interval, to exclude loading. A trial of
/// one interval has no counters.
pub(crate) struct ResetCounts<'a> {
    inner: &'a mut dyn Watcher,
    drives: Drives,
    begun: BTreeSet<u32>,
}

impl<'a> ResetCounts<'a> {
    pub const fn new(inner: &'a mut dyn Watcher, drives: Drives) -> Self {
        Self { inner, drives, begun: BTreeSet::new() }
    }
}

impl Watcher for ResetCounts<'_> {
    fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::TrialStarted { trial } => self.drives.begin(&trial.stack),
            Event::Interval { trial, .. } => {
                let first = self.begun.insert(trial.number);
                self.drives.interval(&trial.stack, first);
            }
            _ => {}
        }
        self.inner.event(event);
    }
}
