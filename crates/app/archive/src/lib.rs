//! Run folders: trials made durable one by one, resumed after a kill, and read back.
//!
//! Layout of a run folder (format 1):
//!
//! ```text
//! run.json               what ran where: provenance, stacks, validation of the models
//! study.toml             the resolved study; itself a valid study
//! study.original.toml    the study as it was given
//! sums.txt               checksums of all of these; none in runs of the first versions
//! trials/NNNN-name/      one folder a finished trial:
//!     trial.json         counts by interval and class, CPU, device counters, notes
//!     latency.hlog       every latency histogram, in the HdrHistogram log format
//! trials/.running-NNNN-name   journal of a trial that runs, or was running when its run was killed
//! ```
//!
//! Invariants: a trial folder exists only when it is whole (written aside, synced, renamed); nothing that
//! is there is ever changed.

mod counters;
mod document;
mod error;
mod files;
mod lines;
pub mod output;
mod reader;
mod running;
mod seal;
mod sums;
mod texts;
mod writer;

pub use document::{
    FORMAT, OwnDisk, RACERS, RateLimits, RunHeader, StackRecord, TrialOutcome, TrialRecord,
};
pub use error::ArchiveError;
pub use files::is_run_file;
pub use lines::TrialMessage;
pub use reader::Run;
pub use running::{Keeper, WRITE_EVERY};
pub use sums::Sums;
pub use writer::{Reopened, RunWriter};
