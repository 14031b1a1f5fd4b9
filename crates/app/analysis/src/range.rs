//! The range in which a value is expected, and that of a ratio of two values.
//!
//! A measurement has the range of its repetitions; a single one has the variation of this host if it was
//! measured. A simulation has the errors of its class in our comparisons (docs/round-trip.csv: one real disk;
//! docs/virtual-time.csv: the same drive model in real time), a predicted read those of published figures
//! (docs/validation.csv). Invariant: the error of a drive's profile is not part of the range of a simulation:
//! profiles differ too much for one number.

use std::collections::BTreeMap;

use stats::estimate::Estimate;
use study::Source;
use validate::{FIGURES_MIN, PredictionError};

use crate::figure::Figure;
use crate::groups::Group;
use crate::metric::DecisionMetric;
use crate::reliability::Reliability;

/// A range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ValueRange {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Real over simulated values of a figure; `None` for figures that were not compared.
pub(crate) fn of_figure(figure: &Figure) -> Option<ValueRange> {
    let parameter = |name: &str| figure.point.get(name).or_else(|| figure.defaults.get(name));
    let word = |name: &str| parameter(name).and_then(|value| value.as_str());
    let counted = match (&*figure.metric, word("op"), word("durability")) {
        ("tx_rate", ..) => DecisionMetric::Transactions,
        ("ops_rate", Some("read"), _) => DecisionMetric::Lookups,
        ("ops_rate", Some("write"), Some("device")) => DecisionMetric::DurableUpdates,
        _ => return None,
    };
    real_over_simulated(&figure.engine, counted)
}

/// Ends of real over simulated rates of a class of jobs, which contain at least nine in ten of its
/// comparisons; chosen on these.
const fn real_over_simulated(engine: &str, counted: DecisionMetric) -> Option<ValueRange> {
    let (low, high) = match (engine.as_bytes(), counted) {
        (b"lmdb" | b"sqlite", DecisionMetric::Lookups) => (0.68, 1.09),
        (b"rocksdb", DecisionMetric::Lookups) => (0.66, 1.01),
        // SQLite's were 2.1 and 16 times as fast on the real disk.
        (b"lmdb" | b"rocksdb", DecisionMetric::DurableUpdates) => (0.92, 1.52),
        (b"mysql", DecisionMetric::Transactions) => (0.61, 1.25),
        _ => return None,
    };
    Some(ValueRange { low, high })
}

/// Ratio of two simulated rates of one job on two drives, over the real ratio: nine in ten of 42 pairs lie
/// within this factor and its inverse.
pub(crate) const SIMULATED_RATIO: f64 = 1.17;
/// Standard deviation of a run, as a share of its value, above which a header is not believed.
const NOISE_MAX: f64 = 10.0;
/// 97.5th percentile of the normal distribution.
const NORMAL_95: f64 = 1.96;
/// Error of a predicted read, alone, where fewer than three figures are near: contains 8 of 10 published
/// rates, means and medians that no constant was chosen with; chosen on these.
const READS_ALONE: f64 = 0.20;

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
            let error = real_over_simulated(&group.first.engine, counted)?;
            // Repetitions add to the error.
            let (low, high) = repeated.unwrap_or((value.value, value.value));
            Some(ValueRange { low: low * error.low, high: high * error.high })
        }
        Reliability::Predicted(known) if counted == DecisionMetric::ReadTime => {
            let error = match known {
                PredictionError::HostBound => return None,
                PredictionError::HeldOut { worst, figures, .. } if *figures >= FIGURES_MIN => {
                    worst.abs()
                }
                PredictionError::HeldOut { worst, .. } => worst.abs().max(READS_ALONE),
                _ => READS_ALONE,
            };
            let (low, high) = (1.0 / (1.0 + error), 1.0 / (1.0 - error.min(0.9)));
            Some(ValueRange { low: value.value * low, high: value.value * high })
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
/// noise as in a run's header: that of such figures or, without them, of those of the metric that vary most.
pub(crate) fn single_run_factor(noise: &BTreeMap<String, f64>, of: [&str; 3]) -> Option<f64> {
    let own = noise.get(&of.join(" ")).copied();
    let metric = format!(" {}", of[2]);
    let alike = noise.iter().filter(|(name, _)| name.ends_with(&metric)).map(|(_, share)| *share);
    // A run folder may come from any user.
    let sound = |share: &f64| (0.0..=NOISE_MAX).contains(share);
    let share = own.or_else(|| alike.max_by(f64::total_cmp)).filter(sound)?;
    Some((NORMAL_95 * share.ln_1p()).exp())
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
        (Reliability::Simulated, Reliability::Simulated) => {
            real_over_simulated(&of.group.first.engine, counted)?;
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
    let above_zero = base.low > 0.0 && base.high > 0.0;
    above_zero.then(|| ValueRange { low: of.low / base.high, high: of.high / base.low })
}

#[cfg(test)]
mod tests {
    use super::*;

    const VIRTUAL_TIME: &str = include_str!("../../../../docs/virtual-time.csv");
    const ROUND_TRIP: &str = include_str!("../../../../docs/round-trip.csv");
    const VALIDATION: &str = include_str!("../../../../docs/validation.csv");

    /// Real over simulated rates with their classes, from both tables.
    fn comparisons() -> Vec<(String, DecisionMetric, f64)> {
        let counted = |engine: &str, words: &str| match engine {
            "mysql" => DecisionMetric::Transactions,
            _ if words.contains("overwrite") || words.contains("op=write") => {
                DecisionMetric::DurableUpdates
            }
            _ => DecisionMetric::Lookups,
        };
        let virtual_time = VIRTUAL_TIME.lines().skip(1).filter_map(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            let engine = if cells[0] == "mariadb" { "mysql" } else { cells[0] };
            let error: f64 = cells[7].parse().ok()?;
            Some((engine.to_owned(), counted(engine, cells[1]), 1.0 / (1.0 + error)))
        });
        let round_trip = ROUND_TRIP.lines().skip(1).filter_map(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            let paced = cells[2].contains("op=write") && cells[2].contains("write_rate");
            let rate = ["ops_rate", "tx_rate"].contains(&cells[3]) && !paced;
            let error: f64 = cells[6].parse().ok().filter(|_| rate)?;
            Some((cells[1].to_owned(), counted(cells[1], cells[2]), 1.0 / (1.0 + error)))
        });
        virtual_time.chain(round_trip).collect()
    }

    /// A range that does not contain what was measured is worse than none.
    #[test]
    fn the_ranges_of_simulations_contain_nine_of_ten_comparisons_of_each_class() {
        let mut classes: Vec<(ValueRange, Vec<f64>)> = Vec::new();
        for (engine, counted, real) in comparisons() {
            let Some(range) = real_over_simulated(&engine, counted) else { continue };
            match classes.iter_mut().find(|(own, _)| *own == range) {
                Some((_, all)) => all.push(real),
                None => classes.push((range, vec![real])),
            }
        }
        assert_eq!(classes.len(), 4);
        for (range, all) in classes {
            let inside = all.iter().filter(|real| (range.low..=range.high).contains(real)).count();
            assert!(all.len() >= 15 && inside * 10 >= all.len() * 9, "{range:?}: {all:?}");
            // Wider than needed says less than is known.
            let least = all.iter().copied().fold(f64::MAX, f64::min);
            let most = all.iter().copied().fold(0.0, f64::max);
            assert!(range.low > least * 0.97 && range.high < most * 1.03, "{range:?}: {all:?}");
        }
    }

    #[test]
    fn the_range_of_a_simulated_ratio_contains_nine_of_ten_pairs_of_drives() {
        let rows: Vec<Vec<&str>> =
            VIRTUAL_TIME.lines().skip(1).map(|line| line.split(',').collect()).collect();
        let (mut pairs, mut inside) = (0, 0);
        for (at, a) in rows.iter().enumerate() {
            for b in &rows[at + 1..] {
                if (a[0], a[1], a[4]) != (b[0], b[1], b[4]) {
                    continue;
                }
                let error = |row: &[&str]| 1.0 + row[7].parse::<f64>().expect("an error");
                let ratio = error(a) / error(b);
                pairs += 1;
                inside += u32::from((1.0 / SIMULATED_RATIO..=SIMULATED_RATIO).contains(&ratio));
            }
        }
        assert!(pairs > 30 && f64::from(inside) >= 0.9 * f64::from(pairs), "{inside} of {pairs}");
    }

    #[test]
    fn the_range_of_a_predicted_read_contains_four_of_five_held_out_figures() {
        let errors: Vec<f64> = VALIDATION
            .lines()
            .filter(|line| line.contains(",held out,") && line.contains("100% reads"))
            .filter(|line| !line.contains("next to") && !line.contains("sequential"))
            .filter(|line| {
                ["\"mean,", "\"p50,", "\"IOPS,"].iter().any(|metric| line.contains(metric))
            })
            .filter_map(|line| line.split(",held out,").nth(1)?.split(" %").next()?.parse().ok())
            .collect();
        let inside = errors.iter().filter(|error| error.abs() <= READS_ALONE * 100.0).count();
        assert!(errors.len() >= 10 && inside as f64 >= 0.8 * errors.len() as f64, "{errors:?}");
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
        assert!((other.high - 143.0).abs() < 1.0 && (other.low - 70.0).abs() < 1.0, "{other:?}");
        run.header.noise.insert("block read latency_p50".into(), 0.05);
        let own = range(&run).expect("its own");
        assert!((own.high - 110.0).abs() < 0.5, "{own:?}");
    }

    /// A swapped end, or an error with the wrong sign, would put the truth outside.
    #[test]
    fn a_simulation_and_a_prediction_have_the_errors_of_their_class() {
        let study = "schema = 1\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n\
                     [[experiment]]\nname = \"e\"\n[experiment.block]\n";
        let mut run = crate::test_run::run_of(study, units::Nanos(100_000));
        run.trials[0].engine = "rocksdb".into();
        let group = crate::groups(&run).remove(0);
        let value = Estimate::of(100.0, 1);
        let of = |counted, standing: &Reliability| value_range(&group, (&value, counted), standing);
        let simulated = of(DecisionMetric::DurableUpdates, &Reliability::Simulated).unwrap();
        assert!((simulated.low - 92.0).abs() < 1e-9 && (simulated.high - 152.0).abs() < 1e-9);
        assert_eq!(of(DecisionMetric::Updates, &Reliability::Simulated), None);
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
        let rate = DecisionMetric::Lookups;
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
        assert!((range.low - 36.0 / 12.5).abs() < 1e-9 && (range.high - 44.0 / 8.0).abs() < 1e-9);
    }
}
