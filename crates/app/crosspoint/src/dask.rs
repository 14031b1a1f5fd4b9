//! `run --dask`: the parts of a study on a Dask cluster, by the Python package.
//!
//! Invariant: the Python side finds, runs and merges the parts; here are only the study and the report.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use runner::{RunEnd, StudyText};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use crate::cli::RunArguments;
use crate::exit::{self, ExitCode};
use crate::running::Running;
use crate::show::Failure;
use crate::workers::{end_of, free_folder};

/// The interpreter, unless the environment names another one.
const PYTHON: &str = "python3";
/// Environment variable that names it.
const PYTHON_VARIABLE: &str = "CROSSPOINT_PYTHON";
/// Environment variable that keeps Python from importing what lies in the current directory (3.11).
const SAFE_PATH: &str = "PYTHONSAFEPATH";
/// Polling interval for the end of the Python side.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Runs a study on the cluster of `scheduler`; returns the merged run, or the exit code if it is not
/// complete.
pub fn run(
    arguments: &RunArguments,
    text: &StudyText,
    scheduler: &str,
) -> Result<Result<RunEnd, ExitCode>, Failure> {
    let python = std::env::var(PYTHON_VARIABLE).unwrap_or_else(|_| PYTHON.to_owned());
    let failed = |error| Failure::Output(python.clone(), error);
    let mut there = Command::new(&python);
    // Not from the current directory.
    there.env(SAFE_PATH, "1").args(["-c", "import crosspoint.cluster, distributed"]);
    if !there.stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        say!(
            "error: {python} has no packages crosspoint and distributed\n  \
             help: pip install './python[dask]' in a clone of Crosspoint; another interpreter: \
             {PYTHON_VARIABLE}=..."
        );
        return Ok(Err(exit::ENVIRONMENT));
    }
    let name = study::parse(&text.text, engines::list())
        .map_err(|error| Failure::Runner(Box::new(error.into()), Some(text.clone())))?
        .name;
    let out = free_folder(arguments, &name)?;
    let running = Running::start()?;
    let mut command = Command::new(&python);
    command.env(SAFE_PATH, "1").args(["-m", "crosspoint", scheduler, "--out"]).arg(&out);
    command.args(arguments.i_will_lose_data.iter().flat_map(|one| ["--i-will-lose-data", one]));
    command.env("CROSSPOINT", std::env::current_exe().map_err(failed)?).stdin(Stdio::piped());
    // A terminal's Ctrl-C is for this program, which asks it to stop.
    command.process_group(0);
    // SAFETY: one system call.
    unsafe {
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::TERM))?));
    }
    let mut child = command.spawn().map_err(failed)?;
    if let Some(mut input) = child.stdin.take() {
        // One that has ended says why by its exit code.
        let _ = input.write_all(text.text.as_bytes());
    }
    let mut asked = false;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status;
        }
        if running.stopping() && !std::mem::replace(&mut asked, true) {
            let process = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            // It has not been waited for, so the number is still its own.
            process.map(|process| kill_process(process, Signal::INT));
        }
        std::thread::sleep(POLL_INTERVAL);
    };
    running.undo();
    if status.success() {
        return Ok(Ok(end_of(&out)?));
    }
    if running.stopping() {
        say!(
            "partial: finished parts are kept; continue with the same command and --out {}",
            out.display()
        );
        return Ok(Err(exit::INTERRUPTED));
    }
    Ok(Err(exit::of_number(status.code().unwrap_or(1))))
}
