//! Messages between the program and an engine's process: JSON, one per line. Both ends are of one build, so
//! there is no version.

use std::path::PathBuf;

use archive::TrialMessage;
use engine::{Place, TrialSpec};
use serde::{Deserialize, Serialize};
use stats::{Phase, Spread, Summary, Timeline};
use study::{KvJob, SqlJob};
use units::Nanos;

/// The first line to the child; any later line, or the end of its input, asks it to stop.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Run a trial.
    Trial(Box<TrialRequest>),
    /// Compare a database with the ledger of a trial that ended early.
    Check(Box<CheckRequest>),
    /// Report the engine's version, and whether it accepts the job's options.
    Probe(Box<KvJob>),
    /// Load or drive a SQL database.
    Sql(Box<SqlRequest>),
}

/// What every trial of a database needs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TrialParameters {
    /// Warm-up, nanoseconds.
    pub warm_up_ns: u64,
    /// Measured time, nanoseconds.
    pub measure_ns: u64,
    /// Interval, nanoseconds.
    pub interval_ns: u64,
    /// Seed of keys, values and texts.
    pub seed: u64,
    /// End at the first failed operation.
    pub stop_on_error: bool,
    /// File in which ended intervals are kept while the trial runs, if they are.
    pub journal: Option<PathBuf>,
}

impl TrialParameters {
    /// Phases and what ends the trial.
    pub(crate) fn spec(&self, failures_max: Option<u32>) -> TrialSpec {
        let timeline = Timeline {
            warm_up: Nanos(self.warm_up_ns),
            measure: Nanos(self.measure_ns),
            interval: Nanos(self.interval_ns),
        };
        TrialSpec { timeline, stop_on_error: self.stop_on_error, failures_max, max_lag: None }
    }
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
    /// Phases, seed and journal.
    pub parameters: TrialParameters,
    /// Connected clients wait for the word to begin.
    pub wait: bool,
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
    /// Phases, seed and journal.
    pub parameters: TrialParameters,
    /// Where acknowledged updates are noted, if they are.
    pub ledger: Option<PathBuf>,
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
    /// This many records are in.
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
    /// The engine cannot be used as it is. Last.
    Refused {
        /// Why.
        reason: String,
        /// What to do about it.
        help: String,
    },
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

/// A client's interval as it is reported.
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
