//! The simulated host, and the result of a simulation.

use std::path::PathBuf;
use std::time::Duration;

use sim::HostModel;
use sim::scheduler::{Counts, SchedulerCosts, Times};
use units::{Nanos, Seed};

use crate::file_access::DriveTotals;

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
    /// CPU time of every stretch of a thread between two calls of the library, and of every call of the
    /// kernel that does not wait, instead of the measured one.
    pub cpu_time: Option<Nanos>,
    /// Determines the jitter of the path.
    pub seed: Seed,
    /// Files below this directory are on the drive.
    pub directory: PathBuf,
    /// Those whose paths in it begin with this are the engine's write-ahead log, which may have a drive of
    /// its own.
    pub wal: Option<&'static str>,
}

impl Host {
    /// CPU time to submit a request, and how much of it passes before the device begins.
    pub(crate) fn submit_time(&self, writes: bool) -> (Nanos, Nanos) {
        let path = &self.path;
        let submit = if writes { path.submit_write } else { path.submit };
        (submit, if path.contained { Nanos::ZERO } else { submit })
    }
}

/// Result of a simulation.
#[derive(Debug, Clone)]
pub struct Ended {
    /// Virtual time.
    pub time: Nanos,
    /// Sum over all threads.
    pub times: Times,
    /// Number of threads.
    pub threads: usize,
    /// Counters of the scheduler.
    pub counts: Counts,
    /// Counters of the drive.
    pub drive: DriveTotals,
    /// Number of turns.
    pub turns: u64,
    /// Real time of the simulation.
    pub real: Duration,
}
