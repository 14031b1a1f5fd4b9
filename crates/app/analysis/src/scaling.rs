//! When the drive stops mattering: results as memory shrinks or clients increase.
//!
//! The axis is the first parameter of [`AXES`] with at least three values; everything else is constant along
//! a line, and a panel shows the combination of the others with the most points. Invariants: a line belongs
//! to one stack and source; lookups and updates are never combined.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use archive::Run;
use indexmap::IndexMap;
use stats::estimate::Estimate;
use study::Source;
use units::{Bytes, Share};
use workload::OpClass;

use crate::groups::{Group, Ops, groups, is_sql};

/// Parameters that can be an axis, most informative first.
pub const AXES: [&str; 4] = ["memory", "buffer_pool", "clients", "queue_depth"];
/// Minimum number of values for a chart.
const VALUES_MIN: usize = 3;

/// Kind of axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AxisKind {
    /// Data size over memory size.
    DataOverMemory,
    /// Memory in MiB.
    MemoryMiB,
    /// Clients or operations in flight.
    Load(&'static str),
}

impl AxisKind {
    /// Title of the axis.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::DataOverMemory => "data / memory",
            Self::MemoryMiB => "memory, MiB",
            Self::Load(words) => words,
        }
    }
}

/// One chart.
#[derive(Debug)]
pub struct Panel {
    /// Name of the experiment.
    pub experiment: String,
    /// The engine.
    pub engine: String,
    /// Operations that are counted.
    pub ops: Ops,
    /// The axis.
    pub axis: AxisKind,
    /// One line per stack, in the order of the study.
    pub lines: Vec<ScalingLine>,
}

/// Results of one stack along the axis.
#[derive(Debug)]
pub struct ScalingLine {
    /// Name of the stack.
    pub stack: String,
    /// Source of the values.
    pub source: Source,
    /// `(x, operations per second)`, sorted by x.
    pub points: Vec<(f64, Estimate)>,
}

/// The panels of a run, in the order of its experiments.
#[must_use]
pub fn panels(run: &Run) -> Vec<Panel> {
    let all = groups(run);
    let mut out = Vec::new();
    for experiment in &run.study.experiment {
        let of_it: Vec<&Group<'_>> = all
            .iter()
            .filter(|group| group.first.experiment == experiment.name && group.is_sound())
            .filter(|group| !group.first.point.contains_key("read_reqs_per_sec"))
            .collect();
        let engines: BTreeSet<&str> =
            of_it.iter().map(|group| group.first.engine.as_str()).collect();
        for engine in engines {
            let own: Vec<&Group<'_>> =
                of_it.iter().copied().filter(|group| group.first.engine == engine).collect();
            let Some(axis) = AXES.into_iter().find(|axis| values(&own, axis) >= VALUES_MIN) else {
                continue;
            };
            out.extend(counted(&own).into_iter().filter_map(|ops| panel(&own, axis, ops)));
        }
    }
    out
}

fn values(groups: &[&Group<'_>], axis: &str) -> usize {
    let values: BTreeSet<&String> =
        groups.iter().filter_map(|group| group.first.point.get(axis)).collect();
    values.len()
}

/// Operation classes of these groups; one chart each.
fn counted(groups: &[&Group<'_>]) -> Vec<Ops> {
    let there = |ops: &Ops| groups.iter().any(|group| group.classes().contains(ops));
    let wanted = match groups.first() {
        Some(group) if is_sql(group.first) => vec![Ops::Only(OpClass::Transaction)],
        Some(group) if group.first.engine == "block" => {
            return group.classes().first().copied().into_iter().collect();
        }
        _ => vec![Ops::Only(OpClass::Write), Ops::Only(OpClass::Read)],
    };
    wanted.into_iter().filter(there).collect()
}

/// Parameters that all points of a line share, without the stack.
type Rest = BTreeMap<String, String>;

fn panel(groups: &[&Group<'_>], axis: &'static str, ops: Ops) -> Option<Panel> {
    let kind = kind_of(groups, axis);
    let mut lines: IndexMap<(Rest, String, Source), ScalingLine> = IndexMap::new();
    for group in groups {
        let (Some(text), Some(rate)) = (group.first.point.get(axis), group.rate(ops)) else {
            continue;
        };
        let real = (axis == "buffer_pool").then(|| data_over_pool(group, groups)).flatten();
        let place =
            real.filter(|_| kind == AxisKind::DataOverMemory).or_else(|| position(text, kind));
        let (Some(place), true) = (place, rate.value > 0.0) else { continue };
        let mut rest = group.first.point.clone();
        rest.remove(axis);
        let (stack, source) = (group.first.stack.clone(), group.first.source);
        let begun = || ScalingLine { stack: stack.clone(), source, points: Vec::new() };
        let line = lines.entry((rest, stack.clone(), source)).or_insert_with(begun);
        line.points.push((place, rate));
    }
    let mut lines: Vec<_> = lines.into_iter().map(|((rest, ..), line)| (rest, line)).collect();
    lines.retain(|(_, line)| line.points.len() >= VALUES_MIN);
    let mut points: HashMap<&Rest, usize> = HashMap::new();
    for (rest, line) in &lines {
        *points.entry(rest).or_default() += line.points.len();
    }
    // Of equally long lines the last: the most clients, the strictest durability.
    let rest = lines.iter().map(|(rest, _)| rest).max_by_key(|rest| points[rest])?.clone();
    let chosen = lines.into_iter().filter(|(other, _)| *other == rest);
    let mut lines: Vec<ScalingLine> = chosen.map(|(_, line)| line).collect();
    for line in &mut lines {
        line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    let first = groups[0].first;
    let (experiment, engine) = (first.experiment.clone(), first.engine.clone());
    Some(Panel { experiment, engine, ops, axis: kind, lines })
}

fn kind_of(groups: &[&Group<'_>], axis: &str) -> AxisKind {
    match axis {
        "clients" => AxisKind::Load(match groups[0].first {
            sql if is_sql(sql) => "connections",
            block if block.engine == "block" => "threads",
            _ => "clients",
        }),
        "queue_depth" => AxisKind::Load("queue depth per thread"),
        _ => {
            let mut texts = groups.iter().filter_map(|group| group.first.point.get(axis));
            match texts.all(|text| text.parse::<Share>().is_ok()) {
                true => AxisKind::DataOverMemory,
                false => AxisKind::MemoryMiB,
            }
        }
    }
}

/// The server's setting of its pool, bytes.
const POOL_SETTING: &str = "innodb_buffer_pool_size";

/// Data size over the buffer pool that the server reported. Servers have a minimum pool size, so a small
/// share of small tables is larger than requested. The table size follows from the trial with the smallest
/// pool for its share.
fn data_over_pool(group: &Group<'_>, all: &[&Group<'_>]) -> Option<f64> {
    let pool = |group: &Group<'_>| {
        let text = group.first.result.settings.get(POOL_SETTING)?;
        text.parse::<f64>().ok().filter(|bytes| *bytes > 0.0)
    };
    let share = |group: &Group<'_>| {
        let share = group.first.point.get("buffer_pool")?.parse::<Share>().ok()?;
        (share.percent() > 0.0).then(|| share.percent() / 100.0)
    };
    let same = |other: &&&Group<'_>| {
        other.first.stack == group.first.stack
            && ["records", "tables", "page_size"]
                .iter()
                .all(|key| other.first.point.get(*key) == group.first.point.get(*key))
    };
    let sizes = all.iter().filter(same).filter_map(|one| Some(pool(one)? / share(one)?));
    let data = sizes.min_by(f64::total_cmp)?;
    Some(data / pool(group)?)
}

fn position(text: &str, kind: AxisKind) -> Option<f64> {
    match kind {
        AxisKind::DataOverMemory => {
            let percent = text.parse::<Share>().ok()?.percent();
            (percent > 0.0).then(|| 100.0 / percent)
        }
        AxisKind::MemoryMiB => Some(text.parse::<Bytes>().ok()?.get() as f64 / 1_048_576.0),
        AxisKind::Load(_) => text.parse().ok().filter(|value| (1.0..=1e12).contains(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_run::run_of;
    use units::Nanos;

    fn of(depths: &str) -> Vec<Panel> {
        let study = format!(
            "schema = 1\nname = \"s\"\n[[stack]]\nname = \"a\"\ndevice = \"file\"\n[[stack]]\nname = \"b\"\n\
             device = \"model:intel-p4800x\"\n[[experiment]]\nname = \"e\"\n[experiment.block]\n\
             block_size = [\"4KiB\", \"8KiB\"]\nqueue_depth = {depths}\n"
        );
        panels(&run_of(&study, Nanos(1000)))
    }

    /// A line that joins two block sizes would have a knee that no drive has.
    #[test]
    fn a_line_is_of_one_stack_and_one_job() {
        let panels = of("[1, 4, 2]");
        assert_eq!(panels.len(), 1);
        assert_eq!(panels[0].lines.len(), 2, "a line a stack");
        for line in &panels[0].lines {
            let places: Vec<f64> = line.points.iter().map(|(place, _)| *place).collect();
            assert_eq!(places, [1.0, 2.0, 4.0], "in order, of one block size");
        }
        assert!(of("[1, 2]").is_empty(), "two points are no line");
    }

    /// A buffer pool that the server enlarged must be plotted at its real share.
    #[test]
    fn a_pool_that_could_not_be_as_small_stands_where_it_was() {
        let study = "schema = 1\nname = \"s\"\n[[stack]]\nname = \"a\"\ndevice = \"file\"\n\
            [[experiment]]\nname = \"e\"\n[experiment.sql]\nengine = \"mysql\"\nrows = 1000\n\
            buffer_pool = [\"3%\", \"50%\", \"100%\"]\n";
        let mut run = run_of(study, Nanos(1000));
        for trial in &mut run.trials {
            let mib = match trial.point["buffer_pool"].as_str() {
                "3%" => 6u64,
                "50%" => 50,
                _ => 100,
            };
            let setting = (POOL_SETTING.to_owned(), (mib << 20).to_string());
            trial.result.settings.extend([setting]);
        }
        let all = groups(&run);
        let places: Vec<f64> = all
            .iter()
            .map(|group| data_over_pool(group, &all.iter().collect::<Vec<_>>()).unwrap())
            .collect();
        let expected = [100.0 / 6.0, 2.0, 1.0];
        assert!(places.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{places:?}");
    }
}
