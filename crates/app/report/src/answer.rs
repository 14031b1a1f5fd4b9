//! The headline and findings of a run.
//!
//! Every sentence is made from figures of the run and names its source. Invariant: states nothing that the
//! run did not measure or predict.

use archive::{Run, TrialOutcome, TrialRecord};
use study::Finding as Question;

use crate::comparison::{across, decision_finding};
use crate::finding::Finding;
use crate::{block_findings as blocks, database_findings as databases};
use analysis::act_tests;
use analysis::decision::{Decision, decisions};
use analysis::doubts::{Warning, doubts};

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    pub headline: String,
    /// The second line; may be empty.
    pub lead: String,
    /// Warnings about its figures.
    pub doubts: Vec<Warning>,
    /// More, most important first.
    pub points: Vec<String>,
}

/// With more tests than this, only a summary is shown.
const TESTS_TOLD: usize = 8;

/// The answer in one sentence, for a terminal, and its warnings.
#[must_use]
pub fn headline(run: &Run) -> (String, Vec<String>) {
    let answer = answer(run, &decisions(run));
    (answer.headline, answer.doubts.iter().map(Warning::sentence).collect())
}

/// Writes the answer for one run.
pub(crate) fn answer(run: &Run, decisions: &[Decision<'_>]) -> Answer {
    let mut own = run.study.answer.map_or_else(Vec::new, |question| answering(run, question));
    // The winner of a race is its headline.
    if own.is_empty() {
        own = databases::races(run);
    }
    // The first decision of each engine; the table has the others.
    let mut engines: Vec<&str> = Vec::new();
    let decided = decisions.iter().filter(|one| {
        let engine = one.first().engine.as_str();
        let new = !engines.contains(&engine);
        engines.push(engine);
        new
    });
    let decided: Vec<(Finding, String)> = decided.map(decision_finding).collect();
    let second_line = decided.first().map(|(_, line)| line.clone()).unwrap_or_default();
    let mut kinds: Vec<Vec<Finding>> = decided.into_iter().map(|(one, _)| vec![one]).collect();
    let is_decided = own.is_empty() && !kinds.is_empty();
    kinds.extend([
        databases::races(run),
        databases::stalls(run),
        blocks::peak_rates(run),
        blocks::knees(run),
        blocks::writes(run),
        blocks::mixes(run),
        blocks::flushes(run),
        blocks::read_tails(run),
        blocks::ratings(run),
    ]);
    kinds.retain(|kind| !kind.is_empty() && *kind != own);
    if own.is_empty() && !kinds.is_empty() {
        own = kinds.remove(0);
    }
    let mut points: Vec<String> = kinds.iter().map(|kind| joined(kind)).collect();
    let tests = act_tests(run);
    if tests.len() <= TESTS_TOLD {
        points.extend(tests.iter().map(|test| format!("ACT {}", test.sentence())));
    }
    points.extend(databases::performance_drops(run).iter().map(Finding::to_string));
    let (headline, mut lead) = match own.split_first() {
        Some((first, rest)) => (first.to_string(), joined(rest)),
        None if points.is_empty() => (nothing(run), String::new()),
        None => (points.remove(0), String::new()),
    };
    if is_decided {
        // One of several jobs does not answer for all of them.
        let all = across(run, decisions).map(|all| all.to_string());
        let lines = all.into_iter().chain([second_line]).filter(|one| !one.is_empty());
        lead = lines.collect::<Vec<_>>().join(" ");
    }
    Answer { headline, lead, doubts: doubts(run), points }
}

/// Sentences of one kind.
fn joined(findings: &[Finding]) -> String {
    findings.iter().map(Finding::to_string).collect::<Vec<_>>().join(" ")
}

/// The findings that answer a study's question; empty if its trials do not answer it.
fn answering(run: &Run, question: Question) -> Vec<Finding> {
    match question {
        Question::Growth => blocks::knees(run),
        Question::Mixes => blocks::mixes(run),
        Question::Ratings => blocks::ratings(run),
        Question::Flushes => blocks::flushes(run),
        Question::Race => databases::races(run),
        Question::Stalls => databases::stalls(run),
        Question::Memory => databases::memory(run),
        Question::Fabric => databases::fabrics(run),
        Question::Rates => blocks::peak_rates(run),
        Question::Engines => databases::engines(run),
        Question::Device => blocks::devices(run),
    }
}

/// Why there is no answer.
fn nothing(run: &Run) -> String {
    let rates = blocks::at_rates(run);
    if !rates.is_empty() {
        return joined(&rates);
    }
    let failed: Vec<_> =
        run.trials.iter().filter(|trial| trial.outcome == TrialOutcome::Failed).collect();
    let reason = failed.iter().find_map(|trial| trial.result.failure.as_deref());
    match (failed.len(), reason) {
        (0, _) if run.trials.is_empty() => "No trial has finished yet.".into(),
        (0, _) if run.trials.iter().all(no_operation) => {
            "No operation completed during the measurement. Measure for longer: --set \
             experiment.*.duration=60s."
                .into()
        }
        (0, _) => "No single sentence answers this run; see the figures.".into(),
        (count, reason) => format!(
            "All results are missing; {count} trial{} failed: {}",
            if count == 1 { "" } else { "s" },
            reason.unwrap_or("no reason was recorded")
        ),
    }
}

/// Whether a trial saw no operation end.
fn no_operation(trial: &TrialRecord) -> bool {
    trial.result.recording.counts(None).ops == 0
}
