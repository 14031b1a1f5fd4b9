//! A comparison in words: first sentence, one line per figure, advice.
//!
//! Invariant: the difference precedes the verdict's reason, and no verdict is shown without its interval.

use analysis::compared::{Comparison, Question, Refused, Row, Verdict, runs};
use archive::Run;
use serde::Serialize;
use stats::compare::{Difference, REPETITIONS_MIN};
use units::{Nanos, human_count};

/// One figure of a comparison.
#[derive(Debug, Serialize)]
pub struct CompareRow {
    /// `worse`, `better`, `equivalent`, `inconclusive`.
    pub verdict: &'static str,
    /// `-4.9 %`.
    pub difference: String,
    /// `-5.9 to -3.9 %`; a dash without an interval.
    pub interval: String,
    /// Experiment, stack and parameters.
    pub place: String,
    /// Label of the row: operation class and metric.
    pub figure: String,
    /// Both values, with their sources if they differ.
    pub values: String,
    /// Number of pairs or runs and the detectable difference, or why there is no verdict.
    pub basis: String,
}

/// A comparison.
#[derive(Debug, Serialize)]
pub struct CompareView {
    /// The headline.
    pub sentence: String,
    /// Names of both sides, and how they ran.
    pub about: String,
    /// The worst first.
    pub rows: Vec<CompareRow>,
    /// Accepted mismatches, warnings, and figures of one side only.
    pub notes: Vec<String>,
    /// How to get conclusive results, such as more repetitions; empty if nothing is inconclusive.
    pub advice: String,
}

/// Maximum rows of a page.
const ROWS_MAX: usize = 200;

/// The comparison on a page of two runs.
#[derive(Debug, Serialize)]
pub(crate) struct Compared {
    /// The comparison; `None` if it was refused.
    view: Option<CompareView>,
    /// Number of rows that are not shown.
    left: usize,
    /// Why it was refused.
    refused: String,
}

impl Compared {
    /// Its headline.
    pub(crate) fn sentence(&self) -> Option<&str> {
        self.view.as_ref().map(|view| view.sentence.as_str())
    }
}

/// Compares two runs of one study. A single run has a decision table instead; three runs have no obvious
/// pairs; runs of different studies are only shown together.
pub(crate) fn compared(all: &[Run]) -> Option<Compared> {
    let [first, second] = all else { return None };
    if first.study.name != second.study.name {
        return None;
    }
    let made = |view: Option<CompareView>, left: usize, refused: String| {
        Some(Compared { view, left, refused })
    };
    match runs(first, second, &Question::default()) {
        Ok(comparison) => {
            let mut view = compare_view(&comparison);
            let left = view.rows.len().saturating_sub(ROWS_MAX);
            view.rows.truncate(ROWS_MAX);
            made(Some(view), left, String::new())
        }
        Err(refused) => made(None, 0, refused_text(&refused)),
    }
}

/// Number of mismatches named in a refusal.
const NAMED_MAX: usize = 4;

fn refused_text(refused: &Refused) -> String {
    match refused {
        Refused::Differ(all) => {
            let line = |one: &analysis::sameness::Mismatch| {
                format!("{}: {} and {}", one.what, one.first, one.second)
            };
            let named: Vec<String> = all.iter().take(NAMED_MAX).map(line).collect();
            let more = match all.len().saturating_sub(NAMED_MAX) {
                0 => String::new(),
                more => format!("; and {more} more"),
            };
            format!("The runs differ in workload or target: {}{more}.", named.join("; "))
        }
        Refused::NothingShared => "The runs have no metric in common.".to_owned(),
        Refused::Same => "Both are the same run.".to_owned(),
        Refused::NoStack(name, _) | Refused::NoWord(name) => format!("There is no {name}."),
    }
}

/// Formats a comparison.
#[must_use]
pub fn compare_view(comparison: &Comparison) -> CompareView {
    let mut rows: Vec<&Row> = comparison.rows.iter().collect();
    rows.sort_by_key(|row| match row.verdict {
        Verdict::Worse => 0,
        Verdict::Better => 1,
        Verdict::Inconclusive => 2,
        Verdict::Equivalent => 3,
    });
    let notes = comparison.notes.iter().chain(&comparison.alone).cloned().collect();
    CompareView {
        sentence: sentence(comparison),
        about: about(comparison),
        rows: rows.into_iter().map(|row| row_view(row, comparison.turns)).collect(),
        notes,
        advice: advice(comparison),
    }
}

fn sentence(comparison: &Comparison) -> String {
    let [first, second] = &comparison.names;
    let all = comparison.rows.len();
    let margin = percent(comparison.margin);
    let of = |verdict: Verdict| comparison.count(verdict);
    let figures = if all == 1 { "figure" } else { "figures" };
    let in_all =
        if all == 1 { "in the only figure".into() } else { format!("in all {all} figures") };
    let (worse, better) = (of(Verdict::Worse), of(Verdict::Better));
    let (equal, open) = (of(Verdict::Equivalent), of(Verdict::Inconclusive));
    let said = match (worse, better) {
        (0, 0) if equal == all => {
            return format!("{second} and {first} are equivalent within {margin} {in_all}");
        }
        (0, 0) if equal == 0 => {
            return format!("{second} and {first} are inconclusive: {open} of {all} {figures}");
        }
        (0, 0) => {
            format!("{second} is neither better nor worse than {first} in any conclusive figure")
        }
        (0, _) => format!("{second} is better than {first} in {better} of {all} {figures}"),
        (_, 0) => format!("{second} is worse than {first} in {worse} of {all} {figures}"),
        _ => format!(
            "{second} is worse than {first} in {worse} and better in {better} of {all} {figures}"
        ),
    };
    format!("{said}, equivalent within {margin} in {equal}, inconclusive in {open}")
}

fn about(comparison: &Comparison) -> String {
    let [first, second] = &comparison.names;
    let predicted =
        comparison.rows.iter().all(|row| row.sources.contains(&study::Source::Predicted));
    let how = match (predicted, comparison.turns) {
        (true, _) => "predicted: intervals cover other random draws, not model error",
        (false, true) => "interleaved in one run",
        (false, false) => {
            "separate runs: changes of the host between them affect the difference, not its interval"
        }
    };
    let corrected = match comparison.judged() {
        0 | 1 => String::new(),
        several => format!("; verdicts are corrected for {several} figures, intervals are not"),
    };
    format!("{second} next to {first}, 95 % intervals; {how}{corrected}")
}

fn advice(comparison: &Comparison) -> String {
    let open: Vec<&Row> =
        comparison.rows.iter().filter(|row| row.verdict == Verdict::Inconclusive).collect();
    if open.is_empty() {
        return String::new();
    }
    let margin = percent(comparison.margin);
    let few = |row: &&Row| row.difference.is_none() && row.repetitions < REPETITIONS_MIN;
    if open.iter().any(few) {
        return "crosspoint run STUDY --repeat 5, with the same --set options".into();
    }
    if open.iter().all(|row| !row.why.is_empty()) {
        return "see the hint next to each inconclusive metric; wait until the host is idle".into();
    }
    match comparison.needed() {
        Some(needed) if needed <= REPETITIONS_MAX => format!(
            "crosspoint run STUDY --repeat {needed}: detects a difference of {margin} in four of five \
             comparisons at this run-to-run variation"
        ),
        _ => format!(
            "run-to-run variation is too large to detect {margin}: use longer runs (--set \
             experiment.*.duration=30s), a quieter host or a larger --margin"
        ),
    }
}

fn row_view(row: &Row, turns: bool) -> CompareRow {
    let known = row.values[0].zip(row.values[1]).filter(|(first, _)| *first > 0.0);
    let ratio = row.difference.map(|one| one.ratio).or_else(|| known.map(|(a, b)| b / a));
    let value = |at: usize| match (row.values[at], row.metric) {
        (None, _) => "unknown".to_owned(),
        (Some(value), "rate") => format!("{}/s", human_count(value)),
        (Some(value), _) => Nanos((value * 1e3) as u64).to_string(),
    };
    let source = match row.sources {
        [first, second] if first == second => first.to_string(),
        [first, second] => format!("{first} and {second}"),
    };
    CompareRow {
        verdict: row.verdict.word(),
        difference: ratio.map_or_else(|| "-".into(), |ratio| signed(ratio, ratio)),
        interval: row.difference.map_or_else(|| "-".into(), |one| interval(&one)),
        place: format!("{} on {}, {}, {}", row.experiment, row.stack, row.engine, row.point),
        figure: format!("{} {}", row.ops, row.metric),
        values: format!("{} \u{2192} {}, {source}", value(0), value(1)),
        basis: match row.judged() {
            Some(one) => format!(
                "{} {} would show {}",
                one.n,
                if turns { "pairs" } else { "runs per side" },
                percent(one.finds())
            ),
            None => row.why.clone(),
        },
    }
}

/// Maximum repetitions of a study.
const REPETITIONS_MAX: u32 = 100;

fn interval(difference: &Difference) -> String {
    let (lo, hi) = difference.interval();
    format!("{} to {}", signed(lo, hi), signed(hi, hi))
}

/// `-4.9 %`, or a factor if it or the other end of the interval is a large percentage.
fn signed(ratio: f64, largest: f64) -> String {
    match ratio {
        ratio if largest >= 2.0 => format!("\u{d7} {}", human_count(ratio)),
        ratio => format!("{:+.1} %", (ratio - 1.0) * 100.0),
    }
}

fn percent(share: f64) -> String {
    match share * 100.0 {
        whole if (whole - whole.round()).abs() < 1e-9 => format!("{whole:.0} %"),
        other if other >= 10.0 => format!("{other:.0} %"),
        other => format!("{other:.1} %"),
    }
}
