//! Aerospike ACT storage tests (release 6.6): configuration file, load, log for `act_latency.py`, and
//! verdict.
//!
//! Sources are the released program (`src/storage/cfg_storage.c`, `src/storage/act_storage.c`,
//! `src/common/histogram.c`) where its README disagrees. Invariant: pure; the same recording gives the same
//! log.

#![forbid(unsafe_code)]

mod config;
mod load;
mod log;
mod verdict;

pub use config::{Config, ConfigError};
pub use load::{Load, Phase, Shape, groups};
pub use log::log_text;
pub use verdict::{LIMITS, Slice, Verdict, judge, table_text};

/// The release whose files are read and whose log is written.
pub const RELEASE: &str = "6.6";
