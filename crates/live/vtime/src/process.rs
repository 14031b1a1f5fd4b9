//! A process of a simulation, held by a pidfd so that its ID cannot be reused.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Signal, pidfd_getfd, pidfd_open, pidfd_send_signal,
};

use crate::error::VtimeError;

/// A process.
#[derive(Debug)]
pub struct Process {
    /// Process ID.
    pub number: u32,
    /// Its parent, if that is in the simulation, otherwise 0.
    pub(crate) parent: u32,
    /// It has used the drive.
    pub(crate) uses_drive: bool,
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
        Ok(Self { number, parent: 0, uses_drive: false, handle })
    }

    /// The same, made by `parent`.
    pub(crate) fn of(self, parent: u32) -> Self {
        Self { parent, ..self }
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> Result<bool, VtimeError> {
        let mut asked = [PollFd::new(&self.handle, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready = poll(&mut asked, Some(&now));
        Ok(ready.map_err(|error| VtimeError::io("watch the program")(error.into()))? > 0)
    }

    /// Bytes of its memory that is not a file's; 0 once it has ended.
    pub(crate) fn memory(&self) -> u64 {
        let read = std::fs::read_to_string(format!("/proc/{}/statm", self.number));
        let text = read.unwrap_or_default();
        let mut fields = text.split_whitespace().skip(1).map_while(|field| field.parse().ok());
        let (all, shared): (u64, u64) = (fields.next().unwrap_or(0), fields.next().unwrap_or(0));
        all.saturating_sub(shared) * rustix::param::page_size() as u64
    }

    /// Waits up to `limit` until it has ended.
    pub(crate) fn wait_for_end(&self, limit: Duration) {
        let mut asked = [PollFd::new(&self.handle, PollFlags::IN)];
        let (tv_sec, tv_nsec) = (limit.as_secs() as i64, i64::from(limit.subsec_nanos()));
        let _ = poll(&mut asked, Some(&Timespec { tv_sec, tv_nsec }));
    }

    /// A duplicate of one of its descriptors.
    ///
    /// # Errors
    /// It is closed, or this user may not trace the process.
    pub(crate) fn file(&self, descriptor: i32) -> Result<OwnedFd, VtimeError> {
        let found = pidfd_getfd(&self.handle, descriptor, PidfdGetfdFlags::empty());
        found.map_err(|error| VtimeError::io("use a file of the program")(error.into()))
    }

    /// Sends a signal to it, or to one of its threads if that is not 0.
    pub(crate) fn send(&self, signal: u32, thread: u32, code: i32, value: u64) {
        // The kernel's siginfo_t: signal, errno, code, and from byte 16 those of a timer.
        let mut about = [0_u64; 16];
        about[0] = u64::from(signal);
        about[1] = u64::from(code as u32);
        about[3] = value;
        let about = about.as_ptr();
        // SAFETY: the kernel copies 128 bytes; both fail if the process has ended.
        unsafe {
            if thread == 0 {
                let handle = self.handle.as_raw_fd();
                libc::syscall(libc::SYS_pidfd_send_signal, handle, signal, about, 0);
            } else {
                libc::syscall(libc::SYS_rt_tgsigqueueinfo, self.number, thread, signal, about);
            }
        }
    }

    /// Whether a signal runs a handler of it, or ends it: it is not ignored, and not blocked in all threads.
    pub(crate) fn reacts_to(&self, signal: u32) -> bool {
        let folder = format!("/proc/{}/task", self.number);
        let threads = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let read = |thread: std::fs::DirEntry| {
            std::fs::read_to_string(thread.path().join("status")).unwrap_or_default()
        };
        signal != 0 && threads.map(read).any(|status| reacts(&status, signal))
    }

    pub(crate) fn kill(&self) {
        let _ = pidfd_send_signal(&self.handle, Signal::KILL);
    }
}

/// The program of a process that has exited, not by a signal, and has not been reaped yet.
pub(crate) fn exited(process: u32) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (program, fields) = text.split_once('(')?.1.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    // The state and, last, the exit status as of wait(2) (proc(5)).
    let status: u32 = fields.last()?.parse().ok()?;
    (fields.first() == Some(&"Z") && status & 0x7f == 0).then(|| program.to_owned())
}

/// Whether a signal runs a handler of a thread or ends its process, by its status (proc(5)).
fn reacts(status: &str, signal: u32) -> bool {
    let is_in = |set: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(set)?.strip_prefix(':'));
        let set = line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok());
        set.unwrap_or_default() >> (signal.max(1) - 1) & 1 == 1
    };
    let harmless = [libc::SIGCHLD, libc::SIGCONT, libc::SIGURG, libc::SIGWINCH];
    let is_caught = is_in("SigCgt");
    let is_fatal = !is_caught && !is_in("SigIgn") && !harmless.contains(&(signal as i32));
    !is_in("SigBlk") && (is_caught || is_fatal)
}

/// Waits up to `limit` until a thread that is ending is gone; the first thread of a process stays.
pub(crate) fn wait_for_thread(process: u32, thread: u32, limit: Duration) {
    let began = std::time::Instant::now();
    let task = std::path::PathBuf::from(format!("/proc/{process}/task/{thread}"));
    while process != thread && task.exists() && began.elapsed() < limit {
        std::thread::yield_now();
    }
}

/// CPU time of a thread in clock ticks if it sleeps; `None` while it runs or has not started.
pub(crate) fn cpu_of(process: u32, thread: u32) -> Option<u64> {
    // A thread that exited without a call counts as asleep; ID 0 has not started.
    let read = std::fs::read_to_string(format!("/proc/{process}/task/{thread}/stat"));
    let Ok(text) = read else { return (thread != 0).then_some(0) };
    let (_, fields) = text.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let asleep = matches!(*fields.first()?, "S" | "T" | "Z" | "X");
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    asleep.then_some(ticks)
}
