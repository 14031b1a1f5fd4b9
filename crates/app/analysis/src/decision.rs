//! Decisions between storages: for each job that ran on several stacks, the result of each.
//!
//! A decision is one engine doing one job (one point of an experiment) on several stacks; of block
//! experiments, one read at a time. The measured stack is the reference. Invariants: every number comes from
//! one group, so from one source; a limit is named only if a counter shows it; unreliable results carry the
//! reason.

use std::collections::{HashMap, HashSet};

use archive::{Run, TrialRecord};
use indexmap::IndexMap;
use stats::Limit;
use stats::estimate::{Estimate, ratio};
use study::Source;
use units::{Bytes, Rate};
use workload::OpClass;

use crate::doubts::{WarningKind, doubts_of};
use crate::gain::{Gain, gains, without_limit};
use crate::groups::{Group, Ops, groups, in_flight, is_sql};
pub use crate::metric::DecisionMetric;
use crate::range::{RatioSide, ValueRange, ratio_range, value_range};
pub use crate::reliability::Reliability;
use crate::reliability::standing;
use crate::time_parts::{MainPart, Part, TimeParts, mixed_parts, time_parts};

/// The resource that limited a rate, as counters show.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LimitedBy {
    /// A cloud volume's operations per second, with the share of an operation's time spent waiting for them.
    VolumeOperations(u64, f64),
    /// Its bytes per second.
    VolumeBytes(u64, f64),
    /// The host's CPUs, with their busy share.
    Processors(f64),
    /// Other processes, with their share of the host's CPUs.
    OtherProcesses(f64),
    /// The submitting thread, with its busy share.
    Thread(f64),
    /// The rate that the study allows the storage, and how much of it was used.
    StudyLimit(StudyLimit, f64),
    /// Parts of an operation's time that take at least half of it.
    Part(MainPart),
    /// Clients mostly wait for one another, for a lock or group commit; what the one that they wait for does,
    /// with shares of the other time.
    OneAtATime(MainPart),
    /// No parts took half; the largest.
    Nothing(MainPart),
    /// No counter shows one.
    Unknown,
}

/// A rate per second that a study allows a storage, by the kernel's control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StudyLimit {
    /// Reads.
    Reads(Rate),
    /// Writes.
    Writes(Rate),
    /// Bytes read.
    ReadBytes(Bytes),
    /// Bytes written.
    WriteBytes(Bytes),
}

/// Result of one stack.
#[derive(Debug)]
pub struct Choice<'a> {
    /// Its trials.
    pub group: Group<'a>,
    /// The value; times in nanoseconds.
    pub value: Estimate,
    /// Speed relative to the reference; `None` for the reference.
    pub ratio: Option<Estimate>,
    /// Range of the value on real storage.
    pub range: Option<ValueRange>,
    /// Range of the ratio.
    pub ratio_range: Option<ValueRange>,
    /// p99 of the same operations, nanoseconds.
    pub p99: Option<Estimate>,
    /// What limited it.
    pub limited: LimitedBy,
    /// How much faster it could be.
    pub gains: Vec<Gain>,
    /// Its reliability.
    pub standing: Reliability,
    /// Warnings in any of its repetitions.
    pub doubts: Vec<WarningKind>,
}

/// One job that ran on several stacks.
#[derive(Debug)]
pub struct Decision<'a> {
    /// The compared metric.
    pub counted: DecisionMetric,
    /// In the order of the study.
    pub choices: Vec<Choice<'a>>,
    /// Index of the reference: the stack named by the study, else the first measured one, else the first.
    pub reference: usize,
}

/// Ratio to the best from which on a storage is as good.
const ALIKE: f64 = 0.95;

/// Part of the names of memory-backed profiles.
const MEMORY: &str = "ram-disk";

impl<'a> Decision<'a> {
    fn new(groups: Vec<(Group<'a>, Estimate)>, counted: DecisionMetric) -> Option<Self> {
        let measured = |(group, _): &(Group<'_>, Estimate)| group.first.source == Source::Measured;
        let wanted = |(group, _): &(Group<'_>, Estimate)| {
            group.run.study.reference.as_ref() == Some(&group.first.stack)
        };
        let reference = groups.iter().position(wanted);
        let reference = reference.or_else(|| groups.iter().position(measured)).unwrap_or(0);
        let (base_group, base) = groups.get(reference)?;
        let base = *base;
        let base_standing = standing(base_group, counted);
        let base_range = value_range(base_group, (&base, counted), &base_standing);
        let choice = |(place, (group, value)): (usize, (Group<'a>, Estimate))| {
            let over = |of: &Estimate| match counted.is_rate() {
                true => ratio(of, &base),
                false => ratio(&base, of),
            };
            let ratio = (place != reference && base.value > 0.0).then(|| over(&value));
            let p99 = group.percentile(counted.ops(), 99.0).ok();
            let ((limited, gains), standing) =
                (limited_by(&group, counted), standing(&group, counted));
            let range = value_range(&group, (&value, counted), &standing);
            let of = RatioSide { group: &group, value: &value, range, standing: &standing };
            let here =
                RatioSide { value: &base, range: base_range, standing: &base_standing, ..of };
            let ratio_range = ratio.and_then(|ratio| ratio_range((of, here), &ratio, counted));
            let mut doubts: Vec<WarningKind> =
                group.trials.iter().flat_map(|trial| doubts_of(trial)).collect();
            doubts.sort_unstable();
            doubts.dedup();
            Choice {
                group,
                value,
                ratio,
                range,
                ratio_range,
                p99,
                limited,
                gains,
                standing,
                doubts,
            }
        };
        let choices: Vec<Choice<'a>> = groups.into_iter().enumerate().map(choice).collect();
        Some(Self { counted, choices, reference })
    }

    /// The first of its trials: they have one engine, experiment and point.
    #[must_use]
    pub fn first(&self) -> &'a TrialRecord {
        self.choices[0].group.first
    }

    /// The stack that the others are compared with.
    #[must_use]
    pub fn here(&self) -> &Choice<'a> {
        &self.choices[self.reference]
    }

    /// The best reliable stack besides the reference, the first in the study of those within 5 % of it; RAM
    /// is excluded.
    #[must_use]
    pub fn best_other(&self) -> Option<&Choice<'a>> {
        let judged = |one: &&Choice<'_>| {
            let stack = one.group.run.header.stacks.iter();
            let mut stack = stack.filter(|stack| stack.name == one.group.first.stack);
            let memory = stack.any(|stack| stack.device.contains(MEMORY));
            !memory && !matches!(one.standing, Reliability::Unreliable(_))
        };
        let gain = |one: &Choice<'_>| one.ratio.map_or(0.0, |ratio| ratio.value);
        let others = || self.choices.iter().filter(|one| one.ratio.is_some()).filter(judged);
        let most = others().map(gain).fold(0.0, f64::max);
        others().find(|one| gain(one) >= most * ALIKE)
    }
}

/// The rate of a database and its metric: transactions of SQL; otherwise lookups if there are any, else
/// updates.
#[must_use]
pub fn counted_of(group: &Group<'_>) -> Option<(Estimate, DecisionMetric)> {
    let of = |class| group.rate(Ops::Only(class)).filter(|rate| rate.value > 0.0);
    if is_sql(group.first) {
        return of(OpClass::Transaction).map(|rate| (rate, DecisionMetric::Transactions));
    }
    let durable = group.first.point.get("durability").is_some_and(|word| word == "device");
    match (of(OpClass::Read), of(OpClass::Write)) {
        (Some(reads), _) => Some((reads, DecisionMetric::Lookups)),
        (None, Some(writes)) if durable => Some((writes, DecisionMetric::DurableUpdates)),
        (None, Some(writes)) => Some((writes, DecisionMetric::Updates)),
        (None, None) => None,
    }
}

/// The result of a group: p99 of an open loop that kept its schedule, otherwise the rate; `None` without
/// operations, or with too few for a p99.
pub(crate) fn answer_of(group: &Group<'_>) -> Option<(Estimate, DecisionMetric)> {
    let (rate, counted) = counted_of(group)?;
    let set_by: &[&str] = match counted {
        DecisionMetric::Transactions => &["rate"],
        DecisionMetric::Lookups => &["arrivals"],
        _ => &["arrivals", "write_rate"],
    };
    let scheduled = set_by.iter().any(|key| group.first.point.contains_key(*key));
    let missed = |trial: &&TrialRecord| doubts_of(trial).contains(&WarningKind::LoadNotKept);
    match counted.ops() {
        Ops::Only(class) if scheduled && !group.trials.iter().any(missed) => {
            let time = group.percentile(Ops::Only(class), 99.0).ok()?;
            Some((time, DecisionMetric::TimeAtRate(class)))
        }
        _ => Some((rate, counted)),
    }
}

/// Returns one decision per experiment, engine and metric, from the last point with the most stacks. Order:
/// several stacks before one, servers before embedded engines, then as in the study; single block reads last.
#[must_use]
pub fn decisions(run: &Run) -> Vec<Decision<'_>> {
    let mut found: IndexMap<_, Vec<(Group<'_>, Estimate, DecisionMetric)>> = IndexMap::new();
    for group in groups(run) {
        if group.first.engine == "block" || !group.is_sound() {
            continue;
        }
        let Some((rate, counted)) = answer_of(&group) else { continue };
        let first = group.first;
        let key = (&first.experiment, &first.engine, &first.point, counted);
        found.entry(key).or_default().push((group, rate, counted));
    }
    let found: Vec<_> = found.into_values().collect();
    // The last point with the most stacks, per experiment and engine.
    let mut last: HashMap<(&String, &String, DecisionMetric), (usize, usize)> = HashMap::new();
    for (at, one) in found.iter().enumerate() {
        let (group, _, counted) = &one[0];
        let key = (&group.first.experiment, &group.first.engine, *counted);
        let best = last.entry(key).or_insert((0, at));
        if one.len() >= best.0 {
            *best = (one.len(), at);
        }
    }
    let last: HashSet<usize> = last.into_values().map(|(_, at)| at).collect();
    let chosen: Vec<bool> = (0..found.len()).map(|at| last.contains(&at)).collect();
    let kept = found.into_iter().zip(chosen).filter(|(_, chosen)| *chosen).map(|(one, _)| one);
    let mut all: Vec<Decision<'_>> = kept
        .filter_map(|one| {
            let counted = one.first()?.2;
            Decision::new(one.into_iter().map(|(group, rate, _)| (group, rate)).collect(), counted)
        })
        .collect();
    // Not by reliability: the subject of the first sentence would change from run to run.
    all.sort_by_key(|one| (one.choices.len() == 1, rank(&one.first().engine)));
    all.extend(single_reads(run));
    all
}

/// Order of engines: those that most people ask about come first.
fn rank(engine: &str) -> usize {
    let order = ["mysql", "postgres", "rocksdb", "sqlite", "lmdb"];
    order.iter().position(|one| *one == engine).unwrap_or(order.len())
}

/// One read at a time on each stack, at the lowest queue depth measured.
#[must_use]
pub fn single_reads(run: &Run) -> Option<Decision<'_>> {
    let singles = single_depth(run, DecisionMetric::ReadTime.ops());
    let alike = |one: &(Group<'_>, Estimate)| shape(&one.0);
    let of_shape = alike(singles.first()?);
    let same = singles.into_iter().filter(|one| alike(one) == of_shape);
    Decision::new(same.collect(), DecisionMetric::ReadTime)
}

/// Parameters that distinguish block jobs, besides the load.
fn shape(group: &Group<'_>) -> (Option<String>, Option<String>) {
    let of = |name: &str| group.first.point.get(name).cloned();
    (of("block_size"), of("pattern"))
}

/// Closed-loop, non-durable block groups that do only `ops`, at the lowest queue depth, one per stack in
/// study order, with their median latencies in nanoseconds.
#[must_use]
pub fn single_depth(run: &Run, ops: Ops) -> Vec<(Group<'_>, Estimate)> {
    let mut found: Vec<(u64, (Group<'_>, Estimate))> = Vec::new();
    for group in groups(run) {
        let depth = in_flight(&group);
        let durable = group.first.point.contains_key("dsync");
        if group.first.engine != "block" || group.is_open_loop() || durable || !group.is_sound() {
            continue;
        }
        if group.classes() != [ops] {
            continue;
        }
        let Ok(p50) = group.percentile(ops, 50.0) else { continue };
        let stack = &group.first.stack;
        match found.iter().position(|(_, (other, _))| other.first.stack == *stack) {
            Some(place) if found[place].0 > depth => found[place] = (depth, (group, p50)),
            Some(_) => {}
            None => found.push((depth, (group, p50))),
        }
    }
    // A deeper queue in another experiment says nothing about single operations.
    let least = found.iter().map(|(depth, _)| *depth).min();
    let least = found.into_iter().filter(|(depth, _)| Some(*depth) == least);
    least.map(|(_, single)| single).collect()
}

/// Minimum share of an operation's time for a stage to be reported as the bottleneck.
const HALF: f64 = 0.5;
/// Share of a study's limit from which on requests wait for it.
const USED_UP: f64 = 0.9;
/// Minimum share of waiting for a volume's limit.
const TOLD: f64 = 0.2;
/// The same if it is used up.
const LITTLE: f64 = 0.05;

/// What limited a group, and what would help.
#[must_use]
pub fn limited_by(group: &Group<'_>, counted: DecisionMetric) -> (LimitedBy, Vec<Gain>) {
    let limits = || group.trials.iter().flat_map(|trial| &trial.result.limits);
    let of_host = limits().find_map(|limit| match limit {
        Limit::Processors { busy, others } if *others > busy / 2.0 => {
            Some(LimitedBy::OtherProcesses(*others))
        }
        Limit::Processors { busy, .. } => Some(LimitedBy::Processors(*busy)),
        Limit::Thread { busy } => Some(LimitedBy::Thread(*busy)),
        Limit::Others { .. } => None,
    });
    let parts = time_parts(group, counted.ops()).or_else(|| mixed_parts(group));
    let limited = parts.as_ref().map(|parts| (volume_limit(group, parts), by_parts(parts)));
    let (of_volume, of_parts) = limited.unzip();
    // A full volume keeps its limit however busy the host is.
    let of_volume = of_volume.flatten().or_else(|| study_limit(group));
    let limited = of_volume.or(of_host).or(of_parts.flatten()).unwrap_or(LimitedBy::Unknown);
    let main = match limited {
        LimitedBy::VolumeOperations(..) | LimitedBy::VolumeBytes(..) => Some(Part::DriveLimit),
        LimitedBy::Processors(_) => Some(Part::Cpu),
        LimitedBy::Part(main) | LimitedBy::OneAtATime(main) | LimitedBy::Nothing(main) => {
            Some(main.part)
        }
        // What would help is another study, or an idle host.
        LimitedBy::StudyLimit(..)
        | LimitedBy::OtherProcesses(_)
        | LimitedBy::Thread(_)
        | LimitedBy::Unknown => None,
    };
    let gains = match limited {
        LimitedBy::StudyLimit(..) => {
            parts.as_ref().and_then(|parts| Some(vec![without_limit(group, parts)?]))
        }
        _ => parts.as_ref().zip(main).and_then(|one| gains(group, one, counted)),
    };
    (limited, gains.unwrap_or_default())
}

/// The limit that follows from the parts of an operation.
fn by_parts(parts: &TimeParts) -> Option<LimitedBy> {
    let main = parts.main_part()?;
    let others = parts.share_of_others();
    let of_rest = |share: f64| share / (1.0 - others);
    Some(match main.share {
        _ if others >= HALF => LimitedBy::OneAtATime(MainPart {
            own: of_rest(main.own),
            share: of_rest(main.share),
            ..main
        }),
        HALF.. => LimitedBy::Part(main),
        _ => LimitedBy::Nothing(main),
    })
}

/// The limit of the study that the storage's requests used up.
fn study_limit(group: &Group<'_>) -> Option<LimitedBy> {
    let mut stacks = group.run.study.stack.iter();
    let limit = stacks.find(|one| one.name == group.first.stack)?.limit?;
    let result = &group.first.result;
    let disk = result.disk?;
    let seconds = result.recording.intervals.last()?.end.as_secs_f64();
    let limits = [
        limit.reads.map(|one| (StudyLimit::Reads(one), one.0, disk.reads)),
        limit.writes.map(|one| (StudyLimit::Writes(one), one.0, disk.writes)),
        limit.read_bytes.map(|one| (StudyLimit::ReadBytes(one), one.0, disk.read_bytes)),
        limit.write_bytes.map(|one| (StudyLimit::WriteBytes(one), one.0, disk.write_bytes)),
    ];
    let used = |(limit, rate, count): (StudyLimit, u64, u64)| {
        (limit, count as f64 / seconds.max(1e-9) / rate.max(1) as f64)
    };
    let all = limits.into_iter().flatten().map(used);
    let (limit, used) = all.max_by(|a, b| a.1.total_cmp(&b.1))?;
    (used >= USED_UP).then_some(LimitedBy::StudyLimit(limit, used.min(1.0)))
}

/// Which limit of a cloud volume requests wait for, if they wait for it longer than for anything else, or
/// use it up.
fn volume_limit(group: &Group<'_>, parts: &TimeParts) -> Option<LimitedBy> {
    let waits = parts.share(Part::DriveLimit);
    // Background threads wait for the same limit.
    let others = parts.share_of_others() + parts.share(Part::Background);
    let main = parts.main_part_without(Part::Background)?;
    let limited = main.part == Part::DriveLimit && waits >= TOLD * (1.0 - others);
    let mut stacks = group.run.header.stacks.iter();
    let limits = stacks.find(|one| one.name == group.first.stack)?.rate_limits?;
    let result = &group.first.result;
    let (requests, bytes) = match &result.disk {
        Some(disk) => (disk.reads + disk.writes, disk.read_bytes + disk.write_bytes),
        None => {
            let counts = result.recording.intervals.iter().map(stats::Interval::counts);
            counts.fold((0, 0), |sum, one| (sum.0 + one.ops, sum.1 + one.bytes))
        }
    };
    let seconds = result.recording.intervals.last()?.end.as_secs_f64();
    let used = |count: u64, limit: u64| count as f64 / limit.max(1) as f64 / seconds.max(1e-9);
    let (operations, throughput) = (used(requests, limits.operations), used(bytes, limits.bytes));
    if !limited && (operations.max(throughput) < USED_UP || waits < LITTLE) {
        return None;
    }
    Some(match operations >= throughput {
        true => LimitedBy::VolumeOperations(limits.operations, waits),
        false => LimitedBy::VolumeBytes(limits.bytes, waits),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_run::run_of;
    use units::Nanos;

    const TWO: &str = "schema = 1\nname = \"s\"\nREF[[stack]]\nname = \"a\"\ndevice = \"file\"\n[[stack]]\n\
        name = \"b\"\ndevice = \"model:intel-p4800x\"\nATTACH[[experiment]]\nname = \
        \"e\"\n[experiment.block]\n";

    fn study(reference: &str, attach: &str) -> String {
        TWO.replace("REF", reference).replace("ATTACH", attach)
    }

    /// A drive compared with itself, or with a reference that the study did not name, could be shown as twice
    /// as fast.
    #[test]
    fn the_reference_is_what_was_measured_or_what_the_study_names() {
        let run = run_of(&study("", ""), Nanos(1000));
        let all = decisions(&run);
        assert_eq!((all.len(), all[0].reference, all[0].choices.len()), (1, 0, 2));
        assert!(all[0].here().ratio.is_none());
        let other = all[0].best_other().unwrap();
        assert_eq!(other.group.first.stack, "b");
        assert!(
            (other.ratio.unwrap().value - 1.0).abs() < 1e-9 && other.ratio.unwrap().lo.is_none()
        );
        let run = run_of(&study("reference = \"b\"\n", ""), Nanos(1000));
        assert_eq!(decisions(&run)[0].here().group.first.stack, "b");
    }

    /// An inaccurate emulation must not be in the headline.
    #[test]
    fn a_drive_of_which_nothing_is_known_is_not_ranked() {
        let run = run_of(&study("", "attach = true\n"), Nanos(1000));
        let all = decisions(&run);
        assert!(matches!(all[0].choices[1].standing, Reliability::Unreliable(_)));
        assert!(all[0].best_other().is_none());
        let mut known = run.clone();
        let asked = stats::ServedKind {
            requests: 10,
            requested_mean_ns: 500,
            requested_p50_ns: 500,
            delivered_mean_ns: 510,
            delivered_p50_ns: 510,
            ..Default::default()
        };
        for trial in known.trials.iter_mut().filter(|trial| trial.stack == "b") {
            trial.result.served = Some(stats::Served { reads: asked, ..Default::default() });
        }
        let all = decisions(&known);
        assert_eq!(all[0].choices[1].standing, Reliability::EmulationAccurate);
        assert!(all[0].best_other().is_some());
    }

    #[test]
    fn a_limit_is_named_only_where_it_was_counted() {
        let mut run = run_of(&study("", ""), Nanos(1000));
        assert_eq!(decisions(&run)[0].here().limited, LimitedBy::Unknown);
        run.trials[0].result.limits = vec![Limit::Processors { busy: 0.97, others: 0.0 }];
        assert_eq!(decisions(&run)[0].here().limited, LimitedBy::Processors(0.97));
    }

    /// A simulated read of a volume: seconds of the clients, and of the device by stage.
    fn of_volume(cpu: f64, waits: &[(&str, f64)], bytes_each: u64) -> LimitedBy {
        let study = "schema = 2\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"model:aws-gp3\"\n\
            [[experiment]]\nname = \"e\"\n[experiment.job]\nengine = \"lmdb\"\nworkload = \"read_random\"\n\
            records = 1000\nvalue_size = \"100B\"\n";
        let mut run = run_of(study, Nanos(100_000));
        run.header.stacks[0].rate_limits =
            Some(archive::RateLimits { operations: 3000, bytes: 125_000_000 });
        let result = &mut run.trials[0].result;
        let device: f64 = waits.iter().map(|(_, time)| time).sum();
        let of = |kind: &str| match kind {
            "cpu" => cpu,
            "read" => device,
            _ => 0.0,
        };
        let times =
            stats::TIME_KINDS.map(|kind| (stats::TimedBy::Simulation.name(kind, false), of(kind)));
        let stages = waits.iter().map(|(stage, time)| (format!("device_reads_{stage}"), *time));
        result.totals = times.into_iter().chain(stages).collect();
        let disk =
            stats::DiskCounters { reads: 100, read_bytes: 100 * bytes_each, ..Default::default() };
        result.disk = Some(disk);
        result.limits = vec![Limit::Processors { busy: 0.95, others: 0.0 }];
        decisions(&run)[0].here().limited
    }

    /// A volume that delivers exactly its operations per second was reported as limited by busy CPUs.
    #[test]
    fn the_limit_of_a_volume_comes_before_busy_processors() {
        let full = [("throttle", 6.0), ("media", 2.0)];
        assert_eq!(of_volume(2.0, &full, 4096), LimitedBy::VolumeOperations(3000, 0.6));
        assert_eq!(of_volume(2.0, &full, 1 << 20), LimitedBy::VolumeBytes(125_000_000, 0.6));
        let fast = [("throttle", 1.0), ("media", 3.0)];
        assert_eq!(of_volume(6.0, &fast, 4096), LimitedBy::Processors(0.95));
    }

    /// A drive that the study itself slows down must not be replaced by a faster one.
    #[test]
    fn a_rate_that_the_study_allows_is_named_once_it_is_used_up() {
        let study = "schema = 2\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n\
            file_system = \"ext4\"\nlimit = { reads = \"5k/s\", writes = \"1k/s\" }\n[[experiment]]\n\
            name = \"e\"\n[experiment.job]\nengine = \"lmdb\"\nworkload = \"read_random\"\n\
            records = 1000\nvalue_size = \"100B\"\n";
        let limited = |reads_per_s: f64| {
            let mut run = run_of(study, Nanos(100_000));
            let end = run.trials[0].result.recording.intervals.last().unwrap().end;
            let reads = (end.as_secs_f64() * reads_per_s) as u64;
            let disk = stats::DiskCounters { reads, ..Default::default() };
            run.trials[0].result.disk = Some(disk);
            study_limit(&groups(&run)[0])
        };
        let Some(LimitedBy::StudyLimit(limit, used)) = limited(4900.0) else { panic!() };
        assert!(limit == StudyLimit::Reads(Rate(5000)) && (used - 0.98).abs() < 0.01, "{used}");
        assert_eq!(limited(3000.0), None);
    }

    /// Sixteen writers of LMDB mostly wait for the one that holds the lock: what it does is the limit.
    #[test]
    fn waiting_for_another_client_is_waiting_for_what_that_one_does() {
        let parts = |times: &[(Part, u64)]| {
            let parts: Vec<_> = times.iter().map(|(part, time)| (*part, Nanos(*time))).collect();
            let whole = parts.iter().fold(Nanos::ZERO, |sum, (_, time)| sum + *time);
            by_parts(&TimeParts { whole, parts }).unwrap()
        };
        let found = parts(&[(Part::Cpu, 20), (Part::Locks, 900), (Part::DriveFlushes, 80)]);
        let LimitedBy::OneAtATime(main) = found else { panic!("{found:?}") };
        assert!(main.part == Part::DriveFlushes && (main.share - 0.8).abs() < 1e-9);
        let found = parts(&[(Part::Cpu, 60), (Part::Locks, 30), (Part::DriveQueue, 10)]);
        let LimitedBy::Part(main) = found else { panic!("{found:?}") };
        assert!(main.part == Part::Cpu && (main.share - 0.6).abs() < 1e-9);
    }

    /// "No counter shows it" next to a stage that takes a third of the time would mislead.
    #[test]
    fn where_no_part_takes_half_the_largest_is_named() {
        let study = "schema = 1\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n\
            [[experiment]]\nname = \"e\"\n[experiment.kv]\nengine = \"rocksdb\"\nrecords = 1000\n\
            value_size = \"100B\"\n";
        let limited = |block_reads: f64| {
            let mut run = run_of(study, Nanos(100_000));
            let totals = [("get_time", 2e-4), ("get_block_read_time", 2e-4 * block_reads)];
            run.trials[0].result.totals =
                totals.map(|(name, value)| (name.to_owned(), value)).into();
            decisions(&run)[0].here().limited
        };
        let of = |found: LimitedBy| match found {
            LimitedBy::Part(main) => ("half", main.part, (main.share * 10.0).round() as u32),
            LimitedBy::Nothing(main) => ("most", main.part, (main.share * 10.0).round() as u32),
            other => panic!("{other:?}"),
        };
        assert_eq!(of(limited(0.6)), ("half", Part::BlockReads, 6));
        assert_eq!(of(limited(0.3)), ("most", Part::BlockReads, 3));
        assert_eq!(of(limited(0.1)), ("half", Part::Rest, 9));
    }

    /// An open-loop rate that was met is equal on every drive and must not be the metric of the decision.
    #[test]
    fn a_rate_that_was_asked_for_is_no_answer() {
        let stack = |name: &str| format!("[[stack]]\nname = \"{name}\"\ndevice = \"file\"\n");
        let study = format!(
            "schema = 1\nname = \"s\"\n{}{}[[experiment]]\nname = \"e\"\n[experiment.kv]\nengine = \
             \"lmdb\"\nrecords = 1000\nvalue_size = \"100B\"\narrivals = \"constant\"\nrate = \"1k/s\"\n",
            stack("a"),
            stack("b")
        );
        let mut run = run_of(&study, Nanos(1000));
        let all = decisions(&run);
        assert_eq!(all[0].counted, DecisionMetric::TimeAtRate(OpClass::Read));
        assert_eq!(all[0].here().value.value, all[0].here().p99.unwrap().value);
        // A rate that was not met is the drive's limit.
        for trial in &mut run.trials {
            trial.result.recording.missed_arrivals = 1 << 40;
        }
        assert_eq!(decisions(&run)[0].counted, DecisionMetric::Lookups);
    }
}
