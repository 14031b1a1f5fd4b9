//! Groups of trials: the repetitions of one point on one stack.
//!
//! The repetition is the unit of every interval; with one trial, the interval is within that run and labelled
//! so. Invariant: a group has one source, study, stack, engine, experiment and point.

use indexmap::{IndexMap, IndexSet};
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use study::Source;

use archive::{Run, TrialOutcome, TrialRecord};
use serde_json::Value;
use stats::estimate::{
    Estimate, PARTS_MIN, TooFew, beyond, over_repetitions, over_values, percentile,
    percentile_within, ratio_within,
};
use stats::{Counts, Histogram, Interval, Limit};
use validate::{JobShape, PredictionError};
use workload::OpClass;

use crate::shape::{checked_metric, shapes};

/// One point on one stack, with its repetitions.
#[derive(Debug)]
pub struct Group<'a> {
    /// The run of these trials.
    pub run: &'a Run,
    /// The first of the trials; they differ in repetition only.
    pub first: &'a TrialRecord,
    /// All of them, in the order of the plan.
    pub trials: Vec<&'a TrialRecord>,
    /// Cached: scans every interval of every trial.
    classes: OnceCell<Vec<Ops>>,
    /// Cached: shared by all its figures.
    defaults: OnceCell<Arc<BTreeMap<String, Value>>>,
    /// Cached percentiles of response times: each decodes the histograms of every trial.
    known: RefCell<Vec<Known>>,
    /// The job's shape, for predictions that published figures can validate.
    shape: Option<JobShape>,
}

/// A cached percentile: operations, percentile, result.
type Known = (Ops, f64, Result<Estimate, TooFew>);

/// Percentiles used by charts and sentences, computed together.
const USUAL: [f64; 2] = [50.0, 99.0];

/// The operations of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ops {
    /// All classes that may be summed.
    All,
    /// One class.
    Only(OpClass),
}

impl Ops {
    /// Identifier of the metric in `figures`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Only(class) => class.word(),
        }
    }

    /// The class, if it is a single one.
    #[must_use]
    pub const fn class(self) -> Option<OpClass> {
        match self {
            Self::All => None,
            Self::Only(class) => Some(class),
        }
    }
}

/// Drops percentiles that are out of order. A percentile supported only by all repetitions together comes
/// mostly from the fastest repetition, which has the most samples, so it can be below a lower percentile.
fn in_order(found: Vec<Result<Estimate, TooFew>>) -> Vec<Result<Estimate, TooFew>> {
    let mut most = 0.0;
    let one = |estimate: Result<Estimate, TooFew>| match estimate {
        Ok(estimate) if estimate.value < most => Err(TooFew { needed: 1, have: 0 }),
        Ok(estimate) => {
            most = estimate.value;
            Ok(estimate)
        }
        few => few,
    };
    found.into_iter().map(one).collect()
}

/// The groups of a run: jobs in the order of the plan, the stacks of each in the order of the study.
pub fn groups<'a>(run: &'a Run) -> Vec<Group<'a>> {
    let mut groups: IndexMap<_, Group<'_>> = IndexMap::new();
    let shapes = shapes(run);
    for trial in &run.trials {
        let own = (&trial.experiment, &trial.stack, &trial.engine, &trial.point, &trial.source);
        let shape = || shapes.get(&trial.number).cloned();
        let first = || Group { shape: shape(), trials: Vec::new(), ..Group::of(run, trial) };
        groups.entry(own).or_insert_with(first).trials.push(trial);
    }
    // Repetitions run the stacks of a job in random order.
    let mut ordered: Vec<_> = groups.into_values().collect();
    let job_of = |first: &'a TrialRecord| (&first.experiment, &first.engine, &first.point);
    let jobs: IndexSet<_> = run.trials.iter().map(job_of).collect();
    ordered.sort_by_key(|Group { first, .. }| {
        let stack = run.header.stacks.iter().position(|stack| stack.name == first.stack);
        (jobs.get_index_of(&job_of(first)), stack)
    });
    ordered
}

impl<'a> Group<'a> {
    /// Creates the group of one trial.
    fn of(run: &'a Run, first: &'a TrialRecord) -> Self {
        Self {
            run,
            first,
            trials: vec![first],
            classes: OnceCell::new(),
            defaults: OnceCell::new(),
            known: RefCell::default(),
            shape: None,
        }
    }

    /// Parameters of its job that have their default value.
    #[must_use]
    pub fn defaults(&self) -> Arc<BTreeMap<String, Value>> {
        let all = || {
            let mut all = typed(&self.first.defaults);
            if self.time_scale() > 1 {
                all.insert("time_scale".into(), Value::from(self.time_scale()));
            }
            Arc::new(all)
        };
        Arc::clone(self.defaults.get_or_init(all))
    }

    /// Time scale of the emulated drive.
    #[must_use]
    pub fn time_scale(&self) -> u32 {
        let own = self.run.study.stack.iter().find(|stack| stack.name == self.first.stack);
        own.map_or(1, |stack| stack.scale)
    }

    /// The simulated repetitions of the same job on another stack.
    pub(crate) fn simulated_on(&self, stack: &str) -> Option<Self> {
        let own = self.first;
        let same = |trial: &&TrialRecord| {
            (&trial.experiment, &trial.engine, &trial.point)
                == (&own.experiment, &own.engine, &own.point)
                && trial.stack == stack
                && trial.result.is_simulated()
        };
        let trials: Vec<&'a TrialRecord> = self.run.trials.iter().filter(same).collect();
        let first = *trials.first()?;
        Some(Self { trials, ..Self::of(self.run, first) })
    }

    /// One of its repetitions as a group, by the trial's number.
    pub fn alone(&self, number: u32) -> Option<Self> {
        let trial = self.trials.iter().find(|trial| trial.number == number)?;
        Some(Self { shape: self.shape.clone(), ..Self::of(self.run, trial) })
    }

    /// Whether none of its trials failed; partial recordings of failed trials are not results.
    pub fn is_sound(&self) -> bool {
        self.trials.iter().all(|trial| trial.outcome != TrialOutcome::Failed)
    }

    /// Its classes of operations, and `All` if there are reads and writes.
    pub fn classes(&self) -> Vec<Ops> {
        self.classes.get_or_init(|| self.find_classes()).clone()
    }

    fn find_classes(&self) -> Vec<Ops> {
        let present: Vec<Ops> = OpClass::ALL
            .into_iter()
            .filter(|class| {
                let there = |i: &stats::Interval| i.tallies[*class].counts.ops > 0;
                self.trials.iter().any(|trial| trial.result.recording.measured().any(there))
            })
            .map(Ops::Only)
            .collect();
        // Lookups and updates of a database are not summed, nor are flushes and background operations.
        let data = present.iter().filter(|ops| ops.class().is_some_and(OpClass::is_whole));
        if data.count() > 1 && self.first.engine == "block" {
            let mut classes = vec![Ops::All];
            classes.extend(present);
            classes
        } else {
            present
        }
    }

    /// Response times of all repetitions together, for pictures.
    pub fn latency(&self, ops: Ops) -> Histogram {
        self.pooled(ops, Times::Response)
    }

    /// Service times of all repetitions; empty in a closed loop.
    pub fn service(&self, ops: Ops) -> Histogram {
        self.pooled(ops, Times::Service)
    }

    fn pooled(&self, ops: Ops, times: Times) -> Histogram {
        let mut sum = stats::new_histogram();
        for trial in &self.trials {
            let total = trial.result.recording.total(ops.class());
            sum.add(times.of(&total)).expect("invariant: equal histogram bounds");
        }
        sum
    }

    /// Whether operations were due by a schedule.
    pub fn is_open_loop(&self) -> bool {
        ["arrivals", "write_rate"].iter().any(|key| self.first.point.contains_key(*key))
    }

    /// A percentile of the response time, in nanoseconds.
    ///
    /// # Errors
    /// [`TooFew`] if all repetitions together have too few samples.
    pub fn percentile(&self, ops: Ops, p: f64) -> Result<Estimate, TooFew> {
        let find = || {
            let known = self.known.borrow();
            known.iter().find(|(of, at, _)| (*of, *at) == (ops, p)).map(|(.., found)| *found)
        };
        if let Some(found) = find() {
            return found;
        }
        let wanted = if USUAL.contains(&p) { &USUAL[..] } else { &[p] };
        let found = self.percentiles(ops, Times::Response, wanted);
        let all = wanted.iter().zip(found).map(|(p, found)| (ops, *p, found));
        self.known.borrow_mut().extend(all);
        find().expect("invariant: it was among those wanted")
    }

    /// Percentiles of response or service times, in nanoseconds, one per repetition. If only all repetitions
    /// together support one, it has no interval.
    pub fn percentiles(
        &self,
        ops: Ops,
        times: Times,
        wanted: &[f64],
    ) -> Vec<Result<Estimate, TooFew>> {
        let of = |trial: &&TrialRecord| {
            let total = trial.result.recording.total(ops.class());
            let missed = if times == Times::Response { total.missed } else { 0 };
            (times.of(&total).clone(), missed)
        };
        let runs: Vec<(Histogram, u64)> = self.trials.iter().map(of).collect();
        let each = |p: f64| -> Vec<Result<Estimate, TooFew>> {
            runs.iter().map(|(latency, missed)| percentile(latency, *missed, p)).collect()
        };
        let found: Vec<Result<Estimate, TooFew>> = wanted
            .iter()
            .map(|p| {
                let supported: Result<Vec<Estimate>, TooFew> = each(*p).into_iter().collect();
                match supported {
                    Ok(runs) => over_repetitions(&runs).ok_or(TooFew { needed: 1, have: 0 }),
                    Err(_) => {
                        let mut all = stats::new_histogram();
                        for (latency, _) in &runs {
                            all.add(latency).expect("invariant: equal histogram bounds");
                        }
                        percentile(&all, runs.iter().map(|(_, missed)| missed).sum(), *p)
                    }
                }
            })
            .collect();
        let [(latency, missed)] = runs.as_slice() else { return in_order(found) };
        self.within(ops, times, wanted.iter().copied().zip(found), (latency, *missed))
    }

    /// Percentiles of a single repetition, with intervals from within it.
    fn within(
        &self,
        ops: Ops,
        times: Times,
        found: impl Iterator<Item = (f64, Result<Estimate, TooFew>)>,
        whole: (&Histogram, u64),
    ) -> Vec<Result<Estimate, TooFew>> {
        let found: Vec<(f64, Result<Estimate, TooFew>)> = found.collect();
        // `[percentile]`: for each interval, the share of samples beyond it.
        let mut shares: Vec<Vec<(f64, f64)>> = vec![Vec::new(); found.len()];
        let measured = || self.first.result.recording.measured();
        if measured().count() >= PARTS_MIN {
            for interval in measured() {
                let part = part_of(interval, ops, times);
                for ((_, estimate), shares) in found.iter().zip(&mut shares) {
                    shares.extend(estimate.iter().map(|one| beyond(&part, one.value)));
                }
            }
        }
        let made = found.into_iter().zip(shares).map(|((p, estimate), shares)| {
            estimate.map(|one| percentile_within(one, whole, &shares, p))
        });
        made.collect()
    }

    /// A ratio of sums for each repetition; for a single repetition, with an interval from within it.
    fn ratio(&self, of: impl Fn(&Interval) -> (f64, f64)) -> Option<Estimate> {
        let runs: Vec<Estimate> = self
            .trials
            .iter()
            .filter_map(|trial| {
                let parts: Vec<(f64, f64)> = trial.result.recording.measured().map(&of).collect();
                ratio_within(&parts)
            })
            .collect();
        over_repetitions(&runs)
    }

    /// A count per second.
    pub fn a_second(&self, counted: impl Fn(&Interval) -> u64) -> Option<Estimate> {
        self.ratio(|interval| (counted(interval) as f64, interval.seconds()))
    }

    /// Operations per second.
    pub fn rate(&self, ops: Ops) -> Option<Estimate> {
        self.a_second(|interval| counts_of(interval, ops).ops)
    }

    /// Bytes per second.
    pub fn throughput(&self, ops: Ops) -> Option<Estimate> {
        self.a_second(|interval| counts_of(interval, ops).bytes)
    }

    /// Mean response time in nanoseconds for each repetition: the exact mean over all operations that arrived
    /// within the measurement.
    pub fn mean_latency(&self, ops: Ops) -> Option<Estimate> {
        let parts = |interval: &Interval| {
            let counts = counts_of(interval, ops);
            (counts.latency_sum.get() as f64, counts.ops as f64)
        };
        let of = |trial: &&TrialRecord| {
            let due = trial.result.recording.due(ops.class());
            let missed = trial.result.recording.missed_of(ops.class());
            let value = due.latency_sum.get() as f64 / due.ops as f64;
            (due.ops > 0).then(|| Estimate { at_least: missed > 0, ..Estimate::of(value, due.ops) })
        };
        let runs: Vec<Estimate> = self.trials.iter().filter_map(of).collect();
        let [only] = runs.as_slice() else { return over_repetitions(&runs) };
        // The interval comes from completed operations, the mean from those that arrived.
        let Some(within) = self.ratio(parts).filter(|_| !only.at_least) else { return Some(*only) };
        let moved = |end: Option<f64>| end.map(|end| (end + only.value - within.value).max(0.0));
        Some(Estimate { value: only.value, lo: moved(within.lo), hi: moved(within.hi), ..within })
    }

    /// A value per repetition.
    pub fn over_trials(&self, value: impl Fn(&TrialRecord) -> Option<f64>) -> Option<Estimate> {
        let values: Vec<f64> = self.trials.iter().filter_map(|trial| value(trial)).collect();
        over_values(&values)
    }

    /// Largest share of the CPUs that other programs used in any repetition.
    #[must_use]
    pub fn others(&self) -> f64 {
        let limits = self.trials.iter().flat_map(|trial| &trial.result.limits);
        let others = limits.map(|limit| match limit {
            Limit::Processors { others, .. } | Limit::Others { others } => *others,
            Limit::Thread { .. } => 0.0,
        });
        others.fold(0.0, f64::max)
    }

    /// Title of the stack, for people.
    pub fn stack_title(&self) -> &str {
        stack_title(self.run, &self.first.stack)
    }

    /// Expected error of a prediction of `metric` (named as in `figures`); `None` for other sources.
    pub fn worth(&self, metric: &str) -> Option<PredictionError> {
        if self.first.source != Source::Predicted {
            return None;
        }
        if self.first.result.is_host_bound() {
            return Some(PredictionError::HostBound);
        }
        let stack = self.run.header.stacks.iter().find(|stack| stack.name == self.first.stack);
        let known = || Some((stack?, self.shape.as_ref()?, checked_metric(metric)?));
        Some(known().map_or(PredictionError::NotValidated, |(stack, shape, metric)| {
            PredictionError::of(&stack.checked, shape, metric)
        }))
    }
}

/// Response times count from when an operation was due, service times from its issue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// From the scheduled arrival.
    Response,
    /// From issue to completion; `None` in a closed loop.
    Service,
}

impl Times {
    fn of(self, total: &stats::Total) -> &Histogram {
        match self {
            Self::Response => &total.latency,
            Self::Service => &total.service,
        }
    }
}

/// The classes of `ops`.
fn classes_of(ops: Ops) -> impl Iterator<Item = OpClass> {
    let wanted = move |class: &OpClass| ops.class().map_or(class.is_whole(), |only| only == *class);
    OpClass::ALL.into_iter().filter(wanted)
}

/// Counts of `ops` in an interval.
fn counts_of(interval: &Interval, ops: Ops) -> Counts {
    let mut counts = Counts::default();
    classes_of(ops).for_each(|class| counts += interval.tallies[class].counts);
    counts
}

/// The times of `ops` that completed in an interval.
fn part_of(interval: &Interval, ops: Ops, times: Times) -> Histogram {
    let mut part = stats::new_histogram();
    for tally in classes_of(ops).map(|class| &interval.tallies[class]) {
        match times {
            Times::Response => tally.latency.add_to(&mut part),
            Times::Service => tally.service.add_to(&mut part),
        }
    }
    part
}

/// Title of a stack, for people.
pub fn stack_title<'a>(run: &'a Run, name: &'a str) -> &'a str {
    let stack = run.header.stacks.iter().find(|stack| stack.name == name);
    stack.map_or(name, |stack| stack.title.as_str())
}

/// Parameters as JSON values; numeric ones as numbers.
pub(crate) fn typed(parameters: &BTreeMap<String, String>) -> BTreeMap<String, Value> {
    let typed = |(name, value): (&String, &String)| {
        let number = value.parse::<u64>().map(Value::from);
        (name.clone(), number.unwrap_or_else(|_| Value::from(value.clone())))
    };
    parameters.iter().map(typed).collect()
}

/// Whether these are SQL trials.
pub fn is_sql(trial: &TrialRecord) -> bool {
    trial.result.recording.intervals.iter().any(|i| i.tallies[OpClass::Transaction].counts.ops > 0)
}

/// Queue depth of a group; 0 if it has none.
#[must_use]
pub fn depth_of(group: &Group<'_>) -> u64 {
    group.first.point.get("queue_depth").and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Operations that all threads together keep in flight, as configured; 0 if the group has no queue depth.
#[must_use]
pub fn in_flight(group: &Group<'_>) -> u64 {
    let threads = group.first.point.get("clients").and_then(|text| text.parse().ok());
    depth_of(group) * threads.unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Nanos;

    use crate::test_run::run_of;

    /// Otherwise the reference and the headline of a study change with its seed.
    #[test]
    fn stacks_are_in_the_order_of_the_study_however_repetitions_are_shuffled() {
        for seed in 1..=8 {
            let study = format!(
                "schema = 2\nname = \"t\"\nquestion = \"?\"\nseed = {seed}\n\
                 [[stack]]\nname = \"c\"\ndevice = \"model:intel-p4800x\"\n\
                 [[stack]]\nname = \"a\"\ndevice = \"model:intel-s3520\"\n\
                 [[stack]]\nname = \"b\"\ndevice = \"model:ram-disk\"\n\
                 [[experiment]]\nname = \"e\"\nstacks = [\"c\", \"a\", \"b\"]\nrepeat = 3\n\
                 job = {{ engine = \"block\", queue_depth = [1, 2] }}\n"
            );
            let run = run_of(&study, Nanos(1000));
            let found = groups(&run);
            let stacks: Vec<&str> = found.iter().map(|group| &*group.first.stack).collect();
            assert_eq!(stacks, ["c", "a", "b", "c", "a", "b"], "seed {seed}");
            assert!(found.iter().all(|group| group.trials.len() == 3));
        }
    }

    /// A merged p99 comes from the fastest repetition and must not be shown below the p90.
    #[test]
    fn a_percentile_of_all_repetitions_is_none_below_a_lower_one_of_each() {
        let of = |value: f64| Ok(Estimate::of(value, 1));
        let found = in_order(vec![of(115.0), of(677.0), of(143.0), of(36_000.0)]);
        let values: Vec<Option<f64>> =
            found.into_iter().map(|one| one.ok().map(|estimate| estimate.value)).collect();
        assert_eq!(values, [Some(115.0), Some(677.0), None, Some(36_000.0)]);
    }
}
