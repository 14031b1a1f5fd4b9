//! The plan: every trial of a study, in the order in which they run.
//!
//! Repetitions are interleaved, and stacks change places from one repetition to the next (A B B A),
//! so that drift of the machine does not become a difference between stacks.
//! Invariants: trial numbers are consecutive from 1; the plan depends on the study alone.
//! What it is not: a forecast of results.

use stats::Timeline;
use units::{Bytes, Nanos, Rate, Share};

use crate::Many;
use crate::format::{
    Arrivals, BlockMatrix, DeviceName, Durability, Engine, Experiment, KvMatrix, Pattern, Stack,
    Study,
};
use crate::parse::unsupported;

/// Where a trial's figures come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A real device.
    Measured,
    /// A device model in virtual time.
    Predicted,
}

impl Source {
    /// The word in figures.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Predicted => "predicted",
        }
    }
}

/// One point of a block matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockJob {
    /// Random or sequential.
    pub pattern: Pattern,
    /// Bytes an operation.
    pub block_size: Bytes,
    /// Share of reads.
    pub read_share: Share,
    /// Operations in flight, a thread.
    pub queue_depth: u32,
    /// Submitting threads.
    pub threads: u32,
    /// When operations are due.
    pub arrivals: Arrivals,
    /// Operations a second of an open loop, all threads together; 0 in a closed loop.
    pub rate: Rate,
    /// Pause of a slot of a closed loop after each completion.
    pub think_time: Nanos,
    /// Completions that io_uring waits for at once.
    pub batch: u32,
}

impl BlockJob {
    /// What every block job has, and of the rest what is not its default.
    fn point(&self) -> Vec<(&'static str, String)> {
        let mut point = vec![
            ("pattern", self.pattern.word().into()),
            ("block_size", self.block_size.exact()),
            ("read_share", self.read_share.exact()),
            ("queue_depth", self.queue_depth.to_string()),
        ];
        if self.threads > 1 {
            point.push(("threads", self.threads.to_string()));
        }
        if self.arrivals != Arrivals::Closed {
            point.push(("arrivals", self.arrivals.word().into()));
            point.push(("rate", self.rate.exact()));
        }
        if self.think_time > Nanos::ZERO {
            point.push(("think_time", self.think_time.exact()));
        }
        if self.batch > 1 {
            point.push(("batch", self.batch.to_string()));
        }
        point
    }
}

/// One point of a key-value matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvJob {
    /// The database.
    pub engine: Engine,
    /// Records loaded.
    pub records: u64,
    /// Bytes of a value.
    pub value_size: Bytes,
    /// Reader threads.
    pub readers: u32,
    /// What a committed update survives.
    pub durability: Durability,
    /// Records a transaction while loading.
    pub load_batch: u32,
}

/// What a trial does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Job {
    /// Block operations.
    Block(BlockJob),
    /// Key-value operations.
    Kv(KvJob),
}

impl Job {
    /// The engine's word.
    #[must_use]
    pub const fn engine(&self) -> &'static str {
        match self {
            Self::Block(_) => "block",
            Self::Kv(job) => job.engine.word(),
        }
    }

    /// Every parameter by name, in a fixed order.
    #[must_use]
    pub fn point(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Block(job) => job.point(),
            Self::Kv(job) => vec![
                ("records", job.records.to_string()),
                ("value_size", job.value_size.exact()),
                ("readers", job.readers.to_string()),
                ("durability", job.durability.word().into()),
            ],
        }
    }
}

/// One workload on one engine on one stack at one point, one repetition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial {
    /// From 1, in the order of running.
    pub number: u32,
    /// Name of the experiment.
    pub experiment: String,
    /// Name of the stack.
    pub stack: String,
    /// Measured or predicted.
    pub source: Source,
    /// What it does.
    pub job: Job,
    /// From 1.
    pub repetition: u32,
    /// Phases and interval.
    pub timeline: Timeline,
}

impl Trial {
    /// A name that is unique in the run and safe as a file name: `0007-mix-this-disk`.
    #[must_use]
    pub fn slug(&self) -> String {
        format!("{:04}-{}-{}", self.number, self.experiment, self.stack)
    }

    /// The parameters in one line, for people.
    #[must_use]
    pub fn point_text(&self) -> String {
        let parts: Vec<_> =
            self.job.point().into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        parts.join(" ")
    }
}

/// A combination that will not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skip {
    /// Name of the experiment.
    pub experiment: String,
    /// Name of the stack.
    pub stack: String,
    /// Why not.
    pub reason: String,
}

/// What a study will do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// In the order of running.
    pub trials: Vec<Trial>,
    /// What will not run, and why.
    pub skipped: Vec<Skip>,
}

/// Plans a study that has passed `parse`.
#[must_use]
pub fn plan(study: &Study) -> Plan {
    let mut plan = Plan { trials: Vec::new(), skipped: Vec::new() };
    for experiment in &study.experiment {
        let named = |stack: &&Stack| {
            experiment.stacks.is_empty() || experiment.stacks.contains(&stack.name)
        };
        let mut stacks = Vec::new();
        for stack in study.stack.iter().filter(named) {
            match unsupported(experiment, stack) {
                None => stacks.push(stack),
                Some(reason) => plan.skipped.push(Skip {
                    experiment: experiment.name.clone(),
                    stack: stack.name.clone(),
                    reason,
                }),
            }
        }
        add_trials(&mut plan.trials, experiment, &stacks);
    }
    plan
}

fn add_trials(trials: &mut Vec<Trial>, experiment: &Experiment, stacks: &[&Stack]) {
    let jobs = jobs(experiment);
    for repetition in 1..=experiment.repeat {
        for job in &jobs {
            let mut order = stacks.to_vec();
            if repetition % 2 == 0 {
                order.reverse();
            }
            for stack in order {
                let source = match stack.device {
                    DeviceName::Model(_) => Source::Predicted,
                    DeviceName::File | DeviceName::Path(_) => Source::Measured,
                };
                trials.push(Trial {
                    number: trials.len() as u32 + 1,
                    experiment: experiment.name.clone(),
                    stack: stack.name.clone(),
                    source,
                    job: *job,
                    repetition,
                    timeline: Timeline {
                        warm_up: experiment.warm_up,
                        measure: experiment.measure,
                        interval: experiment.interval,
                    },
                });
            }
        }
    }
}

fn jobs(experiment: &Experiment) -> Vec<Job> {
    let mut jobs = Vec::new();
    if let Some(matrix) = &experiment.block {
        block_jobs(matrix, &mut jobs);
    }
    if let Some(matrix) = &experiment.kv {
        kv_jobs(matrix, &mut jobs);
    }
    jobs
}

fn block_jobs(matrix: &BlockMatrix, jobs: &mut Vec<Job>) {
    let closed = [Rate(0)];
    let rates = matrix.rate.as_ref().map_or(&closed[..], Many::values);
    for &pattern in matrix.pattern.values() {
        for &block_size in matrix.block_size.values() {
            for &read_share in matrix.read_share.values() {
                for &threads in matrix.threads.values() {
                    for &queue_depth in matrix.queue_depth.values() {
                        jobs.extend(rates.iter().map(|&rate| {
                            Job::Block(BlockJob {
                                pattern,
                                block_size,
                                read_share,
                                queue_depth,
                                threads,
                                arrivals: matrix.arrivals,
                                rate,
                                think_time: matrix.think_time,
                                batch: matrix.batch,
                            })
                        }));
                    }
                }
            }
        }
    }
}

fn kv_jobs(matrix: &KvMatrix, jobs: &mut Vec<Job>) {
    for &engine in matrix.engine.values() {
        for &durability in matrix.durability.values() {
            for &readers in matrix.readers.values() {
                jobs.push(Job::Kv(KvJob {
                    engine,
                    records: matrix.records,
                    value_size: matrix.value_size,
                    readers,
                    durability,
                    load_batch: matrix.load_batch,
                }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    const STUDY: &str = r#"
schema = 1
name = "small"
[[stack]]
name = "a"
device = "file"
[[stack]]
name = "b"
device = "model:x"
[[experiment]]
name = "mix"
repeat = 2
[experiment.block]
queue_depth = [1, 4]
[[experiment]]
name = "kv"
[experiment.kv]
engine = ["lmdb", "sqlite"]
records = 10
value_size = "100B"
readers = [1, 2]
"#;

    /// Drift must not become a difference: the second repetition visits the stacks backwards.
    #[test]
    fn stacks_change_places_between_repetitions() {
        let plan = plan(&parse(STUDY).unwrap());
        let order: String = plan.trials[..8].iter().map(|trial| trial.stack.as_str()).collect();
        assert_eq!(order, "ababbaba");
        let numbers: Vec<_> = plan.trials.iter().map(|trial| trial.number).collect();
        assert_eq!(numbers, (1..=12).collect::<Vec<_>>());
        assert_eq!(plan.trials[1].source, Source::Predicted);
        assert_eq!(plan.trials[0].slug(), "0001-mix-a");
    }

    #[test]
    fn what_can_not_run_is_listed_with_its_reason() {
        let plan = plan(&parse(STUDY).unwrap());
        assert_eq!(plan.skipped.len(), 1);
        assert_eq!(
            (plan.skipped[0].experiment.as_str(), plan.skipped[0].stack.as_str()),
            ("kv", "b")
        );
        assert!(plan.skipped[0].reason.contains("model"));
    }
}
