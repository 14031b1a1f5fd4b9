//! Run folders that were interrupted, killed or damaged.

use std::fs;

use archive::{ArchiveError, Reopened};

use super::mock::{DONE, Scenario, Step, study_text};
use crate::{Ending, ExitClass, RunnerError, resume};

fn interrupted() -> Scenario {
    let scenario = Scenario::of(&study_text(&["a", "b", "c"], &["one"], ""));
    let stop = |trial: &study::Trial| match trial.number {
        2 => Step::Stop(Box::new(DONE)),
        _ => DONE,
    };
    scenario.run(stop).end.unwrap();
    scenario
}

#[test]
fn only_missing_trials_run() {
    let came = interrupted().resume(|_| DONE);
    assert_eq!(came.ran, ["c/one/1"]);
    assert_eq!(came.end.unwrap().ran, 1);
}

/// Runs of an earlier version with values that are rejected today must not allocate gigabytes of buffers.
#[test]
fn a_run_with_a_job_that_is_refused_today_is_read_and_not_continued() {
    let scenario = interrupted();
    let study = scenario.out.join("study.toml");
    let text = fs::read_to_string(&study).unwrap();
    assert!(
        text.contains("queue_depth = 1\n") && text.contains("block_size = \"4KiB\"\n"),
        "{text}"
    );
    let text = text.replace("queue_depth = 1\n", "queue_depth = 4096\n");
    fs::write(&study, text.replace("\"4KiB\"", "\"16MiB\"")).unwrap();
    fs::remove_file(scenario.out.join("sums.txt")).unwrap();
    let header = scenario.out.join("run.json");
    let text = fs::read_to_string(&header).unwrap();
    fs::write(&header, text.replace("\"sums\": true", "\"sums\": false")).unwrap();
    assert_eq!(scenario.read().trials.len(), 2);
    let error = scenario.resume(|_| DONE).end.unwrap_err();
    assert_eq!(error.class(), ExitClass::BadStudy);
    assert!(error.to_string().contains("in flight"), "{error}");
}

#[test]
fn a_watcher_is_told_how_many_have_ended() {
    assert_eq!(interrupted().resume(|_| DONE).events[0], "started 2");
}

#[test]
fn a_complete_run_runs_nothing() {
    let scenario = Scenario::two_stacks();
    scenario.run(|_| DONE).end.unwrap();
    let end = scenario.resume(|_| DONE).end.unwrap();
    assert_eq!((end.ending, end.ran), (Ending::Complete, 0));
}

#[test]
fn a_folder_that_is_no_run_is_refused() {
    let scenario = Scenario::two_stacks();
    fs::create_dir_all(&scenario.out).unwrap();
    let error = scenario.resume(|_| DONE).end.unwrap_err();
    assert_eq!(error.class(), ExitClass::Usage);
    assert!(!scenario.out.join(".lock").exists(), "nothing is put into it");
}

#[test]
fn a_run_that_another_process_writes_to_is_refused() {
    let scenario = interrupted();
    let held = Reopened::open(&scenario.out, engines::list(), false, |_| ()).unwrap();
    let error = scenario.resume(|_| DONE).end.unwrap_err();
    assert!(matches!(error, RunnerError::Archive(ArchiveError::Busy(_))), "{error}");
    drop(held);
    scenario.resume(|_| DONE).end.unwrap();
}

#[test]
fn a_run_of_another_host_is_not_continued() {
    let mut scenario = interrupted();
    scenario.refuses = Some("another host");
    let came = scenario.resume(|_| DONE);
    assert!(came.end.is_err() && came.ran.is_empty());
}

#[test]
fn a_trial_whose_folder_is_missing_runs_again() {
    let scenario = interrupted();
    fs::remove_dir_all(scenario.out.join("trials/0001-one-a")).unwrap();
    let came = scenario.resume(|_| DONE);
    assert_eq!(came.ran, ["a/one/1", "c/one/1"]);
    assert_eq!(scenario.read().trials.len(), 3);
}

#[test]
fn a_damaged_trial_is_kept_aside_and_runs_again() {
    for file in ["trial.json", "latency.hlog"] {
        let scenario = interrupted();
        let path = scenario.out.join("trials/0002-one-b").join(file);
        let mut bytes = fs::read(&path).unwrap();
        let last = bytes.len() - 2;
        bytes[last] ^= 1;
        fs::write(&path, bytes).unwrap();
        assert_eq!(scenario.resume(|_| DONE).ran, ["b/one/1", "c/one/1"], "{file}");
        assert!(scenario.out.join("aside/0002-one-b").join(file).exists());
        assert_eq!(scenario.read().trials.len(), 3);
    }
}

#[test]
fn a_trial_that_was_cut_short_runs_again() {
    for file in ["trial.json", "latency.hlog"] {
        let scenario = interrupted();
        let path = scenario.out.join("trials/0001-one-a").join(file);
        fs::write(&path, "").unwrap();
        assert_eq!(scenario.resume(|_| DONE).ran, ["a/one/1", "c/one/1"], "{file}");
    }
}

#[test]
fn what_a_kill_left_half_written_is_removed() {
    let scenario = interrupted();
    let half = scenario.out.join("trials/.writing-0003-one-c");
    fs::create_dir(&half).unwrap();
    fs::write(half.join("trial.json"), "{").unwrap();
    assert_eq!(scenario.read().trials.len(), 2, "it is no trial, and no damage");
    assert_eq!(scenario.resume(|_| DONE).ran, ["c/one/1"]);
    assert!(!half.exists());
}

#[test]
fn a_kill_between_the_checksums_and_the_trial_is_no_damage() {
    let scenario = interrupted();
    let trials = scenario.out.join("trials");
    fs::rename(trials.join("0002-one-b"), trials.join(".writing-0002-one-b")).unwrap();
    assert_eq!(scenario.read().trials.len(), 1);
    assert_eq!(scenario.resume(|_| DONE).ran, ["b/one/1", "c/one/1"]);
    assert_eq!(scenario.read().trials.len(), 3);
}

#[test]
fn a_kill_while_a_trial_is_set_aside_is_no_damage() {
    let scenario = interrupted();
    let trials = scenario.out.join("trials");
    fs::rename(trials.join("0001-one-a"), trials.join(".leaving-0001-one-a")).unwrap();
    assert_eq!(scenario.read().trials.len(), 1);
    assert_eq!(scenario.resume(|_| DONE).ran, ["a/one/1", "c/one/1"]);
    assert!(scenario.out.join("aside/0001-one-a/trial.json").exists());
}

#[test]
fn a_line_of_checksums_that_a_kill_cut_off_is_no_damage() {
    let scenario = interrupted();
    let list = scenario.out.join("sums.txt");
    let text = fs::read_to_string(&list).unwrap();
    fs::write(&list, format!("{text}0badc0de 12 tri")).unwrap();
    assert_eq!(scenario.read().trials.len(), 2);
    assert_eq!(scenario.resume(|_| DONE).ran, ["c/one/1"]);
    assert_eq!(scenario.read().trials.len(), 3);
}

#[test]
fn a_run_without_a_list_of_checksums_that_it_promised_is_damaged() {
    let scenario = interrupted();
    fs::remove_file(scenario.out.join("sums.txt")).unwrap();
    let error = scenario.resume(|_| DONE).end.unwrap_err();
    assert_eq!(error.class(), ExitClass::Verification);
}

#[test]
fn a_study_that_was_edited_is_damage() {
    let scenario = interrupted();
    let path = scenario.out.join("study.toml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"c\"", "\"d\"")).unwrap();
    assert_eq!(resume(&scenario.out, false).unwrap_err().class(), ExitClass::Verification);
}

#[test]
fn links_in_place_of_folders_are_refused() {
    for name in ["trials", "aside"] {
        let scenario = interrupted();
        let (at, real) = (scenario.out.join(name), scenario.path().join("real"));
        fs::create_dir_all(&at).unwrap();
        fs::rename(&at, &real).unwrap();
        std::os::unix::fs::symlink(&real, &at).unwrap();
        let error = scenario.resume(|_| DONE).end.unwrap_err();
        assert_eq!(error.class(), ExitClass::Verification, "{name}");
    }
}

#[test]
fn checksums_of_a_resumed_run_have_each_trial_once() {
    let scenario = interrupted();
    scenario.resume(|_| DONE).end.unwrap();
    scenario.resume(|_| DONE).end.unwrap();
    let text = fs::read_to_string(scenario.out.join("sums.txt")).unwrap();
    let mut names: Vec<&str> = text.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!((names.len(), all), (9, 9), "{text}");
}
