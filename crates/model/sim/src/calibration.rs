//! What was measured of a host, and the submission paths that follow from it.
//!
//! Invariant: a path of a calibrated host has the name of the published path of its kind, so that figures
//! that were published of that path still speak of predictions with it. What it is not: the measurement.

use serde::{Deserialize, Serialize};
use units::Nanos;

use crate::HostModel;

/// Version of the file.
const SCHEMA: u32 = 1;
/// p90 less median of an exponential distribution, in means of it: ln 10 - ln 2. Above that are the rare
/// moments in which others had the processor.
const P90_LESS_MEDIAN: f64 = 1.609;

/// A host as it was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    schema: u32,
    /// Kernel and processors, as they name themselves: on others it says nothing.
    pub host: String,
    /// When, for people.
    pub measured: String,
    /// Cores that threads share.
    pub cores: u32,
    /// Whether each is of two hardware threads.
    pub siblings: bool,
    /// Waking up.
    pub wake_ups: WakeUps,
    /// Paths at each depth, the deepest of each last.
    pub path: Vec<PathCost>,
}

/// Times in which a thread that sleeps runs again.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WakeUps {
    /// After an interrupt (a timer's), median.
    pub interrupt: Nanos,
    /// The same, 90th percentile.
    pub interrupt_p90: Nanos,
    /// CPU time of one sleep with its wake-up, part of which passes while nothing is waited for.
    pub cpu: Nanos,
    /// By a thread on the same processor, mean.
    pub same_cpu: Nanos,
    /// By a thread on another processor, mean; none where there is one alone.
    pub other_cpu: Option<Nanos>,
}

/// What an operation costs on a path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathCost {
    /// Name of the path, as in profiles and studies.
    pub name: String,
    /// Operations in flight.
    pub depth: u32,
    /// CPU time per operation, the client's and that of sleeping included.
    pub cpu: Nanos,
    /// How often the client slept per operation.
    pub sleeps: f64,
    /// The client's and the recorder's part of it.
    pub client: Nanos,
    /// Operations a second that were reached.
    pub rate: f64,
}

impl Calibration {
    /// What was measured, in a file's form.
    #[must_use]
    pub fn new(
        (host, measured): (String, String),
        (cores, siblings): (u32, bool),
        wake_ups: WakeUps,
        path: Vec<PathCost>,
    ) -> Self {
        Self { schema: SCHEMA, host, measured, cores, siblings, wake_ups, path }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let found: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        if found.schema != SCHEMA {
            return Err(format!("schema {} is unknown; this version reads {SCHEMA}", found.schema));
        }
        if found.cores == 0 {
            return Err("`cores` must be at least 1".into());
        }
        if let Some(bad) = found.path.iter().find(|path| HostModel::named(&path.name).is_none()) {
            let known = HostModel::names().join(", ");
            return Err(format!("path `{}` is unknown; allowed: {known}", bad.name));
        }
        Ok(found)
    }

    /// The text of its file.
    #[must_use]
    pub fn text(&self) -> String {
        let text = toml::to_string(self).expect("invariant: plain tables of numbers and words");
        format!("# What `crosspoint calibrate` measured; predictions use it.\n{text}")
    }

    /// CPU time of the path alone: without the client's, and without going to sleep and waking up, which a
    /// path to a slower device does during the device's time.
    #[must_use]
    pub fn path_cpu(&self, cost: &PathCost) -> Nanos {
        let asleep = cost.sleeps * self.wake_ups.cpu.get() as f64;
        cost.cpu.since(cost.client).since(Nanos(asleep as u64))
    }

    /// The path of that name as this host has it; `None` where it was not measured. Its CPU time is that of
    /// the deepest measurement, where a client sleeps least; half before the operation, half after.
    #[must_use]
    pub fn path(&self, name: &str) -> Option<HostModel> {
        let known = HostModel::named(name)?;
        let deepest = self.path.iter().filter(|path| path.name == name).max_by_key(|p| p.depth)?;
        let half = Nanos(self.path_cpu(deepest).get() / 2);
        let spread = self.wake_ups.interrupt_p90.since(self.wake_ups.interrupt);
        Some(HostModel {
            name: known.name,
            submit: half,
            submit_write: half,
            wake: self.wake_ups.interrupt,
            complete: half,
            between: deepest.client,
            jitter: Nanos((spread.get() as f64 / P90_LESS_MEDIAN) as u64),
            cores: self.cores,
            siblings: self.siblings,
            source: "measured on this host by `crosspoint calibrate`",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Calibration {
        let wake_ups = WakeUps {
            interrupt: Nanos(3_000),
            interrupt_p90: Nanos(4_609),
            cpu: Nanos(1_000),
            same_cpu: Nanos(2_000),
            other_cpu: None,
        };
        let path = |depth, cpu| PathCost {
            name: "io_uring".into(),
            depth,
            cpu: Nanos(cpu),
            sleeps: 0.2,
            client: Nanos(100),
            rate: 100_000.0,
        };
        let names = ("kernel, cpu".into(), "2026-01-01".into());
        Calibration::new(names, (1, true), wake_ups, vec![path(64, 2_300), path(1, 5_000)])
    }

    /// Predictions for this host would be those of another.
    #[test]
    fn a_path_is_what_was_measured_where_it_is_busy() {
        let host = some().path("io_uring").unwrap();
        assert_eq!((host.submit, host.complete), (Nanos(1_000), Nanos(1_000)));
        assert_eq!((host.wake, host.between, host.cores), (Nanos(3_000), Nanos(100), 1));
        assert_eq!(host.jitter, Nanos(1_000));
        assert!(some().path("psync").is_none(), "it was not measured");
        assert!(some().path("nothing").is_none());
    }

    #[test]
    fn a_file_comes_back_and_a_strange_one_is_refused() {
        assert_eq!(Calibration::parse(&some().text()).unwrap(), some());
        let other = some().text().replace("schema = 1", "schema = 9");
        assert!(Calibration::parse(&other).unwrap_err().contains("schema 9"));
        let other = some().text().replace("\"io_uring\"", "\"io_urine\"");
        assert!(Calibration::parse(&other).unwrap_err().contains("psync"));
        let other = some().text().replace("cores = 1", "cores = 0");
        assert!(Calibration::parse(&other).unwrap_err().contains("cores"));
    }
}
