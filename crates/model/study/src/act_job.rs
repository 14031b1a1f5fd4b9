//! Aerospike ACT's storage test in a study.
//!
//! The load is ACT's own configuration file, so that an existing file can be pasted. Invariant: the trial's
//! times come from that file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::Nanos;

use crate::EngineName;
use crate::defaults::millis;
use crate::parameters::Parameters;

/// ACT's storage test; its configuration sets the times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ActJob {
    /// The engine: `block`.
    pub engine: EngineName,
    /// Text of an `act_storage` configuration file (release 6.6).
    pub config: String,
    /// Ratings: multiples of 2000 reads and 1000 writes per second per device, instead of the file's rates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rating: Option<u32>,
    /// Distribution of arrivals over time.
    #[serde(default = "default_phase")]
    pub phase: act::Phase,
    /// Threads that issue requests in ACT's phase, instead of the file's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_threads: Option<u32>,
    /// Length of the test, instead of the file's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_duration: Option<Nanos>,
    /// How often the devices are overwritten from end to end before the first trial of a run (not before
    /// each): the purpose of `act_prep`.
    #[serde(default)]
    pub fills: u32,
    /// Length of a slice; every slice must be within the limits.
    #[serde(default = "millis::<3600000>")]
    pub slice: Nanos,
}

impl ActJob {
    /// The configuration with this point's rating and threads.
    ///
    /// # Errors
    /// The line, and the allowed values; never for a job of a checked study.
    pub fn config(&self) -> Result<act::Config, act::ConfigError> {
        let config = act::Config::parse(&self.config)?;
        let mut config = self.rating.map_or_else(|| config.clone(), |one| config.at_rating(one));
        config.service_threads = self.service_threads.unwrap_or(config.service_threads);
        Ok(config)
    }

    /// Replaces the text of the file by the load that it describes with the overrides of this point: names of
    /// devices, comments and the order of lines are not part of a job. Its duration is the trial's.
    pub(crate) fn spell_out(&mut self) {
        let Ok(config) = self.config() else { return };
        self.config = toml::to_string(&config).expect("invariant: numbers and names");
        (self.rating, self.service_threads, self.test_duration) = (None, None, None);
    }

    pub(crate) fn parameters(&self) -> Parameters {
        let Ok(config) = self.config() else { return Parameters::default() };
        let mut point = vec![
            ("read_reqs_per_sec", config.read_reqs_per_sec.to_string()),
            ("write_reqs_per_sec", config.write_reqs_per_sec.to_string()),
            ("arrivals", self.phase.word().into()),
        ];
        if let Some(rating) = config.rating() {
            point.push(("rating", rating.to_string()));
        }
        if self.phase == act::Phase::Act && config.service_threads > 0 {
            point.push(("service_threads", config.service_threads.to_string()));
        }
        Parameters::of(point)
    }
}

const fn default_phase() -> act::Phase {
    act::Phase::Independent
}
