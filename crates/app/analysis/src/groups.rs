//! Trials that belong together: the repetitions of one point on one stack.
//!
//! Invariant: only trials of one source, study, stack, engine, experiment and point are put together.
//! What it is not: an average over stacks.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use study::Source;

use archive::{Run, TrialOutcome, TrialRecord};
use serde_json::Value;
use stats::Histogram;
use stats::estimate::{Estimate, TooFew, mean, percentile};
use workload::OpClass;

/// One point on one stack, with its repetitions.
#[derive(Debug)]
pub struct Group<'a> {
    /// The run that they are of.
    pub run: &'a Run,
    /// The first of the trials; they differ in repetition only.
    pub first: &'a TrialRecord,
    /// All of them, in the order of the plan.
    pub trials: Vec<&'a TrialRecord>,
    /// Found once: every interval of every trial is looked at for them.
    classes: OnceCell<Vec<Ops>>,
    /// Made once, for all its figures.
    defaults: OnceCell<Arc<BTreeMap<String, Value>>>,
}

/// Which operations a figure speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ops {
    /// All that may be summed.
    All,
    /// Those of one class.
    Only(OpClass),
}

impl Ops {
    /// The word in figures.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Only(class) => class.word(),
        }
    }

    /// The class, if it is one.
    #[must_use]
    pub const fn class(self) -> Option<OpClass> {
        match self {
            Self::All => None,
            Self::Only(class) => Some(class),
        }
    }
}

/// The groups of a run, in the order of the plan.
pub fn groups(run: &Run) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut places = HashMap::new();
    for trial in &run.trials {
        let own = (&trial.experiment, &trial.stack, &trial.engine, &trial.point, &trial.source);
        let place = *places.entry(own).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.trials.push(trial),
            None => groups.push(Group {
                run,
                first: trial,
                trials: vec![trial],
                classes: OnceCell::new(),
                defaults: OnceCell::new(),
            }),
        }
    }
    groups
}

impl Group<'_> {
    /// The parameters of its job that have their default.
    #[must_use]
    pub fn defaults(&self) -> Arc<BTreeMap<String, Value>> {
        Arc::clone(self.defaults.get_or_init(|| Arc::new(typed(&self.first.defaults))))
    }

    /// Whether none of its trials failed: what a failed one recorded until then is no answer.
    pub fn is_sound(&self) -> bool {
        self.trials.iter().all(|trial| trial.outcome != TrialOutcome::Failed)
    }

    /// The classes of operations that there are, and all together when there are both.
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
        // Lookups and updates of a database are different things; their sum says nothing. Neither does
        // a sum with flushes or with what goes on beside.
        let data = present.iter().filter(|ops| ops.class().is_some_and(OpClass::is_whole));
        if data.count() > 1 && self.first.engine == "block" {
            let mut classes = vec![Ops::All];
            classes.extend(present);
            classes
        } else {
            present
        }
    }

    /// Sum of one histogram of every repetition.
    fn sum(&self, ops: Ops, pick: impl Fn(&stats::Total) -> &Histogram) -> Histogram {
        let mut sum = stats::new_histogram();
        for trial in &self.trials {
            let total = trial.result.recording.total(ops.class());
            sum.add(pick(&total)).expect("invariant: equal histogram bounds");
        }
        sum
    }

    /// Response times of all repetitions.
    pub fn latency(&self, ops: Ops) -> Histogram {
        self.sum(ops, |total| &total.latency)
    }

    /// Service times of all repetitions; empty in a closed loop.
    pub fn service(&self, ops: Ops) -> Histogram {
        self.sum(ops, |total| &total.service)
    }

    /// Whether operations were due by a schedule.
    pub fn is_open_loop(&self) -> bool {
        ["arrivals", "write_rate"].iter().any(|key| self.first.point.contains_key(*key))
    }

    /// A percentile of the response time, in nanoseconds.
    pub fn percentile(&self, ops: Ops, p: f64) -> Result<Estimate, TooFew> {
        percentile(&self.latency(ops), p)
    }

    /// One value for each measured interval of all repetitions: `(counts, seconds) -> value`.
    fn batches(&self, ops: Ops, value: impl Fn(stats::Counts, f64) -> Option<f64>) -> Vec<f64> {
        let mut batches = Vec::new();
        for trial in &self.trials {
            for interval in trial.result.recording.measured() {
                let mut counts = stats::Counts::default();
                for class in OpClass::ALL {
                    let wanted = ops.class().map_or(class.is_whole(), |only| only == class);
                    if wanted {
                        counts += interval.tallies[class].counts;
                    }
                }
                batches.extend(value(counts, interval.seconds()));
            }
        }
        batches
    }

    /// Operations a second.
    pub fn rate(&self, ops: Ops) -> Option<Estimate> {
        mean(&self.batches(ops, |counts, seconds| Some(counts.ops as f64 / seconds)))
    }

    /// Mean rate over the first and over the last quarter of the measured time, first repetition.
    pub fn quarters(&self, ops: Ops) -> Option<(f64, f64)> {
        let class = ops.class()?;
        let rates: Vec<f64> = self
            .first
            .result
            .recording
            .measured()
            .map(|interval| interval.tallies[class].counts.ops as f64 / interval.seconds())
            .collect();
        let quarter = rates.len() / 4;
        let average = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
        (quarter > 0).then(|| {
            (average(&rates[..quarter]).max(1.0), average(&rates[rates.len() - quarter..]))
        })
    }

    /// Bytes a second.
    pub fn throughput(&self, ops: Ops) -> Option<Estimate> {
        mean(&self.batches(ops, |counts, seconds| Some(counts.bytes as f64 / seconds)))
    }

    /// Mean response time in nanoseconds: the exact mean over all operations, its interval from the
    /// means of the intervals.
    pub fn mean_latency(&self, ops: Ops) -> Option<Estimate> {
        let batches = self.batches(ops, |counts, _| {
            (counts.ops > 0).then(|| counts.latency_sum.get() as f64 / counts.ops as f64)
        });
        let spread = mean(&batches)?;
        let (mut sum, mut count) = (0.0, 0u64);
        for trial in &self.trials {
            let total = trial.result.recording.counts(ops.class());
            sum += total.latency_sum.get() as f64;
            count += total.ops;
        }
        let value = sum / count as f64;
        let shift = value - spread.value;
        let moved = |end: Option<f64>| end.map(|end| (end + shift).max(0.0));
        Some(Estimate { value, lo: moved(spread.lo), hi: moved(spread.hi), n: spread.n })
    }

    /// A number that each repetition has, averaged over them.
    pub fn over_trials(&self, value: impl Fn(&TrialRecord) -> Option<f64>) -> Option<Estimate> {
        let values: Vec<f64> = self.trials.iter().filter_map(|trial| value(trial)).collect();
        mean(&values)
    }

    /// Title of the stack, for people.
    pub fn stack_title(&self) -> &str {
        stack_title(self.run, &self.first.stack)
    }

    /// What a prediction is worth, in full and in brief; `None` when this is no prediction.
    fn worth(&self) -> Option<(String, String)> {
        let stack = self.run.header.stacks.iter().find(|stack| stack.name == self.first.stack)?;
        (self.first.source == Source::Predicted).then(|| stack.worth(&self.first.point))
    }

    /// The error of the model on published figures of this kind of job, or that there is none.
    pub fn validation(&self) -> Option<String> {
        self.worth().map(|(full, _)| full)
    }

    /// The source, and for a prediction what it is worth: `predicted, error 3 %`.
    pub fn source_text(&self) -> String {
        match self.worth() {
            None => self.first.source.to_string(),
            Some((_, brief)) => format!("{}, {brief}", self.first.source),
        }
    }
}

/// Title of a stack, for people.
pub fn stack_title<'a>(run: &'a Run, name: &'a str) -> &'a str {
    let stack = run.header.stacks.iter().find(|stack| stack.name == name);
    stack.map_or(name, |stack| stack.title.as_str())
}

/// Parameters as JSON has them: numbers as numbers.
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

/// Queue depth of a group; 0 where it has none.
#[must_use]
pub fn depth_of(group: &Group<'_>) -> u64 {
    group.first.point.get("queue_depth").and_then(|text| text.parse().ok()).unwrap_or(0)
}
