//! How much faster a job could be without its bottleneck, from the parts of an operation's time.
//!
//! In a closed loop of N clients an operation takes at least its remaining parts; at most, it also waits for
//! the CPU time of all others: the bounds of balanced closed queueing networks (Zahorjan, Sevcik, Eager and
//! Galler, CACM 25(2), 1982). CPUs cannot do more than all of their time. Waits for other clients shrink as
//! the operations of these do. What sessions wait for in a server's background threads, write stalls, what
//! is not attributed, and waiting for CPUs (a drive that completes requests in bursts wakes many threads)
//! may be due to the drive or not. CPU time per operation falls with the waits. The most that a free drive
//! can give is without all of these. A measured wait for the drive contains the kernel's I/O path, which the
//! least gain keeps. If the run has simulated drives, the fastest gives the ceiling of all. A simulation
//! (`what_if`) is exact where it can run.

use std::collections::BTreeMap;

use archive::{TrialOutcome, TrialRecord};
use stats::Limit;
use study::Source;

use crate::doubts::{WarningKind, doubts_of};
use crate::groups::{Group, Ops};
use crate::metric::DecisionMetric;
use crate::simulated_class::{ValueRange, class_of_group};

use crate::time_parts::{Part, TimeParts, mixed_parts, of_drive, time_parts};

/// What is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The drive takes no time.
    FreeDrive,
    /// Twice the cores.
    TwiceTheCores,
    /// Without the limit that the study sets.
    NoLimit,
}

/// Range of the rate after a change, relative to the present one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gain {
    /// The change.
    pub change: Change,
    /// Lower bound, at least 1.
    pub low: f64,
    /// The estimate for a free drive: without its time and a quarter of what else the upper bound removes.
    pub likely: f64,
    /// Upper bound.
    pub high: f64,
}

/// The gain of a faster drive, and that of more cores if CPU time is the bottleneck and they gain anything;
/// `None` for open loops, block jobs and trials that are not steady, or if the number of cores is not known.
#[must_use]
pub fn gains(
    group: &Group<'_>,
    (parts, main): (&TimeParts, Part),
    counted: DecisionMetric,
) -> Option<Vec<Gain>> {
    let load = load_of(group, parts)?;
    let drive = parts.drive_share().map(|_| free_drive(group, (parts, load), counted));
    let cores = main.is_cpu().then(|| bounds(parts, Change::TwiceTheCores, load));
    Some(drive.into_iter().chain(cores.filter(|one| one.high >= GAIN_MIN)).collect())
}

/// The gain without the limit that the study sets: from none to that of a drive that takes no time.
pub(crate) fn without_limit(group: &Group<'_>, parts: &TimeParts) -> Option<Gain> {
    let found = bounds(parts, Change::NoLimit, load_of(group, parts)?);
    Some(Gain { low: 1.0, likely: 1.0, ..found })
}

/// The load of a group; `None` where gains do not apply.
fn load_of(group: &Group<'_>, parts: &TimeParts) -> Option<Load> {
    // A block job is the drive's own; a faster drive also fills a cache sooner.
    let mut doubts = group.trials.iter().flat_map(|trial| doubts_of(trial));
    let changes_over_time = doubts.any(|kind| kind == WarningKind::Unsteady);
    let mut stacks = group.run.study.stack.iter();
    let stack = stacks.find(|one| one.name == group.first.stack);
    if stack.is_some_and(|one| one.cpu_time.is_some()) {
        // What is left is made up.
        return None;
    }
    if group.is_open_loop() || group.first.engine == "block" || changes_over_time {
        return None;
    }
    let whole = cores_of(group.first, group)?;
    let cores = match group.first.result.is_simulated() {
        true => whole,
        false => whole * (1.0 - group.others().min(0.95)),
    };
    let clients = group.first.point.get("clients").and_then(|text| text.parse().ok());
    // Requests of all threads, so it may exceed the drive's part of an operation.
    let device = of_drive(&group.first.result).filter(|_| !group.first.result.is_simulated());
    let device = device.map(|all| all.iter().map(|(_, time)| *time as f64).sum::<f64>());
    let drive = parts.drive_share().unwrap_or(0.0);
    let kept = if group.first.source == Source::Measured { KERNEL_PATH } else { 0.0 };
    let device = device.map_or(1.0, |time| time / parts.whole.get().max(1) as f64);
    let device = device.min(drive * (1.0 - kept));
    // On saturated CPUs the run queue is theirs.
    let mut limits = group.trials.iter().flat_map(|trial| &trial.result.limits);
    let full = limits.any(|limit| matches!(limit, Limit::Processors { .. }));
    Some(Load { clients: clients.unwrap_or(1), cores, device, full })
}

/// What an infinitely fast drive gives: by the fastest simulated drive of the run, so that all stacks of a
/// job have one ceiling; else by the group's own parts.
fn free_drive(
    group: &Group<'_>,
    (parts, load): (&TimeParts, Load),
    counted: DecisionMetric,
) -> Gain {
    let own = bounds(parts, Change::FreeDrive, load);
    let Some(rates) = rates_of_job(group, counted.ops()) else { return own };
    let most = rates.values().map(|rate| rate.value).fold(1.0, f64::max);
    // A real drive may be faster than all simulated ones; those may also be simulated too slow.
    let measured = !group.first.result.is_simulated();
    let simulated =
        rates.iter().filter(|(_, rate)| rate.simulated && (measured || rate.value >= 1.0));
    let mut simulated: Vec<_> = simulated.collect();
    simulated.sort_by(|a, b| b.1.value.total_cmp(&a.1.value));
    let ceiling = simulated.iter().find_map(|(stack, rate)| {
        let fastest = group.simulated_on(stack)?;
        let parts = time_parts(&fastest, counted.ops()).or_else(|| mixed_parts(&fastest))?;
        let gain = bounds(&parts, Change::FreeDrive, load_of(&fastest, &parts)?);
        // A simulation's error, of a measured group.
        let error = match measured {
            false => ValueRange { low: 1.0, high: 1.0 },
            true => {
                let class = class_of_group(&fastest, counted)?;
                class.real_over_simulated(&group.first.engine)?
            }
        };
        let middle = (error.low * error.high).sqrt();
        let [low, likely, high] =
            [(gain.low, error.low), (gain.likely, middle), (gain.high, error.high)]
                .map(|(gain, error)| (gain * rate.value * error).max(1.0));
        Some(Gain { change: Change::FreeDrive, low, likely, high })
    });
    ceiling.unwrap_or(own).at_least(most)
}

impl Gain {
    /// The same if another drive gives that much.
    fn at_least(self, other: f64) -> Self {
        Self { likely: self.likely.max(other), high: self.high.max(other), ..self }
    }
}

/// Cores of the host of a trial; `None` if not known.
fn cores_of(trial: &TrialRecord, group: &Group<'_>) -> Option<f64> {
    let header = &group.run.header;
    let stack = header.stacks.iter().find(|one| one.name == trial.stack)?;
    // 0: those of this host.
    let simulated = stack.host_cores.filter(|_| trial.result.is_simulated());
    match simulated.map_or(0, |(cores, _)| cores) {
        0 => count(&header.provenance.cpus).map(f64::from),
        cores => Some(f64::from(cores)),
    }
}

/// The rate of a job on a storage, over the group's.
#[derive(Debug, Clone, Copy, Default)]
struct Relative {
    value: f64,
    simulated: bool,
}

/// Rates of the group's job on the storages of the run, as far as they have as many cores. Simulated changes
/// (`what_if`) do not count: they test these bounds.
fn rates_of_job<'a>(group: &Group<'a>, ops: Ops) -> Option<BTreeMap<&'a str, Relative>> {
    let (first, run) = (group.first, group.run);
    let cores = cores_of(first, group)?;
    let varied = |stack: &str| {
        let mut all = run.study.stack.iter().filter(|one| one.variant_of.is_some());
        all.any(|one| one.name == stack)
    };
    let same = |trial: &&TrialRecord| {
        (&trial.experiment, &trial.engine, &trial.point)
            == (&first.experiment, &first.engine, &first.point)
            && trial.outcome == TrialOutcome::Complete
            && (trial.source == Source::Measured || trial.result.is_simulated())
            && (trial.stack == first.stack || !varied(&trial.stack))
            && cores_of(trial, group) == Some(cores)
    };
    let mut sums: BTreeMap<&str, (u64, f64, bool)> = BTreeMap::new();
    for trial in run.trials.iter().filter(same) {
        let recording = &trial.result.recording;
        let sum = sums.entry(&trial.stack).or_default();
        sum.0 += recording.total(ops.class()).counts.ops;
        sum.1 += recording.seconds();
        sum.2 = trial.result.is_simulated();
    }
    let rate = |(count, seconds, _): &(u64, f64, bool)| *count as f64 / seconds.max(1e-9);
    let own = sums.get(first.stack.as_str()).map(rate).filter(|rate| *rate > 0.0)?;
    let relative = |(stack, sum): (&&'a str, &(u64, f64, bool))| {
        (*stack, Relative { value: rate(sum) / own, simulated: sum.2 })
    };
    Some(sums.iter().map(relative).collect())
}

/// Share of CPU time that an operation can save if it never waits: 32 to 48 % in three workloads of MariaDB
/// on a virtual disk and in memory; 49 to 69 % in virtual time, from gp3 to P5800X and to a free drive.
const COLD: f64 = 0.7;
/// Share of what the upper bound assumes that simulations found: the median of 19 jobs of one client, from
/// 0.1 to 0.8 (`scripts/bench-gains`; chosen on them).
const LIKELY: f64 = 0.25;
/// Share of the drive in an operation's time from which on all of that is saved.
const WAITING: f64 = 0.2;
/// Share of the kernel's I/O path in a measured wait for the drive: 31 % of a traced 4 KiB read of a virtual
/// disk.
const KERNEL_PATH: f64 = 0.31;
/// Smallest gain of more cores that is reported.
const GAIN_MIN: f64 = 1.05;

/// Number of CPUs in a list like `0-3,8`.
fn count(list: &str) -> Option<u32> {
    let range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        last.parse::<u32>().ok()?.checked_add(1)?.checked_sub(first.parse().ok()?)
    };
    list.split(',').map(range).try_fold(0u32, |sum, one| sum.checked_add(one?))
}

/// Load of a trial.
#[derive(Debug, Clone, Copy)]
struct Load {
    /// Clients of the closed loop.
    clients: u64,
    /// Cores that they have.
    cores: f64,
    /// The least share of the drive in an operation's time, without the kernel's I/O path.
    device: f64,
    /// The CPUs were saturated.
    full: bool,
}

fn bounds(parts: &TimeParts, change: Change, load: Load) -> Gain {
    let Load { clients, cores, device, full } = load;
    let own = (1.0 - parts.share_of_others()).max(f64::MIN_POSITIVE);
    let cpu = parts.share(Part::Cpu) + parts.share(Part::WakeUps);
    let (removed, cores) = match change {
        Change::FreeDrive | Change::NoLimit => (parts.drive_share().unwrap_or(0.0), cores),
        Change::TwiceTheCores => (parts.share(Part::RunQueue), 2.0 * cores),
    };
    let left = ((own - removed) / own).max(0.001);
    // Without waits the CPU's caches stay warm, and nothing is woken.
    let saved = match change {
        Change::FreeDrive | Change::NoLimit => {
            let waits = (removed / own / WAITING).min(1.0);
            waits * (COLD * parts.share(Part::Cpu) + parts.share(Part::WakeUps))
        }
        Change::TwiceTheCores => 0.0,
    };
    let behind: &[Part] = match change {
        Change::FreeDrive | Change::NoLimit if full => {
            &[Part::Background, Part::Stalls, Part::Rest]
        }
        Change::FreeDrive | Change::NoLimit => {
            &[Part::Background, Part::Stalls, Part::Rest, Part::RunQueue]
        }
        Change::TwiceTheCores => &[],
    };
    let behind: f64 = behind.iter().map(|part| parts.share(*part)).sum();
    // The CPUs' share of all clients' operations.
    let busy = |saved: f64| clients as f64 * (cpu - saved) / cores;
    let bound = |left: f64, saved: f64| {
        (1.0 / left.max(0.001)).min(1.0 / busy(saved).max(f64::MIN_POSITIVE)).max(1.0)
    };
    let least = bound(left, 0.0);
    let avoidable = (saved + behind) / own;
    let likely = bound(left - LIKELY * avoidable, LIKELY * saved);
    let high = bound(left - avoidable, saved).max(least);
    let others = (clients as f64 * own - 1.0).max(0.0) * cpu / own / cores;
    let low = match change {
        Change::FreeDrive | Change::NoLimit => 1.0 / ((own - removed.min(device)) / own + others),
        Change::TwiceTheCores => 1.0,
    };
    let low = low.clamp(1.0, least);
    Gain { change, low, likely: likely.clamp(low, high), high }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Nanos;

    fn of(times: &[(Part, u64)], change: Change, (clients, cores): (u64, u32)) -> (f64, f64, f64) {
        let load = Load { clients, cores: f64::from(cores), device: 1.0, full: false };
        let parts: Vec<_> = times.iter().map(|(part, time)| (*part, Nanos(*time))).collect();
        let whole = parts.iter().fold(Nanos::ZERO, |sum, (_, time)| sum + *time);
        let Gain { low, likely, high, .. } = bounds(&TimeParts { whole, parts }, change, load);
        let [low, likely, high] = [low, likely, high].map(|one| (one * 100.0).round() / 100.0);
        (low, likely, high)
    }

    /// A buyer who expects 10x and gets 2x bought the wrong part.
    #[test]
    fn a_free_drive_gives_no_more_than_the_processors_can_do() {
        let half = [(Part::Cpu, 50), (Part::DriveReads, 50)];
        // One client waits for nobody, and may save CPU time.
        assert_eq!(of(&half, Change::FreeDrive, (1, 2)), (2.0, 2.42, 6.67));
        // Three clients of two cores, 75 % busy, then 0.3 of that.
        assert_eq!(of(&half, Change::FreeDrive, (3, 2)), (1.0, 1.62, 4.44));
        let tenth = [(Part::Cpu, 10), (Part::DriveReads, 90)];
        assert_eq!(of(&tenth, Change::FreeDrive, (4, 2)), (4.0, 6.06, 16.67));
        let little = [(Part::Cpu, 95), (Part::DriveReads, 5)];
        assert_eq!(of(&little, Change::FreeDrive, (1, 2)), (1.05, 1.1, 1.28));
        // Behind a lock, one of ten clients works at a time.
        let locked = [(Part::Cpu, 2), (Part::DriveFlushes, 8), (Part::Locks, 90)];
        assert_eq!(of(&locked, Change::FreeDrive, (10, 2)), (5.0, 6.06, 16.67));
        // The page cleaner may wait for the drive or not.
        let cleaned = [(Part::Cpu, 10), (Part::DriveReads, 40), (Part::Background, 50)];
        assert_eq!(of(&cleaned, Change::FreeDrive, (1, 2)), (1.67, 2.19, 33.33));
        // Compactions behind which writers wait use the drive.
        let stalled = [(Part::Cpu, 27), (Part::DriveWrites, 3), (Part::Stalls, 70)];
        assert!(of(&stalled, Change::FreeDrive, (1, 2)).2 > 3.0);
        // As may threads that wait for a CPU because the drive wakes them all at once.
        let bursts = [(Part::Cpu, 10), (Part::DriveReads, 70), (Part::RunQueue, 20)];
        assert_eq!(of(&bursts, Change::FreeDrive, (1, 2)), (3.33, 4.3, 33.33));
    }

    /// A measured wait for the drive contains the kernel's path, which stays.
    #[test]
    fn the_least_gain_keeps_the_kernels_path() {
        let parts = vec![(Part::Cpu, Nanos(20)), (Part::DriveReads, Nanos(80))];
        let parts = TimeParts { whole: Nanos(100), parts };
        let load = Load { clients: 1, cores: 2.0, device: 0.6, full: false };
        let gain = bounds(&parts, Change::FreeDrive, load);
        assert!((gain.low - 2.5).abs() < 1e-9 && (gain.likely - 6.06).abs() < 0.01, "{gain:?}");
    }

    /// Other programs fill the run queue of saturated CPUs: no drive removes that.
    #[test]
    fn the_run_queue_of_saturated_processors_is_not_the_drives() {
        let parts = vec![(Part::Cpu, Nanos(5)), (Part::DriveReads, Nanos(25))];
        let parts: Vec<_> = parts.into_iter().chain([(Part::RunQueue, Nanos(70))]).collect();
        let parts = TimeParts { whole: Nanos(100), parts };
        let gain = |full| {
            let load = Load { clients: 1, cores: 2.0, device: 1.0, full };
            bounds(&parts, Change::FreeDrive, load).high
        };
        assert!(gain(false) > 50.0 && gain(true) < 1.5, "{} {}", gain(false), gain(true));
    }

    /// Two stacks of a job whose rates on an infinitely fast drive differ contradict each other.
    #[test]
    fn all_stacks_of_a_job_have_one_ceiling() {
        let stacks = ["a", "b"].map(|name| {
            format!("[[stack]]\nname = \"{name}\"\ndevice = \"model:intel-p4800x\"\ncores = 2\n")
        });
        let study = format!(
            "schema = 2\nname = \"s\"\n{}[[experiment]]\nname = \"e\"\n[experiment.job]\nengine = \
             \"lmdb\"\nworkload = \"read_random\"\nrecords = 1000\nvalue_size = \"100B\"\n",
            stacks.join("")
        );
        let mut run = crate::test_run::run_of(&study, Nanos(100_000));
        for record in &mut run.header.stacks {
            record.host_cores = Some((2, false));
        }
        // The second spends a tenth of its time in the drive, the first nine tenths.
        for (trial, read) in run.trials.iter_mut().zip([0.9, 0.1]) {
            let time = |kind: &str| match kind {
                "read" => read,
                "cpu" => 1.0 - read,
                _ => 0.0,
            };
            let name = |kind| stats::TimedBy::Simulation.name(kind, false);
            trial.result.totals = stats::TIME_KINDS.map(|kind| (name(kind), time(kind))).into();
        }
        let groups = crate::groups(&run);
        let gain = |group: &Group<'_>| {
            let parts = time_parts(group, group.classes()[0]).expect("parts");
            let all = gains(group, (&parts, Part::DriveReads), DecisionMetric::Lookups);
            all.expect("a steady closed loop")[0]
        };
        let (one, other) = (gain(&groups[0]), gain(&groups[1]));
        // Their rates are the same.
        assert_eq!((one.low, one.likely, one.high), (other.low, other.likely, other.high));
        assert!(one.low > 1.0, "{one:?}");
    }

    /// "An infinitely fast drive: 2.0x" next to a drive that gives 2.5x.
    #[test]
    fn a_free_drive_gives_at_least_what_another_drive_gives() {
        let gain = Gain { change: Change::FreeDrive, low: 1.2, likely: 2.0, high: 2.2 };
        let more = gain.at_least(2.5);
        assert_eq!((more.low, more.likely, more.high), (1.2, 2.5, 2.5));
        assert_eq!(gain.at_least(1.0), gain);
    }

    #[test]
    fn more_cores_remove_waiting_for_one() {
        let queued = [(Part::Cpu, 50), (Part::RunQueue, 50)];
        assert_eq!(of(&queued, Change::TwiceTheCores, (4, 2)), (1.0, 2.0, 2.0));
        assert_eq!(of(&[(Part::Cpu, 100)], Change::TwiceTheCores, (1, 2)), (1.0, 1.0, 1.0));
    }
}
