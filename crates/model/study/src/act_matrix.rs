//! Aerospike ACT's storage test in a study.
//!
//! The load is written as ACT's own configuration file, so a file that exists can be pasted. Invariant:
//! times of the trial come from that file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Nanos;

use crate::Many;
use crate::words::words;

/// ACT's storage test at one or more ratings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ActMatrix {
    /// Text of an `act_storage` configuration file (release 6.6).
    pub config: String,
    /// Ratings: multiples of 2000 reads and 1000 writes a second a device, instead of the file's rates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rating: Option<Many<u32>>,
    /// How requests lie in time.
    #[serde(default = "default_phase")]
    pub phase: Many<ActPhase>,
    /// Threads that issue requests in ACT's phase, instead of the file's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_threads: Option<Many<u32>>,
    /// Length of the test, instead of the file's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<Nanos>,
    /// How often the devices are written from end to end before, once a run: what `act_prep` is for.
    #[serde(default)]
    pub fills: u32,
    /// Slices of time that must each be within the limits.
    #[serde(default = "default_slice")]
    pub slice: Nanos,
}

/// How requests lie in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ActPhase {
    /// At random, each for itself.
    Independent,
    /// All threads at once, as the original does.
    Act,
}

words!(ActPhase { Independent => "independent", Act => "act" });

impl ActPhase {
    /// The phase in the terms of the load.
    #[must_use]
    pub const fn phase(self) -> act::Phase {
        match self {
            Self::Independent => act::Phase::Independent,
            Self::Act => act::Phase::Act,
        }
    }
}

fn default_phase() -> Many<ActPhase> {
    Many::one(ActPhase::Independent)
}
fn default_slice() -> Nanos {
    Nanos::from_secs(3600)
}
