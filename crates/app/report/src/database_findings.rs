//! Findings about databases: write stalls, engines, fabrics, races, memory, lasting rate changes.
//!
//! Invariant: a cause is named only with its count.

use std::collections::BTreeSet;

use analysis::decision::counted_of;
use analysis::doubts::{WarningKind, doubts_of, spoils};
use analysis::scaling::{AxisKind, ScalingLine, panels};
use analysis::time_parts::stalled_share;
use analysis::{Group, Ops, cliffs, groups, sql};
use archive::{Run, StackRecord, TrialRecord};
use stats::estimate::ratio;
use workload::OpClass;

use crate::finding::Finding;
use crate::words::{engine_title, experiment_title, runs_each, storage_words};

/// Prefix of the counters that count stalls by cause.
const STALLS_BY: &str = "stalls_by_";
/// Groups whose stalls are reported.
const STALLS_TOLD: usize = 3;
/// Number of stacks on which engines are compared.
const ENGINES_ON: usize = 2;
/// Lasting changes that are reported one by one.
const DROPS_TOLD: usize = 3;

fn title(run: &Run, stack: &str) -> String {
    let found = run.header.stacks.iter().find(|one| one.name == stack);
    found.map_or_else(|| stack.to_owned(), |one| storage_words(&one.title))
}

/// `, time-scaled 24x` of a stack whose drive's time passes slower.
fn scaled(run: &Run, stack: &str) -> String {
    let declared = run.study.stack.iter().find(|one| one.name == stack);
    match declared.map_or(1, |one| one.scale) {
        1 => String::new(),
        scale => format!(", time-scaled {scale}x"),
    }
}

/// Write stalls of each engine and their causes, longest first.
pub(crate) fn stalls(run: &Run) -> Vec<Finding> {
    let stalled = |group: &Group<'_>| stalled_share(group.first);
    let of = |group: &Group<'_>| {
        let trial = group.first;
        let whole = trial.result.recording.intervals.last()?.end.as_secs_f64();
        let share = stalled(group)?;
        let (engine, causes) = (engine_title(group), causes(trial));
        let counters = match (share > 0.0, causes.is_empty()) {
            (true, true) => Some(format!("No {engine} counter shows why.")),
            (true, false) => Some(format!("{engine} counters: {causes}.")),
            (false, _) => None,
        };
        let storage = storage_words(group.stack_title());
        let note = format!("{whole:.0} s including warm-up, {}", trial.source);
        Some((Finding::Stalls { engine, share, storage, note }, counters.map(Finding::Text)))
    };
    // A read-only job has no write stalls.
    let write = Ops::Only(OpClass::Write);
    let mut written: Vec<Group<'_>> =
        groups(run).into_iter().filter(|group| group.classes().contains(&write)).collect();
    written.sort_by(|a, b| stalled(b).unwrap_or(-1.0).total_cmp(&stalled(a).unwrap_or(-1.0)));
    let both = written.iter().filter_map(of).take(STALLS_TOLD);
    both.flat_map(|(stalls, counters)| [Some(stalls), counters]).flatten().collect()
}

/// The engine's counters of stalls, the largest first.
fn causes(trial: &TrialRecord) -> String {
    let totals = trial.result.totals.iter();
    let counts = totals.filter_map(|(name, count)| Some((name.strip_prefix(STALLS_BY)?, *count)));
    let mut found: Vec<(&str, f64)> = counts.filter(|(_, count)| *count > 0.0).collect();
    found.sort_by(|a, b| b.1.total_cmp(&a.1));
    let words = |name: &str| match name {
        "level0_files_slowing" => "level-0 slowdowns".to_owned(),
        "level0_files_stopping" => "level-0 stops".to_owned(),
        "compaction_debt_slowing" => "slowdowns by compaction debt".to_owned(),
        "compaction_debt_stopping" => "stops by compaction debt".to_owned(),
        "memtables_slowing" => "memtable slowdowns".to_owned(),
        "memtables_stopping" => "memtable stops".to_owned(),
        other => other.replace('_', " "),
    };
    let one = |(name, count): &(&str, f64)| format!("{count:.0} {}", words(name));
    found.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Compares the first engine with the second by peak lookups and updates, on the first stack and on the first
/// one with another drive.
pub(crate) fn engines(run: &Run) -> Vec<Finding> {
    let all = groups(run);
    let mut engines: Vec<&str> = Vec::new();
    for group in all.iter().filter(|group| group.first.engine != "block") {
        if !engines.contains(&group.first.engine.as_str()) {
            engines.push(&group.first.engine);
        }
    }
    let [first, second, ..] = engines.as_slice() else { return Vec::new() };
    let peak = |stack: &str, engine: &str, class: OpClass| {
        let own = all.iter().filter(|group| {
            group.first.stack == stack && group.first.engine == engine && group.is_sound()
        });
        let delivered = own.filter(|group| {
            !group.trials.iter().any(|trial| spoils(trial) == Some(WarningKind::NotDelivered))
        });
        let rates = delivered.filter_map(|group| {
            Some((group.rate(Ops::Only(class)).filter(|rate| rate.value > 0.0)?.value, group))
        });
        rates.max_by(|a, b| a.0.total_cmp(&b.0))
    };
    let (mut found, mut devices) = (Vec::new(), Vec::<&str>::new());
    for stack in &run.header.stacks {
        if devices.contains(&stack.device.as_str()) || devices.len() == ENGINES_ON {
            continue;
        }
        for (class, what) in [(OpClass::Read, "lookups"), (OpClass::Write, "updates")] {
            let both = peak(&stack.name, first, class).zip(peak(&stack.name, second, class));
            let Some(((of_first, a), (of_second, b))) = both else { continue };
            let busy = |group: &Group<'_>| {
                group.trials.iter().any(|trial| spoils(trial) == Some(WarningKind::BusyHost))
            };
            let busy = if busy(a) || busy(b) { ", busy host" } else { "" };
            let scaled = scaled(run, &stack.name);
            found.push(Finding::Engines {
                engines: [engine_title(a), engine_title(b)],
                what,
                ratio: of_first / of_second,
                storage: storage_words(&stack.title),
                note: format!("{}, {}{scaled}{busy}", runs_each(run), a.first.source),
            });
            if !devices.contains(&stack.device.as_str()) {
                devices.push(&stack.device);
            }
        }
    }
    found
}

/// The drive of a stack and its transport: `("p4800x", "nvmeof-rdma")`.
fn carried(stack: &StackRecord) -> Option<(&str, &str)> {
    stack.device.strip_prefix("model:")?.split_once("-over-")
}

/// Whether a rate has a warning that makes it unreliable.
fn spoiled(group: &Group<'_>) -> bool {
    let unsteady = |trial: &TrialRecord| doubts_of(trial).contains(&WarningKind::Unsteady);
    group.trials.iter().any(|trial| spoils(trial).is_some() || unsteady(trial))
}

/// The share of the local rate that each test keeps over a fabric, by drive.
pub(crate) fn fabrics(run: &Run) -> Vec<Finding> {
    let all = groups(run);
    let (mut found, mut lowest) = (Vec::new(), Vec::<(String, &str)>::new());
    for far in &run.header.stacks {
        let Some((drive, _)) = carried(far) else { continue };
        let local = run.header.stacks.iter().find(|stack| {
            carried(stack).is_none()
                && stack.device.strip_prefix("model:").is_some_and(|name| name.ends_with(drive))
        });
        let Some(local) = local else { continue };
        let (mut kept, mut left_out): (Vec<(f64, &Group<'_>)>, usize) = (Vec::new(), 0);
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
            // A fabric cannot speed up a drive: if either side was disturbed there is no ratio.
            if spoiled(group) || spoiled(near) {
                left_out += 1;
                continue;
            }
            kept.push((ratio(&over, &at_home).value, group));
        }
        if kept.is_empty() && left_out == 0 {
            continue;
        }
        kept.sort_by(|a, b| a.0.total_cmp(&b.0));
        let storage = storage_words(&far.title);
        let unreliable = format!("{left_out} of {} tests not reliable", kept.len() + left_out);
        found.push(match kept.as_slice() {
            [] => Finding::Text(format!("{storage} has no reliable ratio ({unreliable}).")),
            [(low, least), ..] => {
                let source = format!("{}, {}", runs_each(run), least.first.source);
                let note = if left_out > 0 { format!("{source}; {unreliable}") } else { source };
                let (high, _) = kept[kept.len() - 1];
                if *low < high {
                    lowest.push((storage.clone(), experiment_title(least)));
                }
                Finding::Fabric { storage, kept: [*low, high], note }
            }
        });
    }
    let told: BTreeSet<&str> = lowest.iter().map(|(_, least)| *least).collect();
    match told.first() {
        Some(least) if told.len() == 1 => {
            found.push(Finding::Text(format!("Fabrics keep least for \u{201c}{least}\u{201d}.")));
        }
        _ => found.extend(lowest.iter().map(|(storage, least)| {
            Finding::Text(format!("{storage} keeps least for \u{201c}{least}\u{201d}."))
        })),
    }
    found
}

/// The winner of each race.
pub(crate) fn races(run: &Run) -> Vec<Finding> {
    let source = |stack: &str| {
        let found = run.trials.iter().find(|trial| trial.stack == stack);
        let word = found.map_or("measured", |trial| trial.source.word());
        format!("{word}{}", scaled(run, stack))
    };
    let of = |race: &sql::Race<'_>| {
        let mean = |times: &Vec<f64>| times.iter().sum::<f64>() / times.len() as f64;
        let racers = race.racers.iter().map(|(stack, times)| (*stack, mean(times)));
        let mut times: Vec<(&str, f64)> = racers.collect();
        times.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (first, last) = (times.first().copied()?, times.last().copied()?);
        let mut sources = vec![source(first.0), source(last.0)];
        sources.dedup();
        Some(Finding::Race {
            transactions: race.transactions,
            first: (title(run, first.0), first.1),
            last: (title(run, last.0), last.1),
            note: format!("run concurrently, {}", sources.join(" and ")),
        })
    };
    sql::races(run).iter().filter_map(of).collect()
}

/// The gain from memory on each stack: rate with the largest buffer pool over that with the smallest.
pub(crate) fn memory(run: &Run) -> Vec<Finding> {
    let all = panels(run);
    let panel = all.iter().find(|panel| matches!(panel.axis, AxisKind::DataOverMemory));
    let of = |line: &ScalingLine| {
        let (first, last) = (line.points.first()?, line.points.last()?);
        Some(Finding::Memory {
            most: 1.0 / first.0,
            gain: first.1.value / last.1.value,
            storage: title(run, &line.stack),
            note: format!("{}, {}{}", runs_each(run), line.source, scaled(run, &line.stack)),
        })
    };
    panel.into_iter().flat_map(|panel| &panel.lines).filter_map(of).collect()
}

/// Lasting changes of the rate, with their causes.
pub(crate) fn performance_drops(run: &Run) -> Vec<Finding> {
    let told = cliffs::told(run);
    let of = |one: &cliffs::PerformanceDrop| Finding::PerformanceDrop {
        storage: title(run, &one.stack),
        at: one.at,
        change: one.change.clone(),
        cause: one.cause.clone(),
    };
    let mut found: Vec<Finding> = told.iter().take(DROPS_TOLD).map(of).collect();
    let more = told.len().saturating_sub(DROPS_TOLD);
    if more > 0 {
        found.push(Finding::Text(format!("{more} more lasting changes are in the table.")));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored::{self, at_depth_1, named};

    /// Lookups on two drives of a stored run, relabelled as those of two engines.
    fn stored() -> (Run, [TrialRecord; 2]) {
        let run = stored::run();
        let both = at_depth_1(&run, "100%");
        (run, both)
    }

    /// A study of two engines must compare the engines on each drive.
    #[test]
    fn engines_are_compared_on_each_drive() {
        let (mut run, [fast, slow]) = stored();
        run.trials = vec![
            named(&fast, ["lmdb", "intel-p4800x", "a"]),
            named(&slow, ["rocksdb", "intel-p4800x", "b"]),
            named(&slow, ["lmdb", "samsung-980-pro", "a"]),
            named(&slow, ["rocksdb", "samsung-980-pro", "b"]),
        ];
        let ratios = |run: &Run| -> Vec<f64> {
            let of = |one: &Finding| match one {
                Finding::Engines { ratio, engines: [first, second], .. } => {
                    assert_eq!([first.as_str(), second.as_str()], ["LMDB", "RocksDB"]);
                    *ratio
                }
                other => panic!("{other}"),
            };
            engines(run).iter().map(of).collect()
        };
        let both = ratios(&run);
        assert!(both.len() == 2 && both[0] > 1.2 && (both[1] - 1.0).abs() < 1e-9, "{both:?}");
        run.trials.retain(|trial| trial.engine == "lmdb");
        assert_eq!(ratios(&run), Vec::<f64>::new(), "one engine has nothing next to it");
    }

    /// An unreliable local run must not make a fabric look faster than local access.
    #[test]
    fn tests_of_which_either_side_was_spoiled_say_nothing_of_a_fabric() {
        let (mut run, [fast, slow]) = stored();
        let far = run.header.stacks.iter_mut().find(|one| one.name == "samsung-980-pro").unwrap();
        far.device = "model:p4800x-over-nvmeof-rdma".into();
        run.trials = vec![
            named(&fast, ["rocksdb", "intel-p4800x", "one"]),
            named(&slow, ["rocksdb", "samsung-980-pro", "one"]),
            named(&slow, ["rocksdb", "intel-p4800x", "two"]),
            named(&fast, ["rocksdb", "samsung-980-pro", "two"]),
        ];
        let said = |run: &Run| fabrics(run).iter().map(Finding::to_string).collect::<String>();
        assert!(said(&run).contains(" to ") && !said(&run).contains("not reliable"));
        let spoil = |run: &mut Run, place: usize| {
            run.trials[place].source = study::Source::Measured;
            run.trials[place].result.limits = vec![stats::Limit::Others { others: 0.5 }];
        };
        spoil(&mut run, 2);
        assert!(said(&run).contains("1 of 2 tests not reliable"), "{}", said(&run));
        assert!(!said(&run).contains(" to "), "one ratio is left: {}", said(&run));
        spoil(&mut run, 1);
        assert!(said(&run).contains("no reliable ratio (2 of 2 tests"), "{}", said(&run));
    }
}
