//! `doctor --noise`: run-to-run variation of this machine, stored for `compare`.
//!
//! Invariant: values from another kernel or CPU are not shown.

use std::path::Path;

use analysis::compared::{Question, stacks};
use archive::Run;
use stack::{StackError, state_directory};

use crate::cli::ProgressKind;
use crate::compare;
use crate::exit;
use crate::exit::ExitCode;
use crate::noise_file::{Noise, Spread, file};
use crate::result_file::Output;
use crate::running::Running;
use crate::show::Failure;
use crate::words::plain;

/// The built-in study that is run.
const STUDY: &str = "noise";

/// Runs the study in `directory`, prints and stores the result.
pub fn run(directory: &Path, json: bool) -> Result<ExitCode, Failure> {
    let place = std::path::absolute(directory).map_err(StackError::io("find", directory))?;
    let set: Vec<String> = ["once", "again"]
        .iter()
        .map(|stack| format!("stack.{stack}.directory={}", place.display()))
        .collect();
    let study = (runner::load_study(STUDY)?, &set[..]);
    let end = Running::start()?.execute_with(study, (None, &[]), ProgressKind::Auto)?;
    if end.ending == runner::Ending::Interrupted {
        return Ok(exit::INTERRUPTED);
    }
    let run = Run::read(&end.path, engines::list())?;
    let question = Question::default();
    let comparison = match stacks(&run, ["once", "again"], &question) {
        Ok(comparison) => comparison,
        Err(refused) => return Ok(compare::refuse(&refused)),
    };
    let noise = Noise {
        host: runner::host_name(),
        run: run.name,
        directory: place,
        figures: comparison.rows.iter().filter_map(Spread::of).collect(),
    };
    let text = serde_json::to_string_pretty(&noise).unwrap_or_default() + "\n";
    Output::own(&file(&state_directory()?)).write(text.as_bytes())?;
    if let Some(sentence) = noise.sentence(|_| true).filter(|_| !json) {
        out!("{}", plain(&sentence));
    }
    compare::print(&comparison, json);
    // Identical runs that are inconclusive are not a failure.
    Ok(exit::OK)
}
