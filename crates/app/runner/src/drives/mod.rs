//! Modelled drives as live files, each served by a separate process: requests and responses.
//!
//! A process that is killed while one of its threads waits for the drive, in mount(2) for example, ends only
//! when the drive has answered, so it must not serve the drive itself. Messages are JSON lines over the
//! server's standard input and output.

mod client;
mod server;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, sync_channel};

use attach::PowerCut;
use device::{Fault, FaultPlan, FaultPlanError, Window};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use stats::Served;
use study::{Condition, Stack};
use units::{Bytes, Nanos, Seed, Share};

use crate::RunnerError;
use crate::attached::Disk;

pub use client::DriveProcess;
pub use server::{serve_attached, serve_drive};

/// The hidden verb that serves a drive.
pub const DRIVE_VERB: &str = "serve-drive";

/// Messages from the peer, one per line; the channel closes at the end of the input.
fn receive<T: DeserializeOwned + Send + 'static>(
    from: impl Read + Send + 'static,
) -> Receiver<std::io::Result<T>> {
    let (sender, receiver) = sync_channel(1);
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines() {
            let message = line.and_then(|line| Ok(serde_json::from_str(&line)?));
            if sender.send(message).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Sends a message to the other side.
fn send(mut to: impl Write, message: &impl Serialize) -> std::io::Result<()> {
    let mut text = serde_json::to_string(message)?;
    text.push('\n');
    to.write_all(text.as_bytes())?;
    to.flush()
}

/// The drive to serve.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DriveSpec {
    /// Name of the model, or path of a profile.
    pub model: String,
    /// Size of the disk: whole blocks of 4 KiB, at most the model's capacity.
    pub size: Bytes,
    /// State of the modelled drive.
    pub condition: Condition,
    /// Seed of its random draws.
    pub seed: u64,
    /// File with the data; `None` for memory.
    pub store: Option<PathBuf>,
    /// Directory below which the disk appears.
    pub at: PathBuf,
    /// Time scale: this many times slower than the model.
    pub scale: u32,
    /// Waits shorter than this are polled; `None`: the sleep overshoot measured on this machine.
    pub spin: Option<Nanos>,
    /// Path latency that the model leaves to its clients; `None`: that of synchronous I/O on this host.
    pub path: Option<Nanos>,
    /// Transport; none: the fastest that works.
    pub transport: Option<String>,
    /// Also create a block device.
    pub block: bool,
    /// No modelled latency and no faults until staging ends.
    pub staged: bool,
    /// Text of a fault plan.
    pub faults: Option<String>,
    /// The run that owns the drive; `None` for a user's.
    pub owner: Option<u32>,
}

impl DriveSpec {
    /// A drive of `size` in memory that belongs to this process.
    #[must_use]
    pub fn own(model: &str, size: Bytes, at: PathBuf) -> Self {
        Self {
            model: model.to_owned(),
            size,
            condition: Condition::Steady,
            seed: 1,
            store: None,
            at,
            scale: 1,
            spin: None,
            path: None,
            transport: None,
            block: false,
            staged: false,
            faults: None,
            owner: Some(std::process::id()),
        }
    }

    fn fault_plan(&self) -> Result<Option<FaultPlan>, FaultPlanError> {
        self.faults.as_deref().map(FaultPlan::parse).transpose()
    }
}

/// When the power fails, and the share of flushes that the drive drops.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct CutPlan {
    pub seed: u64,
    /// The power fails at this write, from 1.
    pub write: u64,
    /// Fraction of the flushes that are acknowledged and dropped.
    pub dropped_flushes: Share,
}

impl CutPlan {
    fn faults(self) -> FaultPlan {
        let cut = Fault::PowerCut { at: None, write: Some(self.write), protected: false };
        let lie = Fault::LyingFlush { share: self.dropped_flushes, when: Window::default() };
        let faults = if self.dropped_flushes > Share::NONE { vec![cut, lie] } else { vec![cut] };
        FaultPlan { seed: Seed(self.seed), faults }
    }
}

#[derive(Debug, Serialize, Deserialize)]
enum Request {
    /// The first message.
    Serve(Box<DriveSpec>),
    /// Resets the delivered times.
    ResetCounts,
    GetServed,
    /// Begins or ends the preload.
    Stage(bool),
    /// Starts fault injection; `None` restores power.
    Begin(Option<CutPlan>),
    CutPower,
    GetPowerCut,
    CopyTo(PathBuf),
    /// The last message; refused while the drive is in use.
    End,
}

#[derive(Debug, Serialize, Deserialize)]
enum Response {
    Done,
    Serving(Box<Disk>),
    Served(Served),
    PowerCut(Option<PowerCut>),
    Refused(NotServed),
    Failed(String),
}

/// Why a drive cannot be served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct NotServed {
    device: String,
    reason: String,
    next: String,
    /// The time scale at which it can be served, if the host is too slow.
    scale: Option<u32>,
}

/// Checks the fault plan of a stack's drive.
///
/// # Errors
/// [`RunnerError::Faults`] with what is allowed.
pub fn check_faults(stack: &Stack) -> Result<(), RunnerError> {
    let Some(faults) = &stack.faults else { return Ok(()) };
    let parsed = FaultPlan::parse(&faults.text());
    parsed.map(|_| ()).map_err(|error| RunnerError::Faults {
        of: format!("stack `{}`", stack.name),
        reason: match error {
            // Line numbers refer to an extract, not to the study, and are dropped.
            FaultPlanError::Syntax(error) => error.message().to_owned(),
            error => error.to_string(),
        },
    })
}
