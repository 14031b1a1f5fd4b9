//! The targets of a run: created on first use, kept until its end.
//!
//! Invariants: one working directory and one filled file per stack; everything that can be refused is refused
//! before the first trial.

use attach::Missing;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use archive::StackRecord;
use device::Profile;
use observe::StorageFacts;
use sim::Calibration;
use stack::{
    Access, DeviceRates, Format, HeldDevice, Journal, StackError, Volume, WorkArea,
    direct_io_works, fill, free_space,
};
use study::{DeviceName, FileSystem, Job, Plan, Stack, Study, VirtualTime};
use units::{Bytes, Seed};

use crate::catalog::profile;
use crate::drives::check_faults;
use crate::emulated::{self, Drives};
use crate::estimate::file_space;
use crate::measured::{check_writes, open_file};
use crate::predicted::Modelled;
use crate::simulated::{MEMORY, SimulatedHost, psync_path};
use crate::target_checks::{check_engines, check_model, check_real, known};
use crate::{RunnerError, lacks, predicted};

/// The open target of a stack.
pub(crate) struct Opened {
    pub files: Vec<File>,
    /// Path of each.
    pub paths: Vec<PathBuf>,
}

/// Everything a run needs to open its targets.
pub(crate) struct Targets<'a> {
    journal: &'a Journal,
    /// Directory that `auto` means.
    automatic: PathBuf,
    confirmed: Vec<String>,
    models: BTreeMap<String, Modelled>,
    /// Calibration of this host.
    here: Option<&'a Calibration>,
    /// Models that are attached.
    attachable: BTreeMap<String, Profile>,
    areas: BTreeMap<String, WorkArea>,
    /// Database volumes by stack. Declared before the devices, to be undone first.
    volumes: BTreeMap<String, Volume>,
    /// Emulated drives, by stack. Declared after the volumes on them, so that they are dropped later.
    pub drives: Drives,
    /// Stacks whose file is filled.
    filled: BTreeMap<String, PathBuf>,
    /// Block devices by the study's names for them, resolved before the first trial and held until the
    /// last.
    held: BTreeMap<String, Arc<HeldDevice>>,
    /// Stacks whose devices have passed the guard for them.
    passed: BTreeSet<String>,
    /// Stacks that were filled for preconditioning.
    preconditioned: BTreeSet<String>,
}

impl<'a> Targets<'a> {
    /// Loads the profiles and checks that every stack of the plan can be used.
    pub fn check(
        study: &Study,
        plan: &Plan,
        journal: &'a Journal,
        automatic: &Path,
        (confirmed, here): (&[String], Option<&'a Calibration>),
    ) -> Result<Self, RunnerError> {
        let mut targets = Self {
            journal,
            automatic: automatic.to_owned(),
            confirmed: confirmed.to_vec(),
            models: BTreeMap::new(),
            here,
            attachable: BTreeMap::new(),
            areas: BTreeMap::new(),
            volumes: BTreeMap::new(),
            drives: Drives::default(),
            filled: BTreeMap::new(),
            held: BTreeMap::new(),
            passed: BTreeSet::new(),
            preconditioned: BTreeSet::new(),
        };
        for stack in &study.stack {
            let jobs = jobs_on(study, stack, plan);
            if !jobs.is_empty() {
                targets.check_stack(stack, &jobs)?;
            }
        }
        Ok(targets)
    }

    fn check_stack(&mut self, stack: &Stack, jobs: &[&Job]) -> Result<(), RunnerError> {
        let block: Vec<&Job> = jobs.iter().copied().filter(|job| job.is_block()).collect();
        if let Some((reason, next)) = lacks::root(stack, jobs) {
            let device = format!("stack {}", stack.name);
            return Err(StackError::refused(&device, reason, next).into());
        }
        check_engines(stack, jobs, self.journal)?;
        if !stack.direct && jobs.iter().any(|job| matches!(job, Job::Act(_))) {
            let (device, name) = (stack.device.text(), &stack.name);
            return Err(RunnerError::Stack(StackError::refused(
                &device,
                "ACT through the page cache would measure memory",
                format!("--set stack.{name}.direct=true"),
            )));
        }
        match &stack.device {
            DeviceName::Model(name) if stack.attach => {
                let profile = profile(name)?;
                attach::available().map_err(|Missing { reason, next }| {
                    StackError::refused(&stack.device.text(), reason, next)
                })?;
                let size = stack.size().min(profile.capacity);
                known((stack, size), &profile, jobs.iter().copied())?;
                check_faults(stack)?;
                self.attachable.insert(stack.name.clone(), profile);
            }
            DeviceName::Model(name) => {
                let profile = profile(name)?;
                check_model(stack, &profile, jobs.iter().copied())?;
                let refuse = |reason| RunnerError::Host { stack: stack.name.clone(), reason };
                let host = predicted::host_of(stack, &profile, self.here).map_err(refuse)?;
                let costs = self.here.map(Calibration::costs).unwrap_or_default();
                self.models.insert(stack.name.clone(), Modelled { profile, host, costs });
            }
            DeviceName::Paths(paths) => {
                paths.iter().try_for_each(|path| check_real(stack, Path::new(path)))?;
                check_writes(stack, jobs)?;
                self.hold(stack, paths)?;
            }
            DeviceName::File => {
                let dir = self.directory(stack);
                check_real(stack, &dir)?;
                if !block.is_empty() && stack.direct && !direct_io_works(&dir)? {
                    let file_system = StorageFacts::read(&dir).file_system;
                    return Err(StackError::NoDirectIo { path: dir, file_system }.into());
                }
                let needed = file_space(stack, jobs);
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

    /// Passes the devices of a stack through the guard and holds them. Volumes made on them, for this stack
    /// or another, are undone first.
    fn hold(&mut self, stack: &Stack, paths: &[String]) -> Result<(), RunnerError> {
        let left = self.leave(paths, None);
        if self.passed.contains(&stack.name) && !left {
            return Ok(());
        }
        let confirmed = self.confirmed.as_slice();
        let access =
            if stack.allow_write { Access::Destroy { confirmed } } else { Access::ReadOnly };
        for path in paths {
            match self.held.get(path) {
                Some(device) => device.check(access)?,
                None => {
                    let device = HeldDevice::open(Path::new(path), access)?;
                    self.held.insert(path.clone(), Arc::new(device));
                }
            }
        }
        self.passed.insert(stack.name.clone());
        Ok(())
    }

    /// Undoes volumes on these devices that belong to stacks other than `except`; returns whether there were
    /// any.
    fn leave(&mut self, paths: &[String], except: Option<&str>) -> bool {
        let before = self.volumes.len();
        self.volumes.retain(|name, volume| {
            Some(name.as_str()) == except || !paths.iter().any(|path| volume.is_on(Path::new(path)))
        });
        self.volumes.len() < before
    }

    /// The device and host of a model stack that passed [`Targets::check`].
    pub fn model(&self, stack: &Stack) -> Option<&Modelled> {
        self.models.get(&stack.name)
    }

    /// The simulated host of a database on a model stack, and the drive's profile; `None` for other stacks.
    pub fn simulated(
        &self,
        stack: &Stack,
        memory: Option<Bytes>,
        seed: Seed,
    ) -> Option<(SimulatedHost, &Profile)> {
        let Modelled { profile, host, costs } = self.model(stack)?;
        let own = || psync_path(profile, self.here);
        let path = if stack.host == "auto" { own() } else { *host };
        let simulated = SimulatedHost {
            cores: if stack.cores > 0 { stack.cores } else { observe::cpus() },
            memory,
            file_system: match stack.file_system {
                FileSystem::Ext4NoJournal => vtime::FileSystem::Ext4NoJournal,
                FileSystem::Raw => vtime::FileSystem::Raw,
                _ => vtime::FileSystem::Ext4,
            },
            path,
            costs: *costs,
            cpu_time: stack.cpu_time,
            condition: stack.condition,
            seed,
        };
        Some((simulated, profile))
    }

    /// Header records of all stacks.
    pub fn records(&self, study: &Study, seed: Seed) -> Vec<StackRecord> {
        let record = |stack: &Stack| {
            let model = self.model(stack);
            let attached = || self.attachable.get(&stack.name).filter(|_| stack.attach);
            let profile = model.map(|model| &model.profile).or_else(attached);
            let place = match &stack.device {
                // Devices of one stack are alike; the first represents them.
                DeviceName::Paths(paths) => PathBuf::from(&paths[0]),
                _ => self.directory(stack),
            };
            let names = [stack.title.as_str(), profile.map_or("", |profile| &profile.title)];
            let title = names.into_iter().find(|name| !name.is_empty()).unwrap_or(&stack.name);
            let wal = stack.wal.as_ref().filter(|_| stack.title.is_empty());
            let title =
                wal.map_or_else(|| title.to_owned(), |wal| format!("{title}, WAL on {wal}"));
            let record = StackRecord {
                name: stack.name.clone(),
                title,
                device: stack.device.text(),
                storage: (profile.is_none() && !stack.attach).then(|| StorageFacts::read(&place)),
                not_covered: profile.map(|profile| profile.not_covered.clone()),
                constants: profile.map(predicted::constants),
                ..StackRecord::default()
            };
            match model {
                Some(model) => predicted::stack_record(record, stack, model, study, seed),
                None => record,
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

    /// Opens the block target of a stack, creating and filling its file first if needed; `None` if `step`
    /// requested a stop.
    pub fn open(
        &mut self,
        stack: &Stack,
        step: &mut dyn FnMut(Bytes) -> bool,
    ) -> Result<Option<Opened>, RunnerError> {
        if let DeviceName::Paths(paths) = &stack.device {
            self.hold(stack, paths)?;
            let devices = paths.iter().map(|path| &self.held[path]);
            let files: Result<Vec<File>, StackError> = devices
                .clone()
                .map(|device| device.file(stack.direct, stack.allow_write))
                .collect();
            let paths = devices.map(|device| device.path()).collect();
            return Ok(Some(Opened { files: files?, paths }));
        }
        if stack.attach {
            let path = self.attach(stack, false)?;
            return Ok(Some(Opened {
                files: vec![open_file(&path, stack.direct)?],
                paths: vec![path],
            }));
        }
        if !self.filled.contains_key(&stack.name) {
            let path = self.area(stack)?.path().join("block.data");
            match fill(&path, stack.size(), stack.direct, step)? {
                Some(made) => self.filled.insert(stack.name.clone(), made.path),
                None => return Ok(None),
            };
        }
        let path = self.filled[&stack.name].clone();
        let files = vec![open_file(&path, stack.direct)?];
        Ok(Some(Opened { files, paths: vec![path] }))
    }

    /// Attaches the model of a stack again; returns its file.
    fn attach(&mut self, stack: &Stack, block: bool) -> Result<PathBuf, RunnerError> {
        self.volumes.remove(&stack.name);
        self.drives.remove(&stack.name);
        let journal = self.journal;
        self.area(stack)?;
        let (area, profile) = (&self.areas[&stack.name], &self.attachable[&stack.name]);
        let DeviceName::Model(name) = &stack.device else {
            unreachable!("invariant: only models are attached");
        };
        let made = emulated::start(journal, area, (stack, name, profile.capacity), block)?;
        let path = made.file().to_owned();
        self.drives.add(&stack.name, Arc::new(made));
        Ok(path)
    }

    /// Begins or ends the preload of an attached `staged` model; other stacks are unaffected.
    pub fn stage(&mut self, stack: &Stack, staging: bool) -> Result<(), RunnerError> {
        let drive = self.drives.of(&stack.name).filter(|_| stack.staged);
        Ok(drive.map_or(Ok(()), |drive| drive.stage(staging))?)
    }

    /// The device of a stack's database volume, and its rate limits.
    pub fn limit(&self, stack: &Stack) -> Option<(PathBuf, DeviceRates)> {
        let limit = stack.limit?;
        let volume = self.volumes.get(&stack.name)?;
        let rates = DeviceRates {
            reads: limit.reads,
            writes: limit.writes,
            read_bytes: limit.read_bytes,
            write_bytes: limit.write_bytes,
        };
        Some((volume.device().to_owned(), rates))
    }

    /// Whether the stack still has to be filled for preconditioning; returns `true` once.
    pub fn owes_fill(&mut self, stack: &Stack) -> bool {
        self.preconditioned.insert(stack.name.clone())
    }

    /// The volume of a stack's databases, created if needed; existing data is not touched.
    fn volume(&mut self, stack: &Stack) -> Result<&Volume, RunnerError> {
        let paths = match &stack.device {
            DeviceName::Paths(paths) => paths.as_slice(),
            _ => &[],
        };
        self.leave(paths, Some(&stack.name));
        if stack.attach && !self.volumes.contains_key(&stack.name) {
            self.attach(stack, true)?;
            let (journal, format) = (self.journal, format_of(stack.file_system));
            self.area(stack)?;
            let area = &self.areas[&stack.name];
            let drive = self.drives.of(&stack.name).expect("invariant: it was attached above");
            let made = Volume::on_loop_of(journal, area, emulated::block(&drive)?, format)?;
            self.volumes.insert(stack.name.clone(), made);
        }
        if !self.volumes.contains_key(&stack.name) {
            let (journal, format) = (self.journal, format_of(stack.file_system));
            let made = match paths {
                [path, ..] => {
                    // Checked by the guard again, also if another stack used it in between.
                    self.hold(stack, paths)?;
                    let device = Arc::clone(&self.held[path]);
                    Volume::on_device(journal, self.area(stack)?, device, format)?
                }
                [] => Volume::on_loop(journal, self.area(stack)?, stack.size(), format)?,
            };
            self.volumes.insert(stack.name.clone(), made);
        }
        Ok(&self.volumes[&stack.name])
    }

    /// The raw device of a stack's databases as an earlier process left it, if any.
    pub fn left_device(&mut self, stack: &Stack) -> Result<Option<PathBuf>, RunnerError> {
        let own = matches!(stack.device, DeviceName::Paths(_));
        if !own || format_of(stack.file_system).is_some() {
            return Ok(None);
        }
        Ok(Some(self.volume(stack)?.path().to_owned()))
    }

    /// An empty directory for a database that runs in virtual time; in memory if its engine maps files.
    pub fn simulated_place(&mut self, stack: &Stack, job: &Job) -> Result<PathBuf, RunnerError> {
        if let Job::Sql(job) = job {
            let name = format!("tables-{}", job.engine.word());
            let directory = self.directory(stack);
            return self.area_in(&directory, &name);
        }
        let engine = job
            .key_value()
            .and_then(|job| engines::list().find(&job.engine, study::Operations::KeyValue));
        if engine.is_none_or(|one| one.virtual_time != VirtualTime::InMemory) {
            return Ok(self.area(stack)?.fresh("database")?);
        }
        self.area_in(Path::new(MEMORY), &format!("{}-memory", stack.name))
    }

    /// An empty directory for the write-ahead log of the databases of the stack `user`.
    pub fn wal_place(&mut self, stack: &Stack, user: &Stack) -> Result<PathBuf, RunnerError> {
        if stack.file_system == FileSystem::AsIs && !matches!(stack.device, DeviceName::Paths(_)) {
            return absolute(&self.area(stack)?.fresh(&format!("wal-{}", user.name))?);
        }
        absolute(&self.database_place(stack)?.0)
    }

    /// An empty directory for a copy of the tables of a simulated drive.
    pub fn copy_place(&mut self, stack: &Stack) -> Result<PathBuf, RunnerError> {
        let directory = self.directory(stack);
        self.area_in(&directory, "copy")
    }

    /// An empty directory for a database, in a work area of that name.
    fn area_in(&mut self, directory: &Path, name: &str) -> Result<PathBuf, RunnerError> {
        let key = directory.join(name).display().to_string();
        if !self.areas.contains_key(&key) {
            let area = WorkArea::create(self.journal, directory, name)?;
            self.areas.insert(key.clone(), area);
        }
        Ok(self.areas[&key].fresh("database")?)
    }

    /// An empty directory for a database, on a fresh file system if the stack has its own, or the raw device;
    /// and a note.
    pub fn database_place(
        &mut self,
        stack: &Stack,
    ) -> Result<(PathBuf, Option<String>), RunnerError> {
        let own = matches!(stack.device, DeviceName::Paths(_));
        if stack.file_system == FileSystem::AsIs && !own {
            return Ok((self.area(stack)?.fresh("database")?, None));
        }
        if stack.attach {
            // Its drive restarts as well.
            self.volumes.remove(&stack.name);
        }
        let volume = self.volume(stack)?;
        volume.remake()?;
        let device = match (own, stack.attach) {
            (true, _) => "the device",
            (false, true) => "a direct-I/O loop device on the attached disk",
            (false, false) => "a loop device with direct I/O",
        };
        if volume.is_raw() {
            return Ok((volume.path().to_owned(), Some(format!("{device}, no file system"))));
        }
        let dir = volume.path().join("database");
        std::fs::create_dir(&dir).map_err(StackError::io("make", &dir))?;
        let (options, journal) = (volume.options(), stack.file_system == FileSystem::Ext4NoJournal);
        let journal = if journal { ", without a journal" } else { "" };
        Ok((dir, Some(format!("on fresh {options}{journal}, {device}"))))
    }
}

fn absolute(path: &Path) -> Result<PathBuf, RunnerError> {
    Ok(path.canonicalize().map_err(StackError::io("find", path))?)
}

/// The jobs of a plan that use a stack, also for the log alone.
fn jobs_on<'p>(study: &Study, stack: &Stack, plan: &'p Plan) -> Vec<&'p Job> {
    let own = plan.trials.iter().filter(|trial| study.uses(trial, stack));
    own.map(|trial| &trial.job).collect()
}

/// How a fresh file system is created; `None` to use the directory's.
fn format_of(wanted: FileSystem) -> Option<Format> {
    match wanted {
        FileSystem::AsIs | FileSystem::Raw => None,
        FileSystem::Ext4 => Some(Format::EXT4),
        FileSystem::Ext4NoJournal => Some(Format::EXT4_NO_JOURNAL),
        FileSystem::Xfs => Some(Format::XFS),
        FileSystem::Btrfs => Some(Format::BTRFS),
    }
}
