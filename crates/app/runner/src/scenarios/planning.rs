//! What is refused before anything runs, and the contents of a new run folder.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::mock::{DONE, Scenario, study_text};
use crate::{ExitClass, RunnerError, default_folder};

#[test]
fn a_study_that_does_not_parse_makes_no_folder() {
    let scenario = Scenario::of("schema = 1\nname = 3\n");
    let error = scenario.run(|_| DONE).end.unwrap_err();
    assert_eq!(error.class(), ExitClass::BadStudy);
    assert!(!scenario.path().join("runs").exists());
}

#[test]
fn a_study_whose_every_experiment_is_unsupported_says_why() {
    let text = study_text(&["a"], &["first"], "").replace("\"file\"", "\"model:intel-p4800x\"");
    let sql = "[experiment.sql]\nrows = 100\ndsn = \"mysql://me@localhost/db\"\n";
    let scenario = Scenario::of(&text.replace("[experiment.block]\n", sql));
    match scenario.run(|_| DONE).end.unwrap_err() {
        RunnerError::NothingToRun(reasons) => assert!(reasons[0].contains("first on a")),
        other => panic!("{other}"),
    }
    assert!(!scenario.out.exists());
}

#[test]
fn a_combination_that_is_skipped_is_in_the_header() {
    let mut text = study_text(&["a", "b"], &["first"], "");
    text = text.replacen("\"file\"", "\"model:intel-p4800x\"", 1);
    let sql = "[experiment.sql]\nrows = 100\ndsn = \"mysql://me@localhost/db\"\n";
    let scenario = Scenario::of(&text.replace("[experiment.block]\n", sql));
    assert_eq!(scenario.run(|_| DONE).ran, ["b/first/1"]);
    assert!(scenario.read().header.skipped[0].contains("first on a"));
}

#[test]
fn a_run_that_exists_is_not_replaced() {
    let scenario = Scenario::two_stacks();
    scenario.run(|_| DONE).end.unwrap();
    let before = fs::read(scenario.out.join("run.json")).unwrap();
    let came = scenario.run(|_| DONE);
    assert!(matches!(came.end, Err(RunnerError::OutputExists(_))) && came.ran.is_empty());
    assert_eq!(fs::read(scenario.out.join("run.json")).unwrap(), before);
}

#[test]
fn a_folder_with_other_files_is_not_used() {
    let scenario = Scenario::two_stacks();
    fs::create_dir_all(&scenario.out).unwrap();
    fs::write(scenario.out.join("mine"), "mine").unwrap();
    let came = scenario.run(|_| DONE);
    assert_eq!(came.end.unwrap_err().class(), ExitClass::Usage);
    assert_eq!(fs::read_dir(&scenario.out).unwrap().count(), 1);
}

#[test]
fn an_empty_folder_is_used() {
    let scenario = Scenario::two_stacks();
    fs::create_dir_all(&scenario.out).unwrap();
    assert_eq!(scenario.run(|_| DONE).end.unwrap().ran, 2);
}

#[test]
fn folders_above_a_run_are_made() {
    let mut scenario = Scenario::two_stacks();
    scenario.out = scenario.path().join("x/y/run");
    scenario.run(|_| DONE).end.unwrap();
    assert_eq!(scenario.read().trials.len(), 2);
}

#[test]
fn a_folder_that_others_may_write_to_is_refused() {
    let mut scenario = Scenario::two_stacks();
    let open = scenario.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    scenario.out = open.join("run");
    let came = scenario.run(|_| DONE);
    assert_eq!(came.end.unwrap_err().class(), ExitClass::Refused);
    assert!(!scenario.out.exists());
}

#[test]
fn a_stack_that_cannot_be_used_makes_no_run() {
    let mut scenario = Scenario::two_stacks();
    scenario.refuses = Some("it is mounted");
    let came = scenario.run(|_| DONE);
    assert_eq!(came.end.unwrap_err().class(), ExitClass::Refused);
    assert!(came.ran.is_empty() && !scenario.out.exists());
}

#[test]
fn a_state_directory_that_cannot_be_made_makes_no_run() {
    let mut scenario = Scenario::two_stacks();
    fs::write(scenario.path().join("file"), "").unwrap();
    scenario.state = scenario.path().join("file/state");
    assert!(scenario.run(|_| DONE).end.is_err());
    assert!(!scenario.path().join("runs").exists());
}

#[test]
fn the_header_has_the_number_of_trials_and_the_stacks() {
    let scenario = Scenario::of(&study_text(&["a", "b"], &["one", "two"], "repeat = 3"));
    scenario.run(|_| DONE).end.unwrap();
    let header = scenario.read().header;
    assert_eq!(header.trials_planned, 12);
    let names: Vec<&str> = header.stacks.iter().map(|stack| stack.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn the_resolved_study_plans_the_same_trials() {
    let scenario = Scenario::of(&study_text(&["a", "b"], &["one"], "repeat = 2"));
    scenario.run(|_| DONE).end.unwrap();
    let run = scenario.read();
    let text = fs::read_to_string(scenario.out.join("study.original.toml")).unwrap();
    assert_eq!(
        study::plan(&run.study),
        study::plan(&study::parse(&text, engines::list()).unwrap())
    );
}

#[test]
fn a_folder_without_a_name_gets_that_of_the_study() {
    let name = default_folder("quickstart");
    assert!(name.to_string_lossy().starts_with("runs/quickstart-20"), "{}", name.display());
}
