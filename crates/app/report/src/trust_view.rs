//! Confidence in the figures of a page: how many published figures are fitted or held out, emulation
//! accuracy, host load.
//!
//! Invariant: counts and errors come from this run's records only.

use analysis::decision::{Choice, Decision, Reliability};
use analysis::doubts::{WarningKind, doubts_of};
use analysis::own_disk::own_disk_ratio;
use archive::{Run, StackRecord};
use device::Evidence;
use serde::Serialize;
use study::Source;

use crate::chart::short;
use crate::comparison::subject;
use crate::hue::Hues;

/// One line of the table.
#[derive(Serialize)]
pub(crate) struct TrustLine {
    name: String,
    hue: usize,
    source: &'static str,
    text: String,
}

/// Number of storages in the table.
const LINES_MAX: usize = 24;

/// The lines of the table.
pub(crate) fn trust_lines(run: &Run, decisions: &[Decision<'_>], hues: &Hues) -> Vec<TrustLine> {
    let stacks = run.header.stacks.iter().take(LINES_MAX);
    let lines = stacks.filter_map(|stack| line(run, stack, decisions, hues));
    let mut lines: Vec<TrustLine> = lines.collect();
    // Once, not for each drive.
    lines.iter_mut().take(1).for_each(|first| first.text.push_str(&validated(run, decisions)));
    lines
}

fn line(
    run: &Run,
    stack: &StackRecord,
    decisions: &[Decision<'_>],
    hues: &Hues,
) -> Option<TrustLine> {
    let trials = || run.trials.iter().filter(|trial| trial.stack == stack.name);
    let source = trials().next()?.source;
    let text = match source {
        Source::Measured => measured(run, stack),
        Source::Emulated => emulated(stack, decisions),
        Source::Predicted => predicted(stack),
        Source::Published => return None,
    };
    Some(TrustLine {
        name: short(&stack.title).to_owned(),
        hue: hues.get(&stack.name),
        source: source.word(),
        text,
    })
}

fn measured(run: &Run, stack: &StackRecord) -> String {
    let trials = run.trials.iter().filter(|trial| trial.stack == stack.name);
    let repetitions = trials.clone().map(|trial| trial.repetition).max().unwrap_or(1);
    let trials = match trials.count() {
        1 => "1 trial".to_owned(),
        count => format!("{count} trials"),
    };
    let told = [WarningKind::BusyHost, WarningKind::InMemory, WarningKind::Unsteady];
    let seen = |kind: WarningKind| {
        let own = run.trials.iter().filter(|trial| trial.stack == stack.name);
        match own.filter(|trial| doubts_of(trial).contains(&kind)).count() {
            0 => String::new(),
            count => format!("; {} in {count}", kind.title().to_lowercase()),
        }
    };
    let spoiled: String = told.into_iter().map(seen).collect();
    match repetitions {
        1 => format!("{trials}, n = 1: run-to-run variation unknown{spoiled}"),
        2 => format!("{trials}, n = 2: ranges{spoiled}"),
        runs => format!("{trials}, n = {runs}: 95 % intervals across runs{spoiled}"),
    }
}

/// Simulated over measured rates of the run's simulated jobs on a disk of this host; empty if none was
/// validated.
fn validated(run: &Run, decisions: &[Decision<'_>]) -> String {
    let word = |one: &Decision<'_>| {
        let simulated = |choice: &&Choice<'_>| choice.standing == Reliability::Simulated;
        let group = &one.choices.iter().find(simulated)?.group;
        let (low, high) = own_disk_ratio(group, one.counted)?;
        let (low, high) = (format!("{low:.2}"), format!("{high:.2}"));
        let range = if low == high { low } else { format!("{low} to {high}") };
        Some(format!("{range} x ({})", subject(group, one.counted)))
    };
    let mut words: Vec<String> = decisions.iter().filter_map(word).collect();
    words.dedup();
    match run.header.own_disk.as_ref().filter(|_| !words.is_empty()) {
        None => String::new(),
        Some(known) => format!(
            "; simulations of this machine's own disk (under {}), over measured rates: {}",
            known.directory,
            words.join(", ")
        ),
    }
}

fn emulated(stack: &StackRecord, decisions: &[Decision<'_>]) -> String {
    let own = decisions.iter().flat_map(|one| &one.choices);
    let own = own.filter(|choice| choice.group.first.stack == stack.name);
    let doubted = own.clone().filter(|c| matches!(c.standing, Reliability::Unreliable(_))).count();
    let simulated = own.clone().filter(|c| c.standing == Reliability::Simulated).count();
    if simulated > 0 {
        return "run in virtual time; ranges do not cover how well the model matches the real drive"
            .to_owned();
    }
    let mut text = match (doubted, own.count()) {
        (_, 0) => "no results in the tables above".to_owned(),
        (0, 1) => "emulation accurate for its result above".to_owned(),
        (0, count) => format!("emulation accurate for its {count} results above"),
        (doubted, count) => {
            format!("emulation inaccurate for {doubted} of {count} results above")
        }
    };
    text.push_str("; the model has not been validated with database workloads");
    text
}

/// The metrics of the held-out figures.
fn metrics(stack: &StackRecord) -> String {
    let held_out = stack.checked.iter().filter(|figure| figure.evidence == Evidence::HeldOut);
    let mut names: Vec<&str> = held_out.map(|figure| figure.metric.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names.join(", ")
}

fn predicted(stack: &StackRecord) -> String {
    let count = |evidence: Evidence| {
        stack.checked.iter().filter(|figure| figure.evidence == evidence).count()
    };
    let mut errors: Vec<f64> = stack
        .checked
        .iter()
        .filter(|figure| figure.evidence == Evidence::HeldOut)
        .map(|figure| figure.error.abs())
        .collect();
    errors.sort_by(f64::total_cmp);
    let figures = |count: usize| format!("{count} figure{}", if count == 1 { "" } else { "s" });
    let fitted = figures(count(Evidence::Fitted));
    match errors.get(errors.len() / 2) {
        None if count(Evidence::Fitted) == 0 => {
            "not validated: no published figure covers such jobs on this I/O path".into()
        }
        None => format!("not validated: fitted to {fitted} for such jobs, none held out"),
        Some(median) => {
            let error = match errors.as_slice() {
                [one] => format!("{:.0} %", one * 100.0),
                all => format!(
                    "median {:.0} %, worst {:.0} %",
                    median * 100.0,
                    all.last().copied().unwrap_or(0.0) * 100.0
                ),
            };
            let held_out = figures(errors.len());
            format!("held-out error: {error} ({held_out}: {}); fitted on {fitted}", metrics(stack))
        }
    }
}
