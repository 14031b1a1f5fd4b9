//! Run-to-run variation of this machine, as measured by `doctor --noise`.
//!
//! Invariants: values from another kernel or CPU are not shown; no value is shown next to predictions.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use analysis::compared::{Comparison, Row};
use serde::{Deserialize, Serialize};
use stack::state_directory;
use study::Source;

/// The contents of the file.
#[derive(Serialize, Deserialize)]
pub struct Noise {
    /// Kernel and processors.
    pub host: String,
    pub run: String,
    /// Directory on the measured disk.
    pub directory: PathBuf,
    /// One entry per class of figures.
    pub figures: Vec<Spread>,
}

/// Run-to-run variation of a figure.
#[derive(Serialize, Deserialize)]
pub struct Spread {
    engine: String,
    op: String,
    metric: String,
    /// Standard deviation of the difference of a pair, percent.
    percent: f64,
}

/// Path of the stored values.
pub fn file(state: &Path) -> PathBuf {
    state.join("noise.json")
}

impl Spread {
    /// The variation of one figure.
    pub fn of(row: &Row) -> Option<Self> {
        Some(Self {
            engine: row.engine.clone(),
            op: row.ops.to_owned(),
            metric: row.metric.to_owned(),
            percent: row.difference?.spread.exp_m1() * 100.0,
        })
    }
}

impl Noise {
    /// A sentence about the `wanted` figures.
    pub fn sentence(&self, wanted: impl Fn(&Spread) -> bool) -> Option<String> {
        let words: Vec<String> = self
            .figures
            .iter()
            .filter(|one| wanted(one))
            .map(|one| format!("{} {} {} {:.1} %", one.engine, one.op, one.metric, one.percent))
            .collect();
        let place = self.directory.display();
        (!words.is_empty()).then(|| {
            format!(
                "run-to-run standard deviation on this machine, under {place}: {}",
                words.join(", ")
            )
        })
    }
}

/// Standard deviation of one run, as a share of its value, by engine, operation and metric; empty if none was
/// measured on this host.
pub fn single_runs() -> BTreeMap<String, f64> {
    let figures = stored().map_or_else(Vec::new, |noise| noise.figures);
    let name = |one: &Spread| format!("{} {} {}", one.engine, one.op, one.metric);
    // A pair's difference varies by the root of two more than a run.
    figures.iter().map(|one| (name(one), one.percent / 100.0 / f64::sqrt(2.0))).collect()
}

/// The stored values, if they were measured on this kernel and CPU.
fn stored() -> Option<Noise> {
    let text = std::fs::read_to_string(file(&state_directory().ok()?)).ok()?;
    let noise: Noise = serde_json::from_str(&text).ok()?;
    (noise.host == runner::host_name()).then_some(noise)
}

/// The stored variation for the classes of figures in a comparison.
pub fn beside(comparison: &Comparison) -> Option<String> {
    let of_hosts = |row: &&Row| !row.sources.contains(&Source::Predicted);
    let alike = |one: &Spread| {
        comparison.rows.iter().filter(of_hosts).any(|row| {
            (row.engine.as_str(), row.ops, row.metric) == (&*one.engine, &*one.op, &*one.metric)
        })
    };
    stored()?.sentence(alike)
}
