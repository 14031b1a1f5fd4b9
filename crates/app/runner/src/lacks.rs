//! Requirements of a plan that this machine lacks, each with the command that fixes it, before anything is
//! created.
//!
//! Invariant: read-only; nothing is opened for writing, no server is contacted and nothing is started,
//! because a study is untrusted input.

use std::path::{Path, PathBuf};

use stack::free_space;
use study::{
    DeviceName, FileSystem, Job, Memory, Operations, Plan, Skip, Source, Stack, Study, Trial,
    VirtualTime,
};

use crate::estimate::file_space;
use crate::servers::absent_server;
use crate::simulated::MEMORY;

/// A missing requirement of a plan.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct MissingRequirement {
    /// The stack that needs it.
    pub stack: String,
    /// What is missing.
    pub what: String,
    /// What to do.
    pub next: String,
}

/// Everything that `plan` requires and this machine lacks, in the order of the stacks. Checks each directory,
/// device and program that the plan names.
#[must_use]
pub fn lacks(study: &Study, plan: &Plan) -> Vec<MissingRequirement> {
    let mut found = Vec::new();
    for stack in &study.stack {
        let jobs = measured_jobs((study, plan), stack);
        if jobs.is_empty() {
            continue;
        }
        let mut lack = |(what, next): (String, String)| {
            found.push(MissingRequirement { stack: stack.name.clone(), what, next });
        };
        root(stack, &jobs).into_iter().for_each(&mut lack);
        place(stack, &jobs).into_iter().for_each(&mut lack);
        missing_program(stack).into_iter().for_each(&mut lack);
        let mut servers: Vec<(String, String)> = jobs.iter().copied().filter_map(program).collect();
        servers.dedup();
        servers.into_iter().for_each(&mut lack);
    }
    found
}

/// `plan` without optional parts that this machine cannot run, which are listed as skipped; and the numbers
/// of those trials.
#[must_use]
pub fn possible(study: &Study, plan: Plan) -> (Plan, Vec<u32>) {
    let Plan { trials, mut skipped } = plan;
    let (mut kept, mut left_out) = (Vec::new(), Vec::new());
    // Each pair of stack and job is checked once, however many trials it has.
    let mut known: Vec<(String, String, Job, Option<String>)> = Vec::new();
    for trial in trials {
        let optional = study.experiment.iter().any(|e| e.name == trial.experiment && e.optional);
        let stack = study.stack.iter().find(|stack| stack.name == trial.stack);
        let Some(stack) = stack.filter(|_| optional && trial.source != Source::Predicted) else {
            kept.push(trial);
            continue;
        };
        let seen = known.iter().find(|(experiment, name, job, _)| {
            (experiment, name, job) == (&trial.experiment, &trial.stack, &trial.job)
        });
        let reason = match seen {
            Some((.., reason)) => reason.clone(),
            None => {
                let reason = lack_of(stack, &trial.job);
                let names = (trial.experiment.clone(), trial.stack.clone());
                known.push((names.0, names.1, trial.job.clone(), reason.clone()));
                reason
            }
        };
        let Some(reason) = reason else {
            kept.push(trial);
            continue;
        };
        left_out.push(trial.number);
        let skip = Skip {
            experiment: trial.experiment,
            stack: trial.stack,
            engine: Some(trial.job.engine().to_owned()),
            reason,
        };
        if !skipped.contains(&skip) {
            skipped.push(skip);
        }
    }
    (Plan { trials: kept, skipped }, left_out)
}

/// The missing requirement of one trial, with help.
fn lack_of(stack: &Stack, job: &Job) -> Option<String> {
    let jobs = [job];
    let found = root(stack, &jobs)
        .or_else(|| place(stack, &jobs))
        .or_else(|| missing_program(stack))
        .or_else(|| program(job));
    found.map(|(what, next)| format!("{what} ({next})"))
}

fn measured_jobs<'a>((study, plan): (&Study, &'a Plan), stack: &Stack) -> Vec<&'a Job> {
    let own = |trial: &&Trial| study.uses(trial, stack) && trial.source != Source::Predicted;
    plan.trials.iter().filter(own).map(|trial| &trial.job).collect()
}

/// System privileges that a plan needs, in words.
#[must_use]
pub fn privileges(study: &Study, plan: &Plan) -> &'static str {
    let mut stacks = study.stack.iter().map(|stack| (stack, measured_jobs((study, plan), stack)));
    if stacks.clone().any(|(stack, jobs)| needs_root(stack, &jobs).is_some()) {
        "root (creates file systems, devices or limits)"
    } else if stacks.any(|(stack, _)| matches!(stack.device, DeviceName::Paths(_))) {
        "access to the block devices (usually root)"
    } else {
        "none"
    }
}

/// Parts of a stack that require root, if we are not root.
pub(crate) fn root(stack: &Stack, jobs: &[&Job]) -> Option<(String, String)> {
    let needs = needs_root(stack, jobs)?;
    let root = rustix::process::geteuid().is_root();
    (!root).then(|| (format!("{needs} requires root"), "sudo crosspoint ...".to_owned()))
}

/// Parts of a stack that require root.
fn needs_root(stack: &Stack, jobs: &[&Job]) -> Option<&'static str> {
    if jobs.is_empty() || stack.is_virtual() {
        return None;
    }
    let limited = |job: &&Job| match job {
        Job::Kv(job) => job.memory != Memory::Unlimited,
        Job::Sql(job) => job.memory != Memory::Unlimited,
        Job::Block(_) | Job::Act(_) => false,
    };
    match stack.file_system {
        FileSystem::AsIs if stack.limit.is_some() => Some("a limit of a device's rates"),
        FileSystem::AsIs => jobs.iter().any(limited).then_some("a limit of memory"),
        _ => Some("a file system or device of its own; file_system = \"as_is\" needs none"),
    }
}

/// The missing transport of attached drives.
fn missing_transport() -> Option<(String, String)> {
    let attach::Missing { reason, next } = attach::available().err()?;
    Some((reason, next))
}

/// Checks the data's directory and free space.
fn place(stack: &Stack, jobs: &[&Job]) -> Option<(String, String)> {
    match &stack.device {
        DeviceName::Model(_) if stack.attach => missing_transport().or_else(|| {
            // Data on an emulated drive is in memory as far as it is written.
            let needed = file_space(stack, jobs).min(stack.size());
            let free = observe::memory_available()?;
            let next = format!("use less data: --set stack.{}.size=...", stack.name);
            let what = || format!("the drive needs {needed} of memory; {free} available");
            (free < needed).then(|| (what(), next))
        }),
        DeviceName::Paths(paths) => {
            let gone = paths.iter().find(|path| !Path::new(path).exists())?;
            Some((
                format!("device {gone} does not exist"),
                "list devices: ls -l /dev/disk/by-id".to_owned(),
            ))
        }
        // The data of a simulation is in ordinary files.
        DeviceName::Model(_) | DeviceName::File => {
            let dir = match stack.directory.as_str() {
                // Runs are created here unless --out is given.
                "auto" => PathBuf::from("."),
                path => PathBuf::from(path),
            };
            if !dir.is_dir() {
                let next = format!(
                    "mkdir -p {0}, or another: --set stack.{1}.directory=/path",
                    dir.display(),
                    stack.name
                );
                return Some((format!("directory {} does not exist", dir.display()), next));
            }
            if let Err(error) = stack::check_directory(&dir) {
                return Some((error.to_string(), "use a directory of your own".to_owned()));
            }
            // Engines that map their files have them in memory.
            let maps = |job: &&Job| {
                let engine = job
                    .key_value()
                    .and_then(|job| engines::list().find(&job.engine, Operations::KeyValue));
                engine.is_some_and(|one| one.virtual_time == VirtualTime::InMemory)
            };
            let (mapped, others): (Vec<&Job>, Vec<&Job>) =
                jobs.iter().copied().partition(|job| stack.is_virtual() && maps(job));
            let lacking = |dir: &Path, jobs: &[&Job]| {
                let (needed, free) = (file_space(stack, jobs), free_space(dir).ok()?);
                let next = format!("another disk: --set stack.{}.directory=/path", stack.name);
                let what = || format!("{} has {free} free; {needed} needed", dir.display());
                (!jobs.is_empty() && free < needed).then(|| (what(), next))
            };
            lacking(Path::new(MEMORY), &mapped).or_else(|| lacking(&dir, &others))
        }
    }
}

/// The missing mkfs program of a file system, or the library of simulations.
fn missing_program(stack: &Stack) -> Option<(String, String)> {
    if stack.is_virtual() {
        let what = crate::library().err()?.to_string();
        return Some((what, "cargo build --release builds it, for x86-64".to_owned()));
    }
    let (program, package) = match stack.file_system {
        FileSystem::AsIs | FileSystem::Raw => return None,
        FileSystem::Ext4 | FileSystem::Ext4NoJournal => ("mkfs.ext4", "e2fsprogs"),
        FileSystem::Xfs => ("mkfs.xfs", "xfsprogs"),
        FileSystem::Btrfs => ("mkfs.btrfs", "btrfs-progs"),
    };
    stack::find_program(program)
        .is_none()
        .then(|| (format!("{program} was not found"), format!("apt-get install {package}")))
}

/// The library or server of a job that is missing.
fn program(job: &Job) -> Option<(String, String)> {
    match job {
        Job::Sql(job) => absent_server(job),
        Job::Kv(job) => {
            let engine = engines::find(job.engine.word(), Operations::KeyValue)?;
            let library = job.options.text("library");
            if ["", "auto"].contains(&library) {
                let absent = (engine.probe)().err()?;
                return Some((absent.reason(), engine.descriptor.install.to_owned()));
            }
            let gone = library.contains('/') && !Path::new(library).is_file();
            gone.then(|| {
                let next = "library = \"auto\" uses the installed one".to_owned();
                (format!("library {library} is not a file"), next)
            })
        }
        Job::Block(_) | Job::Act(_) => None,
    }
}
