//! Cost of idling: how much longer a thread's operation takes after a pause, from scheduled writes.
//!
//! Medians are used, since the few percent that wait for milliseconds would dominate the mean of so few
//! operations. At rate r the typical pause is exp(-g) / r with Euler's constant g: the geometric mean of
//! exponential gaps.
//!
//! Invariant: of the schedules only those with the role `Chosen` are used; reads, mixes and others test the
//! result.

use device::{Constant, ConstantKind, FlowRested, Profile};
use stats::Histogram;
use units::{Bytes, Nanos, Rate, Seed, Share};
use workload::OpClass;

use crate::points::{FitPoint, PACED, SIZES, SMALL};
use crate::run::{LOOKED_AT, recording_of};
use crate::thread::ThreadTime;

/// Smallest increase that is modelled.
const SEEN: f64 = 0.05;
/// Euler's constant.
const EULER: f64 = 0.577_215_664_901_532_9;

/// Pauses, the factor for a request of the smallest size after each, and the share of it that applies to each
/// size.
#[derive(Debug, Clone)]
pub(crate) struct Rested {
    rests: Vec<Nanos>,
    factors: Vec<f64>,
    parts: Vec<f64>,
}

impl Rested {
    /// The part of scheduled write latency that `profile`, which has no cost of idling, leaves unexplained;
    /// `None` if it is small, or not all sizes were measured.
    pub fn of(points: &[&FitPoint], thread: ThreadTime, profile: &Profile) -> Option<Self> {
        let at_once = points.iter().find(|point| {
            let own = (point.read_share, point.block_size, point.queue_depth, point.threads);
            own == (Share::NONE, SMALL, 1, 1) && point.rate.is_none()
        });
        // The time between back-to-back operations, thread time included: in a closed loop nothing counts as
        // a pause.
        let busy = thread.between + thread.within[0].max(thread.within[1]);
        let at_once = Nanos(at_once?.writes.mean()?.max(busy) as u64 + 1);
        let mut none = Self { rests: vec![at_once], factors: vec![1.0], parts: Vec::new() };
        for point in small(points) {
            let rest = rest_of(point)?;
            if Some(&rest) > none.rests.last() {
                none.rests.push(rest);
                none.factors.push(1.0);
            }
        }
        none.parts = SIZES.map(|_| 1.0).to_vec();
        let found = none.mended(points, profile)?;
        found.matters().then_some(found)
    }

    /// Whether requests of the smallest size take noticeably longer at the slowest schedule.
    pub fn matters(&self) -> bool {
        self.paced(&self.factors) > SEEN
    }

    /// The factor minus 1 at the pause at which sizes were compared; 0 if there is none.
    fn paced(&self, factors: &[f64]) -> f64 {
        let place = self.rests.iter().position(|rest| *rest == rest_at(PACED));
        place.map_or(0.0, |place| factors[place] - 1.0)
    }

    /// Adds the remaining error of `profile`, which has these costs.
    pub fn mended(&self, points: &[&FitPoint], profile: &Profile) -> Option<Self> {
        let mut factors = self.factors.clone();
        for point in small(points) {
            let rest = rest_of(point)?;
            if let Some(place) = self.rests.iter().skip(1).position(|one| *one == rest) {
                let factor = &mut factors[place + 1];
                *factor = (*factor * longer(profile, point)).clamp(1.0, FlowRested::FACTOR_MAX);
            }
        }
        let (before, after) = (self.paced(&self.factors), self.paced(&factors));
        let part = |(size, part): (&Bytes, &f64)| {
            let paced = |p: &&&FitPoint| p.rate == Some(PACED) && p.block_size == *size;
            let point = chosen(points).find(paced)?;
            let wanted = (1.0 + part * before) * longer(profile, point) - 1.0;
            Some(if after > 0.0 { (wanted / after).clamp(0.0, FlowRested::PART_MAX) } else { 1.0 })
        };
        let parts = SIZES.iter().zip(&self.parts).map(part).collect::<Option<Vec<f64>>>()?;
        Some(Self { rests: self.rests.clone(), factors, parts })
    }

    /// The constants; factors and parts to three decimal places.
    pub fn parameters(&self, source: &str) -> FlowRested {
        let rounded = |all: &[f64]| all.iter().map(|one| (one * 1000.0).round() / 1000.0).collect();
        FlowRested {
            rests: fitted(self.rests.clone(), source),
            factors: fitted(rounded(&self.factors), source),
            parts: fitted(rounded(&self.parts), source),
        }
    }
}

fn fitted<T>(value: T, source: &str) -> Constant<T> {
    Constant { kind: ConstantKind::Fitted, ..Constant::measured(value, source) }
}

/// The scheduled writes with the role `Chosen`.
fn chosen<'p, 'a>(points: &'p [&'a FitPoint]) -> impl Iterator<Item = &'p &'a FitPoint> {
    let own = |p: &&&FitPoint| p.rate.is_some() && !p.held_out() && p.writes.ops > 0;
    points.iter().filter(own)
}

/// Those of the smallest size, fastest first.
fn small<'a>(points: &[&'a FitPoint]) -> Vec<&'a FitPoint> {
    let mut found: Vec<&FitPoint> =
        chosen(points).filter(|point| point.block_size == SMALL).copied().collect();
    found.sort_by_key(|point| std::cmp::Reverse(point.rate));
    found.dedup_by_key(|point| point.rate);
    found
}

/// The typical pause before a request of a schedule.
fn rest_of(point: &FitPoint) -> Option<Nanos> {
    point.rate.map(rest_at)
}

fn rest_at(rate: Rate) -> Nanos {
    Nanos(((-EULER).exp() * 1e9 / rate.get() as f64) as u64)
}

/// Measured median of writes over that of the profile.
fn longer(profile: &Profile, point: &FitPoint) -> f64 {
    let recording = recording_of(profile, point, LOOKED_AT, Seed(4));
    let median = |latency: &Histogram| latency.value_at_quantile(0.5).max(1) as f64;
    median(&point.writes.latency) / median(&recording.total(Some(OpClass::Write)).latency)
}
