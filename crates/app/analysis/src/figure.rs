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
    /// What every job of its kind has, and of the other parameters what is not its default; `op` says which
    /// operations (`all`, `read`, `write`, `load`, `transaction`, the statements of SQL).
    pub point: BTreeMap<String, Value>,
    /// The other parameters; empty for published figures, and of runs of before they were kept.
    #[serde(serialize_with = "shared")]
    pub defaults: Arc<BTreeMap<String, Value>>,
    /// Hash of the job that was done; none of what several jobs give (a curve), of published figures, and in
    /// older runs.
    pub job: Option<String>,
    /// What is counted, in the field's words.
    pub metric: Cow<'static, str>,
    /// Its unit.
    pub unit: Cow<'static, str>,
    /// The value.
    pub value: f64,
    /// Lower end of the interval.
    pub lo: Option<f64>,
    /// Upper end.
    pub hi: Option<f64>,
    /// What the interval covers: `repetitions` (95 %, between runs), `range` (the two repetitions),
    /// `within_run` (95 %, of this one run); none without an interval.
    pub interval: Option<&'static str>,
    /// The true value is this or more: operations never ended.
    pub at_least: bool,
    /// Observations: repetitions; of one run its operations for percentiles, its intervals for rates and
    /// means.
    pub n: u64,
    /// `measured`, `predicted` or `published`.
    pub source: Source,
    /// Name of the run folder.
    pub run: String,
    /// What a prediction rests on, or where a published figure stands.
    pub citation: Option<String>,
    /// What a prediction is worth: its held-out error on jobs and metrics like it, `fit`, or `not validated`.
    pub validation: Option<String>,
    /// The same, typed.
    #[serde(skip)]
    pub worth: Option<PredictionError>,
    /// What keeps it from being judged, the worst, in any repetition.
    #[serde(skip)]
    pub spoiled: Option<WarningKind>,
    /// The trial was stopped before its time or failed.
    pub partial: bool,
}

/// The figures of one group share their defaults: a run of many trials has hundreds of thousands of figures.
fn shared<S: Serializer>(map: &BTreeMap<String, Value>, serializer: S) -> Result<S::Ok, S::Error> {
    map.serialize(serializer)
}
