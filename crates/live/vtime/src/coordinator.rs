//! The loop that owns the clock.
//!
//! Invariant: at most one thread of the program has the turn; while it has, nobody else touches the slots.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

use device::Device;
use sim::scheduler::{Key, Next, Scheduler, TaskId, Times, Wait, Waker};
use units::Nanos;

use crate::drive::Drive;
use crate::error::VtimeError;
use crate::file_access::{AccessStart, StepEnd};
use crate::file_calls;
use crate::host::{Ended, Host};
use crate::process::Process;
use crate::wire::{self, Call, NEVER, SLOTS, Shared, Totals};

/// CPU time of a buffered access without device requests, and of copying a KiB (assumed; 10 GB/s).
const CACHED_ACCESS: Nanos = Nanos(400);
const COPY_KIB: Nanos = Nanos(100);
/// Polling interval for a program that makes no calls.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Polls without CPU time after which a thread counts as asleep.
const LOOKS: u32 = 60;
/// Polls after which a program must have joined.
const JOIN_LOOKS: u32 = 400;

/// A thread's state outside of the scheduler.
#[derive(Debug, Default)]
struct Thread {
    keys: Vec<u64>,
    answer: i64,
    /// CPU time that it still has to spend before it returns.
    owed: Nanos,
    blocked: bool,
}

pub(crate) struct Coordinator<'h, D> {
    shared: &'static Shared,
    scheduler: Scheduler,
    drive: Drive<D>,
    host: &'h Host,
    threads: Vec<Thread>,
    steps: Vec<StepEnd>,
    turns: u64,
    /// The thread that made the last call, while it waits for its turn.
    last: Option<TaskId>,
    /// Number of returns from outside that were handled, and number of threads that are outside.
    returns: u32,
    outside: Vec<TaskId>,
    program: String,
    process: Process,
}

impl<'h, D: Device> Coordinator<'h, D> {
    /// The state before the first turn of the program's main thread.
    pub fn new(
        (host, drive): (&'h Host, Drive<D>),
        shared: &'static Shared,
        (program, process): (String, Process),
    ) -> Self {
        let mut scheduler = Scheduler::new(host.cores, host.costs);
        scheduler.enter(None);
        Self {
            shared,
            scheduler,
            drive,
            host,
            threads: vec![Thread::default()],
            steps: Vec::new(),
            turns: 0,
            last: None,
            returns: 0,
            outside: Vec::new(),
            program,
            process,
        }
    }

    /// The result, after `real` time.
    pub fn ended(&self, real: Duration) -> Ended {
        Ended {
            time: (0..self.threads.len())
                .map(|number| self.scheduler.time_of(TaskId(number as u32)))
                .fold(self.scheduler.now(), Nanos::max),
            times: self.times(),
            threads: self.threads.len(),
            counts: self.scheduler.counts(),
            drive: self.drive.totals(),
            turns: self.turns,
            real,
        }
    }

    pub fn kill(&self) {
        self.process.kill();
    }

    /// Runs the program to its end.
    pub fn run(&mut self) -> Result<(), VtimeError> {
        loop {
            if !self.outside.is_empty() {
                self.take_returned();
            }
            match self.scheduler.next(self.drive.next_event()) {
                Next::Run { task, until } => {
                    if !self.turn(task, until)? {
                        return Ok(());
                    }
                }
                Next::Device(at) => self.device(at),
                Next::Finished => return Ok(()),
                Next::Stuck if !self.outside.is_empty() => {
                    let seen = self.shared.header.returns.load(Acquire);
                    if seen == self.returns {
                        wire::wait(&self.shared.header.returns, seen, Some(POLL_INTERVAL));
                        if self.process.has_ended()? {
                            return Ok(());
                        }
                    }
                }
                Next::Stuck => {
                    return Err(VtimeError::Stuck { threads: self.threads.len() });
                }
            }
        }
    }

    /// Readmits threads that have returned from outside.
    fn take_returned(&mut self) {
        let seen = self.shared.header.returns.load(Acquire);
        if seen == self.returns {
            return;
        }
        self.returns = seen;
        let (shared, scheduler) = (self.shared, &mut self.scheduler);
        self.outside.retain(|task| {
            let back = shared.slots[task.0 as usize].returned.swap(0, AcqRel) == 1;
            if back {
                scheduler.complete(*task, scheduler.now());
            }
            !back
        });
    }

    /// Whether the library is loaded in a process; without it a program never makes a call.
    fn has_library(&self, process: u32) -> bool {
        let process = if process == 0 { self.process.number } else { process };
        let name = self.host.library.file_name().unwrap_or_default().to_string_lossy();
        let maps = std::fs::read_to_string(format!("/proc/{process}/maps"));
        maps.map_or(true, |maps| maps.contains(&*name))
    }

    /// Sum over all threads.
    fn times(&self) -> Times {
        let mut times = Times::default();
        for number in 0..self.threads.len() {
            times.add(&self.scheduler.times(TaskId(number as u32)));
        }
        times
    }

    /// Counters of a thread, or of the program.
    fn totals(&self, task: Option<TaskId>) -> Totals {
        let (drive, counts) = (self.drive.totals(), self.scheduler.counts());
        let times = task.map_or_else(|| self.times(), |task| self.scheduler.times(task));
        let [reading, writing, flushing] = drive.times.map(Nanos::get);
        let waits = times.waits.iter();
        let parts: Vec<u64> = [&times.cpu, &times.run_queue, &times.wake_up]
            .into_iter()
            .chain(waits)
            .map(|time| time.get())
            .collect();
        Totals {
            cpu: times.cpu.get(),
            waits: counts.waits,
            preemptions: counts.preemptions,
            reads: [drive.reads, drive.read_bytes, reading],
            writes: [drive.writes, drive.written_bytes, writing],
            flushes: [drive.flushes, flushing],
            times: std::array::from_fn(|place| parts[place]),
        }
    }

    fn device(&mut self, at: Nanos) {
        let mut steps = std::mem::take(&mut self.steps);
        self.drive.advance(at, &mut steps);
        for StepEnd { task, at, next } in steps.drain(..) {
            match next {
                Some(wait) => self.scheduler.wait_for(task, at, wait),
                None => self.scheduler.complete(task, at),
            }
        }
        self.steps = steps;
    }

    /// Lets a thread run until its next call, and executes that. Returns false if the program ended.
    fn turn(&mut self, task: TaskId, until: Nanos) -> Result<bool, VtimeError> {
        let thread = &mut self.threads[task.0 as usize];
        let slot = &self.shared.slots[task.0 as usize];
        if std::mem::take(&mut thread.blocked) {
            for key in thread.keys.drain(..) {
                self.shared.header.awaited[wire::hash(key)].fetch_sub(1, Relaxed);
            }
            if self.scheduler.timed_out(task) {
                thread.answer = 1;
            }
        }
        let owed = std::mem::take(&mut thread.owed);
        self.scheduler.charge(task, owed);
        slot.at.store(self.scheduler.time_of(task).get(), Relaxed);
        slot.until.store(until.get(), Relaxed);
        slot.cpu.store(0, Relaxed);
        slot.answer.store(std::mem::take(&mut thread.answer), Relaxed);
        slot.pending.store(0, Relaxed);
        let last = self.last.take().map(|TaskId(last)| &self.shared.slots[last as usize]);
        slot.give_turn(task.0, last);
        self.turns += 1;
        if !self.await_call(task)? {
            return Ok(false);
        }
        self.scheduler.charge(task, Nanos(slot.cpu.load(Relaxed)));
        self.handle_call(task)
    }

    /// Waits until the thread that has the turn makes a call; returns `false` if the program ended instead.
    fn await_call(&self, task: TaskId) -> Result<bool, VtimeError> {
        let slot = &self.shared.slots[task.0 as usize];
        let (mut looks, mut waited, mut cpu) = (0, 0, None);
        loop {
            if slot.await_call(&self.shared.header, POLL_INTERVAL) {
                return Ok(true);
            }
            if self.process.has_ended()? {
                if self.shared.header.joined.load(Acquire) == 0 {
                    return Err(VtimeError::NotJoined { program: self.program.clone() });
                }
                return Ok(false);
            }
            let (process, thread) = (slot.process.load(Relaxed), slot.thread.load(Relaxed));
            waited += 1;
            // A library of another version does not join.
            let late = waited > JOIN_LOOKS && self.shared.header.joined.load(Acquire) == 0;
            if late || waited % LOOKS == 0 && !self.has_library(process) {
                return Err(VtimeError::NotJoined { program: self.program.clone() });
            }
            let now = cpu_of(process, thread);
            looks = if now.is_none() || now != cpu { 0 } else { looks + 1 };
            cpu = now;
            if looks >= LOOKS {
                let path = format!("/proc/{process}/task/{thread}/syscall");
                let text = std::fs::read_to_string(path).unwrap_or_default();
                let number = text.split_whitespace().next().unwrap_or("unknown").to_owned();
                return Err(VtimeError::Asleep { thread: task.0, number });
            }
        }
    }

    /// Carries out the call of a thread. Returns false if its process ends.
    fn handle_call(&mut self, task: TaskId) -> Result<bool, VtimeError> {
        let slot = &self.shared.slots[task.0 as usize];
        let argument = |place: usize| slot.arguments[place].load(Relaxed);
        let call = Call::of(slot.call.load(Relaxed));
        self.last = Some(task);
        match call {
            Some(Call::Yield) if argument(0) == 1 => self.scheduler.give_way(task),
            None | Some(Call::Yield) => {}
            Some(Call::Block) => self.block(task),
            Some(Call::Wake) => {
                let most = usize::try_from(argument(1)).unwrap_or(usize::MAX);
                let woken = self.scheduler.wake(task, Key(argument(0)), most, Waker::Futex);
                self.threads[task.0 as usize].answer = woken as i64;
            }
            Some(Call::Spawn) => {
                if self.threads.len() == SLOTS {
                    let call = "pthread_create for more than 4,096 threads".to_owned();
                    return Err(VtimeError::Uncovered { thread: task.0, call });
                }
                self.threads.push(Thread::default());
                let TaskId(number) = self.scheduler.reserve(None);
                self.threads[task.0 as usize].answer = i64::from(number);
            }
            Some(Call::Start) => self.scheduler.start(TaskId(argument(0) as u32)),
            Some(Call::Cancel) => self.scheduler.cancel(TaskId(argument(0) as u32)),
            Some(Call::Exit) => {
                let process = argument(0) == 1;
                slot.ended.store(1, Release);
                let key = Key(argument(1));
                self.scheduler.wake(task, key, usize::MAX, Waker::Futex);
                self.scheduler.exit(task);
                slot.give_turn(task.0, None);
                self.last = None;
                return Ok(!process);
            }
            Some(
                call @ (Call::Access
                | Call::Sync
                | Call::Resize
                | Call::Remove
                | Call::Evict
                | Call::Evicted),
            ) => self.use_file(task, call),
            Some(Call::Leave) => {
                self.last = None;
                self.outside.push(task);
                self.scheduler.block(task, &[], None, Wait::Network);
            }
            Some(Call::Totals) => {
                let totals = self.totals((argument(0) == 1).then_some(task));
                for (place, value) in slot.arguments.iter().zip(totals.values()) {
                    place.store(value, Relaxed);
                }
            }
            Some(Call::Uncovered) => {
                let call = slot.uncovered_name();
                return Err(VtimeError::Uncovered { thread: task.0, call });
            }
        }
        Ok(true)
    }

    /// Carries out a thread's call on a file.
    fn use_file(&mut self, task: TaskId, call: Call) {
        let slot = &self.shared.slots[task.0 as usize];
        let argument = |place: usize| slot.arguments[place].load(Relaxed);
        let now = self.scheduler.time_of(task);
        let flags = if call == Call::Access { argument(3) } else { 0 };
        let cached = match call {
            Call::Access => (flags & wire::access::DIRECT == 0).then(|| argument(2)),
            _ => Some(0),
        };
        let submit = self.submit_time(flags & wire::access::WRITE != 0);
        if let Some(begun) = file_calls::handle(&mut self.drive, slot, (task, now + submit.1), call)
        {
            self.begun(task, begun, (submit.0, cached));
        }
    }

    fn block(&mut self, task: TaskId) {
        let slot = &self.shared.slots[task.0 as usize];
        let argument = |place: usize| slot.arguments[place].load(Relaxed);
        let wait = Wait::ALL[(argument(0) as usize).min(Wait::ALL.len() - 1)];
        let deadline = Some(argument(1)).filter(|at| *at != NEVER).map(Nanos);
        let count = (argument(3) as usize).min(wire::KEYS);
        if argument(2) != 0 {
            self.scheduler.wake(task, Key(argument(2)), 1, Waker::Futex);
        }
        let thread = &mut self.threads[task.0 as usize];
        thread.keys.extend((0..count).map(|place| argument(4 + place)));
        thread.blocked = true;
        let keys: Vec<Key> = thread.keys.iter().map(|key| Key(*key)).collect();
        for key in &keys {
            self.shared.header.awaited[wire::hash(key.0)].fetch_add(1, Relaxed);
        }
        self.scheduler.block(task, &keys, deadline, wait);
    }

    /// CPU time to submit a request, and how much of it passes before the device begins.
    fn submit_time(&self, writes: bool) -> (Nanos, Nanos) {
        let path = &self.host.path;
        let submit = if writes { path.submit_write } else { path.submit };
        (submit, if path.contained { Nanos::ZERO } else { submit })
    }

    /// Handles the start of a thread's access: CPU time only, or a wait for the drive.
    fn begun(&mut self, task: TaskId, begun: AccessStart, (submit, cached): (Nanos, Option<u64>)) {
        let copied = cached.map(|length| CACHED_ACCESS + Nanos(COPY_KIB.get() * length / 1024));
        let copied = copied.unwrap_or(Nanos::ZERO);
        match begun {
            AccessStart::Done => self.scheduler.charge(task, copied),
            AccessStart::Waits(wait) => {
                self.scheduler.charge(task, submit);
                self.threads[task.0 as usize].owed = self.host.path.complete + copied;
                self.scheduler.block(task, &[], None, wait);
            }
        }
    }
}

/// CPU time of a thread in clock ticks if it sleeps; `None` while it runs or has not started.
fn cpu_of(process: u32, thread: u32) -> Option<u64> {
    // A thread that exited without a call counts as asleep; ID 0 has not started.
    let read = std::fs::read_to_string(format!("/proc/{process}/task/{thread}/stat"));
    let Ok(text) = read else { return (thread != 0).then_some(0) };
    let (_, fields) = text.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let asleep = matches!(*fields.first()?, "S" | "T" | "Z" | "X");
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    asleep.then_some(ticks)
}

impl<D> Drop for Coordinator<'_, D> {
    fn drop(&mut self) {
        // Its threads would sleep forever.
        if std::thread::panicking() {
            self.process.kill();
        }
    }
}
