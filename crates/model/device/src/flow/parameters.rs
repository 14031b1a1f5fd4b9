//! Parameters of a measured device, and their checks.
//!
//! Invariant: valid parameters have a row per number in flight, of rising times above 0.

use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos, Share};

use crate::constant::Constant;

/// Measurements of a device.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FlowParameters {
    /// Sizes that were measured, rising.
    pub sizes: Constant<Vec<Bytes>>,
    /// `[size]`: numbers in flight that were measured, rising, the first 1.
    pub in_flight: Constant<Vec<Vec<u32>>>,
    /// Percentiles of each row below, rising from 0 to 100.
    pub percentiles: Constant<Vec<f64>>,
    /// `[size][number in flight][percentile]`: time of a read.
    pub read_times: Constant<Vec<Vec<Vec<Nanos>>>>,
    /// The same for writes.
    pub write_times: Constant<Vec<Vec<Vec<Nanos>>>>,
    /// `[size][number in flight][between two percentiles]`: mean time of a read; absent: half-way.
    pub read_means: Option<Constant<Vec<Vec<Vec<Nanos>>>>>,
    /// The same for writes.
    pub write_means: Option<Constant<Vec<Vec<Vec<Nanos>>>>>,
    /// Client thread time per operation, included in the times above: it bounds a thread's rate; absent:
    /// unknown.
    pub thread_time: Option<Constant<Nanos>>,
    /// The same for writes; absent: as for reads.
    pub thread_time_write: Option<Constant<Nanos>>,
    /// Time between its operations, outside of any latency.
    pub thread_between: Option<Constant<Nanos>>,
    /// Mixes of the smallest size; if absent, each kind is as without the other.
    pub mixes: Option<FlowMixes>,
    /// Mixes of a larger size; if absent, as those of the smallest.
    pub large_mixes: Option<FlowMixes>,
    /// Writes below the sustained rate that do not wait for earlier ones; absent: they wait at any rate.
    pub paced: Option<FlowPaced>,
    /// Slowdown of requests after an idle period; if absent, none.
    pub rested: Option<FlowRested>,
    /// Flushes and forced writes; if absent, they were not measured.
    pub flushes: Option<FlowFlushes>,
    /// Tables of a single client thread, thread time included; if absent, the tables above. A thread that is
    /// its own bottleneck, or is descheduled, differs from several.
    pub alone: Option<Box<FlowParameters>>,
}

/// Measurements of mixes of one size.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FlowMixes {
    /// The block size; the smallest by default.
    pub size: Option<Constant<Bytes>>,
    /// Shares of reads, falling, without the pure ones.
    pub read_shares: Constant<Vec<Share>>,
    /// Numbers in flight, rising from 1.
    pub in_flight: Constant<Vec<u32>>,
    /// `[share][number in flight][percentile]`: time of a read.
    pub read_times: Constant<Vec<Vec<Vec<Nanos>>>>,
    /// `[share][number in flight][percentile range]`: mean of the range.
    pub read_means: Constant<Vec<Vec<Vec<Nanos>>>>,
    /// Times of a write.
    pub write_times: Constant<Vec<Vec<Vec<Nanos>>>>,
    /// Means of a write.
    pub write_means: Constant<Vec<Vec<Vec<Nanos>>>>,
}

/// Times of writes that arrive no faster than the write buffer drains.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FlowPaced {
    /// `[size][percentile]`: time of a write.
    pub write_times: Constant<Vec<Vec<Nanos>>>,
    /// `[size][percentile range]`: mean of the range.
    pub write_means: Constant<Vec<Vec<Nanos>>>,
    /// Work that the buffer holds before writes take the closed loop's times.
    pub backlog: Constant<Nanos>,
}

/// Requests after an idle period.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FlowRested {
    /// Idle times, ascending.
    pub rests: Constant<Vec<Nanos>>,
    /// For each, time of a smallest request relative to one without idling; the first is 1, none above 1000.
    pub factors: Constant<Vec<f64>>,
    /// `[size]`: share of the slowdown that applies to the size, 0 to 10.
    pub parts: Constant<Vec<f64>>,
}

/// Flushes of a client at queue depth 1, and its writes that are on the medium when they end.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FlowFlushes {
    /// Numbers of writes since the last flush, rising from 1.
    pub writes: Constant<Vec<u32>>,
    /// `[number of writes][percentile]`: time of a flush.
    pub times: Constant<Vec<Vec<Nanos>>>,
    /// `[number of writes][percentile range]`: mean of the range.
    pub means: Constant<Vec<Vec<Nanos>>>,
    /// `[percentile]`: time of a forced write (FUA or O_DSYNC) of the smallest size.
    pub forced_times: Constant<Vec<Nanos>>,
    /// `[percentile range]`: mean of the range.
    pub forced_means: Constant<Vec<Nanos>>,
}

impl FlowFlushes {
    fn impossible(&self, columns: usize) -> Option<String> {
        let writes = &self.writes.value;
        let last = writes.last().copied().unwrap_or_default();
        if writes.first() != Some(&1) || !writes.is_sorted_by(|a, b| a < b) || last > DEPTH_MAX {
            return Some(format!("`flushes.writes` must rise from 1 to at most {DEPTH_MAX}"));
        }
        let depths = [writes.len()];
        let table = |name, rows: &Vec<Vec<Nanos>>, columns| {
            bad_table(name, std::slice::from_ref(rows), &depths, columns)
        };
        let row =
            |name, row: &Vec<Nanos>, columns| bad_table(name, &[vec![row.clone()]], &[1], columns);
        table("flushes.times", &self.times.value, columns)
            .or_else(|| table("flushes.means", &self.means.value, columns - 1))
            .or_else(|| row("flushes.forced_times", &self.forced_times.value, columns))
            .or_else(|| row("flushes.forced_means", &self.forced_means.value, columns - 1))
    }
}

impl FlowRested {
    /// Largest factor.
    pub const FACTOR_MAX: f64 = 1000.0;
    /// Largest part of a size.
    pub const PART_MAX: f64 = 10.0;

    fn impossible(&self, sizes: usize) -> Option<String> {
        let (rests, factors) = (&self.rests.value, &self.factors.value);
        let rising = rests.is_sorted_by(|a, b| a < b) && rests.first() > Some(&Nanos::ZERO);
        if !rising || rests.len() != factors.len() {
            return Some(
                "`rested.rests` must rise from above 0, with one of `factors` each".into(),
            );
        }
        let beyond = |factor: &f64| !(1.0..=Self::FACTOR_MAX).contains(factor);
        if factors[0] != 1.0 || factors.iter().any(beyond) {
            let most = Self::FACTOR_MAX;
            return Some(format!("`rested.factors` are from 1, as the first is, to {most}"));
        }
        let parts = &self.parts.value;
        let within = parts.iter().all(|part| (0.0..=Self::PART_MAX).contains(part));
        let most = Self::PART_MAX;
        (!within || parts.len() != sizes)
            .then(|| format!("`rested.parts` needs one from 0 to {most} for each of `sizes`"))
    }
}

impl FlowPaced {
    fn impossible(&self, sizes: usize, columns: usize) -> Option<String> {
        if self.backlog.value == Nanos::ZERO {
            return Some("`paced.backlog` must be above 0".into());
        }
        let table = |name, times: &Vec<Vec<Nanos>>, columns| {
            bad_table(name, std::slice::from_ref(times), &[sizes], columns)
        };
        table("paced.write_times", &self.write_times.value, columns)
            .or_else(|| table("paced.write_means", &self.write_means.value, columns - 1))
    }
}

impl FlowMixes {
    fn impossible(&self, columns: usize) -> Option<String> {
        let shares = &self.read_shares.value;
        let pure = |share: &Share| [Share::ALL, Share::NONE].contains(share);
        if shares.is_empty() || shares.iter().any(pure) || !shares.is_sorted_by(|a, b| a > b) {
            return Some("`mixes.read_shares` must fall, between 100% and 0%".into());
        }
        let depths = vec![self.in_flight.value.len(); shares.len()];
        let tables = [
            ("mixes.read_times", &self.read_times, columns),
            ("mixes.write_times", &self.write_times, columns),
            ("mixes.read_means", &self.read_means, columns - 1),
            ("mixes.write_means", &self.write_means, columns - 1),
        ];
        impossible_depths(&self.in_flight.value).or_else(|| {
            tables.iter().find_map(|(name, t, n)| bad_table(name, &t.value, &depths, *n))
        })
    }
}

/// Checks that each part of a table has this many rows of this many ascending positive times.
fn bad_table(
    name: &str,
    times: &[Vec<Vec<Nanos>>],
    depths: &[usize],
    columns: usize,
) -> Option<String> {
    let rows: Vec<usize> = times.iter().map(Vec::len).collect();
    if rows != depths {
        return Some(format!("`{name}` needs one row per value of `in_flight`"));
    }
    let bad = |row: &&Vec<Nanos>| row.len() != columns || !row.is_sorted() || row[0] == Nanos::ZERO;
    times.iter().flatten().find(bad).map(|_| {
        format!("each row of `{name}` needs {columns} rising times above 0, as `percentiles` asks")
    })
}

impl FlowParameters {
    /// Returns why these measurements are impossible.
    pub(crate) fn impossible(&self) -> Option<String> {
        let percentiles = &self.percentiles.value;
        let whole = percentiles.first() == Some(&0.0) && percentiles.last() == Some(&100.0);
        if !whole || !percentiles.is_sorted_by(|a, b| a < b) {
            return Some("`percentiles` must rise from 0 to 100".into());
        }
        let (sizes, depths) = (&self.sizes.value, &self.in_flight.value);
        if sizes.first() == Some(&Bytes(0)) {
            return Some("`sizes` must be above 0".into());
        }
        if sizes.is_empty() || !sizes.is_sorted_by(|a, b| a < b) || depths.len() != sizes.len() {
            return Some("`sizes` must rise, with a list in `in_flight` for each".into());
        }
        let rows: Vec<usize> = depths.iter().map(Vec::len).collect();
        let columns = percentiles.len();
        let means = |name, table: &Option<Constant<Vec<Vec<Vec<Nanos>>>>>| {
            let table = table.as_ref()?;
            bad_table(name, &table.value, &rows, columns - 1)
        };
        let depths = depths.iter().find_map(|depths| impossible_depths(depths));
        depths
            .or_else(|| bad_table("read_times", &self.read_times.value, &rows, columns))
            .or_else(|| bad_table("write_times", &self.write_times.value, &rows, columns))
            .or_else(|| means("read_means", &self.read_means))
            .or_else(|| means("write_means", &self.write_means))
            .or_else(|| self.impossible_mixes(columns))
            .or_else(|| self.impossible_large_mixes(columns))
            .or_else(|| self.paced.as_ref()?.impossible(sizes.len(), columns))
            .or_else(|| self.rested.as_ref()?.impossible(sizes.len()))
            .or_else(|| self.flushes.as_ref()?.impossible(columns))
            .or_else(|| self.impossible_alone())
    }

    fn impossible_mixes(&self, columns: usize) -> Option<String> {
        let mixes = self.mixes.as_ref()?;
        let smallest = mixes.size.as_ref().is_none_or(|size| size.value == self.sizes.value[0]);
        if !smallest {
            return Some("`mixes` are of the smallest size".into());
        }
        mixes.impossible(columns)
    }

    fn impossible_large_mixes(&self, columns: usize) -> Option<String> {
        let large = self.large_mixes.as_ref()?;
        if self.mixes.is_none() {
            return Some("`large_mixes` needs `mixes`".into());
        }
        let larger = &self.sizes.value[1..];
        if !large.size.as_ref().is_some_and(|size| larger.contains(&size.value)) {
            return Some("`large_mixes` needs a `size` of `sizes`, not the smallest".into());
        }
        large.impossible(columns).map(|reason| format!("`large_mixes`: {reason}"))
    }

    fn impossible_alone(&self) -> Option<String> {
        let alone = self.alone.as_ref()?;
        if alone.alone.is_some() {
            return Some("`alone` has no `alone` of its own".into());
        }
        alone.impossible().map(|reason| format!("`alone`: {reason}"))
    }
}

fn impossible_depths(depths: &[u32]) -> Option<String> {
    if depths.first() != Some(&1) || !depths.is_sorted_by(|a, b| a < b) {
        return Some("each list of `in_flight` must rise from 1".to_owned());
    }
    (depths.last() > Some(&DEPTH_MAX)).then(|| format!("`in_flight` ends above {DEPTH_MAX}"))
}

/// Maximum number of requests in flight in a table.
const DEPTH_MAX: u32 = 4096;
