//! Properties of a device that several jobs show together: its response to mixes, the growth of latency with
//! load, the drop of the rate on a used drive; each as one number.
//!
//! Invariant: pure; the same profile and seed give the same numbers.

use std::cell::OnceCell;

use device::{Completion, Condition, Device, Model, PhenomenonKind, Profile, Request};
use stats::curve::{LoopPoint, growth};
use stats::{Recording, Timeline, estimate};
use units::{Nanos, Seed, Share};
use workload::{BlockGroup, BlockPlan, OpClass, Pattern};

use crate::acceptance::Check;
use crate::prediction_error::{CheckedFigure, JobShape};
use crate::write_cliff::{Cliff, cliff};
use sim::{BlockPath, HostModel, run};

/// Threads of the mixed sweep, each at queue depth 1.
const MIX_THREADS: u32 = 16;
/// Requests of a probe that drives the device without a host.
const PROBES: u64 = 20_000;

/// Computes every published phenomenon of `profile`.
#[must_use]
pub fn check_phenomena(profile: &Profile, seed: Seed) -> Vec<Check> {
    let shown = Phenomena { profile, seed, mixes: OnceCell::new(), cliff: OnceCell::new() };
    let check = |phenomenon: &device::Phenomenon| {
        let (metric, predicted) = shown.number(phenomenon.kind);
        Check {
            kind: None,
            metric,
            job: String::new(),
            published: phenomenon.is,
            evidence: phenomenon.evidence,
            missed: phenomenon.missed,
            shape: None,
            predicted,
            source: phenomenon.source.clone(),
        }
    };
    profile.phenomena.iter().map(check).collect()
}

/// The metric of the growth of latency among checked figures.
pub const GROWTH: &str = "growth";
/// Host path of the published growths.
const GROWTH_HOST: &str = "ext4-psync";

/// The job of a published growth of latency, with `in_flight` operations.
#[must_use]
pub fn growth_shape(in_flight: u64) -> JobShape {
    JobShape {
        host: GROWTH_HOST.to_owned(),
        read_percent: Share::ALL.percent(),
        sequential: false,
        block_bytes: 4096,
        in_flight,
        fresh: false,
        durable: String::new(),
        background_writes: 0,
        offered: 0,
    }
}

/// The error of the model for a published growth of latency at 95 % of the highest rate, if there is one.
#[must_use]
pub fn check_growth(profile: &Profile, seed: Seed) -> Option<CheckedFigure> {
    let is_growth = |one: &&device::Phenomenon| one.kind == PhenomenonKind::LatencyGrowth95;
    let published = profile.phenomena.iter().find(is_growth)?;
    let shown = Phenomena { profile, seed, mixes: OnceCell::new(), cliff: OnceCell::new() };
    let (_, predicted) = shown.number(published.kind);
    let error = predicted / published.is.value()? - 1.0;
    error.is_finite().then(|| CheckedFigure {
        shape: growth_shape(1),
        metric: GROWTH.to_owned(),
        evidence: published.evidence,
        error,
    })
}

struct Phenomena<'a> {
    profile: &'a Profile,
    seed: Seed,
    /// `[share of reads in tenths]`: the sweep over mixes, computed on first use.
    mixes: OnceCell<Vec<Recording>>,
    /// The write cliff of a filled drive, computed on first use.
    cliff: OnceCell<Cliff>,
}

impl Phenomena<'_> {
    /// The value, and its name.
    fn number(&self, kind: PhenomenonKind) -> (&'static str, f64) {
        match kind {
            PhenomenonKind::MixIopsRatio => {
                let (low, high) = ends(self.mixes().iter().map(iops));
                ("IOPS, highest over lowest of the mixes", high / low)
            }
            PhenomenonKind::MixMeanGap => {
                let gaps = self.mixes()[1..10].iter().map(mean_gap);
                ("mean of reads against writes in the mixes, largest gap", ends(gaps).1)
            }
            PhenomenonKind::MixMedianFall => {
                let median = |tenths: usize| percentile(&self.mixes()[tenths], 50.0);
                ("median at 60 % reads over 40 %", median(6) / median(4))
            }
            PhenomenonKind::MixP99Hump => {
                let p99 = |tenths: usize| percentile(&self.mixes()[tenths], 99.0);
                let mixed = ends((2..10).map(p99)).0;
                ("p99 of mixes over that of pure loads", mixed / p99(0).max(p99(10)))
            }
            PhenomenonKind::MixEndRise => {
                let (lowest, _) = ends(self.mixes().iter().map(iops));
                ("IOPS at 10 % reads over the lowest", iops(&self.mixes()[1]) / lowest)
            }
            PhenomenonKind::LatencyGrowth95 => {
                ("latency growth at 95 % of IOPS, %", self.latency_growth() * 100.0)
            }
            PhenomenonKind::WorstStride => ("throughput at the worst stride", self.worst_stride()),
            PhenomenonKind::MisalignedRead => {
                // As seen by a polling thread: the path with the least overhead.
                let host = self.host("spdk");
                let around = (host.submit + host.complete + host.jitter).as_secs_f64();
                let seen = |offset| around + self.alone(offset).as_secs_f64();
                ("misaligned read over aligned", seen(2048) / seen(0))
            }
            PhenomenonKind::SteadyRandomWrites => {
                ("random writes, steady over fresh", self.steady_over_fresh(false))
            }
            PhenomenonKind::SteadySequentialWrites => {
                ("sequential writes, steady over fresh", self.steady_over_fresh(true))
            }
            kind => self.cliff_number(kind),
        }
    }

    fn cliff_number(&self, kind: PhenomenonKind) -> (&'static str, f64) {
        let filled =
            || self.cliff.get_or_init(|| cliff(self.profile, Condition::Filled, self.seed));
        match kind {
            PhenomenonKind::CliffTime => {
                ("filled, random writes: rate falls after, s", filled().fall)
            }
            PhenomenonKind::CliffDip => ("filled, random writes: lowest rate", filled().dip),
            PhenomenonKind::CliffHump => {
                ("filled, random writes: highest rate after", filled().hump)
            }
            PhenomenonKind::CliffHumpTime => {
                ("filled, random writes: highest rate after, s", filled().hump_at)
            }
            _ => {
                let erased = cliff(self.profile, Condition::Fresh, self.seed);
                ("erased, random writes: rate falls after, s", erased.fall)
            }
        }
    }

    fn mixes(&self) -> &[Recording] {
        self.mixes.get_or_init(|| {
            let mix = |tenths: u32| {
                let share = format!("{}%", tenths * 10).parse().unwrap_or(Share::ALL);
                let plan = |end| BlockPlan {
                    read_share: share,
                    ..BlockPlan::reads(4096, self.profile.capacity, end)
                };
                let host = self.host("psync-2017");
                self.run(self.used(), (host, MIX_THREADS), timeline(2), plan)
            };
            (0..11).map(mix).collect()
        })
    }

    /// The device in steady state.
    fn used(&self) -> (&Profile, Condition) {
        (self.profile, Condition::Steady)
    }

    fn host(&self, name: &str) -> HostModel {
        HostModel::named(name).unwrap_or(HostModel::io_uring()).to(self.profile)
    }

    fn run(
        &self,
        (profile, condition): (&Profile, Condition),
        (host, threads): (HostModel, u32),
        timeline: Timeline,
        plan: impl Fn(Nanos) -> BlockPlan,
    ) -> Recording {
        let group = BlockGroup { clients: threads, ..BlockGroup::new(plan(timeline.end())) };
        let clients = group.clients(self.seed);
        let device = Model::new(profile, condition, self.seed);
        run(BlockPath::new(device, host, clients.len(), self.seed), clients, timeline)
    }

    /// Growth of mean latency at 95 % of the highest rate, by numbers of threads.
    fn latency_growth(&self) -> f64 {
        let host = self.host(GROWTH_HOST);
        let measure = |threads: u32| {
            let plan = |end| BlockPlan::reads(4096, self.profile.capacity, end);
            let run = self.run(self.used(), (host, threads), timeline(0), plan);
            LoopPoint { in_flight: f64::from(threads), rate: iops(&run) }
        };
        let threads = (1..=16).chain([20, 24, 32, 48, 64, 96]);
        let points: Vec<LoopPoint> = threads.map(measure).collect();
        growth(&points).unwrap_or(f64::NAN)
    }

    /// Completion times of requests submitted at once to an idle device.
    fn burst(&self, offsets: impl Iterator<Item = u64>) -> Vec<Nanos> {
        let mut device = Model::new(self.profile, Condition::Steady, self.seed);
        for (id, offset) in offsets.enumerate() {
            device.submit(Nanos::ZERO, Request::read(id as u64, offset, 4096));
        }
        let mut done: Vec<Completion> = Vec::new();
        while let Some(at) = device.next_event() {
            device.advance(at, &mut done);
        }
        let mut times: Vec<Nanos> = done.iter().map(|completion| completion.at).collect();
        times.sort();
        times
    }

    fn alone(&self, offset: u64) -> Nanos {
        self.burst(std::iter::once(offset))[0]
    }

    fn worst_stride(&self) -> f64 {
        let blocks = self.profile.capacity.get() / 4096;
        let rate = |stride: u64| {
            let offsets = (0..PROBES).map(|number| number * stride % blocks * 4096);
            1.0 / self.burst(offsets).last().map_or(1.0, |last| last.as_secs_f64())
        };
        let (low, high) = ends((1..=16).map(rate));
        low / high
    }

    fn steady_over_fresh(&self, sequential: bool) -> f64 {
        let rate = |condition| {
            let size = if sequential { 128 << 10 } else { 4096 };
            let plan = |end| BlockPlan {
                read_share: Share::NONE,
                queue_depth: 32,
                pattern: if sequential { Pattern::Sequential } else { Pattern::UNIFORM },
                ..BlockPlan::reads(size, self.profile.capacity, end)
            };
            // A single stream, so that the drive recognizes sequential writes.
            let host = (self.host("spdk"), 1);
            iops(&self.run((self.profile, condition), host, timeline(2), plan))
        };
        rate(Condition::Steady) / rate(Condition::Fresh)
    }
}

/// Half a second of measurement after slightly more than this warm-up in seconds.
fn timeline(warm_up: u64) -> Timeline {
    Timeline {
        warm_up: Nanos::from_secs(warm_up) + Nanos::from_millis(50),
        measure: Nanos::from_millis(500),
        interval: Nanos::from_millis(100),
    }
}

fn iops(recording: &Recording) -> f64 {
    recording.total(None).counts.ops as f64 / recording.seconds()
}

fn mean(recording: &Recording, class: Option<OpClass>) -> f64 {
    let counts = recording.total(class).due;
    counts.latency_sum.get() as f64 / counts.ops.max(1) as f64
}

fn mean_gap(recording: &Recording) -> f64 {
    let of = |class| mean(recording, Some(class));
    let (read, write) = (of(OpClass::Read), of(OpClass::Write));
    (read - write).abs() / read.max(write)
}

/// NaN with too few operations.
fn percentile(recording: &Recording, p: f64) -> f64 {
    let total = recording.total(None);
    estimate::percentile(&total.latency, total.missed, p).map_or(f64::NAN, |e| e.value)
}

/// The lowest and the highest.
fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)))
}
