//! Selects the parts of a large run that are on its page: the most important ones, with a count of the rest.
//!
//! Invariants: a page has at most about two million bytes, however many trials the run has; omissions are
//! counted, with the command that prints them. A run of ordinary size is complete.

use archive::{TrialOutcome, TrialRecord};
use serde::Serialize;
use study::Source;

use crate::chart::Charts;
use analysis::Figure;

/// Rows of the table of figures at most.
const ROWS_MAX: usize = 1800;
/// Rows of the table of trials at most.
const TRIALS_MAX: usize = 500;
/// Limit of all charts, bytes.
const DRAWN_MAX: usize = 620_000;

/// Rank of a figure by importance; 0 is the most important and is kept first.
pub(crate) fn rank(figure: &Figure) -> u8 {
    match figure.metric.as_ref() {
        _ if figure.source == Source::Published => 0,
        "iops_max" | "iops_knee" | "latency_growth_95" | "act_score" | "speedup" | "race_time"
        | "best_page_size" | "cliffs" | "load_time" => 0,
        "iops" | "tx_rate" | "ops_rate" => 1,
        "latency_mean" | "latency_p99" => 2,
        "throughput" | "latency_p50" | "latency_p99_9" => 3,
        _ => 4,
    }
}

/// The first `most` of `all` by `rank`, in their original order.
pub(crate) fn chosen<T, R: Ord>(all: &[T], most: usize, rank: impl Fn(&T) -> R) -> Vec<&T> {
    let mut places: Vec<usize> = (0..all.len()).collect();
    if all.len() > most {
        places.sort_by_key(|place| rank(&all[*place]));
        places.truncate(most);
        places.sort_unstable();
    }
    places.into_iter().map(|place| &all[place]).collect()
}

/// The figures that get a row.
pub(crate) fn rows(figures: &[Figure]) -> Vec<&Figure> {
    chosen(figures, ROWS_MAX, rank)
}

/// The trials that get a row: problems first.
pub(crate) fn trials(trials: &[TrialRecord]) -> Vec<&TrialRecord> {
    chosen(trials, TRIALS_MAX, |trial| trial.outcome == TrialOutcome::Complete)
}

/// Removes charts beyond the page's limit; returns how many.
pub(crate) fn fit(drawn: &mut [Charts]) -> usize {
    let mut room = DRAWN_MAX;
    let mut left_out = 0;
    for charts in drawn {
        left_out += charts.left_out;
        left_out += keep(&mut charts.curves, &mut room);
        left_out += keep(&mut charts.sweeps, &mut room);
        left_out += keep(&mut charts.races, &mut room);
        left_out += keep(&mut charts.spectra, &mut room);
        left_out += keep(&mut charts.series, &mut room);
        left_out += keep(&mut charts.phases, &mut room);
        left_out += keep(&mut charts.inside, &mut room);
    }
    left_out
}

fn keep<T: Serialize>(charts: &mut Vec<T>, room: &mut usize) -> usize {
    let before = charts.len();
    charts.retain(|chart| {
        let bytes = serde_json::to_string(chart).map_or(usize::MAX, |text| text.len());
        let fits = bytes <= *room;
        *room -= if fits { bytes } else { 0 };
        fits
    });
    before - charts.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_most_is_kept_in_its_order() {
        let all = [3, 1, 2, 1, 9];
        assert_eq!(chosen(&all, 3, |one| *one), [&1, &2, &1]);
        assert_eq!(chosen(&all, 9, |one| *one).len(), 5);
        let (mut charts, mut room) = (vec!["long one", "b", "c"], 8);
        assert_eq!(keep(&mut charts, &mut room), 1);
        assert_eq!(charts, ["b", "c"]);
    }
}
