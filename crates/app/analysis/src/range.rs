//! The range in which a value lies on real storage, and that of a ratio of two values.
//!
//! A measurement has the range of its repetitions. A simulation has the errors of its class, from comparisons
//! of simulations with real drives (docs/round-trip.csv, docs/virtual-time.csv); a predicted read those of
//! held-out published figures (docs/validation.csv). A range lies above or below its value where the errors
//! of its class have one sign. Single measurements have the
//! variation of this host if it was measured. Invariant: the error of a drive's profile
//! is not part of the range of a simulation: profiles differ too much for one number.

use stats::estimate::Estimate;
use study::Source;
use validate::{FIGURES_MIN, PredictionError};

use crate::groups::Group;
use crate::metric::DecisionMetric;
use crate::reliability::Reliability;

/// A range, and what it follows from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ValueRange {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Source.
    pub basis: RangeBasis,
}

/// What a range follows from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangeBasis {
    /// 95 % confidence interval of repetitions.
    Repetitions,
    /// 95 % range of single runs on this host, whose variation was measured before.
    Noise,
    /// Errors of simulations of such jobs.
    Simulation,
    /// Errors of predictions of held-out figures.
    HeldOut,
}

/// Real over simulated rates of a class of jobs: the ends contain at least 90 % of its comparisons.
#[derive(Debug, Clone, Copy)]
struct SimulationError {
    low: f64,
    high: f64,
}

/// Real over simulated rates.
const fn simulation_error(engine: &str, counted: DecisionMetric) -> Option<SimulationError> {
    let (low, high) = match (engine.as_bytes(), counted) {
        (b"lmdb" | b"sqlite", DecisionMetric::Lookups) => (0.68, 1.09),
        (b"rocksdb", DecisionMetric::Lookups) => (0.66, 1.01),
        // SQLite's updates nearly stalled in one simulation, on one drive.
        (b"lmdb" | b"rocksdb" | b"sqlite", DecisionMetric::DurableUpdates) => (0.92, 1.52),
        (b"mysql", DecisionMetric::Transactions) => (0.64, 1.25),
        _ => return None,
    };
    Some(SimulationError { low, high })
}

/// Ratio of two simulated rates of one job on two drives, over the real ratio: nine in ten of 42 pairs lie
/// within this factor and its inverse.
const SIMULATED_RATIO: f64 = 1.17;
/// 97.5th percentile of the normal distribution.
const NORMAL_95: f64 = 1.96;
/// Error of a predicted read, alone, where fewer than three figures are near: contains at least 8 of 10
/// held-out rates, means and medians.
const READS_ALONE: f64 = 0.20;

/// The range of the value of a group.
pub(crate) fn value_range(
    group: &Group<'_>,
    (value, counted): (&Estimate, DecisionMetric),
    standing: &Reliability,
) -> Option<ValueRange> {
    let model = match standing {
        Reliability::Simulated => {
            let error = simulation_error(&group.first.engine, counted)?;
            let range = (value.value * error.low, value.value * error.high);
            Some((range, RangeBasis::Simulation))
        }
        Reliability::Predicted(known) if counted == DecisionMetric::ReadTime => {
            let error = match known {
                PredictionError::HeldOut { worst, figures, .. } if *figures >= FIGURES_MIN => {
                    worst.abs().min(0.9)
                }
                PredictionError::HostBound => return None,
                _ => READS_ALONE,
            };
            let range = (value.value / (1.0 + error), value.value / (1.0 - error));
            Some((range, RangeBasis::HeldOut))
        }
        _ => None,
    };
    let repeated = value.between_repetitions();
    match (model, repeated) {
        (Some(((low, high), basis)), repeated) => {
            // Repetitions add to the model's error.
            let (least, most) = repeated.unwrap_or((value.value, value.value));
            let (least, most) = (least / value.value, most / value.value);
            Some(ValueRange { low: low * least, high: high * most, basis })
        }
        (None, Some((low, high))) if group.first.source != Source::Predicted => {
            Some(ValueRange { low, high, basis: RangeBasis::Repetitions })
        }
        _ => {
            let (low, high) = single_run(group, (value, counted))?;
            Some(ValueRange { low, high, basis: RangeBasis::Noise })
        }
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
    let own = noise.get(&format!("{} {} {metric}", group.first.engine, counted.ops().word()));
    let alike = noise.iter().filter(|(name, _)| name.ends_with(metric)).map(|(_, share)| share);
    let share = own.or_else(|| alike.max_by(|a, b| a.total_cmp(b)))?;
    let factor = (NORMAL_95 * share.ln_1p()).exp();
    let measured = group.first.source == Source::Measured && !value.at_least;
    measured.then(|| (value.value / factor, value.value * factor))
}

/// One side of a ratio.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RatioSide<'a> {
    pub value: &'a Estimate,
    pub range: Option<ValueRange>,
    pub standing: &'a Reliability,
}

/// The range of `of` over `base`, inverted for times, so that more is better; `None` if neither side has a
/// range. A side without one counts as exact, so the range is then too narrow.
pub(crate) fn ratio_range(
    (of, base): (RatioSide<'_>, RatioSide<'_>),
    ratio: &Estimate,
    counted: DecisionMetric,
) -> Option<ValueRange> {
    if matches!((of.standing, base.standing), (Reliability::Simulated, Reliability::Simulated)) {
        // Errors that both simulations share cancel.
        let (low, high) = ratio.between_repetitions().unwrap_or((ratio.value, ratio.value));
        let (low, high) = (low / SIMULATED_RATIO, high * SIMULATED_RATIO);
        return Some(ValueRange { low, high, basis: RangeBasis::Simulation });
    }
    let measured = |side: &RatioSide<'_>| matches!(side.standing, Reliability::Measured);
    if let Some((low, high)) =
        ratio.between_repetitions().filter(|_| measured(&of) && measured(&base))
    {
        return Some(ValueRange { low, high, basis: RangeBasis::Repetitions });
    }
    let basis = of.range.or(base.range)?.basis;
    let ends = |side: RatioSide<'_>| {
        let exact = (side.value.value, side.value.value);
        side.range.map_or(exact, |range| (range.low, range.high))
    };
    let (of, base) =
        if counted.is_rate() { (ends(of), ends(base)) } else { (ends(base), ends(of)) };
    (base.0 > 0.0).then(|| ValueRange { low: of.0 / base.1, high: of.1 / base.0, basis })
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
    fn the_ranges_of_simulations_contain_nine_of_ten_comparisons() {
        let all = comparisons();
        assert!(all.len() > 80, "{}", all.len());
        let inside = all.iter().filter(|(engine, counted, real)| {
            simulation_error(engine, *counted)
                .is_some_and(|error| (error.low..=error.high).contains(real))
        });
        let share = inside.count() as f64 / all.len() as f64;
        assert!((0.90..0.99).contains(&share), "{share:.3} of {}", all.len());
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
        run.header.noise =
            [("lmdb read latency_p50".into(), 0.2), ("block read rate".into(), 0.9)].into();
        let other = range(&run).expect("the largest of this metric");
        assert!((other.high - 143.0).abs() < 1.0 && (other.low - 70.0).abs() < 1.0, "{other:?}");
        run.header.noise.insert("block read latency_p50".into(), 0.05);
        let own = range(&run).expect("its own");
        assert!((own.high - 110.0).abs() < 0.5 && own.basis == RangeBasis::Noise, "{own:?}");
    }

    #[test]
    fn a_faster_drive_is_a_higher_ratio_also_for_times() {
        let (fast, slow) = (Estimate::of(10.0, 1), Estimate::of(40.0, 1));
        let known = Reliability::Measured;
        let side = |value, low, high| RatioSide {
            value,
            range: Some(ValueRange { low, high, basis: RangeBasis::HeldOut }),
            standing: &known,
        };
        let sides = (side(&fast, 8.0, 12.5), side(&slow, 36.0, 44.0));
        let range = ratio_range(sides, &Estimate::of(4.0, 1), DecisionMetric::ReadTime).unwrap();
        assert!((range.low - 36.0 / 12.5).abs() < 1e-9 && (range.high - 44.0 / 8.0).abs() < 1e-9);
    }
}
