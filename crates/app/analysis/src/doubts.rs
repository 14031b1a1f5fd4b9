//! Warnings about a run's results: failed trials, a busy host, CPU-bound rates, data in memory, unsteady
//! rates.
//!
//! Each is derived from counters of every repetition and shown next to the result.

use archive::{Run, TrialOutcome, TrialRecord};
use stats::Limit;
use stats::cliffs::{Course, course};
use study::Source;
use units::{Bytes, human_count};
use workload::OpClass;

use crate::groups::stack_title;

/// A warning, with the trials that it affects.
#[derive(Debug, Clone, PartialEq)]
pub struct Warning {
    /// The kind.
    pub kind: WarningKind,
    /// Slugs of the trials, in the order of the plan; not empty.
    pub trials: Vec<String>,
    /// Their engines, stacks and experiments, each once.
    pub places: Vec<String>,
    /// Number of measured trials examined; for failures, of all trials.
    pub of: usize,
    /// Description of the worst case.
    pub worst: String,
}

/// Kinds of warnings, most severe first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WarningKind {
    /// Trials failed; their partial recordings are not results.
    Failed,
    /// Operations failed and the trial continued; they are in no rate and in no latency.
    Errors,
    /// Arrivals were never issued: the offered load was not reached.
    LoadNotKept,
    /// Emulation was inaccurate.
    NotDelivered,
    /// Other processes used the CPUs, or an attached drive and the engine used all.
    BusyHost,
    /// Other processes wrote to the device while it was read.
    OtherWrites,
    /// The submitting thread or all CPUs set the rate, not the storage.
    CpuBound,
    /// Lookups were answered from memory.
    InMemory,
    /// The rate changed within the trial.
    Unsteady,
}

impl WarningKind {
    /// Short title.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Failed => "Failed",
            Self::Errors => "Operations failed",
            Self::LoadNotKept => "Offered load not reached",
            Self::NotDelivered => "Emulation fell behind",
            Self::BusyHost => "Busy host",
            Self::OtherWrites => "Other writes reached the device",
            Self::CpuBound => "CPU-bound",
            Self::InMemory => "Data in memory",
            Self::Unsteady => "Not steady",
        }
    }

    /// What to do about it.
    #[must_use]
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::Failed | Self::Errors => {
                "see the reason of each trial; once it is fixed: crosspoint run --resume RUN --again failed"
            }
            Self::LoadNotKept => "lower the rate, or allow more operations in flight",
            Self::NotDelivered => {
                "rerun on an idle host, or slow down all compared drives by one factor K \
                 (--set stack.NAME.scale=K)"
            }
            Self::BusyHost => "rerun on an idle host",
            Self::OtherWrites => "use a device that nothing else writes to",
            Self::CpuBound => "add CPU, or see the range for an infinitely fast drive",
            Self::InMemory => "use more data or limit memory, so that the drive is measured",
            Self::Unsteady => {
                "lengthen warm_up and duration (--set experiment.*.duration=60s), and repeat"
            }
        }
    }
}

impl Warning {
    /// `in 2 of 6 trials`.
    #[must_use]
    pub fn count_text(&self) -> String {
        match (self.trials.len(), self.of) {
            (1, 1) => "in the trial".to_owned(),
            (count, of) if count == of => format!("in all {of} trials"),
            (count, of) => format!("in {count} of {of} trials"),
        }
    }

    /// A sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let more = self.places.len().saturating_sub(PLACES_SHOWN);
        let mut places =
            self.places.iter().take(PLACES_SHOWN).cloned().collect::<Vec<_>>().join("; ");
        if more > 0 {
            places.push_str(&format!("; and {more} more"));
        }
        let after = if self.kind == WarningKind::Failed { ":" } else { "" };
        format!("{}{after} {} ({places}): {}.", self.kind.title(), self.count_text(), self.worst)
    }
}

/// Largest share of missed arrivals for which an offered load counts as reached.
pub(crate) const MISSED_MAX: f64 = 0.01;
/// Number of trials listed in one sentence.
const PLACES_SHOWN: usize = 4;
/// Change between the first and last quarter from which the mean is misleading.
const DRIFT: f64 = 0.25;
/// Bytes written by other processes per byte read that are ignored, and an absolute threshold below which
/// they are ignored.
const OTHER_WRITES_MAX: f64 = 0.05;
const OTHER_WRITES_MIN: u64 = 16 << 20;
/// Fewer lookups than this do not show where they were served from.
const LOOKUPS_MIN: u64 = 1000;
/// Lookups per page read from the device above which the device hardly took part.
const LOOKUPS_A_PAGE: u64 = 20;
/// Bytes of a page.
const PAGE: u64 = 4096;
/// Fewer bytes than this do not show where they were read from.
const CACHED_MIN: u64 = 4 << 20;

/// Returns the warnings of `run`, most severe first.
#[must_use]
pub fn doubts(run: &Run) -> Vec<Warning> {
    doubts_among(run, &run.trials.iter().collect::<Vec<_>>())
}

/// Warnings for some of a run's trials.
pub(crate) fn doubts_among(run: &Run, all: &[&TrialRecord]) -> Vec<Warning> {
    let measured = all.iter().filter(|trial| trial.source != Source::Predicted);
    let measured: Vec<&TrialRecord> =
        measured.filter(|trial| trial.outcome != TrialOutcome::Failed).copied().collect();
    let failed = |trial: &TrialRecord| {
        let reason =
            trial.result.failure.clone().unwrap_or_else(|| "no reason was recorded".into());
        (trial.outcome == TrialOutcome::Failed).then_some((0.0, reason))
    };
    let each = OF_TRIAL.iter().map(|(kind, find)| match kind {
        WarningKind::LoadNotKept => doubt(run, *kind, all, *find),
        _ => doubt(run, *kind, &measured, *find),
    });
    let failed = doubt(run, WarningKind::Failed, all, failed);
    let others = [failed, doubt(run, WarningKind::NotDelivered, &measured, not_delivered)];
    let mut found: Vec<Warning> = others.into_iter().chain(each).flatten().collect();
    found.sort_by_key(|one| one.kind);
    found
}

/// Warnings that one trial shows, most severe first.
const OF_TRIAL: [(WarningKind, Find); 7] = [
    (WarningKind::Errors, errors),
    (WarningKind::LoadNotKept, not_kept),
    (WarningKind::BusyHost, busy_host),
    (WarningKind::OtherWrites, other_writes),
    (WarningKind::CpuBound, cpu_bound),
    (WarningKind::InMemory, in_memory),
    (WarningKind::Unsteady, unsteady),
];

/// Returns the warning that makes a trial's results unreliable: inaccurate emulation, failed operations, a
/// missed load or a busy host.
#[must_use]
pub fn spoils(trial: &TrialRecord) -> Option<WarningKind> {
    if trial.source == Source::Predicted {
        return None;
    }
    if not_delivered(trial).is_some() {
        return Some(WarningKind::NotDelivered);
    }
    let grave = [WarningKind::Errors, WarningKind::LoadNotKept, WarningKind::BusyHost];
    doubts_of(trial).into_iter().find(|kind| grave.contains(kind))
}

/// The same, or that the drive took no part, or was used by other programs: what makes a trial no evidence
/// about a drive.
#[must_use]
pub fn misleads(trial: &TrialRecord) -> Option<WarningKind> {
    let of_drive = [WarningKind::OtherWrites, WarningKind::InMemory];
    spoils(trial).or_else(|| doubts_of(trial).into_iter().find(|kind| of_drive.contains(kind)))
}

/// Warnings of one measured or emulated trial, most severe first, except inaccurate emulation.
#[must_use]
pub fn doubts_of(trial: &TrialRecord) -> Vec<WarningKind> {
    let own =
        |kind: WarningKind| trial.source != Source::Predicted || kind == WarningKind::LoadNotKept;
    let seen = OF_TRIAL.iter().filter(|(kind, find)| own(*kind) && find(trial).is_some());
    seen.map(|(kind, _)| *kind).collect()
}

/// Severity and description for a trial; `None` if nothing is wrong.
type Find = fn(&TrialRecord) -> Option<(f64, String)>;

fn doubt(run: &Run, kind: WarningKind, trials: &[&TrialRecord], find: Find) -> Option<Warning> {
    let found: Vec<(&TrialRecord, f64, String)> = trials
        .iter()
        .filter_map(|trial| find(trial).map(|(size, words)| (*trial, size, words)))
        .collect();
    // Of equally bad trials, the first.
    let (at, _, words) = found.iter().rev().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let mut places: Vec<String> = Vec::new();
    for (trial, ..) in &found {
        let place = what(run, trial);
        if !places.contains(&place) {
            places.push(place);
        }
    }
    let worst = match places.len() {
        1 => words.clone(),
        _ => format!("worst case {}: {words}", what(run, at)),
    };
    let slugs = found.iter().map(|(trial, ..)| trial.slug.clone()).collect();
    Some(Warning { kind, trials: slugs, places, of: trials.len(), worst })
}

fn errors(trial: &TrialRecord) -> Option<(f64, String)> {
    let (failed, all) = failures(trial);
    (failed > 0).then(|| {
        let text = format!("{} of {}", human_count(failed as f64), human_count(all as f64));
        (failed as f64 / all as f64, format!("{text} operations, left out of all figures"))
    })
}

/// Failed operations within the measurement, and all operations.
pub(crate) fn failures(trial: &TrialRecord) -> (u64, u64) {
    let measured = trial.result.recording.measured().map(stats::Interval::counts);
    let (failed, done) = measured.fold((0u64, 0u64), |(failed, done), of| {
        (failed.saturating_add(of.errors), done.saturating_add(of.ops))
    });
    (failed, failed.saturating_add(done))
}

/// More than 1 % of the arrivals were never issued.
fn not_kept(trial: &TrialRecord) -> Option<(f64, String)> {
    let (missed, due) = missed_arrivals(&trial.result.recording)?;
    (missed > MISSED_MAX * due).then(|| {
        let text =
            format!("{} of {} arrivals were never issued", human_count(missed), human_count(due));
        (missed / due, text)
    })
}

/// Missed and due arrivals of the class that missed the largest share; `None` if none was missed.
pub(crate) fn missed_arrivals(recording: &stats::Recording) -> Option<(f64, f64)> {
    let due = |class: Option<OpClass>, missed: u64| {
        (missed as f64, recording.due(class).ops as f64 + missed as f64)
    };
    if recording.missed.is_empty() {
        // Older records do not store the class.
        let all = recording.missed_arrivals;
        return (all > 0).then(|| due(None, all));
    }
    let of = |(class, missed): (&OpClass, &u64)| due(Some(*class), *missed);
    let share = |(missed, due): &(f64, f64)| missed / due.max(1.0);
    recording.missed.iter().map(of).max_by(|a, b| share(a).total_cmp(&share(b)))
}

fn not_delivered(trial: &TrialRecord) -> Option<(f64, String)> {
    let Some(served) = trial.result.served else {
        let emulated = trial.source == Source::Emulated;
        return emulated.then(|| (f64::INFINITY, "the delivered times are missing".to_owned()));
    };
    if served.is_faithful() {
        return None;
    }
    let off = served.difference().map_or(0.0, |(off, _)| off.abs());
    Some((off.max(served.starved_share), served.complaint()))
}

/// Whether saturated CPUs were not the engine's alone: other programs used them, or a drive that was modelled
/// in real time, whose share was taken out.
fn is_shared(trial: &TrialRecord, others: f64) -> bool {
    let attached = trial.result.served.is_some() && !trial.result.is_simulated();
    others >= Limit::OTHERS || attached
}

fn busy_host(trial: &TrialRecord) -> Option<(f64, String)> {
    trial.result.limits.iter().find_map(|limit| match limit {
        Limit::Processors { busy, others } if is_shared(trial, *others) => {
            Some((1.0 + busy, limit.to_string()))
        }
        Limit::Others { others } => Some((*others, limit.to_string())),
        Limit::Processors { .. } | Limit::Thread { .. } => None,
    })
}

/// Bytes written to the device of a read-only trial per byte read, including the kernel's write-back of
/// prepared data.
fn other_writes(trial: &TrialRecord) -> Option<(f64, String)> {
    let moved = |classes: &[OpClass]| {
        let of = |interval: &stats::Interval| {
            classes.iter().map(|class| interval.tallies[*class].counts.bytes).sum::<u64>()
        };
        trial.result.recording.intervals.iter().map(of).sum::<u64>()
    };
    let reads = moved(&[OpClass::Read, OpClass::BackgroundRead]);
    let writes = moved(&[OpClass::Write, OpClass::BackgroundWrite]);
    let written = trial.result.disk.filter(|_| trial.engine == "block" && writes == 0)?.write_bytes;
    let share = written as f64 / reads.max(1) as f64;
    (share > OTHER_WRITES_MAX && written > OTHER_WRITES_MIN).then(|| {
        let (written, reads) = (units::Bytes(written), units::Bytes(reads));
        (share, format!("{written} were written while {reads} were read"))
    })
}

fn cpu_bound(trial: &TrialRecord) -> Option<(f64, String)> {
    trial.result.limits.iter().find_map(|limit| match limit {
        Limit::Thread { busy } => Some((*busy, limit.to_string())),
        Limit::Processors { busy, others } if !is_shared(trial, *others) => {
            Some((*busy, limit.to_string()))
        }
        Limit::Processors { .. } | Limit::Others { .. } => None,
    })
}

/// Reads of a block job served by the page cache, for example from a file without O_DIRECT.
fn cached(trial: &TrialRecord) -> Option<(f64, String)> {
    let intervals = trial.result.recording.intervals.iter();
    let read: u64 = intervals.map(|one| one.tallies[OpClass::Read].counts.bytes).sum();
    // The disk counters of an emulated trial belong to another drive.
    let disk = trial.result.disk.filter(|_| trial.source == Source::Measured)?.read_bytes;
    (read >= CACHED_MIN && read >= disk.saturating_mul(LOOKUPS_A_PAGE)).then(|| {
        let text = format!("{} were read, {} of them from the device", Bytes(read), Bytes(disk));
        (read as f64 / disk.max(1) as f64, text)
    })
}

/// Detects lookups that were served almost entirely from memory.
fn in_memory(trial: &TrialRecord) -> Option<(f64, String)> {
    if trial.engine == "block" {
        return cached(trial);
    }
    let done = |class: OpClass| {
        let of = |interval: &stats::Interval| interval.tallies[class].counts.ops;
        trial.result.recording.intervals.iter().map(of).sum::<u64>()
    };
    let lookups = done(OpClass::Read)
        + OpClass::STATEMENTS.into_iter().filter(|class| is_query(*class)).map(done).sum::<u64>();
    let server = trial.result.totals.get("server_bytes_read").map(|bytes| *bytes as u64);
    let process = trial.result.usage.map(|usage| usage.blocks_in.saturating_mul(512));
    let read = server.or(trial.result.disk.map(|disk| disk.read_bytes)).or(process)?;
    let pages = read / PAGE;
    (lookups >= LOOKUPS_MIN && lookups >= pages * LOOKUPS_A_PAGE).then(|| {
        let size = lookups as f64 / pages.max(1) as f64;
        let pages_text = human_count(pages as f64);
        let text =
            format!("{} lookups read {pages_text} pages of 4 KiB", human_count(lookups as f64));
        (size, text)
    })
}

fn is_query(class: OpClass) -> bool {
    workload::phase_of(class) == Some(OpClass::ReadPhase)
}

/// Engine and stack of a trial: `lmdb on This disk`.
fn what(run: &Run, trial: &TrialRecord) -> String {
    let title = stack_title(run, &trial.stack);
    match trial.engine.as_str() {
        "block" => format!("{title}, {}", trial.experiment),
        engine => format!("{engine} on {title}, {}", trial.experiment),
    }
}

/// Detects a rate that changed within the trial: from its change points if there are enough intervals, else
/// from its quarters.
fn unsteady(trial: &TrialRecord) -> Option<(f64, String)> {
    // An arrival schedule is not set by the storage, and a fill changes its own data set.
    if ["arrivals", "rate_step", "race"].iter().any(|name| trial.point.contains_key(*name)) {
        return None;
    }
    let rates = rates_of(trial);
    let (first, last) = ends_of(&rates)?;
    // Two empty quarters are no drift.
    let drift = if first == last { 0.0 } else { last / first.max(f64::MIN_POSITIVE) - 1.0 };
    let ends = || {
        format!(
            "from {}/s in the first quarter of the trial to {}/s",
            human_count(first),
            human_count(last)
        )
    };
    let words = match course(&rates) {
        Course::Cliffs(found) => {
            let count = if found.len() == 1 { "once" } else { "more than once" };
            format!("rate changed for good {count}, {} in the last", ends())
        }
        Course::Trend(change) if change.abs() > DRIFT => {
            format!("rate went {} in the last", ends())
        }
        Course::Wave(turns) => format!("rate oscillated {turns} times"),
        _ if drift.abs() > DRIFT => format!("rate went {} in the last", ends()),
        _ => return None,
    };
    Some((drift.abs(), words))
}

/// Operations per second of each measured interval; lookups if there are any.
fn rates_of(trial: &TrialRecord) -> Vec<f64> {
    let reads = trial.result.recording.counts(Some(OpClass::Read)).ops > 0;
    let ops = |interval: &stats::Interval| match reads {
        true => interval.tallies[OpClass::Read].counts.ops,
        false => interval.counts().ops,
    };
    let rate = |interval: &stats::Interval| ops(interval) as f64 / interval.seconds().max(1e-9);
    trial.result.recording.measured().map(rate).collect()
}

/// Mean rate of the first and of the last quarter; `None` with fewer than four rates.
fn ends_of(rates: &[f64]) -> Option<(f64, f64)> {
    let quarter = rates.len() / 4;
    let average = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    (quarter > 0).then(|| (average(&rates[..quarter]), average(&rates[rates.len() - quarter..])))
}

/// Ratio of the faster to the slower end of an unsteady trial; 1 if steady. A ratio of two stacks below this
/// may be caused by the trial itself.
#[must_use]
pub fn moved_by(trial: &TrialRecord) -> f64 {
    if trial.source == Source::Predicted || unsteady(trial).is_none() {
        return 1.0;
    }
    let apart = |(first, last): (f64, f64)| {
        (last / first.max(f64::MIN_POSITIVE)).max(first / last.max(f64::MIN_POSITIVE))
    };
    ends_of(&rates_of(trial)).map_or(1.0, apart)
}

#[cfg(test)]
mod tests {
    use super::*;
    use archive::TrialRecord;
    use stats::{Interval, Phase, TrialResult, Usage};
    use units::Nanos;

    fn trial(engine: &str, rates: &[u64]) -> TrialRecord {
        let mut result = TrialResult::default();
        for (at, ops) in (0u64..).zip(rates) {
            let (start, end) = (Nanos::from_secs(at), Nanos::from_secs(at + 1));
            let mut interval = Interval::empty(Phase::Measure, start, end);
            interval.tallies.of(OpClass::Read).counts.ops = *ops;
            result.recording.intervals.push(interval);
        }
        let mut made = TrialRecord::unnamed(result);
        made.engine = engine.into();
        made.slug = "0001".into();
        made
    }

    /// A figure from a busy host, a CPU-bound thread or data in memory says nothing about the drive; without
    /// a warning the reader would buy the wrong one.
    #[test]
    fn busy_hosts_bound_threads_and_data_in_memory_are_found() {
        let quiet = trial("lmdb", &[1000; 8]);
        assert_eq!((busy_host(&quiet), cpu_bound(&quiet), in_memory(&quiet)), (None, None, None));
        let mut busy = quiet.clone();
        busy.result.limits = vec![Limit::Others { others: 0.3 }];
        assert!(busy_host(&busy).unwrap().1.contains("30 %"));
        busy.result.limits = vec![Limit::Thread { busy: 0.97 }];
        assert!(cpu_bound(&busy).is_some() && busy_host(&busy).is_none());
        // An engine that uses all CPUs is not disturbed by it.
        busy.result.limits = vec![Limit::Processors { busy: 0.99, others: 0.02 }];
        assert!(cpu_bound(&busy).is_some() && busy_host(&busy).is_none());
        busy.result.limits = vec![Limit::Processors { busy: 0.99, others: 0.4 }];
        assert!(cpu_bound(&busy).is_none() && busy_host(&busy).is_some());
        // A drive that was modelled in real time took CPUs, which its share no longer shows.
        busy.result.limits = vec![Limit::Processors { busy: 0.99, others: 0.02 }];
        busy.result.served = Some(stats::Served::default());
        assert!(cpu_bound(&busy).is_none() && busy_host(&busy).is_some());
        let mut cached = quiet;
        cached.result.usage = Some(Usage { blocks_in: 80, ..Usage::default() });
        assert!(in_memory(&cached).is_some(), "8000 lookups, 10 pages");
        cached.result.usage = Some(Usage { blocks_in: 80_000, ..Usage::default() });
        assert_eq!(in_memory(&cached), None, "8000 lookups, 10000 pages");
        let block = TrialRecord { engine: "block".into(), ..cached };
        assert_eq!(in_memory(&block), None, "it read nothing");
        let mut block = block;
        let reads = &mut block.result.recording.intervals[0].tallies;
        reads.of(OpClass::Read).counts.bytes = 64 << 20;
        let from_disk =
            |bytes| Some(stats::DiskCounters { read_bytes: bytes, ..Default::default() });
        block.result.disk = from_disk(64 << 20);
        assert_eq!(in_memory(&block), None, "all of it is from the device");
        block.result.disk = from_disk(1 << 20);
        let found = in_memory(&block).expect("a page cache is no disk").1;
        assert!(found.contains("1 MiB of them from the device"), "{found}");
    }

    /// A drive that was emulated inaccurately must carry a warning.
    #[test]
    fn emulated_drives_that_were_not_as_asked_are_found() {
        let measured = trial("lmdb", &[1000; 4]);
        assert_eq!(not_delivered(&measured), None, "a drive that is here");
        let emulated = TrialRecord { source: Source::Emulated, ..measured };
        assert!(not_delivered(&emulated).unwrap().1.contains("missing"));
        let of = |delivered| stats::ServedKind {
            requests: 1000,
            requested_mean_ns: 10_000,
            requested_p50_ns: 10_000,
            delivered_mean_ns: delivered,
            delivered_p50_ns: delivered,
            ..Default::default()
        };
        let with = |delivered| {
            let mut made = emulated.clone();
            made.result.served = Some(stats::Served { reads: of(delivered), ..Default::default() });
            made
        };
        assert_eq!(not_delivered(&with(10_500)), None);
        assert!(not_delivered(&with(13_000)).unwrap().1.contains("took 13.0 \u{b5}s"));
    }

    #[test]
    fn writes_of_others_during_reads_are_found() {
        let mut made = trial("block", &[1000; 10]);
        made.result.recording.intervals[0].tallies.of(OpClass::Read).counts.bytes = 100 << 20;
        let disk = |write_bytes| stats::DiskCounters { write_bytes, ..Default::default() };
        made.result.disk = Some(disk(20 << 20));
        assert!(other_writes(&made).unwrap().1.contains("20.0 MiB were written"));
        made.result.disk = Some(disk(4 << 20));
        assert_eq!(other_writes(&made), None, "next to nothing");
        made.result.disk = Some(disk(200 << 20));
        made.result.recording.intervals[0].tallies.of(OpClass::Write).counts.bytes = 4096;
        assert_eq!(other_writes(&made), None, "its own");
        made.result.disk = None;
        assert_eq!(other_writes(&made), None, "not known");
    }

    #[test]
    fn a_sentence_counts_and_names_where() {
        let doubt = |trials: usize, places: usize| Warning {
            kind: WarningKind::BusyHost,
            trials: vec![String::new(); trials],
            places: (0..places).map(|place| format!("place {place}")).collect(),
            of: 6,
            worst: "others used 40 %".into(),
        };
        assert_eq!(
            doubt(2, 1).sentence(),
            "Busy host in 2 of 6 trials (place 0): others used 40 %."
        );
        let all = doubt(6, 6).sentence();
        assert!(
            all.contains("all 6 trials (place 0; place 1; place 2; place 3; and 2 more)"),
            "{all}"
        );
    }

    /// Missing one arrival in a hundred must give a warning: the offered load was not reached.
    #[test]
    fn missed_arrivals_are_a_doubt_from_one_in_a_hundred_on() {
        let mut made = trial("block", &[1000; 10]);
        made.result.recording.missed_arrivals = 90;
        assert_eq!(not_kept(&made), None);
        made.result.recording.missed_arrivals = 200;
        assert!(not_kept(&made).unwrap().1.contains("200 of 10.2k"), "{:?}", not_kept(&made));
        // Readers in a closed loop next to a scheduled writer: their operations must not count as arrivals.
        let mut made = trial("lmdb", &[1_000_000; 10]);
        made.result.recording.intervals[0].tallies.of(OpClass::BackgroundWrite).counts.ops = 2300;
        made.result.recording.missed = [(OpClass::BackgroundWrite, 5700)].into();
        made.result.recording.missed_arrivals = 6000;
        assert!(not_kept(&made).unwrap().1.contains("5700 of 8000"), "{:?}", not_kept(&made));
    }
}
