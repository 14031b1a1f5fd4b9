//! A device described by measurements: latencies at each number of requests in flight.
//!
//! # Model
//! A request that is one of `n` in flight takes a time drawn from the distribution measured at `n`; between
//! measured numbers each quantile is interpolated on logarithmic axes, beyond the last it grows with `n`
//! (constant throughput). Sizes between two measured ones are interpolated linearly at the same quantile, and
//! extrapolated linearly beyond the last. Between two percentiles times follow a power of the rank that
//! reproduces the measured mean.
//!
//! With mixed sizes, work is in flight. The work of a request is its time at the highest rate divided by that
//! of the smallest of its kind; it meets the equivalent number of its own kind, which with one size is `n`.
//! For a larger request at most its remaining time counts, if times are even enough to know it.
//!
//! Reads among writes, and writes among reads, take the ratio of mixes to one kind alone, at the same work in
//! flight and quantile: the recent share of writes selects between mixes; beyond the deepest mix the ratio is
//! constant, and between the two mixed sizes it is interpolated on a logarithmic axis. A single client thread
//! has separate tables, if measured (`alone`). This is the flow-equivalent server of Chandy, Herzog and Woo
//! (IBM J. Res. Dev. 19, 1975), with the measured distribution in place of its mean.
//!
//! A closed loop keeps a write buffer full. If measurements show that writes below the highest rate are
//! absorbed without waiting (`paced`), they take the times measured then until a backlog fills the buffer:
//! each write adds the gap between two writes of a closed loop at the same depth, and time removes as much.
//! The slowdown of reads scales with recent write work relative to that closed loop.
//!
//! If measurements show that requests after an idle period take longer (`rested`), their time is multiplied
//! by the factor for the length of that period.
//!
//! Flushes and forced writes take the times measured for them, if any were (`flushes`).
//!
//! Invariant: in a closed loop at a measured depth and mix, the mean and quantiles are those of its table.

mod buffer;
mod flushes;
mod kinds;
mod mixes;
mod parameters;
mod rested;
mod rows;

use buffer::Buffer;
use flushes::Flushes;
use kinds::{Kind, Place, along};
use mixes::Mixes;
pub use parameters::{FlowFlushes, FlowMixes, FlowPaced, FlowParameters, FlowRested};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rested::Rested;
use rows::{Quantile, Table};
use units::{Nanos, Seed};

use crate::constant::Constant;
use crate::pending::Pending;
use crate::{Completion, Device, Operation, Request, Stage, Stages};

/// Weight of the last request in the estimated mix: an average over about 512 requests.
const MIX_MEMORY: f64 = 1.0 / 512.0;
/// Maximum pressure on reads. In a closed loop the pressure is about 1, with random variation over 128
/// writes.
const PRESSURE_MAX: f64 = 1.5;
/// The longest time of a request, nanoseconds: a day.
const LONGEST: f64 = 86_400e9;
/// A measured device.
#[derive(Debug, Clone)]
pub struct Flow {
    /// Cumulative probability of each column.
    shares: Vec<f64>,
    /// Tables of reads and of writes.
    kinds: [Kind; 2],
    sizes: Vec<f64>,
    /// Mixes of the smallest size, and of a larger one.
    mixes: Option<Mixes>,
    large_mixes: Option<Mixes>,
    buffer: Option<Buffer>,
    rested: Option<Rested>,
    flushes: Option<Flushes>,
    /// Time of a thread between operations, nanoseconds.
    between: f64,
    /// Share of writes among recent requests, weighted by work.
    written: f64,
    /// Average work per request.
    work: f64,
    seen: u32,
    busy: Vec<Busy>,
    random: Xoshiro256PlusPlus,
    done: Pending,
}

/// A request in flight.
#[derive(Debug, Clone, Copy)]
struct Busy {
    end: Nanos,
    /// Work of a request of its size as a read and as a write, in units of the smallest of each kind.
    work: [f64; 2],
    /// Device time of this request at the highest rate, and of the smallest of its kind, nanoseconds.
    needs: f64,
    unit: f64,
    /// Evenness of latencies at one request in flight, 0 to 1.
    evenness: f64,
}

impl Busy {
    /// Remaining share of its work.
    fn left(&self, now: Nanos) -> f64 {
        let time = ((self.end - now).get() as f64).max(self.unit);
        1.0 - self.evenness * (1.0 - time / self.needs).max(0.0)
    }
}

impl Flow {
    /// An idle device.
    #[must_use]
    pub fn new(parameters: &FlowParameters, seed: Seed) -> Self {
        let p = parameters;
        let shares: Vec<f64> = p.percentiles.value.iter().map(|percent| percent / 100.0).collect();
        let kind = |times: &[Vec<Vec<Nanos>>], means: &Option<Constant<Vec<Vec<Vec<Nanos>>>>>| {
            let one = |(size, depths): (usize, &Vec<u32>)| {
                let means = means.as_ref().map(|means| means.value[size].as_slice());
                Table::new(depths, &times[size], means, &shares)
            };
            Kind::new(p.in_flight.value.iter().enumerate().map(one).collect(), &shares)
        };
        Self {
            kinds: [
                kind(&p.read_times.value, &p.read_means),
                kind(&p.write_times.value, &p.write_means),
            ],
            sizes: p.sizes.value.iter().map(|size| size.get() as f64).collect(),
            mixes: p.mixes.as_ref().map(|mixes| Mixes::new(mixes, p, &shares)),
            large_mixes: p.large_mixes.as_ref().map(|mixes| Mixes::new(mixes, p, &shares)),
            buffer: p.paced.as_ref().map(|paced| Buffer::new(paced, &shares)),
            rested: p.rested.as_ref().map(Rested::new),
            flushes: p.flushes.as_ref().map(|flushes| Flushes::new(flushes, &shares)),
            between: p.thread_between.as_ref().map_or(0.0, |time| time.value.get() as f64),
            shares,
            written: 0.0,
            work: 0.0,
            seen: 0,
            busy: Vec::with_capacity(64),
            random: Xoshiro256PlusPlus::seed_from_u64(seed.derive("flow", 0).0),
            done: Pending::default(),
        }
    }

    /// The smaller of the two measured sizes around `length`, or of the last two, and the position towards
    /// the larger; a single size applies to all.
    fn place(&self, length: u32) -> Place {
        let length = f64::from(length);
        let after = self.sizes.partition_point(|size| *size < length).clamp(1, self.sizes.len());
        let after = after.min(self.sizes.len() - 1);
        let before = after.saturating_sub(1);
        let (from, to) = (self.sizes[before], self.sizes[after]);
        (before, if to > from { ((length - from) / (to - from)).max(0.0) } else { 0.0 })
    }

    /// Takes a request; returns its time.
    fn take(&mut self, now: Nanos, operation: Operation, length: u32, queue: u16) -> Nanos {
        let (kind, place) = (usize::from(operation.changes()), self.place(length));
        let work = self.kinds.each_ref().map(|kind| kind.work(place));
        self.note(operation, (work[0] + work[1]) / 2.0);
        let load = work[kind] + self.others(now, kind, work[kind]);
        let takes = self.draw(now, kind, place, load);
        let takes = self.after_rest(now, queue, place, takes);
        let own = &self.kinds[kind];
        // A write acknowledged from a buffer is not done yet.
        let known = kind == 0 || self.buffer.is_none();
        let (unit, evenness) = (own.unit, if known { own.evenness(place) } else { 0.0 });
        self.busy.push(Busy { end: now + takes, work, needs: unit * work[kind], unit, evenness });
        takes
    }

    /// A latency after an idle period.
    fn after_rest(&mut self, now: Nanos, queue: u16, place: Place, takes: Nanos) -> Nanos {
        let Some(rested) = &mut self.rested else { return takes };
        // Constant beyond the last size, because times are extrapolated already.
        let part = along((place.0, place.1.min(1.0)), |size| rested.parts[size]);
        let longer = takes.get() as f64 * rested.factor(now, queue, part);
        let takes = Nanos(longer.min(LONGEST) as u64);
        rested.note(queue, now + takes);
        takes
    }

    /// Work in flight, in smallest requests of this kind, as met by a request of this work.
    fn others(&mut self, now: Nanos, kind: usize, own: f64) -> f64 {
        self.busy.retain(|one| one.end > now);
        let left = |one: &Busy| {
            let work = one.work[kind];
            // For equal requests the closed loop measured the remainder.
            if work > own { (work * one.left(now)).max(own) } else { work }
        };
        self.busy.iter().map(left).sum()
    }

    /// Draws a latency for a request at this work in flight, including its own.
    fn draw(&mut self, now: Nanos, kind: usize, place: Place, load: f64) -> Nanos {
        let quantile = self.quantile();
        let among = match &self.buffer {
            Some(buffer) if kind == 0 => buffer.pressure(now).min(PRESSURE_MAX),
            _ => 1.0,
        };
        let time = self.value(kind, place, (load, among), |table, n| table.time(n, quantile));
        let buffered =
            if kind == 1 { self.buffered(now, place, load, (time, quantile)) } else { None };
        Nanos(buffered.unwrap_or(time).clamp(1.0, LONGEST) as u64)
    }

    /// A random position in a distribution.
    fn quantile(&mut self) -> Quantile {
        let share = self.random.next_u64() as f64 / 2f64.powi(64);
        Quantile::new(share, &self.shares)
    }

    /// The time of a flush; none if flushes were not measured, which studies that need them refuse.
    fn flush(&mut self) -> Nanos {
        if self.flushes.is_none() {
            return Nanos::ZERO;
        }
        let quantile = self.quantile();
        let takes = self.flushes.as_mut().map_or(0.0, |flushes| flushes.flush(quantile));
        Nanos(takes.min(LONGEST) as u64)
    }

    /// The time of a request, given that of one that need not reach the medium.
    fn time_of(&mut self, now: Nanos, request: Request, plain: Nanos) -> Nanos {
        let writes = matches!(request.operation, Operation::Write | Operation::WriteZeroes);
        let Some(flushes) = self.flushes.as_mut().filter(|_| writes) else { return plain };
        if !request.fua {
            flushes.note_write();
            return plain;
        }
        let quantile = self.quantile();
        let takes = self.flushes.as_ref().map_or(plain, |flushes| flushes.forced(plain, quantile));
        if let Some(busy) = self.busy.last_mut() {
            busy.end = now + takes;
        }
        takes
    }

    /// A table value for a request of this kind and size at this work in flight, with the share `among` of
    /// the slowdown that the other kind causes in a closed loop.
    fn value(
        &self,
        kind: usize,
        place: Place,
        (load, among): (f64, f64),
        value: impl Fn(&Table, f64) -> f64,
    ) -> f64 {
        let own = &self.kinds[kind];
        let in_flight = load / own.work(place);
        let alone = along(place, |size| value(&own.times[size], in_flight));
        let mixed = self.mixes.as_ref().map_or(1.0, |small| {
            let ratio = |mixes: &Mixes| mixes.ratio(kind, self.written, (own, load), &value);
            let Some(large) = &self.large_mixes else { return ratio(small) };
            match small.towards(large, along(place, |size| self.sizes[size])) {
                0.0 => ratio(small),
                1.0 => ratio(large),
                part => ratio(small) + part * (ratio(large) - ratio(small)),
            }
        });
        alone * (1.0 + among * (mixed - 1.0)).max(mixed.min(1.0))
    }

    /// The latency of a write that the buffer absorbs, if it has space; the write adds work in any case.
    /// `own` is the tables' latency and its quantile.
    fn buffered(
        &mut self,
        now: Nanos,
        place: Place,
        load: f64,
        own: (f64, Quantile),
    ) -> Option<f64> {
        let room = self.buffer.as_mut()?.room(now);
        // Gap between two writes of a closed loop at the same depth; without space, from the write's own
        // latency, so that a stall drains nothing.
        let in_flight = load / self.kinds[1].work(place);
        let mean = |kind: usize| {
            let load = in_flight * self.kinds[kind].work(place);
            self.value(kind, place, (load, 1.0), Table::mean)
        };
        let written = self.written.max(MIX_MEMORY);
        let write = if room { mean(1) } else { own.0 };
        let both = (1.0 - written) * mean(0) + written * write;
        let adds = (both + self.between) / (written * in_flight.max(1.0));
        let buffer = self.buffer.as_mut()?;
        buffer.add(adds);
        room.then(|| along(place, |size| buffer.times[size].time(own.1)))
    }

    /// Updates the mix by one request.
    fn note(&mut self, operation: Operation, work: f64) {
        self.seen = self.seen.saturating_add(1);
        let weight = MIX_MEMORY.max(1.0 / f64::from(self.seen));
        self.work += (work - self.work) * weight;
        let own = if operation.changes() { 1.0 } else { 0.0 };
        self.written += (own - self.written) * (weight * work / self.work).min(1.0);
    }
}

impl Device for Flow {
    fn submit(&mut self, now: Nanos, request: Request) {
        let takes = match request.operation {
            Operation::Flush => match self.flush() {
                Nanos::ZERO => return self.done.at_once(now, request.id),
                takes => takes,
            },
            operation => {
                let plain = self.take(now, operation, request.length, request.queue);
                self.time_of(now, request, plain)
            }
        };
        if let Some(rested) = &mut self.rested {
            // A flush or a forced write is no rest.
            rested.note(request.queue, now + takes);
        }
        let stages = Stages::new(takes, [(Stage::Media, takes)]);
        self.done.push(Completion { id: request.id, at: now + takes, stages });
    }

    fn next_event(&self) -> Option<Nanos> {
        self.done.next_time()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        self.done.take_due(now, done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constant::constant;
    use units::Bytes;

    fn parameters() -> FlowParameters {
        let row = |times: [u64; 3]| times.map(Nanos::from_micros).to_vec();
        FlowParameters {
            sizes: constant(vec![Bytes(4096), Bytes(128 << 10)]),
            in_flight: constant(vec![vec![1, 4], vec![1]]),
            percentiles: constant(vec![0.0, 50.0, 100.0]),
            read_times: constant(vec![
                vec![row([50, 60, 100]), row([100, 120, 200])],
                vec![row([150, 160, 200])],
            ]),
            write_times: constant(vec![
                vec![row([10, 10, 10]), row([10, 10, 10])],
                vec![row([10, 10, 10])],
            ]),
            read_means: None,
            write_means: None,
            thread_time: None,
            thread_time_write: None,
            thread_between: None,
            mixes: None,
            large_mixes: None,
            paced: None,
            rested: None,
            flushes: None,
            alone: None,
        }
    }

    /// The latency of a read of `length` bytes among `in_flight` like it.
    fn read(flow: &mut Flow, length: u32, in_flight: f64) -> Nanos {
        let place = flow.place(length);
        let load = in_flight * flow.kinds[0].work(place);
        flow.draw(Nanos::ZERO, 0, place, load)
    }

    /// A single thread must use its own tables.
    #[test]
    fn one_thread_alone_has_tables_that_are_tested_as_the_others_are() {
        let mut p = parameters();
        p.alone = Some(Box::new(parameters()));
        assert_eq!(p.impossible(), None);
        p.alone.as_mut().unwrap().read_times.value[0][0].reverse();
        assert!(p.impossible().unwrap().contains("`alone`: each row of `read_times`"));
        p.alone.as_mut().unwrap().alone = Some(Box::new(parameters()));
        assert!(p.impossible().unwrap().contains("of its own"));
    }

    /// One outlier in the last percentile range must not shift the whole range.
    #[test]
    fn the_mean_between_two_percentiles_is_the_measured_one() {
        let mut p = parameters();
        let means = |low: u64, high: u64| {
            vec![vec![low, high].into_iter().map(Nanos::from_micros).collect::<Vec<Nanos>>()]
        };
        let both = vec![[means(52, 65), means(105, 130)].concat(), means(152, 165)];
        p.read_means = Some(constant(both));
        assert_eq!(p.impossible(), None);
        let mut flow = Flow::new(&p, Seed(1));
        let sum: u64 = (0..100_000).map(|_| read(&mut flow, 4096, 1.0).get()).sum();
        let mean = sum as f64 / 100_000.0;
        assert!((mean / 58_500.0 - 1.0).abs() < 0.005, "{mean}");
    }

    /// Reads must take the latency measured in the current mix, and that without writes once these have
    /// ended.
    #[test]
    fn mixes_take_what_was_measured_of_them() {
        let mut p = parameters();
        let times = |us: u64| constant(vec![vec![vec![Nanos::from_micros(us); 3]; 1]; 1]);
        let means = |us: u64| constant(vec![vec![vec![Nanos::from_micros(us); 2]; 1]; 1]);
        p.mixes = Some(FlowMixes {
            size: None,
            read_shares: constant(vec!["50%".parse().unwrap()]),
            in_flight: constant(vec![1]),
            read_times: times(400),
            read_means: means(400),
            write_times: times(30),
            write_means: means(30),
        });
        assert_eq!(p.impossible(), None);
        let mut flow = Flow::new(&p, Seed(1));
        let (mut ends, mut now) = (Vec::new(), Nanos::ZERO);
        let mut one = |flow: &mut Flow, write: bool| {
            let request =
                if write { Request::write(0, 0, 4096) } else { Request::read(0, 0, 4096) };
            flow.submit(now, request);
            ends.clear();
            let begun = now;
            now += Nanos::from_secs(1);
            flow.advance(now, &mut ends);
            (ends[0].at - begun).get() / 1000
        };
        let mixed: Vec<u64> = (0..8000).map(|n| one(&mut flow, n % 2 == 0)).collect();
        assert!(mixed[4000..].iter().all(|time| (28..=32).contains(time) || *time > 390));
        let after: Vec<u64> = (0..8000).map(|_| one(&mut flow, false)).collect();
        assert!(after[7900..].iter().all(|time| (50..=101).contains(time)), "{after:?}");
    }

    #[test]
    fn times_at_a_measured_number_are_the_measured_ones() {
        let mut flow = Flow::new(&parameters(), Seed(1));
        let mut times: Vec<u64> = (0..100_000).map(|_| read(&mut flow, 4096, 1.0).get()).collect();
        times.sort_unstable();
        assert!(times[0] >= 50_000 && *times.last().unwrap() <= 100_000);
        assert!(times[50_000].abs_diff(60_000) < 300, "{}", times[50_000]);
        assert!(times[75_000].abs_diff(80_000) < 600, "{}", times[75_000]);
    }

    #[test]
    fn sizes_lie_on_the_line_through_both() {
        let mut flow = Flow::new(&parameters(), Seed(1));
        // Half-way between 4 KiB and 128 KiB: 50 us more than the small one.
        let length = (4096 + (128 << 10)) / 2;
        let times: Vec<u64> = (0..10_000).map(|_| read(&mut flow, length, 1.0).get()).collect();
        let least = times.iter().min().unwrap();
        assert!((100_000..100_500).contains(least), "{least}");
    }

    /// A small read must wait for a large one: 160 us instead of 45 us.
    #[test]
    fn a_large_request_is_as_much_work_as_it_takes_of_the_device() {
        let mut p = parameters();
        p.read_times.value[1] = vec![vec![Nanos::from_micros(300); 3]];
        let flow = Flow::new(&p, Seed(1));
        // 33.75 us for each of the small ones at their highest rate.
        let work = flow.kinds[0].work(flow.place(128 << 10));
        assert!((work - 300.0 / 33.75).abs() < 0.1, "{work}");
        let mut flow = Flow::new(&p, Seed(1));
        let large = flow.take(Nanos::ZERO, Operation::Read, 128 << 10, 0);
        let busy = flow.clone().others(Nanos::ZERO, 0, 1.0);
        assert!((busy - work).abs() < 1e-9, "just begun");
        let late = flow.clone().others(large - Nanos::from_micros(65), 0, 1.0);
        assert!((late - 65.0 / 33.75).abs() < 0.01, "what is left can be no more: {late}");
        assert!((flow.clone().others(large - Nanos(1), 0, work) - work).abs() < 1e-9, "like it");
        assert!(flow.clone().others(large, 0, 1.0) == 0.0);
        let small = flow.take(Nanos::ZERO, Operation::Read, 4096, 0);
        assert!(small > Nanos::from_micros(230), "{small}");
    }

    /// A read of 64 KiB in a mix must use the ratio measured with 64 KiB, not that of 4 KiB.
    #[test]
    fn mixes_of_a_larger_size_are_its_own_and_between_both_they_are_between() {
        let mut p = parameters();
        let mix = |size: Option<Bytes>, us: u64| FlowMixes {
            size: size.map(constant),
            read_shares: constant(vec!["50%".parse().unwrap()]),
            in_flight: constant(vec![1]),
            read_times: constant(vec![vec![vec![Nanos::from_micros(us); 3]; 1]; 1]),
            read_means: constant(vec![vec![vec![Nanos::from_micros(us); 2]; 1]; 1]),
            write_times: constant(vec![vec![vec![Nanos::from_micros(30); 3]; 1]; 1]),
            write_means: constant(vec![vec![vec![Nanos::from_micros(30); 2]; 1]; 1]),
        };
        p.read_times.value = vec![vec![vec![Nanos::from_micros(100); 3]; 2]; 2];
        p.in_flight.value = vec![vec![1, 4]; 2];
        p.write_times.value = vec![vec![vec![Nanos::from_micros(10); 3]; 2]; 2];
        p.mixes = Some(mix(None, 200));
        p.large_mixes = Some(mix(Some(Bytes(128 << 10)), 800));
        assert_eq!(p.impossible(), None);
        let mut flow = Flow::new(&p, Seed(1));
        flow.written = 0.5;
        let time = |length| read(&mut flow, length, 1.0).get() / 1000;
        let between = (4096.0 * 32f64.sqrt()) as u32;
        let [small, middle, large] = [4096, between, 128 << 10].map(time);
        assert_eq!((small, large), (200, 800));
        assert!(middle.abs_diff(500) < 5, "half-way on a logarithmic axis: {middle}");
        p.large_mixes = Some(mix(Some(Bytes(8192)), 800));
        assert!(p.impossible().unwrap().contains("`large_mixes` needs a `size`"));
        p.mixes = Some(mix(Some(Bytes(128 << 10)), 200));
        assert!(p.impossible().unwrap().contains("`mixes` are of the smallest size"));
    }

    /// An occasional log write must take the buffer's latency, not that of a closed loop.
    #[test]
    fn a_buffer_takes_writes_until_they_come_faster_than_it_is_emptied() {
        let mut p = parameters();
        p.write_times.value = vec![
            [[100, 110, 120], [400, 440, 480]]
                .map(|row| row.map(Nanos::from_micros).to_vec())
                .to_vec(),
            vec![[100, 110, 120].map(Nanos::from_micros).to_vec()],
        ];
        let rows = |us: u64, columns| constant(vec![vec![Nanos::from_micros(us); columns]; 2]);
        p.paced = Some(FlowPaced {
            write_times: rows(10, 3),
            write_means: rows(10, 2),
            backlog: constant(Nanos::from_millis(2)),
        });
        assert_eq!(p.impossible(), None);
        // Full at first, and half empty after 64 writes that leave it time.
        let every = |us: u64| {
            let mut flow = Flow::new(&p, Seed(1));
            let one = |n: u64| flow.take(Nanos::from_micros(n * us), Operation::Write, 4096, 0);
            (0..2000).map(one).map(|time| time > Nanos::from_micros(10)).collect::<Vec<bool>>()
        };
        let [half, twice] = [220, 50].map(every);
        assert_eq!(half[200..], [false; 1800], "half of what it keeps up with");
        assert_eq!(twice, [true; 2000], "twice as much");
        assert!(half[..30].iter().all(|slow| *slow), "full at first: {half:?}");
        p.paced.as_mut().unwrap().write_times.value.pop();
        assert!(p.impossible().unwrap().contains("paced.write_times"));
    }

    /// An idle thread's next request takes longer; that of a busy thread does not.
    #[test]
    fn a_rest_makes_requests_longer_of_the_thread_that_had_it() {
        let mut p = parameters();
        p.write_times.value[1] = vec![[40, 40, 40].map(Nanos::from_micros).to_vec()];
        p.rested = Some(FlowRested {
            rests: constant([10, 100, 1000].map(Nanos::from_micros).to_vec()),
            factors: constant(vec![1.0, 2.0, 3.0]),
            parts: constant(vec![1.0, 0.5]),
        });
        assert_eq!(p.impossible(), None);
        let mut flow = Flow::new(&p, Seed(1));
        let mut write = |at: u64, length: u32, queue: u16| {
            let time = flow.take(Nanos::from_micros(at), Operation::Write, length, queue);
            (time.get() + 500) / 1000
        };
        assert_eq!(write(0, 4096, 0), 10, "nothing is known of its thread");
        assert_eq!(write(10, 4096, 0), 10, "at once");
        assert_eq!(write(120, 4096, 0), 20, "100 us after the last had ended");
        assert_eq!(write(130, 4096, 0), 10, "the last is under way");
        assert_eq!(write(456, 4096, 0), 25, "half-way between 100 and 1000, by their logarithms");
        assert_eq!(write(10_000, 4096, 1), 10, "another thread");
        assert_eq!(write(10_010, 4096, 1), 10, "at once");
        assert_eq!(write(20_000, 128 << 10, 0), 80, "half of what the smallest takes longer");
        p.rested.as_mut().unwrap().factors.value[0] = 1.5;
        assert!(p.impossible().unwrap().contains("`rested.factors`"));
        p.rested.as_mut().unwrap().rests.value.pop();
        assert!(p.impossible().unwrap().contains("`rested.rests`"));
    }

    #[test]
    fn what_nobody_can_measure_is_refused() {
        assert_eq!(parameters().impossible(), None);
        let mut falling = parameters();
        falling.read_times.value[0][0].reverse();
        assert!(falling.impossible().unwrap().contains("read_times"));
        let mut depths = parameters();
        depths.in_flight.value[0] = vec![2, 4];
        assert!(depths.impossible().unwrap().contains("in_flight"));
    }
}
