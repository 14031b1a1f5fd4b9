//! Expected error of a prediction: the model's error on held-out published figures, at similar jobs.
//!
//! Similar means: the same metric, the same kind (reads, writes, or a mix whose read share differs by at most
//! a fifth), order, state of the device, durability and host path; sizes within a factor of two, queue depths
//! within four (of a schedule: its rate within two), background writes within two. Fitted figures show that
//! there was a fit, not how good it is. Invariant: one definition, for terminal, page, JSON and documents.

use device::{Acceptance, Condition, Durable, Evidence, JobPattern};
use serde::{Deserialize, Serialize};
use units::Share;

use sim::HostModel;

/// The properties of a block job that decide which published figures apply to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobShape {
    /// Name of the host path.
    pub host: String,
    /// Reads in percent of all operations.
    pub read_percent: f64,
    /// Offsets one after the other.
    pub sequential: bool,
    /// Bytes per operation.
    pub block_bytes: u64,
    /// Operations in flight, of all threads together.
    pub in_flight: u64,
    /// The device was not written before, or only sequentially.
    pub fresh: bool,
    /// Kind of durability in a word: a flush after each write, or FUA writes; empty for neither.
    pub durable: String,
    /// Writes per second that continue next to it and are not counted; the largest number: unthrottled.
    pub background_writes: u64,
    /// Operations per second by a schedule; 0: a closed loop.
    #[serde(default)]
    pub offered: u64,
}

impl JobShape {
    /// The conditions of an acceptance job.
    #[must_use]
    pub fn of(job: &Acceptance) -> Self {
        Self {
            host: HostModel::kin(&job.host).to_owned(),
            read_percent: job.read_share.percent(),
            sequential: job.pattern == JobPattern::Sequential,
            block_bytes: job.block_size.get(),
            in_flight: u64::from(job.threads) * u64::from(job.queue_depth),
            fresh: job.condition != Condition::Steady,
            durable: match job.durable {
                None => "",
                Some(Durable::Flush) => "flush",
                Some(Durable::Dsync) => "dsync",
            }
            .to_owned(),
            background_writes: match (job.beside_writes, job.beside_depth) {
                (Some(rate), _) => rate.get(),
                (None, Some(_)) => u64::MAX,
                (None, None) => 0,
            },
            offered: job.rate.map_or(0, units::Rate::get),
        }
    }

    /// Whether a figure of `self` applies to `other`.
    #[must_use]
    pub fn is_near(&self, other: &Self) -> bool {
        const MIX_APART: f64 = 20.0;
        let pure = |percent: f64| percent <= 0.0 || percent >= Share::ALL.percent();
        let (a, b) = (self.read_percent, other.read_percent);
        let kind = if pure(a) || pure(b) { a == b } else { (a - b).abs() <= MIX_APART };
        let within = |a: u64, b: u64, times: u64| {
            a <= b.saturating_mul(times) && b <= a.saturating_mul(times)
        };
        // In an open loop the number in flight follows from the rate.
        let load = match (self.offered, other.offered) {
            (0, 0) => within(self.in_flight, other.in_flight, 4),
            (a, b) => within(a, b, 2),
        };
        kind && self.host == other.host
            && self.sequential == other.sequential
            && self.fresh == other.fresh
            && self.durable == other.durable
            && within(self.block_bytes, other.block_bytes, 2)
            && load
            && within(self.background_writes, other.background_writes, 2)
    }
}

/// A published figure with its prediction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckedFigure {
    /// The job.
    pub shape: JobShape,
    /// `IOPS`, `MB/s`, `mean`, `p99` and so on.
    pub metric: String,
    /// Role of the figure for the model.
    pub evidence: Evidence,
    /// `predicted / published - 1`.
    pub error: f64,
}

/// Expected error of a prediction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PredictionError {
    /// The model was tested at such jobs against held-out figures.
    HeldOut {
        /// Median absolute error.
        median: f64,
        /// The error with the largest size, signed.
        worst: f64,
        /// Figures.
        figures: u32,
        /// All errors have the sign of the worst.
        one_sided: bool,
    },
    /// Constants were chosen with figures of such jobs; how far off it is elsewhere is not known.
    Fit,
    /// The submitting thread is the bottleneck: the number says nothing about the device.
    HostBound,
    /// Nothing is published about such jobs.
    NotValidated,
}

/// Held-out figures required to take the worst of them as the expected error.
pub const FIGURES_MIN: u32 = 3;
/// Size from which on a one-sided error is reported as a bias.
const KNOWN_OFF: f64 = 0.20;

impl PredictionError {
    /// The expected error of `metric` at `shape`, from `figures`.
    #[must_use]
    pub fn of(figures: &[CheckedFigure], shape: &JobShape, metric: &str) -> Self {
        let near = || figures.iter().filter(|one| one.metric == metric && one.shape.is_near(shape));
        let mut errors: Vec<f64> = near()
            .filter(|one| one.evidence == Evidence::HeldOut)
            .map(|one| one.error)
            .filter(|error| error.is_finite())
            .collect();
        errors.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
        let Some(&worst) = errors.last() else {
            let seen = near().next().is_some();
            return if seen { Self::Fit } else { Self::NotValidated };
        };
        Self::HeldOut {
            median: median_absolute(&errors).unwrap_or_default(),
            worst,
            figures: errors.len() as u32,
            one_sided: errors.iter().all(|error| (*error < 0.0) == (worst < 0.0)),
        }
    }

    /// The error to expect, as a share; `None` if there are too few figures.
    #[must_use]
    pub fn expected_error(&self) -> Option<f64> {
        match *self {
            Self::HeldOut { worst, figures, .. } if figures >= FIGURES_MIN => Some(worst.abs()),
            _ => None,
        }
    }

    /// The full text.
    #[must_use]
    pub fn text(&self) -> String {
        match *self {
            Self::HeldOut { median, worst, figures, .. } => {
                let (word, worst) = (plural(figures), worst * 100.0);
                let median = median * 100.0;
                match figures {
                    1 => format!("held-out error {worst:+.0} % on 1 published figure of such jobs"),
                    _ => format!(
                        "held-out error: median {median:.0} %, worst {worst:+.0} % on {figures} published \
                         {word} of such jobs"
                    ),
                }
            }
            Self::Fit => {
                "fit: constants were fitted to such jobs; error elsewhere unknown".to_owned()
            }
            Self::HostBound => {
                "host-bound: limited by the submitting thread, not the device".to_owned()
            }
            Self::NotValidated => {
                "not validated: no published figure of this metric for such jobs on this I/O path"
                    .to_owned()
            }
        }
    }

    /// A short text.
    #[must_use]
    pub fn brief(&self) -> String {
        match *self {
            Self::HeldOut { median, worst, one_sided: true, .. } if median >= KNOWN_OFF => {
                let word = if worst < 0.0 { "low" } else { "high" };
                format!("known to be {:.0} % {word}", median * 100.0)
            }
            Self::HeldOut { median, figures, .. } => {
                format!("held-out error {:.0} % on {figures} {}", median * 100.0, plural(figures))
            }
            Self::Fit => "fit".to_owned(),
            Self::HostBound => "host-bound".to_owned(),
            Self::NotValidated => "not validated".to_owned(),
        }
    }
}

const fn plural(figures: u32) -> &'static str {
    if figures == 1 { "figure" } else { "figures" }
}

/// Median of absolute values.
#[must_use]
pub fn median_absolute(errors: &[f64]) -> Option<f64> {
    let mut sizes: Vec<f64> = errors.iter().map(|error| error.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let last = sizes.len().checked_sub(1)?;
    Some((sizes[last / 2] + sizes[sizes.len() / 2]) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(block_bytes: u64, read_percent: f64) -> JobShape {
        JobShape {
            host: "psync".into(),
            read_percent,
            sequential: false,
            block_bytes,
            in_flight: 1,
            fresh: false,
            durable: String::new(),
            background_writes: 0,
            offered: 0,
        }
    }

    fn figure(shape: JobShape, metric: &str, evidence: Evidence, error: f64) -> CheckedFigure {
        CheckedFigure { shape, metric: metric.into(), evidence, error }
    }

    /// Agreement with fitted figures must not count as a small prediction error.
    #[test]
    fn only_figures_that_no_constant_has_seen_give_an_error() {
        let at = shape(16384, 100.0);
        let fitted = figure(at.clone(), "mean", Evidence::Fitted, 0.001);
        let held = figure(at.clone(), "mean", Evidence::HeldOut, -0.364);
        assert_eq!(
            PredictionError::of(std::slice::from_ref(&fitted), &at, "mean"),
            PredictionError::Fit
        );
        let worth = PredictionError::of(&[fitted, held.clone()], &at, "mean");
        assert_eq!(worth.brief(), "known to be 36 % low");
        assert_eq!(worth.expected_error(), None, "one figure is no error to expect");
        assert!(worth.text().contains("-36 % on 1 published figure"));
        let others = [0.1, -0.05].map(|error| figure(at.clone(), "mean", Evidence::HeldOut, error));
        let all: Vec<CheckedFigure> = others.into_iter().chain([held]).collect();
        let worth = PredictionError::of(&all, &at, "mean");
        assert_eq!(worth.brief(), "held-out error 10 % on 3 figures");
        assert_eq!(worth.expected_error(), Some(0.364));
    }

    #[test]
    fn errors_are_not_carried_to_other_jobs_and_metrics() {
        let at = shape(4096, 100.0);
        let known = [figure(at.clone(), "mean", Evidence::HeldOut, 0.02)];
        let of = |shape: &JobShape, metric| PredictionError::of(&known, shape, metric);
        assert_eq!(of(&at, "p99"), PredictionError::NotValidated);
        assert_eq!(of(&shape(16384, 100.0), "mean"), PredictionError::NotValidated);
        assert_eq!(of(&shape(4096, 70.0), "mean"), PredictionError::NotValidated);
        let other = JobShape { host: "io_uring".into(), ..at.clone() };
        assert_eq!(of(&other, "mean"), PredictionError::NotValidated);
        let deeper = JobShape { in_flight: 8, ..at.clone() };
        assert_eq!(of(&deeper, "mean"), PredictionError::NotValidated);
        let busy = JobShape { background_writes: 1000, ..at.clone() };
        assert_eq!(of(&busy, "mean"), PredictionError::NotValidated);
        assert_ne!(
            of(&JobShape { in_flight: 4, block_bytes: 8192, ..at }, "mean"),
            PredictionError::NotValidated
        );
    }
}
