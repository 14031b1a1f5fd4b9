//! Stored documents of a run and a trial.
//!
//! Units are in the field names. Invariants: unknown fields are damage; a trial's histograms are in its log,
//! everything else is here.

use std::collections::BTreeMap;

use observe::{Provenance, StorageFacts};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use stats::{
    CounterSample, Counts, DiskCounters, ErrorSample, Interval, Limit, LoadRecord, Phase,
    Recording, Served, TrialResult, Usage,
};
use study::Source;
use units::Nanos;
use validate::CheckedFigure;
use workload::OpClass;

use crate::counters::{thinned, thinned_counters};
use crate::files::bounded_map;
use crate::texts::{
    NOTE, NOTES_MAX, POINT_MAX, TEXT_MAX, TEXTS_MAX, bounded_notes, limit_of, shortened,
};

/// Version of the run-folder format that is written and read.
pub const FORMAT: u32 = 1;

/// Counter name for the number of racers that started together. Racers that were recorded separately after a
/// kill did not race.
pub const RACERS: &str = "racers";

/// `run.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunHeader {
    /// Format of the folder.
    pub format: u32,
    /// Name of the study.
    pub study: String,
    /// Local date and time when the run began.
    pub started: String,
    /// The host.
    pub provenance: Provenance,
    /// The stacks, in the study's order.
    pub stacks: Vec<StackRecord>,
    /// Number of planned trials.
    pub trials_planned: u32,
    /// Combinations that the plan leaves out, with the reason.
    pub skipped: Vec<String>,
    /// Numbers of planned trials left out because the machine lacks something.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<u32>,
    /// Standard deviation of one run, as a share of its value, by engine, operation and metric, as measured
    /// on this host before.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "bounded_map::<_, _, TEXTS_MAX>"
    )]
    pub noise: BTreeMap<String, f64>,
    /// How far off simulations were on a disk of this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_disk: Option<OwnDisk>,
    /// Processes that ran clients of SQL jobs besides the program's own.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub load_generators: u32,
    /// Whether the folder has a list of checksums; the first versions wrote none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sums: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// How far off simulations were on a disk of the host of a run, before that run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnDisk {
    /// Directory on the disk.
    pub directory: String,
    /// Lowest and highest simulated over measured rate, by engine and class of jobs.
    #[serde(deserialize_with = "bounded_map::<_, _, TEXTS_MAX>")]
    pub ratios: BTreeMap<String, (f64, f64)>,
}

/// A recorded stack.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StackRecord {
    /// Name in figures.
    pub name: String,
    /// Title shown to users.
    pub title: String,
    /// `file`, `model:NAME` or a path.
    pub device: String,
    /// Facts about real storage; none for a model.
    pub storage: Option<StorageFacts>,
    /// What the model does not cover.
    pub not_covered: Option<String>,
    /// Hash of a model's constants; `None` in older runs and for real stacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constants: Option<String>,
    /// The submission path that predictions assume, with its source.
    pub host_model: Option<String>,
    /// Name of that path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_path: Option<String>,
    /// Host times in the order of `sim::HostModel::times`; empty in older runs and for real stacks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_times: Vec<Nanos>,
    /// Measured costs of scheduling and of the page cache in the order of `sim::SchedulerCosts::times` and
    /// `sim::PageCacheCosts::times`; empty if they are those of the reference host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scheduler_times: Vec<Nanos>,
    /// Rate limits of a modelled cloud volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limits: Option<RateLimits>,
    /// Cores, and whether they are hardware threads of shared cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_cores: Option<(u32, bool)>,
    /// Published figures of similar jobs with the model's errors; empty in older runs and for real stacks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checked: Vec<CheckedFigure>,
    /// Older runs stored errors by kind of job that included fitted figures; ignored.
    #[serde(default, skip_serializing, rename = "validation")]
    pub old_validation: IgnoredAny,
}

/// Rate limits of a cloud volume, per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateLimits {
    /// Operations.
    pub operations: u64,
    /// Bytes.
    pub bytes: u64,
}

/// How a trial ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TrialOutcome {
    /// All planned trials are present.
    #[default]
    Complete,
    /// Stopped by the user; complete intervals are kept, and `--resume` repeats the trial.
    Partial,
    /// The target failed; recorded data is kept.
    Failed,
}

/// A finished trial with its recording.
#[derive(Debug, Clone, Default)]
pub struct TrialRecord {
    /// Number in the plan, from 1.
    pub number: u32,
    /// Folder name.
    pub slug: String,
    /// Name of the experiment.
    pub experiment: String,
    /// Name of the stack.
    pub stack: String,
    /// `block`, `lmdb`, ...
    pub engine: String,
    /// Source of its figures.
    pub source: Source,
    /// Parameters that every job of this kind has, and other non-default ones.
    pub point: BTreeMap<String, String>,
    /// Parameters that have their default; empty in older records.
    pub defaults: BTreeMap<String, String>,
    /// Hash of its job ([`study::Trial::job_hash`]); empty in older records.
    pub job: String,
    /// Repetition, from 1.
    pub repetition: u32,
    /// How it ended.
    pub outcome: TrialOutcome,
    /// Its result.
    pub result: TrialResult,
}

impl TrialRecord {
    /// Its point in a line, `name=value` each.
    #[must_use]
    pub fn point_text(&self) -> String {
        let parts: Vec<String> =
            self.point.iter().map(|(name, value)| format!("{name}={value}")).collect();
        parts.join(" ")
    }

    /// A record of `result` alone, for a reader that already knows the trial; its other fields are defaults
    /// (repetition 1).
    #[must_use]
    pub fn unnamed(result: TrialResult) -> Self {
        Self { repetition: 1, result, ..Self::default() }
    }
}

/// Maps parameters of earlier formats to their current names.
fn renamed(parameters: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let now = |(name, value): (String, String)| (study::parameter(&name).to_owned(), value);
    parameters.into_iter().map(now).collect()
}

/// `trial.json`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TrialDocument {
    pub format: u32,
    number: u32,
    experiment: String,
    stack: String,
    engine: String,
    source: Source,
    #[serde(deserialize_with = "bounded_map::<_, _, POINT_MAX>")]
    point: BTreeMap<String, String>,
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "bounded_map::<_, _, POINT_MAX>"
    )]
    defaults: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    job: String,
    repetition: u32,
    outcome: TrialOutcome,
    failure: Option<String>,
    path: String,
    notes: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    limits: Vec<Limit>,
    usage: Option<Usage>,
    disk: Option<DiskCounters>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    served: Option<Served>,
    load: Option<LoadRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "thinned_counters")]
    counters: Vec<CounterSample>,
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "bounded_map::<_, _, TEXTS_MAX>"
    )]
    totals: BTreeMap<String, f64>,
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "bounded_map::<_, _, TEXTS_MAX>"
    )]
    settings: BTreeMap<String, String>,
    intervals: Vec<IntervalDocument>,
    error_samples: Vec<ErrorSample>,
    missed_arrivals: u64,
    /// Missed arrivals of the measured time, by class; absent in older records.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    missed: BTreeMap<OpClass, u64>,
    /// Operations due in the warm-up that completed after it, by class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    carried: BTreeMap<OpClass, Counts>,
    /// Size and checksum of the log next to this file.
    pub log_bytes: u64,
    pub log_crc32: u32,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IntervalDocument {
    phase: Phase,
    start_ns: u64,
    end_ns: u64,
    read: Counts,
    write: Counts,
    /// Flushes and background operations; absent if there were none.
    #[serde(default, skip_serializing_if = "Counts::is_empty")]
    sync: Counts,
    #[serde(default, skip_serializing_if = "Counts::is_empty")]
    background_read: Counts,
    #[serde(default, skip_serializing_if = "Counts::is_empty")]
    background_write: Counts,
    #[serde(default, skip_serializing_if = "Counts::is_empty")]
    background_sync: Counts,
    /// Transactions, their phases and statements, by the word of the class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    sql: BTreeMap<OpClass, Counts>,
}

impl IntervalDocument {
    fn new(interval: &Interval) -> Self {
        let of = |class: OpClass| interval.tallies[class].counts;
        let sql = interval.tallies.iter().filter(|(class, _)| class.is_sql());
        Self {
            phase: interval.phase,
            start_ns: interval.start.get(),
            end_ns: interval.end.get(),
            read: of(OpClass::Read),
            write: of(OpClass::Write),
            sync: of(OpClass::Sync),
            background_read: of(OpClass::BackgroundRead),
            background_write: of(OpClass::BackgroundWrite),
            background_sync: of(OpClass::BackgroundSync),
            sql: sql.map(|(class, tally)| (class, tally.counts)).collect(),
        }
    }

    /// Every class with its counts.
    fn counts(&self) -> impl Iterator<Item = (OpClass, Counts)> {
        let all = [
            (OpClass::Read, self.read),
            (OpClass::Write, self.write),
            (OpClass::Sync, self.sync),
            (OpClass::BackgroundRead, self.background_read),
            (OpClass::BackgroundWrite, self.background_write),
            (OpClass::BackgroundSync, self.background_sync),
        ];
        all.into_iter().chain(self.sql.iter().map(|(class, counts)| (*class, *counts)))
    }
}

impl TrialDocument {
    pub fn new(trial: &TrialRecord, log_bytes: u64, log_crc32: u32) -> Self {
        let result = &trial.result;
        Self {
            format: FORMAT,
            number: trial.number,
            experiment: trial.experiment.clone(),
            stack: trial.stack.clone(),
            engine: trial.engine.clone(),
            source: trial.source,
            point: trial.point.clone(),
            defaults: trial.defaults.clone(),
            job: trial.job.clone(),
            repetition: trial.repetition,
            outcome: trial.outcome,
            failure: result.failure.as_deref().map(shortened),
            path: result.path.clone(),
            notes: bounded_notes(&result.notes),
            limits: result.limits.clone(),
            usage: result.usage,
            disk: result.disk,
            served: result.served,
            load: result.load.clone(),
            counters: thinned(&result.counters),
            totals: result.totals.clone(),
            settings: result.settings.clone(),
            intervals: result.recording.intervals.iter().map(IntervalDocument::new).collect(),
            error_samples: result.recording.error_samples.clone(),
            missed_arrivals: result.recording.missed_arrivals,
            missed: result.recording.missed.clone(),
            carried: result
                .recording
                .carried
                .iter()
                .map(|(class, tally)| (class, tally.counts))
                .collect(),
            log_bytes,
            log_crc32,
        }
    }

    /// Rejects texts longer than a writer produces.
    fn check_texts(&self) -> Result<(), String> {
        let mut texts = self.notes.iter().chain(self.failure.iter()).chain([&self.path]);
        let notes: usize = self.notes.iter().map(|note| note.len() + NOTE).sum();
        if texts.any(|text| text.len() > TEXT_MAX) || notes > NOTES_MAX {
            return Err("its notes are too long".into());
        }
        Ok(())
    }

    /// Converts to a trial without its histograms.
    ///
    /// # Errors
    /// An unknown word; returns that word.
    pub fn into_record(self, slug: String) -> Result<TrialRecord, String> {
        self.check_texts()?;
        let missed_arrivals = self.missed_arrivals;
        let (missed, error_samples) = (self.missed, self.error_samples);
        let mut recording =
            Recording { missed_arrivals, missed, error_samples, ..Recording::default() };
        for interval in self.intervals {
            let (start, end) = (Nanos(interval.start_ns), Nanos(interval.end_ns));
            if end < start {
                return Err("an interval ends before it starts".into());
            }
            let mut filled = Interval::empty(interval.phase, start, end);
            for (class, counts) in interval.counts() {
                if !counts.is_empty() {
                    filled.tallies.of(class).counts = counts;
                }
            }
            recording.intervals.push(filled);
        }
        for (class, counts) in &self.carried {
            recording.carried.of(*class).counts = *counts;
        }
        if !are_countable(&recording, self.usage) {
            return Err("its counts are larger than any trial's".into());
        }
        let mut limits = self.limits;
        if let Some(limit) = limits.iter().find(|limit| !limit.is_sound()) {
            return Err(format!("{limit:?} has shares outside 0 to 1"));
        }
        let is_note = |note: &String| {
            let limit = limit_of(note);
            limits.extend(limit);
            limit.is_none()
        };
        let notes = self.notes.into_iter().filter(is_note).collect();
        Ok(TrialRecord {
            number: self.number,
            slug,
            experiment: self.experiment,
            stack: self.stack,
            engine: self.engine,
            source: self.source,
            point: renamed(self.point),
            defaults: renamed(self.defaults),
            job: self.job,
            repetition: self.repetition,
            outcome: self.outcome,
            result: TrialResult {
                recording,
                failure: self.failure,
                path: self.path,
                notes,
                limits,
                usage: self.usage,
                disk: self.disk,
                served: sound(self.served)?,
                load: self.load,
                counters: self.counters,
                totals: counted(self.totals)?,
                settings: self.settings,
            },
        })
    }
}

/// Whether sums over all counters fit their types with headroom.
fn are_countable(recording: &Recording, usage: Option<Usage>) -> bool {
    let intervals = recording.intervals.iter().flat_map(|one| one.tallies.iter());
    let each = intervals.map(|(_, tally)| tally.counts);
    let counts = each.flat_map(|one| [one.ops, one.bytes, one.errors]);
    let used = usage.into_iter().flat_map(|one| {
        let switches = [one.switches_voluntary, one.switches_involuntary];
        let blocks = [one.blocks_in, one.blocks_out].map(|blocks| blocks.saturating_mul(512));
        let [a, b] = switches;
        let [c, d] = blocks;
        [one.cpu_user_ns, one.cpu_system_ns, a, b, c, d, one.faults_major]
    });
    let missed = recording.missed.values().copied().chain([recording.missed_arrivals]);
    let sum: u128 = counts.chain(used).chain(missed).map(u128::from).sum();
    sum < 1 << 62
}

/// Checks that a database's totals are counts, bytes or times.
fn counted(totals: BTreeMap<String, f64>) -> Result<BTreeMap<String, f64>, String> {
    match totals.iter().find(|(_, value)| !(0.0..1e18).contains(*value)) {
        Some((name, value)) => Err(format!("{name} = {value} is not a count")),
        None => Ok(totals),
    }
}

/// Checks that the shares of a delivery record are valid.
fn sound(served: Option<Served>) -> Result<Option<Served>, String> {
    match served {
        Some(served) if !served.is_sound() => Err(format!("{served:?} has shares outside 0 to 1")),
        served => Ok(served),
    }
}
