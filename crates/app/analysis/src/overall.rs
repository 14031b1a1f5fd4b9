//! One stack next to another over all jobs that both ran.
//!
//! Invariants: a ratio belongs to one job, operation and kind of source; unreliable results are counted and
//! excluded.

use archive::Run;
use stats::estimate::ratio;

use crate::decision::{DecisionMetric, Reliability, answer_of, standing};
use crate::groups::{Group, groups};

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
    let of_engine = |group: &&Group<'_>| group.first.engine != "block" && group.is_sound();
    for (place, group) in all.iter().enumerate() {
        if !of_engine(&group) || group.first.stack != other {
            continue;
        }
        let same = |one: &&Group<'_>| {
            one.first.stack == here
                && (&one.first.experiment, &one.first.engine, &one.first.point)
                    == (&group.first.experiment, &group.first.engine, &group.first.point)
        };
        let Some(base) = all.iter().filter(of_engine).find(same) else { continue };
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
        let over = match counted.is_rate() {
            true => ratio(&value, &of_base),
            false => ratio(&of_base, &value),
        };
        ratios.push((over.value, counted, place));
    }
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    Overall { ratios, groups: all, not_judged }
}
