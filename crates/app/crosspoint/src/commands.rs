//! The commands.
//!
//! Invariant: a command prints its result to stdout once, at the end.

use std::path::{Path, PathBuf};

use archive::Run;
use archive::output::{SealStyle, make_directory, seal};
use clap::CommandFactory;
use follow::Telling;
use runner::{Options, Status, StudyText};
use serde_json::json;
use stack::state_directory;

use crate::cli::{Arguments, Format, ReportFormat, RunArguments, Verb};
use crate::exit::{self, ExitCode};
use crate::finish::finish_run;
use crate::result_file::Output;
use crate::running::Running;
use crate::show::Failure;
use crate::words::plain;
use crate::{
    act_test, attach, bundle, calibrate, dask, device, import, planning, power_cuts, progress,
    quick, result_file, workers,
};

pub fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    match arguments.verb {
        Verb::Run(arguments) => run_study(&arguments),
        Verb::Advise(arguments) => crate::advise::run(&arguments),
        Verb::Check(arguments) => crate::check::run(&arguments),
        Verb::Serve { folder, port } => crate::library::run(&folder, port),
        Verb::Watch { run } => crate::watch::run(run.as_deref()),
        Verb::Studies { json } => crate::studies::list(json),
        Verb::Plan { study, set, json } => planning::plan(&study_text(&study, &set, None)?, json),
        Verb::Merge { out, parts } => merge(&out, &parts),
        Verb::Report { runs, format, output, force, skip_damaged } => {
            let usual = if format == ReportFormat::Html { "report.html" } else { "-" };
            let output = output.unwrap_or_else(|| usual.into());
            write_report((&runs, skip_damaged), format, &Output::named(&output, force))
        }
        Verb::Compare(arguments) => crate::compare::run(&arguments),
        Verb::Bundle { run, check: true, .. } => bundle::check(&run),
        Verb::Bundle { run, output, force, .. } => bundle::make(&run, output.as_deref(), force),
        Verb::Figures { runs, of, format, output, force, json, skip_damaged } => {
            let format = if json { Some(Format::Json) } else { format };
            let file = output.as_deref().map(|path| Output::named(path, force));
            let file = file.filter(|file| !file.is_stdout());
            if let Some(file) = &file {
                file.check()?;
            }
            crate::tables::print(&read_runs(&runs, skip_damaged)?, (of, format), file.as_ref())
        }
        Verb::Act(arguments) => act_test::run(&arguments),
        Verb::Import { files, output, force } => import::run(&files, output.as_deref(), force),
        Verb::Device { action } => device::run(action),
        Verb::Doctor { directory, noise: true, json } => crate::noise::run(&directory, json),
        Verb::Doctor { directory, json, .. } => Ok(doctor(&directory, json)),
        Verb::Validate { directory, progress, json } => {
            crate::validate::run(&directory, progress, json)
        }
        Verb::Attach(arguments) => attach::run(&arguments),
        Verb::Capture(arguments) => crate::capturing::run(&arguments),
        Verb::Exec(arguments) => crate::exec::run(&arguments),
        Verb::Detach { disk, json, .. } => attach::detach(disk.as_deref(), json),
        Verb::PowerCuts(arguments) => power_cuts::run(&arguments),
        Verb::Calibrate { directory, forget, json } => calibrate::run(&directory, forget, json),
        Verb::Clean { json } => clean(json),
        Verb::Completions { shell } => {
            let mut command = Arguments::command();
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut command, "crosspoint", &mut text);
            out!("{}", String::from_utf8_lossy(&text).trim_end());
            Ok(exit::OK)
        }
        Verb::Engine => Ok(crate::host::host()),
        Verb::Waking { socket } => match runner::waking(socket) {
            Ok(time) => {
                out!("{time}");
                Ok(exit::OK)
            }
            Err(error) => {
                say!("error: {error}: this verb is internal");
                Ok(exit::ENVIRONMENT)
            }
        },
        Verb::Guard => crate::guard::wait(),
        Verb::ServeDrive => match runner::drives::serve_drive() {
            Ok(()) => Ok(exit::OK),
            Err(error) => {
                say!("error: {error}: this verb is internal");
                Ok(exit::ENVIRONMENT)
            }
        },
        Verb::Man { directory, force } => man(&directory, force),
    }
}

fn write_report(
    (runs, skip_damaged): (&[PathBuf], bool),
    format: ReportFormat,
    output: &Output<'_>,
) -> Result<ExitCode, Failure> {
    output.check()?;
    let runs = read_runs(runs, skip_damaged)?;
    let text = match (format, runs.as_slice()) {
        (ReportFormat::Html, runs) => {
            result_file::write_page(runs, output)?;
            output.print_path();
            return Ok(exit::OK);
        }
        (ReportFormat::Markdown, [run]) => report::markdown(run),
        (ReportFormat::Junit, [run]) => report::junit(run),
        _ => {
            say!("error: this format takes one run\n  help: crosspoint report RUN --format junit");
            return Ok(exit::USAGE);
        }
    };
    output.write(text.as_bytes())?;
    output.print_path();
    Ok(exit::OK)
}

/// The study's text with its overrides applied.
fn study_text(name: &str, set: &[String], repeat: Option<u32>) -> Result<StudyText, Failure> {
    changed(&runner::load_study(name)?, set, repeat)
}

/// The text of a study with overrides applied.
fn changed(found: &StudyText, set: &[String], repeat: Option<u32>) -> Result<StudyText, Failure> {
    let with = |mut error: study::StudyError, text: &StudyText| {
        if Path::new(&found.name).extension().is_some_and(|kind| kind.eq_ignore_ascii_case("fio")) {
            error.help =
                Some(format!("a fio job becomes a study with: crosspoint import {}", found.name));
        }
        Failure::Runner(Box::new(error.into()), Some(text.clone()))
    };
    // A missing model is reported before anything that depends on it.
    let models = set.iter().filter_map(|set| set.split_once("device=model:"));
    for (_, name) in models {
        runner::profile(name)?;
    }
    // Checked before overrides, so that errors can be underlined in the file.
    let mut study =
        study::parse(&found.text, engines::list()).map_err(|error| with(error, found))?;
    let mut text = found.clone();
    if !set.is_empty() {
        text.text = study::apply_overrides(&found.text, set).map_err(|error| with(error, found))?;
        text.name = format!("{} with --set", found.name);
        study = study::parse(&text.text, engines::list()).map_err(|error| with(error, &text))?;
    }
    if let Some(repeat) = repeat {
        study.experiment.iter_mut().for_each(|experiment| experiment.repeat = repeat);
        text.text = study::resolved_text(&study);
        text.name = format!("{} with --repeat", found.name);
        study::parse(&text.text, engines::list()).map_err(|error| with(error, &text))?;
    }
    Ok(text)
}

/// Returns the text of the named study or of an ad-hoc job; errors refer to the command line.
fn text_of(name: &str, arguments: &RunArguments) -> Result<Result<StudyText, String>, Failure> {
    let job = &arguments.job;
    let Some(engine) = quick::job_engine(name) else {
        if job.any() || arguments.target.is_some() || !arguments.on.is_empty() {
            // An unknown name gets an error with suggestions.
            runner::load_study(name)?;
            let engines: Vec<&str> = engines::commands().map(|one| one.command).collect();
            return Ok(Err(format!(
                "{name} is a study: it takes --set; options of an ad-hoc job belong to one of {}",
                engines.join(", ")
            )));
        }
        return study_text(name, &arguments.set, arguments.repeat).map(Ok);
    };
    let on = quick::targets_of(&arguments.on);
    let targets = arguments.target.iter().cloned().chain(on).collect::<Vec<_>>();
    // A missing model is reported before anything else.
    for model in targets.iter().filter_map(|target| target.strip_prefix("model:")) {
        runner::profile(model)?;
    }
    match quick::study_of(engine, &targets, job) {
        Err(wrong) => Ok(Err(wrong)),
        Ok(text) => {
            if let Some(note) = quick::memory_note(&text).filter(|_| !job.print) {
                say!("note: {note}");
            }
            let found = StudyText { name: format!("{name} (from the command line)"), text };
            changed(&found, &arguments.set, arguments.repeat).map(Ok)
        }
    }
}

fn run_study(arguments: &RunArguments) -> Result<ExitCode, Failure> {
    // clap waives `requires` if the required argument conflicts with a given one.
    if arguments.again.is_some() && arguments.resume.is_none() {
        say!("error: --again requires --resume\n  help: add --resume RUN");
        return Ok(exit::USAGE);
    }
    crate::attach::say_abandoned()?;
    let text = match &arguments.study {
        None => None,
        Some(name) => match text_of(name, arguments)? {
            Ok(text) => Some(text),
            Err(wrong) => {
                say!("error: {}\n  help: crosspoint run --help", plain(&wrong));
                return Ok(exit::USAGE);
            }
        },
    };
    if let Some(text) = text.as_ref().filter(|_| arguments.job.print) {
        let now = study::upgraded_text(&text.text);
        out!("{}", now.as_deref().unwrap_or(&text.text).trim_end());
        return Ok(exit::OK);
    }
    if arguments.detach {
        return crate::detach::run(arguments, text.as_ref());
    }
    if let Some(run) = arguments.resume.as_ref().filter(|run| run.join("run.json").exists()) {
        // Fails before hours of trials whose report could not be written.
        Output::own(&run.join("report.html")).check()?;
    }
    if let (Some(workers), Some(text)) = (arguments.workers, &text) {
        return match workers::run(arguments, text, workers.get())? {
            Ok(end) => finish_run(&end),
            Err(code) => Ok(code),
        };
    }
    if let (Some(scheduler), Some(text)) = (&arguments.dask, &text) {
        return match dask::run(arguments, text, scheduler)? {
            Ok(end) => finish_run(&end),
            Err(code) => Ok(code),
        };
    }
    let running = Running::start()?;
    let confirmed = &arguments.i_will_lose_data;
    let options = Options {
        only: arguments.only.clone(),
        load_generators: arguments.load_generator.clone(),
        ..running.options(arguments.out.clone(), confirmed)
    };
    let mut watcher = Telling::new(progress::watcher(arguments.progress));
    let end = match (&arguments.resume, &text) {
        (Some(run), _) => {
            runner::resume(run, arguments.again.is_some())?.go_on(&options, &mut watcher)
        }
        (None, text) => {
            let text = text.as_ref().map_or("", |text| text.text.as_str());
            runner::execute(text, &options, &mut watcher)
        }
    };
    drop(watcher);
    running.undo();
    finish_run(&end?)
}

/// Merges runs of parts; the merged run gets a report.
fn merge(out: &Path, parts: &[PathBuf]) -> Result<ExitCode, Failure> {
    let merged = runner::merge(out, parts)?;
    if !merged.twice.is_empty() {
        say!(
            "note: {} trials are in several parts; those of the first are merged",
            merged.twice.len()
        );
    }
    if !merged.missing.is_empty() {
        let missing: Vec<String> = merged.missing.iter().map(u32::to_string).collect();
        say!("note: no part has the trials {}", missing.join(", "));
    }
    finish_run(&workers::end_of(out)?)
}

fn read_runs(paths: &[PathBuf], skip_damaged: bool) -> Result<Vec<Run>, Failure> {
    let read = |path: &PathBuf| {
        if !skip_damaged {
            return Ok(Run::read(path, engines::list())?);
        }
        let (run, damaged) = Run::read_intact(path, engines::list())?;
        damaged.iter().for_each(|one| say!("left out: {}", plain(&one.to_string())));
        Ok(run)
    };
    let runs = paths.iter().map(read).collect::<Result<Vec<Run>, Failure>>()?;
    if skip_damaged && runs.iter().all(|run| run.trials.is_empty()) {
        let path = paths[0].join("trials");
        let reason = "every trial is damaged or missing".to_owned();
        return Err(archive::ArchiveError::Damaged { path, reason }.into());
    }
    Ok(runs)
}

fn doctor(directory: &Path, as_json: bool) -> ExitCode {
    let checks = runner::doctor(directory);
    if as_json {
        out!("{:#}", json!({"schema": 1, "checks": checks}));
    } else {
        for check in &checks {
            let mark = match check.status {
                Status::Ok => "ok",
                Status::Limited => "limited",
                Status::Missing => "missing",
            };
            out!("{mark:<8} {:<16} {}", check.name, check.detail);
            if let Some(fix) = &check.fix {
                out!("{:<8} {:<16} help: {fix}", "", "");
            }
        }
    }
    let missing = checks.iter().any(|check| check.status == Status::Missing);
    if missing { exit::ENVIRONMENT } else { exit::OK }
}

fn clean(as_json: bool) -> Result<ExitCode, Failure> {
    let cleaned = state_directory()
        .and_then(|state| stack::clean(&state, engines::restore))
        .map_err(|error| Failure::from(runner::RunnerError::from(error)))?;
    // Listing attached drives removes stale entries.
    let _ = state_directory().and_then(|state| runner::attached::all(&state));
    if as_json {
        out!("{:#}", json!({"schema": 1, "cleaned": cleaned}));
    } else {
        cleaned.undone.iter().for_each(|line| out!("{line}"));
        if cleaned.running > 0 {
            out!("skipped: {} running studies", cleaned.running);
        }
        if cleaned.undone.is_empty() && cleaned.failed.is_empty() {
            out!("nothing to clean");
        }
    }
    for failed in &cleaned.failed {
        say!("error: {}", plain(failed));
    }
    Ok(if cleaned.failed.is_empty() { exit::OK } else { exit::ENVIRONMENT })
}

fn man(directory: &Path, force: bool) -> Result<ExitCode, Failure> {
    make_directory(directory)?;
    let mut command = Arguments::command();
    command.build();
    write_manual_page(&command, directory, force)?;
    out!("{}", directory.display());
    Ok(exit::OK)
}

/// Writes the manual pages of a command and its subcommands.
fn write_manual_page(
    command: &clap::Command,
    directory: &Path,
    force: bool,
) -> Result<(), Failure> {
    for below in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        write_manual_page(below, directory, force)?;
    }
    let page = clap_mangen::Man::new(command.clone());
    let path = directory.join(page.get_filename());
    let mut text = Vec::new();
    page.render(&mut text).map_err(|error| Failure::Output(path.display().to_string(), error))?;
    let mut text = String::from_utf8_lossy(&text).into_owned();
    seal(&mut text, SealStyle::Roff);
    Ok(Output::named(&path, force).write(text.as_bytes())?)
}
