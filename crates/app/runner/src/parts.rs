//! Parts of a study that run apart, in several processes or on several machines, and the run that they make.
//!
//! Invariants: each planned trial is in one part; the trials of this machine's devices are one part, so that
//! none of them runs next to another; a merged run has each trial once, as its part recorded it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use archive::{Run, RunHeader, RunWriter, StackRecord, TrialOutcome};
use stack::StackError;
use study::{Job, Plan, Study, Trial, plan};

use crate::RunnerError;
use crate::estimate::trial_seconds;
use crate::lacks::possible;

/// Estimated seconds up to which trials share a part: sending it and starting its processes takes 0.3 s.
const PART_SECONDS: f64 = 2.0;
/// Estimated seconds of a simulated trial of a key-value engine beyond its virtual time.
const SIMULATED_OVERHEAD: f64 = 0.15;

/// Trials that run one after another in one process.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// Their numbers, ascending.
    pub trials: Vec<u32>,
    /// They measure this machine: nothing else may run on it.
    pub exclusive: bool,
    /// Estimated duration.
    pub seconds: f64,
}

/// What trials of one part have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Common {
    /// They run on this machine's devices, or on drives attached to it.
    Machine,
    /// The rates of some depend on those of others.
    Rates(String),
    /// They use the same tables.
    Tables(String),
    /// Nothing.
    Short(usize),
}

/// Divides a plan.
#[must_use]
pub fn parts(study: &Study, plan: &Plan) -> Vec<Part> {
    let depends =
        |trial: &Trial| matches!(&trial.job, Job::Block(job) if job.rate_of_max.is_some());
    let dependent: HashSet<&str> =
        plan.trials.iter().filter(|one| depends(one)).map(|one| one.stack.as_str()).collect();
    let simulated = |trial: &Trial| {
        study.stack.iter().any(|stack| stack.name == trial.stack && stack.is_virtual())
    };
    let mut all: BTreeMap<Common, Part> = BTreeMap::new();
    let (mut chunk, mut filled) = (0, 0.0);
    for trial in &plan.trials {
        let seconds = match &trial.job {
            Job::Kv(_) if simulated(trial) => {
                trial.timeline.end().as_secs_f64() + SIMULATED_OVERHEAD
            }
            _ => trial_seconds(trial),
        };
        let common = match &trial.job {
            _ if !simulated(trial) => Common::Machine,
            Job::Block(_) if dependent.contains(trial.stack.as_str()) => {
                Common::Rates(trial.stack.clone())
            }
            Job::Sql(job) => Common::Tables(job.tables_key()),
            _ => {
                if filled > 0.0 && filled + seconds > PART_SECONDS {
                    (chunk, filled) = (chunk + 1, 0.0);
                }
                filled += seconds;
                Common::Short(chunk)
            }
        };
        let exclusive = common == Common::Machine;
        let part = all.entry(common).or_insert_with(|| Part {
            trials: Vec::new(),
            exclusive,
            seconds: 0.0,
        });
        part.trials.push(trial.number);
        part.seconds += seconds;
    }
    // The longest begin first, so that none is left at the end.
    let mut parts: Vec<Part> = all.into_values().collect();
    parts.sort_by(|a, b| {
        b.exclusive
            .cmp(&a.exclusive)
            .then(b.seconds.total_cmp(&a.seconds))
            .then(a.trials.cmp(&b.trials))
    });
    parts
}

/// A merged run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    /// Trials in it.
    pub trials: usize,
    /// Trials of the plan that no part has.
    pub missing: Vec<u32>,
    /// Trials that several parts have; that of the first part is in the run.
    pub twice: Vec<u32>,
}

/// Merges parts of one study to a new run folder. A trial of another machine than the first part's says so.
///
/// # Errors
/// A part cannot be read, or is of another study, version or build; the folder exists.
pub fn merge(out: &Path, folders: &[PathBuf]) -> Result<Merged, RunnerError> {
    let read = |path: &PathBuf| Run::read(path, engines::list());
    let runs = folders.iter().map(read).collect::<Result<Vec<Run>, _>>()?;
    let Some(first) = runs.first() else { return Err(RunnerError::NothingToRun(Vec::new())) };
    let text = |run: &Run| study::resolved_text(&run.study);
    let build = |run: &Run| {
        let made = &run.header.provenance;
        (made.tool.clone(), made.build.clone(), run.header.load_generators)
    };
    let whole = plan(&first.study);
    let slugs: BTreeMap<u32, String> =
        whole.trials.iter().map(|trial| (trial.number, trial.slug())).collect();
    for run in &runs {
        if (text(run), build(run)) != (text(first), build(first)) {
            return Err(RunnerError::OtherStudy { path: run.path.clone() });
        }
        if let Some(other) = run.trials.iter().find(|one| slugs.get(&one.number) != Some(&one.slug))
        {
            let (path, slug) = (run.path.clone(), other.slug.clone());
            return Err(RunnerError::OtherOrder { path, slug });
        }
    }
    if out.join("run.json").exists() {
        return Err(RunnerError::OutputExists(out.to_owned()));
    }
    let original = std::fs::read_to_string(first.path.join("study.original.toml"));
    let original = original.unwrap_or_else(|_| text(first));
    let planned: Vec<u32> = slugs.into_keys().collect();
    let mut trials = BTreeMap::new();
    let mut twice = Vec::new();
    for run in &runs {
        for trial in run.trials.iter().filter(|trial| trial.outcome != TrialOutcome::Partial) {
            match trials.entry(trial.number) {
                Entry::Occupied(_) => twice.push(trial.number),
                Entry::Vacant(place) => _ = place.insert((run, trial)),
            }
        }
    }
    // Optional trials that no part has, and that this machine cannot run either, are left out.
    let (_, mut left_out) = possible(&first.study, whole);
    left_out.retain(|number| !trials.contains_key(number));
    let is_missing = |number: &u32| !trials.contains_key(number) && !left_out.contains(number);
    let missing: Vec<u32> = planned.iter().copied().filter(is_missing).collect();
    let header = RunHeader {
        trials_planned: (planned.len() - left_out.len()) as u32,
        skipped: all_of(&runs, |run| &run.header.skipped),
        stacks: stacks_of(&runs),
        left_out,
        ..first.header.clone()
    };
    // A run exists once it has all trials.
    let mut aside = out.components().collect::<PathBuf>().into_os_string();
    aside.push(".merging");
    let aside = PathBuf::from(aside);
    // Only what a killed merge of this study has left.
    if Run::read_intact(&aside, engines::list()).is_ok_and(|(left, _)| text(&left) == text(first)) {
        std::fs::remove_dir_all(&aside).map_err(StackError::io("remove", &aside))?;
    }
    let mut writer = RunWriter::create(&aside, &original, &first.study, &header)?;
    let home = &first.header.provenance;
    for (run, trial) in trials.values() {
        let mut trial = (*trial).clone();
        let host = &run.header.provenance;
        if (&host.cpu, &host.kernel) != (&home.cpu, &home.kernel) {
            trial.result.notes.push(format!("on another machine: {}, {}", host.cpu, host.kernel));
        }
        writer.write_trial(&trial)?;
    }
    drop(writer);
    let _ = std::fs::remove_dir(out);
    std::fs::rename(&aside, out).map_err(StackError::io("rename", &aside))?;
    Ok(Merged { trials: trials.len(), missing, twice })
}

fn all_of(runs: &[Run], of: impl Fn(&Run) -> &Vec<String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for text in runs.iter().flat_map(of) {
        if !all.contains(text) {
            all.push(text.clone());
        }
    }
    all
}

/// Each stack as the first part that has trials on it describes it.
fn stacks_of(runs: &[Run]) -> Vec<StackRecord> {
    let first = &runs[0].header.stacks;
    let described = |stack: &StackRecord| {
        let user = runs.iter().find(|run| run.trials.iter().any(|one| one.stack == stack.name));
        let found = user?.header.stacks.iter().find(|one| one.name == stack.name);
        found.cloned()
    };
    first.iter().map(|stack| described(stack).unwrap_or_else(|| stack.clone())).collect()
}
