//! The files that threads wait for: sockets, pipes and whatever else poll(2) supports.
//!
//! The kernel knows which files are ready, so nothing about connections is simulated: the coordinator holds a
//! duplicate of each file that is waited for, and polls them after a call that may have made one ready, and
//! before time jumps ahead because every thread waits. The latter also finds what other programs send.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use sim::scheduler::TaskId;

use crate::error::VtimeError;
use crate::process::Process;
use crate::wire::Header;

#[derive(Debug, Default)]
pub(crate) struct AwaitedFiles {
    waiters: Vec<(TaskId, OwnedFd)>,
    /// What to poll for, in the order of `waiters`.
    asked: Vec<libc::pollfd>,
}

impl AwaitedFiles {
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Tells threads how many files are waited for, all and to be written to.
    pub fn tell(&self, header: &Header) {
        let space = self.asked.iter().filter(|asked| asked.events & libc::POLLOUT != 0).count();
        header.awaited_files.store(self.asked.len() as u32, Relaxed);
        header.awaited_space.store(space as u32, Relaxed);
    }

    /// A thread of `process` waits for `events` of its descriptor.
    ///
    /// # Errors
    /// The descriptor cannot be duplicated: it is closed, or this user may not.
    pub fn add(
        &mut self,
        task: TaskId,
        process: &Process,
        (descriptor, events): (i32, i16),
    ) -> Result<(), VtimeError> {
        let file = process.file(descriptor)?;
        self.asked.push(libc::pollfd { fd: file.as_raw_fd(), events, revents: 0 });
        self.waiters.push((task, file));
        Ok(())
    }

    /// The thread no longer waits.
    pub fn remove(&mut self, task: TaskId) {
        for number in (0..self.waiters.len()).rev() {
            if self.waiters[number].0 == task {
                self.waiters.remove(number);
                self.asked.remove(number);
            }
        }
    }

    /// The threads with a ready file, in the order in which they began to wait; waits up to `limit` for one.
    pub fn ready(&mut self, limit: Duration) -> Vec<TaskId> {
        let (count, limit) = (self.asked.len() as libc::nfds_t, limit.as_millis() as libc::c_int);
        // SAFETY: an array of that length, of open descriptors.
        let found = unsafe { libc::poll(self.asked.as_mut_ptr(), count, limit) };
        if found <= 0 {
            return Vec::new();
        }
        let ready = self.waiters.iter().zip(&self.asked).filter(|(_, asked)| asked.revents != 0);
        let mut ready: Vec<TaskId> = ready.map(|((task, _), _)| *task).collect();
        ready.dedup();
        ready
    }
}
