//! The record of a trial, and its one-line summary.
//!
//! Invariant: a trial that was stopped before a complete interval has no record.

use archive::{TrialOutcome, TrialRecord};
use stats::{Recording, TrialResult};
use study::{Job, Trial};
use units::{Nanos, human_count};
use workload::{KvRole, OpClass};

use crate::context::RunContext;

/// The record of a trial; `None` if it was stopped before a complete interval was measured.
pub(crate) fn record(
    run: RunContext<'_>,
    trial: &Trial,
    mut outcome: TrialResult,
) -> Option<TrialRecord> {
    if outcome.recording.intervals.is_empty() {
        // Its process died: its recording is in the journal.
        outcome.recording = run.archive.kept(&trial.slug());
    }
    let planned = match &trial.job {
        // Bounded by operations: its duration is the whole trial.
        Job::Block(job) if job.operations_limit().is_some() && !run.stopping() => Nanos(1),
        Job::Kv(job) if (job.workload.fills() || job.operations.is_some()) && !run.stopping() => {
            Nanos(1)
        }
        Job::Sql(job) if job.operations.is_some() && !run.stopping() => Nanos(1),
        _ => trial.timeline.measure,
    };
    let measured = outcome.recording.measured().map(|i| i.end.since(i.start));
    let measured = measured.fold(Nanos::ZERO, |sum, length| sum + length);
    if measured == Nanos::ZERO && outcome.failure.is_none() && !run.stopping() {
        outcome.failure = Some(OVER_EARLY.to_owned());
    }
    let ended = match (&outcome.failure, measured < planned) {
        (Some(_), _) => TrialOutcome::Failed,
        (None, true) if measured == Nanos::ZERO => return None,
        (None, true) => TrialOutcome::Partial,
        (None, false) => TrialOutcome::Complete,
    };
    if ended == TrialOutcome::Complete {
        outcome.notes.extend(silent(&trial.job, &outcome.recording));
    }
    Some(run.known(trial, outcome, ended))
}

/// Failure of a trial bounded by operations that measured nothing.
const OVER_EARLY: &str =
    "all operations completed during the warm-up; use a shorter warm_up or more operations";

/// Classes of a database job without a single completed operation: the result of a writer that never ran is
/// missing, not zero.
fn silent(job: &Job, recording: &Recording) -> Option<String> {
    let mut expected: Vec<OpClass> = match job {
        Job::Kv(job) => study::kv_roles(job).iter().flat_map(KvRole::classes).collect(),
        Job::Sql(_) => vec![OpClass::Transaction],
        Job::Block(_) | Job::Act(_) => return None,
    };
    expected.sort_unstable();
    expected.dedup();
    let none = |class: &&OpClass| recording.total(Some(**class)).counts.ops == 0;
    let words: Vec<&str> = expected.iter().filter(none).map(|class| class.word()).collect();
    (!words.is_empty())
        .then(|| format!("no {} completed in the measured time", words.join(" and no ")))
}

/// The result of a trial in one line.
pub(crate) fn headline(record: &TrialRecord) -> String {
    if record.outcome == TrialOutcome::Failed {
        return "failed".into();
    }
    let part = |class: Option<OpClass>, unit: &str| {
        let total = record.result.recording.total(class);
        let rate = total.counts.ops as f64 / record.result.recording.seconds().max(1e-9);
        let percentile = |p: f64| {
            let estimate = stats::estimate::percentile(&total.latency, total.missed, p).ok();
            estimate.map_or("-".to_owned(), |e| {
                format!("{}{}", if e.at_least { ">=" } else { "" }, Nanos(e.value as u64))
            })
        };
        let (p50, p99) = (percentile(50.0), percentile(99.0));
        format!("{} {unit}, p50 {p50}, p99 {p99}", human_count(rate))
    };
    if record.engine == "block" {
        return part(None, "IOPS");
    }
    let kinds = [
        (OpClass::Read, "lookups/s"),
        (OpClass::Write, "updates/s"),
        (OpClass::Transaction, "transactions/s"),
    ];
    let there = |class| record.result.recording.total(Some(class)).counts.ops > 0;
    let parts = kinds.into_iter().filter(|(class, _)| there(*class));
    parts.map(|(class, unit)| part(Some(class), unit)).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use stats::{Interval, Phase};

    /// A writer that starved next to 256 readers must be reported, not left out.
    #[test]
    fn what_never_ended_is_said() {
        let text = "schema = 1\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n\
            [[experiment]]\nname = \"e\"\n[experiment.kv]\nengine = \"sqlite\"\nrecords = 10\n\
            value_size = \"100B\"\nreaders = 2\n";
        let plan = study::plan(&study::parse(text, engines::list()).expect("a study"));
        let mut interval = Interval::empty(Phase::Measure, Nanos::ZERO, Nanos(1));
        interval.tallies.of(OpClass::Read).counts.ops = 7;
        let mut recording = Recording { intervals: vec![interval], ..Recording::default() };
        let said = silent(&plan.trials[0].job, &recording);
        assert_eq!(said.as_deref(), Some("no write completed in the measured time"));
        recording.intervals[0].tallies.of(OpClass::Write).counts.ops = 1;
        assert_eq!(silent(&plan.trials[0].job, &recording), None);
    }
}
