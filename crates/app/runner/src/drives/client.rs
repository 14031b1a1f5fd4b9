//! A drive's server, as the process that uses the drive sees it.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use attach::PowerCut;
use stack::{Mark, StackError, release, state_directory};
use stats::Served;

use super::{CutPlan, DRIVE_VERB, DriveSpec, NotServed, Request, Response, receive, send};
use crate::RunnerError;
use crate::attached::{Disk, all};

/// Time limit for a response.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Time limit for creating, copying or ending a drive, whose disk may be shared.
const WORK_MAX: Duration = Duration::from_secs(600);
/// Time limit for ending.
const END_MAX: Duration = Duration::from_secs(20);

/// The server process of a drive; dropping it removes the drive.
#[derive(Debug)]
pub struct DriveProcess {
    child: Child,
    channel: Mutex<Channel>,
    disk: Disk,
    left: bool,
}

#[derive(Debug)]
struct Channel {
    input: ChildStdin,
    answers: Receiver<std::io::Result<Response>>,
}

impl Channel {
    /// Sends a request and waits for its answer; unusable after an error.
    fn ask(&mut self, request: &Request, within: Duration) -> std::io::Result<Response> {
        send(&self.input, request)?;
        self.answers.recv_timeout(within).unwrap_or_else(|error| {
            Err(std::io::Error::other(match error {
                RecvTimeoutError::Timeout => "its server process does not answer",
                RecvTimeoutError::Disconnected => "its server process has ended",
            }))
        })
    }
}

impl DriveProcess {
    /// Starts a server and waits until its drive exists. The server records what it creates on the host.
    /// `mark` identifies its run.
    ///
    /// # Errors
    /// [`RunnerError::NotAttached`] if this host is too slow for the drive, [`StackError::Refused`] if it
    /// cannot be served here.
    pub fn start(spec: &DriveSpec, mark: Option<&Mark>) -> Result<Self, RunnerError> {
        let failed = |error| StackError::io("serve a drive in", &spec.at)(error);
        let spawn = || {
            let mut command = Command::new(std::env::current_exe()?);
            command.arg(DRIVE_VERB).stdin(Stdio::piped()).stdout(Stdio::piped());
            // A reader of our stderr must not wait for the drive to end.
            command.stderr(Stdio::null());
            // Ctrl-C is for the parent only: the drive ends after its users.
            command.process_group(0);
            if let Some(mark) = mark {
                mark.put_on(&mut command);
            }
            command.spawn()
        };
        let mut child = spawn().map_err(failed)?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (input, output) = pipes.expect("invariant: both were asked for");
        let mut channel = Channel { input, answers: receive(output) };
        let answer = channel.ask(&Request::Serve(Box::new(spec.clone())), WORK_MAX);
        let error = match answer {
            Ok(Response::Serving(disk)) => {
                let channel = channel.into();
                return Ok(Self { child, channel, disk: *disk, left: false });
            }
            Ok(Response::Refused(NotServed { device, reason, next, scale })) => match scale {
                Some(_) => RunnerError::NotAttached { device, reason, next, scale },
                None => StackError::refused(&device, reason, next).into(),
            },
            Ok(Response::Failed(reason)) => failed(std::io::Error::other(reason)).into(),
            Ok(other) => failed(unexpected(&other)).into(),
            Err(error) => failed(error).into(),
        };
        let _ = child.kill();
        let _ = child.wait();
        Err(error)
    }

    /// The drive as created.
    #[must_use]
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// The file that is the drive.
    pub(crate) fn file(&self) -> &Path {
        &self.disk.file
    }

    /// Keeps the server running after this process: the drive belongs to a user.
    pub fn leave(mut self) {
        self.left = true;
    }

    fn ask(&self, request: &Request, within: Duration) -> Result<Response, StackError> {
        let mut channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        channel.ask(request, within).map_err(StackError::io("use the drive at", self.file()))
    }

    fn wrong(&self, response: Response) -> StackError {
        let error = match response {
            Response::Failed(reason) => std::io::Error::other(reason),
            other => unexpected(&other),
        };
        StackError::io("use the drive at", self.file())(error)
    }

    fn done(&self, request: &Request, within: Duration) -> Result<(), StackError> {
        match self.ask(request, within)? {
            Response::Done => Ok(()),
            other => Err(self.wrong(other)),
        }
    }

    /// Resets the delivered times.
    pub(crate) fn reset_counts(&self) -> Result<(), StackError> {
        self.done(&Request::ResetCounts, ANSWER_MAX)
    }

    /// Delivered times since the last reset.
    pub(crate) fn served(&self) -> Result<Served, StackError> {
        match self.ask(&Request::GetServed, ANSWER_MAX)? {
            Response::Served(served) => Ok(served),
            other => Err(self.wrong(other)),
        }
    }

    /// Begins or ends the preload.
    pub(crate) fn stage(&self, staging: bool) -> Result<(), StackError> {
        self.done(&Request::Stage(staging), ANSWER_MAX)
    }

    /// Starts a fault plan; without one faults end and power is restored.
    pub(crate) fn begin_faults(&self, plan: Option<CutPlan>) -> Result<(), StackError> {
        self.done(&Request::Begin(plan), ANSWER_MAX)
    }

    /// Cuts the power now, unless it is off.
    pub(crate) fn cut_power(&self) -> Result<(), StackError> {
        self.done(&Request::CutPower, ANSWER_MAX)
    }

    /// The effect of a power cut; `None` while there is power.
    pub(crate) fn power_cut(&self) -> Result<Option<PowerCut>, StackError> {
        match self.ask(&Request::GetPowerCut, ANSWER_MAX)? {
            Response::PowerCut(cut) => Ok(cut),
            other => Err(self.wrong(other)),
        }
    }

    /// Copies the drive's contents to a new file.
    pub(crate) fn copy_to(&self, path: &Path) -> Result<(), StackError> {
        self.done(&Request::CopyTo(path.to_owned()), WORK_MAX)
    }

    /// Shuts the server down cleanly.
    pub(crate) fn end(mut self) -> Result<(), StackError> {
        self.done(&Request::End, END_MAX)?;
        self.child.wait().map(|_| ()).map_err(StackError::io("end the server of", self.file()))
    }
}

fn unexpected(response: &Response) -> std::io::Error {
    std::io::Error::other(format!("unexpected answer: {response:?}"))
}

impl Drop for DriveProcess {
    fn drop(&mut self) {
        if self.left {
            return;
        }
        if matches!(self.child.try_wait(), Ok(None)) {
            let ended = self.done(&Request::End, END_MAX).is_ok();
            let began = Instant::now();
            while ended && began.elapsed() < END_MAX && matches!(self.child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        // A stopped server, or one whose drive is in use, is killed: its clients get errors, and nothing
        // waits for it.
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The loop device first: after unmounting, its backing file is unknown.
        let backing = self.disk.block.is_some().then_some(self.disk.file.as_path());
        let _ = release(self.disk.file.parent().unwrap_or(Path::new("/")), backing);
        // Its registry entry is removed as well.
        let _ = state_directory().map(|state| all(&state));
    }
}
