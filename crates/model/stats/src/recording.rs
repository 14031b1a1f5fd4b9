//! What a trial recorded: intervals in order, each with one tally a class.
//!
//! Invariant: `merge` equals recording both streams into one recorder (property-tested).
//! What it is not: a file format; see `hlog`.

use units::Nanos;
use workload::OpClass;

use crate::{Histogram, StoredLatency, new_histogram};

/// Part of a trial that an interval belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Before measuring: recorded, shown, not counted.
    WarmUp,
    /// What figures are made of.
    Measure,
    /// After the last whole interval: operations that were in flight then.
    Drain,
}

/// What was counted of one class of operations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Completed operations, errors not included.
    pub ops: u64,
    /// Bytes moved by them.
    pub bytes: u64,
    /// Failed operations.
    pub errors: u64,
    /// Sum of response times, for exact means.
    pub latency_sum: Nanos,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.ops += other.ops;
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.latency_sum += other.latency_sum;
    }
}

/// Operations of one class in one interval.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// What was counted.
    pub counts: Counts,
    /// Response times in nanoseconds, from intended start to completion.
    pub latency: StoredLatency,
    /// Service times, from issue to completion; empty in a closed loop, where they are the same.
    pub service: StoredLatency,
}

impl Tally {
    const EMPTY: Self = Self {
        counts: Counts { ops: 0, bytes: 0, errors: 0, latency_sum: Nanos::ZERO },
        latency: StoredLatency::EMPTY,
        service: StoredLatency::EMPTY,
    };
}

/// Tallies by class; of a class without any operation an empty one. Classes that a client does not issue
/// take no memory: hundreds of clients keep thousands of intervals each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tallies(Vec<(OpClass, Tally)>);

static NOTHING: Tally = Tally::EMPTY;

impl Tallies {
    /// Those with something in them, in the order of the classes.
    pub fn iter(&self) -> impl Iterator<Item = (OpClass, &Tally)> {
        self.0.iter().map(|(class, tally)| (*class, tally))
    }

    /// As [`Tallies::iter`], to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (OpClass, &mut Tally)> {
        self.0.iter_mut().map(|(class, tally)| (*class, tally))
    }

    /// The tally of `class`, to put something into it.
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

/// Sum of many tallies, with its histogram at hand.
#[derive(Debug, Clone)]
pub struct Total {
    /// What was counted.
    pub counts: Counts,
    /// Response times in nanoseconds.
    pub latency: Histogram,
    /// Service times in nanoseconds; empty in a closed loop.
    pub service: Histogram,
}

/// One interval of the time series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interval {
    /// Part of the trial.
    pub phase: Phase,
    /// First instant.
    pub start: Nanos,
    /// Instant after the last.
    pub end: Nanos,
    /// By class.
    pub tallies: Tallies,
}

impl Interval {
    /// An interval without any operation.
    #[must_use]
    pub fn empty(phase: Phase, start: Nanos, end: Nanos) -> Self {
        Self { phase, start, end, tallies: Tallies::default() }
    }

    /// What was counted in all classes; of SQL in whole transactions, not again in their parts, and what
    /// failed in whatever part.
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

    /// Adds what another client did in the same interval.
    fn add(&mut self, other: &Self) {
        self.end = self.end.max(other.end);
        for (class, add) in other.tallies.iter() {
            let tally = self.tallies.of(class);
            tally.counts += add.counts;
            tally.latency.merge(&add.latency);
            tally.service.merge(&add.service);
        }
    }

    /// Length in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.end.since(self.start).as_secs_f64()
    }
}

/// One failed operation, kept as evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorSample {
    /// Class of the operation.
    pub class: OpClass,
    /// Operating-system error number.
    pub errno: i32,
    /// Where it pointed: byte offset or record number.
    pub position: u64,
    /// When it failed.
    pub at: Nanos,
}

/// Everything a trial recorded.
#[derive(Debug, Clone, Default)]
pub struct Recording {
    /// In time order; consecutive.
    pub intervals: Vec<Interval>,
    /// The first few failures of each client.
    pub error_samples: Vec<ErrorSample>,
    /// Open loop: operations that were due in the measured time or the warm-up and never issued.
    pub missed_arrivals: u64,
}

impl Recording {
    /// Adds what another client of the same trial recorded over the same timeline. Where one client
    /// has fewer intervals (it stopped earlier), the rest is the other's alone. Both are in order of time;
    /// costs as much as both are long.
    pub fn merge(&mut self, other: &Self) {
        let place = |interval: &Interval| (interval.phase, interval.start);
        let mut at = 0;
        for theirs in &other.intervals {
            while self.intervals.get(at).is_some_and(|mine| place(mine) < place(theirs)) {
                at += 1;
            }
            match self.intervals.get_mut(at) {
                Some(mine) if place(mine) == place(theirs) => mine.add(theirs),
                Some(_) => {
                    // The rest is merged in one go: an insertion for each would move it each time.
                    let rest = self.intervals.split_off(at);
                    self.intervals.extend(merged(rest, &other.intervals, theirs));
                    break;
                }
                None => self.intervals.push(theirs.clone()),
            }
        }
        self.error_samples.extend_from_slice(&other.error_samples);
        self.missed_arrivals += other.missed_arrivals;
    }

    /// Intervals that figures are made of.
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

    /// Sum over the measured intervals, of one class or of reads and writes together.
    #[must_use]
    pub fn total(&self, class: Option<OpClass>) -> Total {
        let mut total =
            Total { counts: Counts::default(), latency: new_histogram(), service: new_histogram() };
        for interval in self.measured() {
            for one in OpClass::ALL.into_iter().filter(|one| of_class(class, *one)) {
                let tally = &interval.tallies[one];
                total.counts += tally.counts;
                tally.latency.add_to(&mut total.latency);
                tally.service.add_to(&mut total.service);
            }
        }
        total
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

/// Both in order, of `other` from `first` on.
fn merged(mine: Vec<Interval>, other: &[Interval], first: &Interval) -> Vec<Interval> {
    let place = |interval: &Interval| (interval.phase, interval.start);
    let mut out: Vec<Interval> = Vec::with_capacity(mine.len() + other.len());
    let mut mine = mine.into_iter().peekable();
    for theirs in other.iter().skip_while(|one| place(one) < place(first)) {
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

/// Whether `one` counts where `wanted` is asked for; all together are reads and writes.
fn of_class(wanted: Option<OpClass>, one: OpClass) -> bool {
    wanted.map_or(one.is_whole(), |wanted| wanted == one)
}
