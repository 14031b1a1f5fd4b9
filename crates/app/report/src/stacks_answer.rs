//! Sentences about what lies between a database and its drive, and about a database that makes its writer
//! wait.
//!
//! Invariant: a cause is named only with its count.

use analysis::decision::counted_of;
use analysis::doubts::{DoubtKind, doubts_of, spoils};
use analysis::{Group, Ops, groups};
use archive::{Run, StackRecord, TrialRecord};
use stats::estimate::ratio;
use units::human_count;
use workload::OpClass;

use crate::chart::short;
use crate::decision_view::times_number;
use crate::headline::GRAVE;
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

/// Storages on which engines are set beside each other in a sentence.
const ENGINES_ON: usize = 2;

/// The most lookups and the most updates of the first engine beside those of the second, on the first storage
/// and on the first of another drive; what was not delivered as modelled is left out.
pub(crate) fn engines_sentence(run: &Run) -> Option<String> {
    let all = groups(run);
    let mut engines: Vec<&str> = Vec::new();
    for group in all.iter().filter(|group| group.first.engine != "block") {
        if !engines.contains(&group.first.engine.as_str()) {
            engines.push(&group.first.engine);
        }
    }
    let [first, second, ..] = engines.as_slice() else { return None };
    let peak = |stack: &str, engine: &str, class: OpClass| {
        let own = all.iter().filter(|group| {
            group.first.stack == stack && group.first.engine == engine && group.is_sound()
        });
        let delivered = own.filter(|group| {
            !group.trials.iter().any(|trial| spoils(trial) == Some(DoubtKind::NotDelivered))
        });
        let rates = delivered.filter_map(|group| {
            Some((group.rate(Ops::Only(class)).filter(|rate| rate.value > 0.0)?.value, group))
        });
        rates.max_by(|a, b| a.0.total_cmp(&b.0))
    };
    let mut parts = Vec::new();
    let mut devices: Vec<&str> = Vec::new();
    for stack in &run.header.stacks {
        if devices.contains(&stack.device.as_str()) || parts.len() == ENGINES_ON {
            continue;
        }
        let both =
            |class| Some((peak(&stack.name, first, class)?, peak(&stack.name, second, class)?));
        let (Some((a, b)), updates) = (both(OpClass::Read), both(OpClass::Write)) else { continue };
        let updates = updates.map_or_else(String::new, |(a, b)| {
            format!(", of updates {} \u{d7}", times_number(a.0 / b.0))
        });
        let slower = match a.1.time_scale() {
            1 => String::new(),
            scale => format!(", its time {scale} times as long"),
        };
        let the = if parts.is_empty() { "The" } else { "the" };
        let named = format!(
            "{the} most lookups of {} are {} \u{d7} those of {}",
            engine_title(a.1),
            times_number(a.0 / b.0),
            engine_title(b.1)
        );
        devices.push(&stack.device);
        parts.push(format!(
            "{named}{updates} on {} ({} and {} lookups a second, {}{slower}{})",
            short(&stack.title),
            human_count(a.0),
            human_count(b.0),
            a.1.first.source.word(),
            spoiled_words([a.1, b.1])
        ));
    }
    (!parts.is_empty()).then(|| format!("{} ({}).", parts.join("; "), runs_each(run)))
}

/// `, busy host, not steady` where that is so of either.
fn spoiled_words(groups: [&Group<'_>; 2]) -> String {
    let seen = |kind: &&DoubtKind| {
        let mut trials = groups.iter().flat_map(|group| &group.trials);
        trials.any(|trial| doubts_of(trial).contains(kind))
    };
    GRAVE.iter().filter(seen).map(|kind| format!(", {}", kind.title().to_lowercase())).collect()
}

/// The drive that a stack is of and what carries it: `("p4800x", "nvmeof-rdma")`.
fn carried(stack: &StackRecord) -> Option<(&str, &str)> {
    stack.device.strip_prefix("model:")?.split_once("-over-")
}

/// Whether a rate was another than it seems.
fn spoiled(group: &Group<'_>) -> bool {
    let unsteady = |trial: &TrialRecord| doubts_of(trial).contains(&DoubtKind::Unsteady);
    group.trials.iter().any(|trial| spoils(trial).is_some() || unsteady(trial))
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
        let mut left_out = 0;
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
            // A fabric cannot make a drive faster: a pair of which one was spoiled says nothing of it.
            if spoiled(group) || spoiled(near) {
                left_out += 1;
                continue;
            }
            kept.push((ratio(&over, &at_home).value, title.to_owned(), source));
        }
        kept.sort_by(|a, b| a.0.total_cmp(&b.0));
        let left_out = match left_out {
            0 => String::new(),
            count => format!(
                ", {count} of {} tests may not be judged: not as modelled, busy host or not steady",
                kept.len() + count
            ),
        };
        let (Some(least), Some(most)) = (kept.first(), kept.last()) else {
            let what = if parts.is_empty() { "What" } else { "what" };
            parts.push(format!("{what} {} keeps is not known{left_out}", short(&far.title)));
            continue;
        };
        let range = match kept.len() {
            1 => times_number(least.0),
            _ => format!("{} to {}", times_number(least.0), times_number(most.0)),
        };
        parts.push(format!(
            "{} keeps {range} of the local rate, the least in \u{201c}{}\u{201d} ({}, {}{left_out})",
            short(&far.title),
            least.1,
            least.2,
            runs_each(run)
        ));
    }
    (!parts.is_empty()).then(|| format!("{}.", parts.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lookups on two drives of a stored run, as if engines had made them.
    fn stored() -> (Run, [TrialRecord; 2]) {
        let place = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fixtures/runs/v1");
        let run = Run::read(std::path::Path::new(place), engines::list()).unwrap();
        let of = |stack: &str| {
            let reads = |one: &&TrialRecord| {
                let share = one.point.get("read_share").is_some_and(|share| share == "100%");
                one.experiment == "latency" && share && one.stack == stack
            };
            run.trials.iter().find(reads).unwrap().clone()
        };
        let both = ["intel-p4800x", "samsung-980-pro"].map(of);
        (run, both)
    }

    fn named(trial: &TrialRecord, engine: &str, stack: &str, experiment: &str) -> TrialRecord {
        let (engine, stack, experiment) = (engine.into(), stack.into(), experiment.into());
        TrialRecord { engine, stack, experiment, ..trial.clone() }
    }

    /// A study of two engines that names one drive instead is asked something else than it was.
    #[test]
    fn engines_are_set_beside_each_other_on_each_drive() {
        let (mut run, [fast, slow]) = stored();
        run.trials = vec![
            named(&fast, "lmdb", "intel-p4800x", "a"),
            named(&slow, "rocksdb", "intel-p4800x", "b"),
            named(&slow, "lmdb", "samsung-980-pro", "a"),
            named(&slow, "rocksdb", "samsung-980-pro", "b"),
        ];
        let said = engines_sentence(&run).unwrap();
        let first = said.split(" \u{d7} those of RocksDB").next().unwrap();
        assert!(first.starts_with("The most lookups of LMDB are "), "{said}");
        let ratio: f64 = first.rsplit(' ').next().unwrap().parse().unwrap();
        assert!(ratio > 1.2, "{said}");
        let second = "; the most lookups of LMDB are 1.00 \u{d7} those of RocksDB on";
        assert!(said.contains(second), "the same on the second drive: {said}");
        assert!(!said.contains("busy host"), "{said}");
        run.trials[1].source = study::Source::Measured;
        run.trials[1].result.limits = vec![stats::Limit::Others { others: 0.5 }];
        let said = engines_sentence(&run).unwrap();
        assert!(said.contains(", busy host); the most"), "of the first drive alone: {said}");
        run.trials.retain(|trial| trial.engine == "lmdb");
        assert_eq!(engines_sentence(&run), None, "one engine has nothing beside it");
    }

    /// "The fabric keeps 1.42 of the local rate" was the local run that was spoiled.
    #[test]
    fn tests_of_which_either_side_was_spoiled_say_nothing_of_a_fabric() {
        let (mut run, [fast, slow]) = stored();
        let far = run.header.stacks.iter_mut().find(|one| one.name == "samsung-980-pro").unwrap();
        far.device = "model:p4800x-over-nvmeof-rdma".into();
        run.trials = vec![
            named(&fast, "rocksdb", "intel-p4800x", "one"),
            named(&slow, "rocksdb", "samsung-980-pro", "one"),
            named(&slow, "rocksdb", "intel-p4800x", "two"),
            named(&fast, "rocksdb", "samsung-980-pro", "two"),
        ];
        let said = fabric_sentence(&run).unwrap();
        assert!(said.contains(" to ") && !said.contains("may not be judged"), "{said}");
        let spoil = |run: &mut Run, place: usize| {
            run.trials[place].source = study::Source::Measured;
            run.trials[place].result.limits = vec![stats::Limit::Others { others: 0.5 }];
        };
        spoil(&mut run, 2);
        let said = fabric_sentence(&run).unwrap();
        assert!(
            said.contains("1 of 2 tests may not be judged") && !said.contains(" to "),
            "{said}"
        );
        spoil(&mut run, 1);
        let said = fabric_sentence(&run).unwrap();
        assert!(said.contains("is not known, 2 of 2 tests may not be judged"), "{said}");
    }
}
