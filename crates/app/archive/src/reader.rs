//! Reading a run folder.
//!
//! Invariants: reading changes nothing; damage is told with the file's name, never skipped.
//! What it is not: tolerant of other formats.

use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use stats::read_log;
use study::Study;

use crate::document::{FORMAT, TrialDocument};
use crate::{ArchiveError, RunHeader, TrialOutcome, TrialRecord};

/// Folder of the trials.
pub(crate) const TRIALS: &str = "trials";

/// A run that was read.
#[derive(Debug, Clone)]
pub struct Run {
    /// Name of the folder.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// What ran where.
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
    /// [`ArchiveError`], naming the file.
    pub fn read(path: &Path) -> Result<Self, ArchiveError> {
        let (header, study) = read_header(path)?;
        let dir = path.join(TRIALS);
        let mut trials = Vec::new();
        for entry in fs::read_dir(&dir).map_err(ArchiveError::io("read", &dir))? {
            let entry = entry.map_err(ArchiveError::io("read", &dir))?;
            if !entry.file_name().to_string_lossy().starts_with('.') {
                trials.push(Self::read_trial(&entry.path())?);
            }
        }
        trials.sort_by_key(|trial| trial.number);
        let full = fs::canonicalize(path).map_err(ArchiveError::io("find", path))?;
        let name = full.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(Self { name, path: path.to_owned(), header, study, trials })
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
    /// [`ArchiveError::Damaged`] when a file is missing, cut short, or not what was written.
    pub fn read_trial(folder: &Path) -> Result<TrialRecord, ArchiveError> {
        let path = folder.join("trial.json");
        let document: TrialDocument = read_json(&path)?;
        check_format(&path, document.format)?;
        let log_path = folder.join("latency.hlog");
        let log = fs::read(&log_path).map_err(|error| ArchiveError::damaged(&log_path, error))?;
        if log.len() as u64 != document.log_bytes {
            let reason = format!("{} bytes, {} were written", log.len(), document.log_bytes);
            return Err(ArchiveError::damaged(&log_path, reason));
        }
        if crc32fast::hash(&log) != document.log_crc32 {
            return Err(ArchiveError::damaged(&log_path, "its checksum is wrong"));
        }
        let slug =
            folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let mut trial =
            document.into_record(slug).map_err(|reason| ArchiveError::damaged(&path, reason))?;
        read_log(&log, &mut trial.recording)
            .map_err(|error| ArchiveError::damaged(&log_path, error))?;
        Ok(trial)
    }
}

/// The record that [`to_line`](crate::to_line) wrote.
///
/// # Errors
/// [`ArchiveError::Damaged`] when it is not one.
pub fn from_line(line: &str) -> Result<TrialRecord, ArchiveError> {
    let path = Path::new("the record of another process");
    let (document, log): (TrialDocument, String) =
        serde_json::from_str(line).map_err(|error| ArchiveError::damaged(path, error))?;
    let mut trial = document
        .into_record(String::new())
        .map_err(|reason| ArchiveError::damaged(path, reason))?;
    read_log(log.as_bytes(), &mut trial.recording)
        .map_err(|error| ArchiveError::damaged(path, error))?;
    Ok(trial)
}

pub(crate) fn read_header(path: &Path) -> Result<(RunHeader, Study), ArchiveError> {
    let file = path.join("run.json");
    if !file.exists() {
        return Err(ArchiveError::NotARun(path.to_owned()));
    }
    // The format first: a newer header may have fields that this version does not know.
    let value: serde_json::Value = read_json(&file)?;
    let format = value.get("format").and_then(serde_json::Value::as_u64).unwrap_or(0);
    check_format(&file, u32::try_from(format).unwrap_or(u32::MAX))?;
    let header =
        serde_json::from_value(value).map_err(|error| ArchiveError::damaged(&file, error))?;
    let study_path = path.join("study.toml");
    let text = fs::read_to_string(&study_path)
        .map_err(|error| ArchiveError::damaged(&study_path, error))?;
    let study = study::parse(&text).map_err(|error| ArchiveError::damaged(&study_path, error))?;
    Ok((header, study))
}

fn check_format(path: &Path, found: u32) -> Result<(), ArchiveError> {
    if found != FORMAT {
        return Err(ArchiveError::Format { path: path.to_owned(), found, known: FORMAT });
    }
    Ok(())
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, ArchiveError> {
    let text = fs::read(path).map_err(|error| ArchiveError::damaged(path, error))?;
    serde_json::from_slice(&text).map_err(|error| ArchiveError::damaged(path, error))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::RunWriter;
    use observe::Provenance;
    use stats::{Recorder, Sample, Timeline};
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
            source: "measured".into(),
            point: [("queue_depth".to_owned(), number.to_string())].into(),
            repetition: 1,
            outcome: TrialOutcome::Complete,
            failure: None,
            path: "test".into(),
            notes: vec!["a note".into()],
            usage: None,
            disk: None,
            load: None,
            counters: Vec::new(),
            totals: BTreeMap::new(),
            settings: BTreeMap::new(),
            recording: recorder.finish(Nanos(700)),
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
        };
        let study = study::parse(STUDY).unwrap();
        let mut writer = RunWriter::create(&path, STUDY, &study, &header).unwrap();
        writer.write_trial(&trial(1)).unwrap();
        (path, writer)
    }

    #[test]
    fn a_run_reads_back_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let (path, mut writer) = run(dir.path());
        assert!(Run::read(&path).unwrap().is_partial());
        writer.write_trial(&trial(2)).unwrap();
        let run = Run::read(&path).unwrap();
        assert!(!run.is_partial());
        assert_eq!(run.trials.len(), 2);
        let (read, made) = (&run.trials[0], trial(1));
        assert_eq!(read.recording.intervals, made.recording.intervals);
        assert_eq!(read.recording.error_samples, made.recording.error_samples);
        assert_eq!(read.notes, made.notes);
    }

    /// A truncated archive must never become figures.
    #[test]
    fn a_record_goes_through_a_line() {
        let before = trial(1);
        let line = crate::to_line(&before).unwrap();
        assert_eq!(line.lines().count(), 1);
        let after = from_line(&line).unwrap();
        let total = |trial: &TrialRecord| trial.recording.total(None).counts;
        assert_eq!(total(&after), total(&before));
        let p50 = |trial: &TrialRecord| trial.recording.total(None).latency.value_at_quantile(0.5);
        assert_eq!(p50(&after), p50(&before));
        assert_eq!((after.point, after.notes), (before.point, before.notes));
        assert!(from_line(&line[..line.len() / 2]).is_err());
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
                let error = Run::read(&path).unwrap_err();
                assert!(matches!(error, ArchiveError::Damaged { .. }), "{name} {keep}: {error}");
            }
            fs::write(&file, &whole).unwrap();
        }
        assert!(Run::read(&path).is_ok());
    }

    #[test]
    fn resume_repeats_only_what_is_unfinished_or_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let (path, mut writer) = run(dir.path());
        writer.write_trial(&trial(2)).unwrap();
        assert!(matches!(RunWriter::resume(&path), Err(ArchiveError::Busy(_))));
        drop(writer);
        fs::create_dir(path.join("trials/.writing-0003-e-a")).unwrap();
        fs::write(path.join("trials/0002-e-a/trial.json"), "{").unwrap();
        let (writer, header, _) = RunWriter::resume(&path).unwrap();
        assert_eq!(header.trials_planned, 2);
        assert!(writer.has(1) && !writer.has(2));
        assert!(!path.join("trials/.writing-0003-e-a").exists());
        drop(writer);
        let mut cut = trial(2);
        cut.outcome = TrialOutcome::Partial;
        let (mut writer, ..) = RunWriter::resume(&path).unwrap();
        writer.write_trial(&cut).unwrap();
        assert!(Run::read(&path).unwrap().is_partial());
        drop(writer);
        assert!(!RunWriter::resume(&path).unwrap().0.has(2));
        assert!(path.join("aside/0002-e-a/trial.json").exists(), "evidence is kept");
    }

    #[test]
    fn other_formats_and_other_folders_are_told() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(Run::read(dir.path()), Err(ArchiveError::NotARun(_))));
        let (path, _writer) = run(dir.path());
        fs::write(path.join("run.json"), "{\"format\": 99, \"new\": 1}").unwrap();
        assert!(matches!(Run::read(&path), Err(ArchiveError::Format { found: 99, .. })));
    }
}
