//! Rates that closed loops reached in a run, for open loops at a share of them.
//!
//! Invariant: built from the archive and from trials as they finish, so a resumed run has the same rates.

use archive::{TrialOutcome, TrialRecord};
use study::{Arrivals, Job, Plan, Trial};
use units::{Rate, human_count};

/// `(trial number, operations a second)` of finished trials.
#[derive(Debug, Default)]
pub(crate) struct Reached(Vec<(u32, f64)>);

impl Reached {
    /// Notes a finished trial.
    pub fn note(&mut self, record: &TrialRecord) {
        let (ops, seconds) =
            (record.result.recording.counts(None).ops as f64, record.result.recording.seconds());
        if record.outcome == TrialOutcome::Complete && seconds > 0.0 {
            self.0.push((record.number, ops / seconds));
        }
    }

    /// Sets the rate of a trial whose load is a share of the highest rate reached before, with a note.
    ///
    /// # Errors
    /// The study has such closed loops, and none of them reached a rate.
    pub fn offer(&self, plan: &Plan, trial: &Trial) -> Result<(Trial, Option<String>), String> {
        let mut known = trial.clone();
        let Job::Block(job) = &mut known.job else { return Ok((known, None)) };
        let Some(share) = job.rate_of_max else { return Ok((known, None)) };
        let alike = plan.trials.iter().filter(|other| {
            let same = matches!(&other.job, Job::Block(other)
                if other.arrivals == Arrivals::Closed && other.same_operations(job));
            // A resumed run may contain later trials, which the first part did not see.
            other.number < trial.number && other.stack == trial.stack && same
        });
        let rates = alike.filter_map(|other| {
            let found = self.0.iter().find(|(number, _)| *number == other.number)?;
            Some(found.1)
        });
        let most = rates.fold(0.0, f64::max);
        if most < 1.0 {
            return Err(format!(
                "no rate for {share}: no closed loop of the same operations on `{}` completed",
                trial.stack
            ));
        }
        let rate = Rate(((most * share.fraction()) as u64).max(1));
        job.rate = Some(rate);
        let note = format!(
            "offered {} operations/s: {share} of the {} that a closed loop reached",
            human_count(rate.get() as f64),
            human_count(most)
        );
        Ok((known, Some(note)))
    }
}
