//! The result of a trial: one type from every driver, measured or virtual, to the archive.
//!
//! Invariants: each producer fills in its part, and no decision is made by parsing sentences; the limit of a
//! trial is a [`Limit`].

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use units::Nanos;

use crate::{Recording, Served};

/// The result of a trial.
#[derive(Debug, Clone, Default)]
pub struct TrialResult {
    /// The time series.
    pub recording: Recording,
    /// Why it failed, as text.
    pub failure: Option<String>,
    /// Description of the I/O path.
    pub path: String,
    /// Notes for the reader of the figures.
    pub notes: Vec<String>,
    /// What limited its rate or latencies, other than the storage.
    pub limits: Vec<Limit>,
    /// Resource usage of the driving process over warm-up and measurement; `None` for predictions.
    pub usage: Option<Usage>,
    /// Requests served by the block device underneath; `None` without one.
    pub disk: Option<DiskCounters>,
    /// Latencies that an emulated drive served; `None` for others.
    pub served: Option<Served>,
    /// Loading of the database, if there was one.
    pub load: Option<LoadRecord>,
    /// The database's own counters over time; empty if it has none.
    pub counters: Vec<CounterSample>,
    /// The database's totals, by metric; empty if it has none.
    pub totals: BTreeMap<String, f64>,
    /// Every effective setting of a server, by name; empty without a server.
    pub settings: BTreeMap<String, String>,
}

impl TrialResult {
    /// Whether a real engine was run in virtual time.
    #[must_use]
    pub fn is_simulated(&self) -> bool {
        self.totals.contains_key(&TimedBy::Simulation.name(TIME_KINDS[0], false))
    }

    /// Seconds that the clients' threads spent, in the order of [`TIME_KINDS`]; `None` if nobody timed them.
    #[must_use]
    pub fn client_times(&self) -> Option<[f64; TIME_KINDS.len()]> {
        self.times(false)
    }

    /// The same for the threads of a server that served the clients.
    #[must_use]
    pub fn server_times(&self) -> Option<[f64; TIME_KINDS.len()]> {
        self.times(true)
    }

    fn times(&self, server: bool) -> Option<[f64; TIME_KINDS.len()]> {
        let by = [TimedBy::Simulation, TimedBy::Observation];
        let found = by.map(|by| {
            let mut times = TIME_KINDS.map(|kind| self.totals.get(&by.name(kind, server)).copied());
            // Older runs do not have the last.
            times[TIME_KINDS.len() - 1].get_or_insert(0.0);
            times.iter().all(Option::is_some).then(|| times.map(Option::unwrap_or_default))
        });
        found.into_iter().flatten().next()
    }

    /// Whether the submitting thread was the bottleneck, so that the rate says nothing about the storage.
    #[must_use]
    pub fn is_host_bound(&self) -> bool {
        self.limits.iter().any(|limit| matches!(limit, Limit::Thread { .. }))
    }

    /// All messages for the reader: failure, limits, notes.
    pub fn said(&self) -> impl Iterator<Item = String> {
        let limits = self.limits.iter().map(ToString::to_string);
        // A simulated drive delivers exactly what the model requests.
        let served = self.served.iter().filter(|_| !self.is_simulated());
        let served = served.map(|served| format!("delivered vs modelled: {served}"));
        self.failure.iter().cloned().chain(limits).chain(self.notes.iter().cloned()).chain(served)
    }
}

/// What threads spend their time on.
pub const TIME_KINDS: [&str; 10] = [
    "cpu", "run_queue", "wake_up", "lock", "network", "read", "write", "flush", "sleep",
    "background",
];

/// Total of a trial: seconds that timing the waits took.
pub const OBSERVING_COST: &str = "observed_cost";

/// Totals of a trial whose clients ran in several processes: seconds between the first start and the last,
/// and between the first end and the last.
pub const START_SKEW: &str = "start_skew";
/// See [`START_SKEW`].
pub const END_SKEW: &str = "end_skew";

/// Total of a trial: seconds from a request that costs the server nothing to its answer.
pub const ROUND_TRIP: &str = "round_trip";

/// Name of a trial's total: seconds of traced requests of a kind (`read`, `write`) in a part of the kernel's
/// path (`submission`, `block_layer`, `drive`, `wake_up`, `completion`).
#[must_use]
pub fn path_total(kind: &str, part: &str) -> String {
    format!("path_{kind}_{part}")
}

/// Who timed the threads of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimedBy {
    /// Virtual time: exact.
    Simulation,
    /// The library that times the waits of a measured program.
    Observation,
}

impl TimedBy {
    /// Name of a trial's total, in seconds, of the clients or of the server's threads that served them.
    #[must_use]
    pub fn name(self, kind: &str, server: bool) -> String {
        let by = match self {
            Self::Simulation => "simulated",
            Self::Observation => "observed",
        };
        format!("{by}{}_{kind}", if server { "_server" } else { "" })
    }
}

/// A bottleneck other than the storage. Shares are between 0 and 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Limit {
    /// The busiest submitting thread.
    Thread {
        /// Share of time in which it is running.
        busy: f64,
    },
    /// Not yet a bottleneck, but other processes used CPUs of the host.
    Others {
        /// Share of the CPUs that others used.
        others: f64,
    },
    /// The processors of the host.
    Processors {
        /// Share of them that was busy.
        busy: f64,
        /// Share of the CPUs that others used.
        others: f64,
    },
}

impl Limit {
    /// Whether its shares are between 0 and 1.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let share = |share: f64| (0.0..=1.0).contains(&share);
        match *self {
            Self::Thread { busy } => share(busy),
            Self::Others { others } => share(others),
            Self::Processors { busy, others } => share(busy) && share(others),
        }
    }

    /// CPU share that other processes may use without a note.
    pub const OTHERS: f64 = 0.10;
    /// Share of a host's CPU time that counts as saturated.
    const SATURATED: f64 = 0.90;

    /// The limit implied by the host's CPU shares: busy in total, and used by other processes; `None` if CPU
    /// was sufficient.
    #[must_use]
    pub fn of_host((busy, others): (f64, f64)) -> Option<Self> {
        if busy >= Self::SATURATED {
            let (busy, others) = (busy.min(1.0), others.min(1.0));
            return Some(Self::Processors { busy, others });
        }
        (others >= Self::OTHERS).then_some(Self::Others { others: others.min(1.0) })
    }

    /// The limit without the share `own` of the emulated drive; `None` if the rest is negligible.
    #[must_use]
    pub fn without(self, own: f64) -> Option<Self> {
        match self {
            Self::Others { others } => Self::of_host((0.0, (others - own).max(0.0))),
            Self::Processors { busy, others } => {
                Some(Self::Processors { busy, others: (others - own).max(0.0) })
            }
            Self::Thread { .. } => Some(self),
        }
    }

    /// Utilization from which on a submitting thread counts as the bottleneck.
    pub const THREAD_BUSY: f64 = 0.95;
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread { busy } => write!(
                f,
                "the submitting thread, not the device, limits this rate (thread {:.0} % busy)",
                busy.min(1.0) * 100.0
            ),
            Self::Others { others } => write!(
                f,
                "other programs used {:.0} % of this host's CPU during the trial",
                others * 100.0
            ),
            Self::Processors { busy, others } => write!(
                f,
                "host CPU saturated ({:.0} % busy, {:.0} % by other programs): latencies include waiting \
                 for CPU",
                busy * 100.0,
                others * 100.0
            ),
        }
    }
}

/// Counters of this process since it started, or between two readings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// CPU in application code, nanoseconds.
    pub cpu_user_ns: u64,
    /// CPU in the kernel on its behalf, nanoseconds.
    pub cpu_system_ns: u64,
    /// Voluntary context switches.
    pub switches_voluntary: u64,
    /// Involuntary context switches.
    pub switches_involuntary: u64,
    /// 512-byte blocks read from file systems and devices.
    pub blocks_in: u64,
    /// 512-byte blocks written to them (counted when a page is dirtied).
    pub blocks_out: u64,
    /// Page faults that waited for storage.
    pub faults_major: u64,
}

impl Usage {
    /// Total CPU time.
    #[must_use]
    pub const fn cpu(&self) -> Nanos {
        Nanos(self.cpu_user_ns.saturating_add(self.cpu_system_ns))
    }
}

/// A device's bytes, operations and times since boot, or between two readings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskCounters {
    /// Completed reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Completed writes.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Total time of completed reads, milliseconds; 0 in older records.
    #[serde(default)]
    pub reading_ms: u64,
    /// Time with writes in flight, milliseconds.
    #[serde(default)]
    pub writing_ms: u64,
    /// Time with flushes in flight, milliseconds.
    #[serde(default)]
    pub flushing_ms: u64,
}

/// Differences and sums, field by field.
macro_rules! counters {
    ($type:ident { $($field:ident),+ }) => {
        impl $type {
            /// The difference to `earlier`.
            #[must_use]
            pub const fn since(&self, earlier: &Self) -> Self {
                Self { $($field: self.$field.saturating_sub(earlier.$field)),+ }
            }

            /// The sum of both.
            #[must_use]
            pub const fn plus(&self, other: &Self) -> Self {
                Self { $($field: self.$field + other.$field),+ }
            }
        }
    };
}

counters!(Usage {
    cpu_user_ns,
    cpu_system_ns,
    switches_voluntary,
    switches_involuntary,
    blocks_in,
    blocks_out,
    faults_major
});
counters!(DiskCounters {
    reads,
    read_bytes,
    writes,
    write_bytes,
    reading_ms,
    writing_ms,
    flushing_ms
});

/// A sample of a database's counters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CounterSample {
    /// Nanoseconds since the clients began.
    pub at_ns: u64,
    /// By name, with its unit.
    pub values: BTreeMap<String, f64>,
}

/// The load phase of a database.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadRecord {
    /// Records loaded.
    pub records: u64,
    /// Wall time, nanoseconds.
    pub wall_ns: u64,
    /// Resource usage of the engine's process.
    pub usage: Usage,
    /// I/O of the underlying device, including write-back after the load.
    pub disk: Option<DiskCounters>,
    /// Bytes of the database's files on disk afterwards.
    pub db_bytes: u64,
    /// Bytes of the keys and values that were written; 0 in older records.
    #[serde(default)]
    pub user_bytes: u64,
}
