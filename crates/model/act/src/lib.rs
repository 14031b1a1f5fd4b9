//! Aerospike ACT storage tests (release 6.6): the configuration file, the load that follows from it, the
//! log that ACT's `act_latency.py` reads, and the verdict that it leaves to the reader.
//!
//! Sources are the released program (`src/storage/cfg_storage.c`, `src/storage/act_storage.c`,
//! `src/common/histogram.c`) where it and its README disagree. Invariant: pure; the same recording gives
//! the same log.

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
