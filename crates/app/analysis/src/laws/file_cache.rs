//! Latency = t_IO (1 - H) + t_load H per page that a transaction requests from the buffer pool.
//!
//! H and the pages per transaction are server counters; t_IO is the drive's mean read time at that point.
//! t_load, the cost of a buffered page, is taken at the point with the most memory, which therefore has no
//! error. Invariant: the points belong to one stack and differ in memory only. Queueing is included in t_IO.

use archive::Run;
use indexmap::IndexMap;
use study::Source;
use units::Nanos;
use workload::OpClass;

use super::{per_transaction, read_time};
use crate::groups::{Group, Ops, groups, is_sql};

/// Minimum number of points for the law.
const POINTS_MIN: usize = 3;
/// Name of the parameter.
const MEMORY: &str = "buffer_pool";

/// The law of one stack.
#[derive(Debug, Clone, PartialEq)]
pub struct CacheLaw {
    /// Name of the stack.
    pub stack: String,
    /// Source of the values.
    pub source: Source,
    /// Pages that a transaction requests.
    pub pages: f64,
    /// Cost of a buffered page.
    pub t_load: Nanos,
    /// Points sorted by memory, ascending.
    pub points: Vec<CachePoint>,
}

/// One size of memory.
#[derive(Debug, Clone, PartialEq)]
pub struct CachePoint {
    /// Memory as written in the study.
    pub memory: String,
    /// Buffer pool hit ratio.
    pub hits: f64,
    /// Mean time of a drive read.
    pub t_io: Nanos,
    /// Mean time of a transaction, measured.
    pub measured: f64,
    /// Predicted by the law, nanoseconds; equal to the measurement at the reference point.
    pub law: f64,
}

impl CachePoint {
    /// Predicted over measured, less 1.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.law / self.measured - 1.0
    }
}

impl CacheLaw {
    /// The largest relative error, without the point at which the law was fitted.
    #[must_use]
    pub fn worst(&self) -> f64 {
        let held = &self.points[..self.points.len() - 1];
        held.iter().map(CachePoint::error).fold(0.0, |a, b| if b.abs() > a.abs() { b } else { a })
    }

    /// Transactions with the most memory over those with the least: measured, and by the law.
    #[must_use]
    pub fn gains(&self) -> (f64, f64) {
        let (first, last) = (&self.points[0], &self.points[self.points.len() - 1]);
        (first.measured / last.measured, first.law / last.law)
    }
}

/// Counters of one point.
struct Counted {
    pages: f64,
    hits: f64,
    t_io: f64,
    time: f64,
}

fn counted(group: &Group<'_>) -> Option<Counted> {
    let pages = per_transaction(group, "buffer_pool_requests").filter(|pages| *pages > 0.0)?;
    let misses = per_transaction(group, "buffer_pool_misses")?;
    let hits = (1.0 - misses / pages).clamp(0.0, 1.0);
    // If everything was buffered, the read time is unknown and not needed.
    let t_io = match read_time(group) {
        Some(time) => time,
        None if misses == 0.0 => 0.0,
        None => return None,
    };
    let time = group.mean_latency(Ops::Only(OpClass::Transaction))?.value;
    Some(Counted { pages, hits, t_io, time })
}

/// The laws of a run, one for each stack whose memory was varied.
#[must_use]
pub fn cache_laws(run: &Run) -> Vec<CacheLaw> {
    let mut lines: IndexMap<_, Vec<Group<'_>>> = IndexMap::new();
    let rest = |group: &Group<'_>| {
        let mut point = group.first.point.clone();
        point.remove(MEMORY);
        (group.first.experiment.clone(), group.first.stack.clone(), point, group.first.source)
    };
    let swept = |group: &Group<'_>| is_sql(group.first) && group.first.point.contains_key(MEMORY);
    for group in groups(run).into_iter().filter(|group| swept(group) && group.is_sound()) {
        lines.entry(rest(&group)).or_default().push(group);
    }
    lines.values().filter_map(|line| law(line)).collect()
}

fn law(line: &[Group<'_>]) -> Option<CacheLaw> {
    let mut points: Vec<(&Group<'_>, Counted)> =
        line.iter().filter_map(|group| Some((group, counted(group)?))).collect();
    points.sort_by(|a, b| a.1.hits.total_cmp(&b.1.hits));
    if points.len() < POINTS_MIN {
        return None;
    }
    let (_, most) = points.last()?;
    let t_load = set_at(most);
    let made = points.iter().map(|(group, point)| CachePoint {
        memory: group.first.point[MEMORY].clone(),
        hits: point.hits,
        t_io: Nanos(point.t_io as u64),
        measured: point.time,
        law: latency(point, t_load),
    });
    let first = line[0].first;
    Some(CacheLaw {
        stack: first.stack.clone(),
        source: first.source,
        pages: most.pages,
        t_load: Nanos(t_load as u64),
        points: made.collect(),
    })
}

/// t_load fitted at a point.
fn set_at(point: &Counted) -> f64 {
    let of_page = point.time / point.pages;
    ((of_page - point.t_io * (1.0 - point.hits)) / point.hits.max(1e-9)).max(0.0)
}

/// The law: time of a transaction, nanoseconds.
fn latency(point: &Counted, t_load: f64) -> f64 {
    point.pages * (point.t_io * (1.0 - point.hits) + t_load * point.hits)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 pages per transaction, 10 us for a hit, 200 us for a read: a hit ratio of one half gives 10.5 ms.
    #[test]
    fn the_law_is_the_one_that_is_printed() {
        let of = |hits, time| Counted { pages: 100.0, hits, t_io: 200e3, time };
        let all = of(1.0, 1e6);
        let t_load = set_at(&all);
        assert!((t_load - 10e3).abs() < 1e-6);
        assert!((latency(&of(0.5, 0.0), t_load) - 10.5e6).abs() < 1e-3);
        assert!((latency(&all, t_load) - 1e6).abs() < 1e-6, "none at the point that it was set at");
    }

    #[test]
    fn a_law_that_is_off_says_by_how_much() {
        let point = |measured, law| CachePoint {
            memory: "3%".into(),
            hits: 0.9,
            t_io: Nanos(1),
            measured,
            law,
        };
        let law = CacheLaw {
            stack: "a".into(),
            source: Source::Emulated,
            pages: 1.0,
            t_load: Nanos(1),
            points: vec![point(10.0, 5.0), point(4.0, 4.4), point(2.0, 2.0)],
        };
        assert!((law.worst() + 0.5).abs() < 1e-9);
        assert_eq!(law.gains(), (5.0, 2.5));
    }
}
