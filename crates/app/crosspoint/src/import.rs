//! `crosspoint import`: converts fio job files, or folders of them, to studies.
//!
//! Invariant: a rejected file does not stop the others, and the first error determines the exit code; every
//! option that is not converted is named.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use archive::output::make_directory;
use runner::{RunnerError, StudyText};

use crate::exit::{self, ExitCode};
use crate::result_file::Output;
use crate::show::Failure;
use crate::words::plain;

/// Turns the files into studies: one to stdout or into `output`, several into the directory `output`.
pub fn run(paths: &[PathBuf], output: Option<&Path>, force: bool) -> Result<ExitCode, Failure> {
    let one = matches!(paths, [only] if !only.is_dir());
    let into = output.filter(|path| !one || path.is_dir());
    if one && into.is_none() {
        let job = import(&paths[0])?;
        match output {
            Some(path) => {
                let inputs: Vec<&Path> = job.files.iter().map(PathBuf::as_path).collect();
                job.write(path, force, &inputs)?;
            }
            None => out!("{}", job.text.trim_end()),
        }
        return Ok(exit::OK);
    }
    if let Some(dir) = output {
        make_directory(dir)?;
    }
    let mut code = exit::OK;
    let mut refused = |failure: Failure| {
        let of_it = failure.report();
        code = if code == exit::OK { of_it } else { code };
    };
    let mut files = Vec::new();
    for path in paths {
        match job_files(path) {
            Ok(found) => files.extend(found),
            Err(failure) => refused(failure),
        }
    }
    // All are read before the first is written: a job may include a file that another one overwrites.
    let mut jobs = Vec::new();
    let mut written = BTreeSet::new();
    for file in &files {
        let named = file.with_extension("toml");
        let target = match (into.or(output), named.file_name()) {
            (Some(dir), Some(name)) => dir.join(name),
            _ => named,
        };
        if !written.insert(target.clone()) {
            let twice = std::io::Error::other("two job files have this name");
            refused(Failure::Output(target.display().to_string(), twice));
            continue;
        }
        match import(file) {
            Ok(job) => jobs.push((target, job)),
            Err(failure) => refused(failure),
        }
    }
    let inputs: Vec<&Path> =
        jobs.iter().flat_map(|(_, job)| &job.files).map(PathBuf::as_path).collect();
    let mut made = 0;
    for (target, job) in &jobs {
        match job.write(target, force, &inputs) {
            Ok(()) => made += 1,
            Err(failure) => refused(failure),
        }
    }
    if made < files.len() {
        say!("{made} of {} job files converted; see the errors above", files.len());
    }
    Ok(code)
}

/// A job file as a study, and the files that it was read from.
struct Imported {
    text: String,
    files: Vec<PathBuf>,
}

impl Imported {
    fn write(&self, path: &Path, force: bool, inputs: &[&Path]) -> Result<(), Failure> {
        let output = Output::named(path, force).with_inputs(inputs);
        output.write(self.text.as_bytes())?;
        output.print_path();
        Ok(())
    }
}

/// The file, or the `.fio` files of a folder.
fn job_files(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let unreadable = |source| RunnerError::StudyFile { path: path.into(), source };
    let entries = std::fs::read_dir(path).map_err(unreadable)?.flatten();
    let jobs = entries.map(|entry| entry.path());
    let mut jobs: Vec<PathBuf> = jobs
        .filter(|path| path.extension().is_some_and(|is| is.eq_ignore_ascii_case("fio")))
        .collect();
    jobs.sort();
    if jobs.is_empty() {
        return Err(unreadable(std::io::Error::other("it has no .fio files")).into());
    }
    Ok(jobs)
}

fn import(file: &Path) -> Result<Imported, Failure> {
    let unreadable = |source| RunnerError::StudyFile { path: file.into(), source };
    let text = runner::read_text(file).map_err(unreadable)?;
    let stem =
        file.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let files = RefCell::new(vec![file.to_owned()]);
    let include = |name: &str| {
        let included = file.parent().unwrap_or(Path::new("")).join(name);
        files.borrow_mut().push(included.clone());
        runner::read_text(&included).map_err(|error| error.to_string())
    };
    let variable = |name: &str| std::env::var(name).ok();
    let around = study::Surroundings { include: &include, variable: &variable };
    let imported = study::import_fio(&text, &stem, &around).map_err(|error| {
        let name = file.display().to_string();
        Failure::Runner(Box::new(error.into()), Some(StudyText { name, text: text.clone() }))
    })?;
    for (what, lines) in [("not carried over", &imported.dropped), ("differs", &imported.differs)] {
        lines.iter().for_each(|line| say!("{what}: {}", plain(line)));
    }
    let points = imported.dropped.len() + imported.differs.len();
    if points > 0 {
        say!("{}: the study differs from the job in {points} points, listed above", file.display());
    }
    Ok(Imported { text: imported.text, files: files.into_inner() })
}
