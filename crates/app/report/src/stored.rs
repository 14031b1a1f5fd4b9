//! A stored run and trials derived from it, for tests.

use std::path::Path;

use archive::{Run, TrialRecord};
use stats::{Interval, Tallies};
use workload::OpClass;

/// Drives of the run.
pub(crate) const DRIVES: [&str; 2] = ["intel-p4800x", "samsung-980-pro"];

pub(crate) fn run() -> Run {
    let place = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fixtures/runs/v1");
    Run::read(Path::new(place), engines::list()).unwrap()
}

/// The trial at queue depth 1 with this share of reads, on each drive.
pub(crate) fn at_depth_1(run: &Run, read_share: &str) -> [TrialRecord; 2] {
    DRIVES.map(|stack| {
        let of = |one: &&TrialRecord| {
            let share = one.point.get("read_share").is_some_and(|share| share == read_share);
            one.experiment == "latency" && share && one.stack == stack
        };
        run.trials.iter().find(of).unwrap().clone()
    })
}

/// The same trial with its operations of one class as another.
pub(crate) fn as_class(trial: &TrialRecord, from: OpClass, to: OpClass) -> TrialRecord {
    let mut trial = trial.clone();
    for interval in &mut trial.result.recording.intervals {
        let tally = interval.tallies[from].clone();
        interval.tallies = Tallies::default();
        *interval.tallies.of(to) = tally;
    }
    trial
}

/// The same trial as one of another engine, stack and experiment.
pub(crate) fn named(trial: &TrialRecord, names: [&str; 3]) -> TrialRecord {
    let [engine, stack, experiment] = names.map(str::to_owned);
    TrialRecord { engine, stack, experiment, ..trial.clone() }
}

/// Changes each interval.
pub(crate) fn changed(trial: &TrialRecord, change: impl Fn(&mut Interval)) -> TrialRecord {
    let mut trial = trial.clone();
    trial.result.recording.intervals.iter_mut().for_each(change);
    trial
}
