//! Set-up of a simulation: shared memory, programs, CPUs.
//!
//! Invariant: the programs end with their simulation, however that ends.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::time::{Duration, SystemTime};

use device::Device;
use rustix::process::Signal;
use units::Nanos;

use crate::coordinator::Coordinator;
use crate::drive::Drive;
use crate::drives::Drives;
use crate::error::VtimeError;
use crate::file_access::DriveTotals;
use crate::host::{Ended, Host};
use crate::process::Process;
use crate::program::is_static;
use crate::real_time::{self, Idle};
use crate::wire::{self, Shared};

/// How far a thread runs past the next event of another before it gives up its turn: a smaller value changes
/// no result and costs more turns.
const SLACK: Nanos = Nanos(2_000);
/// Polls for its turn before a thread sleeps: a few microseconds.
const SPINS: u32 = 100;

/// A simulation: programs are admitted, started by their owner, and run by [`run`](Self::run).
#[derive(Debug)]
pub struct Simulation {
    host: Host,
    program: OnceLock<String>,
    /// Open until the programs have mapped it.
    memory: File,
    /// The preloaded library, for programs that cannot see its path.
    library: File,
    shared: &'static Shared,
    /// The programs' CPU, the coordinator's, if there is another, and the original affinity of the calling
    /// thread.
    cpu: usize,
    own: Option<usize>,
    cpus: rustix::thread::CpuSet,
}

/// Runs `command` in virtual time on `drive`, and waits for its end. The command keeps its standard streams.
/// Also returns its exit code.
///
/// # Errors
/// It cannot be started, or uses something that is not simulated; it is killed then.
pub fn simulate<D: Device>(
    host: &Host,
    drive: Drive<D>,
    command: &mut Command,
) -> Result<(i32, Ended), VtimeError> {
    Simulation::new(host)?.run_command(drive, command)
}

impl Simulation {
    /// A simulation of a host, without programs.
    ///
    /// # Errors
    /// This process cannot share memory with others.
    pub fn new(host: &Host) -> Result<Self, VtimeError> {
        let cpus = rustix::thread::sched_getaffinity(None).map_err(|error| pin(error.into()))?;
        let mut allowed = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| cpus.is_set(*cpu));
        // The programs get one CPU and the coordinator another, if there is one.
        let (cpu, own) = (allowed.next().unwrap_or_default(), allowed.next());
        let library = File::open(&host.library);
        let library = library.map_err(VtimeError::io("open the library of virtual time"))?;
        let (memory, shared) = share(host)?;
        let program = OnceLock::new();
        Ok(Self { host: host.clone(), program, memory, library, shared, cpu, own, cpus })
    }

    /// Makes `command` the main program, whose end is that of the simulation; returns its name. It dies with
    /// the thread that starts it.
    pub fn admit(&self, command: &mut Command) -> String {
        command.env("LD_PRELOAD", &self.host.library);
        // An unlinked file, so that a killed simulation leaves nothing.
        let place = format!("/proc/{}/fd/{}", std::process::id(), self.memory.as_raw_fd());
        command.env(wire::PATH_VARIABLE, place);
        command.env(wire::DIRECTORY_VARIABLE, &self.host.directory);
        command.envs(self.host.wal.map(|wal| (wire::WAL_VARIABLE, wal)));
        let (cpu, all, shared) = (one_cpu(self.cpu), self.cpus, self.shared);
        // SAFETY: two system calls; the program does not outlive its simulation.
        unsafe {
            command.pre_exec(move || {
                let cpus = if is_free(shared) { &all } else { &cpu };
                rustix::thread::sched_setaffinity(None, cpus)?;
                Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?)
            });
        }
        let slot = self.take_slot(command);
        self.shared.header.main.store(slot + 1, Release);
        let name = command.get_program().to_string_lossy().into_owned();
        self.program.get_or_init(|| name.clone());
        name
    }

    /// Makes `command` a server for the main program, which is admitted later; until then time does not run
    /// ahead of real time. It may belong to another user; it sees the drive's files in `directory`.
    pub fn admit_server(&self, command: &mut Command, directory: &Path) {
        let (memory, library) = (self.memory.as_raw_fd(), self.library.as_raw_fd());
        command.env("LD_PRELOAD", format!("/proc/self/fd/{library}"));
        command.env(wire::PATH_VARIABLE, format!("/proc/self/fd/{memory}"));
        command.env(wire::DIRECTORY_VARIABLE, directory);
        command.envs(self.host.wal.map(|wal| (wire::WAL_VARIABLE, wal)));
        let cpu = one_cpu(self.cpu);
        // SAFETY: three system calls, on descriptors that are open until the program has started.
        unsafe {
            command.pre_exec(move || {
                rustix::thread::sched_setaffinity(None, &cpu)?;
                for number in [memory, library] {
                    let file = std::os::fd::BorrowedFd::borrow_raw(number);
                    rustix::io::fcntl_setfd(file, rustix::io::FdFlags::empty())?;
                }
                Ok(())
            });
        }
        self.take_slot(command);
    }

    fn take_slot(&self, command: &mut Command) -> u32 {
        let slot = self.shared.header.admitted.fetch_add(1, AcqRel);
        assert!((slot as usize) < wire::PROCESSES, "invariant: few programs are admitted");
        command.env(wire::SLOT_VARIABLE, slot.to_string());
        slot
    }

    /// Runs a command as the only program, see [`simulate`].
    ///
    /// # Errors
    /// As `simulate`.
    pub fn run_command<D: Device>(
        &self,
        drive: Drive<D>,
        command: &mut Command,
    ) -> Result<(i32, Ended), VtimeError> {
        let program = self.admit(command);
        if is_static(command.get_program()) {
            return Err(VtimeError::NotJoined { program });
        }
        let mut child = command.spawn().map_err(VtimeError::io(format!("start {program}")))?;
        let result = Process::open(child.id()).and_then(|process| self.run(drive, Some(process)));
        if result.is_err() {
            let _ = child.kill();
        }
        let status = child.wait().map_err(VtimeError::io("wait for the program"))?;
        let ended = result?;
        match status.signal() {
            Some(signal) => Err(VtimeError::Killed { program, signal }),
            None => Ok((status.code().unwrap_or(1), ended)),
        }
    }

    /// Whether a program with this process ID has joined.
    #[must_use]
    pub fn has_joined(&self, process: u32) -> bool {
        let slots = &self.shared.slots[..wire::PROCESSES];
        slots.iter().any(|slot| slot.process.load(Acquire) == process)
    }

    /// Ends the simulation, which kills its programs.
    pub fn stop(&self) {
        self.shared.header.stop.store(1, Release);
    }

    /// Simulates only the drive, in real time; called before the program starts. That has one CPU and the
    /// drive another, or all CPUs if the host has several cores.
    #[must_use]
    pub fn in_real_time(self) -> RealTime {
        self.shared.header.real_time.store(1, Release);
        RealTime(self)
    }

    /// Runs the programs until all have ended. `starting` is the process of the main program if it has been
    /// started.
    ///
    /// # Errors
    /// If one uses something that is not simulated; they are killed then.
    pub fn run<D: Device>(
        &self,
        drives: impl Into<Drives<D>>,
        starting: Option<Process>,
    ) -> Result<Ended, VtimeError> {
        let began = std::time::Instant::now();
        let program = self.program.get().cloned().unwrap_or_default();
        let mut coordinator =
            Coordinator::new((&self.host, drives.into()), self.shared, (program, starting));
        let result = self.own.map_or(Ok(()), |own| {
            bind(&one_cpu(own))?;
            self.shared.header.spins.store(SPINS, Relaxed);
            Ok(())
        });
        let result = result.and_then(|()| coordinator.run());
        // A process that is being made is not known yet: it ends when it waits for its first turn.
        self.shared.header.over.store(1, SeqCst);
        if result.is_err() {
            // They may be asleep in the simulation and cannot end by themselves.
            coordinator.kill();
        }
        self.shared.wake_all();
        let _ = bind(&self.cpus);
        result?;
        Ok(coordinator.ended(began.elapsed()))
    }
}

/// A program on the real CPUs, of which only the drive is simulated.
#[derive(Debug)]
pub struct RealTime(Simulation);

impl RealTime {
    /// Serves the drive until the started program has ended; returns its counters.
    ///
    /// # Errors
    /// The program uses something that is not simulated, or there is no second CPU for the drive.
    pub fn run<D: Device>(
        self,
        drive: Drive<D>,
        process: &Process,
    ) -> Result<DriveTotals, VtimeError> {
        let Self(Simulation { shared, own, cpus, program, .. }) = self;
        let program = program.into_inner().unwrap_or_default();
        let missing = || pin(std::io::Error::other("the drive needs a CPU of its own"));
        let result = if is_free(shared) {
            as_interrupt(true)
                .and_then(|()| real_time::serve(shared, drive, (process, Idle::Sleeps)))
        } else {
            own.ok_or_else(missing).and_then(|own| bind(&one_cpu(own))).and_then(|()| {
                shared.header.spins.store(SPINS, Relaxed);
                real_time::serve(shared, drive, (process, Idle::Polls))
            })
        };
        if result.is_err() {
            // Its threads may be waiting for the drive.
            process.kill();
        }
        let _ = bind(&cpus);
        let _ = as_interrupt(false);
        match shared.header.joined.load(Acquire) {
            0 => result.and(Err(VtimeError::NotJoined { program })),
            _ => result,
        }
    }
}

/// Whether a program in real time may use all CPUs.
fn is_free(shared: &Shared) -> bool {
    shared.header.real_time.load(Acquire) == 1 && shared.header.cores.load(Relaxed) > 1
}

/// Whether this thread runs before all that have no real-time priority; its children do not.
fn as_interrupt(is: bool) -> Result<(), VtimeError> {
    let policy = if is { libc::SCHED_FIFO } else { libc::SCHED_OTHER };
    let how = libc::sched_param { sched_priority: i32::from(is) };
    // SAFETY: a local variable.
    match unsafe { libc::sched_setscheduler(0, policy | libc::SCHED_RESET_ON_FORK, &raw const how) }
    {
        0 => Ok(()),
        _ => Err(VtimeError::io("set the drive's priority")(std::io::Error::last_os_error())),
    }
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
    header.owner.store(std::process::id(), Relaxed);
    header.cores.store(host.cores as u32, Relaxed);
    header.tick.store(tick(), Relaxed);
    header.slack.store(SLACK.get(), Relaxed);
    header.fixed.store(host.cpu_time.map_or(0, Nanos::get), Relaxed);
    header.magic.store(wire::MAGIC, Release);
    Ok((memory, shared))
}

/// Nanoseconds per tick of the time-stamp counter, times 2^32.
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
