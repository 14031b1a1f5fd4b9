//! Cases in which a comparison once gave, or would give, a verdict for the wrong drive.

use archive::{Run, TrialOutcome, TrialRecord};
use stats::{Interval, Limit};
use study::Source;
use units::Nanos;
use workload::OpClass;

use crate::compared::{Comparison, Question, Refused, Row, Verdict, runs, stacks};
use crate::test_run::run_of;

/// Five repetitions on two stacks; every operation takes a microsecond.
fn alike() -> Run {
    run_of(
        "schema = 1\nname = \"s\"\n[[stack]]\nname = \"a\"\ndevice = \"file\"\n[[stack]]\nname = \"b\"\n\
         device = \"file\"\n[[experiment]]\nname = \"e\"\nrepeat = 5\n[experiment.block]\n",
        Nanos(1000),
    )
}

/// Like [`alike`], with the trials of the second stack changed.
fn with(change: impl Fn(&mut TrialRecord)) -> Run {
    let mut run = alike();
    run.trials.iter_mut().filter(|trial| trial.stack == "b").for_each(change);
    run
}

fn compared(run: &Run) -> Comparison {
    stacks(run, ["a", "b"], &Question::default()).expect("a comparison")
}

fn row<'a>(comparison: &'a Comparison, metric: &str) -> &'a Row {
    comparison.rows.iter().find(|row| row.metric == metric).expect("a figure")
}

/// Leaves this many operations in each interval.
fn fewer(trial: &mut TrialRecord, left: u64) {
    for interval in &mut trial.result.recording.intervals {
        let (phase, start, end) = (interval.phase, interval.start, interval.end);
        let counts = &mut interval.tallies.of(OpClass::Read).counts;
        counts.ops = left;
        if left == 0 {
            interval.tallies = Interval::empty(phase, start, end).tallies;
        }
    }
}

#[test]
fn what_is_alike_is_equal_and_a_slower_one_is_worse() {
    let same = compared(&alike());
    assert!(same.rows.iter().all(|row| row.verdict == Verdict::Equivalent), "{:?}", same.rows);
    assert_eq!((same.judged(), same.needed()), (same.rows.len(), None));
    let half = compared(&with(|trial| fewer(trial, 250)));
    assert_eq!(row(&half, "rate").verdict, Verdict::Worse);
    assert_eq!(row(&compared(&with(|trial| fewer(trial, 1000))), "rate").verdict, Verdict::Better);
}

/// A drive that completed nothing has no metric: it must be worse, neither equivalent nor left out.
#[test]
fn a_side_that_did_nothing_is_worse() {
    let dead = compared(&with(|trial| fewer(trial, 0)));
    assert_eq!(row(&dead, "rate").verdict, Verdict::Worse);
    let p99 = row(&dead, "latency_p99");
    assert_eq!((p99.verdict, p99.values[1]), (Verdict::Inconclusive, None), "{p99:?}");
    let mut other = alike();
    other.trials.iter_mut().filter(|one| one.stack == "a").for_each(|trial| fewer(trial, 0));
    assert_eq!(row(&compared(&other), "rate").verdict, Verdict::Better);
}

/// If a slow repetition lacks a percentile, the fast repetitions must not decide alone.
#[test]
fn a_figure_that_one_repetition_lacks_is_not_judged() {
    let run = with(|trial| {
        if trial.repetition == 2 {
            fewer(trial, 0);
        }
    });
    let found = compared(&run);
    let p99 = row(&found, "latency_p99");
    assert_eq!(p99.verdict, Verdict::Inconclusive);
    assert!(p99.why.contains("1 of 5 repetitions on b"), "{}", p99.why);
}

/// An interrupted repetition drops its pair, with a note.
#[test]
fn what_was_not_whole_is_left_out_in_pairs() {
    let run = with(|trial| {
        if trial.repetition == 4 {
            trial.outcome = TrialOutcome::Partial;
            fewer(trial, 1);
        }
    });
    let found = compared(&run);
    let rate = row(&found, "rate");
    assert_eq!((rate.verdict, rate.difference.map(|one| one.n)), (Verdict::Equivalent, Some(4)));
    assert!(found.notes.iter().any(|note| note.contains("1 repetition of e on b")), "{found:?}");
}

/// One late repetition in twenty is attributed to the host and drops its pair; one in five is attributed to
/// the drive.
#[test]
fn few_repetitions_of_an_unfaithful_drive_are_left_out() {
    let of = |repeat: u32| {
        let text = format!(
            "schema = 1\nname = \"s\"\n[[stack]]\nname = \"a\"\ndevice = \"file\"\n[[stack]]\nname = \
             \"b\"\ndevice = \"file\"\n[[experiment]]\nname = \"e\"\nrepeat = {repeat}\n[experiment.block]\n"
        );
        let mut run = run_of(&text, Nanos(1000));
        for trial in &mut run.trials {
            let late = trial.stack == "b" && trial.repetition == 2;
            trial.source = Source::Emulated;
            trial.result.served = (!late).then(stats::Served::default);
        }
        compared(&run)
    };
    let (many, few) = (of(20), of(5));
    let (rate, other) = (row(&many, "rate"), row(&few, "rate"));
    assert_eq!((rate.verdict, rate.difference.map(|one| one.n)), (Verdict::Equivalent, Some(19)));
    assert!(many.notes.iter().any(|note| note.contains("1 repetition of e on b")));
    assert_eq!(other.verdict, Verdict::Inconclusive);
}

/// An inaccurately emulated drive and a prediction next to a measurement must get no verdict.
#[test]
fn unfaithful_drives_and_predictions_beside_measurements_are_not_judged() {
    let emulated = compared(&with(|trial| trial.source = Source::Emulated));
    assert!(
        emulated.rows.iter().all(|row| row.verdict == Verdict::Inconclusive),
        "{:?}",
        emulated.rows
    );
    assert!(emulated.rows[0].why.contains("emulation fell behind"));
    let predicted = compared(&with(|trial| trial.source = Source::Predicted));
    assert!(predicted.rows.iter().all(|row| row.verdict == Verdict::Inconclusive));
    assert!(predicted.rows[0].why.contains("predicted"));
}

/// CPU load by other processes in one of two sessions must not become a difference between storages.
#[test]
fn runs_apart_on_a_busy_host_are_not_judged() {
    let quiet = alike();
    let mut busy = with(|trial| trial.result.limits = vec![Limit::Others { others: 0.9 }]);
    busy.path = "busy".into();
    let found = runs(&quiet, &busy, &Question::default()).expect("a comparison");
    let of =
        |stack: &str| found.rows.iter().find(|row| row.stack == stack).expect("a figure").verdict;
    assert_eq!((of("a"), of("b")), (Verdict::Equivalent, Verdict::Inconclusive));
    assert!(
        compared(&busy).rows.iter().all(|row| row.verdict == Verdict::Equivalent),
        "took turns"
    );
    assert_eq!(runs(&quiet, &quiet, &Question::default()), Err(Refused::Same));
    assert_eq!(stacks(&quiet, ["a", "a"], &Question::default()), Err(Refused::Same));
    let allowed = Question { allowed: vec!["weather".into()], ..Question::default() };
    assert_eq!(runs(&quiet, &busy, &allowed), Err(Refused::NoWord("weather".into())));
}

/// Refusing twenty thousand points of another job must not take quadratic time.
#[test]
fn every_job_that_differs_is_paired_once() {
    let of = |sync: u32| {
        let text = format!(
            "schema = 1\nname = \"s\"\n[[stack]]\nname = \"a\"\ndevice = \"file\"\n[[experiment]]\nname = \
             \"e\"\n[experiment.block]\nread_share = \"0%\"\nqueue_depth = [1, 2, 4]\nsync_every = {sync}\n"
        );
        let mut run = run_of(&text, Nanos(1000));
        run.path = format!("run-{sync}").into();
        run
    };
    let Err(Refused::Differ(all)) = runs(&of(1), &of(2), &Question::default()) else {
        panic!("other jobs are refused");
    };
    let sync = all.iter().filter(|one| one.what.ends_with("sync_every")).count();
    assert_eq!((sync, all.len()), (3, 3), "{all:?}");
}

/// A run that was killed half-way must be reported as incomplete.
#[test]
fn a_run_that_is_not_whole_says_so() {
    let mut run = alike();
    run.trials.pop();
    let found = compared(&run);
    assert!(found.notes.iter().any(|note| note.contains("9 of 10 trials")), "{:?}", found.notes);
}
