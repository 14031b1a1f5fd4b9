//! Whether a storage is fit for a database: flush time, durability, write cache, throttling, latency under
//! load and background load, each with a verdict.
//!
//! Works on runs of the built-in study `check`, whose experiments it knows by name. A check without its
//! measurements is doubtful. Software cannot prove that a flush reaches the medium; that takes a power cut.

use archive::Run;
use observe::StorageFacts;
use stats::cliffs::{Course, course};
use study::Source;
use units::{Nanos, human_count};
use workload::OpClass;

use crate::groups::{Group, Ops, groups};
use crate::objective::Outcome;

/// Verdict of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fitness {
    /// Nothing was found.
    Fit,
    /// Depends on facts that a measurement does not show, or on the load.
    Doubtful,
    /// Not fit.
    Unfit,
}

impl Fitness {
    /// The word in tables.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Fit => "ok",
            Self::Doubtful => "doubtful",
            Self::Unfit => "fail",
        }
    }
}

impl From<Fitness> for Outcome {
    fn from(verdict: Fitness) -> Self {
        match verdict {
            Fitness::Fit => Self::Met,
            Fitness::Doubtful => Self::Open,
            Fitness::Unfit => Self::Missed,
        }
    }
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FitnessCheck {
    /// What was checked.
    pub name: &'static str,
    /// The verdict.
    pub verdict: Fitness,
    /// The reason, with its numbers.
    pub text: String,
}

/// Longest p99 of a flush (etcd's FAQ: the 99th percentile of an fsync of its log below 10 ms), also of a
/// read under load.
const P99_MAX: f64 = 10e6;
/// Beyond this, reads under load time out in most services.
const LOADED_MAX: f64 = 50e6;
/// Tenth percentile of a flush below which a drive with a volatile cache had no time to write to its medium:
/// the fastest consumer drives take longer (docs/method/advice.md).
const FLUSH_MIN: f64 = 300e3;
/// How close rates of different sizes are under a limit on IOPS.
const ALIKE: f64 = 0.02;
/// Smallest fall of a sustained rate that is reported.
const FALL: f64 = 0.2;
/// Spread of the rate of single reads on a steady storage: the 90th less the 10th percentile of the
/// intervals, over their median.
const SPREAD_MAX: f64 = 0.2;
/// Share of CPU time of other processes.
const OTHERS_MAX: f64 = 0.1;

/// Median, and the highest percentile up to p99 that the samples support; nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Times {
    p50: f64,
    percent: f64,
    tail: f64,
}

impl Times {
    /// `p99 2.00 ms`.
    fn tail_text(self) -> String {
        format!("p{:.0} {}", self.percent, time(self.tail))
    }

    /// Whether the tail is within a limit of p99; a lower percentile only shows what is not.
    fn within(self, limit: f64) -> Fitness {
        match self.tail {
            tail if tail > limit => Fitness::Unfit,
            _ if self.percent < 99.0 => Fitness::Doubtful,
            _ => Fitness::Fit,
        }
    }
}

/// IOPS of 4 and of 16 KiB at a deep queue.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sizes {
    small: f64,
    large: f64,
}

impl Sizes {
    /// Whether the size makes no difference.
    fn alike(self) -> bool {
        (self.large / self.small - 1.0).abs() <= ALIKE
    }
}

/// What was measured on one storage.
#[derive(Debug, Clone, Default)]
struct Measured {
    /// What holds the data, if it is memory.
    memory: Option<String>,
    /// The device reports a volatile write cache; `None` if it is unknown.
    volatile: Option<bool>,
    /// A hard disk: its seeks take as long for any size.
    rotational: bool,
    /// A flush after one write of 4 KiB, and the durable writes per second.
    flush: Option<(Times, f64)>,
    /// Median of a flush after one write, and the tenth percentile: what it takes on an idle host.
    single: Option<f64>,
    least: Option<f64>,
    /// Tenth percentile of a flush after 256 writes.
    batch: Option<f64>,
    reads: Option<Sizes>,
    writes: Option<Sizes>,
    /// Rates of sustained writes in each interval, and the seconds of an interval.
    sustained: Option<(Vec<f64>, f64)>,
    /// Median of reads without writes, and reads with writes.
    alone: Option<f64>,
    loaded: Option<Times>,
    /// Rates of single reads in each interval, and the CPU share of other processes.
    steady: Option<(Vec<f64>, f64)>,
}

/// The checks of a run; empty if it is not one of the study `check`.
#[must_use]
pub fn fitness(run: &Run) -> Vec<FitnessCheck> {
    if run.study.answer != Some(study::Finding::Fitness) || run.trials.is_empty() {
        return Vec::new();
    }
    judge(&measured(run))
}

fn measured(run: &Run) -> Measured {
    let mut seen = Measured::default();
    let storage = run.header.stacks.first().and_then(|stack| stack.storage.as_ref());
    if let Some(facts) = storage {
        seen.memory = memory_words(facts);
        seen.rotational = facts.rotational == "1";
        let known = |word: &str| facts.write_cache == word;
        seen.volatile =
            (known("write back") || known("write through")).then(|| known("write back"));
    }
    let first = run.header.stacks.first().map_or("", |stack| stack.name.as_str());
    for group in groups(run).iter().filter(|one| one.is_sound() && one.first.stack == first) {
        let sound =
            group.first.source == Source::Measured || group.first.source == Source::Emulated;
        if sound {
            add(&mut seen, group);
        }
    }
    seen
}

fn add(seen: &mut Measured, group: &Group<'_>) {
    let (reads, writes, flushes) =
        (Ops::Only(OpClass::Read), Ops::Only(OpClass::Write), Ops::Only(OpClass::Sync));
    let at = |ops: Ops, p| group.percentile(ops, p).ok().map(|found| found.value);
    let times = |ops: Ops| {
        let tail = [99.0, 95.0, 90.0, 50.0].into_iter();
        let (percent, tail) = tail.filter_map(|p| Some((p, at(ops, p)?))).next()?;
        Some(Times { p50: at(ops, 50.0)?, percent, tail })
    };
    let median = |ops| at(ops, 50.0).or_else(|| Some(group.mean_latency(ops)?.value));
    let rate = |ops: Ops| group.rate(ops).map_or(0.0, |rate| rate.value);
    let point = |name: &str| group.first.point.get(name).map_or("", String::as_str);
    let size = |sizes: Option<Sizes>, rate: f64| {
        let mut sizes = sizes.unwrap_or(Sizes { small: 0.0, large: 0.0 });
        match point("block_size") {
            "16KiB" => sizes.large = rate,
            _ => sizes.small = rate,
        }
        Some(sizes)
    };
    match group.first.experiment.as_str() {
        "commits" => {
            seen.flush = times(flushes).map(|times| (times, rate(writes)));
            (seen.single, seen.least) = (median(flushes), at(flushes, 10.0).or(median(flushes)));
        }
        "batches" => seen.batch = at(flushes, 10.0).or(median(flushes)),
        "reads" => seen.reads = size(seen.reads, rate(reads)),
        "writes" => seen.writes = size(seen.writes, rate(writes)),
        "sustained" => seen.sustained = Some(intervals(group, OpClass::Write)),
        "alone" => {
            seen.alone = median(reads);
            seen.steady = Some((intervals(group, OpClass::Read).0, group.others()));
        }
        "loaded" => seen.loaded = times(reads),
        _ => {}
    }
}

/// Operations per second of each interval, and the seconds of an interval.
fn intervals(group: &Group<'_>, class: OpClass) -> (Vec<f64>, f64) {
    let mut seconds = 0.0;
    let rates = group.first.result.recording.measured().map(|interval| {
        seconds = interval.seconds();
        interval.tallies[class].counts.ops as f64 / seconds.max(1e-9)
    });
    (rates.collect(), seconds)
}

/// Why written data does not outlive a power cut, whatever is flushed.
fn memory_words(facts: &StorageFacts) -> Option<String> {
    let digits = |name: &str, kind: &str| {
        name.strip_prefix(kind).is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let memory = match facts.file_system.as_str() {
        kind @ ("tmpfs" | "ramfs") => kind,
        _ if digits(&facts.device, "zram") || digits(&facts.device, "ram") => &facts.device,
        _ => return None,
    };
    Some(memory.to_owned())
}

fn judge(seen: &Measured) -> Vec<FitnessCheck> {
    let all = [
        ("flush time", flush_time(seen)),
        ("durability", durability(seen)),
        ("write cache", write_cache(seen)),
        ("throttling", throttling(seen)),
        ("latency under load", under_load(seen)),
        ("background load", background(seen)),
    ];
    let missing =
        || (Fitness::Doubtful, "not measured: too few operations, or its trials failed".into());
    let check = |(name, found): (&'static str, Option<(Fitness, String)>)| {
        let (verdict, text) = found.unwrap_or_else(missing);
        FitnessCheck { name, verdict, text }
    };
    all.into_iter().map(check).collect()
}

fn time(value: f64) -> String {
    Nanos(value as u64).to_string()
}

fn flush_time(seen: &Measured) -> Option<(Fitness, String)> {
    let (flush, commits) = seen.flush?;
    let verdict = flush.within(P99_MAX);
    let limit = if verdict == Fitness::Unfit { "above" } else { "within" };
    let text = format!(
        "a flush after a 4 KiB write takes {} (median), {}, {limit} etcd's limit of {} for p99: {} durable \
         writes/s one after another",
        time(flush.p50),
        flush.tail_text(),
        time(P99_MAX),
        human_count(commits)
    );
    Some((verdict, text))
}

fn durability(seen: &Measured) -> Option<(Fitness, String)> {
    if let Some(memory) = &seen.memory {
        return Some((Fitness::Unfit, format!("{memory} is memory: a power cut loses all data")));
    }
    let (flush, least, batch) = (seen.single?, seen.least?, seen.batch?);
    let cost = format!("{} after 4 KiB, {} after 1 MiB", time(flush), time(batch));
    Some(match seen.volatile {
        None => (
            Fitness::Doubtful,
            format!("the device does not report its cache; a flush takes {cost}"),
        ),
        Some(false) => (
            Fitness::Fit,
            format!(
                "the device reports no volatile write cache, so the kernel need not flush it; {cost}"
            ),
        ),
        Some(true) if least >= FLUSH_MIN => {
            (Fitness::Fit, format!("a flush takes long enough to write to the medium: {cost}"))
        }
        Some(true) => (
            Fitness::Doubtful,
            format!(
                "the device reports a volatile write cache, but a flush takes only {cost}: either it has \
                 power-loss protection, or something below drops flushes; only a power cut shows which"
            ),
        ),
    })
}

fn write_cache(seen: &Measured) -> Option<(Fitness, String)> {
    let (rates, seconds) = seen.sustained.as_ref()?;
    let tenth = (rates.len() / 10).max(1);
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len().max(1) as f64;
    let (first, last) =
        (mean(&rates[..tenth.min(rates.len())]), mean(&rates[rates.len().saturating_sub(tenth)..]));
    let length = rates.len() as f64 * seconds;
    let found = course(rates);
    let fall = found.cliffs().iter().filter(|cliff| cliff.change <= -FALL);
    let rate = |value: f64| format!("{}/s", human_count(value));
    let spent = "a cache or a burst credit is used up, or the drive cleans up";
    Some(match (fall.min_by(|a, b| a.change.total_cmp(&b.change)), &found) {
        (Some(fall), _) => (
            Fitness::Doubtful,
            format!(
                "4 KiB random writes fall from {} to {} after {:.0} s: {spent}",
                rate(fall.before),
                rate(fall.after),
                fall.at as f64 * seconds
            ),
        ),
        (None, _) if last < first * (1.0 - FALL) => (
            Fitness::Doubtful,
            format!(
                "4 KiB random writes fall from {} to {} in {length:.0} s: {spent}",
                rate(first),
                rate(last)
            ),
        ),
        (None, Course::Wave(_)) => (
            Fitness::Doubtful,
            format!("the rate of 4 KiB random writes rises and falls around {}", rate(mean(rates))),
        ),
        (None, _) => (
            Fitness::Fit,
            format!("4 KiB random writes keep {} for {length:.0} s", rate(mean(rates))),
        ),
    })
}

fn throttling(seen: &Measured) -> Option<(Fitness, String)> {
    let (reads, writes) = (seen.reads?, seen.writes?);
    let all = [reads.small, reads.large, writes.small, writes.large];
    if all.iter().any(|rate| *rate <= 0.0) {
        return None;
    }
    let limited = |(name, sizes): (&str, Sizes)| {
        sizes.alike().then(|| format!("{} {name}/s", human_count(sizes.small)))
    };
    let limited: Vec<String> =
        [("reads", reads), ("writes", writes)].into_iter().filter_map(limited).collect();
    Some(match limited.is_empty() || seen.rotational {
        false => (
            Fitness::Doubtful,
            format!(
                "throttled: {} at queue depth 32, for 4 KiB and for 16 KiB alike, as a limit on IOPS of a \
                 volume or a hypervisor does",
                limited.join(" and ")
            ),
        ),
        true => (
            Fitness::Fit,
            format!(
                "no limit on IOPS found: at queue depth 32 {} reads/s of 4 KiB and {} of 16 KiB, {} and {} \
                 writes/s",
                human_count(reads.small),
                human_count(reads.large),
                human_count(writes.small),
                human_count(writes.large)
            ),
        ),
    })
}

fn under_load(seen: &Measured) -> Option<(Fitness, String)> {
    let (alone, loaded) = (seen.alone?, seen.loaded?);
    let verdict = match loaded.tail {
        tail if tail > LOADED_MAX => Fitness::Unfit,
        tail if tail > P99_MAX => Fitness::Doubtful,
        _ => loaded.within(P99_MAX),
    };
    let text = format!(
        "4 KiB reads take {} (median) at queue depth 1, and {} with 30 % writes at queue depth 16",
        time(alone),
        loaded.tail_text()
    );
    Some((verdict, text))
}

fn background(seen: &Measured) -> Option<(Fitness, String)> {
    let (rates, others) = seen.steady.as_ref()?;
    let mut sorted = rates.clone();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| sorted.get(((sorted.len() - 1) as f64 * share).round() as usize).copied();
    if sorted.is_empty() {
        return None;
    }
    let (low, middle, high) = (at(0.1)?, at(0.5)?, at(0.9)?);
    let spread = (high - low) / middle.max(1e-9);
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let verdict = match spread > SPREAD_MAX || *others > OTHERS_MAX {
        true => Fitness::Doubtful,
        false => Fitness::Fit,
    };
    let text = format!(
        "the rate of single reads varies by {} between intervals; other processes use {} of the CPUs",
        percent(spread),
        percent(*others)
    );
    Some((verdict, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(p50: f64, tail: f64) -> Times {
        Times { p50, percent: 99.0, tail }
    }

    /// A healthy SATA drive without power-loss protection.
    fn healthy() -> Measured {
        Measured {
            volatile: Some(true),
            flush: Some((times(1.2e6, 2.0e6), 800.0)),
            rotational: false,
            single: Some(1.2e6),
            least: Some(1.1e6),
            batch: Some(2.5e6),
            reads: Some(Sizes { small: 60e3, large: 30e3 }),
            writes: Some(Sizes { small: 40e3, large: 20e3 }),
            sustained: Some((vec![40e3; 120], 0.25)),
            alone: Some(90e3),
            loaded: Some(times(200e3, 2e6)),
            steady: Some((vec![11e3; 20], 0.0)),
            memory: None,
        }
    }

    fn verdicts(seen: &Measured) -> Vec<&'static str> {
        judge(seen).iter().map(|check| check.verdict.word()).collect()
    }

    fn only(changed: impl FnOnce(&mut Measured)) -> (Vec<&'static str>, Vec<String>) {
        let mut seen = healthy();
        changed(&mut seen);
        (verdicts(&seen), judge(&seen).into_iter().map(|check| check.text).collect())
    }

    /// A check that passes everything, or nothing, helps nobody: each failure changes its own verdict only.
    #[test]
    fn each_defect_changes_one_verdict() {
        let (ok, bad, no) = ("ok", "doubtful", "fail");
        assert_eq!(verdicts(&healthy()), [ok; 6]);
        let slow = only(|seen| seen.flush = Some((times(8e6, 30e6), 100.0))).0;
        assert_eq!(slow, [no, ok, ok, ok, ok, ok]);
        let lying = only(|seen| {
            seen.flush = Some((times(40e3, 90e3), 9e3));
            (seen.single, seen.least, seen.batch) = (Some(40e3), Some(35e3), Some(45e3));
        });
        assert_eq!(lying.0, [ok, bad, ok, ok, ok, ok]);
        assert!(lying.1[1].contains("drops flushes"), "{:?}", lying.1);
        let memory = only(|seen| seen.memory = Some("zram0".into())).0;
        assert_eq!(memory, [ok, no, ok, ok, ok, ok]);
        let spent = only(|seen| {
            let rates = (0..120).map(|at| if at < 60 { 40e3 } else { 3e3 } + f64::from(at % 7));
            seen.sustained = Some((rates.collect(), 0.25));
        });
        assert_eq!(spent.0, [ok, ok, bad, ok, ok, ok]);
        assert!(spent.1[2].contains("after 15 s"), "{:?}", spent.1);
        let throttled = only(|seen| {
            let limited = Sizes { small: 3000.0, large: 3010.0 };
            (seen.reads, seen.writes) = (Some(limited), Some(limited));
        });
        assert_eq!(throttled.0, [ok, ok, ok, bad, ok, ok]);
        let one_way = only(|seen| seen.writes = Some(Sizes { small: 3000.0, large: 3010.0 }));
        assert_eq!(one_way.0, [ok, ok, ok, bad, ok, ok]);
        assert!(one_way.1[3].starts_with("throttled: 3000 writes/s"), "{:?}", one_way.1);
        let slower = only(|seen| {
            let rates = (0..120).map(|at| 40e3 - f64::from(at) * 200.0);
            seen.sustained = Some((rates.collect(), 0.25));
        });
        assert_eq!(slower.0, [ok, ok, bad, ok, ok, ok], "a gradual fall");
        let stalls = only(|seen| seen.loaded = Some(times(1e6, 60e6))).0;
        assert_eq!(stalls, [ok, ok, ok, ok, no, ok]);
        let shared = only(|seen| seen.steady = Some((vec![11e3; 20], 0.5))).0;
        assert_eq!(shared, [ok, ok, ok, ok, ok, bad]);
    }

    /// A drive that reports no cache is not suspected for fast flushes, and an unknown one is not trusted.
    #[test]
    fn durability_depends_on_the_reported_cache() {
        let fast = |volatile| {
            only(|seen| {
                seen.volatile = volatile;
                seen.flush = Some((times(12e3, 20e3), 30e3));
                (seen.single, seen.least, seen.batch) = (Some(12e3), Some(11e3), Some(13e3));
            })
            .0[1]
        };
        assert_eq!(
            [fast(Some(false)), fast(Some(true)), fast(None)],
            ["ok", "doubtful", "doubtful"]
        );
    }

    /// A disk too slow for a p99 must not pass by losing its checks.
    #[test]
    fn what_was_not_measured_is_doubtful() {
        assert_eq!(verdicts(&Measured::default()), ["doubtful"; 6]);
        let few = |p50, tail| {
            only(|seen| seen.flush = Some((Times { p50, percent: 90.0, tail }, 50.0))).0[0]
        };
        assert_eq!([few(15e6, 20e6), few(2e6, 5e6)], ["fail", "doubtful"]);
    }

    #[test]
    fn a_run_of_another_study_has_no_checks() {
        let text = "schema = 2\nname = \"s\"\n[[stack]]\nname = \"a\"\ndevice = \"model:intel-p4800x\"\n\
                    [[experiment]]\nname = \"sustained\"\n[experiment.job]\nengine = \"block\"\n";
        assert!(fitness(&crate::test_run::run_of(text, Nanos(1000))).is_empty());
    }
}
