//! Run folders of every earlier format must stay readable, and damage in them must be detected.

use std::path::{Path, PathBuf};

use crosspoint_archive::{ArchiveError, Run};

fn fixture(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures/runs").join(version)
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("copied");
        }
    }
}

/// Results of format 1 must stay readable with all trials.
#[test]
fn format_1_is_read_with_all_its_trials() {
    let run = Run::read(&fixture("v1"), study::Engines::ANY).unwrap();
    assert!(!run.is_partial());
    assert_eq!(run.trials.len(), run.header.trials_planned as usize);
    for trial in &run.trials {
        let total = trial.result.recording.total(None);
        assert!(total.counts.ops > 0, "{}", trial.slug);
        assert_eq!(total.latency.len(), total.due.ops, "{}", trial.slug);
    }
    assert!(run.trials.iter().any(|trial| trial.result.load.is_some()));
    // Format 1 mixed fit errors into the errors by job class, so these are not read.
    assert!(run.header.stacks.iter().all(|stack| stack.checked.is_empty()));
}

/// Flipped bits, truncation and missing files in a stored run must each be reported, and none read as
/// figures.
#[test]
fn damage_in_a_stored_run_is_told() {
    let scratch = tempfile::tempdir().unwrap();
    let run = scratch.path().join("run");
    let trial = run.join("trials/0001-latency-this-disk");
    let damages: [&dyn Fn(); 5] = [
        &|| std::fs::remove_file(trial.join("latency.hlog")).unwrap(),
        &|| std::fs::remove_file(trial.join("trial.json")).unwrap(),
        &|| {
            let mut log = std::fs::read(trial.join("latency.hlog")).unwrap();
            let middle = log.len() / 2;
            log[middle] ^= 1;
            std::fs::write(trial.join("latency.hlog"), log).unwrap();
        },
        &|| {
            let text = std::fs::read_to_string(trial.join("trial.json")).unwrap();
            let text = text.replace("\"measure\"", "\"mesure\"");
            std::fs::write(trial.join("trial.json"), text).unwrap();
        },
        &|| std::fs::write(run.join("study.toml"), "schema = 1").unwrap(),
    ];
    for damage in damages {
        let _ = std::fs::remove_dir_all(&run);
        copy(&fixture("v1"), &run);
        assert!(Run::read(&run, study::Engines::ANY).is_ok());
        damage();
        let error = Run::read(&run, study::Engines::ANY).unwrap_err();
        assert!(matches!(error, ArchiveError::Damaged { .. }), "{error}");
    }
}
