//! Trials that run together.

use archive::TrialOutcome::{Complete, Failed};

use super::mock::{DONE, Scenario, Step, race_text};
use crate::Ending;

#[test]
fn a_race_is_run_once_and_recorded_for_each_stack() {
    let scenario = Scenario::of(&race_text(&["a", "b", "c"]));
    let came = scenario.run(|_| Step::Race);
    assert_eq!(came.ran.len(), 2, "one for each repetition");
    assert_eq!(scenario.read().trials.len(), 6);
    assert_eq!(came.end.unwrap().ending, Ending::Complete);
}

#[test]
fn the_executor_announces_racers_itself() {
    let scenario = Scenario::of(&race_text(&["a", "b"]));
    let events = scenario.run(|_| Step::Race).events;
    assert!(!events.iter().any(|event| event.starts_with("begin")), "{events:?}");
    assert_eq!(events.iter().filter(|event| event.starts_with("end")).count(), 4);
}

#[test]
fn a_racer_that_fails_fails_alone() {
    let scenario = Scenario::of(&race_text(&["a", "b"]));
    let mut begun = std::collections::BTreeSet::new();
    let came = scenario.run(|trial| match begun.insert(trial.repetition) {
        true => Step::Race,
        false if trial.stack == "a" => Step::Fail("it broke"),
        false => DONE,
    });
    assert_eq!(came.end.unwrap().ending, Ending::Failed);
    let outcomes = scenario.read().trials;
    let failed: Vec<&str> = outcomes
        .iter()
        .filter(|trial| trial.outcome == Failed)
        .map(|trial| trial.stack.as_str())
        .collect();
    assert_eq!(failed, ["a", "a"]);
}

#[test]
fn a_racer_without_its_drive_fails_alone() {
    let scenario = Scenario::of(&race_text(&["a", "b"]));
    let mut begun = std::collections::BTreeSet::new();
    let came = scenario.run(|trial| match begun.insert(trial.repetition) {
        true => Step::Race,
        false if trial.stack == "b" => Step::NotAttached,
        false => DONE,
    });
    assert_eq!(came.end.unwrap().ending, Ending::Failed);
    let trials = scenario.read().trials;
    assert!(trials.iter().all(|trial| (trial.outcome == Complete) == (trial.stack == "a")));
}

#[test]
fn a_stop_in_a_race_keeps_the_results_of_all_racers() {
    let scenario = Scenario::of(&race_text(&["a", "b"]));
    let mut begun = false;
    let came = scenario.run(|_| match std::mem::replace(&mut begun, true) {
        false => Step::Stop(Box::new(Step::Race)),
        true => DONE,
    });
    // The second race does not begin.
    assert_eq!((came.ran.len(), came.end.unwrap().ending), (1, Ending::Interrupted));
    assert_eq!(scenario.outcomes(), [(1, Complete), (2, Complete)]);
}

#[test]
fn a_race_that_was_stopped_before_it_began_is_run_by_resuming() {
    let scenario = Scenario::of(&race_text(&["a", "b"]));
    let came = scenario.run(|_| Step::Stop(Box::new(Step::Stopped)));
    assert_eq!(came.end.unwrap().ending, Ending::Interrupted);
    assert!(scenario.read().trials.is_empty());
    assert_eq!(scenario.resume(|_| Step::Race).end.unwrap().ending, Ending::Complete);
    assert_eq!(scenario.read().trials.len(), 4);
}
