//! What comes from outside of a simulation: processes that join and end, threads that wait for other
//! programs, and files that become ready.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use device::Device;
use sim::scheduler::{Key, TaskId, Wait, Waker};
use units::Nanos;

use super::{Coordinator, POLL_INTERVAL, Thread};
use crate::error::VtimeError;
use crate::process::{Process, wait_for_thread};
use crate::wire::{self, End, NEVER, PROCESSES};

/// Polling interval while a thread waits for a file, or time may not run ahead.
const FILE_INTERVAL: Duration = Duration::from_millis(1);
/// Time in which a program must have joined.
const JOIN_MAX: Duration = Duration::from_secs(20);
/// Real time in which an ending thread or process is waited for.
const END_MAX: Duration = Duration::from_secs(2);

/// The key of a thread that waits for files.
const fn file_key(task: TaskId) -> Key {
    Key(u64::MAX - task.0 as u64)
}

impl<D: Device> Coordinator<'_, D> {
    /// The process whose end is that of the simulation, if it has been admitted.
    fn main(&self) -> Option<usize> {
        (self.shared.header.main.load(Acquire) as usize).checked_sub(1)
    }

    fn is_admitted(&self, number: usize) -> bool {
        number < self.shared.header.admitted.load(Acquire) as usize
    }

    /// Whether the main process and its servers have ended.
    pub(super) fn is_over(&self) -> bool {
        let alone = self.shared.header.admitted.load(Acquire) == 1;
        if alone && self.joined[0] && self.shared.slots[0].ended.load(Relaxed) == 1 {
            return true;
        }
        let joined = |number: usize| !self.is_admitted(number) || self.joined[number];
        self.processes.is_empty() && self.main().is_some() && (0..PROCESSES).all(joined)
    }

    /// Whether something outside of the simulation can continue it.
    pub(super) fn waits_for_others(&self) -> bool {
        let expected = |number: usize| self.is_admitted(number) && !self.joined[number];
        let held = self.main().is_none_or(expected);
        held || self.awaits_signal()
            || !self.outside.is_empty()
            || !self.files.is_empty()
            || (0..PROCESSES).any(expected)
    }

    /// How far time may advance while no thread runs: before the main process joins, other programs set up
    /// its server, and time passes as on their clocks.
    pub(super) fn limit(&mut self) -> Option<Nanos> {
        if self.main().is_some_and(|main| self.joined[main]) {
            return None;
        }
        let now = self.scheduler.now();
        let (real, at) = *self.held.get_or_insert_with(|| (Instant::now(), now));
        Some(at + Nanos(real.elapsed().as_nanos() as u64))
    }

    /// Waits for something outside of the simulation.
    pub(super) fn pause(&mut self) -> Result<(), VtimeError> {
        let seen = self.shared.header.returns.load(Acquire);
        if !self.files.is_empty() {
            self.wake_by_files(None, FILE_INTERVAL);
        } else if seen == self.returns {
            let held = self.main().is_none_or(|main| !self.joined[main]);
            let limit = if held { FILE_INTERVAL } else { POLL_INTERVAL };
            wire::wait(&self.shared.header.returns, seen, Some(limit));
        }
        self.find_ended();
        let Some(starting) = &self.starting else { return Ok(()) };
        if starting.has_ended()? || self.began.elapsed() > JOIN_MAX {
            return Err(VtimeError::NotJoined { program: self.program.clone() });
        }
        Ok(())
    }

    /// Admits processes that have loaded the library.
    pub(super) fn take_joined(&mut self) -> Result<(), VtimeError> {
        let admitted = self.shared.header.admitted.load(Acquire) as usize;
        for number in 0..admitted.min(PROCESSES) {
            let slot = &self.shared.slots[number];
            if self.joined[number] || slot.returned.swap(0, AcqRel) == 0 {
                continue;
            }
            self.joined[number] = true;
            let process = slot.process.load(Relaxed);
            match self.starting.take_if(|starting| starting.number == process) {
                Some(starting) => self.processes.push(starting),
                None => self.processes.push(Process::open(process)?),
            }
            self.scheduler.start(TaskId(number as u32));
        }
        Ok(())
    }

    /// Wakes the threads with a ready file, by `waker` or by other programs; waits up to `limit` for one.
    pub(super) fn wake_by_files(&mut self, waker: Option<TaskId>, limit: Duration) {
        for task in self.files.ready(limit) {
            self.forget_files(task);
            match waker {
                Some(waker) => {
                    self.scheduler.wake(waker, file_key(task), 1, Waker::Socket);
                }
                None => {
                    self.scheduler.complete(task, self.scheduler.now().max(self.latest));
                }
            }
        }
    }

    /// Ends the threads of processes that have ended; returns whether there were any.
    pub(super) fn find_ended(&mut self) -> bool {
        let ended = |process: &Process| Some(process.has_ended().ok()?.then_some(process.number));
        let ended: Vec<u32> = self.processes.iter().filter_map(ended).flatten().collect();
        ended.iter().for_each(|process| self.end_process(*process));
        !ended.is_empty()
    }

    pub(super) fn forget_files(&mut self, task: TaskId) {
        self.files.remove(task);
        self.files.tell(&self.shared.header);
    }

    /// A process has made another.
    pub(super) fn add_child(&mut self, child: u32, parent: u32) -> Result<(), VtimeError> {
        self.processes.push(Process::open(child)?.of(parent));
        Ok(())
    }

    /// A thread ends, or its process does.
    pub(super) fn exit(&mut self, task: TaskId) {
        let slot = &self.shared.slots[task.0 as usize];
        let key = Key(slot.arguments[1].load(Relaxed));
        self.scheduler.wake(task, key, usize::MAX, Waker::Futex);
        self.last = None;
        if slot.arguments[0].load(Relaxed) == 0 {
            slot.ended.store(1, Release);
            self.scheduler.exit(task);
            slot.give_turn(task.0, None);
            // It may hold locks of the C library.
            let (process, thread) = (slot.process.load(Relaxed), slot.thread.load(Relaxed));
            wait_for_thread(process, thread, END_MAX);
            return;
        }
        // Nobody else runs before its files are closed and its parent can reap it.
        self.latest = self.latest.max(self.scheduler.time_of(task));
        let seen = self.shared.header.returns.load(Acquire);
        slot.give_turn(task.0, None);
        let process = slot.process.load(Relaxed);
        if let Some(ending) = self.processes.iter().find(|one| one.number == process) {
            ending.wait_for_end(END_MAX);
        }
        let parent = self.processes.iter().find(|one| one.number == process);
        let parent = parent.map_or(0, |one| one.parent);
        self.end_process(process);
        if parent != 0 {
            self.await_arrival(parent, libc::SIGCHLD as u32, seen);
        }
    }

    /// Ends all threads of a process; its parent may wait for that.
    pub(super) fn end_process(&mut self, process: u32) {
        for number in 0..self.threads.len() {
            let slot = &self.shared.slots[number];
            if slot.process.load(Relaxed) != process || slot.ended.swap(1, AcqRel) == 1 {
                continue;
            }
            let task = TaskId(number as u32);
            self.forget_keys(task);
            self.forget_files(task);
            self.threads[number] = Thread::default();
            self.outside.retain(|outside| *outside != task);
            self.scheduler.remove(task);
        }
        let parents = self.processes.iter().filter(|one| one.number == process);
        let parents: Vec<u64> = parents.map(|one| wire::child_key(one.parent)).collect();
        for (number, thread) in self.threads.iter().enumerate() {
            if thread.keys.iter().any(|key| parents.contains(key)) {
                let at = self.scheduler.now().max(self.latest);
                self.scheduler.complete(TaskId(number as u32), at);
            }
        }
        self.processes.retain(|one| one.number != process);
        self.timers.forget(process);
    }

    /// Readmits threads that have returned from outside, and ends waits that signals interrupt.
    pub(super) fn take_returned(&mut self) {
        let seen = self.shared.header.returns.load(Acquire);
        if seen == self.returns {
            return;
        }
        self.returns = seen;
        self.interrupt_waits();
        if !self.files.is_empty() {
            self.wake_by_files(None, Duration::ZERO);
        }
        let (shared, scheduler) = (self.shared, &mut self.scheduler);
        let at = scheduler.now().max(self.latest);
        self.outside.retain(|task| {
            let back = shared.slots[task.0 as usize].returned.swap(0, AcqRel) == 1;
            if back {
                scheduler.complete(*task, at);
            }
            !back
        });
    }

    /// A process uses the drive.
    pub(super) fn note_user(&mut self, process: u32) {
        let user = self.processes.iter_mut().find(|one| one.number == process);
        user.into_iter().for_each(|one| one.uses_drive = true);
    }

    /// Measures the memory of the processes that use the drive: it is not free for the page cache.
    pub(super) fn measure_memory(&mut self) {
        let users = self.processes.iter().filter(|one| one.uses_drive);
        let used = users.map(Process::memory).sum();
        self.drives.main().reserve(used);
    }

    /// Whether the library is loaded in a process; without it a program never makes a call.
    pub(super) fn has_library(&self, process: u32) -> bool {
        let name = self.host.library.file_name().unwrap_or_default().to_string_lossy();
        let maps = std::fs::read_to_string(format!("/proc/{process}/maps"));
        maps.map_or(true, |maps| maps.contains(&*name))
    }

    /// A thread waits for files.
    pub(super) fn wait_files(&mut self, task: TaskId) -> Result<(), VtimeError> {
        let slot = &self.shared.slots[task.0 as usize];
        let argument = |place: usize| slot.arguments[place].load(Relaxed);
        if slot.signaled.load(Relaxed) == 1 {
            self.threads[task.0 as usize].answer = End::Interrupted as i64;
            return Ok(());
        }
        let deadline = Some(argument(0)).filter(|at| *at != NEVER).map(Nanos);
        let process = slot.process.load(Relaxed);
        let process = self.processes.iter().find(|one| one.number == process);
        for place in 0..(argument(1) as usize).min(wire::KEYS) {
            let file = argument(2 + place);
            let file = (file as u32 as i32, (file >> 32) as i16);
            process.map_or(Ok(()), |process| self.files.add(task, process, file))?;
        }
        self.files.tell(&self.shared.header);
        let thread = &mut self.threads[task.0 as usize];
        (thread.blocked, thread.polls, thread.awaits_signal) = (true, true, false);
        self.scheduler.block(task, &[file_key(task)], deadline, Wait::Network);
        Ok(())
    }
}
