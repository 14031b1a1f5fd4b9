//! Set-up of a simulation: shared memory, program, CPUs.
//!
//! Invariant: the program ends with its simulation, however that ends.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::Command;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, SystemTime};

use device::Device;
use rustix::process::Signal;
use units::Nanos;

use crate::coordinator::Coordinator;
use crate::drive::Drive;
use crate::error::VtimeError;
use crate::file_access::DriveTotals;
use crate::host::{Ended, Host};
use crate::process::Process;
use crate::real_time;
use crate::wire::{self, Shared};

/// How far a thread runs past the next event of another before it gives up its turn: a smaller value changes
/// no result and costs more turns.
const SLACK: Nanos = Nanos(2_000);
/// Polls for its turn before a thread sleeps: a few microseconds.
const SPINS: u32 = 100;

/// A simulation whose program has not been started yet.
#[derive(Debug)]
pub struct Simulation<'h> {
    host: &'h Host,
    program: String,
    /// Open until the program has mapped it.
    _memory: File,
    shared: &'static Shared,
    /// The coordinator's CPU, if it is not the program's, and the original affinity of the calling thread.
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
    let simulation = Simulation::prepare(host, command)?;
    let program = simulation.program.clone();
    let mut child = command.spawn().map_err(VtimeError::io(format!("start {program}")))?;
    let result = Process::open(child.id()).and_then(|process| simulation.run(drive, process));
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

impl<'h> Simulation<'h> {
    /// Makes `command` a program of this simulation. It dies with the thread that starts it.
    ///
    /// # Errors
    /// This process cannot share memory with it.
    pub fn prepare(host: &'h Host, command: &mut Command) -> Result<Self, VtimeError> {
        let cpus = rustix::thread::sched_getaffinity(None).map_err(|error| pin(error.into()))?;
        let mut allowed = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| cpus.is_set(*cpu));
        // The program gets one CPU and the coordinator another, if there is one.
        let first = one_cpu(allowed.next().unwrap_or_default());
        let (memory, shared) = share(host)?;
        command.env("LD_PRELOAD", &host.library);
        // An unlinked file, so that a killed simulation leaves nothing.
        let place = format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd());
        command.env(wire::PATH_VARIABLE, place);
        command.env(wire::DIRECTORY_VARIABLE, &host.directory);
        // SAFETY: two system calls; the program does not outlive its simulation.
        unsafe {
            command.pre_exec(move || {
                rustix::thread::sched_setaffinity(None, &first)?;
                Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?)
            });
        }
        let program = command.get_program().to_string_lossy().into_owned();
        Ok(Self { host, program, _memory: memory, shared, own: allowed.next(), cpus })
    }

    /// Simulates only the drive, in real time; called before the program starts.
    #[must_use]
    pub fn in_real_time(self) -> RealTime<'h> {
        self.shared.header.real_time.store(1, Release);
        RealTime(self)
    }

    /// Runs the started program until it has ended.
    ///
    /// # Errors
    /// If it uses something that is not simulated; it is killed then.
    pub fn run<D: Device>(self, drive: Drive<D>, process: Process) -> Result<Ended, VtimeError> {
        let began = std::time::Instant::now();
        let mut coordinator =
            Coordinator::new((self.host, drive), self.shared, (self.program, process));
        let result = self.own.map_or(Ok(()), |own| {
            bind(&one_cpu(own))?;
            self.shared.header.spins.store(SPINS, Relaxed);
            Ok(())
        });
        let result = result.and_then(|()| coordinator.run());
        if result.is_err() {
            // It may be asleep in the simulation and cannot end by itself.
            coordinator.kill();
        }
        let _ = bind(&self.cpus);
        result?;
        Ok(coordinator.ended(began.elapsed()))
    }
}

/// A program on the real CPUs, of which only the drive is simulated.
#[derive(Debug)]
pub struct RealTime<'h>(Simulation<'h>);

impl RealTime<'_> {
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
        let missing = || pin(std::io::Error::other("the drive needs a CPU of its own"));
        let result = own.ok_or_else(missing).and_then(|own| bind(&one_cpu(own))).and_then(|()| {
            shared.header.spins.store(SPINS, Relaxed);
            real_time::serve(shared, drive, process)
        });
        if result.is_err() {
            // Its threads may be waiting for the drive.
            process.kill();
        }
        let _ = bind(&cpus);
        match shared.header.joined.load(Acquire) {
            0 => result.and(Err(VtimeError::NotJoined { program })),
            _ => result,
        }
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
    header.cores.store(host.cores as u32, Relaxed);
    header.tick.store(tick(), Relaxed);
    header.slack.store(SLACK.get(), Relaxed);
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
