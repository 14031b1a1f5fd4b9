//! Sentences about what lies between a database and its drive, and about a database that makes its writer
//! wait.
//!
//! Invariant: a cause is named only with its count. What it is not: advice.

use analysis::decision::counted_of;
use analysis::{Group, Ops, groups};
use archive::{Run, StackRecord, TrialRecord};
use stats::estimate::ratio;
use workload::OpClass;

use crate::chart::short;
use crate::decision_view::times_number;
use crate::words::{engine_title, runs_each};

/// Beginning of the names of totals that count stalls by their cause.
const STALLS_BY: &str = "stalls_by_";
/// The counter that says when writes were stalled.
const STALLED: &str = "writes stalled, ms/s";
/// Groups whose stalls are reported.
const STALLS_TOLD: usize = 3;

/// When and why an engine made its writer wait.
pub(crate) fn stall_sentence(run: &Run) -> Option<String> {
    let stalled = |group: &Group<'_>| group.first.result.totals.get("stall_time").copied();
    let of = |group: &Group<'_>| {
        let trial = group.first;
        let stalled = stalled(group)?;
        let whole = trial.result.recording.intervals.last()?.end.as_secs_f64();
        let (engine, place) = (engine_title(group), short(group.stack_title()).to_owned());
        let source = trial.source.word();
        if stalled <= 0.0 {
            return Some(format!(
                "{engine} never made its writer wait in {whole:.0} s (warm-up included) on {place} ({source})"
            ));
        }
        let first = trial
            .result
            .counters
            .iter()
            .find(|sample| sample.values.get(STALLED).is_some_and(|value| *value > 0.0));
        let when = first.map_or_else(String::new, |sample| {
            format!(", from second {:.0} on", sample.at_ns as f64 / 1e9)
        });
        let why = match causes(trial) {
            causes if causes.is_empty() => "no counter says why".to_owned(),
            causes => format!("its own counts: {causes}"),
        };
        Some(format!(
            "{engine} made its writer wait {stalled:.1} of {whole:.0} s ({:.0} %) on {place}{when}; {why} \
             ({source})",
            stalled / whole.max(1e-9) * 100.0
        ))
    };
    // Who only reads has no writer to wait; the longest waits are what is asked for.
    let write = Ops::Only(OpClass::Write);
    let mut written: Vec<Group<'_>> =
        groups(run).into_iter().filter(|group| group.classes().contains(&write)).collect();
    written.sort_by(|a, b| stalled(b).unwrap_or(-1.0).total_cmp(&stalled(a).unwrap_or(-1.0)));
    let parts: Vec<String> = written.iter().filter_map(of).take(STALLS_TOLD).collect();
    (!parts.is_empty()).then(|| format!("{}.", parts.join("; ")))
}

fn causes(trial: &TrialRecord) -> String {
    let mut found: Vec<(&str, f64)> = trial
        .result
        .totals
        .iter()
        .filter_map(|(name, count)| Some((name.strip_prefix(STALLS_BY)?, *count)))
        .filter(|(_, count)| *count > 0.0)
        .collect();
    found.sort_by(|a, b| b.1.total_cmp(&a.1));
    let words = |name: &str| match name {
        "level0_files_slowing" => "slowed by files at level 0".to_owned(),
        "level0_files_stopping" => "stopped by files at level 0".to_owned(),
        "compaction_debt_slowing" => "slowed by compaction debt".to_owned(),
        "compaction_debt_stopping" => "stopped by compaction debt".to_owned(),
        "memtables_slowing" => "slowed by memtables that wait".to_owned(),
        "memtables_stopping" => "stopped by memtables that wait".to_owned(),
        other => other.replace('_', " "),
    };
    let one = |(name, count): &(&str, f64)| format!("{count:.0} \u{d7} {}", words(name));
    found.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The drive that a stack is of and what carries it: `("p4800x", "nvmeof-rdma")`.
fn carried(stack: &StackRecord) -> Option<(&str, &str)> {
    stack.device.strip_prefix("model:")?.split_once("-over-")
}

/// What each test keeps of its rate behind a fabric, drive by drive.
pub(crate) fn fabric_sentence(run: &Run) -> Option<String> {
    let all = groups(run);
    let mut parts = Vec::new();
    for far in &run.header.stacks {
        let Some((drive, _)) = carried(far) else { continue };
        let local = run.header.stacks.iter().find(|stack| {
            carried(stack).is_none()
                && stack.device.strip_prefix("model:").is_some_and(|name| name.ends_with(drive))
        });
        let Some(local) = local else { continue };
        let mut kept: Vec<(f64, String, &str)> = Vec::new();
        for group in all.iter().filter(|group| group.first.stack == far.name && group.is_sound()) {
            let same = |other: &&Group<'_>| {
                other.first.stack == local.name
                    && other.first.experiment == group.first.experiment
                    && other.first.point == group.first.point
            };
            let Some(near) = all.iter().find(same) else { continue };
            let rates = |group: &Group<'_>| {
                counted_of(group)
                    .map(|(rate, _)| rate)
                    .or_else(|| group.rate(*group.classes().first()?))
            };
            let (Some(over), Some(at_home)) = (rates(group), rates(near)) else { continue };
            let title =
                run.study.experiment.iter().find(|one| one.name == group.first.experiment).map_or(
                    group.first.experiment.as_str(),
                    |one| match one.title.as_str() {
                        "" => one.name.as_str(),
                        title => title,
                    },
                );
            let source = group.first.source.word();
            kept.push((ratio(&over, &at_home).value, title.to_owned(), source));
        }
        kept.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (Some(least), Some(most)) = (kept.first(), kept.last()) else { continue };
        parts.push(format!(
            "{} keeps {} to {} of the local rate, the least in \u{201c}{}\u{201d} ({}, {})",
            short(&far.title),
            times_number(least.0),
            times_number(most.0),
            least.1,
            least.2,
            runs_each(run)
        ));
    }
    (!parts.is_empty()).then(|| format!("{}.", parts.join("; ")))
}
