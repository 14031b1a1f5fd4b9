//! One storage beside another, or one run beside another: differences with their intervals, then verdicts.
//!
//! Stacks of one run took turns and are compared pair by pair, a pair a repetition. Two runs are compared as
//! what ran apart, and only where job, host and storage are the same ([`crate::sameness`]). All figures of a
//! comparison are judged together ([`stats::compare`]). Invariants: a value is of one whole repetition; one
//! that was not complete takes its pair with it, and that is said; an emulated drive that was not as its
//! model asks is not judged. What it is not: words for people.

use archive::{Run, TrialOutcome, TrialRecord};
use serde::Serialize;
use stats::compare::{Difference, Finding, Placed, REPETITIONS_MIN, apart, findings, paired};
use study::Source;
use workload::OpClass;

use crate::doubts::doubts;
use crate::groups::{Group, Ops, groups, is_sql};
use crate::sameness::{Mismatch, environments, jobs};

/// What is asked of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// Difference below which two are as good as equal (0.05 is 5 %).
    pub margin: f64,
    /// Metrics, as in figures; empty: the rate of a closed loop or the median of an open one, and `latency_p99`.
    pub metrics: Vec<String>,
    /// Words of differences between hosts and storages that are accepted.
    pub although: Vec<String>,
}

impl Default for Question {
    fn default() -> Self {
        Self { margin: 0.05, metrics: Vec::new(), although: Vec::new() }
    }
}

/// Metrics that can be compared.
pub const METRICS: [&str; 5] =
    ["rate", "latency_mean", "latency_p50", "latency_p99", "latency_p99_9"];

/// How the second is beside the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// More operations, or less time.
    Better,
    /// Fewer, or more time.
    Worse,
    /// They differ by less than the margin.
    Equal,
    /// It cannot be told.
    Open,
}

/// One figure of both.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Name of the experiment.
    pub experiment: String,
    /// `block`, `lmdb`, ...
    pub engine: String,
    /// Name of the stack, of both where they are two.
    pub stack: String,
    /// The point, `name=value` each.
    pub point: String,
    /// Which operations.
    pub ops: &'static str,
    /// Which metric.
    pub metric: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Sources of both.
    pub sources: [Source; 2],
    /// Geometric means of both.
    pub values: [f64; 2],
    /// Second over first, with its error; none where it is not judged.
    pub difference: Option<Difference>,
    /// How the second is.
    pub verdict: Verdict,
    /// Why it is not judged.
    pub why: String,
}

/// A comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// What stands for the first and the second.
    pub names: [String; 2],
    /// They took turns in one run.
    pub turns: bool,
    /// Difference below which they are equal.
    pub margin: f64,
    /// Figure by figure, in the order of the plan.
    pub rows: Vec<Row>,
    /// What one side alone has.
    pub alone: Vec<String>,
    /// What was accepted, and what spoils figures of either.
    pub notes: Vec<String>,
}

/// Why there is no comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// They did not do the same on the same.
    Differ(Vec<Mismatch>),
    /// Nothing of one is in the other.
    NothingShared,
    /// A stack that the run does not have, and those that it has.
    NoStack(String, Vec<String>),
}

/// Two stacks of one run.
///
/// # Errors
/// [`Refused`] where the run lacks one, or they share no job.
pub fn stacks(run: &Run, names: [&str; 2], question: &Question) -> Result<Comparison, Refused> {
    let known: Vec<String> = run.header.stacks.iter().map(|stack| stack.name.clone()).collect();
    if let Some(name) = names.iter().find(|name| !known.contains(&(**name).to_owned())) {
        return Err(Refused::NoStack((*name).to_owned(), known));
    }
    let all = groups(run);
    let of = |name: &str| -> Vec<&Group<'_>> {
        all.iter().filter(|group| group.first.stack == name).collect()
    };
    let notes = spoilt(run, "").collect();
    made(names.map(str::to_owned), (&of(names[0]), &of(names[1])), question, true, notes)
}

/// The same stacks of two runs.
///
/// # Errors
/// [`Refused`] where host, storage or a job differs, or they share none.
pub fn runs(first: &Run, second: &Run, question: &Question) -> Result<Comparison, Refused> {
    let (one, other) = (groups(first), groups(second));
    let mut differ = Vec::new();
    let mut notes = Vec::new();
    for mismatch in environments(first, second) {
        let accepted = mismatch.word.as_ref().is_some_and(|word| question.although.contains(word));
        if accepted {
            let Mismatch { what, first, second, .. } = &mismatch;
            notes.push(format!("accepted: {what}: {first} and {second}"));
        } else {
            differ.push(mismatch);
        }
    }
    let (one, other): (Vec<&Group<'_>>, Vec<&Group<'_>>) =
        (one.iter().collect(), other.iter().collect());
    differ.extend(other_jobs(&one, &other));
    if !differ.is_empty() {
        return Err(Refused::Differ(differ));
    }
    notes.extend(spoilt(first, "first: "));
    notes.extend(spoilt(second, "second: "));
    let (tool, newer) = (&first.header.provenance.tool, &second.header.provenance.tool);
    if tool != newer {
        notes.push(format!("measured with Crosspoint {tool} and {newer}"));
    }
    let names = [first.name.clone(), second.name.clone()];
    made(names, (&one, &other), question, false, notes)
}

/// What spoils figures of a run, a line each.
fn spoilt<'a>(run: &'a Run, side: &'a str) -> impl Iterator<Item = String> + 'a {
    let line = move |doubt: crate::doubts::Doubt| {
        format!("{side}{} {}", doubt.kind.title(), doubt.count_text())
    };
    doubts(run).into_iter().map(line)
}

/// Whether two groups did the same; runs of before jobs had hashes are told by their points.
fn same_job(one: &Group<'_>, other: &Group<'_>) -> bool {
    let (one, other) = (one.first, other.first);
    let hashed = !one.job.is_empty() && !other.job.is_empty();
    (&one.experiment, &one.engine) == (&other.experiment, &other.engine)
        && one.point == other.point
        && (!hashed || one.job == other.job)
}

/// Jobs of one experiment on one stack that are in one run alone, against one that is in the other alone.
fn other_jobs(first: &[&Group<'_>], second: &[&Group<'_>]) -> Vec<Mismatch> {
    let on_same = |a: &Group<'_>, b: &Group<'_>| a.first.stack == b.first.stack;
    let lone = |all: &[&Group<'_>], others: &[&Group<'_>], at: usize| {
        !others.iter().any(|other| on_same(all[at], other) && same_job(all[at], other))
    };
    let mut found = Vec::new();
    let mut taken = vec![false; second.len()];
    for one in (0..first.len()).filter(|at| lone(first, second, *at)) {
        let of = |at: &usize| {
            on_same(first[one], second[*at])
                && first[one].first.experiment == second[*at].first.experiment
                && lone(second, first, *at)
                && !taken[*at]
        };
        let Some(other) = (0..second.len()).find(of) else { continue };
        taken[other] = true;
        found.extend(jobs(first[one], second[other]));
    }
    found
}

fn made(
    names: [String; 2],
    (first, second): (&[&Group<'_>], &[&Group<'_>]),
    question: &Question,
    turns: bool,
    mut notes: Vec<String>,
) -> Result<Comparison, Refused> {
    let partner = |one: &&Group<'_>| {
        let same = |other: &&&Group<'_>| {
            same_job(one, other) && (turns || one.first.stack == other.first.stack)
        };
        second.iter().find(same).copied()
    };
    let mut rows = Vec::new();
    let mut alone = Vec::new();
    for one in first {
        match partner(one) {
            Some(other) => rows.extend(rows_of(one, other, question, turns, &mut notes)),
            None => alone.push(format!("{} alone has {}", names[0], what(one))),
        }
    }
    let has_none = |other: &&&Group<'_>| {
        !first.iter().any(|one| partner(one).is_some_and(|found| std::ptr::eq(found, **other)))
    };
    let lone = second.iter().filter(has_none);
    alone.extend(lone.map(|other| format!("{} alone has {}", names[1], what(other))));
    if rows.is_empty() {
        return Err(Refused::NothingShared);
    }
    judge(&mut rows, question.margin);
    Ok(Comparison { names, turns, margin: question.margin, rows, alone, notes })
}

fn what(group: &Group<'_>) -> String {
    let trial = group.first;
    format!("{} on {} at {}", trial.experiment, trial.stack, point_text(trial))
}

fn point_text(trial: &TrialRecord) -> String {
    let parts: Vec<String> =
        trial.point.iter().map(|(name, value)| format!("{name}={value}")).collect();
    parts.join(" ")
}

/// The figures of a pair of groups, not judged yet.
fn rows_of(
    one: &Group<'_>,
    other: &Group<'_>,
    question: &Question,
    turns: bool,
    notes: &mut Vec<String>,
) -> Vec<Row> {
    let whole = |group: &Group<'_>| {
        group.trials.iter().filter(|trial| trial.outcome == TrialOutcome::Complete).count()
    };
    for group in [one, other] {
        let lost = group.trials.len() - whole(group);
        if lost > 0 {
            notes.push(format!("{lost} repetitions of {} are not whole and left out", what(group)));
        }
    }
    let stack = match one.first.stack == other.first.stack {
        true => one.first.stack.clone(),
        false => format!("{}, {}", one.first.stack, other.first.stack),
    };
    let mut rows = Vec::new();
    for ops in compared_ops(one) {
        for metric in metrics_of(one, question) {
            let Some(values) = values(one, other, (ops, metric)) else { continue };
            let unfaithful = [one, other].iter().any(|group| {
                let faithful =
                    |trial: &&TrialRecord| trial.result.served.is_some_and(|s| s.is_faithful());
                group.first.source == Source::Emulated && !group.trials.iter().all(faithful)
            });
            let (difference, why) = match unfaithful {
                true => (None, "the emulated drive was not as its model asks".to_owned()),
                false => difference(one, other, (ops, metric), turns),
            };
            rows.push(Row {
                experiment: one.first.experiment.clone(),
                engine: one.first.engine.clone(),
                stack: stack.clone(),
                point: point_text(one.first),
                ops: ops.word(),
                metric,
                unit: if metric == "rate" { "1/s" } else { "us" },
                sources: [one.first.source, other.first.source],
                values,
                difference,
                verdict: Verdict::Open,
                why,
            });
        }
    }
    rows
}

/// Operations whose figures are compared: transactions of SQL, else each kind that is there.
fn compared_ops(group: &Group<'_>) -> Vec<Ops> {
    if is_sql(group.first) {
        return vec![Ops::Only(OpClass::Transaction)];
    }
    let classes = group.classes();
    classes.into_iter().filter(|ops| ops.class().is_some_and(OpClass::is_whole)).collect()
}

fn metrics_of(group: &Group<'_>, question: &Question) -> Vec<&'static str> {
    if question.metrics.is_empty() {
        // The rate of a schedule is the schedule's.
        let first = if group.is_open_loop() { "latency_p50" } else { "rate" };
        return vec![first, "latency_p99"];
    }
    METRICS.into_iter().filter(|known| question.metrics.iter().any(|one| one == known)).collect()
}

/// The value of one repetition alone, in the metric's unit.
fn value(group: &Group<'_>, trial: &TrialRecord, (ops, metric): (Ops, &str)) -> Option<f64> {
    let alone = group.alone(trial.number)?;
    let time = |estimate: stats::estimate::Estimate| {
        // Of what is "this or more" nobody knows how much more.
        (!estimate.at_least).then_some(estimate.value / 1e3)
    };
    let percentile = |p: f64| alone.percentile(ops, p).ok().and_then(time);
    match metric {
        "rate" => alone.rate(ops).map(|estimate| estimate.value),
        "latency_mean" => alone.mean_latency(ops).and_then(time),
        "latency_p50" => percentile(50.0),
        "latency_p99" => percentile(99.0),
        _ => percentile(99.9),
    }
}

/// Values of the whole repetitions with their places and repetitions.
fn each(group: &Group<'_>, figure: (Ops, &str)) -> Vec<(u32, Placed)> {
    let whole = group.trials.iter().filter(|trial| trial.outcome == TrialOutcome::Complete);
    whole
        .filter_map(|trial| {
            let value = value(group, trial, figure)?;
            Some((trial.repetition, Placed { place: trial.number, value }))
        })
        .collect()
}

/// Geometric means of both; `None` where one has nothing to show.
fn values(one: &Group<'_>, other: &Group<'_>, figure: (Ops, &str)) -> Option<[f64; 2]> {
    let mean = |group: &Group<'_>| {
        let all = each(group, figure);
        let logs: f64 = all.iter().map(|(_, placed)| placed.value.ln()).sum();
        (!all.is_empty()).then(|| (logs / all.len() as f64).exp())
    };
    Some([mean(one)?, mean(other)?])
}

fn difference(
    one: &Group<'_>,
    other: &Group<'_>,
    figure: (Ops, &str),
    turns: bool,
) -> (Option<Difference>, String) {
    let (first, second) = (each(one, figure), each(other, figure));
    let (found, have) = if turns {
        let pair = |(repetition, a): &(u32, Placed)| {
            let (_, b) = second.iter().find(|(other, _)| other == repetition)?;
            Some((*a, *b))
        };
        let pairs: Vec<(Placed, Placed)> = first.iter().filter_map(pair).collect();
        (paired(&pairs), pairs.len())
    } else {
        let of = |all: &[(u32, Placed)]| -> Vec<f64> {
            all.iter().map(|(_, placed)| placed.value).collect()
        };
        (apart(&of(&first), &of(&second)), first.len().min(second.len()))
    };
    let why = match found {
        Some(_) => String::new(),
        None if have < REPETITIONS_MIN => {
            format!("{have} of the {REPETITIONS_MIN} repetitions that a verdict needs")
        }
        None => "a value of 0, or order and system are one".to_owned(),
    };
    (found, why)
}

/// All that can be judged, together.
fn judge(rows: &mut [Row], margin: f64) {
    let differences: Vec<Difference> = rows.iter().filter_map(|row| row.difference).collect();
    let found = findings(&differences, margin);
    let judged = rows.iter_mut().filter(|row| row.difference.is_some());
    for (row, finding) in judged.zip(found) {
        let more_is_better = row.metric == "rate";
        row.verdict = match finding {
            Finding::Equal => Verdict::Equal,
            Finding::Open => Verdict::Open,
            Finding::Larger if more_is_better => Verdict::Better,
            Finding::Smaller if !more_is_better => Verdict::Better,
            Finding::Larger | Finding::Smaller => Verdict::Worse,
        };
    }
}

impl Comparison {
    /// How many figures came out so.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|row| row.verdict == verdict).count()
    }

    /// Repetitions that every open figure needs to find the margin; `None` where that is beyond reason or
    /// nothing is open for want of them.
    #[must_use]
    pub fn needed(&self) -> Option<u32> {
        let open = self.rows.iter().filter(|row| row.verdict == Verdict::Open);
        let differences = open.filter_map(|row| row.difference);
        differences
            .map(|one| one.needed(self.margin))
            .collect::<Option<Vec<u32>>>()?
            .into_iter()
            .max()
    }
}
