//! One number, with everything that is needed to understand it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::Value;
use study::Source;
use validate::PredictionError;

use crate::doubts::WarningKind;

/// A unit as people write it.
#[must_use]
pub fn unit_text(unit: &str) -> &str {
    if unit == "us" { "\u{b5}s" } else { unit }
}

/// One number, with everything that is needed to understand it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// Name of the study.
    pub study: String,
    /// Name of the stack.
    pub stack: String,
    /// `block`, `lmdb`, `rocksdb`, `sqlite`, `mysql`.
    pub engine: String,
    /// Name of the experiment.
    pub workload: String,
    /// Parameters that every job of this kind has, and other non-default ones; `op` names the operation class
    /// (`all`, `read`, `write`, `load`, `transaction`, SQL statements).
    pub point: BTreeMap<String, Value>,
    /// Parameters at their defaults; empty for published figures and older runs.
    #[serde(serialize_with = "shared")]
    pub defaults: Arc<BTreeMap<String, Value>>,
    /// Hash of the job; `None` for curves, published figures and older runs.
    pub job: Option<String>,
    /// The metric's name.
    pub metric: Cow<'static, str>,
    /// Its unit.
    pub unit: Cow<'static, str>,
    /// The value.
    pub value: f64,
    /// Lower end of the interval.
    pub lo: Option<f64>,
    /// Upper end.
    pub hi: Option<f64>,
    /// Coverage of the interval: `repetitions` (95 %, across runs), `range` (two repetitions), `within_run`
    /// (95 %, this run only); `None` without an interval.
    pub interval: Option<&'static str>,
    /// The value is a lower bound: some operations never completed.
    pub at_least: bool,
    /// Sample size: repetitions; for a single run, operations for percentiles and intervals for rates and
    /// means.
    pub n: u64,
    /// `measured`, `predicted` or `published`.
    pub source: Source,
    /// Name of the run folder.
    pub run: String,
    /// What a prediction is based on, or the source of a published figure.
    pub citation: Option<String>,
    /// Confidence in a prediction: held-out error on similar jobs and metrics, `fit`, or `not validated`.
    pub validation: Option<String>,
    /// The prediction error as a typed value.
    #[serde(skip)]
    pub worth: Option<PredictionError>,
    /// The most severe warning that makes it unreliable, in any repetition.
    #[serde(skip)]
    pub spoiled: Option<WarningKind>,
    /// Largest share of the CPUs that other programs used, in any repetition.
    #[serde(skip)]
    pub others: f64,
    /// Ratio of the faster to the slower end of a trial whose rate changed, at most of any repetition; 1 if
    /// steady.
    #[serde(skip)]
    pub moved: f64,
    /// The trial was stopped before its time or failed.
    pub partial: bool,
}

/// The figures of a group share their defaults: a large run has hundreds of thousands of figures.
fn shared<S: Serializer>(map: &BTreeMap<String, Value>, serializer: S) -> Result<S::Ok, S::Error> {
    map.serialize(serializer)
}
