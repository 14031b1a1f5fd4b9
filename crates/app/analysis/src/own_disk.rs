//! Simulations of databases on a model of this machine's disk, next to the same jobs on the disk.
//!
//! Invariant: errors are simulated over measured, of the number by which storages are compared; of databases,
//! only those of trials without a grave warning.

use std::collections::BTreeMap;

use archive::Run;
use study::Source;

use crate::decision::counted_of;
use crate::doubts::spoils;
use crate::groups::{Group, groups};
use crate::metric::DecisionMetric;
use crate::simulated_class::class_name;

/// One job on the disk and on its model.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnDiskJob {
    /// The engine.
    pub engine: String,
    /// The parameters.
    pub point: String,
    /// Engine and class as in run headers; `None` for block jobs, and jobs that no class covers.
    pub class: Option<String>,
    /// What was compared.
    pub counted: DecisionMetric,
    /// Operations per second, or nanoseconds, on the disk.
    pub measured: f64,
    /// The same on its model.
    pub simulated: f64,
}

impl OwnDiskJob {
    /// Simulated over measured, less 1.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.simulated / self.measured - 1.0
    }
}

/// The jobs that ran on the measured stack of a run and on another one.
#[must_use]
pub fn own_disk_jobs(run: &Run) -> Vec<OwnDiskJob> {
    let all = groups(run);
    let is_measured = |one: &&Group<'_>| one.first.source == Source::Measured;
    let alike = |one: &Group<'_>, other: &Group<'_>| {
        let key = |group: &Group<'_>| {
            let first = group.first;
            (first.experiment.clone(), first.engine.clone(), first.point.clone())
        };
        key(one) == key(other)
    };
    let pair = |other: &Group<'_>| {
        let here = all.iter().filter(is_measured).find(|one| alike(one, other))?;
        let ((measured, counted), (simulated, _)) = (value(here)?, value(other)?);
        Some(OwnDiskJob {
            engine: other.first.engine.clone(),
            point: other.first.point_text(),
            class: class_name(other, counted).filter(|_| other.first.engine != "block"),
            counted,
            measured,
            simulated,
        })
    };
    all.iter().filter(|one| !is_measured(one)).filter_map(pair).collect()
}

fn value(group: &Group<'_>) -> Option<(f64, DecisionMetric)> {
    let (value, counted) = match group.first.engine.as_str() {
        "block" => {
            let counted = DecisionMetric::ReadTime;
            (group.percentile(counted.ops(), 50.0).ok()?, counted)
        }
        _ => counted_of(group)?,
    };
    let spoiled = group.trials.iter().any(|trial| spoils(trial).is_some());
    (value.value > 0.0 && group.is_sound() && !spoiled).then_some((value.value, counted))
}

/// Lowest and highest simulated over measured value by class, for run headers.
#[must_use]
pub fn own_disk_ratios(jobs: &[OwnDiskJob]) -> BTreeMap<String, (f64, f64)> {
    let mut ratios: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for (class, job) in jobs.iter().filter_map(|job| Some((job.class.clone()?, job))) {
        let ratio = job.simulated / job.measured;
        let ends = ratios.entry(class).or_insert((ratio, ratio));
        *ends = (ends.0.min(ratio), ends.1.max(ratio));
    }
    ratios
}

/// Simulated over measured values of such jobs on a disk of the run's host; `None` if never validated.
#[must_use]
pub fn own_disk_ratio(group: &Group<'_>, counted: DecisionMetric) -> Option<(f64, f64)> {
    let known = group.run.header.own_disk.as_ref()?;
    let (low, high) = *known.ratios.get(&class_name(group, counted)?)?;
    // A run folder may come from any user.
    (low > 0.0 && high.is_finite()).then_some((low, high))
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Nanos;

    /// A pair of different jobs, or an error over the wrong side, would be kept as this machine's error.
    #[test]
    fn each_job_is_compared_with_itself_and_the_ends_of_a_class_are_kept() {
        let study = "schema = 2\nname = \"s\"\n[[stack]]\nname = \"disk\"\ndevice = \"file\"\n[[stack]]\n\
            name = \"model\"\ndevice = \"model:aws-gp3\"\n[[experiment]]\nname = \"e\"\n[experiment.job]\n\
            engine = \"lmdb\"\nworkload = \"read_random\"\nrecords = 1000\nvalue_size = \"100B\"\n\
            clients = [1, 2]\n";
        let mut run = crate::test_run::run_of(study, Nanos(1000));
        let result = |time| crate::test_run::run_of(study, Nanos(time)).trials[0].result.clone();
        for trial in run.trials.iter_mut().filter(|trial| trial.stack == "model") {
            let twice = trial.point["clients"] == "1";
            trial.result = result(if twice { 2000 } else { 500 });
            trial.source = Source::Emulated;
            // In virtual time.
            let cpu = stats::TimedBy::Simulation.name(stats::TIME_KINDS[0], false);
            trial.result.totals.insert(cpu, 1.0);
            trial.result.served = Some(stats::Served::default());
        }
        let jobs = own_disk_jobs(&run);
        let errors: Vec<f64> = jobs.iter().map(OwnDiskJob::error).collect();
        assert_eq!(jobs.len(), 2);
        assert!((errors[0] + 0.5).abs() < 0.01 && (errors[1] - 1.0).abs() < 0.01, "{errors:?}");
        let ratios = own_disk_ratios(&jobs);
        let (low, high) = ratios["lmdb lookups"];
        assert!((low - 0.5).abs() < 0.01 && (high - 2.0).abs() < 0.01, "{ratios:?}");
    }
}
