//! The process of a simulated program, held by a pidfd so that its ID cannot be reused.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::error::VtimeError;

/// A child of this process.
#[derive(Debug)]
pub struct Process {
    /// Process ID.
    pub number: u32,
    handle: OwnedFd,
}

impl Process {
    /// Holds a child that has not been waited for.
    ///
    /// # Errors
    /// No pidfd can be opened, for example for lack of descriptors.
    pub fn open(number: u32) -> Result<Self, VtimeError> {
        let id = i32::try_from(number).ok().and_then(Pid::from_raw);
        let opened = id.ok_or(rustix::io::Errno::SRCH);
        let opened = opened.and_then(|id| pidfd_open(id, PidfdFlags::empty()));
        let handle = opened.map_err(|error| VtimeError::io("watch the program")(error.into()))?;
        Ok(Self { number, handle })
    }

    /// Whether it has ended.
    ///
    /// # Errors
    /// The kernel does not report it.
    pub(crate) fn has_ended(&self) -> Result<bool, VtimeError> {
        let mut asked = [PollFd::new(&self.handle, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready = poll(&mut asked, Some(&now));
        Ok(ready.map_err(|error| VtimeError::io("watch the program")(error.into()))? > 0)
    }

    pub(crate) fn kill(&self) {
        let _ = pidfd_send_signal(&self.handle, Signal::KILL);
    }
}
