//! The sentence about Aerospike's test: which ratings each storage passed.
//!
//! Invariant: ratings that are not in order are listed one by one.

use analysis::{Group, act_tests, groups};
use archive::Run;

use crate::chart::short;

/// Which ratings of ACT passed, by stack and phase.
pub(crate) fn act_sentence(run: &Run) -> Option<String> {
    let mut passed: Vec<(String, Vec<u32>, Vec<u32>)> = Vec::new();
    let tests = act_tests(run);
    if tests.is_empty() {
        return None;
    }
    let all = groups(run);
    for test in &tests {
        let Some(rating) = test.config.rating() else { continue };
        let stack = run.header.stacks.iter().find(|stack| stack.name == test.trial.stack);
        let title = stack.map_or("", |stack| short(&stack.title));
        let phase = match test.trial.point.get("arrivals").map(String::as_str) {
            Some("act") => "in ACT's own phase",
            _ => "with independent requests",
        };
        let own =
            |group: &&Group<'_>| group.trials.iter().any(|trial| trial.number == test.trial.number);
        let source = all.iter().find(own).map_or_else(
            || test.trial.source.to_string(),
            // Nothing is published of a share of late reads.
            |group| group.source_text("act"),
        );
        let key = format!("{title} {phase} ({source})");
        let place = passed.iter().position(|(other, ..)| *other == key).unwrap_or_else(|| {
            passed.push((key, Vec::new(), Vec::new()));
            passed.len() - 1
        });
        let entry = &mut passed[place];
        if test.verdict.passed { &mut entry.1 } else { &mut entry.2 }.push(rating);
    }
    let part = |(key, passes, fails): &(String, Vec<u32>, Vec<u32>)| {
        let (most, least) = (passes.iter().max(), fails.iter().min());
        // Ratings that are not in order are listed one by one.
        let ordered = most.is_none_or(|most| least.is_none_or(|least| most < least));
        let all = |ratings: &[u32]| {
            ratings.iter().map(|rating| format!("{rating}x")).collect::<Vec<_>>().join(", ")
        };
        match (most, least) {
            (Some(_), Some(_)) if !ordered => {
                let both = (all(passes), all(fails));
                format!(
                    "{key} passes at {} and FAILS at {}: not the load alone decided",
                    both.0, both.1
                )
            }
            (Some(most), Some(least)) => {
                format!("{key} passes up to {most}x and FAILS from {least}x on")
            }
            (Some(most), None) => format!("{key} passes at every rating up to {most}x"),
            (None, _) => format!("{key} FAILS at {}", all(fails)),
        }
    };
    let parts: Vec<String> = passed.iter().map(part).collect();
    let short = tests.iter().any(|test| !test.covers_a_slice());
    let caveat = if short { " Judged on less than one slice of time." } else { "" };
    (!parts.is_empty()).then(|| format!("ACT: {}.{caveat}", parts.join("; ")))
}
