//! Differences between two runs: hosts, storages, stacks and jobs.
//!
//! Invariant: `compare --accept` has a word for every difference except jobs.

use std::collections::{BTreeMap, BTreeSet};

use archive::{Run, StackRecord};
use toml::Value;

use crate::groups::Group;

/// A difference between two sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// What differs: `host kernel`, `stack ssd: mount options`, `reads on ssd: durability`.
    pub what: String,
    /// The word that accepts it; `None` for jobs.
    pub word: Option<String>,
    /// Value of the first side.
    pub first: String,
    /// Value of the second side.
    pub second: String,
}

/// Facts of a host that are not compared: builds are only noted, and load is checked per trial.
const NOT_HOST: [&str; 3] = ["Crosspoint", "Build", "Load at start"];
/// Kernel names of devices change from boot to boot.
const NOT_STORAGE: [&str; 1] = ["Device"];
/// Keys of a stack that are names for people, or a path that its facts describe.
const NOT_STACK: [&str; 4] = ["name", "title", "identity", "directory"];

/// A word for the command line: `Online CPUs` is `online-cpus`.
fn word_of(name: &str) -> String {
    name.to_lowercase().replace([' ', '_'], "-")
}

/// Differences between the hosts of two runs, and between the stacks that both have.
#[must_use]
pub fn environments(first: &Run, second: &Run) -> Vec<Mismatch> {
    let mut found = Vec::new();
    let (one, other) = (first.header.provenance.rows(), second.header.provenance.rows());
    let host = one.into_iter().zip(other).filter(|((name, _), _)| !NOT_HOST.contains(name));
    for ((name, first), (_, second)) in host {
        note(&mut found, "host", (name, first, second));
    }
    for stack in &first.header.stacks {
        let other = second.header.stacks.iter().find(|other| other.name == stack.name);
        let Some(other) = other else { continue };
        storages(&mut found, stack, other);
        let of = |run: &Run| {
            let declared = run.study.stack.iter().find(|one| one.name == stack.name);
            declared.and_then(|one| toml::Table::try_from(one).ok()).unwrap_or_default()
        };
        let (one, other) = (of(first), of(second));
        let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
        for name in names.into_iter().filter(|name| !NOT_STACK.contains(&name.as_str())) {
            let text =
                |table: &toml::Table| table.get(name).map_or_else(String::new, Value::to_string);
            let place = format!("stack {}:", stack.name);
            note(&mut found, &place, (name, &text(&one), &text(&other)));
        }
    }
    found
}

fn storages(found: &mut Vec<Mismatch>, first: &StackRecord, second: &StackRecord) {
    let place = format!("stack {}:", first.name);
    let facts = |record: &StackRecord| -> BTreeMap<&'static str, String> {
        let rows = record.storage.as_ref().map(|facts| facts.rows()).unwrap_or_default();
        rows.into_iter().map(|(name, value)| (name, value.to_owned())).collect()
    };
    let (one, other) = (facts(first), facts(second));
    let names: BTreeSet<&&str> = one.keys().chain(other.keys()).collect();
    for name in names.into_iter().filter(|name| !NOT_STORAGE.contains(name)) {
        let text = |facts: &BTreeMap<&str, String>| facts.get(name).cloned().unwrap_or_default();
        note(found, &place, (name, &text(&one), &text(&other)));
    }
    let host = |record: &StackRecord| match record.host_times.is_empty() {
        true => String::new(),
        false => {
            let times: Vec<String> = record.host_times.iter().map(ToString::to_string).collect();
            let path = record.host_path.as_deref().unwrap_or("");
            format!("{path} {} {:?}", times.join(" + "), record.scheduler_times)
        }
    };
    note(found, &place, ("Host model", &host(first), &host(second)));
    // Older runs did not store these.
    if let (Some(one), Some(other)) = (&first.constants, &second.constants) {
        note(found, &place, ("Constants", one, other));
    }
}

fn note(found: &mut Vec<Mismatch>, place: &str, (name, first, second): (&str, &str, &str)) {
    if first != second {
        found.push(Mismatch {
            what: format!("{place} {}", name.to_lowercase().replace('_', " ")),
            word: Some(word_of(name)),
            first: if first.is_empty() { "none" } else { first }.to_owned(),
            second: if second.is_empty() { "none" } else { second }.to_owned(),
        });
    }
}

/// Differences that do not prevent a comparison: builds, kernel names of devices.
#[must_use]
pub fn remarks(first: &Run, second: &Run) -> Vec<String> {
    let mut found = Vec::new();
    let (one, other) = (&first.header.provenance, &second.header.provenance);
    let program = [("Crosspoint", &one.tool, &other.tool), ("its build", &one.build, &other.build)];
    for (what, one, other) in program.into_iter().filter(|(_, one, other)| one != other) {
        found.push(format!("{what}: {one} and {other}"));
    }
    for stack in &first.header.stacks {
        let other = second.header.stacks.iter().find(|other| other.name == stack.name);
        let device = |record: &StackRecord| Some(record.storage.as_ref()?.device.clone());
        let both = device(stack).zip(other.and_then(device));
        if let Some((one, other)) = both.filter(|(one, other)| one != other) {
            found.push(format!("stack {}: on {one} and on {other}", stack.name));
        }
    }
    found
}

/// Adds engine and durations of a group's experiment, which are not parameters.
fn spans(group: &Group<'_>, all: &mut BTreeMap<String, String>) {
    all.insert("engine".into(), group.first.engine.clone());
    let mut experiments = group.run.study.experiment.iter();
    let Some(own) = experiments.find(|one| one.name == group.first.experiment) else { return };
    for (name, span) in
        [("warm_up", own.warm_up), ("duration", own.duration), ("interval", own.interval)]
    {
        all.insert(name.into(), span.to_string());
    }
}

/// Differences between the jobs of two groups of one experiment; the whole job if no parameter differs.
#[must_use]
pub fn jobs(first: &Group<'_>, second: &Group<'_>) -> Vec<Mismatch> {
    let place = format!("{} on {}", first.first.experiment, second.first.stack);
    let all = |group: &Group<'_>| {
        let mut all = group.first.defaults.clone();
        all.extend(group.first.point.clone());
        all
    };
    let (mut one, mut other) = (all(first), all(second));
    spans(first, &mut one);
    spans(second, &mut other);
    let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    let text = |all: &BTreeMap<String, String>, name: &String| {
        all.get(name).cloned().unwrap_or_else(|| "(not set)".into())
    };
    let mut found: Vec<Mismatch> = names
        .into_iter()
        .map(|name| (name, text(&one, name), text(&other, name)))
        .filter(|(_, first, second)| first != second)
        .map(|(name, first, second)| Mismatch {
            what: format!("{place}: {name}"),
            word: None,
            first,
            second,
        })
        .collect();
    if found.is_empty() {
        let job = |group: &Group<'_>| group.first.job.clone();
        found.push(Mismatch {
            what: format!("{place}: the job"),
            word: None,
            first: job(first),
            second: job(second),
        });
    }
    found
}
