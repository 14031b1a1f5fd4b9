//! The answer in words: what the first screen says before any picture.
//!
//! Every sentence is made from figures of the run and names its source. Invariant: says nothing that the
//! run did not measure or predict.

use archive::{Run, TrialOutcome, TrialRecord};
use stats::Limit;
use stats::estimate::Estimate;
use study::Finding;
use units::{Bytes, Nanos, human_count};
use validate::Worth;
use workload::OpClass;

use crate::act_answer::act_sentence;
use crate::chart::short;
use crate::headline::{decision_sentence, over_all};
use crate::sql_answer::{cliff_sentence, memory_sentence, race_sentences};
use crate::stacks_answer::{engines_sentence, fabric_sentence, stall_sentence};
use analysis::decision::{Decision, decisions, single_depth};
use analysis::doubts::{Doubt, doubts};
use analysis::knee::{Load, THREADS, curves};
use analysis::{Group, Ops, act_tests, depth_of, groups, in_flight};

/// The answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    /// One sentence.
    pub headline: String,
    /// What belongs beside it; may be empty.
    pub lead: String,
    /// What spoils its figures; stands beside it.
    pub doubts: Vec<Doubt>,
    /// More, most important first.
    pub points: Vec<String>,
}

/// Metrics of figures.
const P50: &str = "latency_p50";
const P99: &str = "latency_p99";

const READS: Ops = Ops::Only(OpClass::Read);
const WRITES: Ops = Ops::Only(OpClass::Write);

/// More tests than this are reported together only.
const TESTS_TOLD: usize = 8;

/// The answer in one sentence, for a terminal, and what spoils its figures.
#[must_use]
pub fn headline(run: &Run) -> (String, Vec<String>) {
    let answer = answer(run, &decisions(run));
    (answer.headline, answer.doubts.iter().map(Doubt::sentence).collect())
}

/// Writes the answer for one run.
pub(crate) fn answer(run: &Run, decisions: &[Decision<'_>]) -> Answer {
    let mut points = Vec::new();
    let own = run.study.answer.and_then(|finding| found(run, finding));
    // A race is run for who wins it.
    let own = own.or_else(|| race_sentences(run).into_iter().next());
    // Of each engine the first: the others stand in the table.
    let mut engines: Vec<&str> = Vec::new();
    let decided = decisions.iter().filter(|one| {
        let engine = one.first().engine.as_str();
        let new = !engines.contains(&engine);
        engines.push(engine);
        new
    });
    let mut decided = decided.map(decision_sentence);
    let (headline, lead) = match &own {
        Some(sentence) => split(sentence),
        None => {
            let (sentence, lead) = decided.next().unwrap_or_default();
            // One of several jobs is not the answer to all of them.
            let all = over_all(run, decisions).unwrap_or_default();
            let lead = [all, lead].into_iter().filter(|one| !one.is_empty());
            (sentence, lead.collect::<Vec<_>>().join(" "))
        }
    };
    points.extend(decided.map(|(sentence, _)| sentence));
    points.extend(race_sentences(run));
    points.extend(stall_sentence(run));
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
    points.extend(cliff_sentence(run));
    // A headline that was split stands there whole already.
    points.retain(|point| *point != headline && Some(point) != own.as_ref());
    let headline = match headline.is_empty() {
        false => headline,
        true if points.is_empty() => rated_sentence(run).unwrap_or_else(|| nothing_sentence(run)),
        true => points.remove(0),
    };
    Answer { headline, lead, doubts: doubts(run), points }
}

/// Characters of a headline that one reads at a glance.
const HEADLINE_MAX: usize = 260;

/// The parts between semicolons, those within brackets left alone.
fn outside_brackets(sentence: &str) -> Vec<&str> {
    let (mut parts, mut from, mut depth) = (Vec::new(), 0, 0_u32);
    for (at, letter) in sentence.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ';' if depth == 0 && sentence[at..].starts_with("; ") => {
                parts.push(&sentence[from..at]);
                from = at + 2;
            }
            _ => {}
        }
    }
    parts.push(&sentence[from..]);
    parts
}

/// A sentence with a part for each storage: as many as one reads at a glance, and the others.
fn split(sentence: &str) -> (String, String) {
    let mut taken = 0;
    let parts = outside_brackets(sentence.trim_end_matches('.'));
    for (count, part) in parts.iter().enumerate() {
        taken += part.len();
        if count > 0 && taken > HEADLINE_MAX {
            let (first, rest) = parts.split_at(count);
            let rest = rest.join("; ");
            let (initial, left) = rest.split_at(rest.chars().next().map_or(0, char::len_utf8));
            let rest = format!("{}{left}.", initial.to_uppercase());
            return (format!("{}.", first.join("; ")), rest);
        }
    }
    (sentence.to_owned(), String::new())
}

/// The sentence that a study asks for; none where its trials do not say it.
fn found(run: &Run, finding: Finding) -> Option<String> {
    match finding {
        Finding::Growth => growth_sentence(run),
        Finding::Mixes => mix_sentence(run),
        Finding::Ratings => act_sentence(run),
        Finding::Flushes => flush_sentence(run),
        Finding::Race => race_sentences(run).into_iter().next(),
        Finding::Stalls => stall_sentence(run),
        Finding::Memory => memory_sentence(run),
        Finding::Fabric => fabric_sentence(run),
        Finding::Rates => depth_sentence(run),
        Finding::Engines => engines_sentence(run),
        Finding::Device => device_sentence(run),
    }
}

/// Why there is no answer.
fn nothing_sentence(run: &Run) -> String {
    let failed: Vec<_> =
        run.trials.iter().filter(|trial| trial.outcome == TrialOutcome::Failed).collect();
    let reason = failed.iter().find_map(|trial| trial.result.failure.as_deref());
    match (failed.len(), reason) {
        (0, _) if run.trials.is_empty() => "No trial has finished yet.".into(),
        (0, _) if run.trials.iter().all(no_operation) => {
            "No operation completed while it was measured: the times are longer than the trials. \
             Measure for longer: --set experiment.*.duration=60s."
                .into()
        }
        (0, _) => "No trial answers in one sentence; see the figures.".into(),
        (count, reason) => format!(
            "No trial gave an answer; {count} failed: {}",
            reason.unwrap_or("no reason was recorded")
        ),
    }
}

/// Whether a trial saw no operation end.
fn no_operation(trial: &TrialRecord) -> bool {
    trial.result.recording.counts(None).ops == 0
}

/// `, one of 16 threads` where there are several.
fn threads_text(group: &Group<'_>) -> String {
    match group.first.point.get("clients") {
        Some(threads) => format!(", one of {threads} threads,"),
        None => String::new(),
    }
}

/// `>=` where operations that never ended reach it.
fn time(estimate: &Estimate) -> String {
    format!("{}{}", if estimate.at_least { ">=" } else { "" }, Nanos(estimate.value as u64))
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
        // The rate at that depth, and the highest where it is another number.
        let highest = match human_count(most) == human_count(*rate) {
            true => String::new(),
            false => format!("; highest {}", human_count(most)),
        };
        parts.push(format!(
            "{} {} IOPS{highest}, at {}depth {} ({}{})",
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
            "Rate of {of_shape} reads at the lowest depth that reaches 95 % of the highest: {parts}.{star}"
        )
    })
}

fn write_sentence(run: &Run) -> Option<String> {
    let writes = single_depth(run, WRITES);
    let (first, _) = writes.first()?;
    let of_shape = shape(first);
    let same = writes.iter().filter(|(group, _)| shape(group) == of_shape);
    let parts: Vec<String> = same
        .map(|(group, p50)| {
            let (title, source) = (short(group.stack_title()), group.source_text(P50));
            format!("{title} {} ({source})", time(p50))
        })
        .collect();
    let threads = threads_text(first);
    let threads = threads.trim_end_matches(',');
    Some(format!("A {of_shape} write{threads} without reads takes (median): {}.", parts.join("; ")))
}

/// What operations that were due by a schedule took, where nothing else was asked.
fn rated_sentence(run: &Run) -> Option<String> {
    let all = groups(run);
    let part = |group: &Group<'_>| {
        let (ops, word) = match group.classes().as_slice() {
            [READS] => (READS, "read"),
            [WRITES] => (WRITES, "write"),
            _ => (Ops::All, "operation"),
        };
        let p99 = group.percentile(ops, 99.0).ok()?;
        let (title, rate) = (short(group.stack_title()), group.first.point.get("rate")?);
        let (of_shape, source) = (shape(group), group.source_text(P99));
        Some(format!(
            "{title} at {rate}: 1 {of_shape} {word} in 100 takes over {} ({source})",
            time(&p99)
        ))
    };
    let due = |group: &&Group<'_>| group.first.engine == "block" && group.is_open_loop();
    let parts: Vec<String> = all.iter().filter(due).filter_map(part).take(4).collect();
    (!parts.is_empty()).then(|| format!("{}.", parts.join("; ")))
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
            Load::Depth => ("queue depth", format!("depth {}", depth_of(&knee.group))),
            Load::Threads => {
                let threads = knee.group.first.point.get(THREADS).map_or("1", String::as_str);
                ("threads", format!("{threads} threads"))
            }
            Load::Offered => ("offered load", format!("{}/s", human_count(knee.rate.value))),
        };
        // Where the submitting thread sets the rate, latency grows for its sake and not for the drive's.
        let source = match knee.group.worth("iops") {
            Some(Worth::HostBound) => knee.group.source_text("iops"),
            _ => group.source_text("latency_growth_95"),
        };
        parts.push(format!(
            "{} takes {} {} operations/s before latency grows (by {how}, knee at {place}); at 95 % of \
             its highest rate one takes {} the lowest load ({})",
            short(group.stack_title()),
            human_count(knee.rate.value),
            shape(group),
            growth_text(grown.value),
            source,
        ));
    }
    (!parts.is_empty()).then(|| format!("{}.", parts.join("; ")))
}

/// `25 % longer than at`, or `13 times as long as at` where percent would be hard to read.
fn growth_text(growth: f64) -> String {
    match growth {
        _ if growth < 0.0 => format!("{:.0} % less than at", growth * -100.0),
        _ if growth < 10.0 => format!("{:.0} % longer than at", growth * 100.0),
        _ => format!("{:.0} times as long as at", growth + 1.0),
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
    let all = groups(run);
    let parts: Vec<String> = worst
        .iter()
        .map(|(stack, p99, group)| {
            let (title, source) = (short(group.stack_title()), group.source_text(P99));
            let share = group.first.point.get("read_share").map_or("", String::as_str);
            // The same without writes, where that ran.
            let alone = all.iter().find(|other| {
                let mut point = group.first.point.clone();
                point.insert("read_share".into(), "100%".into());
                other.first.stack == *stack
                    && other.first.experiment == group.first.experiment
                    && other.first.point == point
            });
            let alone = alone.and_then(|other| other.percentile(READS, 99.0).ok());
            let alone =
                alone.map_or_else(String::new, |p99| format!(" instead of {} alone", time(&p99)));
            format!("{title} {}{alone} (at {share} reads; {source})", time(p99))
        })
        .collect();
    (!parts.is_empty())
        .then(|| format!("With writes beside them 1 read in 100 takes over: {}.", parts.join("; ")))
}

/// One request, large requests, many requests: what each stack gives of each.
fn device_sentence(run: &Run) -> Option<String> {
    let all = groups(run);
    let of_stack = |stack: &archive::StackRecord| {
        let own = || {
            let own = all.iter().filter(|group| group.first.stack == stack.name);
            own.filter(|group| group.first.engine == "block" && group.is_sound())
        };
        let single = single_depth(run, READS);
        let (one, p50) = single.iter().find(|(group, _)| group.first.stack == stack.name)?;
        // Each number is worth what its own job is.
        let most = |of: &dyn Fn(&Group<'_>) -> Option<f64>, metric| {
            let reads = own().filter(|group| group.classes() == [READS]);
            let most = reads.filter_map(|group| Some((of(group)?, group)));
            let (value, group) = most.max_by(|a, b| a.0.total_cmp(&b.0))?;
            Some((value, group.source_text(metric)))
        };
        let (rate, of_rate) = most(&|group| Some(group.rate(READS)?.value), "iops")?;
        let (bytes, of_bytes) = most(&|group| Some(group.throughput(READS)?.value), "throughput")?;
        Some(format!(
            "{} takes {} for one {} read (median; {}), reads up to {}/s ({of_bytes}) and {} times a \
             second ({of_rate})",
            short(&stack.title),
            time(p50),
            shape(one),
            one.source_text(P50),
            Bytes(bytes as u64),
            human_count(rate),
        ))
    };
    let parts: Vec<String> = run.header.stacks.iter().filter_map(of_stack).collect();
    (!parts.is_empty()).then(|| format!("{}.", parts.join("; ")))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A headline that ends in the middle of a bracket says nothing of what it is worth.
    #[test]
    fn a_long_sentence_is_cut_between_its_parts_alone() {
        assert_eq!(outside_brackets("a (b; c); d"), ["a (b; c)", "d"]);
        assert_eq!(outside_brackets("a"), ["a"]);
        let long = format!("{} (x; y); {}.", "a".repeat(200), "b".repeat(200));
        let (head, rest) = split(&long);
        assert!(head.ends_with("(x; y).") && rest.starts_with('B'), "{head} {rest}");
    }
}
