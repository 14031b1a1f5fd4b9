//! Classes of simulated jobs that were compared with real ones, and the errors of each.
//!
//! The comparisons are docs/round-trip.csv (one real disk) and docs/virtual-time.csv (the same drive model in
//! real time). Invariants: a job that was never compared has no class; the error of a drive's profile is not
//! part of a range: profiles differ too much for one number.

use study::FileSystem;

use crate::figure::Figure;
use crate::groups::Group;
use crate::metric::DecisionMetric;
use crate::time_parts::is_layered;

/// A range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ValueRange {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Jobs of an engine whose simulations were compared with real ones together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SimulatedClass {
    Transactions,
    Lookups,
    /// Lookups next to writers that do not follow a schedule.
    LookupsNextToWrites,
    DurableUpdates,
    Updates,
    /// Updates next to readers under a memory limit.
    LimitedUpdates,
    RawUpdates,
    LoadTime,
    /// Loads of one record per transaction under a memory limit.
    SingleLoads,
    /// The same on a raw device.
    RawLoads,
}

impl SimulatedClass {
    /// The class of a job by its parameters, on a raw device or a file system; `None` for workloads that
    /// were not compared.
    pub(crate) fn of(
        counted: DecisionMetric,
        raw: bool,
        parameter: impl Fn(&str) -> Option<String>,
    ) -> Option<Self> {
        use DecisionMetric::{DurableUpdates, Lookups, Transactions, Updates};
        let has = |name: &str, value: &str| parameter(name).is_some_and(|own| own == value);
        let workload = parameter("workload");
        let limited = is_limited(&parameter);
        let by_map = has("write_map", "true");
        // The default, which older runs do not have among their parameters.
        let workload = workload.as_deref().unwrap_or("read_while_writing");
        let paced = parameter("write_rate").is_some();
        let mixed = workload == "read_while_writing" && !paced;
        let plain = !has("durability", "device");
        match counted {
            Lookups if mixed && plain => Some(Self::LookupsNextToWrites),
            Updates if mixed && limited && raw => Some(Self::RawUpdates),
            Updates if mixed && limited => Some(Self::LimitedUpdates),
            _ if raw || (by_map && counted != Lookups) => None,
            Transactions if ["read_write", "write_only", "point_select"].contains(&workload) => {
                Some(Self::Transactions)
            }
            Lookups if workload == "read_random" || (workload == "read_while_writing" && paced) => {
                Some(Self::Lookups)
            }
            DurableUpdates if workload == "overwrite" && !limited => Some(Self::DurableUpdates),
            Updates if !limited && (workload == "overwrite" || mixed) => Some(Self::Updates),
            _ => None,
        }
    }

    /// The class of a load.
    pub(crate) fn of_load(raw: bool, parameter: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let has = |name: &str, value: &str| parameter(name).is_some_and(|own| own == value);
        let limited = is_limited(&parameter);
        let workload = parameter("workload");
        let workload = workload.as_deref().unwrap_or("read_while_writing");
        let compared = ["read_random", "overwrite", "read_while_writing"].contains(&workload);
        match (has("load_batch", "1"), limited, raw) {
            _ if !compared || has("durability", "device") => None,
            (true, true, false) => Some(Self::SingleLoads),
            (true, true, true) => Some(Self::RawLoads),
            (false, false, false) if !has("write_map", "true") => Some(Self::LoadTime),
            _ => None,
        }
    }

    /// Name in a run's header, after the engine's.
    const fn word(self) -> &'static str {
        match self {
            Self::Transactions => "transactions",
            Self::Lookups => "lookups",
            Self::LookupsNextToWrites => "lookups next to writes",
            Self::DurableUpdates => "durable updates",
            Self::Updates => "updates",
            Self::LimitedUpdates => "updates next to readers under a memory limit",
            Self::RawUpdates => "updates on a raw device",
            Self::LoadTime => "loads",
            Self::SingleLoads => "loads one by one",
            Self::RawLoads => "loads one by one on a raw device",
        }
    }

    /// Ends of real over simulated values of its jobs, which contain at least nine in ten of its comparisons;
    /// chosen on these.
    pub(crate) const fn real_over_simulated(self, engine: &str) -> Option<ValueRange> {
        let (low, high) = match (engine.as_bytes(), self) {
            (b"lmdb" | b"sqlite", Self::Lookups) => (0.68, 1.14),
            (b"rocksdb", Self::Lookups) => (0.66, 1.07),
            (b"lmdb", Self::LookupsNextToWrites) => (0.66, 1.16),
            (b"rocksdb", Self::LookupsNextToWrites) => (0.52, 1.53),
            // SQLite's were 2.1 and 16 times as fast on the real disk.
            (b"lmdb" | b"rocksdb", Self::DurableUpdates) => (0.92, 1.52),
            (b"lmdb", Self::Updates) => (0.73, 2.18),
            (b"rocksdb", Self::Updates) => (0.91, 1.20),
            (b"sqlite", Self::Updates) => (0.67, 1.41),
            (b"lmdb", Self::LoadTime) => (0.46, 0.74),
            (b"rocksdb", Self::LoadTime) => (0.66, 0.98),
            (b"sqlite", Self::LoadTime) => (0.84, 0.96),
            (b"lmdb", Self::LimitedUpdates) => (0.60, 1.29),
            (b"rocksdb", Self::LimitedUpdates) => (0.33, 2.80),
            (b"lmdb", Self::RawUpdates) => (0.43, 0.98),
            (b"lmdb", Self::SingleLoads) => (0.93, 2.38),
            (b"rocksdb", Self::SingleLoads) => (0.99, 1.11),
            (b"lmdb", Self::RawLoads) => (0.78, 2.16),
            (b"mysql", Self::Transactions) => (0.61, 1.25),
            _ => return None,
        };
        Some(ValueRange { low, high })
    }

    /// Whether ratios of two drives were compared, too.
    const fn has_ratios(self) -> bool {
        matches!(self, Self::Transactions | Self::Lookups | Self::DurableUpdates)
    }
}

pub(crate) fn is_limited(parameter: impl Fn(&str) -> Option<String>) -> bool {
    parameter("memory").is_some_and(|memory| memory != "unlimited")
}

/// Parameter of a figure as text.
pub(crate) fn parameter_of(figure: &Figure, name: &str) -> Option<String> {
    let found = figure.point.get(name).or_else(|| figure.defaults.get(name));
    found.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

pub(crate) fn class_of_figure(figure: &Figure, raw: bool) -> Option<SimulatedClass> {
    let word = |name: &str| parameter_of(figure, name);
    let (op, durability) = (word("op"), word("durability"));
    let counted = match (&*figure.metric, op.as_deref()) {
        ("load_time", _) => return SimulatedClass::of_load(raw, word),
        ("tx_rate", _) => DecisionMetric::Transactions,
        ("ops_rate", Some("read")) => DecisionMetric::Lookups,
        ("ops_rate" | "throughput", Some("write")) if durability.as_deref() == Some("device") => {
            DecisionMetric::DurableUpdates
        }
        ("ops_rate" | "throughput", Some("write")) => DecisionMetric::Updates,
        _ => return None,
    };
    SimulatedClass::of(counted, raw, word)
}

pub(crate) fn class_of_group(group: &Group<'_>, counted: DecisionMetric) -> Option<SimulatedClass> {
    let (point, defaults) = (&group.first.point, &group.first.defaults);
    let mut stacks = group.run.study.stack.iter();
    let stack = stacks.find(|one| one.name == group.first.stack);
    if stack.is_some_and(|one| one.cpu_time.is_some()) {
        return None;
    }
    let raw = stack.is_some_and(|one| one.file_system == FileSystem::Raw);
    SimulatedClass::of(counted, raw, |name| point.get(name).or_else(|| defaults.get(name)).cloned())
}

/// Engine and class of a job, as in a run's header; `None` for jobs that are in no class.
pub(crate) fn class_name(group: &Group<'_>, counted: DecisionMetric) -> Option<String> {
    let class = class_of_group(group, counted)?;
    Some(format!("{} {}", group.first.engine, class.word()))
}

/// Real over simulated values of a figure, on a raw device or a file system; `None` for figures that were not
/// compared.
pub(crate) fn of_figure(figure: &Figure, raw: bool) -> Option<ValueRange> {
    class_of_figure(figure, raw)?.real_over_simulated(&figure.engine)
}

/// Factor that contains the ratio of two simulated figures; `None` unless they are of one job on two
/// drives, in a class whose ratios were compared.
pub(crate) fn ratio_factor(of: &Figure, over: &Figure) -> Option<f64> {
    let class = class_of_figure(of, false)?;
    let job = |one: &Figure| (one.engine.clone(), one.workload.clone(), one.metric.clone());
    let alike = job(of) == job(over) && of.point == over.point && of.stack != over.stack;
    class.real_over_simulated(&of.engine).filter(|_| alike && class.has_ratios())?;
    Some(SIMULATED_RATIO)
}

/// Ratio of two simulated rates of one job on two drives, over the real ratio: nine in ten of 42 pairs lie
/// within this factor and its inverse.
pub(crate) const SIMULATED_RATIO: f64 = 1.17;

/// Whether the errors of a simulated job were found to cancel in the ratio of two drives.
pub(crate) fn shares_errors(group: &Group<'_>, counted: DecisionMetric) -> bool {
    let class = class_of_group(group, counted).filter(|class| class.has_ratios());
    let known = class.and_then(|class| class.real_over_simulated(&group.first.engine)).is_some();
    let mut stacks = group.run.header.stacks.iter();
    let stack = stacks.find(|one| one.name == group.first.stack);
    // Drives alone were compared, not what is in front of them.
    known && stack.is_some_and(|stack| !is_layered(&stack.device))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const VIRTUAL_TIME: &str = include_str!("../../../../docs/virtual-time.csv");
    const ROUND_TRIP: &str = include_str!("../../../../docs/round-trip.csv");

    /// Real over simulated values with their classes, from both tables.
    fn comparisons() -> Vec<(String, SimulatedClass, f64)> {
        let class = |engine: &str, words: &str| match engine {
            "mysql" => SimulatedClass::Transactions,
            _ if words.contains("overwrite") || words.contains("op=write") => {
                SimulatedClass::DurableUpdates
            }
            _ => SimulatedClass::Lookups,
        };
        let virtual_time = VIRTUAL_TIME.lines().skip(1).filter_map(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            let engine = if cells[0] == "mariadb" { "mysql" } else { cells[0] };
            let error: f64 = cells[7].parse().ok()?;
            Some((engine.to_owned(), class(engine, cells[1]), 1.0 / (1.0 + error)))
        });
        let round_trip = ROUND_TRIP.lines().skip(1).filter_map(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            let [experiment, engine, job, metric, .., error] = cells[..] else { return None };
            let words: BTreeMap<&str, &str> =
                job.split(' ').filter_map(|word| word.split_once('=')).collect();
            let word = |name: &str| words.get(name).map(|value| (*value).to_owned());
            let raw = experiment == "raw";
            let durable = words.get("durability") == Some(&"device");
            let counted = match (metric, words["op"]) {
                ("tx_rate", _) => DecisionMetric::Transactions,
                ("ops_rate", "read") => DecisionMetric::Lookups,
                // The study sets the rate of the others.
                ("ops_rate", "write") if words.contains_key("write_rate") => return None,
                ("ops_rate", "write") if durable => DecisionMetric::DurableUpdates,
                ("ops_rate", "write") => DecisionMetric::Updates,
                ("load_time", _) => {
                    let class = SimulatedClass::of_load(raw, word).expect(line);
                    let error: f64 = error.parse().ok()?;
                    return Some((engine.to_owned(), class, 1.0 / (1.0 + error)));
                }
                _ => return None,
            };
            let class = SimulatedClass::of(counted, raw, word).expect(line);
            let error: f64 = error.parse().ok()?;
            Some((engine.to_owned(), class, 1.0 / (1.0 + error)))
        });
        virtual_time.chain(round_trip).collect()
    }

    /// A range that does not contain what was measured is worse than none.
    #[test]
    fn the_ranges_of_simulations_contain_nine_of_ten_comparisons_of_each_class() {
        let mut classes: Vec<(ValueRange, Vec<f64>)> = Vec::new();
        for (engine, class, real) in comparisons() {
            let Some(range) = class.real_over_simulated(&engine) else { continue };
            match classes.iter_mut().find(|(own, _)| *own == range) {
                Some((_, all)) => all.push(real),
                None => classes.push((range, vec![real])),
            }
        }
        assert_eq!(classes.len(), 18);
        for (range, all) in classes {
            let inside = all.iter().filter(|real| (range.low..=range.high).contains(real)).count();
            assert!(all.len() >= 10 && inside * 10 >= all.len() * 9, "{range:?}: {all:?}");
            // Wider than needed says less than is known.
            let within =
                || all.iter().copied().filter(|real| (range.low..=range.high).contains(real));
            let (least, most) = (within().fold(f64::MAX, f64::min), within().fold(0.0, f64::max));
            assert!(range.low > least * 0.97 && range.high < most * 1.03, "{range:?}: {all:?}");
        }
    }

    #[test]
    fn the_range_of_a_simulated_ratio_contains_nine_of_ten_pairs_of_drives() {
        let rows: Vec<Vec<&str>> =
            VIRTUAL_TIME.lines().skip(1).map(|line| line.split(',').collect()).collect();
        let (mut pairs, mut inside) = (0, 0);
        for (at, a) in rows.iter().enumerate() {
            for b in &rows[at + 1..] {
                // Of one set: the hosts differ.
                if (a[0], a[1], a[4], a[11]) != (b[0], b[1], b[4], b[11]) {
                    continue;
                }
                let error = |row: &[&str]| 1.0 + row[7].parse::<f64>().expect("an error");
                let ratio = error(a) / error(b);
                pairs += 1;
                inside += u32::from((1.0 / SIMULATED_RATIO..=SIMULATED_RATIO).contains(&ratio));
            }
        }
        assert!(pairs > 30 && f64::from(inside) >= 0.9 * f64::from(pairs), "{inside} of {pairs}");
    }

    /// A class that covers jobs which were never compared, or another class's range, would decide by nothing.
    #[test]
    fn each_job_has_the_class_in_which_it_was_compared() {
        use DecisionMetric::{DurableUpdates, Lookups, Updates};
        let of = |counted, workload: &str, paced: bool| {
            SimulatedClass::of(counted, false, |name| match name {
                "workload" => Some(workload.to_owned()).filter(|word| !word.is_empty()),
                "write_rate" => paced.then(|| "100/s".to_owned()),
                _ => None,
            })
        };
        assert_eq!(of(Lookups, "read_random", false), Some(SimulatedClass::Lookups));
        assert_eq!(of(Lookups, "read_while_writing", true), Some(SimulatedClass::Lookups));
        for default in ["read_while_writing", ""] {
            let class = Some(SimulatedClass::LookupsNextToWrites);
            assert_eq!(of(Lookups, default, false), class);
            assert_eq!(of(Updates, default, false), Some(SimulatedClass::Updates));
        }
        assert_eq!(of(DurableUpdates, "overwrite", false), Some(SimulatedClass::DurableUpdates));
        let none = [
            (Lookups, "ycsb_a", false),
            (Updates, "bulk_load", false),
            (Updates, "ycsb_a", false),
            (Updates, "read_while_writing", true),
            (DurableUpdates, "read_while_writing", true),
        ];
        for (counted, workload, paced) in none {
            assert_eq!(of(counted, workload, paced), None, "{workload}");
        }
        let mixed = |counted, raw, map: &str| {
            SimulatedClass::of(counted, raw, |name| match name {
                "memory" => Some("25%".to_owned()),
                "write_map" => Some(map.to_owned()),
                _ => None,
            })
        };
        for map in ["false", "true"] {
            assert_eq!(mixed(Updates, false, map), Some(SimulatedClass::LimitedUpdates));
            assert_eq!(mixed(Updates, true, map), Some(SimulatedClass::RawUpdates));
            assert_eq!(mixed(DurableUpdates, true, map), None, "never compared");
        }
        let load = |raw, batch: &str, memory: &str, map: &str| {
            SimulatedClass::of_load(raw, |name| match name {
                "load_batch" => Some(batch.to_owned()),
                "memory" => Some(memory.to_owned()),
                "write_map" => Some(map.to_owned()),
                _ => None,
            })
        };
        use SimulatedClass::{LoadTime, RawLoads, SingleLoads};
        assert_eq!(load(false, "1000", "unlimited", "false"), Some(LoadTime));
        assert_eq!(load(false, "1", "25%", "false"), Some(SingleLoads));
        assert_eq!(load(false, "1", "25%", "true"), Some(SingleLoads));
        assert_eq!(load(true, "1", "25%", "false"), Some(RawLoads));
        assert_eq!(load(true, "1", "25%", "true"), Some(RawLoads));
        for (batch, memory) in [("1", "unlimited"), ("1000", "25%")] {
            assert_eq!(load(false, batch, memory, "false"), None, "{batch} {memory}");
        }
        assert_eq!(load(true, "1000", "unlimited", "false"), None);
        assert_eq!(load(false, "1000", "unlimited", "true"), None);
    }

    #[test]
    fn jobs_that_were_never_compared_have_no_class() {
        use DecisionMetric::{DurableUpdates, Lookups, Updates};
        let never = |counted, words: &[(&str, &str)]| {
            let word = |name: &str| {
                let found = words.iter().find(|(own, _)| *own == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            assert_eq!(SimulatedClass::of(counted, false, word), None, "{words:?}");
        };
        let limit = ("memory", "25%");
        never(Lookups, &[("workload", "ycsb_c")]);
        never(DurableUpdates, &[("workload", "overwrite"), limit]);
        never(Updates, &[("workload", "overwrite"), limit]);
        never(Lookups, &[("durability", "device")]);
        never(DecisionMetric::Transactions, &[("workload", "read_only")]);
        for words in [("workload", "bulk_load"), ("durability", "device")] {
            let word = |name: &str| (name == words.0).then(|| words.1.to_owned());
            assert_eq!(SimulatedClass::of_load(false, word), None, "{words:?}");
        }
    }
}
