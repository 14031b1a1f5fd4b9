//! `crosspoint check`: whether the storage of a directory is fit for a database, in two minutes.

use analysis::fitness::{Fitness, fitness};
use archive::Run;
use runner::Ending;
use serde_json::json;
use stack::StackError;

use crate::cli::CheckArguments;
use crate::exit::{self, ExitCode};
use crate::finish::finish_run;
use crate::quick::quoted;
use crate::running::Running;
use crate::show::Failure;

/// The built-in study that is run.
const STUDY: &str = "check";

pub fn run(arguments: &CheckArguments) -> Result<ExitCode, Failure> {
    let CheckArguments { directory, size, .. } = arguments;
    let place = std::path::absolute(directory).map_err(StackError::io("find", directory))?;
    let emulated = stack::on_a_model(&place);
    if emulated {
        say!("note: {} lies on an attached model; results are labelled emulated", place.display());
    }
    let set = [
        format!("stack.target.emulated={emulated}"),
        format!("stack.target.directory={}", quoted(&place.display().to_string())),
        format!("stack.target.title={}", quoted(&format!("The disk of {}", place.display()))),
        format!("stack.target.size={}", size.exact()),
    ];
    let study = (runner::load_study(STUDY)?, &set[..]);
    let running = Running::start()?;
    let end = running.execute_with(study, (arguments.out.clone(), &[]), arguments.progress)?;
    if !arguments.json {
        return finish_run(&end);
    }
    let checks = fitness(&Run::read(&end.path, engines::list())?);
    let rows = checks
        .iter()
        .map(|one| json!({"check": one.name, "verdict": one.verdict.word(), "text": one.text}));
    let rows: Vec<_> = rows.collect();
    let (directory, run) = (place.to_string_lossy(), end.path.to_string_lossy());
    out!("{:#}", json!({"schema": 1, "directory": directory, "run": run, "checks": rows}));
    let unfit = checks.iter().any(|one| one.verdict == Fitness::Unfit);
    Ok(match end.ending {
        Ending::Interrupted => exit::INTERRUPTED,
        Ending::Failed => exit::TARGET_FAILED,
        Ending::Complete if unfit => exit::OBJECTIVE_MISSED,
        Ending::Complete => exit::OK,
    })
}
