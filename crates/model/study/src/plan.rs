//! The plan: every trial of a study, in the order in which they run.
//!
//! Repetitions are interleaved. The order of stacks is drawn by the seed for each job and pair of
//! repetitions, and reversed in the second of the pair, so that neither drift of the machine nor a period of
//! it (of four trials, say, which a fixed A B B A would match) becomes a difference between stacks.
//! Invariants: trial numbers are consecutive from 1; the plan depends on the study alone.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use stats::Timeline;
use units::{Nanos, Seed};

use crate::supported::unsupported;
use crate::{DeviceName, Experiment, Job, Stack, Study};

/// Source of a trial's figures.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A real device.
    #[default]
    Measured,
    /// A real engine on a live device model.
    Emulated,
    /// A device model in virtual time.
    Predicted,
    /// Measured by others.
    Published,
}

units::words!(Source {
    Measured => "measured", Emulated => "emulated", Predicted => "predicted",
    Published => "published",
});

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
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
    /// Measured, emulated or predicted.
    pub source: Source,
    /// The job.
    pub job: Job,
    /// From 1.
    pub repetition: u32,
    /// Phases and interval.
    pub timeline: Timeline,
}

/// How a trial is executed; the runner has one executor for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Execution {
    /// Requests to a real file or device, from threads of the program.
    Direct,
    /// An embedded engine in a process of its own.
    Child,
    /// Clients of a database server or of SQLite, in a separate process.
    Server,
    /// The same for several stacks that start together: the trials of one race are one unit.
    Race,
    /// A device model in virtual time.
    Virtual,
}

units::words!(Execution {
    Direct => "direct", Child => "child", Server => "server", Race => "race", Virtual => "virtual",
});

impl Study {
    /// Whether a trial uses a stack, for its data or for the log alone.
    #[must_use]
    pub fn uses(&self, trial: &Trial, stack: &Stack) -> bool {
        let own = self.stack.iter().find(|own| own.name == trial.stack);
        let wal = own.filter(|_| !trial.job.is_block()).and_then(|own| own.wal.as_ref());
        trial.stack == stack.name || wal == Some(&stack.name)
    }
}

impl Trial {
    /// How it is carried out.
    #[must_use]
    pub const fn execution(&self) -> Execution {
        match (self.source, &self.job) {
            (Source::Predicted, _) => Execution::Virtual,
            (_, Job::Block(_) | Job::Act(_)) => Execution::Direct,
            (_, Job::Kv(_)) => Execution::Child,
            (_, Job::Sql(job)) if job.race => Execution::Race,
            (_, Job::Sql(_)) => Execution::Server,
        }
    }

    /// Whether `other` starts together with it: in the same race, on another stack.
    #[must_use]
    pub fn races_with(&self, other: &Self) -> bool {
        self.execution() == Execution::Race
            && (&self.experiment, &self.job, self.repetition)
                == (&other.experiment, &other.job, other.repetition)
    }

    /// A name that is unique in the run and safe as a file name: `0007-mix-this-disk`.
    #[must_use]
    pub fn slug(&self) -> String {
        format!("{:04}-{}-{}", self.number, self.experiment, self.stack)
    }

    /// Hash of the job as in the study: engine, parameters with defaults, times. Equal for equal jobs,
    /// whatever their stack and seed; values determined at run time (a rate as a share of an earlier one,
    /// ACT's threads by the machine) are not included. 16 digits of the SHA-256 of the job as TOML.
    #[must_use]
    pub fn job_hash(&self) -> String {
        #[derive(Debug, Serialize)]
        struct Whole<'a> {
            engine: &'a str,
            warm_up_ns: u64,
            measure_ns: u64,
            interval_ns: u64,
            job: Job,
        }
        let whole = Whole {
            engine: self.job.engine(),
            warm_up_ns: self.timeline.warm_up.get(),
            measure_ns: self.timeline.measure.get(),
            interval_ns: self.timeline.interval.get(),
            job: self.job.canonical(),
        };
        // TOML has no numbers above 2^63.
        let text = toml::to_string(&whole).unwrap_or_else(|_| format!("{whole:?}"));
        short_hash(&text)
    }

    /// The parameters in one line, for people.
    #[must_use]
    pub fn point_text(&self) -> String {
        let parts: Vec<_> =
            self.job.point().into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        parts.join(" ")
    }
}

/// 16 digits of the SHA-256 of a text.
#[must_use]
pub fn short_hash(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// A combination that will not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skip {
    /// Name of the experiment.
    pub experiment: String,
    /// Name of the stack.
    pub stack: String,
    /// The engine that cannot run there; `None` if no job of the experiment can.
    pub engine: Option<String>,
    /// Why not.
    pub reason: String,
}

impl Skip {
    /// The reason, with the engine that it is about.
    #[must_use]
    pub fn full_reason(&self) -> String {
        let named = |name| format!("{name}: {}", self.reason);
        self.engine.as_ref().map_or_else(|| self.reason.clone(), named)
    }
}

/// The plan of a study.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// In the order of running.
    pub trials: Vec<Trial>,
    /// What will not run, and why.
    pub skipped: Vec<Skip>,
}

/// Plans a study that was parsed by `parse`.
#[must_use]
pub fn plan(study: &Study) -> Plan {
    let mut plan = Plan { trials: Vec::new(), skipped: Vec::new() };
    for experiment in &study.experiment {
        let named =
            |stack: &&Stack| stack.is_among(&experiment.stacks, experiment.job.first().is_block());
        let mut stacks = Vec::new();
        for stack in study.stack.iter().filter(named) {
            match unsupported(study.engines, experiment, stack) {
                None => stacks.push(stack),
                Some(reason) => plan.skipped.push(Skip {
                    experiment: experiment.name.clone(),
                    stack: stack.name.clone(),
                    engine: None,
                    reason,
                }),
            }
        }
        let seed = Seed(u64::from(study.seed)).derive(&experiment.name, 0);
        add_trials(&mut plan.trials, experiment, &stacks, seed);
    }
    plan
}

fn add_trials(trials: &mut Vec<Trial>, experiment: &Experiment, stacks: &[&Stack], seed: Seed) {
    let jobs = experiment.job.points();
    let timeline = timeline(experiment);
    for repetition in 1..=experiment.repeat {
        for (at, job) in jobs.iter().enumerate() {
            let mut order = stacks.to_vec();
            if experiment.repeat > 1 {
                let pair = u64::from((repetition - 1) / 2);
                shuffle(&mut order, seed.derive("job", at as u64).derive("pair", pair));
                if repetition % 2 == 0 {
                    order.reverse();
                }
            }
            for stack in order {
                let source = match stack.device {
                    DeviceName::Model(_) if stack.attach || !job.is_block() => Source::Emulated,
                    DeviceName::Model(_) => Source::Predicted,
                    DeviceName::File if stack.emulated => Source::Emulated,
                    DeviceName::File | DeviceName::Paths(_) => Source::Measured,
                };
                trials.push(Trial {
                    number: trials.len() as u32 + 1,
                    experiment: experiment.name.clone(),
                    stack: stack.name.clone(),
                    source,
                    job: job.clone(),
                    repetition,
                    timeline,
                });
            }
        }
    }
}

/// Fisher-Yates shuffle.
fn shuffle<T>(all: &mut [T], seed: Seed) {
    for last in (1..all.len()).rev() {
        let drawn = seed.derive("place", last as u64).0 % (last as u64 + 1);
        all.swap(last, drawn as usize);
    }
}

/// Phases and interval of an experiment's trials; ACT's test has its own.
fn timeline(experiment: &Experiment) -> Timeline {
    let config = experiment.job.first().act().and_then(|act| {
        let config = act.config().ok()?;
        Some((act.test_duration, config))
    });
    match config {
        Some((duration, config)) => {
            let from_file = Nanos::from_secs(u64::from(config.test_duration_sec));
            let measure = duration.unwrap_or(from_file);
            let interval = act_interval(measure, u64::from(config.report_interval_sec));
            Timeline { warm_up: Nanos::ZERO, measure, interval }
        }
        None => Timeline {
            warm_up: experiment.warm_up,
            measure: experiment.duration,
            interval: experiment.interval,
        },
    }
}

/// Maximum number of intervals of an ACT test: a day's test with hundreds of threads must fit into memory.
const ACT_INTERVALS_MAX: u64 = 3600;

/// The report interval of ACT's test, or a multiple of it that divides an hour if there would be too many.
fn act_interval(measure: Nanos, report_seconds: u64) -> Nanos {
    let hour = 3600;
    let fits = |factor: &u64| {
        let interval = Nanos::from_secs(report_seconds * factor);
        let enough = measure.get() / interval.get().max(1) <= ACT_INTERVALS_MAX;
        enough && (hour % (report_seconds * factor) == 0 || *factor == 1)
    };
    let factor = (1..=hour).find(fits).unwrap_or(1);
    Nanos::from_secs(report_seconds * factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::ENGINES;
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

    /// Drift must not become a difference between stacks: the second repetition visits the stacks in reverse
    /// order. Nor may a periodic load: which stack leads a pair of repetitions is random.
    #[test]
    fn stacks_change_places_between_repetitions() {
        let order = |text: &str, count: usize| -> Vec<String> {
            let plan = plan(&parse(text, ENGINES).unwrap());
            plan.trials[..count].iter().map(|trial| trial.stack.clone()).collect()
        };
        let many = order(&STUDY.replace("repeat = 2", "repeat = 80"), 320);
        let leads = |block: &&[String]| block[0] == "a";
        for pair in many.chunks(8) {
            let back: Vec<&String> = [&pair[5], &pair[4], &pair[7], &pair[6]].into();
            assert_eq!(back, pair[..4].iter().collect::<Vec<_>>(), "each pair is balanced");
        }
        let first: Vec<&[String]> = many.chunks(2).step_by(4).collect();
        let led = first.iter().filter(|block| leads(block)).count();
        assert!((10..31).contains(&led), "of 40 pairs one stack leads {led}");
        let alike = first.windows(2).filter(|two| leads(&two[0]) == leads(&two[1])).count();
        assert!((10..30).contains(&alike), "neighbours follow no beat: {alike}");
        let once = order(&STUDY.replace("repeat = 2", "repeat = 1"), 4);
        assert_eq!(once, ["a", "b", "a", "b"], "without repetitions the study's own order");
        let plan = plan(&parse(STUDY, ENGINES).unwrap());
        let numbers: Vec<_> = plan.trials.iter().map(|trial| trial.number).collect();
        assert_eq!(numbers, (1..=12).collect::<Vec<_>>());
        let of_b = plan.trials.iter().find(|trial| trial.stack == "b").unwrap();
        assert_eq!(of_b.source, Source::Predicted);
        assert_eq!(of_b.slug(), format!("{:04}-mix-b", of_b.number));
    }

    #[test]
    fn what_can_not_run_is_listed_with_its_reason() {
        let plan = plan(&parse(STUDY, ENGINES).unwrap());
        assert_eq!(plan.skipped.len(), 1);
        assert_eq!(
            (plan.skipped[0].experiment.as_str(), plan.skipped[0].stack.as_str()),
            ("kv", "b")
        );
        assert!(plan.skipped[0].reason.contains("model"));
    }

    #[test]
    fn a_day_of_act_has_intervals_that_fill_the_hour() {
        let day = Nanos::from_secs(86_400);
        assert_eq!(act_interval(day, 1), Nanos::from_secs(24));
        assert_eq!(act_interval(Nanos::from_secs(3600), 1), Nanos::from_secs(1));
        assert_eq!(act_interval(Nanos::from_secs(60), 10), Nanos::from_secs(10));
    }

    /// Runs are compared by this: a workload that differs in a default must not be taken for the same.
    #[test]
    fn equal_jobs_have_equal_hashes_and_others_have_not() {
        let hashes = |keys: &str| -> Vec<String> {
            let text = format!(
                "schema = 1\nname = \"s\"\n[[stack]]\nname = \"a\"\ndevice = \"file\"\n[[stack]]\n\
                 name = \"b\"\ndevice = \"model:intel-p4800x\"\n[[experiment]]\nname = \"e\"\n{keys}"
            );
            plan(&parse(&text, ENGINES).expect("a study"))
                .trials
                .iter()
                .map(Trial::job_hash)
                .collect()
        };
        let block = hashes("[experiment.block]\n");
        assert_eq!(block[0], block[1], "whatever they run on");
        assert_eq!(block, hashes("[experiment.block]\nbatch = 1\n"), "a default said is the same");
        let act = "[experiment.act]\nconfig = \"\"\"\ndevice-names: /dev/null\n\
            read-reqs-per-sec: 1000\ntest-duration-sec: 10\n\"\"\"\n";
        let kv = "[experiment.kv]\nengine = \"lmdb\"\nrecords = 10\nvalue_size = \"100B\"\n";
        let sql = "[experiment.sql]\nrows = 100\ndialect = \"0.5\"\n";
        let limited = "[experiment.block]\noperations = 256\n";
        for (one, same) in [
            (act.to_owned(), act.replace("/dev/null", "/dev/zero")),
            (act.to_owned(), act.replace("10\n", "10\n# a comment\n")),
            (act.to_owned(), format!("{act}duration = \"10s\"\n")),
            (kv.to_owned(), format!("{kv}value_size_max = \"100B\"\n")),
            (sql.to_owned(), format!("{sql}prepared = false\n")),
            ("[experiment.block]\n".into(), "[experiment.block]\nalignment = \"4KiB\"\n".into()),
            (limited.into(), "[experiment.block]\nbytes = \"1MiB\"\n".into()),
        ] {
            assert_eq!(hashes(&one), hashes(&same), "{same}");
        }
        let mut all = vec![block[0].clone()];
        for other in [
            "measure = \"9s\"\n[experiment.block]\n",
            "[experiment.block]\nbatch = 2\n",
            "[experiment.block]\nqueue_depth = 2\n",
            act,
            &act.replace("1000", "2000"),
            &format!("{act}rating = 3\n"),
            kv,
            &kv.replace("10", "11"),
            limited,
            "[experiment.sql]\nrows = 100\n",
        ] {
            all.push(hashes(other)[0].clone());
        }
        let count = all.len();
        assert!(all.iter().all(|hash| hash.len() == 16), "{all:?}");
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count, "each is another");
    }
}
