//! Ctrl-C, once and twice.

use std::sync::atomic::Ordering;

use archive::TrialOutcome::{Complete, Partial};

use super::mock::{DONE, Scenario, Step, study_text};
use crate::Ending;

fn three() -> Scenario {
    Scenario::of(&study_text(&["a", "b", "c"], &["one"], ""))
}

fn in_second(step: Step) -> impl FnMut(&study::Trial) -> Step {
    move |trial| if trial.number == 2 { step.clone() } else { DONE }
}

#[test]
fn a_stop_before_the_first_trial_runs_none() {
    let scenario = three();
    scenario.stop.store(true, Ordering::Relaxed);
    let came = scenario.run(|_| DONE);
    let end = came.end.unwrap();
    assert_eq!((end.ending, end.ran, came.ran.len()), (Ending::Interrupted, 0, 0));
    assert!(scenario.read().trials.is_empty());
}

#[test]
fn a_stop_in_a_trial_keeps_what_it_has_and_begins_no_other() {
    let scenario = three();
    let came = scenario.run(in_second(Step::Stop(Box::new(Step::Half))));
    assert_eq!(came.end.unwrap().ending, Ending::Interrupted);
    assert_eq!(came.ran, ["a/one/1", "b/one/1"]);
    assert_eq!(scenario.outcomes(), [(1, Complete), (2, Partial)]);
}

#[test]
fn a_stop_before_a_trial_recorded_anything_leaves_no_record() {
    let scenario = three();
    let came = scenario.run(in_second(Step::Stop(Box::new(Step::Stopped))));
    assert_eq!(came.end.unwrap().ending, Ending::Interrupted);
    assert_eq!(scenario.outcomes(), [(1, Complete)]);
}

#[test]
fn a_stop_before_an_interval_was_measured_is_no_failure() {
    let scenario = three();
    let came = scenario.run(in_second(Step::Stop(Box::new(Step::Nothing))));
    assert_eq!(came.end.unwrap().ending, Ending::Interrupted);
    assert_eq!(scenario.outcomes(), [(1, Complete)]);
}

#[test]
fn a_trial_that_ends_as_planned_during_a_stop_is_complete() {
    let scenario = three();
    let came = scenario.run(in_second(Step::Stop(Box::new(DONE))));
    assert_eq!(came.end.unwrap().ending, Ending::Interrupted);
    assert_eq!(scenario.outcomes(), [(1, Complete), (2, Complete)]);
}

#[test]
fn a_stop_in_the_last_trial_that_ends_as_planned_is_a_complete_run() {
    let scenario = Scenario::two_stacks();
    let came = scenario.run(in_second(Step::Stop(Box::new(DONE))));
    assert_eq!(came.end.unwrap().ending, Ending::Complete);
}

#[test]
fn a_trial_under_which_everything_was_undone_is_not_recorded() {
    for step in [DONE, Step::Half, Step::Fail("its mount is gone")] {
        let scenario = three();
        let came = scenario.run(in_second(Step::Abort(Box::new(step))));
        assert_eq!(came.end.unwrap().ending, Ending::Interrupted);
        assert_eq!(scenario.outcomes(), [(1, Complete)]);
    }
}

#[test]
fn a_failure_during_a_stop_is_a_failure() {
    let scenario = three();
    scenario.run(in_second(Step::Stop(Box::new(Step::Fail("x")))));
    assert_eq!(scenario.failure(2), "x");
}

#[test]
fn an_interrupted_run_is_completed_by_resuming() {
    let scenario = three();
    scenario.run(in_second(Step::Stop(Box::new(Step::Half)))).end.unwrap();
    let came = scenario.resume(|_| DONE);
    assert_eq!(came.ran, ["b/one/1", "c/one/1"]);
    assert_eq!(came.end.unwrap().ending, Ending::Complete);
    assert_eq!(scenario.outcomes(), [(1, Complete), (2, Complete), (3, Complete)]);
}

#[test]
fn a_run_can_be_interrupted_again_and_again() {
    let scenario = three();
    let stop = || Step::Stop(Box::new(DONE));
    assert_eq!(scenario.run(|_| stop()).ran, ["a/one/1"]);
    assert_eq!(scenario.resume(|_| stop()).ran, ["b/one/1"]);
    let came = scenario.resume(|_| stop());
    assert_eq!((came.end.unwrap().ending, came.ran), (Ending::Complete, vec!["c/one/1".into()]));
}

#[test]
fn the_part_of_an_interrupted_trial_is_kept_aside_when_it_is_repeated() {
    let scenario = three();
    scenario.run(in_second(Step::Stop(Box::new(Step::Half)))).end.unwrap();
    scenario.resume(|_| DONE).end.unwrap();
    assert!(scenario.out.join("aside/0002-one-b/latency.hlog").exists());
}
