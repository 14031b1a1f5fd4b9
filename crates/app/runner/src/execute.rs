//! Executes a study's text, or resumes a run folder.
//!
//! Invariants: a trial in the archive is never run again; on every exit the changes in the undo journal are
//! undone.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use archive::output::check_new_directory;
use archive::{ArchiveError, FORMAT, Reopened, RunHeader, RunWriter, TrialOutcome};
use observe::Provenance;
use stack::check_directory;
use study::{Plan, Study, Trial, check_size, parse, plan};

use crate::RunnerError;
use crate::context::Executor;
use crate::host::HostExecutor;
use crate::lacks::possible;
use crate::options::Options;
use crate::reached::Reached;
use crate::schedule::{RunEnd, Schedule};
use crate::watch::Watcher;

/// A run folder that was opened to resume it.
#[derive(Debug)]
pub struct Resumed {
    folder: Reopened,
    plan: Plan,
    /// Rates reached by its finished trials.
    reached: Reached,
    failed_before: bool,
}

/// Opens a run folder to resume it; with `again`, failed trials run again.
///
/// # Errors
/// It is no run, is damaged beyond its trials, or belongs to another plan.
pub fn resume(path: &Path, again: bool) -> Result<Resumed, RunnerError> {
    if path.is_dir() {
        check_directory(path)?;
    }
    let (mut reached, mut failed_before) = (Reached::default(), false);
    let mut there = Vec::new();
    let folder = Reopened::open(path, engines::list(), again, |trial| {
        reached.note(trial);
        failed_before |= trial.outcome == TrialOutcome::Failed;
        there.push((trial.number, trial.slug.clone()));
    })?;
    let (header, study) = (&folder.header, &folder.study);
    let mut plan = plan(study);
    plan.trials.retain(|trial| !header.left_out.contains(&trial.number));
    let now = u32::try_from(plan.trials.len()).unwrap_or(u32::MAX);
    if header.trials_planned != now {
        let planned = header.trials_planned;
        return Err(RunnerError::OtherPlan { path: path.into(), planned, now });
    }
    // A version with another order of stacks gave the numbers to other trials.
    let planned: HashMap<u32, String> =
        plan.trials.iter().map(|trial| (trial.number, trial.slug())).collect();
    if let Some((_, slug)) = there.iter().find(|(number, slug)| planned.get(number) != Some(slug)) {
        return Err(RunnerError::OtherOrder { path: path.into(), slug: slug.clone() });
    }
    let mut left = study.clone();
    let done: HashSet<u32> = there.iter().map(|(number, _)| *number).collect();
    let missing = |trial: &&Trial| !done.contains(&trial.number);
    let names: BTreeSet<&str> =
        plan.trials.iter().filter(missing).map(|trial| trial.experiment.as_str()).collect();
    left.experiment.retain(|one| names.contains(one.name.as_str()));
    study::check_runnable(&left, "")?;
    Ok(Resumed { folder, plan, reached, failed_before })
}

impl Resumed {
    /// Runs the missing trials.
    ///
    /// # Errors
    /// [`RunnerError`]; finished trials are kept.
    pub fn go_on(
        self,
        options: &Options<'_>,
        watcher: &mut dyn Watcher,
    ) -> Result<RunEnd, RunnerError> {
        let folder = parent_of(self.folder.path());
        let (begun, now) = (self.folder.header.load_generators, options.load_generators.len());
        if begun as usize != now {
            return Err(RunnerError::NoShare(format!(
                "this run was begun with {begun}, and would continue with {now}"
            )));
        }
        let mut executor = HostExecutor::check(&self.folder.study, &self.plan, options, &folder)?;
        self.on(&mut executor, options, watcher)
    }

    /// Runs the missing trials by `executor`.
    pub(crate) fn on(
        self,
        executor: &mut dyn Executor,
        options: &Options<'_>,
        watcher: &mut dyn Watcher,
    ) -> Result<RunEnd, RunnerError> {
        let (study, stacks) = (self.folder.study.clone(), self.folder.header.stacks.clone());
        executor.check_resume(&study, &stacks)?;
        let mut schedule =
            Schedule::new((&study, &self.plan), options, self.folder.write()?, stacks);
        (schedule.failed_before, schedule.reached) = (self.failed_before, self.reached);
        schedule.run(executor, watcher)
    }
}

/// Runs a study from its text.
///
/// # Errors
/// [`RunnerError`]; finished trials are kept.
pub fn execute(
    text: &str,
    options: &Options<'_>,
    watcher: &mut dyn Watcher,
) -> Result<RunEnd, RunnerError> {
    execute_on(text, options, watcher, |study, plan, folder| {
        Ok(Box::new(HostExecutor::check(study, plan, options, folder)?))
    })
}

/// Runs a study with the executor that `check` returns for its plan and the run folder.
pub(crate) fn execute_on<'e>(
    text: &str,
    options: &Options<'_>,
    watcher: &mut dyn Watcher,
    check: impl FnOnce(&Study, &Plan, &Path) -> Result<Box<dyn Executor + 'e>, RunnerError>,
) -> Result<RunEnd, RunnerError> {
    let study = parse(text, engines::list())?;
    check_size(&study)?;
    let mut planned = plan(&study);
    let apart = match &options.only {
        Some(only) => set_apart(&mut planned, only)?,
        None => Vec::new(),
    };
    let (plan, mut left_out) = possible(&study, planned);
    left_out.extend(apart);
    left_out.sort_unstable();
    let skipped: Vec<String> = plan.skipped.iter().map(skip_text).collect();
    if plan.trials.is_empty() {
        return Err(RunnerError::NothingToRun(skipped));
    }
    let now = jiff::Zoned::now();
    let named = named(&study.name, &now);
    let path = options.out.clone().unwrap_or_else(|| free_name(Path::new(RUNS), &named));
    if path.join("run.json").exists() {
        return Err(RunnerError::OutputExists(path));
    }
    let folder = parent_of(&path);
    if std::fs::symlink_metadata(&path).is_ok_and(|data| data.is_file()) {
        return Err(ArchiveError::Foreign(path).into());
    }
    check_new_directory(&path)?;
    options.journal.prepare()?;
    std::fs::create_dir_all(&folder).map_err(stack::StackError::io("create", &folder))?;
    let mut executor = check(&study, &plan, &folder)?;
    let header = RunHeader {
        format: FORMAT,
        study: study.name.clone(),
        started: now.strftime("%Y-%m-%d %H:%M:%S %Z").to_string(),
        provenance: Provenance::read(options.version, options.build),
        stacks: executor.stack_records(&study),
        noise: options.noise.clone(),
        own_disk: options.own_disk.clone(),
        trials_planned: u32::try_from(plan.trials.len()).unwrap_or(u32::MAX),
        load_generators: options.load_generators.len() as u32,
        skipped,
        left_out,
        sums: true,
    };
    let archive = RunWriter::create(&path, text, &study, &header)?;
    let schedule = Schedule::new((&study, &plan), options, archive, header.stacks);
    schedule.run(executor.as_mut(), watcher)
}

/// Takes all other trials out of a plan; returns their numbers.
fn set_apart(plan: &mut Plan, only: &[u32]) -> Result<Vec<u32>, RunnerError> {
    let known = |number: &u32| plan.trials.iter().any(|trial| trial.number == *number);
    if let Some(number) = only.iter().find(|number| !known(number)) {
        return Err(RunnerError::NoTrial { number: *number, planned: plan.trials.len() });
    }
    let is_other = |trial: &Trial| !only.contains(&trial.number);
    let others = plan.trials.iter().filter(|trial| is_other(trial)).map(|trial| trial.number);
    let others = others.collect();
    plan.trials.retain(|trial| !is_other(trial));
    Ok(others)
}

fn skip_text(skip: &study::Skip) -> String {
    format!("{} on {}: {}", skip.experiment, skip.stack, skip.full_reason())
}

/// Default folder of runs.
const RUNS: &str = "runs";

/// Default run folder of `study`.
#[must_use]
pub fn default_folder(study: &str) -> PathBuf {
    free_name(Path::new(RUNS), &named(study, &jiff::Zoned::now()))
}

/// A file name in the current directory with the date and time.
#[must_use]
pub fn with_time(name: &str) -> PathBuf {
    named(name, &jiff::Zoned::now()).into()
}

fn named(study: &str, at: &jiff::Zoned) -> String {
    format!("{study}-{}", at.strftime("%Y%m%d-%H%M%S"))
}

/// An unused name in `dir`: two runs may begin in the same second.
fn free_name(dir: &Path, name: &str) -> PathBuf {
    let numbered = (2..).map(|number| dir.join(format!("{name}-{number}")));
    let mut names = std::iter::once(dir.join(name)).chain(numbered);
    names.find(|path| !path.exists()).unwrap_or_else(|| dir.join(name))
}

fn parent_of(run: &Path) -> PathBuf {
    match run.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}
