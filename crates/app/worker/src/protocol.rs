//! What program and engine process say to each other: JSON, a line each.
//!
//! Invariant: both ends are of one build, so there is no version. What it is not: a public interface.

use std::path::PathBuf;

use archive::TrialMessage;
use serde::{Deserialize, Serialize};
use sql::Place;
use stats::{Phase, Spread, Summary};
use study::{KvJob, SqlJob};
use units::Nanos;

/// The first line to the child; any later line, or the end of its input, asks it to stop.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Run a trial.
    Trial(Box<TrialRequest>),
    /// Hold a database against the ledger of a trial that ended early.
    Check(Box<CheckRequest>),
    /// Say who the engine is, and whether it takes the job's options.
    Probe(Box<KvJob>),
    /// Load or drive a SQL database.
    Sql(Box<SqlRequest>),
}

/// SQL tables to load, or clients to run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SqlRequest {
    /// What to do.
    pub job: SqlJob,
    /// Load the tables; else run the clients on them.
    pub load: bool,
    /// Where the database is.
    pub place: Place,
    /// Directory of its files, as far as they are on this machine.
    pub data: PathBuf,
    /// Process of the server, if it is ours.
    pub process: Option<u32>,
    /// Warm-up, nanoseconds.
    pub warm_up_ns: u64,
    /// Measured time, nanoseconds.
    pub measure_ns: u64,
    /// Interval, nanoseconds.
    pub interval_ns: u64,
    /// Seed of rows and texts.
    pub seed: u64,
    /// End at the first failed statement.
    pub stop_on_error: bool,
    /// Connected clients wait for the word to begin.
    pub wait: bool,
    /// Where what is recorded is kept while it runs, if it is.
    pub journal: Option<PathBuf>,
}

/// The word that lets waiting clients begin.
pub(crate) const GO: &str = "go";

/// A trial in a fresh directory or on a device.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TrialRequest {
    /// What to do.
    pub job: KvJob,
    /// Directory or block device.
    pub place: PathBuf,
    /// Warm-up, nanoseconds.
    pub warm_up_ns: u64,
    /// Measured time, nanoseconds.
    pub measure_ns: u64,
    /// Interval, nanoseconds.
    pub interval_ns: u64,
    /// Seed of keys and values.
    pub seed: u64,
    /// End at the first failed operation.
    pub stop_on_error: bool,
    /// Where acknowledged updates are noted, if they are.
    pub ledger: Option<PathBuf>,
    /// Where what is recorded is kept while it runs, if it is.
    pub journal: Option<PathBuf>,
}

/// A check after an early end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CheckRequest {
    /// What was being done.
    pub job: KvJob,
    /// The ledger; it names the database.
    pub ledger: PathBuf,
    /// Where the database is now, if not where the ledger has it.
    pub place: Option<PathBuf>,
    /// Seed of keys and values.
    pub seed: u64,
}

/// A line from the child.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// So many records are in.
    Loading(u64),
    /// A client ended an interval.
    Interval(ToldInterval),
    /// The clients are connected, and begin at the word.
    Ready,
    /// The trial has ended. Last.
    Done(Box<TrialMessage>),
    /// It was stopped while loading. Last.
    Stopped,
    /// The answer to a probe or a check. Last.
    Said(String),
    /// The engine failed. Last.
    Failed(String),
    /// The database holds what was never written. Last.
    Wrong(String),
}

impl Reply {
    pub fn interval(client: u32, summary: &Summary) -> Self {
        Self::Interval(ToldInterval {
            client,
            measured: summary.phase == Phase::Measure,
            end_ns: summary.end.get(),
            seconds: summary.seconds,
            ops: summary.ops,
            latency_ns: summary.latency_sum.get(),
            times: summary.spread.counts().collect(),
        })
    }
}

/// A client's interval as it is told.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ToldInterval {
    pub client: u32,
    measured: bool,
    end_ns: u64,
    seconds: f64,
    ops: u64,
    latency_ns: u64,
    /// Buckets of `stats::Spread` that have something.
    #[serde(default)]
    times: Vec<(usize, u32)>,
}

impl ToldInterval {
    /// The summary that it stands for.
    pub fn summary(&self) -> Summary {
        let mut spread = Spread::default();
        self.times.iter().for_each(|(bucket, count)| spread.add_to(*bucket, *count));
        Summary {
            phase: if self.measured { Phase::Measure } else { Phase::WarmUp },
            end: Nanos(self.end_ns),
            seconds: self.seconds,
            ops: self.ops,
            latency_sum: Nanos(self.latency_ns),
            spread,
        }
    }
}
