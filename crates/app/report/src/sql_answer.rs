//! The answer of SQL trials in words.
//!
//! Invariant: says nothing that the run did not measure.

use archive::Run;
use units::human_count;

use crate::chart::short;
use crate::words::runs_each;
use analysis::cliffs;
use analysis::scaling::{AxisKind, Panel, ScalingLine, panels};
use analysis::sql::races;

/// Cliffs that are listed one by one.
const CLIFFS_TOLD: usize = 3;

fn title<'a>(run: &'a Run, stack: &'a str) -> &'a str {
    let found = run.header.stacks.iter().find(|one| one.name == stack);
    found.map_or(stack, |one| short(&one.title))
}

pub(crate) fn race_sentences(run: &Run) -> Vec<String> {
    let source = |stack: &&str| {
        let found = run.trials.iter().find(|trial| trial.stack == **stack);
        let word = found.map_or("measured", |trial| trial.source.word());
        let declared = run.study.stack.iter().find(|one| one.name == **stack);
        match declared.map_or(1, |one| one.scale) {
            1 => word.to_owned(),
            scale => format!("{word}, times of the drives {scale} times as long"),
        }
    };
    let sources = |stacks: &[&str]| {
        let mut words: Vec<String> = stacks.iter().map(source).collect();
        words.dedup();
        format!("; {}", words.join(" and "))
    };
    let of = |race: &analysis::sql::Race<'_>| {
        let mut times: Vec<(&str, f64)> = race
            .racers
            .iter()
            .map(|(stack, times)| (*stack, times.iter().sum::<f64>() / times.len() as f64))
            .collect();
        times.sort_by(|a, b| a.1.total_cmp(&b.1));
        let ((first, fastest), (last, slowest)) = (times.first().copied()?, times.last().copied()?);
        Some(format!(
            "The race over {} transactions: {} took {fastest:.0} s, {} {slowest:.0} s: {:.1} times as long \
             (both at once{}).",
            human_count(race.transactions),
            title(run, first),
            title(run, last),
            slowest / fastest.max(1e-9),
            sources(&[first, last])
        ))
    };
    races(run).iter().filter_map(of).collect()
}

/// What memory gives on each stack: the rate with the most of the data in memory over that with the least.
pub(crate) fn memory_sentence(run: &Run) -> Option<String> {
    let of_memory = |panel: &&Panel| matches!(panel.axis, AxisKind::DataOverMemory);
    let all = panels(run);
    let panel = all.iter().find(of_memory)?;
    let mut ends = None;
    let mut part = |line: &ScalingLine| {
        let (first, last) = (line.points.first()?, line.points.last()?);
        ends = Some((first.0, last.0));
        let gain = crate::decision_view::times(first.1.value / last.1.value);
        let half = line.points.iter().find(|(place, _)| (1.8..=2.2).contains(place));
        let half = half.map_or_else(String::new, |(_, rate)| {
            format!(", for half of them {}", crate::decision_view::times(rate.value / last.1.value))
        });
        let declared = run.study.stack.iter().find(|one| one.name == line.stack);
        let slower = match declared.map_or(1, |one| one.scale) {
            1 => String::new(),
            scale => format!(", its time {scale} times as long, the processors' not"),
        };
        Some(format!("{gain}{half} on {} ({}{slower})", title(run, &line.stack), line.source))
    };
    let parts: Vec<String> = panel.lines.iter().filter_map(&mut part).collect();
    let (most, least) = ends?;
    let share = |times: f64| format!("{:.0} %", 100.0 / times);
    Some(format!(
        "A buffer pool for {} of the data instead of {} gives this many times the transactions: {} ({}).",
        share(most),
        share(least),
        parts.join("; "),
        runs_each(run)
    ))
}

pub(crate) fn cliff_sentence(run: &Run) -> Option<String> {
    let told = cliffs::told(run);
    if told.is_empty() {
        return None;
    }
    let one = |cliff: &cliffs::Told| {
        let cause = if cliff.cause.is_empty() {
            "nothing that is counted shows why".to_owned()
        } else {
            cliff.cause.clone()
        };
        format!("{} at {:.0} s {}: {cause}", title(run, &cliff.stack), cliff.at, cliff.change)
    };
    let shown: Vec<String> = told.iter().take(CLIFFS_TOLD).map(one).collect();
    let more = told.len().saturating_sub(CLIFFS_TOLD);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    Some(format!("Cliffs, where the rate changed for good: {}{more}.", shown.join("; ")))
}
