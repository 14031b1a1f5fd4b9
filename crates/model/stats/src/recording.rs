//! The recording of a trial: intervals in order, each with one tally per class.
//!
//! An operation belongs to the interval in which it completed; rates are made of those. Latencies are those
//! of operations that *arrived* within the measurement, whenever they completed: otherwise a stall across the
//! end would vanish, and one across the end of the warm-up would count. Invariant: `merge` equals recording
//! both streams into one recorder (property-tested).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use units::Nanos;
use workload::{OpClass, Workload};

use crate::phase::Phase;
use crate::timeline::Timeline;
use crate::{Histogram, StoredLatency, new_histogram};

/// Counts of one class of operations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Completed operations, errors not included.
    pub ops: u64,
    /// Bytes moved by them.
    pub bytes: u64,
    /// Failed operations.
    pub errors: u64,
    /// Sum of response times, for exact means.
    #[serde(rename = "latency_sum_ns", with = "units::as_number")]
    pub latency_sum: Nanos,
}

impl Counts {
    /// Whether all counts are zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.ops = self.ops.saturating_add(other.ops);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.errors = self.errors.saturating_add(other.errors);
        self.latency_sum += other.latency_sum;
    }
}

/// Operations of one class in one interval.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Counts of completed operations.
    pub counts: Counts,
    /// Response times in nanoseconds, from intended start to completion.
    pub latency: StoredLatency,
    /// Service times, from issue to completion; empty in a closed loop, where they equal response times.
    pub service: StoredLatency,
}

impl Tally {
    const EMPTY: Self = Self {
        counts: Counts { ops: 0, bytes: 0, errors: 0, latency_sum: Nanos::ZERO },
        latency: StoredLatency::EMPTY,
        service: StoredLatency::EMPTY,
    };
}

/// Tallies by class; a class without operations reads as empty. Unused classes take no memory: hundreds of
/// clients keep thousands of intervals each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tallies(Vec<(OpClass, Tally)>);

static NOTHING: Tally = Tally::EMPTY;

impl Tallies {
    /// The non-empty ones, in the order of the classes.
    pub fn iter(&self) -> impl Iterator<Item = (OpClass, &Tally)> {
        self.0.iter().map(|(class, tally)| (*class, tally))
    }

    /// Whether there are no operations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the tallies of another client.
    fn add(&mut self, other: &Self) {
        for (class, add) in other.iter() {
            let tally = self.of(class);
            tally.counts += add.counts;
            tally.latency.merge(&add.latency);
            tally.service.merge(&add.service);
        }
    }

    /// Like [`Tallies::iter`], mutable.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (OpClass, &mut Tally)> {
        self.0.iter_mut().map(|(class, tally)| (*class, tally))
    }

    /// The tally of `class`, for writing.
    pub fn of(&mut self, class: OpClass) -> &mut Tally {
        let place = match self.0.binary_search_by_key(&class, |(class, _)| *class) {
            Ok(place) => place,
            Err(place) => {
                self.0.insert(place, (class, Tally::EMPTY));
                place
            }
        };
        &mut self.0[place].1
    }
}

impl std::ops::Index<OpClass> for Tallies {
    type Output = Tally;

    fn index(&self, class: OpClass) -> &Tally {
        let found = self.0.binary_search_by_key(&class, |(class, _)| *class);
        found.map_or(&NOTHING, |place| &self.0[place].1)
    }
}

/// Summary of one class, or of reads and writes together.
#[derive(Debug, Clone)]
pub struct Total {
    /// Operations completed in the measured time.
    pub counts: Counts,
    /// Operations that arrived within the measurement and completed, then or later; bytes and errors are not
    /// kept separately.
    pub due: Counts,
    /// Response times of the due operations, nanoseconds.
    pub latency: Histogram,
    /// Service times of the due operations, nanoseconds; empty in a closed loop.
    pub service: Histogram,
    /// Operations that were due and never issued: their response time exceeds every recorded one.
    pub missed: u64,
}

/// One interval of the time series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interval {
    /// Part of the trial.
    pub phase: Phase,
    /// Start of the interval.
    pub start: Nanos,
    /// End of the interval.
    pub end: Nanos,
    /// Tallies by class.
    pub tallies: Tallies,
}

impl Interval {
    /// An interval without any operation.
    #[must_use]
    pub fn empty(phase: Phase, start: Nanos, end: Nanos) -> Self {
        Self { phase, start, end, tallies: Tallies::default() }
    }

    /// Counts of all classes; for SQL, whole transactions without their parts, and failures in any part.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for (class, tally) in self.tallies.iter() {
            if class.index() <= OpClass::Transaction.index() {
                sum += tally.counts;
            } else {
                sum.errors += tally.counts.errors;
            }
        }
        sum
    }

    /// Adds the same interval of another client.
    fn add(&mut self, other: &Self) {
        self.end = self.end.max(other.end);
        self.tallies.add(&other.tallies);
    }

    /// Length in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.end.since(self.start).as_secs_f64()
    }
}

/// A failed operation, kept as evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorSample {
    /// Class of the operation.
    pub class: OpClass,
    /// Operating-system error number.
    pub errno: i32,
    /// Byte offset or record number.
    pub position: u64,
    /// When it failed.
    #[serde(rename = "at_ns", with = "units::as_number")]
    pub at: Nanos,
}

/// Everything a trial recorded.
#[derive(Debug, Clone, Default)]
pub struct Recording {
    /// In time order; consecutive.
    pub intervals: Vec<Interval>,
    /// Operations that were due in the warm-up and completed after it; also counted in their interval.
    pub carried: Tallies,
    /// The first few failures of each client.
    pub error_samples: Vec<ErrorSample>,
    /// Open loop: operations that were due in the measured time or the warm-up and never issued.
    pub missed_arrivals: u64,
    /// Missed operations that were due in the measured time, by class; empty in older records.
    pub missed: BTreeMap<OpClass, u64>,
}

/// A client's operations by class, for separately scheduled classes: not flushes or parts of transactions.
#[derive(Debug, Clone, Default)]
pub struct DueShares(pub(crate) Vec<(OpClass, u64)>);

impl Recording {
    /// Adds the recording of another client of the same trial over the same timeline. If one client has fewer
    /// intervals (it stopped earlier), the rest is the other's alone. Both are in time order; linear in their
    /// length.
    pub fn merge(&mut self, other: &Self) {
        self.intervals = merged(std::mem::take(&mut self.intervals), &other.intervals);
        self.carried.add(&other.carried);
        self.error_samples.extend_from_slice(&other.error_samples);
        self.missed_arrivals = self.missed_arrivals.saturating_add(other.missed_arrivals);
        for (class, missed) in &other.missed {
            self.miss_of(*class, *missed);
        }
    }

    /// Takes out the intervals that ended by `until`.
    pub fn take_until(&mut self, until: Nanos) -> Self {
        let count = self.intervals.partition_point(|interval| interval.end <= until);
        Self { intervals: self.intervals.drain(..count).collect(), ..Self::default() }
    }

    /// Intervals of the measured time.
    pub fn measured(&self) -> impl Iterator<Item = &Interval> {
        self.intervals.iter().filter(|interval| interval.phase == Phase::Measure)
    }

    /// Counts over the measured intervals, of one class or of reads and writes together: those of
    /// [`Recording::total`], without its histograms.
    #[must_use]
    pub fn counts(&self, class: Option<OpClass>) -> Counts {
        let mut counts = Counts::default();
        for interval in self.measured() {
            for one in OpClass::ALL.into_iter().filter(|one| of_class(class, *one)) {
                counts += interval.tallies[one].counts;
            }
        }
        counts
    }

    /// Summary of one class, or of reads and writes together. Decodes every histogram.
    #[must_use]
    pub fn total(&self, class: Option<OpClass>) -> Total {
        let mut total = Total {
            counts: self.counts(class),
            due: self.due(class),
            latency: new_histogram(),
            service: new_histogram(),
            missed: self.missed_of(class),
        };
        let wanted = || OpClass::ALL.into_iter().filter(|one| of_class(class, *one));
        for interval in self.intervals.iter().filter(|one| one.phase != Phase::WarmUp) {
            for tally in wanted().map(|one| &interval.tallies[one]) {
                tally.latency.add_to(&mut total.latency);
                tally.service.add_to(&mut total.service);
            }
        }
        for tally in wanted().map(|one| &self.carried[one]) {
            tally.latency.take_from(&mut total.latency);
            tally.service.take_from(&mut total.service);
        }
        total
    }

    /// Operations due in the measured time that completed, of one class or of reads and writes together: as
    /// [`Total::due`], without decoding a histogram.
    #[must_use]
    pub fn due(&self, class: Option<OpClass>) -> Counts {
        let mut due = Counts::default();
        let wanted = || OpClass::ALL.into_iter().filter(|one| of_class(class, *one));
        for interval in self.intervals.iter().filter(|one| one.phase != Phase::WarmUp) {
            wanted().for_each(|one| due += interval.tallies[one].counts);
        }
        for carried in wanted().map(|one| self.carried[one].counts) {
            due.ops = due.ops.saturating_sub(carried.ops);
            due.latency_sum = due.latency_sum.since(carried.latency_sum);
        }
        due
    }

    /// Records the arrivals that a client missed until `over`, the end of the trial, distributed over its
    /// classes by `shares`; arrivals during warm-up count only in the total.
    pub fn missed_by<W: Workload>(
        &mut self,
        shares: &DueShares,
        workload: &mut W,
        (timeline, over): (&Timeline, Nanos),
    ) {
        let of_warm_up = workload.missed(over.min(timeline.warm_up));
        let all = workload.missed(over);
        self.missed_arrivals = self.missed_arrivals.saturating_add(all);
        let measured = all.saturating_sub(of_warm_up);
        let whole: u64 = shares.0.iter().map(|(_, ops)| ops).sum();
        let mut left = measured;
        for (place, (class, ops)) in shares.0.iter().enumerate() {
            let share = (measured as f64 * *ops as f64 / whole.max(1) as f64).round() as u64;
            let share = if place + 1 == shares.0.len() { left } else { share.min(left) };
            left -= share;
            self.miss_of(*class, share);
        }
    }

    fn miss_of(&mut self, class: OpClass, missed: u64) {
        if missed > 0 {
            let sum = self.missed.entry(class).or_default();
            *sum = sum.saturating_add(missed);
        }
    }

    /// Missed arrivals of the measured time, of one class or of reads and writes together.
    #[must_use]
    pub fn missed_of(&self, class: Option<OpClass>) -> u64 {
        let of = self.missed.iter().filter(|(one, _)| of_class(class, **one));
        of.fold(0, |sum, (_, missed)| sum.saturating_add(*missed))
    }

    /// Whether operations carried over the end of the warm-up are a subset of those completed after it, each
    /// with its time; in a damaged archive they may not be.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        self.carried.iter().all(|(class, tally)| {
            let after = self.intervals.iter().filter(|interval| interval.phase != Phase::WarmUp);
            let ops: u64 = after.map(|interval| interval.tallies[class].counts.ops).sum();
            tally.counts.ops <= ops && tally.latency.histogram().len() == tally.counts.ops
        })
    }

    /// Measured time in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.measured().map(Interval::seconds).sum()
    }

    /// Failed operations in all phases.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.intervals.iter().map(|interval| interval.counts().errors).sum()
    }
}

/// Both in time order.
fn merged(mine: Vec<Interval>, other: &[Interval]) -> Vec<Interval> {
    let place = |interval: &Interval| (interval.phase, interval.start);
    let mut out: Vec<Interval> = Vec::with_capacity(mine.len().max(other.len()));
    let mut mine = mine.into_iter().peekable();
    for theirs in other {
        while let Some(before) = mine.next_if(|one| place(one) < place(theirs)) {
            out.push(before);
        }
        match mine.next_if(|one| place(one) == place(theirs)) {
            Some(mut both) => {
                both.add(theirs);
                out.push(both);
            }
            None => out.push(theirs.clone()),
        }
    }
    out.extend(mine);
    out
}

/// Whether class `one` is part of `wanted`; `None` stands for all classes that count in totals.
fn of_class(wanted: Option<OpClass>, one: OpClass) -> bool {
    wanted.map_or(one.is_whole(), |wanted| wanted == one)
}
