//! `doctor --noise`: this machine beside itself, kept for `compare`.
//!
//! Invariant: what was found on another kernel or other processors is not shown. What it is not: a
//! correction; verdicts rest on the repetitions that they compare.

use std::path::{Path, PathBuf};

use analysis::compared::{Comparison, Question, stacks};
use archive::Run;
use serde::{Deserialize, Serialize};
use stack::{StackError, state_directory};

use crate::cli::ProgressKind;
use crate::compare;
use crate::exit::ExitCode;
use crate::result_file::{self, There};
use crate::running::Running;
use crate::show::Failure;
use crate::{exit, progress};

/// The study that ships.
const STUDY: &str = "noise";

/// What is kept.
#[derive(Serialize, Deserialize)]
struct Noise {
    host: String,
    run: String,
    figures: Vec<Spread>,
}

/// How far two runs of the same lie apart.
#[derive(Serialize, Deserialize)]
struct Spread {
    engine: String,
    op: String,
    metric: String,
    /// Standard deviation of the difference of a pair, %.
    percent: f64,
}

fn file(state: &Path) -> PathBuf {
    state.join("noise.json")
}

/// Runs the study in `directory`, prints what it says and keeps it.
///
/// # Errors
/// Where it cannot run.
pub fn run(directory: &Path, json: bool) -> Result<ExitCode, Failure> {
    let found = runner::load_study(STUDY)?;
    let place = std::path::absolute(directory).map_err(StackError::io("find", directory))?;
    let set: Vec<String> = ["once", "again"]
        .iter()
        .map(|stack| format!("stack.{stack}.directory={}", place.display()))
        .collect();
    let text = study::apply_overrides(&found.text, &set)
        .map_err(|error| Failure::Runner(Box::new(error.into()), Some(found.clone())))?;
    let running = Running::start()?;
    let options = running.options(None, &[]);
    let mut watcher = progress::watcher(ProgressKind::Auto);
    let end = runner::execute(&text, &options, watcher.as_mut());
    drop(watcher);
    running.undo();
    let end = end?;
    if end.ending == runner::Ending::Interrupted {
        return Ok(exit::INTERRUPTED);
    }
    let run = Run::read(&end.path)?;
    let question = Question::default();
    let comparison = match stacks(&run, ["once", "again"], &question) {
        Ok(comparison) => comparison,
        Err(refused) => return Ok(compare::refuse(&refused)),
    };
    let noise = Noise {
        host: runner::host_name(),
        run: run.name,
        figures: comparison.rows.iter().filter_map(spread_of).collect(),
    };
    let text = serde_json::to_string_pretty(&noise).unwrap_or_default() + "\n";
    result_file::write(&text, &file(&state_directory()?), There::Any)?;
    compare::print(&comparison, json);
    // That two runs of the same cannot be told apart is no failure.
    Ok(exit::OK)
}

fn spread_of(row: &analysis::compared::Row) -> Option<Spread> {
    Some(Spread {
        engine: row.engine.clone(),
        op: row.ops.to_owned(),
        metric: row.metric.to_owned(),
        percent: row.difference?.spread.exp_m1() * 100.0,
    })
}

/// What is known of this machine beside itself, of the kinds of figures that a comparison has.
pub fn beside(comparison: &Comparison) -> Option<String> {
    let text = std::fs::read_to_string(file(&state_directory().ok()?)).ok()?;
    let noise: Noise = serde_json::from_str(&text).ok()?;
    if noise.host != runner::host_name() {
        return None;
    }
    let alike = |one: &&Spread| {
        comparison.rows.iter().any(|row| {
            (row.engine.as_str(), row.ops, row.metric) == (&*one.engine, &*one.op, &*one.metric)
        })
    };
    let words: Vec<String> = noise
        .figures
        .iter()
        .filter(alike)
        .map(|one| format!("{} {} {} {:.1} %", one.engine, one.op, one.metric, one.percent))
        .collect();
    (!words.is_empty()).then(|| {
        format!(
            "two runs of the same on this machine lie apart by ({}): {}",
            noise.run,
            words.join(", ")
        )
    })
}
