//! The decision table: results of each stack next to the reference.
//!
//! One body per decision, so that sorting never mixes metrics. Invariant: a row shows its source and
//! reliability.

use std::collections::BTreeSet;

use std::fmt::Write;

use analysis::Group;
use analysis::decision::{Choice, Decision, DecisionMetric, LimitedBy, Reliability, StudyLimit};
use analysis::doubts::WarningKind;
use analysis::gain::{Change, Gain};
use analysis::objective::{ObjectiveResult, Outcome, asked_of};
use analysis::time_parts::{MainPart, Part};
use archive::{Run, TrialOutcome, TrialRecord};
use serde::Serialize;
use stats::estimate::Estimate;
use study::Source;
use units::{Bytes, Nanos, human_count};
use validate::PredictionError;

use crate::chart::short;
use crate::hue::Hues;
use crate::svg::{Scale, escape};
use crate::words::{engine_title, experiment_title, point_words, runs_words};

/// Number of decisions shown as tables; `figures` prints all.
const BODIES_MAX: usize = 10;

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
    /// How far the value can be relied on, and why.
    confidence: &'static str,
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

/// Engine and metric; with `several`, the engine has other tables, so the experiment is named.
pub(crate) fn decision_title(decision: &Decision<'_>, several: bool) -> String {
    let here = decision.here();
    let counted = decision.counted.words();
    match decision.counted {
        DecisionMetric::ReadTime => {
            format!("{} at queue depth 1: {counted}", point_words(&here.group))
        }
        _ if several && !counted.starts_with(&experiment_title(&here.group).to_lowercase()) => {
            format!("{}, {counted}: {}", engine_title(&here.group), experiment_title(&here.group))
        }
        _ => format!("{}, {counted}", engine_title(&here.group)),
    }
}

/// With `several`, the engine has other tables, so the experiment is named.
fn view(run: &Run, decision: &Decision<'_>, hues: &Hues, several: bool) -> DecisionView {
    let here = decision.here();
    let title = decision_title(decision, several);
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
        confidence: Confidence::of(one).word(),
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
pub(crate) fn limited_words(one: &Choice<'_>) -> String {
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let main = |part: MainPart, of: &str| main_words(part, &one.group, of);
    match one.limited {
        LimitedBy::Processors(busy) => format!("CPU ({} busy)", percent(busy)),
        LimitedBy::OtherProcesses(share) => {
            format!("other programs ({} of the CPUs)", percent(share))
        }
        LimitedBy::Thread(busy) => format!("the submitting thread ({} busy)", percent(busy)),
        LimitedBy::VolumeOperations(operations, waits) => {
            let operations = human_count(operations as f64);
            format!("the volume's {operations} IOPS (throttled {} of the time)", percent(waits))
        }
        LimitedBy::VolumeBytes(bytes, waits) => {
            format!("the volume's {}/s (throttled {} of the time)", Bytes(bytes), percent(waits))
        }
        LimitedBy::StudyLimit(limit, used) => {
            let limit = match limit {
                StudyLimit::Reads(rate) => format!("{rate} reads"),
                StudyLimit::Writes(rate) => format!("{rate} writes"),
                StudyLimit::ReadBytes(bytes) => format!("{bytes}/s of reads"),
                StudyLimit::WriteBytes(bytes) => format!("{bytes}/s of writes"),
            };
            format!("the study's limit of {limit} ({} used)", percent(used))
        }
        LimitedBy::Part(part) => main(part, "of the time"),
        LimitedBy::OneAtATime(part) => {
            format!("one client at a time: {}", main(part, "of its time"))
        }
        LimitedBy::Nothing(part) => {
            format!("no single bottleneck; largest: {}", main(part, "of the time"))
        }
        LimitedBy::Unknown => "".into(),
    }
}

/// `drive 96 % of the time (writes 65 %)`.
fn main_words(main: MainPart, group: &Group<'_>, of: &str) -> String {
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let share = percent(main.share);
    match main.within() {
        Some((whole, part)) => {
            let whole = if whole == "drive" { drive_words(group) } else { whole };
            let own = match percent(main.own) == share {
                true => part.to_owned(),
                // The other one.
                false if main.part == Part::Cpu => {
                    format!(
                        "{part} {}, run queue {}",
                        percent(main.own),
                        percent(main.share - main.own)
                    )
                }
                false => format!("{part} {}", percent(main.own)),
            };
            format!("{whole} {share} {of} ({own})")
        }
        None => format!("{} {share} {of}", part_words(main.part, group)),
    }
}

/// Whether the drive's parts are times of storage calls, with the kernel's part.
pub(crate) fn is_by_calls(group: &Group<'_>) -> bool {
    group.first.source == Source::Measured && group.first.result.client_times().is_some()
}

fn drive_words(group: &Group<'_>) -> &'static str {
    if is_by_calls(group) { "drive and kernel I/O path" } else { "drive" }
}

/// Label of a part in a group.
pub(crate) fn part_words(part: Part, group: &Group<'_>) -> &'static str {
    match part {
        Part::DriveReads if is_by_calls(group) => "blocked in reads (drive and kernel I/O path)",
        Part::DriveWrites if is_by_calls(group) => "blocked in writes (drive and kernel I/O path)",
        Part::DriveFlushes if is_by_calls(group) => {
            "blocked in flushes (drive and kernel I/O path)"
        }
        part => part.words(),
    }
}

/// What limited a result, and what would help.
pub(crate) fn bottleneck_words(one: &Choice<'_>) -> String {
    let gains = one.gains.iter().map(gain_words).collect::<String>();
    limited_words(one) + &gains
}

/// `; an infinitely fast drive: about 1.3 x this rate (1.2 to 3.5 x)`.
fn gain_words(gain: &Gain) -> String {
    let change = match gain.change {
        Change::FreeDrive => "an infinitely fast drive",
        Change::TwiceTheCores => "twice the cores",
        Change::NoLimit => "without this limit",
    };
    format!("; {change}: {}", gain_range(gain))
}

/// `about 1.3 x this rate (1.2 to 3.5 x)`.
pub(crate) fn gain_range(Gain { change, low, likely, high }: &Gain) -> String {
    let number = |value: f64| match value {
        _ if value >= GAIN_TOLD => format!("over {GAIN_TOLD:.0}"),
        10.0.. => format!("{value:.0}"),
        _ => format!("{value:.1}"),
    };
    let (low, likely, high) = (number(*low), number(*likely), number(*high));
    match change {
        _ if low == high => format!("{high} \u{d7} this rate"),
        Change::FreeDrive if likely == high => {
            format!("at most {high} \u{d7} this rate (at least {low} \u{d7})")
        }
        Change::FreeDrive => format!("about {likely} \u{d7} this rate ({low} to {high} \u{d7})"),
        Change::TwiceTheCores | Change::NoLimit => format!("{low} to {high} \u{d7} this rate"),
    }
}

/// How far a value can be relied on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Confidence {
    Solid,
    SingleRun,
    Modelled,
    Bound,
    Unusable,
}

impl Confidence {
    fn of(one: &Choice<'_>) -> Self {
        use WarningKind::{BusyHost, Errors, LoadNotKept, OtherWrites};
        let has = |kinds: &[WarningKind]| one.doubts.iter().any(|kind| kinds.contains(kind));
        match one.standing {
            Reliability::Unreliable(_) | Reliability::NoRequests => Self::Unusable,
            _ if has(&[Errors, LoadNotKept, OtherWrites]) => Self::Unusable,
            // Without other programs it would be at least as fast.
            _ if one.value.at_least || has(&[BusyHost]) => Self::Bound,
            Reliability::Measured if one.value.between_repetitions().is_some() => Self::Solid,
            Reliability::Measured => Self::SingleRun,
            _ => Self::Modelled,
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Solid => "solid",
            Self::SingleRun => "single run",
            Self::Modelled => "modelled",
            Self::Bound => "bound",
            Self::Unusable => "unusable",
        }
    }
}

/// What the chip does not say: the reliability of models, and warnings.
fn worth_words(one: &Choice<'_>) -> String {
    let spoiled = one.doubts.iter().map(|kind| kind.title().to_lowercase());
    let standing = Some(standing_words(&one.standing));
    let standing = standing.filter(|_| one.standing != Reliability::Measured);
    standing.into_iter().chain(spoiled).collect::<Vec<_>>().join("; ")
}

/// Reliability in words.
pub(crate) fn standing_words(standing: &Reliability) -> String {
    match standing {
        Reliability::Measured => "measured".into(),
        Reliability::EmulationAccurate => "emulation accurate".into(),
        Reliability::Simulated => "virtual time; drive profile not validated".into(),
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

    /// A reader who trusts a single run on a busy host as much as ten on an idle one buys the wrong drive.
    #[test]
    fn confidence_falls_with_repetitions_interference_and_errors() {
        let place = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fixtures/runs/v1");
        let run = Run::read(std::path::Path::new(place), engines::list()).unwrap();
        let mut decision = single_reads(&run).expect("reads alone");
        let mut of = |standing: Reliability, values: &[f64], doubts: &[WarningKind]| {
            let choice = &mut decision.choices[0];
            choice.standing = standing;
            choice.value = stats::estimate::over_values(values).expect("values");
            choice.doubts = doubts.to_vec();
            Confidence::of(choice)
        };
        let measured = || Reliability::Measured;
        assert_eq!(of(measured(), &[1.0, 1.1, 1.2], &[]), Confidence::Solid);
        assert_eq!(of(measured(), &[1.0, 1.1], &[]), Confidence::SingleRun, "two have no interval");
        assert_eq!(of(measured(), &[1.0; 3], &[WarningKind::BusyHost]), Confidence::Bound);
        assert_eq!(of(measured(), &[1.0; 3], &[WarningKind::Errors]), Confidence::Unusable);
        assert_eq!(of(Reliability::Simulated, &[1.0; 3], &[]), Confidence::Modelled);
        assert_eq!(of(Reliability::NoRequests, &[1.0; 3], &[]), Confidence::Unusable);
    }
}
