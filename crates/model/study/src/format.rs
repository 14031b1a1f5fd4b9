//! The study file as types; `docs/schema/study.schema.json` is generated from them.
//!
//! Invariants: every table refuses unknown keys; every default is written out in the resolved study.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos, Rate};

use crate::defaults::{auto, millis, number, yes};
use crate::{Condition, DeviceName, Jobs, Objective, StackFaults, WhatIf};

/// A study.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Study {
    /// Version of the format: 2. Studies of version 1 are read as well.
    pub schema: u32,
    /// Name of the study: 1 to 64 letters, digits, `-` and `_`.
    pub name: String,
    /// The question that the report answers first.
    #[serde(default = "default_question")]
    pub question: String,
    /// What the study shows and why.
    #[serde(default)]
    pub about: String,
    /// The finding that answers the question in the report's headline; by default each storage's rate
    /// relative to the reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Finding>,
    /// Name of the stack that others are compared with; by default the first measured one, otherwise the
    /// first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// Seed of all random draws; the same seed gives the same operations.
    #[serde(default = "number::<1>")]
    pub seed: u32,
    /// The stacks to measure or predict.
    pub stack: Vec<Stack>,
    /// The experiments to run on them.
    pub experiment: Vec<Experiment>,
    /// The engines that it was parsed with.
    #[serde(skip)]
    pub engines: crate::Engines,
    /// Converted from schema 1.
    #[serde(skip)]
    pub upgraded: bool,
}

/// The answer to a question other than which storage has the highest rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// How far each storage can be loaded before latency grows.
    Growth,
    /// Effect of writes on reads.
    Mixes,
    /// The highest rating of Aerospike's test that each storage passes.
    Ratings,
    /// Cost of making writes durable.
    Flushes,
    /// Winner of a race, and the margin.
    Race,
    /// When and why an engine stalls writes.
    Stalls,
    /// Effect of memory on each storage, from one workload with three or more sizes of memory or buffer pool.
    Memory,
    /// Share of the local rate that remains over a fabric.
    Fabric,
    /// Highest rate of each, and the queue depth needed for it.
    Rates,
    /// Two engines compared on the same storage.
    Engines,
    /// Latency at depth 1, bandwidth of large requests, and rate at high depth, of each storage.
    Device,
    /// Shares of the drive, of a fabric or hypervisor, and of the host in one request.
    Breakdown,
    /// Whether the storage is fit for a database, from the experiments of the study `check`.
    Fitness,
    /// Which storages are enough for the load of the experiment `need`, as `crosspoint advise` asks.
    Suitability,
}

/// A device, and how it is presented.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stack {
    /// Name in experiments and figures.
    pub name: String,
    /// Title for people; empty: the name of the device.
    #[serde(default)]
    pub title: String,
    /// `file` (a temporary file, removed afterwards), `model:NAME`, `model:FILE.toml`, or a block device by
    /// its stable path, such as `/dev/disk/by-id/...`; several devices separated by commas, over which
    /// operations are spread. Databases run on a device without a file system (LMDB only) or on the
    /// `file_system` that is created on it.
    pub device: DeviceName,
    /// Directory of the temporary file and of databases; `auto`: the directory of the runs.
    #[serde(default = "auto")]
    pub directory: String,
    /// The drive model of this device, as the name of a device profile (`crosspoint device list`), if you
    /// know it: published results of that drive are then compared with the measurements. Without it, values
    /// are shown next to published ones without a verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// Bytes that block experiments address; with several devices, on each. By default 1GiB, and all of a
    /// device model: seeks and caches behave differently on a part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Bytes>,
    /// Bypass the page cache (O_DIRECT). `false` measures memory as much as the device.
    #[serde(default = "yes")]
    pub direct: bool,
    /// How operations reach the kernel.
    #[serde(default)]
    pub submission: Submission,
    /// Allow writes to a block device; without it the device is opened read-only. See docs/SECURITY.md.
    #[serde(default)]
    pub allow_write: bool,
    /// File system for databases: that of the directory; in virtual time a simulated `ext4` (the default),
    /// `ext4_no_journal` or `raw`; or one created for each trial, on the device (erased at the end) or on a
    /// loop device of `size` with direct I/O over the temporary file (root); or none (`raw`, LMDB only).
    #[serde(default)]
    pub file_system: FileSystem,
    /// Limits the I/O rates of databases on the device, through the kernel's cgroups (requires root): `{
    /// reads = "5k/s", writes = "2k/s", read_bytes = "100MB", write_bytes = "50MB" }`, each optional.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<IoLimit>,
    /// For a device model: attach it as a live disk of `size` (1GiB by default) and run on that, in real
    /// time; figures are `emulated`. By default, block experiments are `predicted`, and
    /// databases run in virtual time, which needs no privileges and is `emulated`, too. An attached model
    /// keeps written data in memory; databases need a `file_system`, created on a loop device over it
    /// (root). Attaching a drive that is faster than this machine's FUSE path fails unless it is
    /// time-scaled (`scale`); its trials then fail, and the others continue.
    #[serde(default)]
    pub attach: bool,
    /// For `file`: the directory lies on a drive of `crosspoint attach`; figures are `emulated`, and how
    /// accurate the emulation was is unknown.
    #[serde(default, skip_serializing_if = "is_false")]
    pub emulated: bool,
    /// For an attached model: multiplies every time of the device, 1 to 1000. Needed for a drive that is
    /// faster than this machine's path to a live disk, and for a comparison with a host with more cores: a
    /// drive that is ten times slower is to a database on two cores what the drive is to one on twenty.
    /// Stacks of one experiment share one scale; figures show it.
    #[serde(default = "number::<1>")]
    pub scale: u32,
    /// For an attached model: load the tables of a SQL job before the simulated device starts. Loading takes
    /// no device time and does not reach the model: a cache is empty, a drive in its `condition`. For a drive
    /// that is placed in front of, or under, an existing database.
    #[serde(default)]
    pub staged: bool,
    /// For an attached model: fault injection: `seed`, and `[[stack.faults.fault]]` with the keys of
    /// FAULTS.md. Times count from attaching or, if `staged`, from the start of the simulated device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub faults: Option<StackFaults>,
    /// For a device model: submission path of its host: `psync`, `io_uring`, `io_uring-2024`,
    /// `io_uring-polled`, `libaio`, `spdk`, `ext4-psync`, `psync-2017` or `none`, all as published; `auto`
    /// follows `submission`, and is this host's own path once `crosspoint calibrate` has measured
    /// it.
    #[serde(default = "auto")]
    pub host: String,
    /// For a device model: cores of the host, with two hardware threads each, up to 1024; 0: the path's
    /// default. In virtual time: cores that run one thread each; 0: this machine's number of CPUs.
    #[serde(default)]
    pub cores: u32,
    /// For databases in virtual time: CPU time of a thread between two calls of the C library that the
    /// simulation replaces, and of each of these calls, 100ns to 1ms, instead of the measured CPU time. LMDB
    /// and SQLite without a memory limit then give the same results in every run, others nearly the same, but
    /// only storage and counts are realistic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_time: Option<Nanos>,
    /// For a device model: state of the flash before the first request.
    #[serde(default)]
    pub condition: Condition,
    /// For databases in virtual time: run them again with one part free, for each of `drive` (takes no time),
    /// `cores` (twice as many) and `journal` (none). The report says how much faster they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub what_if: Vec<WhatIf>,
    /// Name of the stack that this one varies; both are device models in virtual time. It runs that stack's
    /// database experiments, and the report says only how much faster they are with its `title` ("a drive
    /// with power-loss protection").
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant_of: Option<String>,
    /// Price for people, such as `40 USD per month`; cheaper ones come first in `crosspoint advise`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<String>,
    /// Name of the stack that has the write-ahead log (WAL) of databases. Both stacks are device models in
    /// virtual time, or neither is; `cores`, `host` and `cpu_time` are those of the data's stack. For
    /// PostgreSQL with a private server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wal: Option<String>,
    /// Made for another stack's `what_if`; not written.
    #[serde(skip)]
    pub is_made: bool,
}

/// Limits per second on a database's device; requests as the file system issues them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IoLimit {
    /// Reads per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reads: Option<Rate>,
    /// Writes per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writes: Option<Rate>,
    /// Bytes read per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_bytes: Option<Bytes>,
    /// Bytes written per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_bytes: Option<Bytes>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// File system of databases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileSystem {
    /// The file system of the directory.
    #[default]
    AsIs,
    /// ext4.
    Ext4,
    /// ext4 without a journal.
    Ext4NoJournal,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
    /// None: the database uses the device directly.
    Raw,
}

/// How operations reach the kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Submission {
    /// io_uring where the kernel allows it, otherwise threads with pread and pwrite; the result says which.
    #[default]
    Auto,
    /// io_uring, or fail.
    IoUring,
    /// A thread for each operation in flight, with pread and pwrite.
    Psync,
}

/// An experiment: a job at each point of its matrix, on each of its stacks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Name in figures.
    pub name: String,
    /// Title for people; empty: the name.
    #[serde(default)]
    pub title: String,
    /// Names of stacks; empty: every stack that the engine can run on.
    #[serde(default)]
    pub stacks: Vec<String>,
    /// Duration of the warm-up.
    #[serde(default = "millis::<500>")]
    pub warm_up: Nanos,
    /// Duration of the measurement.
    #[serde(default = "millis::<3000>")]
    pub duration: Nanos,
    /// Interval of the time series.
    #[serde(default = "millis::<250>")]
    pub interval: Nanos,
    /// Repetitions of each point, 1 to 100, interleaved; the order of the stacks is random, and reversed in
    /// every second repetition.
    #[serde(default = "number::<1>")]
    pub repeat: u32,
    /// What happens when an operation fails; failures are counted and sampled either way.
    #[serde(default)]
    pub on_error: OnError,
    /// Objectives for every stack and point: `["p99 <= 20ms", "p99 <= 5ms at 2k/s"]` (p50, p90, p99, p99_9;
    /// with `at`, this many transactions, lookups, updates or block operations per second must be reached).
    /// The report has a column for them, and a run that misses one exits with code 8; objectives that cannot
    /// be decided (too few samples, an inaccurately emulated drive) are inconclusive.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objectives: Vec<Objective>,
    /// Skip trials for which this machine lacks something (root, a program, an engine), with the reason;
    /// otherwise nothing of the study runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
    /// Time limit of a trial, including loading, excluding the start and stop of a server; a trial that
    /// exceeds it is stopped and fails. By default ten times the estimate plus half an hour. A schedule that
    /// falls behind issues late operations for a further measurement's duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Nanos>,
    /// The job, `[experiment.job]`: the engine, the workload and their options. A list in place of a value is
    /// an axis of the matrix.
    pub job: Jobs,
}

/// Effect of a failed operation on its trial. Either way it is counted and sampled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnError {
    /// The trial ends as failed.
    #[default]
    Stop,
    /// The trial continues.
    Continue,
}

fn default_question() -> String {
    "What would my database do on that storage?".into()
}
impl Stack {
    /// Bytes that block experiments address, for a real device.
    #[must_use]
    pub fn size(&self) -> Bytes {
        self.size.unwrap_or(Bytes::mib(1024))
    }

    /// Whether it is a device model simulated in virtual time.
    #[must_use]
    pub const fn is_virtual(&self) -> bool {
        matches!(self.device, DeviceName::Model(_)) && !self.attach
    }
}
