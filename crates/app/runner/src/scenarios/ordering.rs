//! The order of trials, and the events that a watcher receives.

use super::mock::{DONE, Scenario, Step, study_text};
use archive::Run;

#[test]
fn every_trial_runs_once_in_the_order_of_the_plan() {
    let scenario = Scenario::of(&study_text(&["a", "b"], &["one", "two"], ""));
    let came = scenario.run(|_| DONE);
    assert_eq!(came.ran, ["a/one/1", "b/one/1", "a/two/1", "b/two/1"]);
    assert_eq!(came.end.unwrap().ran, 4);
}

#[test]
fn repetitions_are_interleaved_and_every_second_one_is_reversed() {
    let scenario = Scenario::of(&study_text(&["a", "b"], &["one"], "repeat = 4"));
    let ran = scenario.run(|_| DONE).ran;
    let stacks: String = ran.iter().map(|name| &name[..1]).collect();
    assert!(
        ["abbaabba", "abbabaab", "baababba", "baabbaab"].contains(&stacks.as_str()),
        "{stacks}"
    );
    let repetitions: Vec<&str> = ran.iter().map(|name| &name[6..]).collect();
    assert_eq!(repetitions, ["1", "1", "2", "2", "3", "3", "4", "4"]);
}

#[test]
fn the_archive_has_what_was_measured() {
    let scenario = Scenario::two_stacks();
    scenario.run(|trial| Step::Complete(u64::from(trial.number) * 1000)).end.unwrap();
    let trials = scenario.read().trials;
    let ops = |at: usize| trials[at].result.recording.counts(None).ops;
    // The mock counts each operation as a read and as a transaction.
    assert_eq!((ops(0), ops(1)), (2000, 4000));
}

#[test]
fn a_trial_is_durable_before_the_next_begins() {
    let scenario = Scenario::of(&study_text(&["a", "b", "c"], &["one"], ""));
    let came = scenario.run(|trial| {
        let there = Run::read(&scenario.out, engines::list()).unwrap().trials.len();
        assert_eq!(there, trial.number as usize - 1);
        DONE
    });
    assert_eq!(came.end.unwrap().ran, 3);
}

#[test]
fn a_watcher_is_told_of_each_trial_in_order() {
    let scenario = Scenario::two_stacks();
    let events = scenario.run(|_| DONE).events;
    let words: Vec<&str> = events.iter().map(|event| &event[..event.len().min(10)]).collect();
    let trial =
        |number: u32| [format!("begin {number}"), "preparing".into(), format!("interval {number}")];
    assert_eq!(events[0], "started 0");
    assert_eq!(events[1..4], trial(1));
    assert!(words[4].starts_with("end 1"));
    assert_eq!(events[5..8], trial(2));
    assert!(words[8].starts_with("end 2") && events.len() == 9, "{events:?}");
}

#[test]
fn the_time_left_goes_down_to_nothing() {
    let scenario = Scenario::of(&study_text(&["a", "b", "c"], &["one"], ""));
    let events = scenario.run(|_| DONE).events;
    let left = events.iter().filter_map(|event| event.rsplit_once("left ")?.1.parse::<f64>().ok());
    let left: Vec<f64> = left.collect();
    assert_eq!(left.len(), 3);
    assert!(left.is_sorted_by(|a, b| a > b) && left[2].abs() < 0.05, "{left:?}");
}

#[test]
fn a_failed_trial_is_announced_as_failed_with_its_reason() {
    let scenario = Scenario::two_stacks();
    let events = scenario.run(|_| Step::Fail("the disk is gone")).events;
    assert!(events.iter().any(|event| event.starts_with("end 1 failed")), "{events:?}");
    assert!(events.iter().any(|event| event == "note the disk is gone"), "{events:?}");
}

#[test]
fn objectives_are_asked_for_only_where_a_study_has_them() {
    let scenario = Scenario::two_stacks();
    assert!(!scenario.run(|_| DONE).end.unwrap().asks);
    let text = study_text(&["a"], &["one"], "objectives = [\"p99 <= 20ms\"]");
    assert!(Scenario::of(&text).run(|_| DONE).end.unwrap().asks);
}

/// A study with a closed loop and an open loop at half of its rate.
fn offered() -> String {
    let first = study_text(&["a", "b"], &["closed", "open"], "");
    let (before, _) = first.rsplit_once("[experiment.block]\n").unwrap();
    format!("{before}[experiment.block]\narrivals = \"poisson\"\nrate_of_max = \"50%\"\n")
}

#[test]
fn an_open_loop_is_offered_its_share_of_the_rate_of_its_own_stack() {
    let scenario = Scenario::of(&offered());
    let came = scenario.run(|trial| Step::Complete(if trial.stack == "a" { 100 } else { 300 }));
    // Twice the operations (see above) in 100 ms, and half of that.
    assert_eq!(came.rates[2..], [1000, 3000], "{:?}", came.rates);
    let notes = &scenario.read().trials[2].result.notes;
    assert!(notes[0].starts_with("offered 1"), "{notes:?}");
}

#[test]
fn an_open_loop_without_a_rate_to_share_fails_and_others_run() {
    let scenario = Scenario::of(&offered());
    let came = scenario.run(|trial| match (&*trial.experiment, &*trial.stack) {
        ("closed", "a") => Step::Fail("no"),
        _ => DONE,
    });
    assert_eq!(came.ran, ["a/closed/1", "b/closed/1", "b/open/1"]);
    assert!(scenario.failure(3).contains("no rate for 50%"), "{}", scenario.failure(3));
}

#[test]
fn a_resumed_run_knows_the_rates_of_its_first_part() {
    let scenario = Scenario::of(&offered());
    scenario
        .run(|trial| if trial.number == 3 { Step::Stop(Box::new(Step::Stopped)) } else { DONE });
    let came = scenario.resume(|_| DONE);
    assert_eq!(came.ran, ["a/open/1", "b/open/1"]);
    assert_eq!(came.rates, [1000, 1000]);
}
