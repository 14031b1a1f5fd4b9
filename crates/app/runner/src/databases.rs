//! Database trials: an engine's process started, limited, queried and cleaned up.
//!
//! Each trial has its own database, so trials are independent. Invariants: the engine runs in a separate
//! process, so its death fails one trial; a corrupt database is kept.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use device::Model;
use engine::Preload;

use stack::{DeviceRates, Journal, Limits, Mark, MemoryUse, Wanted};
use study::{Experiment, KvJob, OnError, Trial};
use units::Seed;
use vtime::{Drive, Host, Process, Simulation, VtimeError};
use worker::{
    Channel, CheckRequest, Ended, Event, Request, TrialParameters, TrialRequest, Waiting,
};

use crate::RunnerError;
use crate::simulated::observation;

/// Program with the LMDB branch for raw devices, next to this one.
const RAW_PROGRAM: &str = "crosspoint-raw";
/// Argument that makes this program a host of engines.
pub const HOST_VERB: &str = "engine";

/// Time limit of a probe.
const PROBE_MAX: Duration = Duration::from_secs(60);

/// Common parameters of requests.
pub(crate) struct Asking<'a> {
    pub journal: &'a Journal,
    pub waiting: Waiting<'a>,
    pub seed: Seed,
    /// The device of the stack and its rate limits.
    pub limit: Option<(&'a Path, DeviceRates)>,
    /// Journal for recorded intervals while the trial runs, if any.
    pub kept_in: Option<&'a Path>,
}

/// Result of a database trial, with notes about its memory.
pub(crate) struct Answer {
    pub ended: Ended,
    pub memory: Option<String>,
}

/// Whether `place` is a device.
pub(crate) fn is_device(place: &Path) -> bool {
    fs::metadata(place).is_ok_and(|data| data.file_type().is_block_device())
}

/// The program that hosts an engine, or the LMDB branch for `raw` devices.
fn program(raw: bool) -> io::Result<Command> {
    let own = std::env::current_exe()?;
    if raw {
        return Ok(Command::new(own.with_file_name(RAW_PROGRAM)));
    }
    let mut command = Command::new(own);
    command.arg(HOST_VERB);
    Ok(command)
}

/// Whether the program for raw devices exists, and its expected path.
pub(crate) fn raw_program() -> (bool, String) {
    match program(true) {
        Ok(command) => {
            let path = Path::new(command.get_program());
            (path.exists(), path.display().to_string())
        }
        Err(error) => (false, error.to_string()),
    }
}

/// Starts a process for the clients of SQL databases.
pub(crate) fn start_host(
    mark: &Mark,
    stack: &str,
    preload: Preload<'_>,
) -> Result<Channel, RunnerError> {
    let mut command = command(false)?;
    match preload {
        Preload::Simulation(simulation) => _ = simulation.admit(&mut command),
        Preload::Observation(observation) => observation.admit(&mut command),
        Preload::None => {}
    }
    open(command, mark, stack)
}

fn start(mark: &Mark, stack: &str, raw: bool) -> Result<Channel, RunnerError> {
    open(command(raw)?, mark, stack)
}

fn open(command: Command, mark: &Mark, stack: &str) -> Result<Channel, RunnerError> {
    Channel::start(command, mark).map_err(|error| worker_error(stack, &error))
}

fn command(raw: bool) -> Result<Command, RunnerError> {
    Ok(program(raw).map_err(stack::StackError::io("find", Path::new("this program")))?)
}

pub(crate) fn worker_error(stack: &str, error: &worker::WorkerError) -> RunnerError {
    let next =
        format!("{RAW_PROGRAM} belongs next to crosspoint: cargo build --release builds both");
    RunnerError::environment(stack, error.to_string(), next)
}

/// Phases and seed of a trial, without a journal.
pub(crate) fn parameters(experiment: &Experiment, trial: &Trial, seed: Seed) -> TrialParameters {
    TrialParameters {
        timeline: trial.timeline,
        seed: seed.0,
        stop_on_error: experiment.on_error == OnError::Stop,
        journal: None,
    }
}

/// Runs one trial in the empty directory, or on the device, `place`.
pub(crate) fn run(
    (place, ledger): (&Path, Option<&Path>),
    experiment: &Experiment,
    (trial, job): (&Trial, &KvJob),
    asking: &Asking<'_>,
    heard: &mut dyn FnMut(Event),
) -> Result<Answer, RunnerError> {
    let mut command = command(is_device(place))?;
    let observation = observation();
    observation.iter().for_each(|observation| observation.admit(&mut command));
    let line = open(command, asking.journal.mark(), &trial.stack)?;
    let memory = job.memory.bytes(job.data());
    let limits = Limits::make(asking.journal, &Wanted { memory, device: asking.limit })?;
    limits.hold(line.process())?;
    let request = request((place, ledger), experiment, (trial, job), asking);
    let ended = line
        .ask(&request, asking.waiting, heard)
        .map_err(|error| worker_error(&trial.stack, &error))?;
    let used = limits.used();
    let ended = match (ended, used.and_then(|used| used.ended).unwrap_or(0)) {
        (Ended::Died(how), 1..) => {
            Ended::Died(format!("{how}; it exceeded the study's memory limit"))
        }
        (ended, _) => ended,
    };
    Ok(Answer { ended, memory: used.map(|used| memory_note(job, used)) })
}

fn request(
    (place, ledger): (&Path, Option<&Path>),
    experiment: &Experiment,
    (trial, job): (&Trial, &KvJob),
    asking: &Asking<'_>,
) -> Request {
    let parameters = TrialParameters {
        journal: asking.kept_in.map(Path::to_owned),
        ..parameters(experiment, trial, asking.seed)
    };
    Request::Trial(Box::new(TrialRequest {
        job: job.clone(),
        place: place.to_owned(),
        parameters,
        ledger: ledger.map(Path::to_owned),
    }))
}

/// Time limit of a simulated trial, real time: a simulation whose threads hang ends by itself.
pub(crate) const SIMULATED_MAX: Duration = Duration::from_secs(48 * 3600);

/// Runs one trial in virtual time, with its files in the empty directory `place`.
pub(crate) fn simulate(
    places: (&Path, Option<&Path>),
    experiment: &Experiment,
    (trial, job): (&Trial, &KvJob),
    asking: &Asking<'_>,
    (host, drive): (&Host, Drive<Model>),
    heard: &mut dyn FnMut(Event),
) -> Result<Answer, RunnerError> {
    let refuse = |error: &VtimeError| {
        RunnerError::environment(&trial.stack, error.to_string(), "crosspoint doctor")
    };
    let mut command = command(false)?;
    let simulation = Simulation::new(host).map_err(|error| refuse(&error))?;
    simulation.admit(&mut command);
    let line = open(command, asking.journal.mark(), &trial.stack)?;
    // An error here drops the channel, which kills the engine.
    let process = Process::open(line.process()).map_err(|error| refuse(&error))?;
    let request = request(places, experiment, (trial, job), asking);
    let waiting = Waiting { deadline: SIMULATED_MAX, ..asking.waiting };
    let (ended, simulated) = std::thread::scope(|scope| {
        let simulated = scope.spawn(|| simulation.run(drive, Some(process)));
        (line.ask(&request, waiting, heard), simulated.join())
    });
    let short = matches!(&simulated, Ok(Ok(ended)) if ended.drive.out_of_memory);
    let memory = short.then(|| OUT_OF_MEMORY.to_owned());
    let ended = match (ended, simulated) {
        // It was killed because of that error.
        (Ok(Ended::Died(_)), Ok(Err(error))) => Ended::Failed(error.to_string()),
        (Ok(Ended::Died(_)), Err(_)) => Ended::Failed("the simulation panicked".to_owned()),
        (ended, _) => ended.map_err(|error| worker_error(&trial.stack, &error))?,
    };
    Ok(Answer { ended, memory })
}

/// What a simulation with too little memory says.
const OUT_OF_MEMORY: &str =
    "the engine alone needed more than the memory; 1/32 of it was left to the page cache";

/// Verifies the database of a trial that ended early against its ledger. `now` is its current place, if it
/// was moved.
pub(crate) fn check(
    (trial, job): (&Trial, &KvJob),
    (ledger, now): (&Path, Option<PathBuf>),
    asking: &Asking<'_>,
) -> Result<Ended, RunnerError> {
    let (_, noted) =
        engine::kv::Ledger::open(ledger).map_err(stack::StackError::io("read", ledger))?;
    let raw = is_device(now.as_ref().unwrap_or(&noted));
    let request = CheckRequest {
        job: job.clone(),
        ledger: ledger.to_owned(),
        place: now,
        seed: asking.seed.0,
    };
    let line = start(asking.journal.mark(), &trial.stack, raw)?;
    let ended = line.ask(&Request::Check(Box::new(request)), asking.waiting, &mut |_| ());
    ended.map_err(|error| worker_error(&trial.stack, &error))
}

/// Checks that the engine of a job exists and accepts its options, before anything is created.
pub(crate) fn probe(
    journal: &Journal,
    stack: &str,
    (job, raw): (&KvJob, bool),
) -> Result<(), RunnerError> {
    let line = start(journal.mark(), stack, raw)?;
    let never = AtomicBool::new(false);
    let waiting = Waiting { stop: &never, deadline: PROBE_MAX, grace: PROBE_MAX };
    let ended = line.ask(&Request::Probe(Box::new(job.clone())), waiting, &mut |_| ());
    let (reason, next) = match ended.map_err(|error| worker_error(stack, &error))? {
        Ended::Refused { reason, help } => (reason, help),
        Ended::Failed(reason) | Ended::Died(reason) => (reason, "crosspoint doctor".to_owned()),
        _ => return Ok(()),
    };
    Err(RunnerError::environment(stack, reason, next))
}

/// Note about a memory limit.
fn memory_note(job: &KvJob, used: MemoryUse) -> String {
    let times = job.data().get() as f64 / used.limit.get().max(1) as f64;
    let peak = used.peak.map_or_else(String::new, |peak| format!("; peak {peak}"));
    let met = used.met.map_or_else(String::new, |met| {
        format!("; limit hit {} times", units::human_count(met as f64))
    });
    format!(
        "memory limited to {} including page cache (data {times:.1}x that){peak}{met}",
        used.limit
    )
}

/// Moves the files of a database to `to`, or copies them: a file system created for them is removed with the
/// run.
pub(crate) fn keep(from: &Path, to: &Path) -> io::Result<()> {
    if is_device(from) {
        // Too large to copy; the device stays unchanged until the run is undone.
        return Ok(());
    }
    if fs::rename(from, to).is_ok() {
        return own_again(to);
    }
    copy(from, to)
}

/// Copies the files of a directory.
pub(crate) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to, kind) = (entry.path(), to.join(entry.file_name()), entry.file_type()?);
        if kind.is_dir() {
            copy(&from, &to)?;
        } else if kind.is_file() {
            let mut old = fs::File::open(from)?;
            let mut new = archive::output::new_private_file(&to)?;
            io::copy(&mut old, &mut new)?;
            new.set_permissions(old.metadata()?.permissions())?;
        }
    }
    Ok(())
}

/// Changes the owner of a server's files back to this user, since the server's user may be reassigned.
fn own_again(place: &Path) -> io::Result<()> {
    let user = rustix::process::geteuid();
    if !user.is_root() {
        return Ok(());
    }
    let group = rustix::process::getegid().as_raw();
    std::os::unix::fs::lchown(place, Some(user.as_raw()), Some(group))?;
    if fs::symlink_metadata(place)?.is_dir() {
        for entry in fs::read_dir(place)? {
            own_again(&entry?.path())?;
        }
    }
    Ok(())
}
