//! SQL trials: load or reuse a database, start a server, run its clients, clean up.
//!
//! Invariants: a server that dies is a failed trial with its last log lines, not a failed run; trials on one
//! stack with the same tables reuse them unless the study says otherwise, each on a restarted server.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use engine::{EngineError, Hosting, Place, Preload, PrivateServer, split_wal};
use stack::{Limits, Wanted};
use stats::{LoadRecord, TrialResult};
use study::{Experiment, Job, SqlJob, Stack, Trial};
use units::Seed;
use worker::{Channel, Ended, Request, SqlRequest, Waiting};

use crate::RunnerError;
use crate::bench::Bench;
use crate::context::{Execution, RunContext};
use crate::databases::{self, start_host};
use crate::servers::{self, Loaded, Running, reason_of, wal_place, words_of};
use crate::simulated::{Background, Preloaded};
use crate::watch::{Event, Watcher};

/// A SQL trial of the plan.
#[derive(Clone, Copy)]
pub(crate) struct SqlTrial<'a> {
    pub run: RunContext<'a>,
    pub stack: &'a Stack,
    pub experiment: &'a Experiment,
    pub trial: &'a Trial,
    pub job: &'a SqlJob,
    pub seed: Seed,
}

impl<'a> SqlTrial<'a> {
    /// The SQL trial of a run's trial; `None` if its job is not SQL.
    pub fn of(run: RunContext<'a>, trial: &'a Trial) -> Option<Self> {
        let Job::Sql(job) = &trial.job else { return None };
        let (stack, experiment, seed) = run.parts(trial);
        Some(Self { run, stack, experiment, trial, job, seed })
    }

    /// The stack of its write-ahead log, if it is another one.
    fn wal_stack(self) -> Option<&'a Stack> {
        let name = self.stack.wal.as_ref()?;
        self.run.study.stack.iter().find(|stack| stack.name == *name)
    }

    /// Identifies the place of its tables: simulated drives share them, other stacks have their own.
    fn tables(self) -> String {
        match self.stack.is_virtual() {
            true => format!("{} in {}", self.job.engine.word(), self.stack.directory),
            false => self.stack.name.clone(),
        }
    }
}

/// A trial that is ready for its clients.
pub(crate) struct Prepared {
    pub running: Running,
    pub limits: Limits,
    /// Directory of the database, if it is ours.
    pub place: Option<PathBuf>,
    pub load: Option<LoadRecord>,
    /// The library of its server and clients.
    pub preloaded: Preloaded,
    pub notes: Vec<String>,
}

impl Prepared {
    /// Applies the memory limit to the clients' process if the database is embedded in it.
    pub fn hold_clients(&self, job: &SqlJob, line: &Channel) -> Result<(), RunnerError> {
        if servers::server_of(job).is_none() {
            self.limits.hold(line.process())?;
        }
        Ok(())
    }
}

/// Result of preparing a trial.
pub(crate) enum Readiness {
    Ready(Box<Prepared>),
    /// The target failed.
    Failed(Box<TrialResult>),
    Stopped,
}

/// Runs SQL trials.
pub(crate) struct SqlExecutor<'b, 'a> {
    pub bench: &'b mut Bench<'a>,
}

impl SqlExecutor<'_, '_> {
    /// Runs one trial alone.
    pub(crate) fn run(
        &mut self,
        run: RunContext<'_>,
        trial: &Trial,
        watcher: &mut dyn Watcher,
    ) -> Result<Execution, RunnerError> {
        let one = SqlTrial::of(run, trial).expect("invariant: SQL trials come here");
        let prepared = match self.prepare(one, watcher)? {
            Readiness::Ready(prepared) => prepared,
            Readiness::Failed(outcome) => return Ok(Execution::Ended(outcome)),
            Readiness::Stopped => return Ok(Execution::Stopped),
        };
        let mark = one.run.options.journal.mark();
        let line = start_host(mark, &one.stack.name, prepared.preloaded.library())?;
        prepared.hold_clients(one.job, &line)?;
        let journal = one.run.begin_journal(one.trial)?;
        let mut request = request_of(one, &prepared, false);
        request.parameters.journal = journal;
        let mut heard = |event| {
            if let worker::Event::Interval(progress) = event {
                watcher.event(&Event::Interval { trial, progress: &progress });
            }
        };
        let waiting = one.run.waiting(one.trial, one.experiment);
        let waiting = match prepared.preloaded {
            Preloaded::Simulation(_) => Waiting { deadline: databases::SIMULATED_MAX, ..waiting },
            _ => waiting,
        };
        let ended = ask(line, one, &request, waiting, &mut heard)?;
        Ok(self.conclude(one, *prepared, ended).into())
    }

    /// Loads the tables, or reuses existing ones, and starts the trial's server.
    pub(crate) fn prepare(
        &mut self,
        one: SqlTrial<'_>,
        watcher: &mut dyn Watcher,
    ) -> Result<Readiness, RunnerError> {
        let job = one.job;
        let mut notes = Vec::new();
        if let Some(dsn) = &job.dsn {
            let running = servers::shared(job, dsn, one.run.options.journal)
                .map_err(|error| servers::environment(&one.stack.name, &error))?;
            notes.push(format!("on a server that others may use: {dsn}"));
            return self.load_shared(one, (running, notes), watcher);
        }
        let key = job.tables_key();
        // Another stack may have used the device in between, so its tables are gone.
        let usable = |loaded: &&Loaded| {
            let places = loaded.wal.iter().chain([&loaded.place]);
            loaded.key == key && !job.fresh && places.into_iter().all(|place| place.exists())
        };
        let there = self.bench.loaded.get(&one.tables()).filter(usable).cloned();
        let fresh = there.is_none();
        let loaded = match there {
            Some(loaded) => {
                notes.push(match one.stack.is_virtual() {
                    true => "on a copy of the tables that an earlier trial loaded".to_owned(),
                    false => "reuses tables of an earlier trial; server restarted".to_owned(),
                });
                loaded
            }
            None => match self.load(one, watcher)? {
                Ok(Some(loaded)) => {
                    self.bench.loaded.insert(one.tables(), loaded.clone());
                    loaded
                }
                Ok(None) => return Ok(Readiness::Stopped),
                Err(outcome) => return Ok(Readiness::Failed(Box::new(outcome))),
            },
        };
        notes.extend(loaded.volume_note.clone());
        let pool = servers::pool_of(job, Some(loaded.pages));
        notes.push(servers::pool_note(job, pool, units::Bytes(loaded.pages)));
        // Pages cached by loading would replace device reads.
        let data = servers::server_of(job).map(|server| (server.data)(&loaded.place));
        let data = data.unwrap_or_else(|| vec![loaded.place.clone()]);
        for dir in data.into_iter().chain(loaded.wal.clone()) {
            let _ = engine::kv::evict(&dir);
        }
        let log = self.server_log(one);
        let limits = self.limits(one)?;
        let place = match one.stack.is_virtual() {
            true => servers::copy(&loaded.place, self.bench.targets.copy_place(one.stack)?)?,
            false => loaded.place,
        };
        let mut preloaded = match self.simulate(one, &place, &mut notes)? {
            Some(simulation) => Preloaded::Simulation(simulation),
            None => Preloaded::observation(),
        };
        let preload = preloaded.library();
        let wal = wal_place(job, loaded.wal.as_deref());
        let (at, log, held) = (&place, &log, &limits);
        let private = PrivateServer { place: at, log, pool, limits: held, preload, wal };
        let started = servers::start(job, private, hosting(one));
        let running = match started {
            Ok(running) => running,
            Err(_) if one.run.stopping() => return Ok(Readiness::Stopped),
            Err(error) => {
                let ended = preloaded.end();
                let error = ended.map_err(EngineError::disconnected).err().unwrap_or(error);
                return Ok(Readiness::Failed(Box::new(self.failed(one, notes, &error))));
            }
        };
        // Tables are loaded in real time, on this machine's drive.
        let load = (fresh && !preloaded.is_simulated()).then(|| loaded.load.clone());
        let place = Some(place);
        let prepared = Prepared { running, limits, place, load, preloaded, notes };
        Ok(Readiness::Ready(Box::new(prepared)))
    }

    /// Starts the simulation of a trial on a modelled drive, for files in `place`.
    fn simulate(
        &self,
        one: SqlTrial<'_>,
        place: &Path,
        notes: &mut Vec<String>,
    ) -> Result<Option<Background>, RunnerError> {
        let memory = one.job.memory.bytes(one.job.data());
        let found = self.bench.targets.simulated(one.stack, memory, one.seed);
        let Some((host, profile)) = found.filter(|_| one.stack.is_virtual()) else {
            return Ok(None);
        };
        notes.push(host.in_words());
        let seed = Seed(one.seed.0.wrapping_add(1));
        let wal = one.wal_stack().map(|other| {
            let found = self.bench.targets.simulated(other, None, seed);
            let (host, profile) = found.expect("invariant: its model was checked");
            let at = servers::wal_of(one.job).expect("invariant: the study was checked");
            (host, profile, at)
        });
        Background::start(&host, (profile, place), wal, &one.stack.name).map(Some)
    }

    fn limits(&self, one: SqlTrial<'_>) -> Result<Limits, RunnerError> {
        if one.stack.is_virtual() {
            // Of the simulated host, not of this one.
            return Ok(Limits::default());
        }
        let memory = one.job.memory.bytes(one.job.data());
        let device = self.bench.targets.limit(one.stack);
        let wanted = Wanted {
            memory,
            device: device.as_ref().map(|(path, rates)| (path.as_path(), *rates)),
        };
        Ok(Limits::make(one.run.options.journal, &wanted)?)
    }

    fn server_log(&self, one: SqlTrial<'_>) -> PathBuf {
        one.run.archive.path().join(format!("{}.server.log", one.trial.slug()))
    }

    /// Creates and loads the tables of a database; `None` if stopped, or how it failed.
    fn load(
        &mut self,
        one: SqlTrial<'_>,
        watcher: &mut dyn Watcher,
    ) -> Result<Result<Option<Loaded>, TrialResult>, RunnerError> {
        let job = one.job;
        self.bench.forget(&one.tables());
        // A staged drive is loaded before its life starts: one attached already, and one that
        // `database_place` attaches.
        self.bench.targets.stage(one.stack, true)?;
        let targets = &mut self.bench.targets;
        let (place, volume_note) = match one.stack.is_virtual() {
            true => (targets.simulated_place(one.stack, &one.trial.job)?, None),
            false => targets.database_place(one.stack)?,
        };
        let other = one.wal_stack().filter(|_| !one.stack.is_virtual());
        let wal = other.map(|stack| targets.wal_place(stack, one.stack)).transpose()?;
        self.bench.targets.stage(one.stack, true)?;
        let key = job.tables_key();
        let load = LoadRecord::default();
        let empty = Loaded { key, place, load, pages: 0, volume_note, wal };
        self.bench.loaded.insert(one.tables(), empty.clone());
        let log = self.server_log(one);
        let started = servers::make(job, &empty.place, hosting(one)).and_then(|()| {
            let (pool, limits) = (servers::pool_of(job, None), &Limits::default());
            let place = &empty.place;
            let (preload, wal) = (Preload::None, wal_place(job, empty.wal.as_deref()));
            wal.map_or(Ok(()), |wal| split_wal(place, wal))?;
            let private = PrivateServer { place, log: &log, pool, limits, preload, wal };
            servers::start(job, private, hosting(one))
        });
        let mut running = match started {
            Ok(running) => running,
            Err(_) if one.run.stopping() => return Ok(Ok(None)),
            Err(error) => return Ok(Err(self.failed(one, Vec::new(), &error))),
        };
        let request = SqlRequest {
            load: true,
            place: running.place.clone(),
            ..request_for(one, empty.place.clone(), None)
        };
        let ended = self.ask_to_load(one, &request, watcher)?;
        let failed = !matches!(&ended, Ended::Done(_) | Ended::Stopped);
        let wait = if failed { LAST_WORDS_WAIT } else { Duration::ZERO };
        let died = running.server.as_mut().and_then(|server| server.obituary(wait));
        let stopped = running.server.map_or(Ok(()), |server| server.stop());
        match (ended, died, stopped) {
            (Ended::Stopped, ..) => Ok(Ok(None)),
            (Ended::Done(record), None, Ok(())) => {
                self.end_staging(one, &empty.place)?;
                let pages = record.totals.get(worker::PAGE_BYTES).map_or(0, |bytes| *bytes as u64);
                let load = record.load.unwrap_or_default();
                Ok(Ok(Some(Loaded { load, pages, ..empty })))
            }
            (ended, died, stopped) => {
                let reason = reason_of(died.or(stopped.err()), words_of(ended));
                let error = EngineError::disconnected(reason.unwrap_or_default());
                Ok(Err(self.failed(one, vec!["while loading".into()], &error)))
            }
        }
    }

    /// Starts the life of a staged drive after everything loaded has been synced to it.
    fn end_staging(&mut self, one: SqlTrial<'_>, place: &Path) -> Result<(), RunnerError> {
        if one.stack.staged {
            let synced = File::open(place).and_then(|dir| Ok(rustix::fs::syncfs(dir)?));
            synced.map_err(stack::StackError::io("write out", place))?;
        }
        self.bench.targets.stage(one.stack, false)
    }

    /// Loads missing tables on the user's server.
    fn load_shared(
        &mut self,
        one: SqlTrial<'_>,
        (running, notes): (Running, Vec<String>),
        watcher: &mut dyn Watcher,
    ) -> Result<Readiness, RunnerError> {
        let request = SqlRequest {
            load: true,
            place: running.place.clone(),
            ..request_for(one, PathBuf::new(), None)
        };
        match self.ask_to_load(one, &request, watcher)? {
            Ended::Stopped => Ok(Readiness::Stopped),
            Ended::Done(record) => {
                let (load, limits) = (record.load, Limits::default());
                let (place, preloaded) = (None, Preloaded::Nothing);
                let prepared = Prepared { running, limits, place, load, preloaded, notes };
                Ok(Readiness::Ready(Box::new(prepared)))
            }
            other => {
                let error = EngineError::disconnected(words_of(other).unwrap_or_default());
                Ok(Readiness::Failed(Box::new(self.failed(one, notes, &error))))
            }
        }
    }

    /// The result of a trial; stops its server and cleans up.
    pub(crate) fn conclude(
        &mut self,
        one: SqlTrial<'_>,
        prepared: Prepared,
        ended: Ended,
    ) -> Option<TrialResult> {
        let Prepared { mut running, limits, load, mut notes, mut preloaded, .. } = prepared;
        let died = running.server.as_mut().and_then(|server| {
            // Its connections end a moment before it does.
            let failed = !matches!(&ended, Ended::Done(record) if record.failure.is_none());
            server.obituary(if failed { LAST_WORDS_WAIT } else { Duration::ZERO })
        });
        notes.extend(running.set_back(one.job.dsn.as_deref()));
        let used = limits.used();
        let stopped = running.server.take().map_or(Ok(()), |server| server.stop());
        let simulated = preloaded.end();
        drop(limits);
        if let Some(used) = used {
            let peak = used.peak.map_or_else(String::new, |peak| format!(", at most {peak} used"));
            notes.push(format!(
                "the server's memory limited to {} with its page cache{peak}",
                used.limit
            ));
        }
        let mut result = match ended {
            Ended::Stopped => return None,
            Ended::Done(result) => *result,
            other => TrialResult { failure: words_of(other), ..TrialResult::default() },
        };
        // An error of the simulation is why the others ended.
        let failed = reason_of(died, result.failure.take());
        let mut failure = simulated.err().or(failed);
        if preloaded.is_simulated() && failure.is_none() && result.served.is_none() {
            failure = Some("the clients did not load the library of virtual time".to_owned());
        }
        let out_of_memory = used.is_some_and(|used| used.ended.unwrap_or(0) > 0);
        if let Some(reason) = failure.as_mut().filter(|_| out_of_memory) {
            reason.push_str("; it exceeded the study's memory limit");
        }
        let notes = notes.into_iter().chain(result.notes).collect();
        let mut outcome = TrialResult { failure, notes, load, ..result };
        if outcome.failure.is_some() {
            self.put_away_failed(one, &mut outcome);
            return Some(outcome);
        }
        if let Err(reason) = stopped {
            outcome.notes.push(format!("the server {reason}"));
            self.bench.forget(&one.tables());
        }
        // A log without a failure is of no use.
        let _ = std::fs::remove_file(&running.log);
        Some(outcome)
    }

    /// A trial that failed before its clients began.
    fn failed(
        &mut self,
        one: SqlTrial<'_>,
        notes: Vec<String>,
        error: &EngineError,
    ) -> TrialResult {
        let failure = Some(error.reason());
        let mut outcome = TrialResult { failure, notes, ..TrialResult::default() };
        self.put_away_failed(one, &mut outcome);
        outcome
    }

    /// Keeps or removes the database of a failed trial, as the study says, and reports a full file system.
    fn put_away_failed(&mut self, one: SqlTrial<'_>, outcome: &mut TrialResult) {
        if let Some(loaded) = self.bench.loaded.get(&one.tables()) {
            if let (Some(reason), Ok(free)) =
                (&mut outcome.failure, stack::free_space(&loaded.place))
                && free < FULL
            {
                reason.push_str(&format!(
                    "; the file system is full: {free} free; tables grow by up to {FULL}"
                ));
            }
            if one.job.keep_failed {
                let to = one.run.archive.path().join(format!("kept-{}", one.trial.slug()));
                outcome.notes.push(match servers::keep_all(one.job, loaded, &to) {
                    Ok(()) => format!("its data directory is kept in {}", to.display()),
                    Err(error) => format!("its data directory could not be kept: {error}"),
                });
            }
        }
        self.bench.forget(&one.tables());
    }

    /// Lets a client process load the tables, and forwards its progress.
    fn ask_to_load(
        &self,
        one: SqlTrial<'_>,
        request: &SqlRequest,
        watcher: &mut dyn Watcher,
    ) -> Result<Ended, RunnerError> {
        let of = u64::from(one.job.tables) * one.job.records;
        let mut heard = |event| {
            if let worker::Event::Loading(done) = event {
                watcher.event(&Event::Loading { done, of });
            }
        };
        let line = start_host(one.run.options.journal.mark(), &one.stack.name, Preload::None)?;
        ask(line, one, request, one.run.waiting(one.trial, one.experiment), &mut heard)
    }
}

/// Time limit for noticing a dying server after its clients lost it.
const LAST_WORDS_WAIT: Duration = Duration::from_secs(2);
/// Free space below which a file system is full for a server: InnoDB extends files by up to this much
/// (MariaDB 10.11: `preallocating 62914560 bytes`).
const FULL: units::Bytes = units::Bytes(60 << 20);

/// Everything that starting a server needs from the run.
fn hosting(one: SqlTrial<'_>) -> Hosting<'_> {
    Hosting { journal: one.run.options.journal, stop: one.run.options.stop }
}

/// Runs a request in the client process.
pub(crate) fn ask(
    line: Channel,
    one: SqlTrial<'_>,
    request: &SqlRequest,
    waiting: Waiting<'_>,
    heard: &mut dyn FnMut(worker::Event),
) -> Result<Ended, RunnerError> {
    let ended = line.ask(&Request::Sql(Box::new(request.clone())), waiting, heard);
    ended.map_err(|error| crate::databases::worker_error(&one.stack.name, &error))
}

/// The clients' request of a prepared trial.
pub(crate) fn request_of(one: SqlTrial<'_>, prepared: &Prepared, wait: bool) -> SqlRequest {
    let data = prepared.place.clone().unwrap_or_default();
    let process = prepared.running.server.as_ref().map(|server| server.process());
    let place = prepared.running.place.clone();
    SqlRequest { wait, place, ..request_for(one, data, process) }
}

fn request_for(one: SqlTrial<'_>, data: PathBuf, process: Option<u32>) -> SqlRequest {
    SqlRequest {
        job: one.job.clone(),
        load: false,
        place: Place::Directory(PathBuf::new()),
        data,
        process,
        parameters: databases::parameters(one.experiment, one.trial, one.seed),
        wait: false,
        helper: false,
    }
}
