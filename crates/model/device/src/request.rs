//! Requests to a device, and completions with their stages.
//!
//! Invariant: the stages of a completion sum to the time since submission. Contents are stored outside of the
//! model.

use std::collections::BTreeMap;

use units::Nanos;

use crate::CHUNK;

/// Operation of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Reads from the device.
    Read,
    /// Writes to the device.
    Write,
    /// Makes everything acknowledged before durable. No offset, no length.
    Flush,
    /// Discards the contents.
    Discard,
    /// The contents read as zeroes from now on; no data crosses the link.
    WriteZeroes,
}

impl Operation {
    /// Whether it changes contents at an offset.
    #[must_use]
    pub const fn changes(self) -> bool {
        matches!(self, Self::Write | Self::Discard | Self::WriteZeroes)
    }
}

/// A block request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The caller's ID, returned with the completion.
    pub id: u64,
    /// The operation.
    pub operation: Operation,
    /// Force unit access: the write is durable when it completes.
    pub fua: bool,
    /// First byte.
    pub offset: u64,
    /// Bytes, at least 1; 0 for a flush.
    pub length: u32,
    /// Host queue of the request. Drives that fetch a limited number serve the queues in turn; with a single
    /// queue, in arrival order.
    pub queue: u16,
}

impl Request {
    /// A read of `length` bytes at `offset`.
    #[must_use]
    pub const fn read(id: u64, offset: u64, length: u32) -> Self {
        Self { id, operation: Operation::Read, fua: false, offset, length, queue: 0 }
    }

    /// A write that may stay in a volatile cache.
    #[must_use]
    pub const fn write(id: u64, offset: u64, length: u32) -> Self {
        Self { id, operation: Operation::Write, fua: false, offset, length, queue: 0 }
    }

    /// A flush.
    #[must_use]
    pub const fn flush(id: u64) -> Self {
        Self { id, operation: Operation::Flush, fua: false, offset: 0, length: 0, queue: 0 }
    }

    /// The request in another queue.
    #[must_use]
    pub const fn by(self, queue: u16) -> Self {
        Self { queue, ..self }
    }

    /// The request with another ID.
    #[must_use]
    pub(crate) const fn named(self, id: u64) -> Self {
        Self { id, ..self }
    }

    /// Number of 4 KiB chunks in its range; 0 for a flush.
    pub(crate) fn chunks(&self) -> u64 {
        if self.length == 0 {
            return 0;
        }
        (self.offset + u64::from(self.length) - 1) / CHUNK - self.offset / CHUNK + 1
    }

    /// Number of 4 KiB chunks of data that it transfers.
    pub(crate) fn carried(&self) -> u64 {
        match self.operation {
            Operation::Read | Operation::Write => self.chunks(),
            Operation::Flush | Operation::Discard | Operation::WriteZeroes => 0,
        }
    }
}

/// A stage of a request's latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Waiting for a busy internal server.
    Queue,
    /// The controller: its front end, its serial work, parity.
    Controller,
    /// The medium: flash, platter, 3D XPoint, memory.
    Media,
    /// Channels and the link.
    Transfer,
    /// A network or a hypervisor, both ways.
    Hop,
    /// Cache lookup, or waiting for write-back.
    Cache,
    /// Waiting for the limit of operations or bytes per second of a cloud volume.
    Throttle,
}

units::words!(Stage {
    Queue => "queue", Controller => "controller", Media => "media", Transfer => "transfer",
    Hop => "hop", Cache => "cache", Throttle => "throttle",
});

impl Stage {
    /// Number of stages.
    pub const COUNT: usize = 7;
}

/// Latency by stage: the total, and each stage except queueing, which is the rest.
///
/// Parts are 32-bit numbers, to keep simulated completions small: a stage above 4.29 s is cut off there, and
/// the rest counts as queueing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stages {
    whole: Nanos,
    /// `[stage]`, without the queue.
    parts: [u32; Stage::COUNT - 1],
}

impl Stages {
    /// Stages of a request that took `whole`, with `parts` in stages; the rest is queueing.
    #[inline(always)]
    #[must_use]
    pub fn new<const COUNT: usize>(whole: Nanos, parts: [(Stage, Nanos); COUNT]) -> Self {
        let mut own = [0; Stage::COUNT - 1];
        for (stage, time) in parts {
            own[stage as usize - 1] = u32::try_from(time.get()).unwrap_or(u32::MAX);
        }
        Self { whole, parts: own }
    }

    /// Time in one stage.
    #[must_use]
    pub fn of(&self, stage: Stage) -> Nanos {
        match stage as usize {
            0 => self.whole.since(self.known()),
            part => Nanos(u64::from(self.parts[part - 1])),
        }
    }

    /// All stages together.
    #[must_use]
    pub fn total(&self) -> Nanos {
        Stage::ALL.iter().fold(Nanos::ZERO, |sum, stage| sum + self.of(*stage))
    }

    fn known(&self) -> Nanos {
        Nanos(self.parts.iter().map(|part| u64::from(*part)).sum())
    }
}

/// Total times of completed requests by stage, ns: of reads, writes and flushes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StageTimes(pub [[u64; Stage::COUNT]; 3]);

impl StageTimes {
    /// Number of values.
    pub const VALUES: usize = 3 * Stage::COUNT;
    /// Kinds of requests, in the order of the rows.
    const KINDS: [&str; 3] = ["reads", "writes", "flushes"];

    /// Row of an operation.
    #[inline]
    #[must_use]
    pub const fn row(operation: Operation) -> usize {
        match operation {
            Operation::Read => 0,
            Operation::Write | Operation::Discard | Operation::WriteZeroes => 1,
            Operation::Flush => 2,
        }
    }

    /// Adds a completed request of row `row`.
    #[inline]
    pub fn add(&mut self, row: usize, stages: &Stages) {
        for stage in Stage::ALL {
            self.0[row][stage as usize] += stages.of(stage).get();
        }
    }

    /// All values, row by row.
    #[must_use]
    pub fn values(&self) -> [u64; Self::VALUES] {
        std::array::from_fn(|place| self.0[place / Stage::COUNT][place % Stage::COUNT])
    }

    /// The sum with those of another device.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let value = |row: usize, stage: usize| self.0[row][stage] + other.0[row][stage];
        Self(std::array::from_fn(|row| std::array::from_fn(|stage| value(row, stage))))
    }

    /// The difference of two readings, as values.
    #[must_use]
    pub fn between(later: [u64; Self::VALUES], earlier: [u64; Self::VALUES]) -> Self {
        let row = |row: usize| {
            std::array::from_fn(|stage| {
                let place = row * Stage::COUNT + stage;
                later[place].saturating_sub(earlier[place])
            })
        };
        Self([0, 1, 2].map(row))
    }

    /// Total time of a row, ns.
    #[must_use]
    pub fn total(&self, row: usize) -> u64 {
        self.0[row].iter().sum()
    }

    /// Counters of a trial with these times in seconds; `device_reads_queue`, ...
    pub fn totals(&self) -> impl Iterator<Item = (String, f64)> {
        let named = Self::KINDS.iter().zip(self.0).flat_map(|(kind, row)| {
            Stage::ALL.map(|stage| (Self::name(kind, stage), row[stage as usize] as f64 / 1e9))
        });
        named.filter(|(_, time)| *time > 0.0)
    }

    /// The times from a trial's counters; `None` if they contain none.
    #[must_use]
    pub fn of_totals(totals: &BTreeMap<String, f64>) -> Option<Self> {
        let time = |kind: &str, stage| totals.get(&Self::name(kind, stage)).copied();
        let row = |kind| Stage::ALL.map(|stage| (time(kind, stage).unwrap_or(0.0) * 1e9) as u64);
        let found = Self(Self::KINDS.map(row));
        (found != Self::default()).then_some(found)
    }

    fn name(kind: &str, stage: Stage) -> String {
        format!("device_{kind}_{}", stage.word())
    }
}

/// A request's progress through a device, with the time spent in each stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Route {
    began: Nanos,
    at: Nanos,
    parts: [u32; Stage::COUNT - 1],
}

impl Route {
    /// A request that was submitted at `now`.
    #[inline]
    pub const fn new(now: Nanos) -> Self {
        Self { began: now, at: now, parts: [0; Stage::COUNT - 1] }
    }

    /// Adds time in `stage` until `until`; nothing if that is in the past.
    #[inline(always)]
    pub fn until(&mut self, stage: Stage, until: Nanos) {
        if stage as usize > 0 {
            let spent = u32::try_from(until.since(self.at).get()).unwrap_or(u32::MAX);
            let part = &mut self.parts[stage as usize - 1];
            *part = part.saturating_add(spent);
        }
        self.at = self.at.max(until);
    }

    /// It waited until `start` and was then served in `stage` until `end`.
    #[inline(always)]
    pub fn served(&mut self, start: Nanos, stage: Stage, end: Nanos) {
        self.until(Stage::Queue, start);
        self.until(stage, end);
    }

    /// It was in the lower device from its submission until `completion`.
    #[inline]
    pub fn below(&mut self, completion: &Completion) {
        for (part, below) in self.parts.iter_mut().zip(completion.stages.parts) {
            *part = part.saturating_add(below);
        }
        self.at = completion.at;
    }

    /// The completion of request `id`.
    #[inline]
    pub const fn done(&self, id: u64) -> Completion {
        let stages = Stages { whole: self.at.since(self.began), parts: self.parts };
        Completion { id, at: self.at, stages }
    }
}

/// A finished request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// ID of the request.
    pub id: u64,
    /// When it finished.
    pub at: Nanos,
    /// Latency by stage; the stages sum to the time since submission.
    pub stages: Stages,
}

impl Completion {
    /// The completion delayed until then; the extra time is queueing.
    #[must_use]
    pub(crate) fn held_until(mut self, until: Nanos) -> Self {
        self.stages.whole += until.since(self.at);
        self.at = until;
        self
    }
}
