//! The recorder of every driver, measured or virtual.
//!
//! Invariants: `record` and `poll` take nanoseconds and allocate only at the end of an interval, where the
//! counts are copied. A sample belongs to the interval in which it completed; one that arrived during warm-up
//! and completes after it is also kept separately, since it is not a latency of the measurement.

use serde::{Deserialize, Serialize};
use units::Nanos;
use workload::{Client, Issue, OpClass, Operation, Outcome};

use crate::phase::Phase;
use crate::recording::{Counts, DueShares, ErrorSample, Interval, Recording};
use crate::spread::Spread;
use crate::timeline::Timeline;
use crate::{Histogram, StoredLatency, new_histogram};

/// Failures kept as evidence per client.
const ERROR_SAMPLES_MAX: usize = 16;

/// One completed operation.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Class of the operation.
    pub class: OpClass,
    /// Scheduled time of issue.
    pub intended: Nanos,
    /// When it was issued.
    pub issued: Nanos,
    /// When it was known to be complete.
    pub completed: Nanos,
    /// Bytes moved.
    pub bytes: u32,
    /// Whether it succeeded.
    pub outcome: Outcome,
    /// Byte offset or record number of the failed operation.
    pub position: u64,
}

impl Sample {
    /// The sample of an operation that transferred `bytes`.
    #[inline]
    #[must_use]
    pub fn of<Op: Operation>(
        issue: &Issue<Op>,
        (issued, completed): (Nanos, Nanos),
        (outcome, bytes): (Outcome, u32),
    ) -> Self {
        Self {
            class: issue.op.class(),
            intended: issue.intended,
            issued,
            completed,
            bytes,
            outcome,
            position: issue.op.position(),
        }
    }
}

/// An ended interval in brief, for progress lines.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Part of the trial.
    pub phase: Phase,
    /// End of the interval.
    pub end: Nanos,
    /// Its length in seconds.
    pub seconds: f64,
    /// Completed operations.
    pub ops: u64,
    /// Sum of their response times.
    pub latency_sum: Nanos,
    /// Coarse distribution of the latencies.
    pub spread: Spread,
}

/// Samples of one class and interval that are kept as values before a histogram is used. Clients with few
/// operations per interval then spend almost nothing at its end, where hundreds of threads would otherwise
/// encode their histograms at the same time and contend for CPU.
const FEW: usize = 256;

/// Times of one class in the interval being recorded.
#[derive(Debug)]
struct Lane {
    few: Vec<u64>,
    /// Used once there are more than a few samples.
    histogram: Histogram,
    spilled: bool,
}

impl Lane {
    fn new() -> Self {
        Self { few: Vec::with_capacity(FEW), histogram: new_histogram(), spilled: false }
    }

    #[inline]
    fn record(&mut self, nanoseconds: u64) {
        if self.spilled {
            self.histogram.saturating_record(nanoseconds);
        } else if self.few.len() < FEW {
            self.few.push(nanoseconds);
        } else {
            self.spill(nanoseconds);
        }
    }

    /// Adds its latencies.
    fn spread(&self, spread: &mut Spread) {
        if self.spilled {
            let recorded = self.histogram.iter_recorded();
            recorded.for_each(|one| {
                spread.add(Nanos(one.value_iterated_to()), one.count_since_last_iteration());
            });
        } else {
            self.few.iter().for_each(|time| spread.add(Nanos(*time), 1));
        }
    }

    #[cold]
    fn spill(&mut self, nanoseconds: u64) {
        self.few.drain(..).for_each(|time| self.histogram.saturating_record(time));
        self.histogram.saturating_record(nanoseconds);
        self.spilled = true;
    }
}

/// A few latencies of an ended interval, not yet encoded.
#[derive(Debug)]
struct Raw {
    interval: usize,
    class: OpClass,
    service: bool,
    times: Box<[u64]>,
}

/// An operation that was due in the warm-up and completed after it.
#[derive(Debug, Clone, Copy)]
struct Carried {
    class: OpClass,
    bytes: u32,
    latency: Nanos,
    service: Option<Nanos>,
}

/// Initial capacity for values; a closed loop carries its operations in flight, an overloaded schedule many
/// more.
const CARRIED_USUAL: usize = 1024;

/// Carried operations beyond that capacity, by class.
#[derive(Debug, Default)]
struct CarriedMany(Vec<(OpClass, Counts, Histogram, Histogram)>);

impl CarriedMany {
    fn add(&mut self, one: &Carried) {
        let found = self.0.iter().position(|(class, ..)| *class == one.class);
        let place = found.unwrap_or_else(|| {
            self.0.push((one.class, Counts::default(), new_histogram(), new_histogram()));
            self.0.len() - 1
        });
        let (_, counts, latency, service) = &mut self.0[place];
        counts.ops += 1;
        counts.bytes += u64::from(one.bytes);
        counts.latency_sum += one.latency;
        latency.saturating_record(one.latency.get());
        one.service.iter().for_each(|time| service.saturating_record(time.get()));
    }
}

/// Records one client's operations.
#[derive(Debug)]
pub struct Recorder {
    timeline: Timeline,
    /// The interval being recorded; its tallies stay empty until it ends.
    current: Interval,
    /// `[class]` of the interval being recorded.
    counts: [Counts; OpClass::COUNT],
    /// `[class]` of the interval being recorded; `None` for a class that the client does not issue.
    latency: [Option<Lane>; OpClass::COUNT],
    /// `[class]`, service times; none in a closed loop, where they equal the response times.
    service: [Option<Lane>; OpClass::COUNT],
    done: Recording,
    /// `[class]`, operations of the intervals that have ended.
    ended_ops: [u64; OpClass::COUNT],
    raw: Vec<Raw>,
    carried: Vec<Carried>,
    carried_many: CarriedMany,
    /// When ended intervals were last taken out.
    taken_at: Nanos,
}

impl Recorder {
    /// A recorder of `classes` at the start of `timeline`. At most 270 KiB per class.
    #[must_use]
    pub fn new(timeline: Timeline, classes: &[OpClass]) -> Self {
        let start = Nanos::ZERO;
        let current = Interval::empty(timeline.phase(start), start, timeline.boundary(start));
        let mut done = Recording::default();
        done.intervals.reserve(timeline.intervals());
        done.error_samples.reserve(ERROR_SAMPLES_MAX);
        Self {
            timeline,
            current,
            counts: Default::default(),
            latency: lanes(classes),
            service: Default::default(),
            done,
            ended_ops: [0; OpClass::COUNT],
            raw: Vec::new(),
            carried: Vec::with_capacity(CARRIED_USUAL),
            carried_many: CarriedMany::default(),
            taken_at: Nanos::ZERO,
        }
    }

    /// Takes the ended intervals out of memory, if the last time was at least `every` ago. Merged with the
    /// result of [`Recorder::finish`] they are the whole recording.
    pub fn take_ended(&mut self, now: Nanos, every: Nanos) -> Option<Recording> {
        if now.since(self.taken_at) < every || self.done.intervals.is_empty() {
            return None;
        }
        self.taken_at = now;
        self.encode();
        let intervals = std::mem::take(&mut self.done.intervals);
        Some(Recording { intervals, ..Recording::default() })
    }

    /// A recorder with service times as well as response times, for open loops.
    #[must_use]
    pub fn with_service(timeline: Timeline, classes: &[OpClass]) -> Self {
        Self { service: lanes(classes), ..Self::new(timeline, classes) }
    }

    /// The recorder that a client needs.
    #[must_use]
    pub fn of<W>(client: &Client<W>, timeline: Timeline) -> Self {
        if client.open_loop {
            Self::with_service(timeline, &client.classes)
        } else {
            Self::new(timeline, &client.classes)
        }
    }

    /// Ends the current interval if `now` is past it and returns its counts. Drivers call it with each clock
    /// reading, before recording what completed by then.
    #[inline]
    pub fn poll(&mut self, now: Nanos) -> Option<Summary> {
        if now < self.current.end {
            return None;
        }
        Some(self.roll())
    }

    /// Counts one completed operation into the current interval.
    #[inline]
    pub fn record(&mut self, sample: Sample) {
        let counts = &mut self.counts[sample.class.index()];
        match sample.outcome {
            Outcome::Done => {
                let latency = sample.completed.since(sample.intended);
                counts.ops += 1;
                counts.bytes += u64::from(sample.bytes);
                counts.latency_sum += latency;
                let lane = &mut self.latency[sample.class.index()];
                debug_assert!(lane.is_some(), "a class that was not announced");
                if let Some(lane) = lane {
                    lane.record(latency.get());
                }
                if let Some(lane) = &mut self.service[sample.class.index()] {
                    lane.record(sample.completed.since(sample.issued).get());
                }
                if sample.intended < self.timeline.warm_up && self.current.phase != Phase::WarmUp {
                    self.carry(&sample);
                }
            }
            Outcome::Retried => {}
            Outcome::Failed(errno) => {
                counts.errors += 1;
                if self.done.error_samples.len() < ERROR_SAMPLES_MAX {
                    self.done.error_samples.push(ErrorSample {
                        class: sample.class,
                        errno,
                        position: sample.position,
                        at: sample.completed,
                    });
                }
            }
        }
    }

    #[cold]
    fn carry(&mut self, sample: &Sample) {
        let scheduled = self.service[sample.class.index()].is_some();
        let one = Carried {
            class: sample.class,
            bytes: sample.bytes,
            latency: sample.completed.since(sample.intended),
            service: scheduled.then(|| sample.completed.since(sample.issued)),
        };
        if self.carried.len() < CARRIED_USUAL {
            self.carried.push(one);
        } else {
            self.carried_many.add(&one);
        }
    }

    #[cold]
    fn roll(&mut self) -> Summary {
        let end = self.current.end;
        let mut spread = Spread::default();
        // For SQL whole transactions, without their parts.
        let counted = self.latency.iter().take(OpClass::Transaction.index() + 1);
        counted.flatten().for_each(|lane| lane.spread(&mut spread));
        let next = Interval::empty(self.timeline.phase(end), end, self.timeline.boundary(end));
        let ended = self.take_current(next);
        let counts = ended.counts();
        let summary = Summary {
            phase: ended.phase,
            end,
            seconds: ended.seconds(),
            ops: counts.ops,
            latency_sum: counts.latency_sum,
            spread,
        };
        // While late operations are awaited, there may be none for a long time.
        if ended.phase != Phase::Drain || !ended.tallies.is_empty() {
            self.done.intervals.push(ended);
        }
        summary
    }

    /// The current interval with its tallies; `next` becomes the current one.
    fn take_current(&mut self, next: Interval) -> Interval {
        let mut ended = std::mem::replace(&mut self.current, next);
        let interval = self.done.intervals.len();
        for class in OpClass::ALL {
            let index = class.index();
            let counts = std::mem::take(&mut self.counts[index]);
            if counts == Counts::default() {
                continue;
            }
            self.ended_ops[index] += counts.ops;
            let tally = ended.tallies.of(class);
            tally.counts = counts;
            for (stored, lane, service) in [
                (&mut tally.latency, &mut self.latency[index], false),
                (&mut tally.service, &mut self.service[index], true),
            ] {
                let Some(lane) = lane else { continue };
                if lane.spilled {
                    *stored = StoredLatency::new(&lane.histogram);
                    lane.histogram.reset();
                    lane.spilled = false;
                } else if !lane.few.is_empty() {
                    let times = lane.few.as_slice().into();
                    self.raw.push(Raw { interval, class, service, times });
                    lane.few.clear();
                }
            }
        }
        ended
    }

    /// The recording of a client that stopped at `now`. Operations of an interval that was cut short (its
    /// rate would be wrong) are kept as drain, like those in flight at the end.
    #[must_use]
    pub fn finish(self, now: Nanos) -> Recording {
        self.end(now, Phase::Drain)
    }

    /// The recording of a client that completed its work by `now`, before the end of the measured time: its
    /// last interval is shorter than the others and counts like them.
    #[must_use]
    pub fn finish_early(self, now: Nanos) -> Recording {
        let phase = self.current.phase;
        self.end(now, phase)
    }

    /// The client's operations of separately scheduled classes, to attribute missed ones; if it has none, the
    /// `classes` that it issues.
    #[must_use]
    pub fn due_shares(&self, classes: &[OpClass]) -> DueShares {
        let ops = |class: OpClass| self.ended_ops[class.index()] + self.counts[class.index()].ops;
        let due = OpClass::ALL.into_iter().filter(|class| class.is_due_by_itself());
        let done: Vec<(OpClass, u64)> =
            due.map(|class| (class, ops(class))).filter(|(_, ops)| *ops > 0).collect();
        if !done.is_empty() {
            return DueShares(done);
        }
        let due = classes.iter().filter(|class| class.is_due_by_itself());
        DueShares(due.map(|class| (*class, 1)).collect())
    }

    /// Whether the current interval has samples.
    fn is_in_use(&self) -> bool {
        self.counts.iter().any(|counts| *counts != Counts::default())
    }

    fn end(mut self, now: Nanos, last: Phase) -> Recording {
        while now >= self.current.end && (self.current.phase != Phase::Drain || self.is_in_use()) {
            self.roll();
        }
        if self.is_in_use() {
            let start = self.current.start;
            self.current.phase =
                if self.current.phase == Phase::Drain { Phase::Drain } else { last };
            self.current.end = now.max(start + Nanos(1));
            let last = self.take_current(Interval::empty(Phase::Drain, start, start));
            self.done.intervals.push(last);
        }
        self.encode();
        self.encode_carried();
        self.done
    }

    /// Encodes the samples kept as values.
    fn encode(&mut self) {
        let mut scratch = new_histogram();
        for raw in self.raw.drain(..) {
            raw.times.iter().for_each(|time| scratch.saturating_record(*time));
            let tally = self.done.intervals[raw.interval].tallies.of(raw.class);
            let place = if raw.service { &mut tally.service } else { &mut tally.latency };
            *place = StoredLatency::new(&scratch);
            scratch.reset();
        }
    }

    fn encode_carried(&mut self) {
        let mut many = std::mem::take(&mut self.carried_many);
        self.carried.drain(..).for_each(|one| many.add(&one));
        for (class, counts, latency, service) in many.0 {
            let tally = self.done.carried.of(class);
            tally.counts += counts;
            tally.latency.merge(&StoredLatency::new(&latency));
            tally.service.merge(&StoredLatency::new(&service));
        }
    }
}

/// Lanes for `classes`, none for others.
fn lanes(classes: &[OpClass]) -> [Option<Lane>; OpClass::COUNT] {
    OpClass::ALL.map(|class| classes.contains(&class).then(Lane::new))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TIMELINE: Timeline =
        Timeline { warm_up: Nanos(250), measure: Nanos(1000), interval: Nanos(100) };

    const CLASSES: [OpClass; 2] = [OpClass::Read, OpClass::Write];

    fn sample(completed: u64, latency: u64) -> Sample {
        Sample {
            class: if latency.is_multiple_of(2) { OpClass::Read } else { OpClass::Write },
            intended: Nanos(completed.saturating_sub(latency)),
            issued: Nanos(completed.saturating_sub(latency / 2)),
            completed: Nanos(completed),
            bytes: 10,
            outcome: Outcome::Done,
            position: 0,
        }
    }

    fn feed(samples: &[(u64, u64)]) -> Recording {
        let mut recorder = Recorder::with_service(TIMELINE, &CLASSES);
        for &(completed, latency) in samples {
            while recorder.poll(Nanos(completed)).is_some() {}
            recorder.record(sample(completed, latency));
        }
        recorder.finish(Nanos(1500))
    }

    #[test]
    fn intervals_tile_the_trial() {
        let recording = feed(&[(1400, 200)]);
        let bounds: Vec<_> =
            recording.intervals.iter().map(|i| (i.phase, i.start.0, i.end.0)).collect();
        assert_eq!(bounds[0], (Phase::WarmUp, 0, 50));
        assert_eq!(bounds[1], (Phase::WarmUp, 50, 150));
        assert_eq!(bounds[3], (Phase::Measure, 250, 350));
        assert_eq!(bounds[12], (Phase::Measure, 1150, 1250));
        assert_eq!(bounds[13], (Phase::Drain, 1350, 1450));
        assert_eq!(bounds.len(), TIMELINE.intervals());
        assert!((recording.seconds() - 1e-6).abs() < 1e-12);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        /// Parts handed to the journal during a trial plus the rest at its end must equal the whole.
        #[test]
        fn pieces_taken_out_on_the_way_lose_nothing(
            mut samples in prop::collection::vec((0u64..1500, 1u64..400), 1..200),
            every in 1u64..700,
        ) {
            samples.sort_unstable();
            let mut recorder = Recorder::with_service(TIMELINE, &CLASSES);
            let mut kept = Recording::default();
            for &(completed, latency) in &samples {
                while recorder.poll(Nanos(completed)).is_some() {}
                if let Some(piece) = recorder.take_ended(Nanos(completed), Nanos(every)) {
                    kept.merge(&piece);
                }
                recorder.record(sample(completed, latency));
            }
            // By 200 two intervals have ended; a caller every 100 has received them.
            let ended = samples.last().is_some_and(|(completed, _)| *completed >= 200);
            prop_assert!(!ended || every > 100 || !kept.intervals.is_empty(), "nothing was taken");
            let mut rest = recorder.finish(Nanos(1500));
            rest.merge(&kept);
            let whole = feed(&samples);
            prop_assert!(rest.intervals == whole.intervals);
            prop_assert!(rest.carried == whole.carried);
        }

        /// Latencies must be those of all arrivals within the measurement, whenever they complete; otherwise
        /// a stall would vanish, or one outside of the measurement would count.
        #[test]
        fn latencies_are_of_what_was_due(
            mut samples in prop::collection::vec((0u64..1500, 1u64..400), 0..100)) {
            samples.sort_unstable();
            let total = feed(&samples).total(None);
            let due = |(completed, latency): &&(u64, u64)| {
                Nanos(completed.saturating_sub(*latency)) >= TIMELINE.warm_up
            };
            let expected = samples.iter().filter(due).count() as u64;
            prop_assert_eq!(total.due.ops, expected);
            prop_assert_eq!(total.latency.len(), expected);
            prop_assert_eq!(total.service.len(), expected);
            let sum: u64 = samples.iter().filter(due).map(|(_, latency)| latency).sum();
            prop_assert_eq!(total.due.latency_sum, Nanos(sum));
        }

        /// Two clients merged must give what one client doing both would give; otherwise figures
        /// depend on how many threads recorded them.
        #[test]
        fn merge_is_union(mut samples in prop::collection::vec((0u64..1500, 1u64..400), 1..200),
                          split in 0usize..200) {
            samples.sort_unstable();
            let (mut left, mut right) = (Vec::new(), Vec::new());
            for (position, one) in samples.iter().enumerate() {
                if position % 3 == split % 3 { left.push(*one) } else { right.push(*one) }
            }
            let mut merged = feed(&left);
            merged.merge(&feed(&right));
            let whole = feed(&samples);
            prop_assert_eq!(merged.intervals.len(), whole.intervals.len());
            for (a, b) in merged.intervals.iter().zip(&whole.intervals) {
                prop_assert!(a == b, "interval at {:?} differs", a.start);
            }
            prop_assert!(merged.carried == whole.carried);
        }

        /// Nothing that completed may vanish from the record.
        #[test]
        fn every_operation_is_in_one_interval(
            mut samples in prop::collection::vec((0u64..1500, 1u64..400), 0..100)) {
            samples.sort_unstable();
            let recording = feed(&samples);
            let ops: u64 = recording.intervals.iter().map(|i| i.counts().ops).sum();
            prop_assert_eq!(ops, samples.len() as u64);
        }
    }

    /// A client with missed arrivals, one per nanosecond from now on.
    struct Owing(u64);

    impl workload::Workload for Owing {
        type Op = workload::KvOp;

        fn next(&mut self, _: Nanos) -> workload::Step<Self::Op> {
            workload::Step::Finished
        }

        fn completed(&mut self, _: workload::OpId, _: Outcome, _: Nanos) {}

        fn missed(&mut self, until: Nanos) -> u64 {
            self.0.min(until.get())
        }
    }

    /// Arrivals missed by a writer must not count for readers that kept up; flushes have no arrivals.
    #[test]
    fn missed_arrivals_belong_to_who_missed_them() {
        let own = |classes: &[(OpClass, u64)]| {
            let mut recorder = Recorder::with_service(TIMELINE, &OpClass::ALL);
            for (class, count) in classes {
                (0..*count)
                    .for_each(|_| recorder.record(Sample { class: *class, ..sample(300, 2) }));
            }
            // A journal takes intervals away while the client runs.
            recorder.poll(Nanos(1200));
            let taken = recorder.take_ended(Nanos(1300), Nanos::ZERO).unwrap();
            let shares = recorder.due_shares(&CLASSES);
            let mut own = recorder.finish(Nanos(1300));
            own.merge(&taken);
            (own, shares)
        };
        let (reader, of_reader) = own(&[(OpClass::Read, 50)]);
        let (writer, of_writer) = own(&[(OpClass::Write, 30), (OpClass::Sync, 30)]);
        let mut all = reader;
        all.merge(&writer);
        let over = (&TIMELINE, Nanos(1300));
        all.missed_by(&of_reader, &mut Owing(0), over);
        all.missed_by(&of_writer, &mut Owing(1000), over);
        // 250 of the thousand were due in the warm-up.
        assert_eq!(all.missed_arrivals, 1000);
        let missed = |class| all.missed_of(Some(class));
        assert_eq!(
            (missed(OpClass::Read), missed(OpClass::Write), missed(OpClass::Sync)),
            (0, 750, 0)
        );
        assert_eq!(all.missed_of(None), 750);
        // For a mix, in proportion to its operations; for a client that did nothing, by its classes.
        let (mix, of_both) = own(&[(OpClass::Read, 30), (OpClass::Write, 10)]);
        let mut of_mix = mix;
        of_mix.missed_by(&of_both, &mut Owing(650), over);
        assert_eq!(of_mix.missed_of(Some(OpClass::Read)), 300);
        assert_eq!(of_mix.missed_of(Some(OpClass::Write)), 100);
        let idle = Recorder::new(TIMELINE, &CLASSES);
        let mut of_idle = Recording::default();
        of_idle.missed_by(&idle.due_shares(&CLASSES), &mut Owing(350), over);
        assert_eq!(of_idle.missed_of(Some(OpClass::Read)), 50);
    }

    #[test]
    fn failures_are_counted_and_sampled_but_have_no_latency() {
        let mut recorder = Recorder::new(TIMELINE, &CLASSES);
        for position in 0..40 {
            recorder.record(Sample { outcome: Outcome::Failed(5), position, ..sample(10, 2) });
        }
        let recording = recorder.finish(Nanos(1300));
        assert_eq!(recording.errors(), 40);
        assert_eq!(recording.error_samples.len(), 16);
        assert_eq!(recording.error_samples[3].position, 3);
        assert_eq!(recording.intervals[0].counts().ops, 0);
    }

    #[test]
    fn an_interval_cut_short_is_kept_but_not_measured() {
        let mut recorder = Recorder::new(TIMELINE, &CLASSES);
        while recorder.poll(Nanos(380)).is_some() {}
        recorder.record(sample(380, 2));
        let recording = recorder.finish(Nanos(400));
        let last = recording.intervals.last().unwrap();
        assert_eq!((last.phase, last.start, last.counts().ops), (Phase::Drain, Nanos(350), 1));
        assert_eq!(recording.measured().count(), 1);
    }

    /// Figures must not depend on whether few or many latencies were recorded.
    #[test]
    fn few_and_many_times_are_kept_alike() {
        for count in [1, FEW, FEW + 1, 3 * FEW] {
            let mut recorder = Recorder::new(TIMELINE, &CLASSES);
            let mut expected = new_histogram();
            for _ in 0..count {
                recorder.record(sample(40, 8));
                expected.record(8).unwrap();
            }
            let recording = recorder.finish(Nanos(1300));
            let stored = &recording.intervals[0].tallies[OpClass::Read].latency;
            assert_eq!(*stored, StoredLatency::new(&expected), "{count} times");
        }
    }

    /// A trial bounded by operations must count all of them.
    #[test]
    fn what_ended_early_counts_to_its_end() {
        let mut recorder = Recorder::new(Timeline { warm_up: Nanos::ZERO, ..TIMELINE }, &CLASSES);
        while recorder.poll(Nanos(130)).is_some() {}
        recorder.record(sample(130, 2));
        let recording = recorder.finish_early(Nanos(150));
        assert_eq!(recording.total(None).counts.ops, 1);
        assert!((recording.seconds() - 150e-9).abs() < 1e-12);
    }
}
