//! Compares two stacks or two runs: differences with intervals, then verdicts.
//!
//! Stacks of one run are interleaved and compared pairwise, one pair per repetition. Two runs are compared as
//! independent samples, and only if job, host and storage are equal ([`crate::sameness`]). All figures of a
//! comparison are judged together ([`stats::compare`]). Invariants: a value comes from one complete
//! repetition; an incomplete repetition removes its pair and is reported; inaccurate emulation is not judged.

use std::collections::{BTreeMap, HashMap, VecDeque};

use archive::{Run, TrialRecord};
use serde::Serialize;
use stats::compare::{Difference, Finding, Placed, REPETITIONS_MIN, apart, findings, paired};
use study::Source;
use workload::OpClass;

use crate::doubts::{WarningKind, doubts_among, doubts_of};
use crate::groups::{Group, Ops, groups, is_sql};
use crate::repetitions::{each, is_faithful, mean, whole};
use crate::sameness::{Mismatch, environments, jobs, remarks};

/// Parameters of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// Equivalence margin (0.05 is 5 %).
    pub margin: f64,
    /// Metrics, as in figures; empty: the rate of a closed loop or the median of an open one, and
    /// `latency_p99`.
    pub metrics: Vec<String>,
    /// Words of differences between hosts and storages that are accepted.
    pub allowed: Vec<String>,
}

impl Default for Question {
    fn default() -> Self {
        Self { margin: 0.05, metrics: Vec::new(), allowed: Vec::new() }
    }
}

/// Metrics that can be compared.
pub const METRICS: [&str; 5] =
    ["rate", "latency_mean", "latency_p50", "latency_p99", "latency_p99_9"];

/// Result of the second side relative to the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// More operations, or less time.
    Better,
    /// Fewer, or more time.
    Worse,
    /// They differ by less than the margin.
    Equivalent,
    /// Neither a difference nor equivalence is established.
    Inconclusive,
}

units::words!(Verdict {
    Better => "better", Worse => "worse", Equivalent => "equivalent", Inconclusive => "inconclusive",
});

/// One metric of both sides.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Name of the experiment.
    pub experiment: String,
    /// `block`, `lmdb`, ...
    pub engine: String,
    /// Name of the stack; of both stacks if they differ.
    pub stack: String,
    /// The point, `name=value` each.
    pub point: String,
    /// The operations.
    pub ops: &'static str,
    /// The metric.
    pub metric: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Sources of both sides.
    pub sources: [Source; 2],
    /// Geometric means of both sides; `None` if a side has no value, 0 if it completed nothing.
    pub values: [Option<f64>; 2],
    /// Second over first with its error; `None` with too little data.
    pub difference: Option<Difference>,
    /// Number of repetitions that have the figure, on the side that has fewer.
    pub repetitions: usize,
    /// Result for the second side.
    pub verdict: Verdict,
    /// Reason why there is no verdict; empty if there is one.
    pub why: String,
}

/// A comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Names of both sides.
    pub names: [String; 2],
    /// The two stacks alternated within one run.
    pub turns: bool,
    /// Equivalence margin.
    pub margin: f64,
    /// Figure by figure, in the order of the plan.
    pub rows: Vec<Row>,
    /// Figures that only one side has.
    pub alone: Vec<String>,
    /// Accepted mismatches, and warnings for either side.
    pub notes: Vec<String>,
}

/// Why the comparison was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// Workload or target differ.
    Differ(Vec<Mismatch>),
    /// No figure in common.
    NothingShared,
    /// Both sides are the same run or stack.
    Same,
    /// The word given to accept a mismatch matches none.
    NoWord(String),
    /// An unknown stack, and the known ones.
    NoStack(String, Vec<String>),
}

/// Compares two stacks of one run.
///
/// # Errors
/// [`Refused`] if the run lacks a stack, or the stacks share no job.
pub fn stacks(run: &Run, names: [&str; 2], question: &Question) -> Result<Comparison, Refused> {
    let known: Vec<String> = run.header.stacks.iter().map(|stack| stack.name.clone()).collect();
    if let Some(name) = names.iter().find(|name| !known.contains(&(**name).to_owned())) {
        return Err(Refused::NoStack((*name).to_owned(), known));
    }
    if names[0] == names[1] {
        return Err(Refused::Same);
    }
    let all = groups(run);
    let of = |name: &str| -> Vec<&Group<'_>> {
        all.iter().filter(|group| group.first.stack == name).collect()
    };
    let notes = spoilt(run, &names, "");
    let (first, second) = (of(names[0]), of(names[1]));
    let sides = (&Side::new(&first), &Side::new(&second));
    made(names.map(str::to_owned), sides, question, true, notes)
}

/// Compares the same stacks of two runs.
///
/// # Errors
/// [`Refused`] if host, storage or a job differs, or no job is shared.
pub fn runs(first: &Run, second: &Run, question: &Question) -> Result<Comparison, Refused> {
    if first.path == second.path {
        return Err(Refused::Same);
    }
    let (one, other) = (groups(first), groups(second));
    let mut differ = Vec::new();
    let mut notes = Vec::new();
    let mismatches = environments(first, second);
    let known = |word: &&String| mismatches.iter().any(|one| one.word.as_ref() == Some(*word));
    if let Some(unknown) = question.allowed.iter().find(|word| !known(word)) {
        return Err(Refused::NoWord(unknown.clone()));
    }
    for mismatch in mismatches {
        let accepted = mismatch.word.as_ref().is_some_and(|word| question.allowed.contains(word));
        if accepted {
            let Mismatch { what, first, second, .. } = &mismatch;
            notes.push(format!("accepted: {what}: {first} and {second}"));
        } else {
            differ.push(mismatch);
        }
    }
    let (one, other): (Vec<&Group<'_>>, Vec<&Group<'_>>) =
        (one.iter().collect(), other.iter().collect());
    let (one, other) = (Side::new(&one), Side::new(&other));
    differ.extend(other_jobs(&one, &other));
    if !differ.is_empty() {
        return Err(Refused::Differ(differ));
    }
    notes.extend(spoilt(first, &[], "first: "));
    notes.extend(spoilt(second, &[], "second: "));
    notes.extend(remarks(first, second));
    let names = match first.name == second.name {
        false => [first.name.clone(), second.name.clone()],
        true => [first, second].map(|run| run.path.display().to_string()),
    };
    made(names, (&one, &other), question, false, notes)
}

/// Warnings for these stacks of a run, or for all of its stacks, one per line.
fn spoilt(run: &Run, stacks: &[&str], side: &str) -> Vec<String> {
    let of = |trial: &&TrialRecord| stacks.is_empty() || stacks.contains(&trial.stack.as_str());
    let own: Vec<&TrialRecord> = run.trials.iter().filter(of).collect();
    let line = |doubt: crate::doubts::Warning| {
        format!("{side}{} {}", doubt.kind.title(), doubt.count_text())
    };
    let mut found: Vec<String> = doubts_among(run, &own).into_iter().map(line).collect();
    if run.is_partial() {
        let (there, planned) = (run.trials.len(), run.header.trials_planned);
        found.insert(0, format!("{side}Incomplete: {there} of {planned} trials"));
    }
    found
}

/// The groups of one side, indexed by job.
struct Side<'a, 'g> {
    groups: &'a [&'a Group<'g>],
    by_point: HashMap<Key<'a>, Vec<usize>>,
}

/// Experiment, engine and point.
type Key<'a> = (&'a str, &'a str, &'a BTreeMap<String, String>);

impl<'a, 'g> Side<'a, 'g> {
    fn new(groups: &'a [&'a Group<'g>]) -> Self {
        let mut by_point: HashMap<Key<'a>, Vec<usize>> = HashMap::new();
        for (at, group) in groups.iter().enumerate() {
            by_point.entry(Self::key(group)).or_default().push(at);
        }
        Self { groups, by_point }
    }

    fn key<'k>(group: &'k Group<'_>) -> Key<'k> {
        (&group.first.experiment, &group.first.engine, &group.first.point)
    }

    /// The group with the same job, on the same stack unless two stacks are compared. Runs without job hashes
    /// are matched by their points.
    fn partner(&self, one: &Group<'_>, same_stack: bool) -> Option<&'a Group<'g>> {
        let places = self.by_point.get(&Self::key(one))?;
        let same = |other: &&&Group<'_>| {
            let (one, other) = (one.first, other.first);
            let hashed = !one.job.is_empty() && !other.job.is_empty();
            (!hashed || one.job == other.job) && (!same_stack || one.stack == other.stack)
        };
        places.iter().map(|at| &self.groups[*at]).find(same).copied()
    }

    /// Groups without a partner among `others`.
    fn lone(&self, others: &Side<'_, '_>, same_stack: bool) -> Vec<&'a Group<'g>> {
        let all = self.groups.iter().copied();
        all.filter(|one| others.partner(one, same_stack).is_none()).collect()
    }
}

/// Jobs of one experiment on one stack that exist in one run only, next to those that exist in the other
/// only.
fn other_jobs(first: &Side<'_, '_>, second: &Side<'_, '_>) -> Vec<Mismatch> {
    let place = |group: &Group<'_>| (group.first.experiment.clone(), group.first.stack.clone());
    let mut others: HashMap<(String, String), VecDeque<&Group<'_>>> = HashMap::new();
    for other in second.lone(first, true) {
        others.entry(place(other)).or_default().push_back(other);
    }
    let lone = first.lone(second, true).into_iter();
    let pairs = lone.filter_map(|one| Some((one, others.get_mut(&place(one))?.pop_front()?)));
    pairs.flat_map(|(one, other)| jobs(one, other)).collect()
}

fn made(
    names: [String; 2],
    (first, second): (&Side<'_, '_>, &Side<'_, '_>),
    question: &Question,
    turns: bool,
    mut notes: Vec<String>,
) -> Result<Comparison, Refused> {
    let mut rows = Vec::new();
    for one in first.groups {
        let other = second.partner(one, !turns);
        rows.extend(
            other.into_iter().flat_map(|other| rows_of(one, other, question, turns, &mut notes)),
        );
    }
    let alone = |name: &str, lone: Vec<&Group<'_>>| -> Vec<String> {
        lone.into_iter().map(|group| format!("{name} alone has {}", what(group))).collect()
    };
    let mut alone_have = alone(&names[0], first.lone(second, !turns));
    alone_have.extend(alone(&names[1], second.lone(first, !turns)));
    if rows.is_empty() {
        return Err(Refused::NothingShared);
    }
    judge(&mut rows, question.margin);
    Ok(Comparison { names, turns, margin: question.margin, rows, alone: alone_have, notes })
}

fn what(group: &Group<'_>) -> String {
    let trial = group.first;
    format!("{} on {} at {}", trial.experiment, trial.stack, trial.point_text())
}

/// The figures of a pair of groups, not judged yet.
fn rows_of(
    one: &Group<'_>,
    other: &Group<'_>,
    question: &Question,
    turns: bool,
    notes: &mut Vec<String>,
) -> Vec<Row> {
    for group in [one, other] {
        let lost = group.trials.len() - whole(group).count();
        if lost > 0 {
            let (count, are) = match lost {
                1 => ("1 repetition".to_owned(), "is"),
                several => (format!("{several} repetitions"), "are"),
            };
            notes.push(format!(
                "{count} of {} {are} left out: incomplete, or emulation not accurate",
                what(group)
            ));
        }
    }
    let stack = match one.first.stack == other.first.stack {
        true => one.first.stack.clone(),
        false => format!("{}, {}", one.first.stack, other.first.stack),
    };
    let spoilt = not_judged(one, other, turns);
    let mut rows = Vec::new();
    for ops in compared_ops(one, other) {
        for metric in metrics_of(one, question) {
            let figure = (ops, metric);
            let (first, second) = (each(one, figure), each(other, figure));
            if first.is_empty() && second.is_empty() {
                continue;
            }
            let known = difference(&first, &second, turns);
            let (verdict, why) = match lacks([one, other], [&first, &second], metric) {
                Some((verdict, why)) => (verdict, why),
                None if known.is_none() => (Verdict::Inconclusive, too_few(&first, &second)),
                None => (Verdict::Inconclusive, spoilt.clone().unwrap_or_default()),
            };
            rows.push(Row {
                experiment: one.first.experiment.clone(),
                engine: one.first.engine.clone(),
                stack: stack.clone(),
                point: one.first.point_text(),
                ops: ops.word(),
                metric,
                unit: if metric == "rate" { "1/s" } else { "us" },
                sources: [one.first.source, other.first.source],
                values: [mean(&first), mean(&second)],
                difference: known,
                repetitions: first.len().min(second.len()),
                verdict,
                why,
            });
        }
    }
    rows
}

/// Returns why a pair of groups cannot be judged at all.
fn not_judged(one: &Group<'_>, other: &Group<'_>, turns: bool) -> Option<String> {
    let groups = [one, other];
    let unfaithful = |group: &&Group<'_>| !whole(group).all(is_faithful);
    if groups.iter().any(unfaithful) {
        return Some("emulation fell behind".into());
    }
    let predicted = groups.map(|group| group.first.source == Source::Predicted);
    if predicted[0] != predicted[1] {
        return Some("one side is predicted: intervals do not include the model's error".into());
    }
    // Interleaved stacks share the host's background load; separate runs do not.
    let busy = |group: &&Group<'_>| {
        group.trials.iter().any(|trial| doubts_of(trial).contains(&WarningKind::BusyHost))
    };
    let apart = !turns && !predicted[0];
    (apart && groups.iter().any(busy)).then(|| "the host was busy during one of the runs".into())
}

/// Returns why a metric has no verdict because one side, or one repetition, lacks it. Otherwise a slow side
/// could look fast.
fn lacks(
    groups: [&Group<'_>; 2],
    values: [&[(u32, Placed)]; 2],
    metric: &str,
) -> Option<(Verdict, String)> {
    let nothing =
        |at: usize| metric == "rate" && values[at].iter().all(|(_, one)| one.value <= 0.0);
    let all =
        |at: usize| !values[at].is_empty() && values[at].iter().all(|(_, one)| one.value > 0.0);
    let enough = values.iter().all(|side| side.len() >= REPETITIONS_MIN);
    if enough && nothing(1) && all(0) {
        return Some((Verdict::Worse, "the second completed no operations".into()));
    }
    if enough && nothing(0) && all(1) {
        return Some((Verdict::Better, "the first completed no operations".into()));
    }
    let short = |(group, side): (&Group<'_>, &[(u32, Placed)])| {
        let (have, whole) = (side.len(), whole(group).count());
        (have < whole).then(|| {
            format!(
                "{} of {whole} repetitions on {} lack this metric: too few operations, or some never ended",
                whole - have,
                group.first.stack
            )
        })
    };
    groups.into_iter().zip(values).find_map(short).map(|why| (Verdict::Inconclusive, why))
}

fn too_few(first: &[(u32, Placed)], second: &[(u32, Placed)]) -> String {
    let have = first.len().min(second.len());
    match have < REPETITIONS_MIN {
        true => format!("{have} of at least {REPETITIONS_MIN} repetitions"),
        false => {
            "some repetitions completed nothing, or order and system cannot be separated".to_owned()
        }
    }
}

/// The compared operations: transactions of SQL, otherwise each class that either side has.
fn compared_ops(one: &Group<'_>, other: &Group<'_>) -> Vec<Ops> {
    if is_sql(one.first) || is_sql(other.first) {
        return vec![Ops::Only(OpClass::Transaction)];
    }
    let mut classes = one.classes();
    classes.extend(other.classes().into_iter().filter(|ops| !one.classes().contains(ops)));
    classes.into_iter().filter(|ops| ops.class().is_some_and(OpClass::is_whole)).collect()
}

fn metrics_of(group: &Group<'_>, question: &Question) -> Vec<&'static str> {
    if question.metrics.is_empty() {
        // The rate of an open loop is set by the study.
        let first = if group.is_open_loop() { "latency_p50" } else { "rate" };
        return vec![first, "latency_p99"];
    }
    METRICS.into_iter().filter(|known| question.metrics.iter().any(|one| one == known)).collect()
}

fn difference(
    first: &[(u32, Placed)],
    second: &[(u32, Placed)],
    turns: bool,
) -> Option<Difference> {
    if turns {
        let pair = |(repetition, a): &(u32, Placed)| {
            let (_, b) = second.iter().find(|(other, _)| other == repetition)?;
            Some((*a, *b))
        };
        return paired(&first.iter().filter_map(pair).collect::<Vec<(Placed, Placed)>>());
    }
    let of = |all: &[(u32, Placed)]| -> Vec<f64> { all.iter().map(|(_, one)| one.value).collect() };
    apart(&of(first), &of(second))
}

/// Gives the verdicts of all rows that can have one, corrected for the number of rows.
fn judge(rows: &mut [Row], margin: f64) {
    let differences: Vec<Difference> = rows.iter().filter_map(Row::judged).collect();
    let found = findings(&differences, margin);
    let judged = rows.iter_mut().filter(|row| row.judged().is_some());
    for (row, finding) in judged.zip(found) {
        let more_is_better = row.metric == "rate";
        row.verdict = match finding {
            Finding::Equal => Verdict::Equivalent,
            Finding::Open => Verdict::Inconclusive,
            Finding::Larger if more_is_better => Verdict::Better,
            Finding::Smaller if !more_is_better => Verdict::Better,
            Finding::Larger | Finding::Smaller => Verdict::Worse,
        };
    }
}

impl Row {
    /// The difference, if it is judged.
    #[must_use]
    pub fn judged(&self) -> Option<Difference> {
        self.difference.filter(|_| self.why.is_empty())
    }
}

impl Comparison {
    /// Number of figures with this verdict.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|row| row.verdict == verdict).count()
    }

    /// Number of figures judged together.
    #[must_use]
    pub fn judged(&self) -> usize {
        self.rows.iter().filter(|row| row.judged().is_some()).count()
    }

    /// Repetitions needed for every inconclusive metric to detect the margin, if more than the run has;
    /// `None` if out of reach, or if none is inconclusive for lack of repetitions.
    #[must_use]
    pub fn needed(&self) -> Option<u32> {
        let judged = self.judged();
        let open = self.rows.iter().filter(|row| row.verdict == Verdict::Inconclusive);
        let differences = open.filter_map(Row::judged);
        // If this many repetitions were not enough, the true difference lies near a threshold.
        let more = |one: Difference| {
            one.needed(self.margin, judged).map(|needed| needed.max(2 * one.n as u32))
        };
        differences.map(more).collect::<Option<Vec<u32>>>()?.into_iter().max()
    }
}
