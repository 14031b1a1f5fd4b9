//! Runs of any study for the tests of this crate; every operation takes the same time.

use std::path::PathBuf;

use archive::{FORMAT, Run, RunHeader, StackRecord, TrialOutcome, TrialRecord};
use observe::Provenance;
use stats::{Recorder, Sample, Timeline, TrialResult};
use units::Nanos;
use workload::{OpClass, Outcome};

/// Operations of a trial: enough for a 99th percentile, too few for one of 99.9.
const OPERATIONS: u64 = 5000;

/// A run of `study` in which every trial does one operation after another, each taking `time`.
pub(crate) fn run_of(study: &str, time: Nanos) -> Run {
    let study = study::parse(study, study::Engines::ANY).unwrap();
    let stacks = study.stack.iter().map(|stack| StackRecord {
        name: stack.name.clone(),
        title: stack.name.clone(),
        ..StackRecord::default()
    });
    let plan = study::plan(&study);
    let header = RunHeader {
        format: FORMAT,
        study: study.name.clone(),
        started: "2026-01-01".into(),
        provenance: Provenance::read("0", "test"),
        stacks: stacks.collect(),
        trials_planned: plan.trials.len() as u32,
        skipped: Vec::new(),
        left_out: Vec::new(),
        noise: Default::default(),
        own_disk: Default::default(),
        load_generators: 0,
        sums: false,
    };
    let trials = plan.trials.iter().map(|trial| TrialRecord {
        number: trial.number,
        slug: trial.slug(),
        experiment: trial.experiment.clone(),
        stack: trial.stack.clone(),
        engine: trial.job.engine().to_owned(),
        source: trial.source,
        point: trial.job.parameters().point.into_iter().map(|(k, v)| (k.into_owned(), v)).collect(),
        repetition: trial.repetition,
        outcome: TrialOutcome::Complete,
        ..TrialRecord::unnamed(result(time))
    });
    let trials = trials.collect();
    Run { name: "run".into(), path: PathBuf::from("run"), header, study, trials }
}

fn result(time: Nanos) -> TrialResult {
    let whole = Nanos(time.get() * OPERATIONS);
    let interval = Nanos(whole.get() / 10);
    let timeline = Timeline { warm_up: Nanos::ZERO, measure: whole, interval };
    let mut recorder = Recorder::new(timeline, &[OpClass::Read]);
    for number in 1..=OPERATIONS {
        let (issued, completed) = (Nanos(time.get() * (number - 1)), Nanos(time.get() * number));
        while recorder.poll(issued).is_some() {}
        recorder.record(Sample {
            class: OpClass::Read,
            intended: issued,
            issued,
            completed,
            bytes: 4096,
            outcome: Outcome::Done,
            position: 0,
        });
    }
    TrialResult { recording: recorder.finish(whole), ..TrialResult::default() }
}
