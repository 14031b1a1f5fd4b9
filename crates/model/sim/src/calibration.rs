//! Measurements of a host (`crosspoint calibrate`), and the submission paths derived from them.
//!
//! Invariant: a calibrated path has the name of the published path of its kind, but its own times; published
//! results of that path do not validate predictions with it.

use serde::{Deserialize, Serialize};
use units::Nanos;

use crate::scheduler::SchedulerCosts;
use crate::{HostModel, PageCacheCosts};

/// Version of the file.
const SCHEMA: u32 = 1;
/// p90 minus median of an exponential distribution, in means: ln 10 - ln 2. The tail beyond p90 has rare
/// preemptions by other processes.
const P90_LESS_MEDIAN: f64 = 1.609;
/// The median of an exponential distribution, in means of it: ln 2.
const MEDIAN: f64 = std::f64::consts::LN_2;
/// The path of reads and writes that a thread waits for.
const PSYNC: &str = "psync";
/// The longest time allowed in a file.
const TIME_MAX: Nanos = Nanos::from_secs(1);

/// Measurements of a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    schema: u32,
    /// Kernel and CPU model; the calibration is valid only there.
    pub host: String,
    /// Time of the measurement, as text.
    pub measured: String,
    /// Cores that threads share.
    pub cores: u32,
    /// Whether each core has two hardware threads.
    pub siblings: bool,
    /// Wake-up times.
    pub wake_ups: WakeUps,
    /// Costs of scheduling, for simulations of databases; absent in older files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<SchedulerCosts>,
    /// CPU times of the page cache, for simulations of databases; absent in older files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_cache: Option<PageCacheCosts>,
    /// Paths at each depth; the deepest of each path is last.
    pub path: Vec<PathCost>,
}

/// CPU times of a host that simulations of databases need; `None`: those of a reference host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MeasuredCosts {
    /// Costs of scheduling.
    pub scheduler: Option<SchedulerCosts>,
    /// Those of the page cache.
    pub page_cache: Option<PageCacheCosts>,
}

impl MeasuredCosts {
    /// All measured times.
    #[must_use]
    pub fn times(&self) -> Vec<Nanos> {
        let scheduler = self.scheduler.iter().flat_map(SchedulerCosts::times);
        scheduler.chain(self.page_cache.iter().flat_map(PageCacheCosts::times)).collect()
    }
}

/// Wake-up latencies of a sleeping thread.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WakeUps {
    /// After an interrupt (a timer's), median.
    pub interrupt: Nanos,
    /// Interrupt latency, p90.
    pub interrupt_p90: Nanos,
    /// CPU time of one sleep and wake-up, part of which overlaps with waiting.
    pub cpu: Nanos,
    /// Wake-up by a thread on the same CPU, mean.
    pub same_cpu: Nanos,
    /// Wake-up by a thread on another CPU, mean; `None` on a machine with one.
    pub other_cpu: Option<Nanos>,
}

/// Cost of an operation on a path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathCost {
    /// Name of the path, as in profiles and studies.
    pub name: String,
    /// Operations in flight.
    pub depth: u32,
    /// CPU time per operation, including the client's and that of sleeping.
    pub cpu: Nanos,
    /// How often the client slept per operation.
    pub sleeps: f64,
    /// The share of the client and the recorder in it.
    pub client: Nanos,
    /// Operations per second that were reached.
    pub rate: f64,
}

impl Calibration {
    /// The measurements, in the form of the file.
    #[must_use]
    pub fn new(
        (host, measured): (String, String),
        (cores, siblings): (u32, bool),
        wake_ups: WakeUps,
        path: Vec<PathCost>,
    ) -> Self {
        Self {
            schema: SCHEMA,
            host,
            measured,
            cores,
            siblings,
            wake_ups,
            scheduler: None,
            page_cache: None,
            path,
        }
    }

    /// Parses a calibration file.
    ///
    /// # Errors
    /// A message that says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let found: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        if found.schema != SCHEMA {
            return Err(format!("schema {} is unknown; this version reads {SCHEMA}", found.schema));
        }
        if found.cores == 0 {
            return Err("`cores` must be at least 1".into());
        }
        found.possible()?;
        if let Some(bad) = found.path.iter().find(|path| HostModel::named(&path.name).is_none()) {
            let known = HostModel::names().join(", ");
            return Err(format!("path `{}` is unknown; allowed: {known}", bad.name));
        }
        Ok(found)
    }

    /// Checks that the values are plausible.
    ///
    /// # Errors
    /// A message that names the implausible value.
    pub fn possible(&self) -> Result<(), String> {
        let WakeUps { interrupt, interrupt_p90, cpu, same_cpu, other_cpu } = self.wake_ups;
        let own = [interrupt, interrupt_p90, cpu, same_cpu, other_cpu.unwrap_or_default()];
        let costs = self.path.iter().flat_map(|path| [path.cpu, path.client]);
        let own = own.into_iter().chain(self.costs().times());
        if let Some(long) = own.chain(costs).find(|time| *time > TIME_MAX) {
            return Err(format!("{long} is not a valid host time; at most {TIME_MAX}"));
        }
        let counts = self.path.iter().flat_map(|path| [path.sleeps, path.rate]);
        if let Some(bad) = counts.into_iter().find(|count| !count.is_finite() || *count < 0.0) {
            return Err(format!("{bad} is not a valid number of sleeps or operations"));
        }
        match self.deepest().find(|path| self.path_cpu(path) == Nanos::ZERO) {
            Some(path) => Err(format!("{} costs no CPU time at depth {}", path.name, path.depth)),
            None => Ok(()),
        }
    }

    /// What simulations of databases need.
    #[must_use]
    pub fn costs(&self) -> MeasuredCosts {
        MeasuredCosts { scheduler: self.scheduler, page_cache: self.page_cache }
    }

    /// The deepest measurement of each path.
    fn deepest(&self) -> impl Iterator<Item = &PathCost> {
        let deeper = |one: &PathCost| {
            self.path.iter().any(|other| other.name == one.name && other.depth > one.depth)
        };
        self.path.iter().filter(move |one| !deeper(one))
    }

    /// The text of its file.
    #[must_use]
    pub fn text(&self) -> String {
        let text = toml::to_string(self).expect("invariant: plain tables of numbers and words");
        format!("# What `crosspoint calibrate` measured; predictions use it.\n{text}")
    }

    /// CPU time of the path alone: without the client's own work, and without sleeping and waking up, which
    /// overlap with the device's time on a slower device.
    #[must_use]
    pub fn path_cpu(&self, cost: &PathCost) -> Nanos {
        let asleep = cost.sleeps * self.wake_ups.cpu.get() as f64;
        cost.cpu.since(cost.client).since(Nanos(asleep as u64))
    }

    /// The path of that name with this host's times; `None` if not measured. Its CPU time is from the deepest
    /// measurement, where a client sleeps least; half is spent before the operation, half after. psync, whose
    /// clients sleep in each operation, takes that of io_uring, as it nearly does on published hosts.
    #[must_use]
    pub fn path(&self, name: &str) -> Option<HostModel> {
        let known = HostModel::named(name)?;
        let own = self.deepest().find(|path| path.name == name);
        let other = || self.deepest().find(|path| path.name == HostModel::io_uring().name);
        let deepest = own.or_else(|| (name == PSYNC).then(other).flatten())?;
        let half = Nanos(self.path_cpu(deepest).get() / 2);
        let spread = self.wake_ups.interrupt_p90.since(self.wake_ups.interrupt).get() as f64;
        let jitter = spread / P90_LESS_MEDIAN;
        Some(HostModel {
            name: known.name,
            submit: half,
            submit_write: half,
            wake: self.wake_ups.interrupt.since(Nanos((jitter * MEDIAN) as u64)),
            complete: half,
            between: deepest.client,
            jitter: Nanos(jitter as u64),
            cores: self.cores,
            siblings: self.siblings,
            contained: false,
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

    /// Predictions for this host must use the times measured on it.
    #[test]
    fn a_path_is_what_was_measured_where_it_is_busy() {
        let host = some().path("io_uring").unwrap();
        assert_eq!((host.submit, host.complete), (Nanos(1_000), Nanos(1_000)));
        assert_eq!((host.between, host.cores), (Nanos(100), 1));
        // Wake-up and exponential jitter together have the measured median and p90.
        let (wake, mean) = (host.wake.get() as f64, host.jitter.get() as f64);
        for (share, measured) in [(0.5f64, 3_000.0), (0.9, 4_609.0)] {
            let quantile = wake - mean * (1.0 - share).ln();
            assert!((quantile / measured - 1.0).abs() < 0.002, "{quantile} at {share}");
        }
        let psync = some().path("psync").unwrap();
        assert_eq!(HostModel { name: "io_uring", ..psync }, host, "only its name differs");
        assert!(some().path("libaio").is_none(), "it was not measured");
        assert!(some().path("nothing").is_none());
    }

    #[test]
    fn a_file_comes_back_and_a_strange_one_is_refused() {
        assert_eq!(Calibration::parse(&some().text()).unwrap(), some());
        let other = some().text().replace("schema = 1", "schema = 9");
        assert!(Calibration::parse(&other).unwrap_err().contains("schema 9"));
        let other = some().text().replace("\"io_uring\"", "\"io_urine\"");
        assert!(Calibration::parse(&other).unwrap_err().contains("psync"));
        for (old, new) in [
            ("interrupt = \"3us\"", "interrupt = \"2s\""),
            ("sleeps = 0.2", "sleeps = nan"),
            ("sleeps = 0.2", "sleeps = -5.0"),
            ("cpu = \"2300ns\"", "cpu = \"1ns\""),
        ] {
            assert!(some().text().contains(old), "{}", some().text());
            assert!(Calibration::parse(&some().text().replace(old, new)).is_err(), "{new}");
        }
        let other = some().text().replace("cores = 1", "cores = 0");
        assert!(Calibration::parse(&other).unwrap_err().contains("cores"));
    }
}
