//! Reading a run folder.
//!
//! Invariants: reading changes nothing; damage is reported with the file's name, never skipped.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use stats::read_log;
use study::{Engines, Study};

use crate::document::{FORMAT, TrialDocument};
use crate::files::{
    Digest, HEADER, LOG, ORIGINAL, RunFile, SETTING_ASIDE, STUDY, SizeLimit, TRIAL, TRIALS,
    UNFINISHED,
};
use crate::running::{RUNNING, read_running};
use crate::sums::Sums;
use crate::{ArchiveError, RunHeader, TrialOutcome, TrialRecord};

/// Maximum number of listed damaged and missing trials.
const DAMAGES_MAX: usize = 1000;

/// A run folder whose header was read.
pub(crate) struct Opened {
    pub header: RunHeader,
    pub study: Study,
    /// Checksums of its files, if it has them.
    pub sums: Option<Sums>,
}

/// A run that was read.
#[derive(Debug, Clone)]
pub struct Run {
    /// Name of the folder.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// The header.
    pub header: RunHeader,
    /// The resolved study.
    pub study: Study,
    /// Finished trials by number.
    pub trials: Vec<TrialRecord>,
}

impl Run {
    /// Reads a run with all its finished trials.
    ///
    /// # Errors
    /// [`ArchiveError`], naming the file; also if a trial in the list of checksums is missing.
    pub fn read(path: &Path, engines: Engines) -> Result<Self, ArchiveError> {
        let (run, mut damaged) = Self::read_intact(path, engines)?;
        match damaged.is_empty() {
            true => Ok(run),
            false => Err(damaged.swap_remove(0)),
        }
    }

    /// Reads a run with its intact trials; also returns what is wrong with the others.
    ///
    /// # Errors
    /// [`ArchiveError`] if the run itself cannot be read.
    pub fn read_intact(
        path: &Path,
        engines: Engines,
    ) -> Result<(Self, Vec<ArchiveError>), ArchiveError> {
        let Opened { header, study, sums } = read_header(path, engines)?;
        let dir = path.join(TRIALS);
        let (mut trials, mut running, mut damaged) = (Vec::new(), Vec::new(), Vec::new());
        refuse_link(&dir)?;
        if !dir.is_dir() {
            return Err(ArchiveError::damaged(&dir, "it is missing, with all trials"));
        }
        let names = names_in(&dir)?;
        // A trial that ended in the meantime is in the list now.
        let listed = sums.as_ref().map(Sums::trials);
        let is_new =
            |name: &String| listed.as_ref().is_some_and(|listed| !listed.contains(name.as_str()));
        let is_trial = |name: &&String| !name.starts_with('.');
        let sums = match names.iter().filter(is_trial).any(is_new) {
            true => Sums::read(path, header.sums)?,
            false => sums,
        };
        for name in &names {
            if let Some(slug) = name.strip_prefix(RUNNING) {
                refuse_link(&dir.join(name))?;
                running.extend(Self::killed(&dir, slug));
            } else if !name.starts_with('.') {
                match Self::read_trial(&dir.join(name), sums.as_ref()) {
                    Ok(trial) => trials.push(trial),
                    Err(error @ ArchiveError::Damaged { .. }) => damaged.push(error),
                    Err(error) => return Err(error),
                }
            }
        }
        for slug in sums.iter().flat_map(Sums::trials).filter(|slug| !names.contains(*slug)) {
            // A running trial may have been renamed in the meantime, unless a kill prevented that.
            let hidden =
                [UNFINISHED, SETTING_ASIDE].map(|prefix| dir.join(format!("{prefix}{slug}")));
            let explained = hidden[0].is_dir() || hidden[1].join(TRIAL).exists();
            if !explained && !dir.join(slug).exists() {
                if damaged.len() == DAMAGES_MAX {
                    break;
                }
                let reason = "the trial is missing: sums.txt lists it, but its folder is gone";
                damaged.push(ArchiveError::damaged(&dir.join(slug), reason));
            }
        }
        // A complete trial's journal was about to be removed.
        running.retain(|one: &TrialRecord| trials.iter().all(|trial| trial.number != one.number));
        trials.extend(running);
        trials.sort_by_key(|trial| trial.number);
        if study.upgraded {
            name_jobs(&study, &mut trials);
        }
        let full = fs::canonicalize(path).map_err(ArchiveError::io("find", path))?;
        let name = full.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        Ok((Self { name, path: path.to_owned(), header, study, trials }, damaged))
    }

    /// The remains of a killed or running trial; `None` if no complete interval was recorded.
    fn killed(dir: &Path, slug: &str) -> Option<TrialRecord> {
        let mut trial = read_running(&dir.join(format!("{RUNNING}{slug}"))).ok()?;
        slug.clone_into(&mut trial.slug);
        trial.result.recording.measured().next()?;
        Some(trial)
    }

    /// Whether trials of the plan are missing or were cut short.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.trials.len() < self.header.trials_planned as usize
            || self.trials.iter().any(|trial| trial.outcome == TrialOutcome::Partial)
    }

    /// Reads one trial's folder.
    ///
    /// # Errors
    /// [`ArchiveError::Damaged`] if a file is missing, cut off or altered.
    pub(crate) fn read_trial(
        folder: &Path,
        sums: Option<&Sums>,
    ) -> Result<TrialRecord, ArchiveError> {
        refuse_link(folder)?;
        let slug =
            folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let listed = |file: &str| match (sums, folder.ancestors().nth(2)) {
            (Some(sums), Some(run)) => {
                sums.expected(run, &format!("{TRIALS}/{slug}/{file}")).map(Some)
            }
            _ => Ok(None),
        };
        let path = folder.join(TRIAL);
        let document: TrialDocument =
            RunFile::open(&path, SizeLimit::TRIAL, listed(TRIAL)?)?.json()?;
        check_format(&path, document.format)?;
        let log_path = folder.join(LOG);
        let own = Digest { bytes: document.log_bytes, crc32: document.log_crc32 };
        if listed(LOG)?.is_some_and(|listed| listed != own) {
            return Err(ArchiveError::damaged(&log_path, "it is not the log of this trial"));
        }
        let mut trial =
            document.into_record(slug).map_err(|reason| ArchiveError::damaged(&path, reason))?;
        let mut log = RunFile::open(&log_path, SizeLimit::LOG, Some(own))?;
        let read = read_log(log.reader(), &mut trial.result.recording);
        // A checksum mismatch is the cause of a parse error: it is reported first.
        log.finish()?;
        read.map_err(|error| ArchiveError::damaged(&log_path, error))?;
        if !trial.result.recording.is_consistent() {
            return Err(ArchiveError::damaged(
                &path,
                "more operations carried over from the warm-up than completed",
            ));
        }
        Ok(trial)
    }
}

/// Gives trials of an earlier schema the current hashes of their jobs, to compare them with later runs.
fn name_jobs(study: &Study, trials: &mut [TrialRecord]) {
    let hashes: HashMap<String, String> =
        study::plan(study).trials.iter().map(|trial| (trial.slug(), trial.job_hash())).collect();
    for trial in trials.iter_mut().filter(|trial| !trial.job.is_empty()) {
        if let Some(hash) = hashes.get(&trial.slug) {
            trial.job.clone_from(hash);
        }
    }
}

/// Names in a folder.
fn names_in(dir: &Path) -> Result<BTreeSet<String>, ArchiveError> {
    let entries = fs::read_dir(dir).map_err(ArchiveError::io("read", dir))?;
    let name = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.map_err(ArchiveError::io("read", dir))?;
        Ok(entry.file_name().to_string_lossy().into_owned())
    };
    entries.map(name).collect()
}

/// Refuses links: they lead out of the run.
pub(crate) fn refuse_link(path: &Path) -> Result<(), ArchiveError> {
    match fs::symlink_metadata(path) {
        Ok(facts) if facts.is_symlink() => {
            Err(ArchiveError::damaged(path, "it is a symbolic link"))
        }
        _ => Ok(()),
    }
}

/// The format of a header.
#[derive(Deserialize)]
struct Format {
    #[serde(default)]
    format: u32,
}

pub(crate) fn read_header(path: &Path, engines: Engines) -> Result<Opened, ArchiveError> {
    let file = path.join(HEADER);
    if !file.exists() {
        return Err(ArchiveError::NotARun(path.to_owned()));
    }
    // The format first: a newer header may have unknown fields.
    let text = RunFile::open(&file, SizeLimit::HEADER, None)?.bytes()?;
    let Format { format } =
        serde_json::from_slice(&text).map_err(|error| ArchiveError::damaged(&file, error))?;
    check_format(&file, format)?;
    let header: RunHeader =
        serde_json::from_slice(&text).map_err(|error| ArchiveError::damaged(&file, error))?;
    let sums = Sums::read(path, header.sums)?;
    let expected = |name: &str| sums.as_ref().map(|sums| sums.expected(path, name)).transpose();
    if expected(HEADER)?.is_some_and(|expected| expected != Digest::of(&text)) {
        return Err(ArchiveError::damaged(&file, "checksum mismatch"));
    }
    let study_path = path.join(STUDY);
    let text = RunFile::open(&study_path, SizeLimit::STUDY, expected(STUDY)?)?.bytes()?;
    let text =
        String::from_utf8(text).map_err(|error| ArchiveError::damaged(&study_path, error))?;
    if sums.as_ref().is_some_and(|sums| sums.has(ORIGINAL)) {
        RunFile::open(&path.join(ORIGINAL), SizeLimit::STUDY, expected(ORIGINAL)?)?.finish()?;
    }
    let study = study::parse_stored(&text, engines)
        .map_err(|error| ArchiveError::damaged(&study_path, error))?;
    Ok(Opened { header, study, sums })
}

fn check_format(path: &Path, found: u32) -> Result<(), ArchiveError> {
    if found != FORMAT {
        return Err(ArchiveError::Format { path: path.to_owned(), found, known: FORMAT });
    }
    Ok(())
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::lines::{from_line, to_line};
    use crate::{Reopened, RunWriter};
    use observe::Provenance;
    use stats::{Limit, Recorder, Sample, Timeline, TrialResult};
    use units::Nanos;
    use workload::{OpClass, Outcome};

    const STUDY: &str = "schema = 1\nname = \"s\"\n[[stack]]\nname = \"a\"\ndevice = \"file\"\n\
        [[experiment]]\nname = \"e\"\n[experiment.block]\nqueue_depth = [1, 2]\n";

    fn trial(number: u32) -> TrialRecord {
        let timeline = Timeline { warm_up: Nanos(100), measure: Nanos(500), interval: Nanos(100) };
        let mut recorder = Recorder::new(timeline, &[OpClass::Read]);
        for now in (0..700u64).step_by(7) {
            while recorder.poll(Nanos(now)).is_some() {}
            recorder.record(Sample {
                class: OpClass::Read,
                intended: Nanos(now.saturating_sub(5)),
                issued: Nanos(now.saturating_sub(5)),
                completed: Nanos(now),
                bytes: 4096,
                outcome: if now == 490 { Outcome::Failed(5) } else { Outcome::Done },
                position: now,
            });
        }
        TrialRecord {
            number,
            slug: format!("{number:04}-e-a"),
            experiment: "e".into(),
            stack: "a".into(),
            engine: "block".into(),
            source: study::Source::Measured,
            point: [("queue_depth".to_owned(), number.to_string())].into(),
            defaults: [("batch".to_owned(), "1".to_owned())].into(),
            job: "0123456789abcdef".into(),
            repetition: 1,
            outcome: TrialOutcome::Complete,
            result: TrialResult {
                path: "test".into(),
                notes: vec!["a note".into()],
                limits: vec![Limit::Thread { busy: 0.97 }],
                recording: recorder.finish(Nanos(700)),
                ..TrialResult::default()
            },
        }
    }

    fn run(dir: &Path) -> (PathBuf, RunWriter) {
        let path = dir.join("run");
        let header = RunHeader {
            format: FORMAT,
            study: "s".into(),
            started: "2026-01-01".into(),
            provenance: Provenance::read("0", "test"),
            stacks: Vec::new(),
            trials_planned: 2,
            skipped: Vec::new(),
            left_out: Vec::new(),
            noise: Default::default(),
            own_disk: Default::default(),
            load_generators: 0,
            sums: false,
        };
        let study = study::parse(STUDY, study::Engines::ANY).unwrap();
        let mut writer = RunWriter::create(&path, STUDY, &study, &header).unwrap();
        writer.write_trial(&trial(1)).unwrap();
        (path, writer)
    }

    #[test]
    fn a_run_reads_back_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let (path, mut writer) = run(dir.path());
        assert!(Run::read(&path, study::Engines::ANY).unwrap().is_partial());
        writer.write_trial(&trial(2)).unwrap();
        let run = Run::read(&path, study::Engines::ANY).unwrap();
        assert!(!run.is_partial());
        assert_eq!(run.trials.len(), 2);
        let (read, made) = (&run.trials[0], trial(1));
        assert_eq!(read.result.recording.intervals, made.result.recording.intervals);
        assert_eq!(read.result.recording.error_samples, made.result.recording.error_samples);
        assert_eq!(read.result.notes, made.result.notes);
    }

    /// Old runs must stay comparable with new ones: job hashes must not depend on the parameter names of
    /// schema 1.
    #[test]
    fn jobs_of_a_run_of_schema_1_have_the_hashes_of_now() {
        let dir = tempfile::tempdir().unwrap();
        let (path, mut writer) = run(dir.path());
        writer.write_trial(&TrialRecord { job: String::new(), ..trial(2) }).unwrap();
        drop(writer);
        let hash = |run: &Run| -> Vec<String> {
            study::plan(&run.study).trials.iter().map(study::Trial::job_hash).collect()
        };
        let now = Run::read(&path, study::Engines::ANY).unwrap();
        assert_eq!(
            now.trials[0].job, "0123456789abcdef",
            "a run of schema 2 says what its jobs are"
        );
        fs::write(path.join(super::STUDY), STUDY).unwrap();
        crate::sums::add(&path, &[(super::STUDY.to_owned(), STUDY.as_bytes())]).unwrap();
        let old = Run::read(&path, study::Engines::ANY).unwrap();
        assert_eq!((&old.trials[0].job, hash(&old)), (&hash(&now)[0], hash(&now)));
        assert_eq!(old.trials[1].job, "", "a run that never said has none");
    }

    /// Damage in a truncated record must not become figures.
    #[test]
    fn a_record_goes_through_a_line() {
        let before = trial(1);
        let line = to_line(&before).unwrap();
        assert_eq!(line.lines().count(), 1);
        let after = from_line(&line).unwrap();
        let total = |trial: &TrialRecord| trial.result.recording.total(None).counts;
        assert_eq!(total(&after), total(&before));
        let p50 =
            |trial: &TrialRecord| trial.result.recording.total(None).latency.value_at_quantile(0.5);
        assert_eq!(p50(&after), p50(&before));
        assert_eq!((after.point, after.result.notes), (before.point, before.result.notes));
        assert!(from_line(&line[..line.len() / 2]).is_err());
    }

    /// A run stored before limits were separate must still report the same limit.
    #[test]
    fn limits_that_were_notes_are_limits() {
        let said = [
            "the submitting thread, not the device, sets this rate: it used a CPU 98 % of the time",
            "this host's CPUs, not the device alone, set these latencies; busy: 99 %, 12 % by others",
            "own cost 40 ns per operation, at most 0.50 % of the mean latency measured",
        ];
        let notes = said.map(str::to_owned).to_vec();
        let old = TrialRecord::unnamed(TrialResult { notes, ..TrialResult::default() });
        let read = from_line(&to_line(&old).unwrap()).unwrap().result;
        let limits = [Limit::Thread { busy: 0.98 }, Limit::Processors { busy: 0.99, others: 0.12 }];
        assert_eq!(read.limits, limits);
        assert_eq!(read.said().count(), 3, "each is reported once");
    }

    /// A link planted in a run must not make a server read files that the author of the link cannot read.
    #[test]
    fn a_link_in_a_run_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, writer) = run(dir.path());
        drop(writer);
        let (trial, aside) = (path.join("trials/0001-e-a"), dir.path().join("aside"));
        fs::rename(&trial, &aside).unwrap();
        std::os::unix::fs::symlink(&aside, &trial).unwrap();
        let told = Run::read(&path, study::Engines::ANY).unwrap_err().to_string();
        assert!(told.contains("it is a symbolic link"), "{told}");
        fs::remove_file(&trial).unwrap();
        fs::rename(&aside, &trial).unwrap();
        let (log, other) = (trial.join("latency.hlog"), dir.path().join("log"));
        fs::rename(&log, &other).unwrap();
        std::os::unix::fs::symlink(&other, &log).unwrap();
        let told = Run::read(&path, study::Engines::ANY).unwrap_err().to_string();
        assert!(told.contains("it is a symbolic link"), "{told}");
        fs::rename(&other, &log).unwrap();
        assert!(Run::read(&path, study::Engines::ANY).is_ok());
    }

    #[test]
    fn every_truncation_of_a_trial_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let (path, writer) = run(dir.path());
        drop(writer);
        for name in ["trial.json", "latency.hlog"] {
            let file = path.join("trials/0001-e-a").join(name);
            let whole = fs::read(&file).unwrap();
            for keep in (0..whole.len() - 1).step_by(37) {
                fs::write(&file, &whole[..keep]).unwrap();
                let error = Run::read(&path, study::Engines::ANY).unwrap_err();
                assert!(matches!(error, ArchiveError::Damaged { .. }), "{name} {keep}: {error}");
            }
            fs::write(&file, &whole).unwrap();
        }
        assert!(Run::read(&path, study::Engines::ANY).is_ok());
    }

    fn reopen(path: &Path) -> Result<Reopened, ArchiveError> {
        Reopened::open(path, study::Engines::ANY, false, |_| ())
    }

    #[test]
    fn resume_repeats_only_what_is_unfinished_or_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let (path, mut writer) = run(dir.path());
        writer.write_trial(&trial(2)).unwrap();
        assert!(matches!(reopen(&path), Err(ArchiveError::Busy(_))));
        drop(writer);
        fs::create_dir(path.join("trials/.writing-0003-e-a")).unwrap();
        fs::write(path.join("trials/0002-e-a/trial.json"), "{").unwrap();
        let reopened = reopen(&path).unwrap();
        assert_eq!(reopened.header.trials_planned, 2);
        assert!(path.join("trials/.writing-0003-e-a").exists(), "nothing has changed yet");
        let writer = reopened.write().unwrap();
        assert!(writer.has(1) && !writer.has(2));
        assert!(!path.join("trials/.writing-0003-e-a").exists());
        drop(writer);
        let mut cut = trial(2);
        cut.outcome = TrialOutcome::Partial;
        let mut writer = reopen(&path).unwrap().write().unwrap();
        writer.write_trial(&cut).unwrap();
        assert!(Run::read(&path, study::Engines::ANY).unwrap().is_partial());
        drop(writer);
        assert!(!reopen(&path).unwrap().write().unwrap().has(2));
        assert!(path.join("aside/0002-e-a/trial.json").exists(), "evidence is kept");
    }

    #[test]
    fn other_formats_and_other_folders_are_told() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(
            Run::read(dir.path(), study::Engines::ANY),
            Err(ArchiveError::NotARun(_))
        ));
        let (path, _writer) = run(dir.path());
        fs::write(path.join("run.json"), "{\"format\": 99, \"new\": 1}").unwrap();
        assert!(matches!(
            Run::read(&path, study::Engines::ANY),
            Err(ArchiveError::Format { found: 99, .. })
        ));
    }
}
