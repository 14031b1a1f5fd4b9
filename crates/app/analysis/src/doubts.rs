//! What spoils the figures of a run: trials that failed, a busy host, a rate that the CPU set, data in
//! memory, a rate that was not steady.
//!
//! Each is found from what was counted, in every repetition; no cause is given that no counter shows.
//! Invariant: stands beside the answer, not in a fold. What it is not: a limit of a prediction; that is said
//! with the prediction.

use archive::{Run, TrialOutcome, TrialRecord};
use stats::Limit;
use stats::cliffs::{Course, course};
use study::Source;
use units::human_count;
use workload::OpClass;

use crate::groups::stack_title;

/// Something that spoils figures, with the trials that it was seen in.
#[derive(Debug, Clone, PartialEq)]
pub struct Doubt {
    /// What.
    pub kind: DoubtKind,
    /// Slugs of the trials, in the order of the plan; not empty.
    pub trials: Vec<String>,
    /// Measured trials that were looked at; of failures, all trials.
    pub of: usize,
    /// The worst of them, in words.
    pub worst: String,
}

/// What spoils figures, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DoubtKind {
    /// Trials failed; what they recorded until then is no answer.
    Failed,
    /// Others used the host's processors, or all were busy.
    BusyHost,
    /// The submitting thread set the rate, not the storage.
    CpuBound,
    /// Lookups were answered from memory.
    InMemory,
    /// The rate changed within the trial.
    Unsteady,
}

impl Doubt {
    /// A sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let count = match (self.trials.len(), self.of) {
            (1, 1) => "the trial".to_owned(),
            (count, of) if count == of => format!("all {of} trials"),
            (count, of) => format!("{count} of {of} trials"),
        };
        let worst = &self.worst;
        match self.kind {
            DoubtKind::Failed => format!("Failed: {count}; the first: {worst}."),
            DoubtKind::BusyHost => format!("Busy host in {count}: {worst}."),
            DoubtKind::CpuBound => format!("CPU-bound in {count}: {worst}."),
            DoubtKind::InMemory => format!("Data in memory in {count}: {worst}."),
            DoubtKind::Unsteady => format!("Not steady in {count}: {worst}."),
        }
    }
}

/// Change of a rate from the first to the last quarter from which on its mean alone would mislead.
const DRIFT: f64 = 0.25;
/// Lookups that are too few to say where they were answered from.
const LOOKUPS_MIN: u64 = 1000;
/// Lookups for each page that was read from the device, from which on the device hardly took part.
const LOOKUPS_A_PAGE: u64 = 20;
/// Bytes of a page.
const PAGE: u64 = 4096;

/// What spoils the figures of `run`, the worst first.
#[must_use]
pub fn doubts(run: &Run) -> Vec<Doubt> {
    let all: Vec<&TrialRecord> = run.trials.iter().collect();
    let measured = all.iter().filter(|trial| trial.source != Source::Predicted);
    let measured: Vec<&TrialRecord> =
        measured.filter(|trial| trial.outcome != TrialOutcome::Failed).copied().collect();
    let failed = |trial: &TrialRecord| {
        let reason =
            trial.result.failure.clone().unwrap_or_else(|| "no reason was recorded".into());
        (trial.outcome == TrialOutcome::Failed).then_some((0.0, reason))
    };
    let unsteady = |trial: &TrialRecord| unsteady(run, trial);
    let found = [
        doubt(DoubtKind::Failed, &all, &failed),
        doubt(DoubtKind::BusyHost, &measured, &busy_host),
        doubt(DoubtKind::CpuBound, &measured, &cpu_bound),
        doubt(DoubtKind::InMemory, &measured, &|trial| {
            in_memory(trial).map(|(size, words)| (size, format!("{}: {words}", what(run, trial))))
        }),
        doubt(DoubtKind::Unsteady, &measured, &unsteady),
    ];
    found.into_iter().flatten().collect()
}

/// Of a trial how bad it is and why; `None` where it is not.
type Find<'a> = dyn Fn(&TrialRecord) -> Option<(f64, String)> + 'a;

fn doubt(kind: DoubtKind, trials: &[&TrialRecord], find: &Find<'_>) -> Option<Doubt> {
    let found: Vec<(&str, f64, String)> = trials
        .iter()
        .filter_map(|trial| find(trial).map(|(size, words)| (trial.slug.as_str(), size, words)))
        .collect();
    // Of equal ones the first.
    let worst = found.iter().rev().max_by(|a, b| a.1.total_cmp(&b.1))?.2.clone();
    let slugs = found.iter().map(|(slug, ..)| (*slug).to_owned()).collect();
    Some(Doubt { kind, trials: slugs, of: trials.len(), worst })
}

fn busy_host(trial: &TrialRecord) -> Option<(f64, String)> {
    trial.result.limits.iter().find_map(|limit| match limit {
        Limit::Processors { busy, .. } => Some((1.0 + busy, limit.to_string())),
        Limit::Others { others } => Some((*others, limit.to_string())),
        Limit::Thread { .. } => None,
    })
}

fn cpu_bound(trial: &TrialRecord) -> Option<(f64, String)> {
    trial.result.limits.iter().find_map(|limit| match limit {
        Limit::Thread { busy } => Some((*busy, limit.to_string())),
        Limit::Processors { .. } | Limit::Others { .. } => None,
    })
}

/// Lookups of a database that read next to nothing from the device.
fn in_memory(trial: &TrialRecord) -> Option<(f64, String)> {
    if trial.engine == "block" {
        return None;
    }
    let done = |class: OpClass| {
        let of = |interval: &stats::Interval| interval.tallies[class].counts.ops;
        trial.result.recording.intervals.iter().map(of).sum::<u64>()
    };
    let lookups = done(OpClass::Read)
        + OpClass::STATEMENTS.into_iter().filter(|class| is_query(*class)).map(done).sum::<u64>();
    let server = trial.result.totals.get("server_bytes_read").map(|bytes| *bytes as u64);
    let process = trial.result.usage.map(|usage| usage.blocks_in * 512);
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

/// A rate that moved within the trial, by its course where there are points enough, else by its quarters.
fn unsteady(run: &Run, trial: &TrialRecord) -> Option<(f64, String)> {
    // A schedule is not the storage's doing, and a fill changes what it works on.
    if ["arrivals", "rate_step", "race"].iter().any(|name| trial.point.contains_key(*name)) {
        return None;
    }
    let rates: Vec<f64> = trial
        .result
        .recording
        .measured()
        .map(|interval| interval.counts().ops as f64 / interval.seconds().max(1e-9))
        .collect();
    let quarter = rates.len() / 4;
    if quarter == 0 {
        return None;
    }
    let average = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let (first, last) = (average(&rates[..quarter]), average(&rates[rates.len() - quarter..]));
    let drift = last / first.max(f64::MIN_POSITIVE) - 1.0;
    let title = what(run, trial);
    let ends =
        || format!("from {}/s in the first quarter to {}/s", human_count(first), human_count(last));
    let words = match course(&rates) {
        Course::Cliffs(found) => {
            let count = if found.len() == 1 { "once" } else { "more than once" };
            format!("{title} changed for good {count}, {} in the last", ends())
        }
        Course::Trend(change) if change.abs() > DRIFT => {
            format!("{title} went {} in the last", ends())
        }
        Course::Wave(turns) => format!("{title} went up and down {turns} times"),
        _ if drift.abs() > DRIFT => format!("{title} went {} in the last", ends()),
        _ => return None,
    };
    Some((drift.abs(), words))
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

    /// Each of these makes a figure another figure; a reader who is not told buys the wrong drive.
    #[test]
    fn busy_hosts_bound_threads_and_data_in_memory_are_found() {
        let quiet = trial("lmdb", &[1000; 8]);
        assert_eq!((busy_host(&quiet), cpu_bound(&quiet), in_memory(&quiet)), (None, None, None));
        let mut busy = quiet.clone();
        busy.result.limits = vec![Limit::Others { others: 0.3 }];
        assert!(busy_host(&busy).unwrap().1.contains("30 %"));
        busy.result.limits = vec![Limit::Thread { busy: 0.97 }];
        assert!(cpu_bound(&busy).is_some() && busy_host(&busy).is_none());
        let mut cached = quiet;
        cached.result.usage = Some(Usage { blocks_in: 80, ..Usage::default() });
        assert!(in_memory(&cached).is_some(), "8000 lookups, 10 pages");
        cached.result.usage = Some(Usage { blocks_in: 80_000, ..Usage::default() });
        assert_eq!(in_memory(&cached), None, "8000 lookups, 10000 pages");
        let block = TrialRecord { engine: "block".into(), ..cached };
        assert_eq!(in_memory(&block), None);
    }

    #[test]
    fn a_sentence_counts_and_names_the_worst() {
        let (mut a, mut b) = (trial("lmdb", &[]), trial("lmdb", &[]));
        a.result.limits = vec![Limit::Others { others: 0.2 }];
        b.result.limits = vec![Limit::Others { others: 0.4 }];
        let quiet = trial("lmdb", &[]);
        let found = doubt(DoubtKind::BusyHost, &[&a, &b, &quiet], &busy_host).unwrap();
        let sentence = found.sentence();
        assert!(
            sentence.starts_with("Busy host in 2 of 3 trials") && sentence.contains("40 %"),
            "{sentence}"
        );
        assert_eq!(doubt(DoubtKind::BusyHost, &[&quiet], &busy_host), None);
    }
}
