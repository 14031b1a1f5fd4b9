//! The range in which a value is expected, and that of a ratio of two values.
//!
//! A measurement has the range of its repetitions; a single one has the variation of this host if it was
//! measured. A simulation has the errors of its class in our comparisons (`simulated_class`), a prediction
//! those of published figures (docs/validation.csv). Invariant: the factors of predictions contain nine in
//! ten of these figures, and are no wider.

use std::collections::BTreeMap;

use stats::estimate::Estimate;
use study::Source;
use validate::PredictionError;

use crate::figure::Figure;
use crate::groups::{Group, Ops};
use crate::metric::DecisionMetric;
use crate::reliability::Reliability;
pub use crate::simulated_class::ValueRange;
use crate::simulated_class::{SIMULATED_RATIO, class_of_group, parameter_of, shares_errors};

/// Standard deviation of a run, as a share of its value, above which a header is not believed.
const NOISE_MAX: f64 = 10.0;
/// 97.5th percentile of Student's t with nine degrees of freedom: `doctor --noise` measures ten pairs.
const T_95: f64 = 2.262;
/// Jobs that were not repeated vary more than those that were, in logarithms: two comparisons of RocksDB's
/// updates with a disk, hours apart, differ by 1.5 and 1.7.
const UNKNOWN_JOB: f64 = 2.0;
/// Factor either way that contains nine in ten published over predicted values, of those that no constant was
/// chosen with; chosen on these. Rates, means and medians of random reads alone: 10 of 11.
const READS_ALONE: f64 = 1.28;
/// The same for reads next to writes: 36 of 40.
const READS_AMID_WRITES: f64 = 1.41;
/// The same for writes next to reads, and for both together: 41 of 45.
const MIXED: f64 = 2.09;
/// The same for the 99th percentile of reads next to writes: 22 of 24.
const READ_TAIL: f64 = 2.47;
/// Figures whose largest error contains nine in ten others.
const MANY: u32 = 9;

/// Published over predicted values to expect: by the figure's class, or the largest error of published
/// figures of such jobs that no constant was chosen with; of at least three without a class, else `None`.
pub(crate) fn of_prediction(figure: &Figure) -> Option<ValueRange> {
    let worth = figure.worth?;
    let word = |name: &str| parameter_of(figure, name);
    let (share, op) = (word("read_share"), word("op"));
    let share = match share.as_deref() {
        // Reads next to another job's writes.
        Some("100%") if word("beside").is_some() => Some("mixed"),
        share => share,
    };
    let random = word("pattern").is_none_or(|pattern| pattern == "random");
    let plain = random && word("dsync").is_none_or(|dsync| dsync == "false");
    let central = ["iops", "latency_mean", "latency_p50"].contains(&&*figure.metric);
    // A median over reads and writes lies between two very different times.
    let single = op.as_deref() != Some("all") || figure.metric != "latency_p50";
    let reads = op.as_deref() == Some("read");
    let class = match share {
        Some("100%") if central => Some(READS_ALONE),
        Some("100%" | "0%") | None => None,
        Some(_) if central && reads => Some(READS_AMID_WRITES),
        Some(_) if central && single => Some(MIXED),
        Some(_) => Some(READ_TAIL).filter(|_| figure.metric == "latency_p99" && reads),
    };
    match class.filter(|_| plain) {
        Some(class) => known_or(&worth, class),
        None => worth.expected_error().and_then(by_error),
    }
}

/// Ends by what is known from many figures, else by the factor of a class, wider if fewer figures are farther
/// off; `None` if the host was the limit.
fn known_or(known: &PredictionError, class: f64) -> Option<ValueRange> {
    let class = ValueRange { low: 1.0 / class, high: class };
    match known {
        PredictionError::HostBound => None,
        // The largest of three does not contain nine in ten.
        PredictionError::HeldOut { worst, figures, .. } => match known.expected_error() {
            Some(error) if *figures >= MANY => by_error(error),
            _ => by_error(worst.abs()).map(|one| ValueRange {
                low: one.low.min(class.low),
                high: one.high.max(class.high),
            }),
        },
        PredictionError::Fit | PredictionError::NotValidated => Some(class),
    }
}

/// True over predicted values if `predicted = true (1 + error)` with this error or its negative.
fn by_error(error: f64) -> Option<ValueRange> {
    (error < 1.0).then(|| ValueRange { low: 1.0 / (1.0 + error), high: 1.0 / (1.0 - error) })
}

/// The interval of a ratio of independent numbers: their middles divide, and the half widths of their
/// logarithms add in squares. A value need not lie in the interval of its true value.
pub(crate) fn ratio_of(
    (a_low, a_high): (f64, f64),
    (b_low, b_high): (f64, f64),
) -> Option<(f64, f64)> {
    let sound = [a_low, a_high, b_low, b_high].iter().all(|value| *value > 0.0);
    let middle = ((a_low * a_high) / (b_low * b_high)).sqrt();
    let width = |low: f64, high: f64| (high / low).ln() / 2.0;
    let factor = width(a_low, a_high).hypot(width(b_low, b_high)).exp();
    sound.then_some((middle / factor, middle * factor))
}

/// The range of the value of a group.
pub(crate) fn value_range(
    group: &Group<'_>,
    (value, counted): (&Estimate, DecisionMetric),
    standing: &Reliability,
) -> Option<ValueRange> {
    let repeated = value.between_repetitions();
    match standing {
        Reliability::Measured => {
            let single = || single_run(group, (value, counted));
            repeated.or_else(single).map(|(low, high)| ValueRange { low, high })
        }
        Reliability::Simulated => {
            let class = class_of_group(group, counted)?;
            let error = class.real_over_simulated(&group.first.engine)?;
            // Repetitions add to the error.
            let (low, high) = repeated.unwrap_or((value.value, value.value));
            Some(ValueRange { low: low * error.low, high: high * error.high })
        }
        Reliability::Predicted(known) if counted == DecisionMetric::ReadTime => {
            let error = known_or(known, READS_ALONE)?;
            Some(ValueRange { low: value.value * error.low, high: value.value * error.high })
        }
        _ => None,
    }
}

/// The 95 % range of a measurement with n = 1, by the host's variation in such jobs or, if these were not
/// repeated, in those that vary most.
fn single_run(
    group: &Group<'_>,
    (value, counted): (&Estimate, DecisionMetric),
) -> Option<(f64, f64)> {
    let noise = &group.run.header.noise;
    let metric = match counted {
        DecisionMetric::ReadTime => "latency_p50",
        DecisionMetric::TimeAtRate(_) => "latency_p99",
        _ => "rate",
    };
    let of = [group.first.engine.as_str(), counted.ops().word(), metric];
    let factor = single_run_factor(noise, of)?;
    let measured = group.first.source == Source::Measured && !value.at_least;
    (measured && group.trials.len() == 1).then(|| (value.value / factor, value.value * factor))
}

/// The factor either way that contains 95 % of single runs of `[engine, operation, metric]`, by a host's
/// noise as in a run's header: that of such figures or, without them, twice that of those of the metric that
/// vary most.
pub(crate) fn single_run_factor(noise: &BTreeMap<String, f64>, of: [&str; 3]) -> Option<f64> {
    let own = noise.get(&of.join(" ")).map(|share| (*share, 1.0));
    let metric = format!(" {}", of[2]);
    let alike = noise.iter().filter(|(name, _)| name.ends_with(&metric)).map(|(_, share)| *share);
    let alike = || alike.max_by(f64::total_cmp).map(|share| (share, UNKNOWN_JOB));
    // A run folder may come from any user.
    let sound = |(share, _): &(f64, f64)| (0.0..=NOISE_MAX).contains(share);
    let (share, times) = own.or_else(alike).filter(sound)?;
    Some((T_95 * times * share.ln_1p()).exp())
}

/// The source with the range of other runs of a measurement, `measured, n = 1, within 8 %`, or the expected
/// error of a prediction, `predicted, held-out error 3 %`.
pub fn source_text(group: &Group<'_>, (ops, metric): (Ops, &str)) -> String {
    let source = group.first.source;
    match (group.worth(metric), spread_text(group, (ops, metric))) {
        (Some(worth), _) => format!("{source}, {}", worth.brief()),
        (None, Some(spread)) => format!("{source}, {spread}"),
        (None, None) => source.to_string(),
    }
}

/// How far another run may be from a single one, or the mean of all runs from that of some, in words:
/// `n = 1, within 8 %`, `n = 3, mean within 5 %`. `None` without repetitions and without a measured
/// variation of this host.
fn spread_text(group: &Group<'_>, (ops, metric): (Ops, &str)) -> Option<String> {
    let known = ["iops", "latency_mean", "latency_p50", "latency_p99"].contains(&metric);
    if group.first.source != Source::Measured || !known {
        return None;
    }
    let runs = group.trials.len();
    let estimate = match metric {
        "iops" => group.rate(ops),
        "latency_mean" => group.mean_latency(ops),
        "latency_p99" => group.percentile(ops, 99.0).ok(),
        _ => group.percentile(ops, 50.0).ok(),
    };
    let estimate = estimate.filter(|estimate| !estimate.at_least)?;
    let factor = if runs == 1 {
        // In a closed loop a typical time varies as the rate does.
        let kind = if metric == "latency_p99" { metric } else { "rate" };
        single_run_factor(&group.run.header.noise, [&group.first.engine, ops.word(), kind])?
    } else {
        let (low, high) = estimate.between_repetitions().filter(|(low, _)| *low > 0.0)?;
        (high / low).sqrt()
    };
    let of = if runs == 1 { "" } else { "mean " };
    let within = if factor < 2.0 {
        format!("{:.0} %", ((factor - 1.0) * 100.0).max(1.0))
    } else {
        format!("{factor:.1}x")
    };
    Some(format!("n = {runs}, {of}within {within}"))
}

/// One side of a ratio.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RatioSide<'a> {
    pub group: &'a Group<'a>,
    pub value: &'a Estimate,
    pub range: Option<ValueRange>,
    pub standing: &'a Reliability,
}

/// The range of `of` over `base`, inverted for times, so that more is better. A measurement without a range
/// counts as exact; `None` if any other side has none, or neither has one.
pub(crate) fn ratio_range(
    (of, base): (RatioSide<'_>, RatioSide<'_>),
    ratio: &Estimate,
    counted: DecisionMetric,
) -> Option<ValueRange> {
    let repeated = ratio.between_repetitions();
    match (of.standing, base.standing) {
        (Reliability::Simulated, Reliability::Simulated)
            if [of.group, base.group].iter().all(|one| shares_errors(one, counted)) =>
        {
            // Errors that both simulations share cancel.
            let (low, high) = repeated.unwrap_or((ratio.value, ratio.value));
            return Some(ValueRange { low: low / SIMULATED_RATIO, high: high * SIMULATED_RATIO });
        }
        (Reliability::Measured, Reliability::Measured) if repeated.is_some() => {
            return repeated.map(|(low, high)| ValueRange { low, high });
        }
        _ => {}
    }
    of.range.or(base.range)?;
    let ends = |side: RatioSide<'_>| {
        let exact = ValueRange { low: side.value.value, high: side.value.value };
        side.range.or_else(|| (*side.standing == Reliability::Measured).then_some(exact))
    };
    let (of, base) = (ends(of)?, ends(base)?);
    let (of, base) = if counted.is_rate() { (of, base) } else { (base, of) };
    let (low, high) = ratio_of((of.low, of.high), (base.low, base.high))?;
    Some(ValueRange { low, high })
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALIDATION: &str = include_str!("../../../../docs/validation.csv");

    /// Figures of validation.csv that no constant was chosen with: drive, job with metric, and how far off
    /// the prediction is, as a factor of at least 1.
    fn held_out() -> Vec<(String, String, f64)> {
        let rows = VALIDATION.lines().filter_map(|line| {
            let (before, after) = line.split_once(",held out,")?;
            let (drive, job) = before.split_once(',')?;
            let percent = after.split(" %").next()?.parse::<f64>().ok()?;
            let factor = (1.0 + percent / 100.0).ln().abs().exp();
            Some((drive.to_owned(), job.trim_start_matches('"').to_owned(), factor))
        });
        rows.collect()
    }

    /// Factors by drive, of the jobs and metrics that are `wanted`.
    fn by_drive(wanted: impl Fn(&str) -> bool) -> BTreeMap<String, Vec<f64>> {
        let mut found: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for (drive, _, factor) in held_out().into_iter().filter(|(_, job, _)| wanted(job)) {
            found.entry(drive).or_default().push(factor);
        }
        found
    }

    /// The smallest factor that contains nine in ten.
    fn nine_in_ten<'a>(all: impl Iterator<Item = &'a f64>) -> f64 {
        let mut all: Vec<f64> = all.copied().collect();
        all.sort_by(f64::total_cmp);
        all[(all.len() * 9).div_ceil(10) - 1]
    }

    /// A range that a new drive of the same class leaves would decide wrongly, and one that is wider than
    /// needed says less than is known.
    #[test]
    fn the_ranges_of_predictions_contain_nine_in_ten_and_most_of_a_drive_left_out() {
        let central = |job: &str| ["mean", "p50", "IOPS"].iter().any(|one| job.starts_with(one));
        let mixed = |job: &str| {
            let alone = job.contains("100% ") || job.contains(" 0% ") || !job.contains("% reads");
            job.contains("next to") || !alone
        };
        let alone = |job: &str| central(job) && job.contains("100% reads") && !mixed(job);
        let tail = |job: &str| job.starts_with("p99 of reads") && job.contains("next to");
        let reads = |job: &str| central(job) && mixed(job) && job.contains("of reads");
        let others = |job: &str| central(job) && mixed(job) && !job.contains("of reads");
        let classes = [
            (READS_ALONE, by_drive(alone), 11),
            (READS_AMID_WRITES, by_drive(reads), 40),
            (MIXED, by_drive(others), 45),
            (READ_TAIL, by_drive(tail), 24),
        ];
        let (mut left_out, mut inside) = (0, 0);
        for (factor, drives, count) in classes {
            let all: Vec<f64> = drives.values().flatten().copied().collect();
            let least = nine_in_ten(all.iter());
            assert_eq!(all.len(), count, "{factor}");
            assert!(least <= factor && factor < least * 1.02, "{factor}, needed {least}");
            for (drive, own) in &drives {
                let others = drives.iter().filter(|(other, _)| *other != drive);
                let range = nine_in_ten(others.flat_map(|(_, all)| all));
                left_out += own.len();
                inside += own.iter().filter(|factor| **factor <= range).count();
            }
        }
        assert!(inside * 100 >= left_out * 85, "{inside} of {left_out}");
    }

    /// Ranges that hold more or less than they say decide too much or too little: a known truth, measured
    /// once or three times, and a storage against itself.
    #[test]
    fn measured_ranges_hold_the_truth_as_often_as_they_say() {
        use rand::{Rng, SeedableRng};
        let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(5);
        let mut uniform = || (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let mut run = |share: f64| -> f64 {
            let radius = (-2.0 * (1.0 - uniform()).ln()).sqrt();
            (share.ln_1p() * radius * (std::f64::consts::TAU * uniform()).cos()).exp()
        };
        let within = |(low, high): (f64, f64)| u32::from((low..=high).contains(&1.0));
        for share in [0.02, 0.1, 0.3] {
            let mut inside = [0; 3];
            for _ in 0..1000 {
                // Ten pairs, as `doctor --noise` measures.
                let pairs: Vec<f64> = (0..10).map(|_| (run(share) / run(share)).ln()).collect();
                let mean = pairs.iter().sum::<f64>() / 10.0;
                let squares: f64 = pairs.iter().map(|pair| (pair - mean).powi(2)).sum();
                let noise = (squares / 9.0 / 2.0).sqrt().exp_m1();
                let noise = [("block read rate".to_owned(), noise)].into();
                let factor = single_run_factor(&noise, ["block", "read", "rate"]).unwrap();
                let single = |value: f64| (value / factor, value * factor);
                let (one, other) = (run(share), run(share));
                inside[0] += within(single(one));
                inside[1] += within(ratio_of(single(one), single(other)).unwrap());
                let mut repeated = || {
                    let runs = [run(share), run(share), run(share)];
                    stats::estimate::over_values(&runs).unwrap()
                };
                let ratio = stats::estimate::ratio(&repeated(), &repeated());
                inside[2] += within(ratio.between_repetitions().unwrap());
            }
            assert!(inside.iter().all(|one| (930..=970).contains(one)), "{share}: {inside:?}");
        }
    }

    /// A first sentence would promise more, or less, than other runs of the job keep.
    #[test]
    fn a_sentence_says_how_far_other_runs_may_be() {
        let study = "schema = 1\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n\
                     [[experiment]]\nname = \"e\"\n[experiment.block]\n";
        let run_of = |p50| {
            let mut run = crate::test_run::run_of(study, units::Nanos(p50));
            run.trials[0].source = Source::Measured;
            run
        };
        let reads = Ops::Only(workload::OpClass::Read);
        let text = |run: &archive::Run| source_text(&crate::groups(run)[0], (reads, "latency_p50"));
        let mut run = run_of(100_000);
        assert_eq!(text(&run), "measured");
        run.header.noise = [("block read rate".into(), 0.05)].into();
        assert_eq!(text(&run), "measured, n = 1, within 12 %");
        for p50 in [110_000, 121_000] {
            let mut other = run_of(p50).trials.remove(0);
            other.number = run.trials.len() as u32 + 1;
            run.trials.push(other);
        }
        // Student's t with two degrees of freedom: exp(4.303 ln(1.1) / sqrt(3)) is 1.27.
        assert_eq!(text(&run), "measured, n = 3, mean within 27 %");
    }

    #[test]
    fn a_prediction_has_the_error_of_its_class_or_none() {
        let of = |metric: &'static str, parameters: &[(&str, &str)]| {
            let study = "schema = 1\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n\
                         [[experiment]]\nname = \"e\"\n[experiment.block]\n";
            let run = crate::test_run::run_of(study, units::Nanos(100_000));
            let mut figure = crate::figures(std::slice::from_ref(&run)).remove(0);
            figure.worth = Some(PredictionError::NotValidated);
            figure.metric = metric.into();
            let value = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).into());
            figure.point = parameters.iter().map(value).collect();
            of_prediction(&figure).map(|one| one.high)
        };
        assert_eq!(of("iops", &[("op", "all"), ("read_share", "50%")]), Some(MIXED));
        assert_eq!(of("iops", &[("op", "read"), ("read_share", "50%")]), Some(READS_AMID_WRITES));
        assert_eq!(of("iops", &[("op", "read"), ("read_share", "100%")]), Some(READS_ALONE));
        assert_eq!(of("latency_p99", &[("op", "read"), ("read_share", "50%")]), Some(READ_TAIL));
        for none in [
            &[("op", "all"), ("read_share", "0%")][..],
            &[("op", "all"), ("read_share", "50%"), ("pattern", "sequential")],
            &[("op", "write"), ("read_share", "50%"), ("dsync", "true")],
        ] {
            assert_eq!(of("iops", none), None, "{none:?}");
        }
        assert_eq!(of("latency_p50", &[("op", "all"), ("read_share", "50%")]), None);
        assert_eq!(of("latency_p99", &[("op", "all"), ("read_share", "50%")]), None);
    }

    /// A single run without a range looks exact.
    #[test]
    fn a_single_run_has_the_variation_of_its_host() {
        let study = "schema = 1\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n\
                     [[experiment]]\nname = \"e\"\n[experiment.block]\n";
        let mut run = crate::test_run::run_of(study, units::Nanos(100_000));
        let range = |run: &archive::Run| {
            let group = crate::groups(run).remove(0);
            let value = Estimate::of(100.0, 1);
            value_range(&group, (&value, DecisionMetric::ReadTime), &Reliability::Measured)
        };
        assert_eq!(range(&run), None);
        run.header.noise = [("block read latency_p50".into(), 1e300)].into();
        assert_eq!(range(&run), None, "a damaged header");
        run.header.noise =
            [("lmdb read latency_p50".into(), 0.2), ("block read rate".into(), 0.9)].into();
        let other = range(&run).expect("the largest of this metric");
        assert!((other.high - 228.2).abs() < 0.5 && (other.low - 43.8).abs() < 0.5, "{other:?}");
        run.header.noise.insert("block read latency_p50".into(), 0.05);
        let own = range(&run).expect("its own");
        assert!((own.high - 111.7).abs() < 0.1, "{own:?}");
    }

    /// A swapped end, or an error with the wrong sign, would put the truth outside.
    #[test]
    fn a_simulation_and_a_prediction_have_the_errors_of_their_class() {
        let study = "schema = 1\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n\
                     [[experiment]]\nname = \"e\"\n[experiment.block]\n";
        let mut run = crate::test_run::run_of(study, units::Nanos(100_000));
        run.trials[0].engine = "rocksdb".into();
        run.trials[0].point.insert("workload".into(), "overwrite".into());
        let group = crate::groups(&run).remove(0);
        let value = Estimate::of(100.0, 1);
        let of = |counted, standing: &Reliability| value_range(&group, (&value, counted), standing);
        let simulated = of(DecisionMetric::DurableUpdates, &Reliability::Simulated).unwrap();
        assert!((simulated.low - 92.0).abs() < 1e-9 && (simulated.high - 152.0).abs() < 1e-9);
        let time = DecisionMetric::TimeAtRate(workload::OpClass::Read);
        assert_eq!(of(time, &Reliability::Simulated), None);
        // 50 % too long: the published time is two thirds of it.
        let known =
            PredictionError::HeldOut { median: 0.2, worst: 0.5, figures: 3, one_sided: false };
        let predicted = of(DecisionMetric::ReadTime, &Reliability::Predicted(known)).unwrap();
        assert!(
            (predicted.low - 100.0 / 1.5).abs() < 1e-9 && (predicted.high - 200.0).abs() < 1e-9
        );
        // A ratio needs to know both sides.
        let side = |range, standing| RatioSide { group: &group, value: &value, range, standing };
        let unknown = Reliability::Unreliable(String::new());
        let known = side(Some(ValueRange { low: 98.0, high: 102.0 }), &Reliability::Measured);
        let rate = DecisionMetric::DurableUpdates;
        assert_eq!(ratio_range((side(None, &unknown), known), &Estimate::of(1.0, 1), rate), None);
        let both = (side(None, &Reliability::Simulated), side(None, &Reliability::Simulated));
        let range = ratio_range(both, &Estimate::of(2.0, 1), rate).unwrap();
        assert!((range.low - 2.0 / 1.17).abs() < 1e-9 && (range.high - 2.0 * 1.17).abs() < 1e-9);
        let p99 = DecisionMetric::TimeAtRate(workload::OpClass::Read);
        assert_eq!(ratio_range(both, &Estimate::of(2.0, 1), p99), None);
        // Times: faster is more.
        let side = |value, low, high| RatioSide {
            group: &group,
            value,
            range: Some(ValueRange { low, high }),
            standing: &Reliability::Measured,
        };
        let (fast, slow) = (Estimate::of(10.0, 1), Estimate::of(40.0, 1));
        let sides = (side(&fast, 8.0, 12.5), side(&slow, 36.0, 44.0));
        let range = ratio_range(sides, &Estimate::of(4.0, 1), DecisionMetric::ReadTime).unwrap();
        let middle = (36.0f64 * 44.0 / (8.0 * 12.5)).sqrt();
        let factor = (0.5 * (44.0f64 / 36.0).ln()).hypot(0.5 * (12.5f64 / 8.0).ln()).exp();
        assert!((range.low - middle / factor).abs() < 1e-9, "{range:?}");
        assert!((range.high - middle * factor).abs() < 1e-9, "{range:?}");
    }
}
