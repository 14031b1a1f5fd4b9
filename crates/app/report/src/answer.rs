//! The headline and findings of a run.
//!
//! Every sentence is made from figures of the run and names its source. Invariant: states nothing that the
//! run did not measure or predict.

use archive::{Run, TrialOutcome, TrialRecord};
use study::Finding as Question;

use crate::comparison::{across, decision_finding};
use crate::decision_view::bottleneck_words;
use crate::finding::Finding;
use crate::what_if::without_variants;
use crate::words::{engine_title, storage_words};
use crate::{block_findings as blocks, checks, database_findings as databases};
use analysis::act_tests;
use analysis::decision::{Choice, Decision, decisions};
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
    let own = without_variants(run);
    let answer = answer(&own, &decisions(&own));
    (answer.headline, answer.doubts.iter().map(Warning::sentence).collect())
}

/// What limits the reference of the first decision and the best other storage, for a terminal.
#[must_use]
pub fn bottlenecks(run: &Run) -> Vec<String> {
    let own = without_variants(run);
    let all = decisions(&own);
    let line = |choice: &Choice<'_>| {
        let words = bottleneck_words(choice);
        let storage = storage_words(choice.group.stack_title());
        let engine = engine_title(&choice.group);
        (!words.is_empty()).then(|| format!("{engine} on {storage}: {words}"))
    };
    let choices = all.first().into_iter().flat_map(|one| [Some(one.here()), one.best_other()]);
    choices.flatten().filter_map(line).collect()
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
        Question::Breakdown => blocks::breakdowns(run),
        Question::Fitness => checks::fitness_findings(run),
        Question::Suitability => checks::suitability_findings(run),
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::stored::{self, DRIVES, as_class, at_depth_1, changed, named};
    use stats::{Interval, Phase};
    use units::Nanos;
    use workload::OpClass;

    /// Replaces the trials of the stored run.
    fn with(trials: Vec<TrialRecord>) -> Run {
        Run { trials, ..stored::run() }
    }

    fn point(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn percentile(trial: &TrialRecord, class: OpClass, percent: f64) -> String {
        let total = trial.result.recording.total(Some(class));
        Nanos(total.latency.value_at_percentile(percent)).to_string()
    }

    /// A sentence with another number than that of the run would mislead, however well it is worded.
    #[test]
    fn sentences_about_blocks_have_the_numbers_of_the_run() {
        let run = stored::run();
        let all = [
            blocks::peak_rates(&run),
            blocks::knees(&run),
            blocks::writes(&run),
            blocks::mixes(&run),
            blocks::devices(&run),
        ];
        insta::assert_snapshot!(all.map(|kind| joined(&kind).replace(". ", ".\n")).join("\n"));
        let [optane, _] = at_depth_1(&run, "0%");
        let written = format!("takes {} on P4800X", percentile(&optane, OpClass::Write, 50.0));
        let said = joined(&blocks::writes(&run));
        assert!(said.contains(&written), "{said}");
        let mixed = run.trials.iter().find(|one| one.experiment == "mix" && one.stack == DRIVES[0]);
        let p99 = percentile(mixed.unwrap(), OpClass::Read, 99.0);
        let said = blocks::mixes(&run).iter().map(Finding::to_string).collect::<String>();
        assert!(
            said.contains("With 30 % writes") && said.contains(&format!(" is {p99} ")),
            "{said}"
        );
        let mut alone = named(&at_depth_1(&run, "100%")[0], ["block", DRIVES[0], "mix"]);
        alone.point = mixed.unwrap().point.clone();
        alone.point.insert("read_share".into(), "100%".into());
        let expected = format!("rises from {} to {p99} ", percentile(&alone, OpClass::Read, 99.0));
        let said = joined(&blocks::mixes(&with(vec![mixed.unwrap().clone(), alone])));
        assert!(said.contains(&expected), "{said}");
        let flushed = as_class(&optane, OpClass::Write, OpClass::Sync);
        let said = joined(&blocks::flushes(&with(vec![flushed])));
        let [p50, p99] = [50.0, 99.0].map(|one| percentile(&optane, OpClass::Write, one));
        assert_ne!(p50, p99);
        assert!(
            said.contains(&format!("takes {p50} on ")) && said.contains(&format!("p99 {p99} "))
        );
    }

    /// A knee needs more depths than the stored run has: more depths at the same rate.
    #[test]
    fn a_knee_has_the_growth_of_its_curve() {
        let is_flash = |one: &&TrialRecord| one.experiment == "depth" && one.stack == DRIVES[1];
        let mut trials: Vec<TrialRecord> =
            stored::run().trials.iter().filter(is_flash).cloned().collect();
        let deepest = trials.last().unwrap().clone();
        for depth in ["32", "64"] {
            let mut deeper = deepest.clone();
            deeper.point.insert("queue_depth".into(), depth.into());
            trials.push(deeper);
        }
        let run = with(trials);
        let growth = analysis::knee::curves(&run)[0].growth().unwrap();
        let factor = crate::finding::times(1.0 + growth.growth.unwrap().value);
        let said = joined(&blocks::knees(&run));
        assert!(said.contains(&format!("latency is {factor} unloaded")), "{said}");
        let peak = joined(&blocks::peak_rates(&run));
        assert!(peak.contains("(depth 16; "), "the lowest depth that suffices: {peak}");
    }

    /// The same for databases: a winner that lost, or a gain that is a loss.
    #[test]
    fn sentences_about_databases_have_the_numbers_of_the_run() {
        let [optane, flash] = at_depth_1(&stored::run(), "100%");
        let query = as_class(&optane, OpClass::Read, OpClass::Transaction);
        let race = point(&[("race", "true"), ("operations", "100")]);
        let racer = |stack: &str, slower: u64| {
            let racer = changed(&named(&query, ["mysql", stack, "race"]), |interval| {
                interval.start = interval.start * slower;
                interval.end = interval.end * slower;
            });
            TrialRecord { point: race.clone(), ..racer }
        };
        let said = joined(&databases::races(&with(vec![racer(DRIVES[0], 3), racer(DRIVES[1], 1)])));
        let expected = "980 Pro finishes 100 transactions 3.00x as fast as P4800X (";
        assert!(said.starts_with(expected), "{said}");

        let pool = |share: &str, times: u64| {
            let trial = changed(&named(&query, ["mysql", DRIVES[0], "latency"]), |interval| {
                interval.tallies.of(OpClass::Transaction).counts.ops *= times;
            });
            TrialRecord { point: point(&[("buffer_pool", share)]), ..trial }
        };
        let said = joined(&databases::memory(&with(vec![
            pool("20%", 1),
            pool("50%", 2),
            pool("100%", 4),
        ])));
        assert!(said.contains("for 100 % of the data gives 4.00x the transactions"), "{said}");
        assert!(said.contains("(n = 1, "), "{said}");

        let mut stalled = as_class(&flash, OpClass::Read, OpClass::Write);
        let whole = stalled.result.recording.intervals.last().unwrap().end.as_secs_f64();
        stalled.result.totals.insert("stall_time".into(), whole / 4.0);
        let said = joined(&databases::stalls(&with(vec![stalled])));
        assert!(said.contains(" stalls writes 25 % of the time on 980 Pro "), "{said}");

        let mut fallen = named(&query, ["mysql", DRIVES[0], "latency"]);
        let at = |second: u64| {
            let (start, end) = (Nanos::from_secs(second), Nanos::from_secs(second + 1));
            let mut interval = Interval::empty(Phase::Measure, start, end);
            let tally = interval.tallies.of(OpClass::Transaction);
            tally.counts.ops = if second < 40 { 1000 } else { 500 } + second % 3;
            interval
        };
        fallen.result.recording.intervals = (0..100).map(at).collect();
        let said = joined(&databases::performance_drops(&with(vec![fallen])));
        assert!(said.contains(" at 40 s: no counter shows why."), "{said}");
        assert!(said.contains("changes by -50 % ("), "{said}");
    }
}
