//! The answer in words: what the first screen says before any picture.
//!
//! Every sentence is made from figures of the run and names its source. Invariant: says nothing that
//! the run did not measure or predict. What it is not: advice.

use archive::{NOTE_THREAD_LIMIT, Run};
use units::{Bytes, Nanos, human_count};
use workload::OpClass;

use crate::groups::{Group, Ops, groups};

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    /// One sentence.
    pub headline: String,
    /// More, most important first.
    pub points: Vec<String>,
}

const READS: Ops = Ops::Only(OpClass::Read);
const WRITES: Ops = Ops::Only(OpClass::Write);

/// One stack's random reads at its lowest queue depth.
pub(crate) struct Single<'a> {
    pub group: Group<'a>,
    pub p50_ns: f64,
}

/// Groups of `ops` alone at the lowest queue depth, one for each stack, in the order of the study.
pub(crate) fn single_depth(run: &Run, ops: Ops) -> Vec<Single<'_>> {
    let mut found: Vec<(u64, Single<'_>)> = Vec::new();
    for group in groups(run) {
        let depth = depth_of(&group);
        if group.first.engine != "block" || group.is_open_loop() || group.classes() != [ops] {
            continue;
        }
        let Ok(p50) = group.percentile(ops, 50.0) else {
            continue;
        };
        let single = Single { p50_ns: p50.value, group };
        let stack = &single.group.first.stack;
        match found.iter().position(|(_, other)| other.group.first.stack == *stack) {
            Some(place) if found[place].0 > depth => found[place] = (depth, single),
            Some(_) => {}
            None => found.push((depth, single)),
        }
    }
    found.into_iter().map(|(_, single)| single).collect()
}

pub(crate) fn depth_of(group: &Group<'_>) -> u64 {
    group.first.point.get("queue_depth").and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Writes the answer for one run.
pub(crate) fn answer(run: &Run) -> Answer {
    let reads = single_depth(run, READS);
    let mut points = Vec::new();
    points.extend(depth_sentence(run));
    points.extend(write_sentence(run));
    points.extend(mix_sentence(run));
    points.extend(database_sentences(run));
    let headline = headline(&reads).unwrap_or_else(|| {
        if points.is_empty() { "No trial has finished yet.".into() } else { points.remove(0) }
    });
    Answer { headline, points }
}

fn time(ns: f64) -> String {
    Nanos(ns as u64).to_string()
}

fn ratio(ratio: f64) -> String {
    if ratio >= 10.0 { format!("{ratio:.0}x") } else { format!("{ratio:.1}x") }
}

fn headline(reads: &[Single<'_>]) -> Option<String> {
    let here = reads.iter().find(|s| s.group.first.source == "measured").or(reads.first())?;
    let depth = depth_of(&here.group);
    let size = here.group.first.point.get("block_size").and_then(|text| text.parse::<Bytes>().ok());
    let size = size.map_or_else(|| "one".into(), |size| size.to_string());
    let mut text = format!(
        "{}: a {size} random read at queue depth {depth} takes {} (median, {}).",
        here.group.stack_title(),
        time(here.p50_ns),
        here.group.first.source,
    );
    let others = reads.iter().filter(|other| other.group.first.stack != here.group.first.stack);
    let compared: Vec<String> = others
        .map(|other| {
            let (faster, word) = if other.p50_ns <= here.p50_ns {
                (here.p50_ns / other.p50_ns, "faster")
            } else {
                (other.p50_ns / here.p50_ns, "slower")
            };
            let by =
                if faster < 1.05 { "as fast".into() } else { format!("{} {word}", ratio(faster)) };
            let (title, source) = (short(other.group.stack_title()), other.group.source_text());
            format!("{title} {} ({by}; {source})", time(other.p50_ns))
        })
        .collect();
    if !compared.is_empty() {
        text.push_str(&format!(" In its place: {}.", compared.join("; ")));
    }
    Some(text)
}

/// A title without what stands in parentheses.
pub(crate) fn short(title: &str) -> &str {
    title.split(" (").next().unwrap_or(title)
}

/// The largest rate over queue depth on each stack.
fn depth_sentence(run: &Run) -> Option<String> {
    let mut best: Vec<(String, f64, u64, String)> = Vec::new();
    let mut thread_limited = false;
    for group in groups(run) {
        if group.first.engine != "block" || group.is_open_loop() || group.classes() != [READS] {
            continue;
        }
        let Some(rate) = group.rate(READS) else {
            continue;
        };
        let (title, depth) = (short(group.stack_title()).to_owned(), depth_of(&group));
        let limited = group.first.notes.iter().any(|note| note.contains(NOTE_THREAD_LIMIT));
        thread_limited |= limited;
        let source = group.source_text() + if limited { "*" } else { "" };
        match best.iter_mut().find(|(other, ..)| *other == title) {
            Some(entry) if entry.1 < rate.value => {
                (entry.1, entry.2, entry.3) = (rate.value, depth, source);
            }
            Some(_) => {}
            None => best.push((title, rate.value, depth, source)),
        }
    }
    if best.iter().all(|(_, _, depth, _)| *depth <= 1) {
        return None;
    }
    let parts: Vec<String> = best
        .iter()
        .map(|(title, rate, depth, source)| {
            format!("{title} {} IOPS at depth {depth} ({source})", human_count(*rate))
        })
        .collect();
    let star = if thread_limited { format!(" * {NOTE_THREAD_LIMIT}.") } else { String::new() };
    Some(format!("Highest rate of random reads: {}.{star}", parts.join("; ")))
}

fn write_sentence(run: &Run) -> Option<String> {
    let writes = single_depth(run, WRITES);
    let parts: Vec<String> = writes
        .iter()
        .map(|single| {
            let (title, source) = (short(single.group.stack_title()), single.group.source_text());
            format!("{title} {} ({source})", time(single.p50_ns))
        })
        .collect();
    (!parts.is_empty())
        .then(|| format!("A random write alone takes (median): {}.", parts.join("; ")))
}

/// What writes beside them do to the 99th percentile of reads.
fn mix_sentence(run: &Run) -> Option<String> {
    let mut parts = Vec::new();
    for group in groups(run) {
        if group.first.engine != "block" || !group.classes().contains(&Ops::All) {
            continue;
        }
        if let Ok(p99) = group.percentile(READS, 99.0) {
            let (title, source) = (short(group.stack_title()).to_owned(), group.source_text());
            parts.push(format!("{title} {} ({source})", time(p99.value)));
        }
    }
    (!parts.is_empty()).then(|| {
        format!("With writes beside them, 1 read in 100 takes longer than: {}.", parts.join("; "))
    })
}

fn database_sentences(run: &Run) -> Vec<String> {
    let mut best: Vec<(String, String)> = Vec::new();
    for group in groups(run) {
        if group.first.engine == "block" {
            continue;
        }
        let (Some(reads), Some(writes)) = (group.rate(READS), group.rate(WRITES)) else {
            continue;
        };
        let readers = group.first.point.get("readers").cloned().unwrap_or_default();
        let durability = group.first.point.get("durability").cloned().unwrap_or_default();
        let commit = group.percentile(WRITES, 50.0).map_or_else(|_| "-".into(), |e| time(e.value));
        let sentence = format!(
            "{} on {} with {readers} readers: {} lookups/s beside {} updates/s (durability {durability}, \
             median commit {commit}; measured).",
            group.first.engine.to_uppercase().replace("SQLITE", "SQLite"),
            short(group.stack_title()),
            human_count(reads.value),
            human_count(writes.value),
        );
        // The last one of an engine has the most readers.
        let key = format!("{} {}", group.first.engine, group.first.stack);
        match best.iter_mut().find(|(other, _)| *other == key) {
            Some(entry) => entry.1 = sentence,
            None => best.push((key, sentence)),
        }
    }
    best.into_iter().map(|(_, sentence)| sentence).collect()
}
