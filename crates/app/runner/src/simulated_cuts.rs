//! Power cuts under embedded databases in virtual time: no privileges, hundreds a minute.
//!
//! The engine runs unmodified on a simulated drive; at the cut, what survives of its files becomes a new
//! directory ([`vtime::PowerCut`]), in which the engine recovers in real time.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device::Profile;
use sim::MeasuredCosts;
use stack::{Journal, StackError, WorkArea};
use study::{Job, KvJob, Study, Trial};
use units::Seed;
use vtime::{FileSystem, PowerCut};

use crate::RunnerError;
use crate::cut_databases::{CutDatabase, Kept};
use crate::cut_records::{CutRecord, NAMES_MAX, PowerCuts};
use crate::databases;

use crate::simulated::{MEMORY, SimulatedHost, psync_path};

/// The simulated drive of all cuts.
pub(crate) struct SimulatedDrive {
    profile: Profile,
    area: WorkArea,
}

impl SimulatedDrive {
    /// A drive for the files of a key-value engine, which are in memory.
    ///
    /// # Errors
    /// The engine does not run in virtual time, or there is no such model.
    pub fn new(
        plan: &PowerCuts<'_>,
        (_, trial): (&Study, &Trial),
        journal: &Journal,
    ) -> Result<Self, RunnerError> {
        if kv(trial).is_none() {
            let reason = "the power of a server's drive is not cut in virtual time".to_owned();
            let refused = StackError::refused(
                &format!("model:{}", plan.model),
                reason,
                "add --attach, which needs root",
            );
            return Err(refused.into());
        }
        let profile = crate::profile(plan.model)?;
        Ok(Self { profile, area: WorkArea::create(journal, Path::new(MEMORY), "power-cuts")? })
    }

    fn host(&self, seed: Seed) -> SimulatedHost {
        SimulatedHost {
            cores: observe::cpus(),
            memory: None,
            file_system: FileSystem::Ext4,
            path: psync_path(&self.profile, None),
            costs: MeasuredCosts::default(),
            cpu_time: None,
            condition: study::Condition::Fresh,
            seed,
        }
    }

    /// One cut; `None` if stopped.
    pub fn cut(
        &self,
        (plan, number): (&PowerCuts<'_>, u32),
        (study, trial): (&Study, &Trial),
        (journal, stop): (&Journal, &AtomicBool),
    ) -> Result<Option<CutRecord>, RunnerError> {
        let (seed, write) = plan.draw(number);
        let place = self.area.fresh("database")?;
        let ledger = self.area.path().join("acknowledged");
        let cut = PowerCut {
            seed,
            write,
            dropped_flushes: plan.lies,
            directory: place.clone(),
            image: self.area.path().join("image"),
            losses: Arc::default(),
        };
        let (image, losses) = (cut.image.clone(), Arc::clone(&cut.losses));
        let (host, drive) = self.host(seed).make(&self.profile, &place)?;
        let drive = drive.with_power_cut(cut).map_err(StackError::io("read", &place))?;
        let job = kv(trial).expect("invariant: checked when the drive was made");
        let of = (&study.experiment[0], trial, job);
        let mut database = CutDatabase::of_kv(of, (place.clone(), ledger), seed);
        let is_gone = || losses.get().is_some();
        database.write_simulated((&host, drive), &is_gone, (journal, stop))?;
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let acknowledged = database.acknowledged();
        let under_load = is_gone();
        let mut kept_image = None;
        if under_load {
            if plan.keep.is_some() {
                let copy = self.area.path().join("kept");
                databases::copy(&image, &copy).map_err(StackError::io("copy", &image))?;
                kept_image = Some(copy);
            }
            let replaced = fs::remove_dir_all(&place).and_then(|()| fs::rename(&image, &place));
            replaced.map_err(StackError::io("replace", &place))?;
        }
        let kept = database.look((journal, stop))?;
        let image = kept_image.and_then(|copy| {
            if matches!(kept, Kept::All(_)) {
                let _ = fs::remove_dir_all(&copy);
                return None;
            }
            Some(keep(&copy, plan.keep?, &format!("seed-{}-cut-{number}", plan.seed.0)))
        });
        let losses = losses.get().copied().unwrap_or_default();
        let blocks = Vec::new();
        let record =
            CutRecord { number, write, under_load, losses, blocks, acknowledged, kept, image };
        Ok((!stop.load(Ordering::Relaxed)).then_some(record))
    }
}

fn kv(trial: &Trial) -> Option<&KvJob> {
    match &trial.job {
        Job::Kv(job) => Some(job),
        _ => None,
    }
}

/// Keeps the files of a drive in a folder under a new name, or returns why they could not be kept.
fn keep(copy: &Path, folder: &Path, name: &str) -> Result<PathBuf, String> {
    for number in 1..NAMES_MAX {
        let more = if number == 1 { String::new() } else { format!("-{number}") };
        let path = folder.join(format!("{name}{more}"));
        if !path.exists() {
            let kept = databases::keep(copy, &path);
            let _ = fs::remove_dir_all(copy);
            return kept
                .map(|()| path.clone())
                .map_err(|error| format!("{}: {error}", path.display()));
        }
    }
    Err(format!("{}: too many folders of that name", folder.join(name).display()))
}
