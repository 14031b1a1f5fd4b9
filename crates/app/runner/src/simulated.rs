//! Engines in virtual time: the simulated host and drive of a stack whose device is a model.
//!
//! Invariant: needs no privileges; the data is in an ordinary directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use device::{Model, Profile};
use engine::Preload;
use observe::waits::Observation;
use sim::scheduler::{SchedulerCosts, WakeCost};
use sim::{Calibration, HostModel, MeasuredCosts, PageCacheCosts};
use stack::StackError;
use units::{Bytes, Nanos, Seed};
use vtime::{Drive, Drives, Ended, FileSystem, Host, Simulation, VtimeError};

use crate::RunnerError;
use crate::predicted::condition_of;

/// A directory in memory, for the files of engines that map them.
pub(crate) const MEMORY: &str = "/dev/shm";
/// The library that is preloaded to simulate a program.
const LIBRARY: &str = "libcrosspoint_vtime_shim.so";
/// The one that times a measured program's waits.
const OBSERVER: &str = "libcrosspoint_observe_shim.so";

/// What a simulation needs besides a device model.
#[derive(Debug, Clone)]
pub struct SimulatedHost {
    /// Virtual cores.
    pub cores: u32,
    /// Bytes of memory for the page cache and the programs that use the drive; `None`: everything fits.
    pub memory: Option<Bytes>,
    /// File system of the drive.
    pub file_system: FileSystem,
    /// Times of the I/O path.
    pub path: HostModel,
    /// As calibrated on this host.
    pub costs: MeasuredCosts,
    /// CPU time of every stretch, instead of the measured one.
    pub cpu_time: Option<Nanos>,
    /// Initial state of the drive.
    pub condition: study::Condition,
    /// Seed of the device model.
    pub seed: Seed,
}

impl SimulatedHost {
    /// Description for a note.
    #[must_use]
    pub fn in_words(&self) -> String {
        let memory = self.memory.map_or_else(|| "unlimited".to_owned(), |bytes| bytes.to_string());
        let journal = match self.file_system {
            FileSystem::Ext4 => "ext4",
            FileSystem::Ext4NoJournal => "ext4 without a journal",
            FileSystem::Raw => "no file system",
        };
        let costs = match (self.costs.scheduler, self.costs.page_cache) {
            (Some(_), Some(_)) => "calibrated CPU costs",
            (Some(_), None) => "calibrated CPU costs of wake-ups",
            (None, Some(_)) => "calibrated CPU costs of the page cache",
            (None, None) => "default CPU costs (crosspoint calibrate measures this host's)",
        };
        let cpu = self.cpu_time.map(|time| format!(", CPU time {time} between two calls"));
        format!(
            "simulated host: {} cores, {memory} memory, {journal}, I/O by {}, {costs}{}",
            self.cores,
            self.path.name,
            cpu.unwrap_or_default()
        )
    }

    /// The host and the drive, for files below `directory`.
    ///
    /// # Errors
    /// If the library is missing.
    pub fn make(
        &self,
        profile: &Profile,
        directory: &Path,
    ) -> Result<(Host, Drive<Model>), RunnerError> {
        let opened = directory.canonicalize();
        let directory = opened.map_err(StackError::io("open", directory))?;
        let costs = self.costs.scheduler.unwrap_or(SchedulerCosts::VM_2026);
        let interrupt = WakeCost { latency: self.path.wake, ..costs.interrupt };
        let host = Host {
            cores: self.cores as usize,
            costs: SchedulerCosts { interrupt, ..costs },
            path: self.path,
            library: library()?,
            cpu_time: self.cpu_time,
            seed: self.seed,
            directory,
            wal: None,
        };
        let model = Model::new(profile, condition_of(self.condition), self.seed);
        let memory = self.memory.map_or(u64::MAX, Bytes::get);
        let drive = Drive::new(model, profile.capacity.get(), memory, self.file_system);
        let gap = self.path.wake + self.path.jitter + self.path.complete + self.path.submit;
        let costs = self.costs.page_cache.unwrap_or(PageCacheCosts::VM_2026);
        Ok((host, drive.with_gap(gap).with_costs(costs).with_shared_memory()))
    }
}

/// A simulation in a thread of its own, for a server and its clients.
pub(crate) struct Background {
    simulation: Arc<Simulation>,
    thread: Option<JoinHandle<Result<Ended, VtimeError>>>,
}

impl Background {
    /// Starts a simulation without programs, for files in `place`; those of the write-ahead log, whose paths
    /// in it begin with the text, on the drive of another stack.
    ///
    /// # Errors
    /// This process cannot share memory with others.
    pub fn start(
        host: &SimulatedHost,
        (profile, place): (&Profile, &Path),
        wal: Option<(SimulatedHost, &Profile, &'static str)>,
        stack: &str,
    ) -> Result<Self, RunnerError> {
        let (mut host, drive) = host.make(profile, place)?;
        let mut drives = Drives::from(drive);
        if let Some((other, profile, at)) = wal {
            host.wal = Some(at);
            drives = drives.with_wal(other.make(profile, place)?.1);
        }
        let simulation = Simulation::new(&host).map_err(|error| {
            RunnerError::environment(stack, error.to_string(), "crosspoint doctor")
        })?;
        let simulation = Arc::new(simulation);
        let own = Arc::clone(&simulation);
        let thread = Some(std::thread::spawn(move || own.run(drives, None)));
        Ok(Self { simulation, thread })
    }

    /// The simulation, to admit programs.
    pub fn simulation(&self) -> &Simulation {
        &self.simulation
    }

    /// Ends it, with its programs.
    ///
    /// # Errors
    /// Why it had ended before.
    pub fn end(&mut self) -> Result<(), String> {
        self.simulation.stop();
        let ended = self.thread.take().map(JoinHandle::join);
        match ended {
            None | Some(Ok(Ok(_))) => Ok(()),
            Some(Ok(Err(error))) => Err(error.to_string()),
            Some(Err(_)) => Err("the simulation panicked".to_owned()),
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// The library in the programs of a trial.
pub(crate) enum Preloaded {
    /// They take part in a simulation.
    Simulation(Background),
    /// Their waits are timed.
    Observation(Observation),
    /// None.
    Nothing,
}

impl Preloaded {
    /// Times the waits, if the library is there.
    pub fn observation() -> Self {
        observation().map_or(Self::Nothing, Self::Observation)
    }

    /// The library, for programs to start.
    pub fn library(&self) -> Preload<'_> {
        match self {
            Self::Simulation(simulation) => Preload::Simulation(simulation.simulation()),
            Self::Observation(observation) => Preload::Observation(observation),
            Self::Nothing => Preload::None,
        }
    }

    /// Whether they are in a simulation.
    pub const fn is_simulated(&self) -> bool {
        matches!(self, Self::Simulation(_))
    }

    /// Ends a simulation with its programs.
    ///
    /// # Errors
    /// Why it had ended before.
    pub fn end(&mut self) -> Result<(), String> {
        match self {
            Self::Simulation(simulation) => simulation.end(),
            _ => Ok(()),
        }
    }
}

/// The I/O path of programs that use read and write, as calibrated or as published.
#[must_use]
pub fn psync_path(profile: &Profile, here: Option<&Calibration>) -> HostModel {
    let name = "psync";
    let own = here.and_then(|here| here.path(name)).or_else(|| HostModel::named(name));
    own.unwrap_or_else(HostModel::io_uring).to(profile)
}

/// The library of virtual time.
///
/// # Errors
/// It is missing, or other users can write to its directory.
pub fn library() -> Result<PathBuf, RunnerError> {
    preloaded(LIBRARY)
}

/// Counters of the waits of a measured trial's programs; `None` if the library is missing or unsafe.
pub(crate) fn observation() -> Option<Observation> {
    Observation::new(&preloaded(OBSERVER).ok()?).ok()
}

/// A library next to this program, or where cargo puts it.
fn preloaded(name: &str) -> Result<PathBuf, RunnerError> {
    let program =
        std::env::current_exe().map_err(StackError::io("find", Path::new("crosspoint")))?;
    let folder = program.parent().unwrap_or(Path::new("."));
    // A test program is itself in `deps`.
    let places = [folder.join(name), folder.join("deps").join(name)];
    // It is loaded into programs of this user, so nobody else may have put it there.
    let mut refused = None;
    let mut is_safe = |place: &&PathBuf| {
        let checked = place.parent().map_or(Ok(()), stack::check_directory);
        checked.map_err(|error| refused = Some(error)).is_ok()
    };
    // Cargo may leave an older one next to the program.
    let changed = |place: &&PathBuf| place.metadata().and_then(|data| data.modified()).ok();
    let present = places.iter().filter(|place| place.exists());
    let found = present.filter(&mut is_safe).max_by_key(changed).cloned();
    if let Some(error) = refused.filter(|_| found.is_none()) {
        return Err(error.into());
    }
    found.ok_or_else(|| {
        let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
        StackError::io("open", &folder.join(name))(missing).into()
    })
}
