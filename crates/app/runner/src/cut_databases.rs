//! Databases under power cuts: written until the power cut, killed, and verified afterwards.
//!
//! Key-value engines run in a separate process and log acknowledgements in a ledger; each connection of a
//! server inserts rows 1, 2, 3 ... into its own table and counts the acknowledged ones. Invariant: only
//! acknowledgements from before the power cut count.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use device::Model;
use engine::{EngineError, Hosting, Place, Preload, PrivateServer, Row, Server, Statements};
use stack::{Journal, Limits};
use study::{Experiment, KvJob, SqlJob, Trial};
use units::Seed;
use vtime::{Drive, Host};
use worker::{Ended, Waiting};
use workload::{SQL_C, SQL_PAD};

use crate::RunnerError;
use crate::databases::{self, Asking};
use crate::servers;

/// Time limit for the power cut, however slow the drive.
pub(crate) const SURE: Duration = Duration::from_secs(60);
/// Polling interval for the power cut.
const LOOK: Duration = Duration::from_millis(2);
/// Time limit for an engine to verify its database.
const LOOKING_MAX: Duration = Duration::from_secs(120);

/// Result of verifying a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// All acknowledged data.
    All(String),
    /// Acknowledged data is missing or altered.
    Lost(String),
    /// It, or its file system, cannot be used any more.
    Unusable(String),
}

/// A database under one cut.
pub(crate) enum CutDatabase<'a> {
    Kv(KvUnderCut<'a>),
    Sql(Box<SqlUnderCut<'a>>),
}

pub(crate) struct KvUnderCut<'a> {
    of: (&'a Experiment, &'a Trial, &'a KvJob),
    place: PathBuf,
    ledger: PathBuf,
    seed: Seed,
}

pub(crate) struct SqlUnderCut<'a> {
    job: &'a SqlJob,
    place: PathBuf,
    log: PathBuf,
    server: Option<Box<dyn Server>>,
    at: Place,
    /// Rows of each table that were acknowledged.
    acknowledged: Vec<AtomicU64>,
}

impl<'a> CutDatabase<'a> {
    /// A key-value database in the empty directory `place`.
    pub fn of_kv(
        of: (&'a Experiment, &'a Trial, &'a KvJob),
        (place, ledger): (PathBuf, PathBuf),
        seed: Seed,
    ) -> Self {
        // Remove the ledger of an earlier cut, which says nothing about this one.
        let _ = std::fs::remove_file(&ledger);
        Self::Kv(KvUnderCut { of, place, ledger, seed })
    }

    /// A server on the empty directory `place`, started, with its tables.
    pub fn of_sql(
        job: &'a SqlJob,
        (place, log): (PathBuf, PathBuf),
        hosting: Hosting<'_>,
    ) -> Result<Self, RunnerError> {
        let failed = |error: EngineError| servers::environment("drive", &error);
        let _ = std::fs::remove_file(&log);
        servers::make(job, &place, hosting).map_err(failed)?;
        let running = started(job, (&place, &log), hosting).map_err(failed)?;
        let mut connection = connection(job, &running.place).map_err(failed)?;
        for table in 1..=job.tables {
            connection.create_table(table).map_err(failed)?;
        }
        let acknowledged = (0..job.tables).map(|_| AtomicU64::new(0)).collect();
        let (at, server) = (running.place, running.server);
        Ok(Self::Sql(Box::new(SqlUnderCut { job, place, log, server, at, acknowledged })))
    }

    /// Writes until the power is `gone`, then kills the engine.
    ///
    /// # Errors
    /// The engine fails before the power cut; that is no data loss.
    pub fn write(
        &mut self,
        gone: &(dyn Fn() -> bool + Sync),
        with: (&Journal, &AtomicBool),
    ) -> Result<(), RunnerError> {
        match self {
            Self::Kv(own) => own.write(gone, with),
            Self::Sql(own) => own.write(gone, with.1),
        }
    }

    /// Writes on a simulated drive until its power `is_gone`.
    ///
    /// # Errors
    /// The engine fails before the power cut, or a server is not simulated.
    pub fn write_simulated(
        &mut self,
        on: (&Host, Drive<Model>),
        is_gone: &dyn Fn() -> bool,
        with: (&Journal, &AtomicBool),
    ) -> Result<(), RunnerError> {
        match self {
            Self::Kv(own) => own.write_simulated(on, is_gone, with),
            Self::Sql(_) => unreachable!("invariant: servers are cut on attached drives"),
        }
    }

    /// Kills its processes, as a power cut would.
    pub fn end(&mut self) {
        if let Self::Sql(own) = self {
            own.server = None;
        }
    }

    /// Number of acknowledged records: loaded, and once more if updates were acknowledged as well; or rows.
    pub fn acknowledged(&self) -> u64 {
        match self {
            Self::Kv(own) => own.acknowledged(),
            Self::Sql(own) => own.acknowledged.iter().map(|one| one.load(Ordering::Acquire)).sum(),
        }
    }

    /// Reopens it and compares it with the acknowledgements.
    pub fn look(&mut self, with: (&Journal, &AtomicBool)) -> Result<Kept, RunnerError> {
        match self {
            Self::Kv(own) => own.look(with),
            Self::Sql(own) => Ok(own.look(Hosting { journal: with.0, stop: with.1 })),
        }
    }
}

impl KvUnderCut<'_> {
    fn asking<'b>(
        &self,
        journal: &'b Journal,
        (stop, deadline): (&'b AtomicBool, Duration),
    ) -> Asking<'b> {
        let waiting = Waiting { stop, deadline, grace: Duration::ZERO };
        Asking { journal, waiting, seed: self.seed, limit: None, kept_in: None }
    }

    fn write(
        &self,
        gone: &(dyn Fn() -> bool + Sync),
        (journal, stop): (&Journal, &AtomicBool),
    ) -> Result<(), RunnerError> {
        let (experiment, trial, job) = self.of;
        let (end, over) = (AtomicBool::new(false), AtomicBool::new(false));
        let asking = self.asking(journal, (&end, SURE));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) && !gone() && !stop.load(Ordering::Relaxed) {
                    std::thread::sleep(LOOK);
                }
                end.store(true, Ordering::Relaxed);
            });
            let places = (self.place.as_path(), Some(self.ledger.as_path()));
            let answer = databases::run(places, experiment, (trial, job), &asking, &mut |_| ());
            over.store(true, Ordering::Relaxed);
            match answer?.ended {
                Ended::Done(_) | Ended::Stopped => Ok(()),
                _ if gone() => Ok(()),
                Ended::Failed(reason)
                | Ended::Refused { reason, .. }
                | Ended::Died(reason)
                | Ended::Wrong(reason)
                | Ended::Said(reason) => Err(failed_before(&reason)),
            }
        })
    }

    fn write_simulated(
        &self,
        on: (&Host, Drive<Model>),
        is_gone: &dyn Fn() -> bool,
        (journal, stop): (&Journal, &AtomicBool),
    ) -> Result<(), RunnerError> {
        let (experiment, trial, job) = self.of;
        let asking = self.asking(journal, (stop, SURE));
        let places = (self.place.as_path(), Some(self.ledger.as_path()));
        let of = (trial, job);
        match databases::simulate(places, experiment, of, &asking, on, &mut |_| ())?.ended {
            Ended::Done(_) | Ended::Stopped => Ok(()),
            _ if is_gone() => Ok(()),
            Ended::Failed(reason)
            | Ended::Refused { reason, .. }
            | Ended::Died(reason)
            | Ended::Wrong(reason)
            | Ended::Said(reason) => Err(failed_before(&reason)),
        }
    }

    /// Without a ledger nothing was acknowledged.
    fn acknowledged(&self) -> u64 {
        let noted = engine::kv::Ledger::open(&self.ledger).and_then(|(ledger, _)| ledger.noted());
        noted.map_or(0, |(loaded, updated)| loaded + updated)
    }

    fn look(&self, (journal, stop): (&Journal, &AtomicBool)) -> Result<Kept, RunnerError> {
        let (_, trial, job) = self.of;
        if self.acknowledged() == 0 {
            return Ok(Kept::All("no data had been acknowledged".into()));
        }
        let asking = self.asking(journal, (stop, LOOKING_MAX));
        let ended = databases::check((trial, job), (&self.ledger, None), &asking)?;
        let _ = std::fs::remove_file(&self.ledger);
        Ok(match ended {
            Ended::Said(words) => Kept::All(words),
            Ended::Wrong(words) => Kept::Lost(words),
            Ended::Failed(words) | Ended::Refused { reason: words, .. } | Ended::Died(words) => {
                Kept::Unusable(words)
            }
            Ended::Done(_) | Ended::Stopped => Kept::Unusable("no result was reported".into()),
        })
    }
}

impl SqlUnderCut<'_> {
    fn write(
        &mut self,
        gone: &(dyn Fn() -> bool + Sync),
        stop: &AtomicBool,
    ) -> Result<(), RunnerError> {
        let (job, at, over) = (self.job, &self.at, AtomicBool::new(false));
        let (server, began) = (&mut self.server, Instant::now());
        std::thread::scope(|scope| {
            let clients: Vec<_> = (1..)
                .zip(&self.acknowledged)
                .map(|(table, acknowledged)| {
                    let over = &over;
                    scope.spawn(move || insert(job, at, (table, acknowledged), over))
                })
                .collect();
            let ended = || clients.iter().any(std::thread::ScopedJoinHandle::is_finished);
            while !gone() && !ended() && !stop.load(Ordering::Relaxed) && began.elapsed() < SURE {
                std::thread::sleep(LOOK);
            }
            // A failure before the cut was not caused by it.
            let early = ended() && !gone();
            over.store(true, Ordering::Relaxed);
            // The server is killed: waiting clients get an error.
            *server = None;
            let ends = clients.into_iter().map(|client| client.join().unwrap_or(Ok(())));
            match ends.collect::<Result<Vec<()>, EngineError>>() {
                Err(error) if early => Err(failed_before(&error.to_string())),
                _ => Ok(()),
            }
        })
    }

    fn look(&mut self, hosting: Hosting<'_>) -> Kept {
        match self.rows(hosting) {
            Err(error) => Kept::Unusable(error.to_string()),
            Ok(rows) => {
                let promised: Vec<u64> =
                    self.acknowledged.iter().map(|one| one.load(Ordering::Acquire)).collect();
                let sum: u64 = promised.iter().sum();
                let lost: u64 =
                    promised.iter().zip(rows).map(|(one, rows)| one.saturating_sub(rows)).sum();
                match lost {
                    0 => Kept::All(format!("{sum} acknowledged rows: all present")),
                    lost => Kept::Lost(format!("{lost} of {sum} acknowledged rows are lost")),
                }
            }
        }
    }

    /// Lets the server recover, and counts the rows of every table.
    fn rows(&mut self, hosting: Hosting<'_>) -> Result<Vec<u64>, EngineError> {
        let running = started(self.job, (&self.place, &self.log), hosting)?;
        self.server = running.server;
        let mut connection = connection(self.job, &running.place)?;
        let tables = 1..=self.job.tables;
        let rows: Result<Vec<u64>, EngineError> =
            tables.clone().map(|table| connection.create_table(table)).collect();
        let rows = rows?;
        let complete = |(rows, noted): (&u64, &AtomicU64)| *rows >= noted.load(Ordering::Acquire);
        // What is lost says more than what is damaged.
        if rows.iter().zip(&self.acknowledged).all(complete) {
            tables.into_iter().try_for_each(|table| connection.verify(table))?;
        }
        Ok(rows)
    }
}

/// The private server of a job, started on its data directory.
fn started(
    job: &SqlJob,
    (place, log): (&Path, &Path),
    hosting: Hosting<'_>,
) -> Result<servers::Running, EngineError> {
    let (pool, limits) = (servers::pool_of(job, None), &Limits::default());
    let private = PrivateServer { place, log, pool, limits, preload: Preload::None, wal: None };
    servers::start(job, private, hosting)
}

/// A connection to the database at a place.
fn connection(job: &SqlJob, place: &Place) -> Result<Box<dyn Statements>, EngineError> {
    let connect = servers::engine_of(job)?.connect;
    connect.expect("invariant: a SQL engine connects")(place, job)
}

/// The error of an engine that failed before the power cut.
fn failed_before(reason: &str) -> RunnerError {
    let reason = format!("the database failed before the power was cut: {reason}");
    RunnerError::environment("drive", reason, "crosspoint doctor")
}

/// Inserts rows into a table, one per transaction, until an insert fails or the power is gone.
fn insert(
    job: &SqlJob,
    at: &Place,
    (table, acknowledged): (u32, &AtomicU64),
    over: &AtomicBool,
) -> Result<(), EngineError> {
    let mut connection = connection(job, at)?;
    let (c, pad) = ([b'1'; SQL_C], [b'2'; SQL_PAD]);
    for id in 1.. {
        connection.insert(table, &[Row { id, k: id % 100, c: &c, pad: &pad }])?;
        acknowledged.store(id, Ordering::Release);
        if over.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(())
}
