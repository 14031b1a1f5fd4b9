//! Findings about block requests and Aerospike's test.

use analysis::decision::single_depth;
use analysis::knee::{Load, THREADS, curves};
use analysis::range::source_text;
use analysis::time_parts::{Part, time_parts};
use analysis::{Group, Ops, act_tests, depth_of, groups, in_flight};
use archive::Run;
use stats::estimate::Estimate;
use units::{Bytes, Nanos, Share};
use validate::PredictionError;
use workload::OpClass;

use crate::finding::{Finding, Ratings};
use crate::words::{experiment_title, storage_words};

const P50: &str = "latency_p50";
const P99: &str = "latency_p99";
const READS: Ops = Ops::Only(OpClass::Read);
const WRITES: Ops = Ops::Only(OpClass::Write);
/// Share of the highest rate at which a queue depth counts as sufficient.
const ENOUGH: f64 = 0.95;
/// Open loops that are reported.
const AT_RATES: usize = 4;

/// `>=` if operations that never completed reach it.
fn time(estimate: &Estimate) -> String {
    format!("{}{}", if estimate.at_least { ">=" } else { "" }, Nanos(estimate.value as u64))
}

/// Size and pattern: `4 KiB random`.
fn shape(group: &Group<'_>) -> String {
    let text = |name: &str| group.first.point.get(name).cloned().unwrap_or_default();
    let size =
        text("block_size").parse::<Bytes>().map_or_else(|_| String::new(), |b| b.to_string());
    format!("{size} {}", text("pattern")).trim().to_owned()
}

fn storage(group: &Group<'_>) -> String {
    storage_words(group.stack_title())
}

/// The load of a closed loop: `4 threads x depth 16`.
fn load(group: &Group<'_>) -> String {
    let threads =
        group.first.point.get(THREADS).map_or_else(String::new, |n| format!("{n} threads x "));
    format!("{threads}depth {}", depth_of(group))
}

/// The rate of each stack at the lowest queue depth that nearly reaches its peak.
pub(crate) fn peak_rates(run: &Run) -> Vec<Finding> {
    let all = groups(run);
    let reads = |group: &&Group<'_>| {
        group.first.engine == "block" && !group.is_open_loop() && group.classes() == [READS]
    };
    let Some(of_shape) = all.iter().find(reads).map(shape) else { return Vec::new() };
    let mut deep = false;
    let mut found = Vec::new();
    for stack in &run.header.stacks {
        let rates: Vec<(f64, &Group<'_>)> = all
            .iter()
            .filter(reads)
            .filter(|group| group.first.stack == stack.name && shape(group) == of_shape)
            .filter_map(|group| Some((group.rate(READS)?.value, group)))
            .collect();
        let most = rates.iter().map(|(rate, _)| *rate).fold(0.0, f64::max);
        let enough = rates.iter().filter(|(rate, _)| *rate >= most * ENOUGH);
        let Some((rate, group)) = enough.min_by_key(|(_, group)| in_flight(group)) else {
            continue;
        };
        deep |= rates.len() > 1;
        let said = group.worth("iops") == Some(PredictionError::HostBound);
        let bound = group.first.result.is_host_bound() && !said;
        let cpu = if bound { ", CPU-bound" } else { "" };
        found.push(Finding::PeakRate {
            storage: storage(group),
            rate: *rate,
            job: of_shape.clone(),
            load: load(group),
            note: format!("{}{cpu}", source_text(group, (READS, "iops"))),
        });
    }
    if deep { found } else { Vec::new() }
}

/// Medians of single writes.
pub(crate) fn writes(run: &Run) -> Vec<Finding> {
    let all = single_depth(run, WRITES);
    let Some(of_shape) = all.first().map(|(group, _)| shape(group)) else { return Vec::new() };
    let same = all.iter().filter(|(group, _)| shape(group) == of_shape);
    same.map(|(group, p50)| Finding::Write {
        job: of_shape.clone(),
        storage: storage(group),
        p50: time(p50),
        note: source_text(group, (WRITES, P50)),
    })
    .collect()
}

/// Latencies of open loops, if nothing else was measured.
pub(crate) fn at_rates(run: &Run) -> Vec<Finding> {
    let of = |group: &Group<'_>| {
        let ops = match group.classes().as_slice() {
            [READS] => READS,
            [WRITES] => WRITES,
            _ => Ops::All,
        };
        Some(Finding::AtRate {
            job: shape(group),
            rate: group.first.point.get("rate")?.clone(),
            storage: storage(group),
            p99: time(&group.percentile(ops, 99.0).ok()?),
            note: source_text(group, (ops, P99)),
        })
    };
    let all = groups(run);
    let due = all.iter().filter(|group| group.first.engine == "block" && group.is_open_loop());
    due.filter_map(of).take(AT_RATES).collect()
}

/// How far each stack can be loaded before latency grows.
pub(crate) fn knees(run: &Run) -> Vec<Finding> {
    let mut found = Vec::new();
    for curve in curves(run) {
        let Some(growth) = curve.growth() else { continue };
        let Some(grown) = growth.growth else { continue };
        let group = &curve.points[0].group;
        let knee = &curve.points[growth.knee];
        let at = match curve.load {
            Load::Depth | Load::Threads => format!("knee at {}", load(&knee.group)),
            Load::Offered => "by offered load".to_owned(),
        };
        // If the submitting thread limits the rate, latency grows because of it and not because of the drive.
        let source = match knee.group.worth("iops") {
            Some(PredictionError::HostBound) => source_text(&knee.group, (READS, "iops")),
            _ => source_text(group, (READS, "latency_growth_95")),
        };
        found.push(Finding::Knee {
            storage: storage(group),
            rate: knee.rate.value,
            job: shape(group),
            growth: grown.value + 1.0,
            note: format!("{at}; {source}"),
        });
    }
    found
}

/// The effect of writes on p99 read latency, the worst of several mixes; the storage that changes most first.
pub(crate) fn mixes(run: &Run) -> Vec<Finding> {
    let all = groups(run);
    let mut worst: Vec<(Estimate, &Group<'_>)> = Vec::new();
    for group in &all {
        let act = group.first.point.contains_key("read_reqs_per_sec");
        if group.first.engine != "block" || act || !group.classes().contains(&Ops::All) {
            continue;
        }
        let Ok(p99) = group.percentile(READS, 99.0) else { continue };
        match worst.iter_mut().find(|(_, other)| other.first.stack == group.first.stack) {
            Some(entry) if entry.0.value >= p99.value => {}
            Some(entry) => *entry = (p99, group),
            None => worst.push((p99, group)),
        }
    }
    let of = |(p99, group): &(Estimate, &Group<'_>)| {
        let reads = group.first.point.get("read_share").and_then(|one| one.parse::<Share>().ok());
        let writes = reads.map_or(0.0, |share| 100.0 - share.percent());
        // The same job without writes, if it ran.
        let alone = all.iter().find(|other| {
            let mut point = group.first.point.clone();
            point.insert("read_share".into(), "100%".into());
            other.first.stack == group.first.stack
                && other.first.experiment == group.first.experiment
                && other.first.point == point
        });
        let alone = alone.and_then(|other| other.percentile(READS, 99.0).ok());
        let factor = alone.map_or(0.0, |alone| p99.value / alone.value.max(1.0));
        let made = Finding::Mixed {
            writes: format!("{writes:.0$} %", usize::from(writes < 1.0)),
            storage: storage(group),
            alone: alone.map(|p99| Nanos(p99.value as u64)),
            p99: Nanos(p99.value as u64),
            least: None,
            note: source_text(group, (READS, P99)),
        };
        (factor, storage(group), made)
    };
    let mut found: Vec<(f64, String, Finding)> = worst.iter().map(of).collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    let last = found.iter().skip(1).rfind(|(factor, ..)| *factor > 0.0);
    let last = last.map(|(factor, name, _)| (*factor, name.clone()));
    if let Some((_, _, Finding::Mixed { least, .. })) = found.first_mut() {
        *least = last;
    }
    found.into_iter().map(|(.., finding)| finding).collect()
}

/// Latency of one request and the highest IOPS of each stack.
pub(crate) fn devices(run: &Run) -> Vec<Finding> {
    let all = groups(run);
    let single = single_depth(run, READS);
    let of_stack = |stack: &archive::StackRecord| {
        let (one, p50) = single.iter().find(|(group, _)| group.first.stack == stack.name)?;
        let own = all.iter().filter(|group| {
            group.first.stack == stack.name && group.first.engine == "block" && group.is_sound()
        });
        // Large and sequential reads are other jobs.
        let same = |group: &&Group<'_>| group.classes() == [READS] && shape(group) == shape(one);
        let reads: Vec<&Group<'_>> = own.filter(same).collect();
        let rates = reads.iter().filter_map(|group| Some(group.rate(READS)?.value));
        Some(Finding::Device {
            storage: storage_words(&stack.title),
            job: shape(one),
            p50: time(p50),
            rate: rates.max_by(f64::total_cmp)?,
            note: format!("median; {}", source_text(one, (READS, P50))),
        })
    };
    run.header.stacks.iter().filter_map(of_stack).collect()
}

/// What the mean time of one request consists of, for each storage that read at depth 1.
pub(crate) fn breakdowns(run: &Run) -> Vec<Finding> {
    let of = |group: &Group<'_>| {
        let parts = time_parts(group, READS)?;
        Some(Finding::Breakdown {
            storage: storage(group),
            job: format!("{} reads", shape(group)),
            time: parts.whole.to_string(),
            drive: parts.drive_share()?,
            hop: parts.share(Part::Hop),
            note: source_text(group, (READS, "latency_mean")),
        })
    };
    let alone = |group: &&Group<'_>| {
        let block = group.first.engine == "block" && group.is_sound();
        block && in_flight(group) == 1 && group.classes() == [READS]
    };
    groups(run).iter().filter(alone).filter_map(of).collect()
}

/// Reads with and without background clients, experiment by experiment.
pub(crate) fn read_tails(run: &Run) -> Vec<Finding> {
    let loaded = |group: &Group<'_>| {
        let with = [OpClass::BackgroundRead, OpClass::BackgroundWrite];
        with.iter().any(|class| group.classes().contains(&Ops::Only(*class)))
    };
    let all = groups(run);
    let alike = |group: &&Group<'_>| {
        let act = group.first.point.contains_key("read_reqs_per_sec");
        let shape = |other: &Group<'_>| {
            let mut point = other.first.point.clone();
            point.remove("beside");
            point
        };
        !act && all.iter().any(|other| loaded(other) && shape(other) == shape(group))
    };
    let of = |group: &Group<'_>| {
        let p99 = group.percentile(READS, 99.0).ok()?;
        let title = experiment_title(group);
        Some(Finding::ReadTail {
            job: format!("{title}, queue depth {}", depth_of(group)),
            storage: storage(group),
            p99: time(&p99),
            note: source_text(group, (READS, P99)),
        })
    };
    all.iter().filter(alike).filter_map(of).collect()
}

/// The cost of durable writes.
pub(crate) fn flushes(run: &Run) -> Vec<Finding> {
    let flushes = Ops::Only(OpClass::Sync);
    let mut stacks: Vec<String> = Vec::new();
    let mut found = Vec::new();
    for group in groups(run) {
        let (Ok(p50), Ok(p99)) = (group.percentile(flushes, 50.0), group.percentile(flushes, 99.0))
        else {
            continue;
        };
        if stacks.contains(&group.first.stack) {
            continue;
        }
        stacks.push(group.first.stack.clone());
        let every = match group.first.point.get("sync_every").map(String::as_str) {
            Some("1") | None => "after each write".to_owned(),
            Some(every) => format!("after every {every} writes"),
        };
        found.push(Finding::Flush {
            every,
            storage: storage(&group),
            p50: time(&p50),
            p99: time(&p99),
            note: format!("median; {}", source_text(&group, (flushes, P50))),
        });
    }
    found
}

/// The ACT ratings passed, by stack and phase.
pub(crate) fn ratings(run: &Run) -> Vec<Finding> {
    let tests = act_tests(run);
    let all = groups(run);
    let mut found: Vec<(String, String, Ratings)> = Vec::new();
    for test in &tests {
        let Some(rating) = test.config.rating() else { continue };
        let stack = run.header.stacks.iter().find(|stack| stack.name == test.trial.stack);
        let title = stack.map_or_else(String::new, |stack| storage_words(&stack.title));
        let phase = match test.trial.point.get("arrivals").map(String::as_str) {
            Some("act") => "ACT's phase",
            _ => "independent requests",
        };
        let own =
            |group: &&Group<'_>| group.trials.iter().any(|trial| trial.number == test.trial.number);
        let source = all.iter().find(own).map_or_else(
            || test.trial.source.to_string(),
            // No share of late reads is published.
            |group| source_text(group, (READS, "act")),
        );
        let slice = if test.covers_a_slice() { "" } else { ", shorter than one slice" };
        let note = format!("{phase}{slice}; {source}");
        let place = found.iter().position(|(own, of, _)| *own == title && *of == note);
        let place = place.unwrap_or_else(|| {
            found.push((title, note, Ratings { passed: Vec::new(), failed: Vec::new() }));
            found.len() - 1
        });
        let ratings = &mut found[place].2;
        if test.verdict.passed { &mut ratings.passed } else { &mut ratings.failed }.push(rating);
    }
    let of = |(storage, note, ratings)| Finding::Act { storage, ratings, note };
    found.into_iter().map(of).collect()
}
