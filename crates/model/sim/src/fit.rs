//! A profile fitted to measurements: the table of a flow-equivalent server from some of the points, the
//! others kept apart to test it with.
//!
//! Invariants: a point that was held out enters no constant; residuals are computed by running the fitted
//! profile in virtual time, also at the points it was fitted to. What it is not: measuring.

use std::fmt::Write;

use device::{Condition, Model, Profile, ProfileError};
use stats::{Histogram, Timeline, estimate};
use units::{Bytes, Nanos, Seed, Share};
use workload::{BlockGroup, BlockPlan};

use crate::acceptance::predicted;
use crate::{BlockPath, HostModel, run};

/// What was measured of one job, all its repetitions together.
#[derive(Debug, Clone)]
pub struct FitPoint {
    /// Share of reads.
    pub read_share: Share,
    /// Bytes an operation.
    pub block_size: Bytes,
    /// Operations in flight, of one client.
    pub queue_depth: u32,
    /// Operations.
    pub ops: u64,
    /// Time measured.
    pub seconds: f64,
    /// Sum of response times.
    pub latency_sum: Nanos,
    /// Response times.
    pub latency: Histogram,
}

impl FitPoint {
    /// Operations a second.
    #[must_use]
    pub fn iops(&self) -> f64 {
        self.ops as f64 / self.seconds
    }

    /// Mean response time, nanoseconds.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.latency_sum.get() as f64 / self.ops.max(1) as f64
    }

    /// Whether it is kept apart: every job off the grid (other depths, other sizes, any mix).
    #[must_use]
    pub fn held_out(&self) -> bool {
        let pure = [Share::ALL, Share::NONE].contains(&self.read_share);
        let depths = if self.block_size == SMALL { &SMALL_DEPTHS[..] } else { &LARGE_DEPTHS[..] };
        !(pure && SIZES.contains(&self.block_size) && depths.contains(&self.queue_depth))
    }
}

/// Sizes of the operations that the tables speak of.
const SIZES: [Bytes; 6] =
    [SMALL, Bytes(8 << 10), Bytes(16 << 10), Bytes(32 << 10), Bytes(64 << 10), Bytes(128 << 10)];
const SMALL: Bytes = Bytes(4096);
/// Depths of the grid, at the smallest size and at the others.
const SMALL_DEPTHS: [u32; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];
const LARGE_DEPTHS: [u32; 5] = [1, 2, 4, 8, 16];

/// A number measured beside the same predicted.
#[derive(Debug, Clone)]
pub struct Residual {
    /// The job, for people.
    pub job: String,
    /// Share of reads, block size and depth of the job.
    pub at: (Share, Bytes, u32),
    /// `IOPS`, `mean`, `p50`, `p99`.
    pub metric: &'static str,
    /// It was no part of the fit.
    pub held_out: bool,
    /// Operations a second or nanoseconds.
    pub measured: f64,
    /// The same of the fitted profile.
    pub predicted: f64,
}

impl Residual {
    /// Relative error, signed.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.predicted / self.measured - 1.0
    }
}

/// Why nothing was fitted.
#[derive(Debug)]
pub enum FitError {
    /// A job that the fit needs was not measured, or nothing was completed in it.
    Missing(String),
    /// The measurements make no profile.
    Profile(ProfileError),
}

impl std::fmt::Display for FitError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing(job) => write!(out, "no measurement of {job}"),
            Self::Profile(error) => write!(out, "{error}"),
        }
    }
}

impl std::error::Error for FitError {}

/// What the fitted profile is called, and where it is from.
#[derive(Debug, Clone)]
pub struct Naming {
    /// Name in studies, after `model:`.
    pub name: String,
    /// What it is, for people.
    pub title: String,
    /// Addressable bytes.
    pub capacity: Bytes,
    /// Where and when it was measured.
    pub source: String,
}

/// Columns of the table, percent.
const PERCENTILES: [f64; 14] =
    [0.0, 1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 98.0, 99.0, 99.5, 99.9, 100.0];

/// The profile of what was measured, as the text of its file. Without writes it takes reads for them, and
/// says so.
///
/// # Errors
/// [`FitError`].
pub fn fit(points: &[FitPoint], naming: &Naming) -> Result<String, FitError> {
    let rows = |share: Share, size: Bytes, words: &str| {
        let of_job = |p: &&FitPoint| p.read_share == share && p.block_size == size && p.ops > 0;
        let mut rows: Vec<&FitPoint> =
            points.iter().filter(of_job).filter(|p| !p.held_out()).collect();
        rows.sort_by_key(|point| point.queue_depth);
        let first = rows.first().is_some_and(|point| point.queue_depth == 1);
        if first { Ok(rows) } else { Err(FitError::Missing(format!("{size} {words} at depth 1"))) }
    };
    let all = |share, words| {
        let tables = SIZES.iter().map(|size| rows(share, *size, words));
        tables.collect::<Result<Vec<Vec<&FitPoint>>, FitError>>()
    };
    let reads = all(Share::ALL, "reads")?;
    let depths = |tables: &[Vec<&FitPoint>]| {
        let of = |rows: &Vec<&FitPoint>| rows.iter().map(|p| p.queue_depth).collect::<Vec<u32>>();
        tables.iter().map(of).collect::<Vec<_>>()
    };
    let (writes, kind) = match all(Share::NONE, "writes") {
        Ok(writes) if depths(&writes) == depths(&reads) => (writes, "measured"),
        _ => (reads.clone(), "assumed"),
    };
    let unseen = if kind == "measured" { "" } else { "writes (taken as reads); " };
    let Naming { name, title, capacity, source } = naming;
    let mut text = format!(
        "# Fitted by `crosspoint device fit`.\nschema = 1\nname = \"{name}\"\ntitle = \"{title}\"\n\
         capacity = \"{}\"\nnot_covered = \"{unseen}anything that the measurements did not show: caches \
         beyond the measured span, state of the drive, other patterns; the host's path is part of it\"\n\n\
         [flow]\n",
        capacity.exact()
    );
    let mut put = |key: &str, value: String, kind: &str| {
        let _ = writeln!(
            text,
            "{key} = {{ value = {value}, kind = \"{kind}\", source = \"{source}\" }}"
        );
    };
    let sizes: Vec<String> = SIZES.iter().map(|size| format!("\"{}\"", size.exact())).collect();
    put("sizes", format!("[{}]", sizes.join(", ")), "measured");
    put("in_flight", format!("{:?}", depths(&reads)), "measured");
    put("percentiles", format!("{PERCENTILES:?}"), "measured");
    put("read_times", tables(&reads), "measured");
    put("write_times", tables(&writes), kind);
    for point in points.iter().filter(|point| point.held_out() && point.ops > 0) {
        acceptance(&mut text, point, source);
    }
    Profile::parse(&text).map_err(FitError::Profile)?;
    Ok(text)
}

fn quoted(time: Nanos) -> String {
    format!("\"{}\"", time.exact())
}

fn tables(tables: &[Vec<&FitPoint>]) -> String {
    let row = |point: &&FitPoint| {
        let at = |percent: f64| quoted(Nanos(point.latency.value_at_quantile(percent / 100.0)));
        let times: Vec<String> = PERCENTILES.into_iter().map(at).collect();
        format!("    [{}]", times.join(", "))
    };
    let table = |rows: &Vec<&FitPoint>| {
        format!("  [\n{},\n  ]", rows.iter().map(row).collect::<Vec<_>>().join(",\n"))
    };
    format!("[\n{},\n]", tables.iter().map(table).collect::<Vec<_>>().join(",\n"))
}

/// What was held out becomes what the profile is held against.
fn acceptance(text: &mut String, point: &FitPoint, source: &str) {
    let _ = write!(
        text,
        "\n[[acceptance]]\nhost = \"none\"\nthreads = 1\nqueue_depth = {}\nblock_size = \"{}\"\n\
         read_share = \"{}\"\niops = {:.0}\nlatency_mean = \"{}\"\n",
        point.queue_depth,
        point.block_size.exact(),
        point.read_share,
        point.iops(),
        Nanos(point.mean() as u64).exact()
    );
    let mut keys = vec!["iops", "latency_mean"];
    for (key, p) in [("latency_p50", 50.0), ("latency_p99", 99.0)] {
        if let Ok(found) = estimate::percentile(&point.latency, 0, p) {
            keys.push(key);
            let _ = writeln!(text, "{key} = \"{}\"", Nanos(found.value as u64).exact());
        }
    }
    let keys: Vec<String> = keys.iter().map(|key| format!("\"{key}\"")).collect();
    let _ = writeln!(text, "evidence = {{ held_out = [{}] }}", keys.join(", "));
    let _ = writeln!(text, "source = \"{source}; no part of the fit\"");
}

/// Every point beside what `profile` gives in virtual time.
#[must_use]
pub fn residuals(profile: &Profile, points: &[FitPoint], seed: Seed) -> Vec<Residual> {
    points.iter().filter(|p| p.ops > 0).flat_map(|point| compare(profile, point, seed)).collect()
}

fn compare(profile: &Profile, point: &FitPoint, seed: Seed) -> Vec<Residual> {
    let timeline = Timeline {
        warm_up: Nanos::from_millis(100),
        measure: Nanos::from_secs(2),
        interval: Nanos::from_millis(500),
    };
    let size = u32::try_from(point.block_size.get()).unwrap_or(4096);
    let plan = BlockPlan {
        read_share: point.read_share,
        queue_depth: point.queue_depth,
        ..BlockPlan::reads(size, profile.capacity, timeline.end())
    };
    let device = Model::new(profile, Condition::Steady, seed);
    let target = BlockPath::new(device, HostModel::io_uring().to(profile), 1, seed);
    let recording = run(target, BlockGroup::new(plan).clients(seed), timeline);
    let measured = |p| estimate::percentile(&point.latency, 0, p).ok().map(|e| e.value);
    let pairs = [
        ("IOPS", Some(point.iops())),
        ("mean", Some(point.mean())),
        ("p50", measured(50.0)),
        ("p99", measured(99.0)),
    ];
    let (share, size, depth) = (point.read_share, point.block_size, point.queue_depth);
    let residual = |(metric, measured): (&'static str, Option<f64>)| {
        Some(Residual {
            job: format!("{size} {share} reads, depth {depth}"),
            at: (share, size, depth),
            metric,
            held_out: point.held_out(),
            measured: measured?,
            predicted: predicted(metric, &recording)?,
        })
    };
    pairs.into_iter().filter_map(residual).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A point as a device would give it that takes `base` us at depth 1 and one more for each in flight.
    fn point(share: Share, block_size: Bytes, queue_depth: u32) -> FitPoint {
        let mut latency = stats::new_histogram();
        let mut sum = Nanos::ZERO;
        let further = block_size.get() / 4096 - 1;
        for number in 0..20_000u64 {
            let time = Nanos::from_micros(50 + u64::from(queue_depth) + number % 40 + further);
            latency.saturating_record(time.get());
            sum += time;
        }
        let mean = sum.as_secs_f64() / 20_000.0;
        let seconds = 20_000.0 * mean / f64::from(queue_depth);
        let (ops, read_share) = (20_000, share);
        FitPoint { read_share, block_size, queue_depth, ops, seconds, latency_sum: sum, latency }
    }

    fn points() -> Vec<FitPoint> {
        let depths = [1, 2, 3, 4, 5, 6, 8, 12, 16, 20, 24, 32, 40, 48, 64];
        let small = [Share::ALL, Share::NONE]
            .into_iter()
            .flat_map(|share| depths.map(|depth| point(share, SMALL, depth)));
        let large = [Share::ALL, Share::NONE]
            .into_iter()
            .flat_map(|share| SIZES.map(|size| (share, size)))
            .filter(|(_, size)| *size > SMALL)
            .flat_map(|(share, size)| {
                [1, 2, 3, 4, 8, 12, 16].map(|depth| point(share, size, depth))
            });
        small.chain(large).collect()
    }

    fn naming() -> Naming {
        Naming {
            name: "mine".into(),
            title: "Mine".into(),
            capacity: Bytes::mib(1024),
            source: "test".into(),
        }
    }

    /// If the points of the fit do not come back, everything between them is wrong too.
    #[test]
    fn fitted_points_come_back_and_held_out_ones_are_near() {
        let points = points();
        let text = fit(&points, &naming()).unwrap();
        let profile = Profile::parse(&text).unwrap();
        for residual in residuals(&profile, &points, Seed(1)) {
            let allowed = if residual.held_out { 0.06 } else { 0.02 };
            assert!(residual.error().abs() < allowed, "{residual:?}");
        }
        assert!(points.iter().any(FitPoint::held_out));
        assert!(!text.contains("assumed"), "everything was measured");
    }

    #[test]
    fn a_device_that_was_not_written_says_so() {
        let reads: Vec<FitPoint> =
            points().into_iter().filter(|point| point.read_share == Share::ALL).collect();
        let text = fit(&reads, &naming()).unwrap();
        assert!(text.contains("writes (taken as reads)") && text.contains("assumed"), "{text}");
        let error = fit(&reads[1..], &naming()).unwrap_err().to_string();
        assert!(error.contains("depth 1"), "{error}");
    }
}
