//! d_a = sqrt(n (t_app + t_seek) d / (m (t_stk / d_s + 1 / b))): the best I/O size.
//!
//! Mean latencies of single reads by size on the same stack give the hardware terms, including the kernel's:
//! a line with intercept t_seek and slope t_stk / d_s + 1 / b. m and n are the statements of a transaction
//! that touch one row and a range, d the bytes of a range, t_app the CPU time of server and client per
//! statement. Invariant: shown next to the page size with the most transactions.

use archive::Run;
use study::{Source, Study};
use units::{Bytes, Nanos};
use workload::OpClass;

use super::done;
use crate::groups::{Group, Ops, groups};
use crate::sql::best_page_sizes;

/// Minimum number of sizes for fitting a line.
const SIZES_MIN: usize = 3;
/// Rows per range query in sysbench.
const RANGE_ROWS: f64 = 100.0;
/// Statements that touch a range.
const RANGES: [OpClass; 4] =
    [OpClass::SimpleRange, OpClass::SumRange, OpClass::OrderRange, OpClass::DistinctRange];
/// Statements that touch one row.
const POINTS: [OpClass; 5] = [
    OpClass::PointSelect,
    OpClass::IndexUpdate,
    OpClass::NonIndexUpdate,
    OpClass::Delete,
    OpClass::Insert,
];

/// Cost of a single read by size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SizeLine {
    /// Nanoseconds independent of the size.
    pub fixed: f64,
    /// Nanoseconds per byte.
    pub per_byte: f64,
    /// Largest relative error of the line.
    pub worst: f64,
}

/// The law of one workload on one stack.
#[derive(Debug, Clone, PartialEq)]
pub struct GranularityLaw {
    /// Name of the stack.
    pub stack: String,
    /// Source of the values.
    pub source: Source,
    /// `read_only` and so on.
    pub workload: String,
    /// Accesses to single rows and to ranges, per transaction.
    pub accesses: (f64, f64),
    /// CPU time of an access.
    pub t_app: Nanos,
    /// Bytes of a range.
    pub range: Bytes,
    /// Cost of a read by size.
    pub line: SizeLine,
    /// The best size according to the law.
    pub best: Bytes,
    /// Of the page sizes that were tried, the one with the most transactions.
    pub measured: Bytes,
}

/// The laws of a run: of every stack with reads by size and a sweep of page sizes.
#[must_use]
pub fn granularity_laws(run: &Run) -> Vec<GranularityLaw> {
    let all = groups(run);
    let best = best_page_sizes(&all);
    best.into_iter().filter_map(|(group, size, _)| law(&all, group, size)).collect()
}

fn law(all: &[Group<'_>], group: &Group<'_>, best_kib: f64) -> Option<GranularityLaw> {
    let line = size_line(all, group)?;
    let transactions = done(group, OpClass::Transaction);
    let each = |classes: &[OpClass]| {
        classes.iter().map(|class| done(group, *class)).sum::<f64>() / transactions.max(1.0)
    };
    let (m, n) = (each(&POINTS), each(&RANGES));
    let cpu = group.first.result.usage?.cpu().get() as f64
        + group.first.result.totals.get("server_cpu").copied().unwrap_or(0.0) * 1e9;
    let t_app = cpu / transactions.max(1.0) / (m + n).max(1e-9);
    let range = RANGE_ROWS * row_bytes(all, group)?;
    let best = best_size((m, n), t_app, range, &line);
    Some(GranularityLaw {
        stack: group.first.stack.clone(),
        source: group.first.source,
        workload: group.first.point.get("workload").cloned().unwrap_or_default(),
        accesses: (m, n),
        t_app: Nanos(t_app as u64),
        range: Bytes(range as u64),
        line,
        best: Bytes(best as u64),
        measured: Bytes((best_kib * 1024.0) as u64),
    })
}

/// The formula of the law.
fn best_size((m, n): (f64, f64), t_app: f64, range: f64, line: &SizeLine) -> f64 {
    (n * (t_app + line.fixed) * range / (m * line.per_byte).max(1e-12)).sqrt()
}

/// Bytes per row in the tables' files, from any trial that loaded them.
fn row_bytes(all: &[Group<'_>], group: &Group<'_>) -> Option<f64> {
    let same = |other: &&Group<'_>| other.first.engine == group.first.engine;
    let loads = all.iter().filter(same).flat_map(|other| &other.trials);
    let load =
        loads.filter_map(|trial| trial.result.load.as_ref()).find(|load| load.records > 0)?;
    Some(load.db_bytes as f64 / load.records as f64)
}

/// Whether two stacks are the same storage: same device, directory and time scale, no limit.
fn same_storage(study: &Study, a: &str, b: &str) -> bool {
    let of = |name: &str| study.stack.iter().find(|stack| stack.name == name);
    let (Some(a), Some(b)) = (of(a), of(b)) else { return false };
    (&a.device, &a.directory, a.scale) == (&b.device, &b.directory, b.scale)
        && a.limit.is_none()
        && b.limit.is_none()
}

/// A line through the mean times of one read at a time on the storage of `wanted`, by size; least squares.
fn size_line(all: &[Group<'_>], wanted: &Group<'_>) -> Option<SizeLine> {
    let one = |group: &&Group<'_>| {
        let of = |name: &str| group.first.point.get(name).map(String::as_str);
        group.first.engine == "block"
            && same_storage(&group.run.study, &group.first.stack, &wanted.first.stack)
            && of("queue_depth") == Some("1")
            && group.is_sound()
    };
    let reads = Ops::Only(OpClass::Read);
    let points: Vec<(f64, f64)> = all
        .iter()
        .filter(one)
        .filter_map(|group| {
            let size: Bytes = group.first.point.get("block_size")?.parse().ok()?;
            Some((size.get() as f64, group.mean_latency(reads)?.value))
        })
        .collect();
    line_through(&points)
}

fn line_through(points: &[(f64, f64)]) -> Option<SizeLine> {
    if points.len() < SIZES_MIN {
        return None;
    }
    let count = points.len() as f64;
    let mean = |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(&|point| point.0), mean(&|point| point.1));
    let both: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let squares: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    let per_byte = (squares > 0.0).then(|| both / squares)?;
    let fixed = y - per_byte * x;
    if per_byte <= 0.0 || fixed <= 0.0 {
        return None;
    }
    let error = |(size, time): &(f64, f64)| ((fixed + per_byte * size) / time - 1.0).abs();
    let worst = points.iter().map(error).fold(0.0, f64::max);
    Some(SizeLine { fixed, per_byte, worst })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time m (a + s d) + n (a + s d) r / d must be minimal at the law's size, as found by scanning
    /// sizes.
    #[test]
    fn the_best_size_is_where_the_time_is_least() {
        let line = SizeLine { fixed: 80e3, per_byte: 2.0, worst: 0.0 };
        let (m, n, t_app, range) = (10.0, 4.0, 20e3, 20e3);
        let best = best_size((m, n), t_app, range, &line);
        let time = |size: f64| {
            let one = t_app + line.fixed + line.per_byte * size;
            m * one + n * one * range / size
        };
        let scanned = (1..400).map(|step| f64::from(step) * 256.0);
        let least = scanned.min_by(|a, b| time(*a).total_cmp(&time(*b))).unwrap();
        assert!((least - best).abs() <= 256.0, "{least} {best}");
    }

    #[test]
    fn a_line_has_its_terms_and_what_is_no_line_has_none() {
        let points = [4096.0, 8192.0, 16384.0].map(|size| (size, 50e3 + 0.5 * size));
        let line = line_through(&points).unwrap();
        assert!((line.fixed - 50e3).abs() < 1e-3 && (line.per_byte - 0.5).abs() < 1e-9);
        assert_eq!(line_through(&[(1.0, 5.0), (2.0, 4.0), (3.0, 3.0)]), None, "it falls");
        assert_eq!(line_through(&points[..2]), None);
    }
}
