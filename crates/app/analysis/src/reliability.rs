//! How reliable a result is: measured, accurately emulated, simulated, predicted.

use archive::TrialRecord;
use study::Source;
use validate::PredictionError;

use crate::groups::Group;
use crate::metric::DecisionMetric;

/// Reliability of a number.
#[derive(Debug, Clone, PartialEq)]
pub enum Reliability {
    /// Measured on a real target.
    Measured,
    /// Emulation was accurate.
    EmulationAccurate,
    /// Run in virtual time.
    Simulated,
    /// The emulated drive received no requests.
    NoRequests,
    /// Emulation was inaccurate, or its accuracy is unknown; the reason.
    Unreliable(String),
    /// The value of a prediction.
    Predicted(PredictionError),
}

pub(crate) fn standing(group: &Group<'_>, counted: DecisionMetric) -> Reliability {
    match group.first.source {
        Source::Measured | Source::Published => Reliability::Measured,
        Source::Predicted => {
            let metric =
                if counted == DecisionMetric::ReadTime { "latency_p50" } else { "tx_rate" };
            Reliability::Predicted(group.worth(metric).unwrap_or(PredictionError::NotValidated))
        }
        // A simulated drive has no emulation overhead.
        Source::Emulated if group.trials.iter().all(|trial| trial.result.is_simulated()) => {
            Reliability::Simulated
        }
        Source::Emulated => {
            let asked = |trial: &&TrialRecord| {
                trial.result.served.is_some_and(|served| served.requests() > 0)
            };
            match group.trials.iter().find_map(|trial| not_as_asked(trial)) {
                Some(why) => Reliability::Unreliable(why),
                None if group.trials.iter().all(asked) => Reliability::EmulationAccurate,
                None => Reliability::NoRequests,
            }
        }
    }
}

/// Returns how far delivered times deviate from the model, or that they are unknown; `None` if emulation was
/// accurate.
fn not_as_asked(trial: &TrialRecord) -> Option<String> {
    match &trial.result.served {
        None => Some("the delivered times are missing".to_owned()),
        Some(served) if served.is_faithful() => None,
        Some(served) => Some(match served.excess() {
            // One operation class can be far off and still be a small share.
            Some((off, name)) if off.abs() > served.starved_share => format!(
                "{name} {}, requests overall {}",
                off_words(off),
                stats::longer_words(served.longer())
            ),
            _ => served.starved_words(),
        }),
    }
}

/// `took 47 % longer than modelled`.
fn off_words(off: f64) -> String {
    match off {
        off if off >= 9.0 => format!("took {:.0} times as long as modelled", 1.0 + off),
        off if off >= 1.0 => format!("took {:.1} times as long as modelled", 1.0 + off),
        off if off >= 0.0 => format!("took {:.0} % longer than modelled", off * 100.0),
        off => format!("took {:.0} % less time than modelled", -off * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_off_a_drive_was_reads_as_time() {
        assert_eq!(off_words(0.47), "took 47 % longer than modelled");
        assert_eq!(off_words(227.0), "took 228 times as long as modelled");
        assert_eq!(off_words(-0.2), "took 20 % less time than modelled");
    }
}
