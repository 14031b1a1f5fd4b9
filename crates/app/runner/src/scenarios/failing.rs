//! Trials and runs that fail.

use archive::TrialOutcome::{Complete, Failed};

use super::mock::{DONE, Scenario, Step, study_text};
use crate::{Ending, ExitClass};

fn first(step: Step) -> impl FnMut(&study::Trial) -> Step {
    move |trial| if trial.number == 1 { step.clone() } else { DONE }
}

#[test]
fn a_failed_trial_keeps_no_other_from_running() {
    let scenario = Scenario::two_stacks();
    let end = scenario.run(first(Step::Fail("it broke"))).end.unwrap();
    assert_eq!((end.ending, end.ran), (Ending::Failed, 2));
    assert_eq!(scenario.outcomes(), [(1, Failed), (2, Complete)]);
}

#[test]
fn a_failed_trial_says_why() {
    let scenario = Scenario::two_stacks();
    scenario.run(first(Step::Fail("it broke"))).end.unwrap();
    assert_eq!(scenario.failure(1), "it broke");
}

#[test]
fn a_failed_trial_keeps_what_it_had_recorded() {
    let scenario = Scenario::two_stacks();
    scenario.run(first(Step::Fail("it broke"))).end.unwrap();
    assert_eq!(scenario.read().trials[0].result.recording.intervals.len(), 1);
}

#[test]
fn a_run_whose_every_trial_failed_is_still_a_run() {
    let scenario = Scenario::two_stacks();
    let end = scenario.run(|_| Step::Fail("no")).end.unwrap();
    assert_eq!(end.ending, Ending::Failed);
    assert_eq!(scenario.outcomes(), [(1, Failed), (2, Failed)]);
}

#[test]
fn a_trial_that_measured_nothing_has_failed() {
    let scenario = Scenario::two_stacks();
    let end = scenario.run(first(Step::Nothing)).end.unwrap();
    assert_eq!(end.ending, Ending::Failed);
    assert!(scenario.failure(1).contains("completed during the warm-up"));
}

#[test]
fn a_trial_that_ends_early_by_itself_is_partial_and_ends_the_run() {
    let scenario = Scenario::two_stacks();
    let came = scenario.run(first(Step::Half));
    assert_eq!(came.end.unwrap().ending, Ending::Interrupted);
    assert_eq!(came.ran, ["a/first/1"]);
    assert!(scenario.read().is_partial());
}

#[test]
fn wrong_data_ends_the_run_at_once() {
    let scenario = Scenario::of(&study_text(&["a", "b", "c"], &["one"], ""));
    let came = scenario.run(|trial| if trial.number == 2 { Step::WrongData } else { DONE });
    assert_eq!(came.end.unwrap_err().class(), ExitClass::Verification);
    assert_eq!(came.ran, ["a/one/1", "b/one/1"]);
    assert_eq!(scenario.outcomes(), [(1, Complete)], "what had ended is kept");
}

#[test]
fn a_drive_that_cannot_be_attached_fails_its_own_trials() {
    let scenario = Scenario::of(&study_text(&["a", "b"], &["one", "two"], ""));
    let came = scenario.run(|trial| if trial.stack == "a" { Step::NotAttached } else { DONE });
    assert_eq!(came.end.unwrap().ending, Ending::Failed);
    assert_eq!(scenario.outcomes(), [(1, Failed), (2, Complete), (3, Failed), (4, Complete)]);
    assert_eq!(scenario.failure(1), "model:x is too fast; help: scale");
}

#[test]
fn a_run_none_of_whose_drives_can_be_attached_is_refused() {
    let scenario = Scenario::two_stacks();
    let came = scenario.run(|_| Step::NotAttached);
    assert_eq!(came.end.unwrap_err().class(), ExitClass::Refused);
}

#[test]
fn a_failure_is_repeated_only_where_that_is_asked_for() {
    let scenario = Scenario::two_stacks();
    scenario.run(first(Step::Fail("no"))).end.unwrap();
    let came = scenario.resume(|_| DONE);
    assert!(came.ran.is_empty());
    assert_eq!(came.end.unwrap().ending, Ending::Failed, "it is not forgotten");
    let scenario = scenario.repeating_failed();
    let came = scenario.resume(|_| DONE);
    assert_eq!(came.ran, ["a/first/1"]);
    assert_eq!(came.end.unwrap().ending, Ending::Complete);
    assert_eq!(scenario.outcomes(), [(1, Complete), (2, Complete)]);
}

#[test]
fn a_refused_resume_leaves_failed_trials_where_they_are() {
    let mut scenario = Scenario::two_stacks().repeating_failed();
    scenario.run(first(Step::Fail("no"))).end.unwrap();
    scenario.refuses = Some("another drive");
    let refused = scenario.resume(|_| DONE);
    assert_eq!(refused.end.unwrap_err().class(), ExitClass::Refused);
    assert_eq!(scenario.outcomes(), [(1, Failed), (2, Complete)]);
    assert!(!scenario.out.join("aside").exists());
}

#[test]
fn a_failure_that_was_repeated_is_kept_aside() {
    let scenario = Scenario::two_stacks().repeating_failed();
    scenario.run(first(Step::Fail("no"))).end.unwrap();
    scenario.resume(|_| DONE).end.unwrap();
    assert!(scenario.out.join("aside/0001-first-a/trial.json").exists());
}

#[test]
fn a_run_that_ended_in_an_error_can_be_resumed() {
    let scenario = Scenario::two_stacks();
    scenario.run(|trial| if trial.number == 2 { Step::WrongData } else { DONE }).end.unwrap_err();
    let came = scenario.resume(|_| DONE);
    assert_eq!((came.end.unwrap().ending, came.ran), (Ending::Complete, vec!["b/first/1".into()]));
}

#[test]
fn a_failure_after_a_success_of_the_same_point_fails_the_run() {
    let scenario = Scenario::of(&study_text(&["a"], &["one"], "repeat = 3"));
    let came = scenario.run(|trial| if trial.repetition == 3 { Step::Fail("x") } else { DONE });
    assert_eq!(came.end.unwrap().ending, Ending::Failed);
    assert_eq!(scenario.outcomes(), [(1, Complete), (2, Complete), (3, Failed)]);
}
