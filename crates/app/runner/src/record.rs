//! What came of a trial, as it is recorded and as one line says it.
//!
//! Invariant: a trial that was stopped before a whole interval was measured has no record. What it is not:
//! figures.

use archive::{TrialOutcome, TrialRecord};
use stats::TrialResult;
use study::{Job, Trial};
use units::{Nanos, human_count};
use workload::OpClass;

use crate::state::Runner;

impl Runner<'_> {
    /// The record of a trial; `None` when it was stopped before a whole interval was measured.
    pub(crate) fn record(&self, trial: &Trial, mut outcome: TrialResult) -> Option<TrialRecord> {
        if outcome.recording.intervals.is_empty() {
            // Its process died: what it had recorded until then is in its journal.
            outcome.recording = self.writer.kept(&trial.slug());
        }
        let planned = match &trial.job {
            // Bounded by operations: whatever time they took is the whole of it.
            Job::Block(job) if job.operations.is_some() && !self.stopping() => Nanos(1),
            Job::Kv(job)
                if (job.workload.fills() || job.operations.is_some()) && !self.stopping() =>
            {
                Nanos(1)
            }
            Job::Sql(job) if job.transactions.is_some() && !self.stopping() => Nanos(1),
            _ => trial.timeline.measure,
        };
        let measured = outcome.recording.measured().map(|i| i.end.since(i.start));
        let measured = measured.fold(Nanos::ZERO, |sum, length| sum + length);
        let ended = match (&outcome.failure, measured < planned) {
            (Some(_), _) => TrialOutcome::Failed,
            (None, true) if measured == Nanos::ZERO => return None,
            (None, true) => TrialOutcome::Partial,
            (None, false) => TrialOutcome::Complete,
        };
        Some(self.known(trial, outcome, ended))
    }
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
            let estimate = stats::estimate::percentile(&total.latency, p).ok();
            estimate.map_or("-".to_owned(), |e| Nanos(e.value as u64).to_string())
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
