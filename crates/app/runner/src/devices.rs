//! The targets of a run: made when first needed, kept until its end.
//!
//! Invariants: one working directory and one filled file a stack; what can be refused is refused
//! before the first trial. What it is not: drivers.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use archive::StackRecord;
use device::Profile;
use observe::StorageFacts;
use stack::{Journal, StackError, WorkArea, direct_io_works, fill, free_space};
use study::{DeviceName, Job, Plan, Stack, Study};
use units::{Bytes, Seed};

use crate::catalog::profile;
use crate::estimate::database_bytes;
use crate::measured::{check_writes, open_block_device, open_file};
use crate::{RunnerError, predicted};

/// Space that must stay free beside what a run needs.
const MARGIN: u64 = 64 << 20;

/// Everything a run needs to open its targets.
pub(crate) struct Targets<'a> {
    journal: &'a Journal,
    /// Directory that `auto` means.
    automatic: PathBuf,
    confirmed: Option<String>,
    profiles: BTreeMap<String, Profile>,
    areas: BTreeMap<String, WorkArea>,
    /// Stacks whose file is filled.
    filled: BTreeMap<String, PathBuf>,
    /// Block devices, opened before the first trial and held exclusively until the last.
    held: BTreeMap<String, File>,
}

impl<'a> Targets<'a> {
    /// Loads the profiles and checks that every stack of the plan can be used.
    pub fn check(
        study: &Study,
        plan: &Plan,
        journal: &'a Journal,
        automatic: &Path,
        confirmed: Option<&str>,
    ) -> Result<Self, RunnerError> {
        let mut targets = Self {
            journal,
            automatic: automatic.to_owned(),
            confirmed: confirmed.map(str::to_owned),
            profiles: BTreeMap::new(),
            areas: BTreeMap::new(),
            filled: BTreeMap::new(),
            held: BTreeMap::new(),
        };
        for stack in &study.stack {
            if plan.trials.iter().any(|trial| trial.stack == stack.name) {
                targets.check_stack(stack, plan)?;
            }
        }
        Ok(targets)
    }

    fn check_stack(&mut self, stack: &Stack, plan: &Plan) -> Result<(), RunnerError> {
        let jobs = plan.trials.iter().filter(|trial| trial.stack == stack.name);
        let jobs: Vec<&Job> = jobs.map(|trial| &trial.job).collect();
        let block: Vec<_> = jobs
            .iter()
            .filter_map(|job| match job {
                Job::Block(job) => Some(job),
                Job::Kv(_) => None,
            })
            .collect();
        match &stack.device {
            DeviceName::Model(name) => {
                self.profiles.insert(stack.name.clone(), profile(name)?);
            }
            DeviceName::Path(path) => {
                check_writes(stack, &block)?;
                let device = open_block_device(stack, path, self.confirmed.as_deref())?;
                self.held.insert(stack.name.clone(), device);
            }
            DeviceName::File => {
                let dir = self.directory(stack);
                if !block.is_empty() && stack.direct && !direct_io_works(&dir)? {
                    let file_system = StorageFacts::read(&dir).file_system;
                    return Err(StackError::NoDirectIo { path: dir, file_system }.into());
                }
                let databases = jobs.iter().filter_map(|job| match job {
                    Job::Kv(job) => Some(database_bytes(job.records, job.value_size)),
                    Job::Block(_) => None,
                });
                let file = if block.is_empty() { 0 } else { stack.size.get() };
                let needed = Bytes(file + databases.max().unwrap_or(0) + MARGIN);
                let free = free_space(&dir)?;
                if free < needed {
                    return Err(StackError::NoSpace { path: dir, free, needed }.into());
                }
            }
        }
        Ok(())
    }

    fn directory(&self, stack: &Stack) -> PathBuf {
        match stack.directory.as_str() {
            "auto" => self.automatic.clone(),
            path => PathBuf::from(path),
        }
    }

    /// The profile of a model stack that passed [`Targets::check`].
    pub fn profile(&self, stack: &Stack) -> Option<&Profile> {
        self.profiles.get(&stack.name)
    }

    /// What the header says of each stack.
    pub fn records(&self, study: &Study, seed: Seed) -> Vec<StackRecord> {
        let record = |stack: &Stack| match self.profile(stack) {
            Some(profile) => predicted::stack_record(stack, profile, seed),
            None => {
                let place = match &stack.device {
                    DeviceName::Path(path) => PathBuf::from(path),
                    _ => self.directory(stack),
                };
                StackRecord {
                    name: stack.name.clone(),
                    title: if stack.title.is_empty() {
                        stack.name.clone()
                    } else {
                        stack.title.clone()
                    },
                    device: stack.device.text(),
                    storage: Some(StorageFacts::read(&place)),
                    not_covered: None,
                    host_model: None,
                    validation: Vec::new(),
                }
            }
        };
        study.stack.iter().map(record).collect()
    }

    fn area(&mut self, stack: &Stack) -> Result<&WorkArea, RunnerError> {
        if !self.areas.contains_key(&stack.name) {
            let area = WorkArea::create(self.journal, &self.directory(stack), &stack.name)?;
            self.areas.insert(stack.name.clone(), area);
        }
        Ok(&self.areas[&stack.name])
    }

    /// Opens the block target of a stack, making and filling its file first if need be; `None` when
    /// `step` said to stop.
    pub fn open(
        &mut self,
        stack: &Stack,
        step: &mut dyn FnMut(Bytes) -> bool,
    ) -> Result<Option<(File, PathBuf)>, RunnerError> {
        if let DeviceName::Path(path) = &stack.device {
            let held = &self.held[&stack.name];
            let file = held.try_clone().map_err(StackError::io("use", path))?;
            return Ok(Some((file, PathBuf::from(path))));
        }
        if !self.filled.contains_key(&stack.name) {
            let path = self.area(stack)?.path().join("block.data");
            match fill(&path, stack.size, stack.direct, step)? {
                Some(made) => self.filled.insert(stack.name.clone(), made.path),
                None => return Ok(None),
            };
        }
        let path = self.filled[&stack.name].clone();
        Ok(Some((open_file(&path, stack.direct)?, path)))
    }

    /// An empty directory for a database.
    pub fn database_directory(&mut self, stack: &Stack) -> Result<PathBuf, RunnerError> {
        Ok(self.area(stack)?.fresh("database")?)
    }
}
