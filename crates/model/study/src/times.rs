//! Limits the times of a study, so that sums of them do not overflow.
//!
//! Invariant: every time of an experiment is checked, by its key.

use units::Nanos;

use crate::error::Place;
use crate::{Experiment, Job, StudyError};

/// Longest time of a study.
const LONGEST: Nanos = Nanos::from_secs(366 * 86_400);

/// Every time of an experiment, by its key.
fn times_of(one: &Experiment) -> Vec<(&'static str, Nanos)> {
    let mut times = vec![
        ("warm_up", one.warm_up),
        ("duration", one.duration),
        ("interval", one.interval),
        ("deadline", one.deadline.unwrap_or(Nanos::ZERO)),
    ];
    match one.job.first() {
        Job::Block(block) => {
            times.push(("think_time", block.think_time));
            times.extend(block.rate_step.iter().map(|step| ("at", step.at)));
            times.extend(block.precondition.iter().map(|wanted| ("round", wanted.round)));
            times.extend(block.beside.iter().map(|beside| ("think_time", beside.think_time)));
        }
        Job::Act(act) => {
            times.push(("slice", act.slice));
            times.extend(act.test_duration.map(|time| ("test_duration", time)));
        }
        Job::Kv(_) => {}
        Job::Sql(sql) => times.extend(sql.change.iter().map(|change| ("at", change.at))),
    }
    times
}

/// Rejects implausible times.
pub(crate) fn check_times(one: &Experiment, text: Place<'_>) -> Result<(), StudyError> {
    match times_of(one).into_iter().find(|(_, time)| *time > LONGEST) {
        Some((key, time)) => {
            let name = &one.name;
            let message = format!("experiment `{name}`: {key} is {time}; allowed: at most a year");
            text.refuse(key, message)
        }
        None => Ok(()),
    }
}
