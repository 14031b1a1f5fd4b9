//! The drive of power cuts, served by a process of its own.
//!
//! A process that is killed while a thread of it waits for the drive, in mount(2) for example, ends only when
//! the drive has answered: it must not serve the drive itself. They exchange JSON lines over the child's
//! standard input and output. Invariant: the child ends when its parent has ended.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use attach::{Attached, Pace, PowerCut, Spin, Store, Transport};
use device::{Condition, Fault, FaultPlan, Model, Window};
use serde::{Deserialize, Serialize};
use stack::{Journal, StackError, release};
use units::{Bytes, Nanos, Seed, Share};

use crate::RunnerError;

/// The hidden verb under which this program serves a drive.
pub const DRIVE_VERB: &str = "serve-drive";
/// Path latency that the model leaves to the client: more than any, so that no model is too fast.
const PATH: Nanos = Nanos::from_millis(10);

/// The drive to serve, at an empty directory.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct DriveSpec {
    pub model: String,
    pub size: Bytes,
    pub seed: u64,
    pub mount_point: PathBuf,
}

/// When the power goes, and how honest the drive is.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct CutPlan {
    pub seed: u64,
    /// The power goes with this write, from 1.
    pub write: u64,
    /// Share of the flushes that are acknowledged and dropped.
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
    Serve(DriveSpec),
    /// Faults from now on; none: the power is back.
    Begin(Option<CutPlan>),
    CutPower,
    GetPowerCut,
    CopyTo(PathBuf),
    End,
}

#[derive(Debug, Serialize, Deserialize)]
enum Response {
    Done,
    /// The file that is the drive.
    Serving(PathBuf),
    PowerCut(Option<PowerCut>),
    Failed(String),
}

/// A drive that a child serves.
#[derive(Debug)]
pub(crate) struct CutDrive {
    child: Child,
    line: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
    place: PathBuf,
    file: PathBuf,
}

impl CutDrive {
    /// Starts the child and has the drive mounted, which the caller has noted in the journal.
    pub fn start(journal: &Journal, spec: DriveSpec) -> Result<Self, RunnerError> {
        let place = spec.mount_point.clone();
        let failed = StackError::io("serve a drive at", &place);
        let spawn = || {
            let mut command = Command::new(std::env::current_exe()?);
            command.arg(DRIVE_VERB).stdin(Stdio::piped()).stdout(Stdio::piped());
            // Ctrl-C is for the parent: the drive goes after its users.
            command.process_group(0);
            journal.mark().put_on(&mut command);
            command.spawn()
        };
        let mut child = spawn().map_err(failed)?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (input, output) = pipes.expect("invariant: both were asked for");
        let line = Mutex::new((input, BufReader::new(output)));
        let mut drive = Self { child, line, place, file: PathBuf::new() };
        let model = spec.model.clone();
        match drive.request(&Request::Serve(spec))? {
            Response::Serving(file) => drive.file = file,
            Response::Failed(reason) => {
                let _ = drive.child.kill();
                let _ = drive.child.wait();
                let device = format!("model:{model}");
                return Err(StackError::Refused {
                    device,
                    reason,
                    next: "crosspoint doctor".into(),
                }
                .into());
            }
            other => return Err(drive.unexpected(&other).into()),
        }
        Ok(drive)
    }

    /// The file that is the drive.
    pub fn file(&self) -> &Path {
        &self.file
    }

    fn request(&self, request: &Request) -> Result<Response, StackError> {
        let talk = || {
            let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
            let (input, output) = &mut *line;
            let mut text = serde_json::to_string(request)?;
            text.push('\n');
            input.write_all(text.as_bytes())?;
            let mut answer = String::new();
            if output.read_line(&mut answer)? == 0 {
                return Err(std::io::Error::other("the process that serves it has ended"));
            }
            Ok(serde_json::from_str(&answer)?)
        };
        talk().map_err(StackError::io("use the drive at", &self.place))
    }

    fn unexpected(&self, response: &Response) -> StackError {
        let error = std::io::Error::other(format!("unexpected response: {response:?}"));
        StackError::io("use the drive at", &self.place)(error)
    }

    fn done(&self, request: &Request) -> Result<(), StackError> {
        match self.request(request)? {
            Response::Done => Ok(()),
            Response::Failed(reason) => {
                Err(StackError::io("use the drive at", &self.place)(std::io::Error::other(reason)))
            }
            other => Err(self.unexpected(&other)),
        }
    }

    /// Faults from now on; without a plan there are none any more, and the power is back.
    pub fn begin_faults(&self, plan: Option<CutPlan>) -> Result<(), StackError> {
        self.done(&Request::Begin(plan))
    }

    /// Cuts the power now, unless it is gone.
    pub fn cut_power(&self) -> Result<(), StackError> {
        self.done(&Request::CutPower)
    }

    /// What the power cut did; none while there is power.
    pub fn power_cut(&self) -> Result<Option<PowerCut>, StackError> {
        match self.request(&Request::GetPowerCut)? {
            Response::PowerCut(cut) => Ok(cut),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Copies what is on the drive to a file that does not exist yet.
    pub fn copy_to(&self, path: &Path) -> Result<(), StackError> {
        self.done(&Request::CopyTo(path.to_owned()))
    }

    /// Unmounts the drive and ends the child.
    pub fn end(mut self) -> Result<(), StackError> {
        release(&self.place, None)?;
        self.done(&Request::End)?;
        self.child.wait().map(|_| ()).map_err(StackError::io("end the server of", &self.place))
    }
}

/// Serves a drive until its parent asks to end it or has ended itself.
///
/// # Errors
/// When standard input holds an invalid request.
pub fn serve_drive() -> std::io::Result<()> {
    let mut attached = None;
    for line in std::io::stdin().lock().lines() {
        let request = serde_json::from_str(&line?)?;
        let end = matches!(request, Request::End);
        let response = handle(&mut attached, request).unwrap_or_else(Response::Failed);
        let mut out = std::io::stdout().lock();
        serde_json::to_writer(&mut out, &response)?;
        out.write_all(b"\n")?;
        out.flush()?;
        if end || attached.is_none() {
            break;
        }
    }
    Ok(())
}

fn handle(attached: &mut Option<Attached>, request: Request) -> Result<Response, String> {
    if let Request::Serve(spec) = request {
        let made = serve(&spec).map_err(|error| error.to_string())?;
        let file = made.file();
        *attached = Some(made);
        return Ok(Response::Serving(file));
    }
    let words = |error: std::io::Error| error.to_string();
    let drive = attached.as_ref().ok_or("no drive is served")?;
    match request {
        Request::Serve(_) => {}
        Request::Begin(plan) => drive.begin_faults(plan.map(CutPlan::faults)),
        Request::CutPower => drive.cut_power().map_err(words)?,
        Request::GetPowerCut => return Ok(Response::PowerCut(drive.power_cut())),
        Request::CopyTo(path) => drive.copy_to(&path).map_err(words)?,
        Request::End => {
            attached.take().map_or(Ok(()), |drive| drive.ended().map(drop)).map_err(words)?;
        }
    }
    Ok(Response::Done)
}

fn serve(spec: &DriveSpec) -> Result<Attached, Box<dyn std::error::Error>> {
    let profile = crate::profile(&spec.model)?;
    let store = Store::in_memory(spec.size)?;
    let model = Model::new(&profile, Condition::Fresh, Seed(spec.seed));
    let pace = Pace { scale: 1, spin: Spin::Exactly(Nanos::ZERO), path: PATH };
    let unmount = || drop(release(&spec.mount_point, None));
    let transport = Some(Transport::Classic);
    Ok(Attached::new(&spec.mount_point, (model, store), (pace, transport), &unmount)?)
}
