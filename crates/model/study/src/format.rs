//! The study file as types; `docs/schema/study.schema.json` is generated from them.
//!
//! Invariants: every table refuses unknown keys; every default is written out in the resolved study.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos, Rate};

use crate::defaults::{auto, millis, number, yes};
use crate::{Condition, DeviceName, Jobs, Objective, StackFaults};

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
    /// What it shows and why, for people.
    #[serde(default)]
    pub about: String,
    /// The finding that answers the question in the report's first sentence; without it: what each storage
    /// gives, next to the reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Finding>,
    /// Name of the stack that others are compared with; by default the first that is measured, else the
    /// first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// Seed of every random draw; the same seed gives the same operations.
    #[serde(default = "number::<1>")]
    pub seed: u32,
    /// What is measured or predicted.
    pub stack: Vec<Stack>,
    /// What is done to it.
    pub experiment: Vec<Experiment>,
    /// The engines that it was read with.
    #[serde(skip)]
    pub engines: crate::Engines,
    /// It was written in schema 1.
    #[serde(skip)]
    pub upgraded: bool,
}

/// What answers a question that is not which storage gives the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// How far each storage can be loaded before latency grows.
    Growth,
    /// What writes do to reads.
    Mixes,
    /// The ratings of Aerospike's test that each passes.
    Ratings,
    /// What making writes durable takes.
    Flushes,
    /// Who won a race, and by how much.
    Race,
    /// When and why an engine makes its writer wait.
    Stalls,
    /// What memory gives on each storage: of one workload with three sizes of memory or buffer pool, or more.
    Memory,
    /// What is left of the rate behind a fabric.
    Fabric,
    /// The highest rate of each, and the depth that it takes.
    Rates,
    /// What one engine gives next to the other on the same storage.
    Engines,
    /// One request, large ones, many: latency, bandwidth and rate of each.
    Device,
}

/// A device, and how it is presented.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stack {
    /// Name in experiments and figures.
    pub name: String,
    /// What it is, for people; empty: the name of the device.
    #[serde(default)]
    pub title: String,
    /// `file` (a temporary file, removed afterwards), `model:NAME`, `model:FILE.toml`, or a block device by
    /// its stable path, such as `/dev/disk/by-id/...`; several devices separated by commas, over which
    /// operations are spread. Databases stand on a device without a file system (LMDB only) or on the
    /// `file_system` that is made on it.
    pub device: DeviceName,
    /// Directory of the temporary file and of databases; `auto`: where the runs are kept.
    #[serde(default = "auto")]
    pub directory: String,
    /// The drive that this is, by the name of a device profile (`crosspoint device list`), where you know
    /// it: what is published of that drive is then compared with what ran here. A stack without one is a
    /// stand-in: shown, and not judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// Bytes that block experiments address; of several devices, on each. By default 1GiB, and all of a
    /// device model: heads and caches of a part of it do less than those of the whole.
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
    /// File system for databases: the directory's own; or one made again for each trial, on the device
    /// (erased at the end) or on a loop device of `size` with direct I/O over the temporary file (root); or
    /// none (`raw`, LMDB only).
    #[serde(default)]
    pub file_system: FileSystem,
    /// Holds databases to rates on the device, by the kernel's control group (needs root): `{ reads =
    /// "5k/s", writes = "2k/s", read_bytes = "100MB", write_bytes = "50MB" }`, each optional.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<IoLimit>,
    /// Of a device model: attach it as a live disk of `size` (1GiB if the study says none) and run on that;
    /// figures are `emulated`. Its data lie in memory, as far as they were written. Databases need a
    /// `file_system`, made on a loop device over it (root). A drive that is faster than this machine's way
    /// through FUSE is refused when it is attached, unless its time is stretched (`scale`): its trials have
    /// failed then, and the others continue.
    #[serde(default)]
    pub attach: bool,
    /// Of an attached model: every time of the device is this many times as long, 1 to 1000. A drive that
    /// is faster than this machine's way to a live disk needs it, and so does a comparison with a host of
    /// more cores: to a database on two cores a drive that is ten times slower is what the drive is to one
    /// on twenty. Stacks of one experiment share one scale; figures say it.
    #[serde(default = "number::<1>")]
    pub scale: u32,
    /// Of an attached model: the tables of a SQL job are there before its life begins. Loading takes
    /// the device no time and leaves no trace: a cache is empty, a drive in its `condition`. For a drive that
    /// is put before, or under, a database that exists.
    #[serde(default)]
    pub staged: bool,
    /// Of an attached model: what goes wrong with it: `seed`, and `[[stack.faults.fault]]` with the keys of
    /// FAULTS.md. Times count from when it is attached, or, if it is `staged`, from when its life begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub faults: Option<StackFaults>,
    /// Of a device model: submission path of its host: `psync`, `io_uring`, `io_uring-2024`,
    /// `io_uring-polled`, `libaio`, `spdk`, `ext4-psync`, `psync-2017` or `none`, all as published; `auto`
    /// follows `submission`, and is this host's own io_uring path once `crosspoint calibrate` has measured
    /// it.
    #[serde(default = "auto")]
    pub host: String,
    /// Of a device model: cores of the host, of two hardware threads each, up to 1024; 0: what the path
    /// has.
    #[serde(default)]
    pub cores: u32,
    /// Of a device model: state of the flash before the first request.
    #[serde(default)]
    pub condition: Condition,
}

/// What a database may do to its device in a second; requests as the file system sends them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IoLimit {
    /// Reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reads: Option<Rate>,
    /// Writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writes: Option<Rate>,
    /// Bytes read, in a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_bytes: Option<Bytes>,
    /// Bytes written, in a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_bytes: Option<Bytes>,
}

/// What databases stand on.
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
    /// None: the database has the device to itself.
    Raw,
}

/// How operations reach the kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Submission {
    /// io_uring where the kernel allows it, else threads with pread and pwrite; the result says which.
    #[default]
    Auto,
    /// io_uring or nothing.
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
    /// What it shows, for people; empty: the name.
    #[serde(default)]
    pub title: String,
    /// Names of stacks; empty: every stack that the engine can run on.
    #[serde(default)]
    pub stacks: Vec<String>,
    /// Time before measuring.
    #[serde(default = "millis::<500>")]
    pub warm_up: Nanos,
    /// Time measured.
    #[serde(default = "millis::<3000>")]
    pub duration: Nanos,
    /// Interval of the time series.
    #[serde(default = "millis::<250>")]
    pub interval: Nanos,
    /// Repetitions of each point, 1 to 100, interleaved; stacks in an order that is drawn, and then in its
    /// reverse.
    #[serde(default = "number::<1>")]
    pub repeat: u32,
    /// What a failed operation does; failures are counted and sampled either way.
    #[serde(default)]
    pub on_error: OnError,
    /// What is asked of every stack at every point: `["p99 <= 20ms", "p99 <= 5ms at 2k/s"]` (p50, p90, p99,
    /// p99_9; with `at` this many transactions, lookups, updates or block operations per second must be
    /// reached). The report has a column for them, and a run that misses one ends with exit code 8; what
    /// cannot be said (too few samples, an emulated drive that was not as its model asks) is open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objectives: Vec<Objective>,
    /// Trials for which this machine lacks something (root, a program, an engine) are left out, with the
    /// reason; else nothing of the study runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
    /// Time after which a trial that has not ended is ended and has failed, loading included, starting and
    /// stopping a server not; without it ten times what is estimated, and half an hour. A schedule that was
    /// not kept issues what is late for as long again as was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Nanos>,
    /// The job, `[experiment.job]`: the engine, what it does, and how. A list in the place of a value is an
    /// axis of the matrix.
    pub job: Jobs,
}

/// What a failed operation does to its trial. Either way it is counted and sampled.
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
    /// Bytes that block experiments address, of a real device.
    #[must_use]
    pub fn size(&self) -> Bytes {
        self.size.unwrap_or(Bytes::mib(1024))
    }

    /// Whether it is a device model that is asked in virtual time.
    #[must_use]
    pub const fn is_virtual(&self) -> bool {
        matches!(self.device, DeviceName::Model(_)) && !self.attach
    }
}
