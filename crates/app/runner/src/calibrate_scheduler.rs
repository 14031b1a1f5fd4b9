//! Measures what waking a thread costs on this host, and what a simulation adds without any costs, so that
//! simulated threads wake each other as fast as real ones.
//!
//! Invariant: both measurements run the same code.

use std::io::Read;
use std::path::Path;
use std::process::Command;

use device::{Condition, Model};
use observe::{Hop, Waking};
use sim::HostModel;
use sim::scheduler::{SchedulerCosts, SplitTimes, WakeTimes};
use units::{Nanos, Seed};
use vtime::{Drive, FileSystem, Host};

use crate::RunnerError;
use crate::catalog::profile;
use crate::simulated::library;

/// The hidden verb whose process is simulated.
pub const WAKING_VERB: &str = "waking";
/// Round trips in a simulation.
const ROUNDS: u32 = 5_000;

/// The program of the simulation: prints the mean time of a waking, nanoseconds.
///
/// # Errors
/// If threads cannot be created.
pub fn waking(is_socket: bool) -> std::io::Result<u64> {
    let waking = if is_socket { Waking::Socket } else { Waking::Futex };
    Ok(observe::hop_anywhere(waking, ROUNDS)?.get())
}

/// The costs of scheduling that were fitted to a host, and how well.
#[derive(Debug, Clone)]
pub struct FittedScheduler {
    /// The costs.
    pub costs: SchedulerCosts,
    /// Each kind of waking that was measured.
    pub checks: Vec<WakingCheck>,
}

/// Time of a waking on the host and in a simulation with the fitted costs.
#[derive(Debug, Clone, Copy)]
pub struct WakingCheck {
    /// Whether through a socket or through a futex.
    pub is_socket: bool,
    /// Cores of the two threads.
    pub cores: usize,
    /// Measured.
    pub measured: Nanos,
    /// Simulated.
    pub simulated: Nanos,
}

/// Measures this host and fits the costs of scheduling. `directory` is not written to. Takes about 5 s.
///
/// # Errors
/// The preloaded library is missing or cannot be used, or threads cannot be created.
pub fn fit_scheduler(directory: &Path) -> Result<FittedScheduler, RunnerError> {
    let kinds = [Waking::Futex, Waking::Socket];
    let [futex, socket] = kinds.map(|waking| times_of(waking, directory));
    let mut times = [futex?, socket?];
    let fitted = |times: &[WakeTimes; 2]| SchedulerCosts::fitted(&times[0], &times[1]);
    // Costs change who runs first, so what is left is corrected once.
    let checks = check(&times, fitted(&times), directory)?;
    for WakingCheck { is_socket, cores, measured, simulated } in checks {
        let of = &mut times[usize::from(is_socket)];
        let free = match &mut of.split {
            Some(split) if cores == 2 => &mut split.hop_free,
            _ => &mut of.same_core_free,
        };
        *free = (*free + simulated).since(measured);
    }
    let costs = fitted(&times);
    Ok(FittedScheduler { costs, checks: check(&times, costs, directory)? })
}

/// Each measured waking, simulated with these costs.
fn check(
    times: &[WakeTimes; 2],
    costs: SchedulerCosts,
    directory: &Path,
) -> Result<Vec<WakingCheck>, RunnerError> {
    let mut checks = Vec::new();
    for (waking, times) in [Waking::Futex, Waking::Socket].into_iter().zip(times) {
        let split = times.split.map(|split| (2, split.hop));
        for (cores, measured) in [(1, times.same_core)].into_iter().chain(split) {
            let simulated = simulated(waking, (cores, costs), directory)?;
            let is_socket = waking == Waking::Socket;
            checks.push(WakingCheck { is_socket, cores, measured, simulated });
        }
    }
    Ok(checks)
}

fn times_of(waking: Waking, directory: &Path) -> Result<WakeTimes, RunnerError> {
    let (same, other) = observe::hops(waking).map_err(failed)?;
    let alone = observe::unheard_call(waking).map_err(failed)?;
    let free = |cores| simulated(waking, (cores, SchedulerCosts::FREE), directory);
    let split = |other: Hop| -> Result<SplitTimes, RunnerError> {
        Ok(SplitTimes {
            hop: other.time,
            cpu: other.cpu,
            waker: other.call.since(alone),
            hop_free: free(2)?,
        })
    };
    Ok(WakeTimes {
        same_core: same.time,
        same_core_free: free(1)?,
        split: other.map(split).transpose()?,
    })
}

fn failed(error: impl std::fmt::Display) -> RunnerError {
    RunnerError::environment("calibrate", error.to_string(), "crosspoint doctor")
}

/// Mean time of a waking between two threads of a simulated host.
fn simulated(
    waking: Waking,
    (cores, costs): (usize, SchedulerCosts),
    directory: &Path,
) -> Result<Nanos, RunnerError> {
    let profile = profile("ram-disk")?;
    let path = HostModel::named("none").unwrap_or_else(HostModel::io_uring);
    let (library, directory, seed) = (library()?, directory.to_owned(), Seed(1));
    let host = Host { cores, costs, path, library, cpu_time: None, seed, directory, wal: None };
    let drive = Model::new(&profile, Condition::Steady, Seed(1));
    let drive = Drive::new(drive, profile.capacity.get(), u64::MAX, FileSystem::Ext4);
    let (mut reader, writer) = std::io::pipe().map_err(failed)?;
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.arg(WAKING_VERB).args((waking == Waking::Socket).then_some("--socket")).stdout(writer);
    vtime::simulate(&host, drive, &mut command).map_err(failed)?;
    // Closes its end of the pipe.
    drop(command);
    let mut text = String::new();
    reader.read_to_string(&mut text).map_err(failed)?;
    text.trim().parse().map(Nanos).map_err(|_| failed(format!("no time: {text}")))
}
