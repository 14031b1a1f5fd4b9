//! Messages between the program and an engine's process: JSON, one per line. Both ends are of one build,
//! which a process on another machine tells before its clients start.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use archive::TrialMessage;
use engine::{Place, TrialSpec};
use observe::Progress;
use serde::{Deserialize, Serialize};
use stats::{Timeline, TrialResult};
use study::{KvJob, SqlJob};

/// The first line to the child; any later line, or the end of its input, requests a stop.
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

/// Parameters of every database trial.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TrialParameters {
    /// Phases and interval.
    pub timeline: Timeline,
    /// Seed of keys, values and texts.
    pub seed: u64,
    /// End at the first failed operation.
    pub stop_on_error: bool,
    /// File for ended intervals while the trial runs, if any.
    pub journal: Option<PathBuf>,
}

impl TrialParameters {
    /// Phases and end conditions of the trial.
    pub(crate) fn spec(&self, failures_max: Option<u32>) -> TrialSpec {
        let stop_on_error = self.stop_on_error;
        TrialSpec { timeline: self.timeline, stop_on_error, failures_max, max_lag: None }
    }
}

/// SQL tables to load, or clients to run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SqlRequest {
    /// The job.
    pub job: SqlJob,
    /// Load the tables; otherwise run the clients on them.
    pub load: bool,
    /// Where the database is.
    pub place: Place,
    /// Directory of its files, if local.
    pub data: PathBuf,
    /// Process of the server, if it is ours.
    pub process: Option<u32>,
    /// Phases, seed and journal.
    pub parameters: TrialParameters,
    /// Connected clients wait for `GO`.
    pub wait: bool,
    /// Other clients of the trial run in another process, which prepares the database and reads its counters.
    pub helper: bool,
}

/// The line that starts waiting clients.
pub(crate) const GO: &str = "go";
/// The line that asks for the time while they wait.
pub(crate) const TIME: &str = "time";

/// This build.
pub(crate) fn build() -> String {
    let commit = option_env!("CROSSPOINT_COMMIT").unwrap_or("unknown");
    format!("{} {commit}", env!("CARGO_PKG_VERSION"))
}

/// A trial in a fresh directory or on a device.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TrialRequest {
    /// The job.
    pub job: KvJob,
    /// Directory or block device.
    pub place: PathBuf,
    /// Phases, seed and journal.
    pub parameters: TrialParameters,
    /// Ledger of acknowledged updates, if any.
    pub ledger: Option<PathBuf>,
}

/// Verifies a database after the process ended early.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CheckRequest {
    /// The job that was running.
    pub job: KvJob,
    /// The ledger; it names the database.
    pub ledger: PathBuf,
    /// Current place of the database, if it was moved.
    pub place: Option<PathBuf>,
    /// Seed of keys and values.
    pub seed: u64,
}

/// How a request ended.
#[derive(Debug, Serialize, Deserialize)]
pub enum Ended {
    /// A trial is over.
    #[serde(skip)]
    Done(Box<TrialResult>),
    /// It was stopped before anything was measured.
    Stopped,
    /// The answer to a probe or a check.
    Said(String),
    /// The engine failed; its message.
    Failed(String),
    /// The engine cannot be used.
    Refused {
        /// Why.
        reason: String,
        /// What to do about it.
        help: String,
    },
    /// The database contains data that was never written, or lost acknowledged data.
    Wrong(String),
    /// The process ended without a result; the reason and the end of its stderr.
    Died(String),
}

/// Events before the end.
#[derive(Debug, Serialize, Deserialize)]
pub enum Event {
    /// Number of loaded records.
    Loading(u64),
    /// A client ended an interval.
    Interval(Box<Progress>),
    /// The clients are connected; they start when the receiver's handler returns.
    Ready(ClockOffset),
    /// They started, by the child's clock.
    Started(UnixNanos),
}

/// Nanoseconds since 1970 on the clock of one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UnixNanos(pub u64);

impl UnixNanos {
    pub(crate) fn now() -> Self {
        let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// How far the child's clock is ahead of this process's, from the fastest of several questions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockOffset {
    /// Nanoseconds; 0 if the clocks differ by less than can be measured, as on one machine.
    pub ns: i64,
    /// Half of the round trip: the offset is known to this.
    pub error_ns: u64,
}

impl ClockOffset {
    /// Of an answer to a question that was asked and answered at these times.
    pub(crate) fn of(asked: UnixNanos, said: UnixNanos, heard: UnixNanos) -> Self {
        let error_ns = heard.0.saturating_sub(asked.0).div_ceil(2);
        let middle = asked.0.saturating_add(error_ns);
        let ns = i64::try_from(i128::from(said.0) - i128::from(middle)).unwrap_or(i64::MAX);
        Self { ns: if ns.unsigned_abs() <= error_ns { 0 } else { ns }, error_ns }
    }
}

/// A line from the child.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Event(Event),
    /// The clients of this build are connected.
    Connected(String),
    /// The answer to [`TIME`].
    Time(UnixNanos),
    /// The trial has ended; last message.
    Done(Box<TrialMessage>),
    /// The final message.
    End(Ended),
}
