//! The study format, its matrix and its plan of trials.
//!
//! A study is a TOML file, strict: unknown keys and numbers without units are errors that point at
//! the place. It names stacks, experiments and a matrix by explicit arrays; [`plan`] turns it into
//! trials in the order in which they run.
//!
//! Invariants: the resolved form of a study is itself a valid study that plans the same trials; the
//! plan is fixed before the first trial. What it is not: execution; nothing here touches the host.

#![forbid(unsafe_code)]

mod format;
mod many;
mod overrides;
mod parse;
mod plan;

pub use format::{
    Arrivals, BlockMatrix, DeviceName, Durability, Engine, Experiment, KvMatrix, OnError, Pattern,
    Stack, Study, Submission,
};
pub use many::Many;
pub use overrides::apply_overrides;
pub use parse::{StudyError, parse, resolved_text, schema};
pub use plan::{BlockJob, Job, KvJob, Plan, Skip, Source, Trial, plan};
