//! Fits a profile to measurements: tables of a flow-equivalent server from some of the points; the others are
//! held out for testing.
//!
//! Invariants: a held-out point enters no constant; residuals are computed by simulating the fitted profile,
//! also at fitted points.

use device::{Acceptance, Constant, Evidence, KeyLists, Parameters, Profile, Published};
use stats::estimate;
use units::{Bytes, Nanos, Seed};
use workload::OpClass;

use crate::paced;
use crate::points::{FitError, FitPoint, FitTimes, kept_up};
use crate::rested::Rested;
use crate::run::{Length, recording_of};
use crate::tables::Tables;
use crate::thread::{DeviceTimes, ThreadTime};

/// Name and source of the fitted profile.
#[derive(Debug, Clone)]
pub struct Naming {
    /// Name in studies, after `model:`.
    pub name: String,
    /// Its title.
    pub title: String,
    /// Addressable bytes.
    pub capacity: Bytes,
    /// Where and when it was measured.
    pub source: String,
}

/// Fits a profile to the measurements. If no writes were measured, they are assumed to equal reads, which the
/// profile states.
///
/// # Errors
/// [`FitError`] if required points are missing, or the result is not a valid profile.
pub fn fit(points: &[FitPoint], naming: &Naming) -> Result<Profile, FitError> {
    let mut times = DeviceTimes::new(ThreadTime::of(points));
    let mut without = profile_of(points, naming, &times, Schedules::default())?;
    for round in ROUNDS {
        for point in
            points.iter().filter(|point| point.ops() > 0 && !point.held_out() && point.threads > 1)
        {
            approach(&mut times, &without, point, round);
        }
        without = profile_of(points, naming, &times, Schedules::default())?;
    }
    let known = kept_up(points);
    let Some(rows) = paced::rows(&known) else { return Ok(without) };
    let buffered = Schedules { buffer: Some(&rows), rested: None };
    let with = profile_of(points, naming, &times, buffered)?;
    if paced::buffered(&known, &with, &without) {
        return Ok(with);
    }
    let Some(mut rested) = Rested::of(&known, times.thread, &without) else {
        return Ok(without);
    };
    for _ in 0..RESTED_ROUNDS {
        let schedules = Schedules { buffer: None, rested: Some(&rested) };
        let profile = profile_of(points, naming, &times, schedules)?;
        match rested.mended(&known, &profile) {
            Some(mended) => rested = mended,
            None => break,
        }
    }
    match rested.matters() {
        true => {
            let schedules = Schedules { buffer: None, rested: Some(&rested) };
            profile_of(points, naming, &times, schedules)
        }
        false => Ok(without),
    }
}

/// A schedule has gaps of all lengths, so each correction also affects other rates.
const RESTED_ROUNDS: usize = 2;

/// Effects seen only with schedules: writes absorbed by a buffer, or the cost of idling.
#[derive(Clone, Copy, Default)]
struct Schedules<'p> {
    buffer: Option<&'p [&'p FitPoint]>,
    rested: Option<&'p Rested>,
}

/// The quantity that a round corrects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goal {
    Quantiles,
    Mean,
}

/// Rounds of simulating the fitted profile and correcting it: operations per round, and what is corrected.
/// Many operations, because a few in ten thousand that wait milliseconds for another thread's CPU make half
/// of the mean. Quantiles come first, since correcting a mean shifts them all.
const ROUNDS: [(f64, Goal); 4] = [
    (100_000.0, Goal::Quantiles),
    (200_000.0, Goal::Quantiles),
    (200_000.0, Goal::Quantiles),
    (200_000.0, Goal::Mean),
];

/// Share of the response time in the thread below which a job is left as measured.
const THREAD_PART: f64 = 0.05;

/// Corrects the times of one job by the difference between the measurement and the profile.
fn approach(
    times: &mut DeviceTimes,
    profile: &Profile,
    point: &FitPoint,
    (operations, goal): (f64, Goal),
) {
    let own = [&point.reads, &point.writes].map(FitTimes::mean);
    // If the thread takes a small share, a difference is only chance.
    let busy = times.thread.within.map(|within| within * f64::from(point.queue_depth));
    let matters = |kind: usize| own[kind].is_some_and(|own| busy[kind] > own * THREAD_PART);
    if ![0, 1].into_iter().any(matters) {
        return;
    }
    let recording = recording_of(profile, point, Length { operations, seconds: 0.05 }, Seed(2));
    for (kind, class) in [OpClass::Read, OpClass::Write].into_iter().enumerate() {
        let total = recording.total(Some(class));
        let mut found = FitTimes::default();
        found.add(total.due.ops, total.due.latency_sum, &total.latency);
        match goal {
            _ if !matters(kind) || found.ops == 0 => {}
            Goal::Quantiles => times.move_quantiles(point, kind, &found),
            Goal::Mean => times.move_mean(point, kind, &found),
        }
    }
}

/// The profile with these device times.
fn profile_of(
    points: &[FitPoint],
    naming: &Naming,
    device: &DeviceTimes,
    schedules: Schedules<'_>,
) -> Result<Profile, FitError> {
    let several = Tables::of_several(points, device.thread)?;
    let alone = Tables::of_one(points, device.thread)?;
    let unseen = if several.writes.is_some() { "" } else { "writes (taken as reads); " };
    let source = naming.source.as_str();
    let thread = device.thread;
    let between = Constant::measured(Nanos(thread.between as u64), source);
    let mut flow = several.parameters(source, &|point, kind, times| device.of(point, kind, &times));
    let mut one = alone.parameters(source, &|_, _, times| times);
    // The cost of a thread is known if several threads reach more than one.
    if points.iter().any(|point| point.threads > 1 && point.ops() > 0) {
        let [read, write] = thread.within.map(|within| Nanos(within as u64));
        flow.thread_time = Some(Constant::measured(read, source));
        let kind = flow.write_times.kind;
        flow.thread_time_write = Some(Constant { kind, ..Constant::measured(write, source) });
    }
    for part in [&mut flow, &mut one] {
        part.thread_between = Some(between.clone());
        part.paced = schedules.buffer.map(|rows| paced::parameters(source, rows));
        part.rested = schedules.rested.map(|rested| rested.parameters(source));
    }
    flow.alone = Some(Box::new(one));
    let held_out = kept_up(points).into_iter().filter(|point| point.held_out());
    let profile = Profile {
        name: naming.name.clone(),
        title: naming.title.clone(),
        capacity: naming.capacity,
        not_covered: format!(
            "{unseen}caches beyond the measured span, drive state and other patterns; the host's I/O \
             path is included"
        ),
        parameters: Parameters::Flow(Box::new(flow)),
        acceptance: held_out.map(|point| acceptance(point, source)).collect(),
        phenomena: Vec::new(),
    };
    Profile::parse(&profile.to_toml()).map_err(FitError::Profile)?;
    Ok(profile)
}

/// The figures of a held-out point that the profile is validated against.
fn acceptance(point: &FitPoint, source: &str) -> Acceptance {
    let latency = point.latency();
    let percentile = |p| {
        let found = estimate::percentile(&latency, 0, p).ok()?;
        Some(Published::Value(Nanos(found.value as u64)))
    };
    let mut job = Acceptance {
        host: "none".into(),
        threads: point.threads,
        queue_depth: point.queue_depth,
        block_size: point.block_size,
        read_share: point.read_share,
        rate: point.rate,
        // The rate of an open loop is given, not a result.
        iops: point.rate.is_none().then(|| Published::Value(point.iops().round())),
        latency_mean: Some(Published::Value(Nanos(point.mean() as u64))),
        latency_p50: percentile(50.0),
        latency_p99: percentile(99.0),
        source: format!("{source}; not fitted"),
        ..Acceptance::default()
    };
    let keys: Vec<&str> = job.published().iter().map(|figure| figure.key).collect();
    job.evidence = KeyLists::all(Evidence::HeldOut, &keys);
    job
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::points::{LARGE, PACED, SIZES, SMALL, mix_shares};
    use crate::residuals;
    use device::{ConstantKind, FlowParameters};
    use units::{Rate, Share};

    /// Times of a device that takes `base` us plus 1 us per request in flight; one in a thousand takes ten
    /// times as long.
    fn some(count: u64, base: u64, queue_depth: u32) -> FitTimes {
        let mut times = FitTimes::default();
        for number in 0..count {
            let slow = if number % 1000 == 7 { 10 } else { 1 };
            let time = Nanos::from_micros((base + u64::from(queue_depth) + number % 40) * slow);
            times.latency.saturating_record(time.get());
            times.ops += 1;
            times.sum += time;
        }
        times
    }

    /// Reads take 50 us, 80 us among writes; writes take 20 us, 60 us among reads, so that both meet at the
    /// median.
    fn point(read_share: Share, block_size: Bytes, queue_depth: u32, threads: u32) -> FitPoint {
        let in_flight = queue_depth * threads;
        let further = block_size.get() / 4096 - 1;
        let share = read_share.fraction();
        let pure = [Share::ALL, Share::NONE].contains(&read_share);
        let (read, write) = if pure { (50, 20) } else { (80, 60) };
        let reads = some((20_000.0 * share) as u64, read + further, in_flight);
        let writes = some((20_000.0 * (1.0 - share)) as u64, write + further, in_flight);
        let mean = (reads.sum + writes.sum).as_secs_f64() / 20_000.0;
        let seconds = 20_000.0 * mean / f64::from(in_flight);
        FitPoint {
            read_share,
            block_size,
            queue_depth,
            threads,
            rate: None,
            seconds,
            reads,
            writes,
        }
    }

    fn points() -> Vec<FitPoint> {
        let pure = [Share::ALL, Share::NONE];
        let depths = [1, 2, 3, 4, 5, 6, 8, 12, 16, 20, 24, 32, 40, 48, 64];
        let small = pure.into_iter().flat_map(|share| depths.map(|d| point(share, SMALL, d, 1)));
        let mixed = |size| mix_shares().into_iter().map(move |share| (share, size));
        let mixes = mixed(SMALL).chain(mixed(LARGE));
        let mixes = mixes.flat_map(|(share, size)| [1, 2, 3, 12].map(|d| point(share, size, d, 1)));
        let shares = mix_shares().into_iter().chain(pure);
        let threads =
            shares.flat_map(|share| [1, 2, 3, 4, 8, 16].map(|d| point(share, SMALL, d, 4)));
        let large = pure
            .into_iter()
            .flat_map(|share| SIZES.map(|size| (share, size)))
            .filter(|(_, size)| *size > SMALL)
            .flat_map(|(share, size)| [1, 2, 3, 4, 16].map(|d| point(share, size, d, 1)));
        small.chain(mixes).chain(threads).chain(large).collect()
    }

    fn naming() -> Naming {
        Naming {
            name: "mine".into(),
            title: "Mine".into(),
            capacity: Bytes::mib(1024),
            source: "test".into(),
        }
    }

    /// The constants of several threads, and of one thread.
    fn both(profile: &Profile) -> [&FlowParameters; 2] {
        let Parameters::Flow(flow) = &profile.parameters else { panic!("a measured device") };
        [flow, flow.alone.as_ref().expect("of one thread")]
    }

    /// If fitted points are not reproduced, everything between them is wrong, too.
    #[test]
    fn fitted_points_come_back_and_held_out_ones_are_near() {
        let points = points();
        let fitted = fit(&points, &naming()).unwrap();
        let profile = Profile::parse(&fitted.to_toml()).expect("it reads what it wrote");
        for residual in residuals(&profile, &points, Seed(1)) {
            let held_out = residual.category.held_out();
            // At its highest rate a thread is assumed never to be idle: slightly more queueing, mostly in the
            // tail.
            let near = if residual.metric == "p99" { 0.05 } else { 0.025 };
            let allowed = if held_out { 0.06 } else { near };
            assert!(residual.error().abs() < allowed, "{residual:?}");
        }
        assert!(points.iter().any(FitPoint::held_out));
        assert!(!profile.to_toml().contains("assumed"), "everything was measured");
    }

    /// Otherwise a log would be predicted with the latency of writes in a closed loop.
    #[test]
    fn schedules_tell_a_buffer_of_writes_from_a_queue() {
        // 21 us in a closed loop of one, slightly more with the size.
        let with_schedules = |base: u64| {
            let scheduled = |size: Bytes, rate| {
                let own = point(Share::NONE, size, 1, 1);
                let writes = some(20_000, base + size.get() / 4096 - 1, 1);
                let seconds = 20_000.0 / rate as f64;
                FitPoint { rate: Some(Rate(rate)), queue_depth: 64, writes, seconds, ..own }
            };
            let paced = SIZES.map(|size| scheduled(size, PACED.get()));
            let mut points = points();
            points.extend(paced.into_iter().chain([scheduled(SMALL, 4000)]));
            points
        };
        let queue = fit(&with_schedules(20), &naming()).unwrap();
        let [several, alone] = both(&queue);
        assert!(several.paced.is_none() && several.rested.is_none() && alone.paced.is_none());
        let points = with_schedules(5);
        let profile = fit(&points, &naming()).unwrap();
        assert!(both(&profile).iter().all(|flow| flow.paced.is_some()));
        let mean = |one: &&crate::Residual| one.metric == "mean";
        for one in residuals(&profile, &points, Seed(1)).iter().filter(mean) {
            assert!(one.error().abs() < 0.06, "{one:?}");
        }
    }

    /// A database that waits between its queries must not be predicted as fast as one that never does.
    #[test]
    fn schedules_say_what_a_rest_costs() {
        // 50 % longer after 2 ms, 20 % after 250 us; half of that for 128 KiB.
        let mut points = points();
        let rested = |share: Share, size: Bytes, rate: u64| {
            let own = point(share, size, 1, 1);
            let part = if size == Bytes(128 << 10) { 0.5 } else { 1.0 };
            let factor = 1.0 + part * if rate == 500 { 0.5 } else { 0.2 };
            let longer = |times: &FitTimes| {
                let mut all = FitTimes::default();
                for value in times.latency.iter_recorded() {
                    for _ in 0..value.count_at_value() {
                        let time = Nanos((value.value_iterated_to() as f64 * factor) as u64);
                        all.latency.saturating_record(time.get());
                        (all.ops, all.sum) = (all.ops + 1, all.sum + time);
                    }
                }
                all
            };
            let (reads, writes) = (longer(&own.reads), longer(&own.writes));
            let seconds = 20_000.0 / rate as f64;
            FitPoint { rate: Some(Rate(rate)), queue_depth: 64, reads, writes, seconds, ..own }
        };
        points.extend(SIZES.map(|size| rested(Share::NONE, size, PACED.get())));
        points.push(rested(Share::NONE, SMALL, 4000));
        // Held-out points.
        points.push(rested(Share::ALL, SMALL, 4000));
        points.push(rested(Share::ALL, LARGE, 500));
        let profile = fit(&points, &naming()).unwrap();
        assert!(both(&profile).iter().all(|flow| flow.rested.is_some()));
        let buffer = both(&profile).into_iter().any(|flow| flow.paced.is_some());
        assert!(!buffer, "what makes writes longer is no buffer");
        let rested = both(&profile)[0].rested.as_ref().unwrap();
        // The first pause is the time between back-to-back operations.
        let gaps = [0.561_46e9 / 4000.0, 0.561_46e9 / 500.0].map(|gap| gap as u64);
        assert!(rested.rests.value[1..].iter().zip(gaps).all(|(r, g)| r.get().abs_diff(g) < 100));
        let near = |value: f64, wanted: f64| (value - wanted).abs() < 0.1;
        let [_, short, long] = rested.factors.value[..] else { panic!("{rested:?}") };
        // Larger than the planted factors: shorter gaps of the same schedule have a smaller effect.
        let above = |value: f64, least: f64| value >= least && value < least + 0.2;
        assert!(above(short, 1.2) && above(long, 1.5), "{rested:?}");
        let parts = &rested.parts.value;
        assert!(near(parts[0], 1.0) && near(parts[4], 1.0) && near(parts[5], 0.5), "{rested:?}");
        for one in residuals(&profile, &points, Seed(1)).iter().filter(|one| one.metric != "p99") {
            let near = if one.category.held_out() { 0.1 } else { 0.06 };
            assert!(one.error().abs() < near, "{one:?}");
        }
    }

    /// In an overloaded schedule latency grows with the length of the trial and must not be fitted.
    #[test]
    fn schedules_count_up_to_what_a_device_keeps_up_with() {
        let mut points = vec![point(Share::ALL, SMALL, 1, 1), point(Share::NONE, SMALL, 1, 1)];
        let highest = points[0].iops();
        for part in [0.5, 0.8, 0.9, 2.0] {
            let rate = Some(Rate((highest * part) as u64));
            points.push(FitPoint { rate, ..point(Share::ALL, SMALL, 64, 1) });
        }
        let kept_up = crate::kept_up(&points);
        assert_eq!(kept_up.iter().filter(|point| point.rate.is_some()).count(), 2);
    }

    /// Otherwise no durable database runs on a fitted profile, or with a wrong commit.
    #[test]
    fn flushes_take_what_was_measured_after_as_many_writes() {
        let profile = fit(&points(), &naming()).unwrap();
        assert!(profile.parameters.unknown_flush().is_some());
        let measured = |writes: Option<u32>| {
            let base = writes.map_or(450, |writes| 400 + 10 * u64::from(writes));
            crate::FlushPoint { writes, times: some(2_000, base, 0) }
        };
        let mut flushes: Vec<_> = [None, Some(1), Some(8), Some(24), Some(64)].map(measured).into();
        let with = crate::with_flushes(profile.clone(), &flushes, "test");
        let with = Profile::parse(&with.to_toml()).expect("it reads what it wrote");
        assert_eq!(with.parameters.unknown_flush(), None);
        let found = crate::flush_residuals(&with, &flushes, Seed(1));
        assert_eq!(found.len(), 15);
        assert_eq!(found.iter().filter(|one| one.category.held_out()).count(), 3);
        for one in found {
            assert!(one.error().abs() < if one.metric == "p99" { 0.05 } else { 0.02 }, "{one:?}");
        }
        // Without one of the fitted jobs nothing is added.
        flushes.remove(0);
        let without = crate::with_flushes(profile, &flushes, "test");
        assert!(without.parameters.unknown_flush().is_some());
        assert!(crate::flush_residuals(&without, &flushes, Seed(1)).is_empty());
    }

    #[test]
    fn a_device_that_was_not_written_says_so() {
        let reads: Vec<FitPoint> =
            points().into_iter().filter(|point| point.read_share == Share::ALL).collect();
        let profile = fit(&reads, &naming()).unwrap();
        assert!(profile.not_covered.contains("writes (taken as reads)"), "{}", profile.not_covered);
        assert_eq!(both(&profile)[0].write_times.kind, ConstantKind::Assumed);
        let error = fit(&reads[1..], &naming()).unwrap_err().to_string();
        assert!(error.contains("depth 1"), "{error}");
    }
}
