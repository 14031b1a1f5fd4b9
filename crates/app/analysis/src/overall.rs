//! One stack next to another over all jobs that both ran.
//!
//! Invariants: a ratio belongs to one job, operation and kind of source; unreliable results are counted and
//! excluded.

use std::collections::HashMap;

use archive::Run;
use stats::estimate::{Estimate, ratio};

use crate::decision::{DecisionMetric, Reliability, answer_of, counted_of};
use crate::groups::{Group, groups};
use crate::reliability::standing;

/// One stack relative to another over all shared jobs.
#[derive(Debug)]
pub struct Overall<'a> {
    /// Ratios with their metric and the index of their group, ascending; latencies are inverted to speeds.
    pub ratios: Vec<(f64, DecisionMetric, usize)>,
    /// All groups of the run.
    pub groups: Vec<Group<'a>>,
    /// Number of shared jobs without a reliable result.
    pub not_judged: usize,
}

/// Compares `other` with `here` in every job that ran on both.
#[must_use]
pub fn overall<'a>(run: &'a Run, here: &str, other: &str) -> Overall<'a> {
    let all = groups(run);
    let (mut ratios, mut not_judged) = (Vec::new(), 0);
    for (place, base) in pairs(&all, here, other) {
        let (group, base) = (&all[place], &all[base]);
        let (Some((value, counted)), Some((of_base, base_counted))) =
            (answer_of(group), answer_of(base))
        else {
            continue;
        };
        if counted != base_counted || of_base.value <= 0.0 {
            continue;
        }
        let doubted = |group| matches!(standing(group, counted), Reliability::Unreliable(_));
        if doubted(group) || doubted(base) {
            not_judged += 1;
            continue;
        }
        ratios.push((speed(counted, [&value, &of_base]), counted, place));
    }
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    Overall { ratios, groups: all, not_judged }
}

/// Indexes of the database jobs that ran on `other` and on `here`.
fn pairs(all: &[Group<'_>], here: &str, other: &str) -> Vec<(usize, usize)> {
    let job = |group: &Group<'_>| {
        let first = group.first;
        (first.experiment.clone(), first.engine.clone(), first.point.clone())
    };
    let on = |stack: &str| -> Vec<usize> {
        let runs = |group: &Group<'_>| group.first.engine != "block" && group.first.stack == stack;
        (0..all.len()).filter(|place| runs(&all[*place]) && all[*place].is_sound()).collect()
    };
    let base: HashMap<_, usize> =
        on(here).into_iter().map(|place| (job(&all[place]), place)).collect();
    on(other).into_iter().filter_map(|place| Some((place, *base.get(&job(&all[place]))?))).collect()
}

/// How much faster the first value is; times are inverted.
fn speed(counted: DecisionMetric, [value, base]: [&Estimate; 2]) -> f64 {
    match counted.is_rate() {
        true => ratio(value, base).value,
        false => ratio(base, value).value,
    }
}

/// A job on a stack and on a variant of it.
#[derive(Debug)]
pub struct Gain<'a> {
    /// On the variant.
    pub group: Group<'a>,
    /// The compared metric: the rate, or p99 of a schedule that both kept.
    pub counted: DecisionMetric,
    /// How much faster the variant is.
    pub ratio: f64,
}

/// The gain of every database job of `stack` from its variant, unreliable results included: both share their
/// host and its disturbances.
#[must_use]
pub fn gains<'a>(run: &'a Run, stack: &str, variant: &str) -> Vec<Gain<'a>> {
    let all = groups(run);
    let mut found: Vec<(usize, DecisionMetric, f64)> = Vec::new();
    for (place, base) in pairs(&all, stack, variant) {
        let (group, base) = (&all[place], &all[base]);
        let both = match answer_of(group).zip(answer_of(base)) {
            Some((one, other)) if one.1 == other.1 => Some((one, other)),
            // Only one of them kept its schedule, or has enough samples for a p99.
            _ => counted_of(group).zip(counted_of(base)),
        };
        let Some(((value, counted), (of_base, base_counted))) = both else { continue };
        if counted == base_counted && of_base.value > 0.0 {
            found.push((place, counted, speed(counted, [&value, &of_base])));
        }
    }
    let mut all: Vec<Option<Group<'a>>> = all.into_iter().map(Some).collect();
    let gain = |(place, counted, ratio): (usize, DecisionMetric, f64)| {
        all[place].take().map(|group| Gain { group, counted, ratio })
    };
    found.into_iter().filter_map(gain).collect()
}
