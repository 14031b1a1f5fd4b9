//! The loop that owns the clock.
//!
//! Invariant: at most one thread of all programs has the turn; while it has, nobody else touches the slots.

mod participants;
mod signals;

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use device::Device;
use sim::Jitter;
use sim::scheduler::{Key, Next, Scheduler, TaskId, Times, Wait, Waker};
use units::Nanos;

use crate::awaited_files::AwaitedFiles;
use crate::cold_caches::{self, ColdCaches, Interval};
use crate::drives::Drives;
use crate::error::VtimeError;
use crate::file_access::{AccessStart, StepEnd};
use crate::file_calls;
use crate::host::{Ended, Host};
use crate::process::{Process, cpu_of, exited};
use crate::wire::{self, Call, End, NEVER, PROCESSES, SLOTS, Shared, Slot, Totals, TotalsOf};

/// Interval of measuring the memory of programs, in virtual time.
const MEASURE_INTERVAL: Nanos = Nanos::from_millis(20);
/// Polling interval for a program that makes no calls.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Polls without CPU time after which a thread counts as asleep.
const LOOKS: u32 = 60;

/// A thread's state outside of the scheduler.
#[derive(Debug, Default)]
struct Thread {
    keys: Vec<u64>,
    answer: i64,
    /// CPU time that it still has to spend before it returns.
    owed: Nanos,
    blocked: bool,
    /// Only a signal can end its wait.
    awaits_signal: bool,
    /// A signal has ended it.
    interrupted: bool,
    /// Whether it waits for files.
    polls: bool,
    interval: Interval,
}

pub(crate) struct Coordinator<'h, D> {
    shared: &'static Shared,
    scheduler: Scheduler,
    drives: Drives<D>,
    host: &'h Host,
    jitter: Jitter,
    cold_caches: ColdCaches,
    threads: Vec<Thread>,
    steps: Vec<StepEnd>,
    turns: u64,
    /// The thread that made the last call, while it waits for its turn.
    last: Option<TaskId>,
    /// Number of returns from outside that were handled, and the threads that are outside.
    returns: u32,
    outside: Vec<TaskId>,
    /// Which of the first slots has had a process.
    joined: [bool; PROCESSES],
    /// Those that have joined and not ended, and one that has to join.
    processes: Vec<Process>,
    starting: Option<Process>,
    began: Instant,
    /// The end of the latest stretch of any thread.
    latest: Nanos,
    files: AwaitedFiles,
    timers: signals::Timers,
    /// Virtual time from which on the programs' memory is to be measured again.
    measure_at: Nanos,
    /// Real and virtual time from which on virtual time may not be ahead of real time.
    held: Option<(Instant, Nanos)>,
    program: String,
}

impl<'h, D: Device> Coordinator<'h, D> {
    /// The state before any program has joined. `starting` is the process of the first one if it has been
    /// started.
    pub fn new(
        (host, drives): (&'h Host, Drives<D>),
        shared: &'static Shared,
        (program, starting): (String, Option<Process>),
    ) -> Self {
        let mut scheduler = Scheduler::new(host.cores, host.costs);
        let threads = (0..PROCESSES).map(|_| Thread::default()).collect();
        (0..PROCESSES).for_each(|_| _ = scheduler.reserve());
        Self {
            shared,
            scheduler,
            drives,
            host,
            jitter: Jitter::new(host.path.jitter, host.seed),
            cold_caches: ColdCaches::new(),
            threads,
            steps: Vec::new(),
            turns: 0,
            last: None,
            returns: 0,
            outside: Vec::new(),
            joined: [false; PROCESSES],
            processes: Vec::new(),
            starting,
            began: Instant::now(),
            latest: Nanos::ZERO,
            files: AwaitedFiles::default(),
            timers: signals::Timers::default(),
            measure_at: Nanos::ZERO,
            held: None,
            program,
        }
    }

    /// Numbers of the threads of programs.
    fn joined(&self) -> impl Iterator<Item = usize> {
        let used = |number: &usize| self.shared.slots[*number].process.load(Relaxed) != 0;
        (0..self.threads.len()).filter(used)
    }

    /// The result, after `real` time.
    pub fn ended(&self, real: Duration) -> Ended {
        Ended {
            time: (0..self.threads.len())
                .map(|number| self.scheduler.time_of(TaskId(number as u32)))
                .fold(self.scheduler.now(), Nanos::max),
            times: self.times(|_| true),
            threads: self.joined().count(),
            counts: self.scheduler.counts(),
            drive: self.drives.totals(),
            turns: self.turns,
            real,
        }
    }

    pub fn kill(&self) {
        self.processes.iter().chain(&self.starting).for_each(Process::kill);
    }

    /// Runs the programs until the last has ended.
    pub fn run(&mut self) -> Result<(), VtimeError> {
        loop {
            self.take_joined()?;
            self.take_returned();
            let idle = self.scheduler.is_idle();
            if idle && !self.files.is_empty() {
                self.wake_by_files(None, Duration::ZERO);
            }
            let timer = self.timers.next();
            let device = self.drives.next_event().into_iter().chain(timer).min();
            let limit = if self.scheduler.is_idle() { self.limit() } else { None };
            let limit = limit.filter(|limit| device.is_none_or(|at| at > *limit));
            match self.scheduler.next(limit.or(device)) {
                Next::Run { task, until } => self.turn(task, until)?,
                Next::Device(at) if limit == Some(at) => self.pause()?,
                Next::Device(at) if timer == Some(at) => self.send_due(at),
                Next::Device(at) => self.device(at),
                Next::Stuck | Next::Finished if self.waits_for_others() => self.pause()?,
                Next::Stuck | Next::Finished if self.find_ended() => {}
                Next::Stuck | Next::Finished => {
                    return Err(VtimeError::Stuck { threads: self.joined().count() });
                }
            }
            if self.drives.main().loses_power() {
                self.kill();
                let cut = self.drives.main().cut_power();
                return cut.map_err(VtimeError::io("write the drive's image"));
            }
            if self.is_over() || self.shared.header.stop.load(Relaxed) == 1 {
                self.kill();
                return Ok(());
            }
        }
    }

    /// The thread's wait for keys has ended.
    fn forget_keys(&mut self, task: TaskId) {
        for key in self.threads[task.0 as usize].keys.drain(..) {
            self.shared.header.awaited[wire::hash(key)].fetch_sub(1, Relaxed);
        }
    }

    /// Sum over threads of the processes that `counts` accepts.
    fn times(&self, counts: impl Fn(u32) -> bool) -> Times {
        let mut times = Times::default();
        for number in 0..self.threads.len() {
            if counts(self.shared.slots[number].process.load(Relaxed)) {
                times.add(&self.scheduler.times(TaskId(number as u32)));
            }
        }
        times
    }

    /// Times of the threads of other processes that have waited for a message.
    fn times_of_servers(&self, own: u32) -> Times {
        let mut sum = Times::default();
        for number in 0..self.threads.len() {
            let times = self.scheduler.times(TaskId(number as u32));
            let process = self.shared.slots[number].process.load(Relaxed);
            if process != own && times.waits[Wait::Network as usize] > Nanos::ZERO {
                sum.add(&times);
            }
        }
        sum
    }

    /// Counters of a thread, of its process, or of what serves that.
    fn totals(&self, task: TaskId, of: TotalsOf) -> Totals {
        let (drive, counts) = (self.drives.totals(), self.scheduler.counts());
        let own = self.shared.slots[task.0 as usize].process.load(Relaxed);
        let times = match of {
            TotalsOf::Thread => self.scheduler.times(task),
            TotalsOf::Process => self.times(|process| process == own),
            TotalsOf::Servers => self.times_of_servers(own),
        };
        let [reading, writing, flushing] = [0, 1, 2].map(|row| drive.stages.total(row));
        let waits = times.waits.iter();
        let parts: Vec<u64> = [&times.cpu, &times.run_queue, &times.wake_up]
            .into_iter()
            .chain(waits)
            .map(|time| time.get())
            .collect();
        Totals {
            cpu: times.cpu.get(),
            cpu_of_others: self.times(|process| process != own).cpu.get(),
            waits: counts.waits,
            preemptions: counts.preemptions,
            reads: [drive.reads, drive.read_bytes, reading],
            writes: [drive.writes, drive.written_bytes, writing],
            dirtied: drive.dirtied_bytes,
            flushes: [drive.flushes, flushing],
            times: std::array::from_fn(|place| parts[place]),
            stages: drive.stages.values(),
        }
    }

    fn device(&mut self, at: Nanos) {
        let mut steps = std::mem::take(&mut self.steps);
        self.drives.advance(at, &mut steps);
        for StepEnd { task, at, next } in steps.drain(..) {
            match next {
                Some(wait) => self.scheduler.wait_for(task, at, wait),
                None => _ = self.scheduler.complete_late(at, task, self.jitter.draw()),
            }
        }
        self.steps = steps;
    }

    /// Lets a thread run until its next call, and executes that.
    fn turn(&mut self, task: TaskId, until: Nanos) -> Result<(), VtimeError> {
        let slot = &self.shared.slots[task.0 as usize];
        if std::mem::take(&mut self.threads[task.0 as usize].blocked) {
            self.forget_keys(task);
            self.threads[task.0 as usize].answer = self.end_of_wait(task) as i64;
        }
        if std::mem::take(&mut self.threads[task.0 as usize].polls) {
            self.forget_files(task);
        }
        let thread = &mut self.threads[task.0 as usize];
        let owed = std::mem::take(&mut thread.owed);
        let wake = self.scheduler.take_wake(task);
        // Caches do not change a fixed CPU time.
        let start = wake.filter(|_| self.host.cpu_time.is_none()).map(|wake| {
            let process = slot.process.load(Relaxed);
            self.cold_caches.start(process, wake, &mut thread.interval)
        });
        let start = start.unwrap_or_default();
        self.scheduler.charge(task, owed + start.extra);
        slot.at.store(self.scheduler.time_of(task).get(), Relaxed);
        slot.until.store(until.get(), Relaxed);
        slot.yields.store(u32::from(self.scheduler.spins(task)), Relaxed);
        slot.cpu.store(0, Relaxed);
        slot.answer.store(std::mem::take(&mut thread.answer), Relaxed);
        slot.pending.store(0, Relaxed);
        let mut last = self.last.take().map(|TaskId(last)| &self.shared.slots[last as usize]);
        if start.idle > Nanos::ZERO {
            last.take().into_iter().for_each(Slot::let_sleep);
            cold_caches::leave_idle(start.idle, self.shared.header.spins.load(Relaxed) > 0);
        }
        slot.give_turn(task.0, last);
        self.turns += 1;
        if !self.await_call(task)? {
            let process = slot.process.load(Relaxed);
            // It has executed a program without the library, all of which took no virtual time.
            if let Some(program) = exited(process) {
                return Err(VtimeError::NotJoined { program });
            }
            self.end_process(process);
            return Ok(());
        }
        let cpu = Nanos(slot.cpu.load(Relaxed));
        self.threads[task.0 as usize].interval.add(cpu);
        self.scheduler.charge(task, cpu);
        self.latest = self.latest.max(self.scheduler.time_of(task));
        self.handle_call(task)
    }

    /// Waits until the thread that has the turn makes a call; returns `false` if its process ended instead.
    fn await_call(&self, task: TaskId) -> Result<bool, VtimeError> {
        let slot = &self.shared.slots[task.0 as usize];
        let (mut looks, mut cpu, mut looked) = (0, None, Instant::now());
        let (mut waited, mut limit) = (0, self.stretch_of(slot));
        loop {
            if slot.await_call(&self.shared.header, limit) {
                return Ok(true);
            }
            self.preempt(slot);
            limit = signals::STRETCH_MIN;
            if looked.elapsed() < POLL_INTERVAL {
                continue;
            }
            looked = Instant::now();
            if self.shared.header.stop.load(Relaxed) == 1 {
                self.kill();
            }
            let (process, thread) = (slot.process.load(Relaxed), slot.thread.load(Relaxed));
            let own = self.processes.iter().find(|one| one.number == process);
            if own.map_or(Ok(true), Process::has_ended)? {
                return Ok(false);
            }
            waited += 1;
            // It may have executed another program.
            if waited % LOOKS == 0 && !self.has_library(process) {
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

    /// Carries out the call of a thread.
    fn handle_call(&mut self, task: TaskId) -> Result<(), VtimeError> {
        let slot = &self.shared.slots[task.0 as usize];
        let argument = |place: usize| slot.arguments[place].load(Relaxed);
        let call = Call::of(slot.call.load(Relaxed));
        self.last = Some(task);
        let yielded = argument(0) == 1 || slot.yields.load(Relaxed) == wire::YIELDED;
        if call != Some(Call::Yield) || !yielded {
            self.scheduler.act(task);
        }
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
                let TaskId(number) = self.scheduler.reserve();
                let process = slot.process.load(Relaxed);
                self.shared.slots[number as usize].process.store(process, Relaxed);
                self.threads[task.0 as usize].answer = i64::from(number);
            }
            Some(Call::Start) => {
                let child = argument(1) as u32;
                if child != 0 {
                    self.shared.slots[argument(0) as usize].process.store(child, Relaxed);
                    self.add_child(child, slot.process.load(Relaxed))?;
                }
                self.scheduler.start(TaskId(argument(0) as u32));
            }
            Some(Call::Cancel) => self.scheduler.cancel(TaskId(argument(0) as u32)),
            Some(Call::Exit) => self.exit(task),
            Some(Call::WaitFiles) => self.wait_files(task)?,
            Some(Call::Notify) => self.wake_by_files(Some(task), Duration::ZERO),
            Some(
                call @ (Call::Access
                | Call::Sync
                | Call::Resize
                | Call::Remove
                | Call::Evict
                | Call::Evicted),
            ) => self.use_file(task, call)?,
            Some(Call::Leave) => {
                self.last = None;
                self.outside.push(task);
                self.scheduler.block(task, &[], None, Wait::Network);
            }
            Some(Call::Totals) => {
                let totals = self.totals(task, TotalsOf::of(argument(0)));
                for (place, value) in slot.arguments.iter().zip(totals.values()) {
                    place.store(value, Relaxed);
                }
            }
            Some(Call::Signal) => self.sent(task),
            Some(Call::Timer) => self.set_timer(slot),
            Some(Call::Uncovered) => {
                let call = slot.uncovered_name();
                return Err(VtimeError::Uncovered { thread: task.0, call });
            }
        }
        Ok(())
    }

    /// Carries out a thread's call on a file.
    fn use_file(&mut self, task: TaskId, call: Call) -> Result<(), VtimeError> {
        let slot = &self.shared.slots[task.0 as usize];
        let argument = |place: usize| slot.arguments[place].load(Relaxed);
        let now = self.scheduler.time_of(task);
        if self.drives.main().has_shared_memory() {
            self.note_user(slot.process.load(Relaxed));
            if now >= self.measure_at {
                self.measure_memory();
                self.measure_at = now + MEASURE_INTERVAL;
            }
        }
        let flags = if call == Call::Access { argument(3) } else { 0 };
        let submit = self.host.submit_time(flags & wire::access::WRITE != 0);
        let maps = flags & wire::access::MAPPED != 0;
        let process = slot.process.load(Relaxed);
        let uses = [Call::Access, Call::Sync].contains(&call);
        let drive = match call {
            Call::Resize if argument(3) > 0 => self.drives.opened(argument(0), argument(3) == 2),
            Call::Remove => self.drives.removed(argument(0)),
            _ => self.drives.of(argument(0)),
        };
        if uses && drive.is_mapped_by_other(argument(0), process, maps) {
            let call = "use of a file that another process has mapped".to_owned();
            return Err(VtimeError::Uncovered { thread: task.0, call });
        }
        let begun = file_calls::handle(drive, slot, (task, now + submit.1), call);
        let Some(begun) = begun else { return Ok(()) };
        // Pages are unmapped before other threads run: later writes to them have to be noticed.
        while slot.arguments[0].load(Relaxed) > 0 {
            slot.pending.store(0, Relaxed);
            slot.give_turn(task.0, None);
            if !self.await_call(task)? {
                self.end_process(slot.process.load(Relaxed));
                return Ok(());
            }
            file_calls::tell_evicted(self.drives.last(), slot);
        }
        self.begun(task, begun, submit.0);
        Ok(())
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
        if slot.signaled.load(Relaxed) == 1 {
            thread.answer = End::Interrupted as i64;
            return;
        }
        thread.keys.extend((0..count).map(|place| argument(4 + place)));
        (thread.blocked, thread.awaits_signal) = (true, count == 0 && deadline.is_none());
        let keys: Vec<Key> = thread.keys.iter().map(|key| Key(*key)).collect();
        for key in &keys {
            self.shared.header.awaited[wire::hash(key.0)].fetch_add(1, Relaxed);
        }
        self.scheduler.block(task, &keys, deadline, wait);
    }

    /// Handles the start of a thread's access: CPU time only, or a wait for the drive.
    fn begun(&mut self, task: TaskId, begun: AccessStart, submit: Nanos) {
        let work = self.drives.last().work();
        match begun {
            AccessStart::Done => self.scheduler.charge(task, work),
            AccessStart::Waits(wait) => {
                self.scheduler.charge(task, submit);
                self.threads[task.0 as usize].owed = self.host.path.complete + work;
                self.scheduler.block(task, &[], None, wait);
            }
        }
    }
}

impl<D> Drop for Coordinator<'_, D> {
    fn drop(&mut self) {
        // Its threads would sleep forever.
        if std::thread::panicking() {
            self.processes.iter().chain(&self.starting).for_each(Process::kill);
        }
    }
}
