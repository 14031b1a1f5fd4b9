//! The simulated host, and what happened on it.

use std::path::PathBuf;
use std::time::Duration;

use sim::HostModel;
use sim::scheduler::{Counts, SchedulerCosts, Times};
use units::Nanos;

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
    /// Files below it are on the drive.
    pub directory: PathBuf,
}

/// How a simulation ended.
#[derive(Debug, Clone)]
pub struct Ended {
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
