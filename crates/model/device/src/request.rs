//! What a device is asked, and what it answers: requests, and completions with where their time went.
//!
//! Invariant: the stages of a completion sum to the time from its request's submission to its end. What it
//! is not: data; contents lie in a store next to a model.

use units::Nanos;

use crate::CHUNK;

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// From the device.
    Read,
    /// To the device.
    Write,
    /// Everything that was acknowledged before is on the medium when it ends. No offset, no length.
    Flush,
    /// The contents are no longer needed.
    Discard,
    /// The contents read as zeroes from now on; no data crosses the link.
    WriteZeroes,
}

impl Operation {
    /// Whether it changes what the device holds at an offset.
    #[must_use]
    pub const fn changes(self) -> bool {
        matches!(self, Self::Write | Self::Discard | Self::WriteZeroes)
    }
}

/// A block request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The caller's name for it, given back with the completion.
    pub id: u64,
    /// What it does.
    pub operation: Operation,
    /// Force unit access: a write is on the medium when it ends.
    pub fua: bool,
    /// First byte.
    pub offset: u64,
    /// Bytes, at least 1; 0 for a flush.
    pub length: u32,
    /// Queue of the host that it comes by. Drives that take in a part of what is asked look at each in
    /// turn; one queue for all is order of arrival.
    pub queue: u16,
}

impl Request {
    /// A read of `length` bytes at `offset`.
    #[must_use]
    pub const fn read(id: u64, offset: u64, length: u32) -> Self {
        Self { id, operation: Operation::Read, fua: false, offset, length, queue: 0 }
    }

    /// A write that may stay in a cache.
    #[must_use]
    pub const fn write(id: u64, offset: u64, length: u32) -> Self {
        Self { id, operation: Operation::Write, fua: false, offset, length, queue: 0 }
    }

    /// A flush.
    #[must_use]
    pub const fn flush(id: u64) -> Self {
        Self { id, operation: Operation::Flush, fua: false, offset: 0, length: 0, queue: 0 }
    }

    /// The same by another queue.
    #[must_use]
    pub const fn by(self, queue: u16) -> Self {
        Self { queue, ..self }
    }

    /// The same under another name.
    #[must_use]
    pub(crate) const fn named(self, id: u64) -> Self {
        Self { id, ..self }
    }

    /// Number of 4 KiB chunks that it touches; 0 for a flush.
    pub(crate) fn chunks(&self) -> u64 {
        if self.length == 0 {
            return 0;
        }
        (self.offset + u64::from(self.length) - 1) / CHUNK - self.offset / CHUNK + 1
    }

    /// Number of 4 KiB chunks whose data it carries.
    pub(crate) fn carried(&self) -> u64 {
        match self.operation {
            Operation::Read | Operation::Write => self.chunks(),
            Operation::Flush | Operation::Discard | Operation::WriteZeroes => 0,
        }
    }
}

/// Where the time of a request goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Waiting for a server inside that others occupy.
    Queue,
    /// The controller: its front end, its serial work, parity.
    Controller,
    /// The medium: flash, platter, 3D XPoint, memory.
    Media,
    /// Channels and the link.
    Transfer,
    /// A network or a hypervisor, both ways.
    Hop,
    /// A cache: looking up, or waiting for it to be written back.
    Cache,
}

units::words!(Stage {
    Queue => "queue", Controller => "controller", Media => "media", Transfer => "transfer",
    Hop => "hop", Cache => "cache",
});

impl Stage {
    /// Number of stages.
    pub const COUNT: usize = 6;
}

/// Time by stage: all of it, and how much of it each stage but the queue had; what none had was waiting.
///
/// Parts are 32-bit numbers, so that simulated completions stay small: a stage of more than 4.29 s counts as
/// that, and the rest of it as waiting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stages {
    whole: Nanos,
    /// `[stage]`, the queue left out.
    parts: [u32; Stage::COUNT - 1],
}

impl Stages {
    /// Those of a request that took `whole` and spent `parts` of it in stages; the rest was waiting.
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

/// A request's way through a device: how far it has come, and what it spent where.
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

    /// It was in `stage` until `until`. Nothing happens when it is there already.
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

    /// It was with a device below until `completion`, since that was submitted.
    #[inline]
    pub fn below(&mut self, completion: &Completion) {
        for (part, below) in self.parts.iter_mut().zip(completion.stages.parts) {
            *part = part.saturating_add(below);
        }
        self.at = completion.at;
    }

    /// The end of the request `id`.
    #[inline]
    pub const fn done(&self, id: u64) -> Completion {
        let stages = Stages { whole: self.at.since(self.began), parts: self.parts };
        Completion { id, at: self.at, stages }
    }
}

/// A finished request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The request's name.
    pub id: u64,
    /// When it finished.
    pub at: Nanos,
    /// Where its time went; they sum to the time since it was submitted.
    pub stages: Stages,
}

impl Completion {
    /// The same, held up until then: what it takes longer it waits.
    #[must_use]
    pub(crate) fn held_until(mut self, until: Nanos) -> Self {
        self.stages.whole += until.since(self.at);
        self.at = until;
        self
    }
}
