//! Device models: storage as state machines without a clock, and the profiles that describe them.
//!
//! A model receives requests and the passing of time, and yields completions ([`Device`]). The same model
//! serves predictions in virtual time and live emulated disks.
//!
//! Invariants: no clock, no I/O, randomness from a seed only; every request completes exactly once and never
//! before its service time; the same seed gives the same completions.

#![forbid(unsafe_code)]

mod below;
mod built_in;
mod cache;
mod cloud;
mod constant;
mod events;
mod faults;
mod faulty;
mod flow;
mod hdd;
mod hop;
mod missed;
mod model;
mod nand;
mod pending;
mod profile;
mod published;
mod raid;
mod ram;
mod request;
mod slab;
mod xpoint;

pub use built_in::BUILT_IN;
pub use cache::{Cache, CacheMode, CacheParameters};
pub use cloud::{Cloud, CloudParameters};
pub use constant::{Constant, ConstantKind};
pub use events::{Event, EventQueue};
pub use faults::{Asked, Fault, FaultPlan, FaultPlanError, Range, Window};
pub use faulty::{FaultError, Faulty, FaultyDrive, Judgement};
pub use flow::{Flow, FlowFlushes, FlowMixes, FlowPaced, FlowParameters, FlowRested};
pub use hdd::{Hdd, HddParameters};
pub use hop::{Hop, HopParameters};
pub use missed::MissCause;
pub use model::Model;
pub use nand::{
    Collection, Condition, Nand, NandParameters, WriteCache, steady_write_amplification,
};
pub use profile::{Lookup, Parameters, Profile, ProfileError};
pub use published::{
    Acceptance, Durable, Evidence, EvidenceLists, JobPattern, KeyLists, LowerEnd, MissLists,
    Phenomenon, PhenomenonKind, Published, PublishedFigure, ValueAndBand,
};
pub use raid::{Raid, RaidParameters};
pub use ram::{Ram, RamParameters};
pub use request::{Completion, Operation, Request, Stage, StageTimes, Stages};
pub use slab::Slab;
pub use xpoint::{XPoint, XPointParameters};

use units::Nanos;

/// A device without a clock. Calls carry instants that never decrease.
pub trait Device {
    /// Submits a request at `now`.
    fn submit(&mut self, now: Nanos, request: Request);

    /// Time of the next internal event; `None` if idle.
    fn next_event(&self) -> Option<Nanos>;

    /// Whether its contents are lost in a power failure.
    fn forgets(&self) -> bool {
        false
    }

    /// Processes events up to and including `now`; appends completions in order of time.
    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>);
}

/// Bytes of a chunk, the unit of striping and transfer.
pub(crate) const CHUNK: u64 = 4096;
