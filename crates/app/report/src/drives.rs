//! The first answer where databases ran on emulated drives: a sentence an engine, with every drive in it.
//!
//! Invariant: what may not be judged is said where its number stands. What it is not: figures; those have all
//! of it.

use analysis::{Group, Ops, groups, is_sql};
use archive::Run;
use stats::estimate::Estimate;
use study::Source;
use units::human_count;
use workload::OpClass;

use crate::chart::short;

/// What an engine is called.
pub(crate) fn engine_title(group: &Group<'_>) -> String {
    match group.first.engine.as_str() {
        "lmdb" => "LMDB".into(),
        "rocksdb" => "RocksDB".into(),
        "sqlite" => "SQLite".into(),
        "mysql" if group.first.result.path.contains("MariaDB") => "MariaDB".into(),
        "mysql" => "MySQL".into(),
        other => other.into(),
    }
}

/// What a database did a second, and what that was.
fn rate_of(group: &Group<'_>) -> Option<(Estimate, &'static str)> {
    let of = |class| group.rate(Ops::Only(class)).filter(|rate| rate.value > 0.0);
    if is_sql(group.first) {
        return of(OpClass::Transaction).map(|rate| (rate, "transactions/s"));
    }
    let durable = group.first.point.get("durability").is_some_and(|word| word == "device");
    match (of(OpClass::Write), of(OpClass::Read)) {
        (Some(writes), None) if durable => Some((writes, "durable updates/s")),
        (Some(writes), None) => Some((writes, "updates/s")),
        (None, Some(reads)) => Some((reads, "lookups/s")),
        _ => None,
    }
}

/// One point on several drives, some of them emulated.
struct Compared<'a> {
    groups: Vec<Group<'a>>,
}

fn compared(run: &Run) -> Vec<Compared<'_>> {
    let mut found: Vec<Compared<'_>> = Vec::new();
    for group in groups(run).into_iter().filter(|group| group.first.engine != "block") {
        let first = |other: &Compared<'_>| {
            let other = other.groups[0].first;
            other.experiment == group.first.experiment
                && other.engine == group.first.engine
                && other.point == group.first.point
        };
        match found.iter().position(first) {
            Some(place) => found[place].groups.push(group),
            None => found.push(Compared { groups: vec![group] }),
        }
    }
    let emulated = |group: &Group<'_>| group.first.source == Source::Emulated;
    found.retain(|one| one.groups.len() > 1 && one.groups.iter().any(emulated));
    found
}

/// What was delivered is not as the model asks: by how much, or that it is not known; none where it may be
/// judged.
fn doubt_of(group: &Group<'_>) -> Option<String> {
    if group.first.source != Source::Emulated {
        return None;
    }
    let doubt = |trial: &&archive::TrialRecord| match &trial.result.served {
        None => Some("what was delivered is not known".to_owned()),
        Some(served) if served.is_faithful() => None,
        Some(served) => Some(match served.difference() {
            Some((off, name)) if off.abs() > served.starved_share => {
                format!("{name} {:+.0} %", off * 100.0)
            }
            _ => format!("waits +{:.0} %", served.starved_share * 100.0),
        }),
    };
    group.trials.iter().find_map(doubt)
}

/// How often and for how long a group was measured.
fn measured_text(group: &Group<'_>) -> String {
    let seconds = group.first.result.recording.seconds();
    match group.trials.len() {
        1 => format!("one run of {seconds:.0} s"),
        runs => format!("{runs} runs of {seconds:.0} s"),
    }
}

/// What one engine did on one drive.
pub(crate) struct DriveRate {
    pub drive: String,
    pub source: Source,
    /// A second.
    pub rate: Estimate,
    /// Why it may not be judged.
    pub doubt: Option<String>,
    /// Whether the drive was asked for anything.
    pub asked: bool,
}

impl DriveRate {
    /// The rate, with its interval where repetitions give one.
    pub fn text(&self) -> String {
        let value = human_count(self.rate.value);
        match self.rate.between_repetitions() {
            Some((lo, hi)) => format!("{value} ({} to {})", human_count(lo), human_count(hi)),
            None => value,
        }
    }
}

/// What one engine did on several.
pub(crate) struct EngineRates {
    /// The engine, and what is counted.
    pub title: String,
    is_sql: bool,
    /// In the order of the study.
    pub drives: Vec<DriveRate>,
}

impl EngineRates {
    fn new(one: &Compared<'_>) -> Option<Self> {
        let sound = one.groups.iter().filter(|group| group.is_sound());
        let rates: Vec<(&Group<'_>, Estimate, &str)> = sound
            .filter_map(|group| rate_of(group).map(|(rate, what)| (group, rate, what)))
            .collect();
        let (first, _, what) = *rates.first()?;
        let drives = rates.iter().filter(|(.., other)| *other == what).map(|(group, rate, _)| {
            let drive = short(group.stack_title()).to_owned();
            let (source, doubt) = (group.first.source, doubt_of(group));
            let requests = |trial: &&archive::TrialRecord| {
                trial.result.served.is_some_and(|served| served.requests() > 0)
            };
            let asked = group.trials.iter().all(requests);
            DriveRate { drive, source, rate: *rate, doubt, asked }
        });
        // One scale for all stacks of an experiment.
        let served = one.groups.iter().flat_map(|group| &group.trials);
        let scale = served.filter_map(|trial| trial.result.served).map(|s| s.scale).max();
        let stretched = match scale {
            Some(scale) if scale > 1 => format!(", drives {scale} times slower"),
            _ => String::new(),
        };
        let runs = measured_text(first);
        let title = format!("{}, {what}, {runs}{stretched}", engine_title(first));
        Some(Self { title, is_sql: is_sql(first.first), drives: drives.collect() })
    }

    fn sentence(&self) -> String {
        let mut parts = Vec::new();
        for source in [Source::Measured, Source::Emulated] {
            let own = self.drives.iter().filter(|one| one.source == source);
            let own: Vec<String> = own
                .map(|one| {
                    let doubt = if one.doubt.is_some() { ", not to be judged" } else { "" };
                    format!("{} on {}{doubt}", one.text(), one.drive)
                })
                .collect();
            if !own.is_empty() {
                parts.push(format!("{} ({source})", own.join(", ")));
            }
        }
        format!("{}: {}.", self.title, parts.join("; "))
    }
}

/// Each point of each engine that ran on several drives: those first of which most may be judged,
/// transactions before others.
pub(crate) fn engine_rates(run: &Run) -> Vec<EngineRates> {
    let mut all: Vec<EngineRates> = compared(run).iter().filter_map(EngineRates::new).collect();
    let doubtful = |one: &EngineRates| one.drives.iter().filter(|d| d.doubt.is_some()).count();
    all.sort_by_key(|one| (doubtful(one), !one.is_sql));
    all
}

/// The same as sentences.
pub(crate) fn drive_sentences(run: &Run) -> Vec<String> {
    engine_rates(run).iter().map(EngineRates::sentence).collect()
}
