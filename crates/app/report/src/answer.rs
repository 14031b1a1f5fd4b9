//! The answer in words: what the first screen says before any picture.
//!
//! Every sentence is made from figures of the run and names its source. Invariant: says nothing that
//! the run did not measure or predict. What it is not: advice.

use archive::{Run, TrialOutcome};
use stats::Limit;
use stats::estimate::Estimate;
use study::Source;
use units::{Bytes, Nanos, human_count};
use workload::OpClass;

use crate::chart::short;
use crate::drives::{drive_sentences, engine_title};
use crate::faster::compared;
use crate::sql_answer::sql_sentences;
use analysis::doubts::{Doubt, doubts};
use analysis::knee::{Load, THREADS, curves};
use analysis::{Group, Ops, act_tests, depth_of, groups, is_sql};

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    /// One sentence.
    pub headline: String,
    /// What spoils its figures; stands beside it.
    pub doubts: Vec<String>,
    /// More, most important first.
    pub points: Vec<String>,
}

/// Metrics of figures.
const P50: &str = "latency_p50";
const P99: &str = "latency_p99";

const READS: Ops = Ops::Only(OpClass::Read);
const WRITES: Ops = Ops::Only(OpClass::Write);

/// One stack's random reads at its lowest queue depth.
pub(crate) struct Single<'a> {
    pub group: Group<'a>,
    pub p50: Estimate,
}

/// Groups of `ops` alone at the lowest queue depth, one for each stack, in the order of the study.
pub(crate) fn single_depth(run: &Run, ops: Ops) -> Vec<Single<'_>> {
    let mut found: Vec<(u64, Single<'_>)> = Vec::new();
    for group in groups(run) {
        let depth = in_flight(&group);
        let durable = group.first.point.contains_key("dsync");
        if group.first.engine != "block" || group.is_open_loop() || durable || !group.is_sound() {
            continue;
        }
        if group.classes() != [ops] {
            continue;
        }
        let Ok(p50) = group.percentile(ops, 50.0) else {
            continue;
        };
        let single = Single { p50, group };
        let stack = &single.group.first.stack;
        match found.iter().position(|(_, other)| other.group.first.stack == *stack) {
            Some(place) if found[place].0 > depth => found[place] = (depth, single),
            Some(_) => {}
            None => found.push((depth, single)),
        }
    }
    // What another experiment did to a stack with more in flight is no answer of one operation.
    let least = found.iter().map(|(depth, _)| *depth).min();
    let least = found.into_iter().filter(|(depth, _)| Some(*depth) == least);
    least.map(|(_, single)| single).collect()
}

/// More tests than this are told of together only.
const TESTS_TOLD: usize = 8;

/// Operations in flight of all threads.
fn in_flight(group: &Group<'_>) -> u64 {
    let threads = group.first.point.get(THREADS).and_then(|text| text.parse().ok());
    depth_of(group) * threads.unwrap_or(1)
}

/// The answer in one sentence, for a terminal, and what spoils its figures.
#[must_use]
pub fn headline(run: &Run) -> (String, Vec<String>) {
    let answer = answer(run);
    (answer.headline, answer.doubts)
}

/// Writes the answer for one run.
pub(crate) fn answer(run: &Run) -> Answer {
    let reads = single_depth(run, READS);
    let mut points = Vec::new();
    points.extend(depth_sentence(run));
    points.extend(growth_sentence(run));
    points.extend(write_sentence(run));
    points.extend(mix_sentence(run));
    points.extend(flush_sentence(run));
    points.extend(beside_sentence(run));
    points.extend(act_sentence(run));
    let tests = act_tests(run);
    if tests.len() <= TESTS_TOLD {
        points.extend(tests.iter().map(|test| format!("ACT {}", test.sentence())));
    }
    // What a database does on several drives says more than what it does on each.
    let mut drives = drive_sentences(run);
    if drives.is_empty() {
        points.extend(database_sentences(run));
    }
    points.extend(sql_sentences(run, drives.is_empty()));
    let single = single_sentence(&reads);
    let headline = if drives.is_empty() {
        single.unwrap_or_else(|| {
            if points.is_empty() { nothing_sentence(run) } else { points.remove(0) }
        })
    } else {
        points.splice(0..0, single);
        points.splice(0..0, drives.drain(1..));
        drives.remove(0)
    };
    let doubts = doubts(run).iter().map(Doubt::sentence).collect();
    Answer { headline, doubts, points }
}

/// Why there is no answer.
fn nothing_sentence(run: &Run) -> String {
    let failed: Vec<_> =
        run.trials.iter().filter(|trial| trial.outcome == TrialOutcome::Failed).collect();
    let reason = failed.iter().find_map(|trial| trial.result.failure.as_deref());
    match (failed.len(), reason) {
        (0, _) if run.trials.is_empty() => "No trial has finished yet.".into(),
        (0, _) => "No trial answers in one sentence; see the figures.".into(),
        (count, reason) => format!(
            "No trial gave an answer; {count} failed: {}",
            reason.unwrap_or("no reason was recorded")
        ),
    }
}

/// `, one of 16 threads` where there are several.
fn threads_text(group: &Group<'_>) -> String {
    match group.first.point.get("threads") {
        Some(threads) => format!(", one of {threads} threads,"),
        None => String::new(),
    }
}

/// `>=` where operations that never ended reach it.
fn time(estimate: &Estimate) -> String {
    format!("{}{}", if estimate.at_least { ">=" } else { "" }, Nanos(estimate.value as u64))
}

fn single_sentence(reads: &[Single<'_>]) -> Option<String> {
    let here = reads.iter().find(|s| s.group.first.source == Source::Measured).or(reads.first())?;
    let (depth, shape) = (depth_of(&here.group), shape(&here.group));
    let mut text = format!(
        "{}: a {shape} read at queue depth {depth}{} takes {} (median, {}).",
        here.group.stack_title(),
        threads_text(&here.group),
        time(&here.p50),
        here.group.source_text(P50),
    );
    let others = reads.iter().filter(|other| {
        other.group.first.stack != here.group.first.stack && depth_of(&other.group) == depth
    });
    let compared: Vec<String> = others
        .map(|other| {
            let (title, source) = (short(other.group.stack_title()), other.group.source_text(P50));
            let measured =
                [here, other].iter().all(|one| one.group.first.source == Source::Measured);
            let by = compared(&here.p50, &other.p50, measured);
            format!("{title} {} ({by}; {source})", time(&other.p50))
        })
        .collect();
    if !compared.is_empty() {
        text.push_str(&format!(
            " In its place, on the hosts that their models assume: {}.",
            compared.join("; ")
        ));
    }
    Some(text)
}

/// Size and pattern of a block group: `4 KiB random`.
fn shape(group: &Group<'_>) -> String {
    let text = |name: &str| group.first.point.get(name).cloned().unwrap_or_default();
    let size =
        text("block_size").parse::<Bytes>().map_or_else(|_| String::new(), |b| b.to_string());
    format!("{size} {}", text("pattern")).trim().to_owned()
}

/// Share of the largest rate at which a queue depth counts as enough.
const ENOUGH: f64 = 0.95;

/// What each stack gives, at the lowest queue depth that gives (nearly) the most.
fn depth_sentence(run: &Run) -> Option<String> {
    let all = groups(run);
    let reads = |group: &&Group<'_>| {
        group.first.engine == "block" && !group.is_open_loop() && group.classes() == [READS]
    };
    let of_shape = shape(all.iter().find(reads)?);
    let mut parts = Vec::new();
    let (mut thread_limited, mut deep) = (false, false);
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
        let limited = group.first.result.is_host_bound();
        thread_limited |= limited;
        parts.push(format!(
            "{} {} IOPS at {}depth {} ({}{})",
            short(group.stack_title()),
            human_count(*rate),
            group.first.point.get(THREADS).map_or(String::new(), |n| format!("{n} threads x ")),
            depth_of(group),
            group.source_text("iops"),
            if limited { "; *" } else { "" },
        ));
    }
    let star = if thread_limited { format!(" * {}.", Limit::THREAD) } else { String::new() };
    let parts = parts.join("; ");
    deep.then(|| {
        format!(
            "Highest rate of {of_shape} reads, at the lowest depth that reaches 95 % of it: {parts}.{star}"
        )
    })
}

fn write_sentence(run: &Run) -> Option<String> {
    let writes = single_depth(run, WRITES);
    let of_shape = shape(&writes.first()?.group);
    let same = writes.iter().filter(|single| shape(&single.group) == of_shape);
    let parts: Vec<String> = same
        .map(|single| {
            let (title, source) =
                (short(single.group.stack_title()), single.group.source_text(P50));
            format!("{title} {} ({source})", time(&single.p50))
        })
        .collect();
    let threads = threads_text(&writes.first()?.group);
    let threads = threads.trim_end_matches(',');
    Some(format!("A {of_shape} write{threads} without reads takes (median): {}.", parts.join("; ")))
}

/// How much latency grows on the way to the highest rate, and where it begins to.
fn growth_sentence(run: &Run) -> Option<String> {
    let mut parts = Vec::new();
    for curve in curves(run) {
        let Some(growth) = curve.growth() else { continue };
        let Some(grown) = growth.growth else { continue };
        let group = &curve.points[0].group;
        let knee = &curve.points[growth.knee];
        let (how, place) = match curve.load {
            Load::Depth => ("by queue depth", format!("depth {}", depth_of(&knee.group))),
            Load::Threads => {
                let threads = knee.group.first.point.get(THREADS).map_or("1", String::as_str);
                ("by threads", format!("{threads} threads"))
            }
            Load::Offered => ("by offered load", format!("{} IOPS", human_count(knee.rate.value))),
        };
        parts.push(format!(
            "{} {} {how}: {} (knee at {place}; {})",
            short(group.stack_title()),
            shape(group),
            growth_text(grown.value),
            group.source_text("latency_growth_95"),
        ));
    }
    (!parts.is_empty()).then(|| {
        format!(
            "Mean latency at 95 % of the highest rate, over that at the lowest load: {}.",
            parts.join("; ")
        )
    })
}

/// `+25 %`, or `13 times` where percent would be hard to read.
fn growth_text(growth: f64) -> String {
    if growth < 10.0 {
        format!("{:+.0} %", growth * 100.0)
    } else {
        format!("{:.0} times", growth + 1.0)
    }
}

/// What writes beside them do to the 99th percentile of reads; of several mixes, at the worst.
fn mix_sentence(run: &Run) -> Option<String> {
    let mut worst: Vec<(String, Estimate, Group<'_>)> = Vec::new();
    for group in groups(run) {
        let act = group.first.point.contains_key("read_reqs_per_sec");
        if group.first.engine != "block" || act || !group.classes().contains(&Ops::All) {
            continue;
        }
        let Ok(p99) = group.percentile(READS, 99.0) else { continue };
        let stack = group.first.stack.clone();
        match worst.iter_mut().find(|(other, ..)| *other == stack) {
            Some(entry) if entry.1.value >= p99.value => {}
            Some(entry) => *entry = (stack, p99, group),
            None => worst.push((stack, p99, group)),
        }
    }
    let parts: Vec<String> = worst
        .iter()
        .map(|(_, p99, group)| {
            let (title, source) = (short(group.stack_title()), group.source_text(P99));
            let share = group.first.point.get("read_share").map_or("", String::as_str);
            format!("{title} {} (at {share} reads; {source})", time(p99))
        })
        .collect();
    (!parts.is_empty()).then(|| {
        format!("With writes beside them, 1 read in 100 takes longer than: {}.", parts.join("; "))
    })
}

/// What reads suffer from clients beside them, experiment by experiment.
fn beside_sentence(run: &Run) -> Option<String> {
    let beside = |group: &Group<'_>| {
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
        !act && all.iter().any(|other| beside(other) && shape(other) == shape(group))
    };
    let parts: Vec<String> = all
        .iter()
        .filter(alike)
        .filter_map(|group| {
            let p99 = group.percentile(READS, 99.0).ok()?;
            let experiment =
                run.study.experiment.iter().find(|one| one.name == group.first.experiment)?;
            let title =
                if experiment.title.is_empty() { &experiment.name } else { &experiment.title };
            let (stack, depth) = (short(group.stack_title()), depth_of(group));
            let source = group.source_text(P99);
            Some(format!("{title}, queue depth {depth}: {} ({stack}, {source})", time(&p99)))
        })
        .collect();
    (!parts.is_empty()).then(|| format!("1 read in 100 takes longer than: {}.", parts.join("; ")))
}

/// Which ratings of ACT passed, by stack and phase.
fn act_sentence(run: &Run) -> Option<String> {
    let mut passed: Vec<(String, Vec<u32>, Vec<u32>)> = Vec::new();
    for test in act_tests(run) {
        let Some(rating) = test.config.rating() else { continue };
        let stack = run.header.stacks.iter().find(|stack| stack.name == test.trial.stack);
        let title = stack.map_or("", |stack| short(&stack.title));
        let phase = match test.trial.point.get("arrivals").map(String::as_str) {
            Some("act") => "in ACT's own phase",
            _ => "with independent requests",
        };
        let key = format!("{title} {phase}");
        let place = passed.iter().position(|(other, ..)| *other == key).unwrap_or_else(|| {
            passed.push((key, Vec::new(), Vec::new()));
            passed.len() - 1
        });
        let entry = &mut passed[place];
        if test.verdict.passed { &mut entry.1 } else { &mut entry.2 }.push(rating);
    }
    let part = |(key, passes, fails): &(String, Vec<u32>, Vec<u32>)| {
        let (most, least) = (passes.iter().max(), fails.iter().min());
        // Ratings that are not in order are told one by one.
        let ordered = most.is_none_or(|most| least.is_none_or(|least| most < least));
        let all = |ratings: &[u32]| {
            ratings.iter().map(|rating| format!("{rating}x")).collect::<Vec<_>>().join(", ")
        };
        match (most, least) {
            (Some(_), Some(_)) if !ordered => {
                format!("{key} passes at {} and FAILS at {}", all(passes), all(fails))
            }
            (Some(most), Some(least)) => {
                format!("{key} passes up to {most}x and FAILS from {least}x on")
            }
            (Some(most), None) => format!("{key} passes at every rating up to {most}x"),
            (None, _) => format!("{key} FAILS at {}", all(fails)),
        }
    };
    let parts: Vec<String> = passed.iter().map(part).collect();
    let short = act_tests(run).iter().any(|test| !test.covers_a_slice());
    let caveat = if short { " Judged on less than one slice of time." } else { "" };
    (!parts.is_empty()).then(|| format!("ACT: {}.{caveat}", parts.join("; ")))
}

/// What making writes durable takes.
fn flush_sentence(run: &Run) -> Option<String> {
    let flushes = Ops::Only(OpClass::Sync);
    let mut parts: Vec<(String, String)> = Vec::new();
    for group in groups(run) {
        let (Ok(p50), Ok(p99)) = (group.percentile(flushes, 50.0), group.percentile(flushes, 99.0))
        else {
            continue;
        };
        let stack = group.first.stack.clone();
        if parts.iter().any(|(other, _)| *other == stack) {
            continue;
        }
        let every = match group.first.point.get("sync_every").map(String::as_str) {
            Some("1") | None => "after each write".to_owned(),
            Some(every) => format!("after every {every} writes"),
        };
        let text = format!(
            "{} {}, 1 in 100 over {} ({every}; {})",
            short(group.stack_title()),
            time(&p50),
            time(&p99),
            group.source_text(P50)
        );
        parts.push((stack, text));
    }
    let parts: Vec<String> = parts.into_iter().map(|(_, text)| text).collect();
    (!parts.is_empty()).then(|| format!("A flush takes (median): {}.", parts.join("; ")))
}

fn database_sentences(run: &Run) -> Vec<String> {
    let mut best: Vec<(String, String)> = Vec::new();
    for group in groups(run) {
        if group.first.engine == "block" || is_sql(group.first) || !group.is_sound() {
            continue;
        }
        let (Some(reads), Some(writes)) = (group.rate(READS), group.rate(WRITES)) else {
            continue;
        };
        let due = if group.is_open_loop() { " from when it was due" } else { "" };
        let readers = group.first.point.get("readers").cloned().unwrap_or_default();
        let durability = group.first.point.get("durability").cloned().unwrap_or_default();
        let commit = group.percentile(WRITES, 50.0).map_or_else(|_| "-".into(), |e| time(&e));
        let engine = engine_title(&group);
        let title = short(group.stack_title());
        let updates = format!(
            "{} updates/s (durability {durability}, median commit {commit}{due}; {})",
            human_count(writes.value),
            group.first.source
        );
        let sentence = match readers.as_str() {
            "0" => format!("{engine} on {title}, a writer alone: {updates}."),
            _ if reads.value == 0.0 => format!("{engine} on {title}: {updates}."),
            _ if writes.value == 0.0 => format!(
                "{engine} on {title} with {readers} readers: {} lookups/s{}{}.",
                human_count(reads.value),
                drift(&group),
                // Of a disk that is here, lookups stand without a word.
                if group.first.source == Source::Emulated { " (emulated)" } else { "" },
            ),
            _ => format!(
                "{engine} on {title} with {readers} readers: {} lookups/s{} beside {updates}.",
                human_count(reads.value),
                drift(&group),
            ),
        };
        // The last one of an engine has the most readers.
        let key = format!("{} {}", group.first.engine, group.first.stack);
        match best.iter_mut().find(|(other, _)| *other == key) {
            Some(entry) => entry.1 = sentence,
            None => best.push((key, sentence)),
        }
    }
    let mut sentences: Vec<String> = best.into_iter().map(|(_, sentence)| sentence).collect();
    let predicted = run.trials.iter().any(|trial| trial.source == Source::Predicted);
    if predicted && !sentences.is_empty() {
        sentences.push(
            "Databases are not predicted yet: with attach = true they run on a live model of another drive."
                .into(),
        );
    }
    sentences
}

/// Change of a rate within the trial from which on its mean alone would mislead.
const DRIFT: f64 = 0.25;

/// What to add to a mean rate that was not steady; nothing if it was. Why is not known.
fn drift(group: &Group<'_>) -> String {
    match group.quarters(READS) {
        Some((first, last)) if (last / first - 1.0).abs() > DRIFT => {
            let (first, last) = (human_count(first), human_count(last));
            format!(
                " on average (not steady: from {first} in the first quarter to {last} in the last)"
            )
        }
        _ => String::new(),
    }
}
