//! A comparison in words: the first sentence, a line a figure, what to do where nothing can be told.
//!
//! Invariant: the difference stands before the verdict's reason, and no verdict without its interval. What
//! it is not: the verdicts.

use analysis::compared::{Comparison, Question, Refused, Row, Verdict, runs};
use analysis::unit_text;
use archive::Run;
use serde::Serialize;
use stats::compare::Difference;
use units::human_count;

/// One figure of a comparison.
#[derive(Debug, Serialize)]
pub struct CompareRow {
    /// `worse`, `better`, `equal`, `open`.
    pub verdict: &'static str,
    /// `-4.9 %`.
    pub difference: String,
    /// `-5.9 to -3.9 %`; empty where there is none.
    pub interval: String,
    /// Experiment, stack and point.
    pub place: String,
    /// Operations and metric.
    pub figure: String,
    /// Both values, with their sources where those differ.
    pub values: String,
    /// Pairs or runs, and what so many would find; or why nothing is judged.
    pub basis: String,
}

/// A comparison.
#[derive(Debug, Serialize)]
pub struct CompareView {
    /// The answer.
    pub sentence: String,
    /// Which is which, and how they ran.
    pub about: String,
    /// The worst first.
    pub rows: Vec<CompareRow>,
    /// What was accepted, what spoils figures, what one alone has.
    pub notes: Vec<String>,
    /// More repetitions that would tell; empty where none are needed.
    pub advice: String,
}

/// Rows that a page has.
const ROWS_MAX: usize = 200;

/// The comparison of a page of two runs.
#[derive(Debug, Serialize)]
pub(crate) struct Compared {
    /// What was found; none where it was refused.
    view: Option<CompareView>,
    /// Rows without a place.
    left: usize,
    /// Why it was refused.
    refused: String,
}

/// Two runs on one page are compared; one has its decisions, and of three nobody knows which with which.
pub(crate) fn compared(all: &[Run]) -> Option<Compared> {
    let [first, second] = all else { return None };
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

/// Differences that are named of those for which a comparison is refused.
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
            format!("The runs did not do the same on the same: {}{more}.", named.join("; "))
        }
        Refused::NothingShared => "The runs have no figure in common.".to_owned(),
        Refused::NoStack(name, _) => format!("No stack {name}."),
    }
}

/// The words of a comparison.
#[must_use]
pub fn compare_view(comparison: &Comparison) -> CompareView {
    let mut rows: Vec<&Row> = comparison.rows.iter().collect();
    rows.sort_by_key(|row| match row.verdict {
        Verdict::Worse => 0,
        Verdict::Better => 1,
        Verdict::Open => 2,
        Verdict::Equal => 3,
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
    let (worse, better) = (of(Verdict::Worse), of(Verdict::Better));
    let (equal, open) = (of(Verdict::Equal), of(Verdict::Open));
    let said = match (worse, better) {
        (0, 0) if equal == all => {
            return format!("{second} equals {first} within {margin} in all {all} {figures}");
        }
        (0, 0) if equal == 0 => {
            return format!(
                "nothing can be told of {second} beside {first}: {open} of {all} {figures} open"
            );
        }
        (0, 0) => {
            format!("{second} is neither better nor worse than {first} in any that can be told")
        }
        (0, _) => format!("{second} is better than {first} in {better} of {all} {figures}"),
        (_, 0) => format!("{second} is worse than {first} in {worse} of {all} {figures}"),
        _ => format!(
            "{second} is worse than {first} in {worse} and better in {better} of {all} {figures}"
        ),
    };
    format!("{said}, equal within {margin} in {equal}, open in {open}")
}

fn about(comparison: &Comparison) -> String {
    let [first, second] = &comparison.names;
    let how = if comparison.turns {
        "they took turns in one run"
    } else {
        "they ran apart: how this host differs from day to day is in the difference and not in its interval"
    };
    format!(
        "{second} over {first}; {how}; 95 % intervals of each figure alone, verdicts corrected for {} figures",
        comparison.rows.len()
    )
}

fn advice(comparison: &Comparison) -> String {
    let open: Vec<&Row> =
        comparison.rows.iter().filter(|row| row.verdict == Verdict::Open).collect();
    if open.is_empty() {
        return String::new();
    }
    let margin = percent(comparison.margin);
    if open.iter().all(|row| row.difference.is_none()) {
        return "repeat: crosspoint run STUDY --repeat 5".into();
    }
    match comparison.needed() {
        Some(needed) => format!(
            "where open, {needed} repetitions find a difference of {margin} in four of five comparisons, each \
             figure by itself: crosspoint run STUDY --repeat {needed}"
        ),
        None => format!(
            "where open, no reasonable number of repetitions would find {margin}: runs spread too far"
        ),
    }
}

fn row_view(row: &Row, turns: bool) -> CompareRow {
    let verdict = match row.verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::Equal => "equal",
        Verdict::Open => "open",
    };
    let ratio = row.difference.map_or(row.values[1] / row.values[0], |one| one.ratio);
    let value = |at: usize| {
        let source = match row.sources[0] == row.sources[1] {
            true => String::new(),
            false => format!(" ({})", row.sources[at]),
        };
        let unit = if row.metric == "rate" { "/s" } else { unit_text(row.unit) };
        let space = if unit == "/s" { "" } else { " " };
        format!("{}{space}{unit}{source}", human_count(row.values[at]))
    };
    CompareRow {
        verdict,
        difference: signed(ratio),
        interval: row.difference.map(|one| interval(&one)).unwrap_or_default(),
        place: format!("{} on {}, {}, {}", row.experiment, row.stack, row.engine, row.point),
        figure: format!("{} {}", row.ops, row.metric),
        values: format!("{} \u{2192} {}", value(0), value(1)),
        basis: match &row.difference {
            Some(one) => format!(
                "{} {}, finds {}",
                one.n,
                if turns { "pairs" } else { "runs a side" },
                percent(one.finds())
            ),
            None => row.why.clone(),
        },
    }
}

fn interval(difference: &Difference) -> String {
    let (lo, hi) = difference.interval();
    format!("{} to {}", signed(lo), signed(hi))
}

/// `-4.9 %`, or a factor where a share would be long.
fn signed(ratio: f64) -> String {
    match ratio {
        ratio if ratio >= 3.0 => format!("x {}", human_count(ratio)),
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
