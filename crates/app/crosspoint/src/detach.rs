//! `run --detach`: the run as a separate process that survives the terminal.
//!
//! Invariants: errors in the command line, study or host are reported here, with their exit code; output of
//! the run goes to a file next to its folder.

use std::fs::File;
use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use archive::output::{OutputError, make_directory, new_file};
use runner::StudyText;

use crate::cli::RunArguments;
use crate::exit::{self, ExitCode};
use crate::show::Failure;
use crate::watch;

/// Polling interval while a run starts.
const LOOK: Duration = Duration::from_millis(50);
/// Time limit for the first sign of progress.
const BEGINS_IN: Duration = Duration::from_secs(20);

/// Starts the run of `arguments`; `text` is its study, unless a run is resumed.
pub fn run(arguments: &RunArguments, text: Option<&StudyText>) -> Result<ExitCode, Failure> {
    let folder = match (&arguments.resume, text) {
        // Canonical, because `.` has no parent component.
        (Some(run), _) => match run.canonicalize() {
            Ok(folder) if folder.join("run.json").exists() => folder,
            _ => {
                say!(
                    "error: {} is not a run folder\n  help: crosspoint run --resume RUN",
                    run.display()
                );
                return Ok(exit::USAGE);
            }
        },
        (None, Some(text)) => {
            let study = study::parse(&text.text, engines::list())
                .map_err(|error| Failure::Runner(Box::new(error.into()), Some(text.clone())))?;
            arguments.out.clone().unwrap_or_else(|| runner::default_folder(&study.name))
        }
        (None, None) => PathBuf::new(),
    };
    let failed = |error| Failure::Output(folder.display().to_string(), error);
    let (log, file) = new_log(&folder)?;
    let mut child = start(&folder, arguments.resume.is_some(), &file).map_err(failed)?;
    let process = child.id();
    let until = Instant::now() + BEGINS_IN;
    let told = loop {
        // Another run may be active there; this one is about to report that.
        match follow::ask(&folder) {
            Ok(Some(live)) if live.process == process => break true,
            _ => {}
        }
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok(ended(&log, status));
        }
        // The file system has no sockets, or checking a stack takes long.
        if Instant::now() > until {
            break false;
        }
        std::thread::sleep(LOOK);
    };
    if told && std::io::stdout().is_terminal() && std::io::stdin().is_terminal() {
        return watch::started(&folder);
    }
    out!("run:   {}", folder.display());
    out!("log:   {}", log.display());
    if told {
        out!("watch: crosspoint watch {}", folder.display());
    } else {
        out!("watch: not available yet or on this file system; see its log");
    }
    Ok(exit::OK)
}

/// A new log file next to the folder; existing files are not overwritten.
fn new_log(folder: &Path) -> Result<(PathBuf, File), OutputError> {
    if let Some(parent) = folder.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        make_directory(parent)?;
    }
    let name = folder.file_name().unwrap_or_default();
    for number in 1_u32..1000 {
        let mut own = name.to_owned();
        own.push(if number == 1 { ".log".to_owned() } else { format!("-{number}.log") });
        let log = folder.with_file_name(own);
        match new_file(&log) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(OutputError::Io { path: log, source }),
            Ok(file) => return Ok((log, file)),
        }
    }
    let source = std::io::ErrorKind::AlreadyExists.into();
    Err(OutputError::Io { path: folder.with_extension("log"), source })
}

/// Starts this program without `--detach`, in its own process group, with output to the log.
fn start(folder: &Path, resumed: bool, log: &File) -> std::io::Result<Child> {
    let given: Vec<_> = std::env::args_os().skip(1).collect();
    // Arguments after `--` are not options.
    let end = given.iter().position(|one| one == "--").unwrap_or(given.len());
    let (options, rest) = given.split_at(end);
    let mut arguments: Vec<_> = options.iter().filter(|one| *one != "--detach").cloned().collect();
    if !resumed && !arguments.iter().any(|one| named(one, "--out")) {
        arguments.extend(["--out".into(), folder.as_os_str().to_owned()]);
    }
    if !arguments.iter().any(|one| named(one, "--progress")) {
        arguments.extend(["--progress".into(), "plain".into()]);
    }
    arguments.extend(rest.iter().cloned());
    Command::new(std::env::current_exe()?)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log.try_clone()?)
        // A closing terminal kills its foreground process group.
        .process_group(0)
        .spawn()
}

/// Matches `--out X` and `--out=X`.
fn named(argument: &std::ffi::OsStr, name: &str) -> bool {
    let text = argument.to_string_lossy();
    text == name || text.strip_prefix(name).is_some_and(|rest| rest.starts_with('='))
}

/// The run ended early: prints its output and returns its exit code.
fn ended(log: &Path, status: ExitStatus) -> ExitCode {
    let said = std::fs::read_to_string(log).unwrap_or_default();
    match said.trim_end() {
        "" => say!(
            "error: it ended at once ({status}) and {} is empty; is the disk full?",
            log.display()
        ),
        said => say!("{said}"),
    }
    exit::of_number(status.code().unwrap_or(1))
}
