//! The path of a request through the kernel: from the system call that causes it to the return from the call
//! that reports it.
//!
//! Counted are requests whose submitting thread also sees the completion: in the same call, or in a later
//! one for asynchronous I/O. Page faults, and requests that another thread reaps, are not counted.

use std::collections::BTreeMap;

use device::Operation;

use crate::event::Call;

/// Mean times are these sums over `count`, all in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestPath {
    /// Requests.
    pub count: u64,
    /// From the entry into the system call, or from the request before in the same call, to the block
    /// layer: system call, file system, page cache.
    pub submission: u64,
    /// In the block layer until the driver gets the request; 0 for drives without a queue of requests, and
    /// for flushes.
    pub queue: u64,
    /// In the driver and the drive, including hypervisor or fabric in front of it.
    pub drive: u64,
    /// From the completion until the thread runs.
    pub wake: u64,
    /// From there until the system call returns, or the thread looks again.
    pub completion: u64,
}

/// A request on its way; times in ns.
#[derive(Debug, Clone, Copy)]
struct Mark {
    row: usize,
    thread: u32,
    /// Start of its submission; 0 outside of a call.
    entered: u64,
    submitted: u64,
    issued: u64,
    completed: u64,
    resumed: u64,
}

/// What a thread is doing, as far as paths need it.
#[derive(Debug, Clone, Default)]
struct Caller {
    call: Option<Call>,
    /// Entry into the call, or the last submission in it.
    since: u64,
    /// Completed requests that the thread has not seen.
    unseen: Vec<usize>,
}

/// Follows requests by their index.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    marks: BTreeMap<usize, Mark>,
    callers: BTreeMap<u32, Caller>,
    pub sums: [RequestPath; 3],
}

impl Paths {
    /// The thread entered a call.
    pub fn enter(&mut self, at: u64, thread: u32, call: Call) {
        self.see(at, thread);
        let caller = self.callers.entry(thread).or_default();
        (caller.call, caller.since) = (Some(call), at);
    }

    /// The thread returned from its call.
    pub fn leave(&mut self, at: u64, thread: u32) {
        self.see(at, thread);
        self.callers.entry(thread).or_default().call = None;
    }

    /// The thread submitted a request.
    pub fn submit(&mut self, at: u64, thread: u32, (index, operation): (usize, Operation)) {
        // What it waited for in the same call is over since it runs again.
        if let Some(last) = self.last_resumed(thread) {
            self.see(last, thread);
            self.callers.entry(thread).or_default().since = last;
        }
        let row = match operation {
            Operation::Read => 0,
            Operation::Write => 1,
            Operation::Flush => 2,
            _ => return,
        };
        let Some(caller) = self.callers.get_mut(&thread) else { return };
        let storage = [Call::Read, Call::Write, Call::Flush, Call::AsyncIo];
        if caller.call.is_none_or(|call| !storage.contains(&call)) {
            return;
        }
        let (entered, none) = (caller.since, 0);
        caller.since = at;
        let mark = Mark {
            row,
            thread,
            entered,
            submitted: at,
            issued: none,
            completed: none,
            resumed: none,
        };
        self.marks.insert(index, mark);
    }

    /// The driver got a request; of several attempts the first counts.
    pub fn issue(&mut self, at: u64, index: usize) {
        if let Some(mark) = self.marks.get_mut(&index).filter(|mark| mark.issued == 0) {
            mark.issued = at;
        }
    }

    /// A request completed; `waits` tells whether its thread waits.
    pub fn complete(&mut self, at: u64, index: usize, waits: bool) {
        let Some(mark) = self.marks.get_mut(&index) else { return };
        let Some(caller) = self.callers.get_mut(&mark.thread) else { return };
        mark.completed = at;
        if !waits {
            mark.resumed = at;
        } else if matches!(caller.call, None | Some(Call::Lock | Call::Poll | Call::Sleep)) {
            // Another thread handles it.
            self.marks.remove(&index);
            return;
        }
        caller.unseen.push(index);
    }

    /// The thread has a CPU.
    pub fn run(&mut self, at: u64, thread: u32) {
        let Some(caller) = self.callers.get(&thread) else { return };
        for index in &caller.unseen {
            if let Some(mark) = self.marks.get_mut(index).filter(|mark| mark.resumed == 0) {
                mark.resumed = at;
            }
        }
    }

    /// Forgets everything in flight: events were lost.
    pub fn lose(&mut self) {
        self.marks.clear();
        self.callers.clear();
    }

    /// When the thread resumed after the last of its completed requests.
    fn last_resumed(&self, thread: u32) -> Option<u64> {
        let unseen = &self.callers.get(&thread)?.unseen;
        unseen.iter().filter_map(|index| self.marks.get(index)).map(|mark| mark.resumed).max()
    }

    fn see(&mut self, at: u64, thread: u32) {
        let Some(caller) = self.callers.get_mut(&thread) else { return };
        for index in caller.unseen.drain(..) {
            let Some(mark) = self.marks.remove(&index) else { continue };
            let issued = if mark.issued == 0 { mark.submitted } else { mark.issued };
            let issued = issued.clamp(mark.submitted, mark.completed.max(mark.submitted));
            let resumed = if mark.resumed == 0 { at } else { mark.resumed };
            let sum = &mut self.sums[mark.row];
            sum.count += 1;
            sum.submission += mark.submitted.saturating_sub(mark.entered);
            sum.queue += issued - mark.submitted;
            sum.drive += mark.completed.saturating_sub(issued);
            sum.wake += resumed.saturating_sub(mark.completed);
            sum.completion += at.saturating_sub(resumed);
        }
    }
}
