//! The decision table: results of each stack next to the reference.
//!
//! One body per decision, so that sorting never mixes metrics. Invariant: a row shows its source and
//! reliability.

use std::collections::BTreeSet;

use std::fmt::Write;

use analysis::decision::{Choice, Decision, DecisionMetric, LimitedBy, Reliability};
use analysis::gain::{Change, Gain};
use analysis::objective::{ObjectiveResult, Outcome, asked_of};
use analysis::time_parts::Part;
use archive::{Run, TrialOutcome, TrialRecord};
use serde::Serialize;
use stats::estimate::Estimate;
use units::{Bytes, Nanos, human_count};
use validate::PredictionError;

use crate::chart::short;
use crate::hue::Hues;
use crate::svg::{Scale, escape};
use crate::words::{engine_title, experiment_title, point_words, runs_words};

/// Number of decisions shown as tables; `figures` prints all.
const BODIES_MAX: usize = 6;

/// Number of storages in one table; `figures` prints all.
const ROWS_MAX: usize = 24;

/// One body of the table.
#[derive(Serialize)]
pub(crate) struct DecisionView {
    /// Engine and metric.
    title: String,
    /// Parameters that all rows share.
    note: String,
    /// Axis labels of the ratios; empty if there is only one stack.
    axis: String,
    rows: Vec<ChoiceView>,
}

#[derive(Serialize)]
struct ChoiceView {
    storage: String,
    hue: usize,
    source: &'static str,
    value: String,
    interval: String,
    ratio: String,
    ratio_interval: String,
    /// The ratio as a chart.
    bar: String,
    p99: String,
    limited: String,
    worth: String,
    /// The ratio is unreliable.
    doubted: bool,
    /// The row is unreliable: emulation was inaccurate.
    unlike: bool,
    /// The study's objectives.
    objectives: Vec<ObjectiveView>,
    /// Numbers to sort by: value, ratio, p99 in nanoseconds.
    keys: [f64; 3],
}

#[derive(Serialize)]
struct ObjectiveView {
    /// CSS class.
    state: &'static str,
    mark: &'static str,
    text: String,
}

impl ObjectiveView {
    fn new(asked: &ObjectiveResult) -> Self {
        let (state, mark) = match asked.outcome {
            Outcome::Met => ("met", "\u{2713} pass"),
            Outcome::Missed => ("missed", "\u{2715} fail"),
            Outcome::Open => ("open", "inconclusive"),
        };
        Self { state, mark, text: format!("{}: {}", asked.objective, asked.text) }
    }
}

/// The bodies of `decisions`.
pub(crate) fn decision_views(
    run: &Run,
    decisions: &[Decision<'_>],
    hues: &Hues,
) -> Vec<DecisionView> {
    let several = |one: &Decision<'_>| {
        let same = |other: &&Decision<'_>| other.first().engine == one.first().engine;
        decisions.iter().filter(same).count() > 1
    };
    decisions.iter().take(BODIES_MAX).map(|one| view(run, one, hues, several(one))).collect()
}

/// Stacks with the same job whose trials failed.
fn failed_beside(run: &Run, decision: &Decision<'_>) -> Vec<String> {
    let asked = decision.here().group.first;
    let shown = |stack: &str| decision.choices.iter().any(|one| one.group.first.stack == stack);
    let same = |trial: &&TrialRecord| {
        (&trial.experiment, &trial.engine, &trial.point)
            == (&asked.experiment, &asked.engine, &asked.point)
    };
    let failed = run.trials.iter().filter(|trial| trial.outcome == TrialOutcome::Failed);
    let stacks = failed.filter(same).map(|trial| trial.stack.as_str());
    // Two stacks can have the same short name.
    let stacks: BTreeSet<&str> = stacks.filter(|stack| !shown(stack)).collect();
    let title = |stack: &&str| {
        let title = run.header.stacks.iter().find(|one| one.name == **stack);
        title.map_or(*stack, |one| short(&one.title)).to_owned()
    };
    stacks.iter().map(title).collect()
}

/// With `several`, the engine has other tables, so the experiment is named.
fn view(run: &Run, decision: &Decision<'_>, hues: &Hues, several: bool) -> DecisionView {
    let here = decision.here();
    let counted = decision.counted.words();
    let title = match decision.counted {
        DecisionMetric::ReadTime => {
            format!("{} at queue depth 1: {counted}", point_words(&here.group))
        }
        _ if several && !counted.starts_with(&experiment_title(&here.group).to_lowercase()) => {
            format!("{}, {counted}: {}", engine_title(&here.group), experiment_title(&here.group))
        }
        _ => format!("{}, {counted}", engine_title(&here.group)),
    };
    let note = match decision.counted {
        DecisionMetric::ReadTime => {
            format!("{}; a ratio above 1 means faster", runs_words(&here.group))
        }
        _ => {
            let words =
                [Some(point_words(&here.group)), data_words(here), Some(runs_words(&here.group))];
            words.into_iter().flatten().collect::<Vec<_>>().join("; ")
        }
    };
    let note = match failed_beside(run, decision).as_slice() {
        [] => note,
        names => format!("{note}; failed, so without a number: {}", names.join(", ")),
    };
    let note = match decision.choices.len().saturating_sub(ROWS_MAX) {
        0 => note,
        more => format!("{note}; {more} more stacks are in the table of figures"),
    };
    let ends = |one: &Choice<'_>| {
        let ratio = one.ratio.unwrap_or_else(|| Estimate::of(1.0, 1));
        let (low, high) =
            one.ratio_range.map_or((ratio.value, ratio.value), |range| (range.low, range.high));
        [ratio.value, low, high]
    };
    let scale = Scale::over(decision.choices.iter().flat_map(ends).chain([0.8, 1.25]), true);
    let scale = scale.unwrap_or_else(|| Scale::new(0.5, 2.0, true));
    let alone = decision.choices.len() == 1;
    let rows = decision.choices.iter().take(ROWS_MAX).map(|one| ChoiceView {
        bar: if alone { String::new() } else { bar(one, &scale) },
        // A ratio is as reliable as its less reliable side.
        doubted: [one, here].iter().any(|one| matches!(one.standing, Reliability::Unreliable(_))),
        ..row(one, decision.counted, hues, alone)
    });
    let rows = rows.collect();
    DecisionView { title, note, axis: if alone { String::new() } else { axis(&scale) }, rows }
}

/// Size of the database: whether it fits in memory matters more than the drive.
fn data_words(here: &Choice<'_>) -> Option<String> {
    let load = here.group.first.result.load.as_ref()?;
    (load.db_bytes > 0).then(|| format!("database {} after load", Bytes(load.db_bytes)))
}

fn row(one: &Choice<'_>, counted: DecisionMetric, hues: &Hues, alone: bool) -> ChoiceView {
    let text = |value: f64| match counted.is_rate() {
        true => human_count(value),
        false => Nanos(value as u64).to_string(),
    };
    let interval = one.range.map(|range| format!("{} to {}", text(range.low), text(range.high)));
    let least = |estimate: &Estimate| if estimate.at_least { "at least " } else { "" };
    let ratio = one.ratio;
    ChoiceView {
        storage: short(one.group.stack_title()).to_owned(),
        hue: hues.get(&one.group.first.stack),
        source: one.group.first.source.word(),
        value: format!("{}{}", least(&one.value), text(one.value.value)),
        interval: interval.unwrap_or_default(),
        ratio: match ratio {
            None if alone => String::new(),
            None => "1 \u{d7}".into(),
            Some(ratio) => times(ratio.value),
        },
        ratio_interval: match ratio {
            None if alone => "single stack".into(),
            None => "reference".into(),
            Some(_) => match one.ratio_range {
                Some(range) => {
                    format!("{} to {}", times_number(range.low), times_number(range.high))
                }
                None => format!("n = {}", one.group.trials.len()),
            },
        },
        bar: String::new(),
        p99: one.p99.map_or_else(
            || "too few samples".into(),
            |p99| format!("{}{}", least(&p99), Nanos(p99.value as u64)),
        ),
        limited: bottleneck_words(one),
        worth: worth_words(one),
        doubted: false,
        unlike: matches!(one.standing, Reliability::Unreliable(_)),
        objectives: asked_of(&one.group).iter().map(ObjectiveView::new).collect(),
        keys: [
            one.value.value,
            ratio.map_or(1.0, |ratio| ratio.value),
            one.p99.map_or(f64::MAX, |p99| p99.value),
        ],
    }
}

/// `3.35 x`, with the sign for times.
pub(crate) fn times(ratio: f64) -> String {
    format!("{} \u{d7}", times_number(ratio))
}

/// Formats with three significant digits.
pub(crate) fn times_number(ratio: f64) -> String {
    match ratio {
        _ if ratio >= 100.0 => format!("{ratio:.0}"),
        _ if ratio >= 10.0 => format!("{ratio:.1}"),
        _ => format!("{ratio:.2}"),
    }
}

/// Gains above this are not told apart.
const GAIN_TOLD: f64 = 50.0;

/// What limited a result; empty if nobody counted it.
pub(crate) fn limited_words(limited: LimitedBy) -> String {
    match limited {
        LimitedBy::Processors(busy) => format!("CPU ({:.0} % busy)", busy * 100.0),
        LimitedBy::OtherProcesses(share) => {
            format!("other processes ({:.0} % of the CPUs)", share * 100.0)
        }
        LimitedBy::Thread(busy) => format!("the submitting thread ({:.0} % busy)", busy * 100.0),
        LimitedBy::VolumeOperations(operations, waits) => {
            let operations = human_count(operations as f64);
            format!("the volume's {operations} IOPS ({:.0} % of the time)", waits * 100.0)
        }
        LimitedBy::VolumeBytes(bytes, waits) => {
            format!("the volume's {}/s ({:.0} % of the time)", Bytes(bytes), waits * 100.0)
        }
        LimitedBy::Part(part, share) => {
            format!("{} ({:.0} % of the time)", part_words(part), share * 100.0)
        }
        LimitedBy::OneAtATime(part, share) => {
            format!(
                "one client at a time: {} ({:.0} % of its time)",
                part_words(part),
                share * 100.0
            )
        }
        LimitedBy::Nothing(part, share) => {
            format!("largest part: {} ({:.0} % of the time)", part_words(part), share * 100.0)
        }
        LimitedBy::Unknown => "".into(),
    }
}

/// `drive, mostly flushes`.
fn part_words(part: Part) -> String {
    match part.within() {
        Some((whole, part)) => format!("{whole}, mostly {part}"),
        None => part.words().to_owned(),
    }
}

/// What limited a result, and what would help.
pub(crate) fn bottleneck_words(one: &Choice<'_>) -> String {
    let gains = one.gains.iter().map(gain_words).collect::<String>();
    limited_words(one.limited) + &gains
}

/// `; an infinitely fast drive: 1.2 to 3.5 x this rate`.
fn gain_words(gain: &Gain) -> String {
    let change = match gain.change {
        Change::FreeDrive => "an infinitely fast drive",
        Change::TwiceTheCores => "twice the cores",
    };
    format!("; {change}: {} this rate", gain_range(gain))
}

/// `1.2 to 3.5 x`.
pub(crate) fn gain_range(Gain { low, high, .. }: &Gain) -> String {
    let number = |value: f64| match value {
        10.0.. => format!("{value:.0}"),
        _ => format!("{value:.1}"),
    };
    match (number(*low), number(*high)) {
        _ if *low >= GAIN_TOLD => format!("over {GAIN_TOLD:.0} \u{d7}"),
        (low, high) if high == low => format!("{high} \u{d7}"),
        (low, high) => format!("{low} to {high} \u{d7}"),
    }
}

/// Reliability and warnings of a choice.
fn worth_words(one: &Choice<'_>) -> String {
    let spoiled = one.doubts.iter().map(|kind| kind.title().to_lowercase());
    std::iter::once(standing_words(&one.standing)).chain(spoiled).collect::<Vec<_>>().join("; ")
}

/// Reliability in words.
pub(crate) fn standing_words(standing: &Reliability) -> String {
    match standing {
        Reliability::Measured => "measured".into(),
        Reliability::EmulationAccurate => "emulation accurate".into(),
        Reliability::Simulated => "simulated; profile not validated".into(),
        Reliability::NoRequests => "the drive served no request".into(),
        Reliability::Unreliable(why) => format!("not reliable: {why}"),
        Reliability::Predicted(PredictionError::HeldOut { median, figures, .. }) => {
            let figures = match figures {
                1 => "1 held-out figure".to_owned(),
                figures => format!("{figures} held-out figures"),
            };
            format!("{:.0} % on {figures}", median * 100.0)
        }
        Reliability::Predicted(worth) => worth.brief(),
    }
}

const BAR_HEIGHT: f64 = 26.0;

/// The marks of the axis.
fn axis(scale: &Scale) -> String {
    let mut out = String::from(
        "<svg class=\"ratio-axis\" width=\"100%\" height=\"14\" aria-hidden=\"true\">",
    );
    for tick in scale.ticks() {
        let _ = write!(
            out,
            "<text x=\"{:.1}%\" y=\"11\" text-anchor=\"middle\">{}</text>",
            scale.at(tick),
            crate::svg::short(tick)
        );
    }
    out.push_str("</svg>");
    out
}

/// A ratio on the axis: a line from 1, the interval, and a mark whose shape shows the source.
fn bar(one: &Choice<'_>, scale: &Scale) -> String {
    let mut out = String::new();
    let label = one.ratio.map_or_else(|| "reference".into(), |ratio| times(ratio.value));
    let _ = write!(
        out,
        "<svg class=\"ratio\" width=\"100%\" height=\"{BAR_HEIGHT}\" role=\"img\" aria-label=\"{}\">",
        escape(&label)
    );
    let (middle, base) = (BAR_HEIGHT / 2.0, scale.at(1.0));
    for tick in scale.ticks() {
        let x = scale.at(tick);
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{x:.1}%\" x2=\"{x:.1}%\" y1=\"0\" y2=\"100%\"/>"
        );
    }
    let _ = write!(
        out,
        "<line class=\"base\" x1=\"{base:.1}%\" x2=\"{base:.1}%\" y1=\"0\" y2=\"100%\"/>"
    );
    let source = one.group.first.source.word();
    let value = one.ratio.map_or(1.0, |ratio| ratio.value);
    let x = scale.at(value);
    let _ = write!(
        out,
        "<line class=\"way\" x1=\"{base:.1}%\" x2=\"{x:.1}%\" y1=\"{middle}\" y2=\"{middle}\"/>"
    );
    if let Some(range) = one.ratio_range {
        let (lo, hi) = (scale.at(range.low), scale.at(range.high));
        let _ = write!(
            out,
            "<rect class=\"interval\" x=\"{lo:.1}%\" width=\"{:.2}%\" y=\"{:.1}\" height=\"8\"/>",
            (hi - lo).max(0.4),
            middle - 4.0
        );
    }
    let _ = write!(out, "<circle class=\"mark {source}\" cx=\"{x:.1}%\" cy=\"{middle}\" r=\"5\"/>");
    if source == "emulated" {
        let _ = write!(out, "<circle class=\"centre\" cx=\"{x:.1}%\" cy=\"{middle}\" r=\"1.6\"/>");
    }
    out.push_str("</svg>");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use analysis::decision::single_reads;

    /// A drive whose trials failed must be listed, or it would look as if it had not been tested.
    #[test]
    fn what_failed_is_named_beside_what_did_not() {
        let place = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fixtures/runs/v1");
        let mut run = Run::read(std::path::Path::new(place), engines::list()).unwrap();
        let all = run.clone();
        let decision = single_reads(&all).expect("reads alone");
        assert!(failed_beside(&run, &decision).is_empty());
        let other = decision
            .choices
            .iter()
            .find(|one| one.group.first.stack != decision.here().group.first.stack);
        let group = &other.expect("another").group;
        let (stack, title) = (group.first.stack.clone(), short(group.stack_title()).to_owned());
        for trial in run.trials.iter_mut().filter(|trial| trial.stack == stack) {
            trial.outcome = TrialOutcome::Failed;
        }
        let left = run.clone();
        let decision = single_reads(&left).expect("reads alone");
        assert_eq!(failed_beside(&run, &decision), [title]);
    }
}
