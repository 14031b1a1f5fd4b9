//! The loop that owns the clock.
//!
//! Invariant: at most one thread of the program has the turn; while it has, nobody else touches the slots.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, SystemTime};

use device::Device;
use sim::HostModel;
use sim::scheduler::{Counts, Key, Next, Scheduler, SchedulerCosts, TaskId, Times, Wait, Waker};
use units::Nanos;

use crate::drive::{Begun, Drive, DriveTotals, FileAccess, StepEnd};
use crate::error::VtimeError;
use crate::wire::{self, Call, NEVER, SLOTS, Shared, UNCOVERED};

/// The simulated host.
#[derive(Debug, Clone)]
pub struct Host {
    /// Virtual cores.
    pub cores: usize,
    /// Costs of scheduling.
    pub costs: SchedulerCosts,
    /// Costs of a device request on the host's side.
    pub path: HostModel,
    /// The library to preload.
    pub library: PathBuf,
    /// Files below it are on the drive.
    pub directory: PathBuf,
}

/// How a simulation ended.
#[derive(Debug, Clone)]
pub struct Ended {
    /// Exit code of the program.
    pub code: i32,
    /// Virtual time.
    pub time: Nanos,
    /// Sum over all threads.
    pub times: Times,
    /// Threads that there were.
    pub threads: usize,
    /// What the scheduler did.
    pub counts: Counts,
    /// What the drive did.
    pub drive: DriveTotals,
    /// Turns that were given.
    pub turns: u64,
    /// Time that the simulation took.
    pub real: Duration,
}

/// How far a thread runs past the next event of another before it gives up its turn: less changes no result
/// and costs more turns.
const SLACK: Nanos = Nanos(2_000);
/// CPU time of a buffered access without device requests, and of copying a KiB (assumed; 10 GB/s).
const CACHED: Nanos = Nanos(400);
const COPY_KIB: Nanos = Nanos(100);
/// Looks of a thread for its turn before it sleeps: some microseconds.
const SPINS: u32 = 100;
/// Time between two looks at a program that does not call.
const LOOK: Duration = Duration::from_millis(50);
/// Looks without CPU time after which a thread counts as asleep.
const LOOKS: u32 = 60;

/// A thread, except what the scheduler knows.
#[derive(Debug, Default)]
struct Thread {
    keys: Vec<u64>,
    answer: i64,
    /// CPU time that it still has to spend before it returns.
    owed: Nanos,
    blocked: bool,
}

struct Simulation<'s, D> {
    shared: &'s Shared,
    scheduler: Scheduler,
    drive: Drive<D>,
    host: &'s Host,
    threads: Vec<Thread>,
    steps: Vec<StepEnd>,
    turns: u64,
    /// The thread that made the last call, while it waits for its turn.
    last: Option<TaskId>,
    program: String,
}

/// Runs `command` in virtual time on `drive`, and waits for its end. Its standard streams are its own.
///
/// # Errors
/// If it cannot be started, or uses something that is not simulated; it is ended then.
pub fn simulate<D: Device>(
    host: &Host,
    drive: Drive<D>,
    command: &mut Command,
) -> Result<Ended, VtimeError> {
    let began = std::time::Instant::now();
    // The program has one CPU and the coordinator another, if there is one.
    let cpus = rustix::thread::sched_getaffinity(None).map_err(|error| pin(error.into()))?;
    let mut allowed = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| cpus.is_set(*cpu));
    let first = allowed.next().unwrap_or_default();
    let second = allowed.next();
    bind(&one_cpu(first))?;
    let result = with_cpus(host, drive, command, (began, second));
    bind(&cpus)?;
    result
}

fn one_cpu(cpu: usize) -> rustix::thread::CpuSet {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    set
}

fn bind(cpus: &rustix::thread::CpuSet) -> Result<(), VtimeError> {
    rustix::thread::sched_setaffinity(None, cpus).map_err(|error| pin(error.into()))
}

fn pin(source: std::io::Error) -> VtimeError {
    VtimeError::Io { what: "use one CPU for the simulation".into(), source }
}

/// Starts the program on this thread's CPU and moves this thread to `own`, if there is another.
fn with_cpus<D: Device>(
    host: &Host,
    drive: Drive<D>,
    command: &mut Command,
    (began, own): (std::time::Instant, Option<usize>),
) -> Result<Ended, VtimeError> {
    let (memory, shared) = share(host)?;
    let program = command.get_program().to_string_lossy().into_owned();
    command.env("LD_PRELOAD", &host.library);
    // Without a name in any directory, so that a killed simulation leaves nothing.
    let place = format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd());
    command.env(wire::PATH_VARIABLE, place);
    command.env(wire::DIRECTORY_VARIABLE, &host.directory);
    // SAFETY: one system call; the program does not outlive its simulation.
    unsafe {
        use std::os::unix::process::CommandExt as _;
        let signal = Some(rustix::process::Signal::KILL);
        command.pre_exec(move || Ok(rustix::process::set_parent_process_death_signal(signal)?));
    }
    let mut child = command.spawn().map_err(VtimeError::io(format!("start {program}")))?;
    if let Some(own) = own {
        bind(&one_cpu(own))?;
        shared.header.spins.store(SPINS, Relaxed);
    }
    let mut simulation = Simulation {
        shared,
        scheduler: Scheduler::new(host.cores, host.costs),
        drive,
        host,
        threads: vec![Thread::default()],
        steps: Vec::new(),
        turns: 0,
        last: None,
        program,
    };
    simulation.scheduler.enter(None);
    let result = simulation.run(&mut child);
    if result.is_err() {
        // It may be asleep in the simulation, and cannot be asked to end.
        let _ = child.kill();
    }
    let status = child.wait().map_err(VtimeError::io("wait for the program"))?;
    result?;
    if let Some(signal) = status.signal() {
        return Err(VtimeError::Killed { program: simulation.program, signal });
    }
    let threads = simulation.threads.len();
    let mut times = Times::default();
    for number in 0..threads {
        times.add(&simulation.scheduler.times(TaskId(number as u32)));
    }
    Ok(Ended {
        code: status.code().unwrap_or(1),
        time: simulation.scheduler.now(),
        times,
        threads,
        counts: simulation.scheduler.counts(),
        drive: simulation.drive.totals(),
        turns: simulation.turns,
        real: began.elapsed(),
    })
}

/// Makes the shared memory; it stays open for the program to open.
fn share(host: &Host) -> Result<(File, &'static Shared), VtimeError> {
    let make = || {
        let memory = rustix::fs::memfd_create("crosspoint", rustix::fs::MemfdFlags::CLOEXEC)?;
        let memory = File::from(memory);
        memory.set_len(size_of::<Shared>() as u64)?;
        let shared = Shared::map(&memory)?;
        Ok((memory, shared))
    };
    let (memory, shared) = make().map_err(VtimeError::io("share memory with the program"))?;
    let header = &shared.header;
    let epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    header.epoch.store(epoch.as_nanos() as u64, Relaxed);
    header.cores.store(host.cores as u32, Relaxed);
    header.tick.store(tick(), Relaxed);
    header.slack.store(SLACK.get(), Relaxed);
    header.magic.store(wire::MAGIC, Release);
    Ok((memory, shared))
}

impl<D: Device> Simulation<'_, D> {
    fn run(&mut self, child: &mut Child) -> Result<(), VtimeError> {
        loop {
            match self.scheduler.next(self.drive.next_event()) {
                Next::Run { task, until } => {
                    if !self.turn(task, until, child)? {
                        return Ok(());
                    }
                }
                Next::Device(at) => self.device(at),
                Next::Finished => return Ok(()),
                Next::Stuck => {
                    return Err(VtimeError::Stuck { threads: self.threads.len() });
                }
            }
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

    /// Lets a thread run until its next call, and carries that out. Returns false if the program ended.
    fn turn(&mut self, task: TaskId, until: Nanos, child: &mut Child) -> Result<bool, VtimeError> {
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
        if !self.await_call(task, child)? {
            return Ok(false);
        }
        self.scheduler.charge(task, Nanos(slot.cpu.load(Relaxed)));
        self.carry_out(task)
    }

    /// Waits until the thread that has the turn calls; false if its process ended instead.
    fn await_call(&self, task: TaskId, child: &mut Child) -> Result<bool, VtimeError> {
        let slot = &self.shared.slots[task.0 as usize];
        let (mut looks, mut cpu) = (0, None);
        loop {
            if slot.await_call(&self.shared.header, LOOK) {
                return Ok(true);
            }
            if child.try_wait().map_err(VtimeError::io("watch the program"))?.is_some() {
                if self.shared.header.joined.load(Acquire) == 0 {
                    return Err(VtimeError::NotJoined { program: self.program.clone() });
                }
                return Ok(false);
            }
            let (process, thread) = (slot.process.load(Relaxed), slot.thread.load(Relaxed));
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
    fn carry_out(&mut self, task: TaskId) -> Result<bool, VtimeError> {
        let slot = &self.shared.slots[task.0 as usize];
        let argument = |place: usize| slot.arguments[place].load(Relaxed);
        let now = self.scheduler.time_of(task);
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
                    let call = UNCOVERED[7].to_owned();
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
            Some(Call::Access) => {
                let access = FileAccess {
                    file: argument(0),
                    offset: argument(1),
                    length: argument(2),
                    flags: argument(3),
                };
                let begun = self.drive.access(task, now, access);
                self.begun(task, begun, access.length);
            }
            Some(Call::Sync) => {
                let begun = self.drive.sync(task, now, argument(0), argument(1) == 1);
                self.begun(task, begun, 0);
            }
            Some(Call::Resize) if argument(2) == 1 => self.drive.found(argument(0), argument(1)),
            Some(Call::Resize) => self.drive.resize(argument(0), argument(1)),
            Some(Call::Remove) => self.drive.remove(argument(0)),
            Some(Call::Uncovered) => {
                let call = UNCOVERED.get(argument(0) as usize).unwrap_or(&"a call").to_string();
                return Err(VtimeError::Uncovered { thread: task.0, call });
            }
        }
        Ok(true)
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

    /// A thread's access needed only CPU time, or waits for the drive.
    fn begun(&mut self, task: TaskId, begun: Begun, length: u64) {
        match begun {
            Begun::Done => {
                let copy = Nanos(COPY_KIB.get() * length / 1024);
                self.scheduler.charge(task, CACHED + copy);
            }
            Begun::Waits(wait) => {
                self.scheduler.charge(task, self.host.path.submit);
                self.threads[task.0 as usize].owed = self.host.path.complete;
                self.scheduler.block(task, &[], None, wait);
            }
        }
    }
}

/// Nanoseconds per tick of the time-stamp counter, in 2^-32.
fn tick() -> u64 {
    let (clock, ticks) = (std::time::Instant::now(), ticks());
    std::thread::sleep(Duration::from_millis(20));
    let (time, ticks) = (clock.elapsed().as_nanos(), ticks_since(ticks));
    ((time << 32) / u128::from(ticks.max(1))) as u64
}

fn ticks_since(before: u64) -> u64 {
    ticks().saturating_sub(before)
}

#[cfg(target_arch = "x86_64")]
fn ticks() -> u64 {
    // SAFETY: it has no preconditions.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    0
}

/// CPU time of a thread in clock ticks, if it sleeps; `None` while it runs, or has not begun.
fn cpu_of(process: u32, thread: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/task/{thread}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let asleep = matches!(*fields.first()?, "S" | "D" | "T");
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    asleep.then_some(ticks)
}
