//! Power cuts under databases: a real engine writes on a modelled drive, the power is cut at a write drawn
//! from a seed, and the database is reopened and compared with the acknowledgements.
//!
//! Each cut has a fresh database, on a simulated drive or in a fresh file system on an attached one. At the
//! cut the drive loses some unflushed blocks, and the engine's process is killed; then the engine recovers
//! from what is left. Invariants: draws depend on the seed and the number of the cut only (which write that
//! is depends on the engine's threads); the log of acknowledgements is not on the drive; nothing of a cut
//! outlives it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use archive::output::make_directory;
use attach::{Missing, Store};
use stack::{Journal, StackError, Volume, WorkArea};
use study::{Durability, Job, Trial};
use units::{Bytes, Nanos};
use vtime::CutLosses;

use crate::RunnerError;
use crate::cut_databases::{CutDatabase, Kept, SURE};
use crate::cut_records::{AttachedDrive, CutRecord, NAMES_MAX, PowerCuts};
use crate::drives::{CutPlan, DriveProcess, DriveSpec};
use crate::simulated_cuts::SimulatedDrive;

/// Smallest drive that is permitted, to leave room for a file system.
const SIZE_LEAST: Bytes = Bytes::mib(64);
/// Time limit for a loop device to disappear after its file system.
const PATIENCE: Duration = Duration::from_secs(20);

/// Cuts the power `plan.cuts` times; calls `heard` after each cut. Returns fewer cuts if `stop` was set.
///
/// # Errors
/// A requirement is missing; data loss is a result.
pub fn power_cuts(
    plan: &PowerCuts<'_>,
    trial: (&study::Study, &Trial),
    (journal, stop): (&Journal, &AtomicBool),
    heard: &mut dyn FnMut(&CutRecord),
) -> Result<Vec<CutRecord>, RunnerError> {
    if let Some(keep) = plan.keep {
        make_directory(keep)?;
    }
    match plan.attached {
        None => {
            let drive = SimulatedDrive::new(plan, trial, journal)?;
            repeat(plan, &mut |number| drive.cut((plan, number), trial, (journal, stop)), heard)
        }
        Some(attached) => {
            let drive = Drive::attach(plan, attached, journal)?;
            let mut cut = |number| one(plan, number, (&drive, trial), (journal, stop));
            let cuts = repeat(plan, &mut cut, heard);
            drive.served.end().map_err(RunnerError::from).and(cuts)
        }
    }
}

/// All cuts, until one is stopped.
fn repeat(
    plan: &PowerCuts<'_>,
    cut: &mut dyn FnMut(u32) -> Result<Option<CutRecord>, RunnerError>,
    heard: &mut dyn FnMut(&CutRecord),
) -> Result<Vec<CutRecord>, RunnerError> {
    let mut cuts = Vec::new();
    for number in 1..=plan.cuts {
        let Some(cut) = cut(number)? else { break };
        heard(&cut);
        cuts.push(cut);
    }
    Ok(cuts)
}

/// Path latency that the model leaves to the client: longer than any, so that no model is too fast.
const PATH: Nanos = Nanos::from_millis(10);

/// The drive of all cuts.
struct Drive {
    served: DriveProcess,
    area: WorkArea,
    of: AttachedDrive,
}

impl Drive {
    fn attach(
        plan: &PowerCuts<'_>,
        of: AttachedDrive,
        journal: &Journal,
    ) -> Result<Self, RunnerError> {
        let refused = |reason: String, next: String| {
            StackError::refused(&format!("model:{}", plan.model), reason, next)
        };
        attach::available().map_err(|Missing { reason, next }| refused(reason, next))?;
        let (profile, size) = (crate::profile(plan.model)?, of.size);
        if size < SIZE_LEAST || size > profile.capacity {
            let reason =
                format!("a drive of {size} is not possible: {SIZE_LEAST} to {}", profile.capacity);
            return Err(refused(reason, "--size 256MiB".into()).into());
        }
        let area = WorkArea::create(journal, plan.at, "power-cuts")?;
        let spec = DriveSpec {
            condition: study::Condition::Fresh,
            seed: plan.seed.0,
            spin: Some(Nanos::ZERO),
            path: Some(PATH),
            transport: Some("classic".into()),
            ..DriveSpec::own(plan.model, size, area.fresh("drive")?)
        };
        Ok(Self { served: DriveProcess::start(&spec, Some(journal.mark()))?, area, of })
    }

    fn volume(&self, journal: &Journal) -> Result<Volume, StackError> {
        Volume::over_file(journal, &self.area, self.served.file(), Some(self.of.format))
    }

    /// Unmounts a file system, and waits until no request reaches the drive any more.
    fn take_off(&self, volume: Volume) -> Result<(), StackError> {
        drop(volume);
        let users = stack::still_used(self.served.file(), None, PATIENCE);
        if users.is_empty() {
            return Ok(());
        }
        Err(StackError::refused(
            &self.served.file().display(),
            format!("it is still in use by {}", users.join(", ")),
            "end that, then: crosspoint clean",
        ))
    }
}

/// The contents of a drive after a cut; removed with the work area unless kept.
struct DriveImage<'a> {
    store: Store,
    keep: &'a Path,
    name: String,
}

impl<'a> DriveImage<'a> {
    fn take(
        drive: &Drive,
        (plan, keep): (&PowerCuts<'_>, &'a Path),
        number: u32,
    ) -> Result<Self, StackError> {
        let path = drive.area.path().join("image");
        let _ = std::fs::remove_file(&path);
        drive.served.copy_to(&path)?;
        let store = Store::in_file(&path, drive.of.size);
        let store = store.map_err(StackError::io("write", &path))?;
        Ok(Self { store, keep, name: format!("seed-{}-cut-{number}", plan.seed.0) })
    }

    /// Keeps the drive image under a new name, or returns why it could not be kept.
    fn keep(&self) -> Result<PathBuf, String> {
        for number in 1..NAMES_MAX {
            let more = if number == 1 { String::new() } else { format!("-{number}") };
            let path = self.keep.join(format!("{}{more}.img", self.name));
            match self.store.copy_to(&path) {
                Ok(()) => return Ok(path),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(format!("{}: {error}", path.display())),
            }
        }
        Err(format!("{}: too many folders of that name", self.keep.join(&self.name).display()))
    }
}

/// One cut; `None` if stopped.
fn one(
    plan: &PowerCuts<'_>,
    number: u32,
    (drive, (study, trial)): (&Drive, (&study::Study, &Trial)),
    (journal, stop): (&Journal, &AtomicBool),
) -> Result<Option<CutRecord>, RunnerError> {
    let (seed, write) = plan.draw(number);
    let experiment = &study.experiment[0];
    drive.served.begin_faults(None)?;
    let volume = drive.volume(journal)?;
    volume.remake()?;
    let place = volume.path().join("database");
    std::fs::create_dir(&place).map_err(StackError::io("make", &place))?;
    // Everything is flushed before counting starts.
    std::fs::File::open(volume.path())
        .and_then(|place| Ok(rustix::fs::syncfs(place)?))
        .map_err(StackError::io("sync", volume.path()))?;
    let with = (journal, stop);
    let mut database = match &trial.job {
        Job::Kv(job) => {
            let ledger = drive.area.path().join("acknowledged");
            CutDatabase::of_kv((experiment, trial, job), (place, ledger), seed)
        }
        Job::Sql(job) => {
            let log = drive.area.path().join("server.log");
            CutDatabase::of_sql(job, (place, log), engine::Hosting { journal, stop })?
        }
        Job::Block(_) | Job::Act(_) => unreachable!("invariant: databases are cut"),
    };
    drive.served.begin_faults(Some(CutPlan { seed: seed.0, write, dropped_flushes: plan.lies }))?;
    // A drive without a server has lost its power, too.
    let gone = || !matches!(drive.served.power_cut(), Ok(None));
    let written = database.write(&gone, with);
    let under_load = gone();
    let went = drive.served.cut_power();
    let drive_lost = drive.served.power_cut();
    database.end();
    drive.take_off(volume)?;
    written?;
    went?;
    let drive_lost = drive_lost?.unwrap_or_default();
    if stop.load(Ordering::Relaxed) {
        return Ok(None);
    }
    let acknowledged = database.acknowledged();
    let image = match plan.keep {
        Some(keep) => Some(DriveImage::take(drive, (plan, keep), number)?),
        None => None,
    };
    // Power is restored.
    drive.served.begin_faults(None)?;
    let volume = drive.volume(journal)?;
    let kept = match volume.mount_again() {
        Ok(()) => database.look(with)?,
        Err(error) if error.is_busy() => return Err(error.into()),
        Err(error) => Kept::Unusable(format!("the file system cannot be mounted: {error}")),
    };
    database.end();
    drive.take_off(volume)?;
    let image = match image {
        Some(image) if !matches!(kept, Kept::All(_)) => Some(image.keep()),
        _ => None,
    };
    let losses = CutLosses {
        unflushed: drive_lost.unflushed,
        lost: drive_lost.lost.len() as u64,
        torn: drive_lost.torn(),
    };
    let blocks = drive_lost.lost;
    let record = CutRecord { number, write, under_load, losses, blocks, acknowledged, kept, image };
    Ok((!stop.load(Ordering::Relaxed)).then_some(record))
}

/// The study of power cuts for the engine of this command: it writes as fast as the engine commits with this
/// durability; `None` for an engine without support for power cuts.
#[must_use]
pub fn study_of(command: &str, durability: Durability) -> Option<String> {
    let with =
        |one: &&'static study::Descriptor| one.command == command && one.power_cuts.is_some();
    let descriptor = engines::descriptors().find(with)?;
    let name = descriptor.name;
    let wanted = format!("durability = \"{}\"", durability.word());
    let keys = descriptor.power_cuts?.replace("durability = \"device\"", &wanted);
    let job = format!("[experiment.job]\nengine = {name:?}\n{keys}");
    let seconds = SURE.as_secs();
    Some(format!(
        "schema = 2\nname = \"power-cuts\"\n[[stack]]\nname = \"drive\"\ndevice = \"file\"\n\
         [[experiment]]\nname = \"writes\"\nwarm_up = \"0s\"\nduration = \"{seconds}s\"\n\
         interval = \"1s\"\non_error = \"stop\"\n{job}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The built-in study of every engine must parse.
    #[test]
    fn every_engine_has_its_study() {
        let with = engines::descriptors().filter(|one| one.power_cuts.is_some());
        for engine in with.map(|one| one.command) {
            for durability in [Durability::None, Durability::Os, Durability::Device] {
                let text = study_of(engine, durability).unwrap();
                let trials = study::plan(&study::parse(&text, engines::list()).unwrap()).trials;
                let job = &trials[0].job;
                let of = job.key_value().map(|job| job.durability);
                let found = of.or_else(|| job.sql().map(|job| job.durability));
                assert_eq!((trials.len(), found), (1, Some(durability)), "{engine}");
            }
        }
        assert_eq!(study_of("oracle", Durability::Device), None);
    }
}
