//! What one trial does: a point of an experiment's matrix.
//!
//! Invariant: a job holds everything that its trial needs, so that it can be run without the study. What
//! it is not: the workload; the runner makes that from it.

use serde::Serialize;
use units::{Bytes, Nanos, Rate, Share};

use crate::kv::kv_jobs;
use crate::many::each;
use crate::parameters::Parameters;
use crate::sql::sql_jobs;
use crate::{
    ActMatrix, ActPhase, Arrivals, Beside, BlockMatrix, Engines, Experiment, KvJob, Offsets,
    Operations, Pattern, Precondition, RateStep, SizeWeight, SqlJob,
};

/// One point of a block matrix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BlockJob {
    /// Random or sequential.
    pub pattern: Pattern,
    /// Distribution of random offsets.
    pub offsets: Offsets,
    /// Bytes an operation, unless there is a mix.
    pub block_size: Bytes,
    /// Sizes with their weights; empty: `block_size` alone.
    pub size_mix: Vec<SizeWeight>,
    /// Offsets are multiples of this.
    pub alignment: Bytes,
    /// Share of reads.
    pub read_share: Share,
    /// Operations in flight, a thread.
    pub queue_depth: u32,
    /// Submitting threads.
    pub threads: u32,
    /// When operations are due.
    pub arrivals: Arrivals,
    /// Operations a second of an open loop, all threads together; 0 in a closed loop, or until the highest
    /// rate is known.
    pub rate: Rate,
    /// The rate as a share of the highest reached before.
    pub rate_of_max: Option<Share>,
    /// Later changes of the rate.
    pub rate_step: Vec<RateStep>,
    /// Operations due at once in an open loop.
    pub burst: u32,
    /// Pause of a slot of a closed loop after each completion.
    pub think_time: Nanos,
    /// Flush after so many writes of a thread; 0: never.
    pub sync_every: u32,
    /// Writes reach the medium before they are acknowledged.
    pub dsync: bool,
    /// Share of the data written that cannot be compressed.
    pub random_payload: Share,
    /// Operations after which the trial ends.
    pub operations: Option<u64>,
    /// Stamp writes and check reads.
    pub verify: bool,
    /// Completions that io_uring waits for at once.
    pub batch: u32,
    /// What is done to the device before.
    pub precondition: Option<Precondition>,
    /// Other clients at the same time.
    pub beside: Vec<Beside>,
}

impl BlockJob {
    /// Whether anything in it writes.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.read_share != Share::ALL
            || self.precondition.is_some()
            || self.beside.iter().any(|beside| beside.read_share != Share::ALL)
    }

    /// Whether anything in it flushes or forces writes through.
    #[must_use]
    pub fn forces_durability(&self) -> bool {
        self.sync_every > 0
            || self.dsync
            || self.beside.iter().any(|beside| beside.sync_every > 0 || beside.dsync)
    }

    /// Whether `other` does the same operations, however fast.
    #[must_use]
    pub fn same_operations(&self, other: &Self) -> bool {
        self.operations_key() == other.operations_key()
    }

    /// Equal for jobs with [`same operations`](Self::same_operations), and for no others.
    pub(crate) fn operations_key(&self) -> String {
        let shape = (self.pattern, self.offsets, self.block_size, self.read_share);
        format!("{shape:?} {:?} {} {}", self.size_mix, self.sync_every, self.dsync)
    }

    /// The largest operation, bytes.
    #[must_use]
    pub fn largest(&self) -> Bytes {
        let own = self.size_mix.iter().map(|one| one.size).max().unwrap_or(self.block_size);
        self.beside.iter().map(|beside| beside.block_size).fold(own, Bytes::max)
    }

    /// What every block job has, and of the rest what is not its default.
    fn parameters(&self) -> Parameters {
        let sizes: Vec<String> = self
            .size_mix
            .iter()
            .map(|one| format!("{}*{}", one.size.exact(), one.weight))
            .collect();
        let point = vec![
            ("pattern", self.pattern.word().into()),
            (
                "block_size",
                if sizes.is_empty() { self.block_size.exact() } else { sizes.join("+") },
            ),
            ("read_share", self.read_share.exact()),
            ("queue_depth", self.queue_depth.to_string()),
        ];
        let mut parameters = Parameters::of(point);
        let mut add = |differs, name, value| parameters.add(differs, name, value);
        let open = self.arrivals != Arrivals::Closed;
        add(self.offsets != Offsets::Uniform, "offsets", self.offsets.to_string());
        let natural = self.size_mix.iter().map(|one| one.size).min().unwrap_or(self.block_size);
        add(self.alignment != natural, "alignment", self.alignment.exact());
        add(self.threads > 1, "threads", self.threads.to_string());
        add(open, "arrivals", self.arrivals.word().into());
        match self.rate_of_max {
            Some(share) => add(true, "rate_of_max", share.exact()),
            None if open => add(true, "rate", self.rate.exact()),
            None => {}
        }
        add(self.burst > 1, "burst", self.burst.to_string());
        add(self.think_time > Nanos::ZERO, "think_time", self.think_time.exact());
        add(self.sync_every > 0, "sync_every", self.sync_every.to_string());
        add(self.dsync, "dsync", self.dsync.to_string());
        add(self.random_payload != Share::ALL, "random_payload", self.random_payload.exact());
        let beside: Vec<String> = self.beside.iter().map(beside_text).collect();
        add(!beside.is_empty(), "beside", beside.join("; "));
        add(self.verify, "verify", self.verify.to_string());
        add(self.batch > 1, "batch", self.batch.to_string());
        parameters
    }
}

/// Clients beside in a few words: `100% writes of 16KiB at 1k/s`.
fn beside_text(beside: &Beside) -> String {
    let kind = match beside.read_share {
        Share::ALL => "reads".to_owned(),
        Share::NONE => "writes".to_owned(),
        share => format!("{} reads", share.exact()),
    };
    let load = match beside.rate {
        Some(rate) => format!("at {}", rate.exact()),
        None => format!("{} deep", beside.threads * beside.queue_depth),
    };
    format!("{kind} of {} {load}", beside.block_size.exact())
}

/// One point of an ACT matrix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ActJob {
    /// The configuration at this point's rating.
    pub config: act::Config,
    /// How requests lie in time.
    pub phase: ActPhase,
    /// Threads in ACT's phase; 0: five a CPU.
    pub service_threads: u32,
    /// Slices that are judged.
    pub slice: Nanos,
    /// Fills of the devices before.
    pub fills: u32,
}

impl ActJob {
    fn parameters(&self) -> Parameters {
        let mut point = vec![
            ("read_reqs_per_sec", self.config.read_reqs_per_sec.to_string()),
            ("write_reqs_per_sec", self.config.write_reqs_per_sec.to_string()),
            ("arrivals", self.phase.word().into()),
        ];
        if let Some(rating) = self.config.rating() {
            point.push(("rating", rating.to_string()));
        }
        if self.phase == ActPhase::Act && self.service_threads > 0 {
            point.push(("service_threads", self.service_threads.to_string()));
        }
        Parameters::of(point)
    }
}

/// What a trial does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Job {
    /// Block operations.
    Block(Box<BlockJob>),
    /// ACT's storage test.
    Act(Box<ActJob>),
    /// Key-value operations.
    Kv(Box<KvJob>),
    /// SQL transactions.
    Sql(Box<SqlJob>),
}

impl Job {
    /// The engine's word.
    #[must_use]
    pub fn engine(&self) -> &str {
        match self {
            Self::Block(_) | Self::Act(_) => "block",
            Self::Kv(job) => job.engine.word(),
            Self::Sql(job) => job.engine.word(),
        }
    }

    /// What its engine must understand.
    #[must_use]
    pub const fn operations(&self) -> Operations {
        match self {
            Self::Block(_) | Self::Act(_) => Operations::Block,
            Self::Kv(_) => Operations::KeyValue,
            Self::Sql(_) => Operations::Sql,
        }
    }

    /// Parameters by name, in a fixed order: what every job of its kind has, and what is not its default.
    #[must_use]
    pub fn point(&self) -> Vec<(&'static str, String)> {
        self.parameters().point
    }

    /// Every parameter: what a point always has or differs from its default in, and the defaults.
    #[must_use]
    pub fn parameters(&self) -> Parameters {
        match self {
            Self::Block(job) => job.parameters(),
            Self::Act(job) => job.parameters(),
            Self::Kv(job) => job.parameters(),
            Self::Sql(job) => job.parameters(),
        }
    }

    /// Whether it writes to a device that it is given.
    #[must_use]
    pub fn writes_blocks(&self) -> bool {
        match self {
            Self::Block(job) => job.writes(),
            Self::Act(job) => job.config.write_reqs_per_sec > 0 || job.fills > 0,
            Self::Kv(_) | Self::Sql(_) => true,
        }
    }

    /// Whether it works on blocks, not on a database.
    #[must_use]
    pub const fn is_block(&self) -> bool {
        matches!(self, Self::Block(_) | Self::Act(_))
    }
}

/// The points of an experiment's matrix, in order.
pub(crate) fn jobs(experiment: &Experiment, engines: Engines) -> Vec<Job> {
    let mut jobs = Vec::new();
    if let Some(matrix) = &experiment.block {
        jobs.extend(block_jobs(matrix).into_iter().map(|job| Job::Block(Box::new(job))));
    }
    if let Some(matrix) = &experiment.act {
        jobs.extend(act_jobs(matrix).into_iter().map(|job| Job::Act(Box::new(job))));
    }
    if let Some(matrix) = &experiment.kv {
        jobs.extend(kv_jobs(matrix, engines).into_iter().map(|job| Job::Kv(Box::new(job))));
    }
    if let Some(matrix) = &experiment.sql {
        jobs.extend(sql_jobs(matrix).into_iter().map(|job| Job::Sql(Box::new(job))));
    }
    jobs
}

fn block_jobs(matrix: &BlockMatrix) -> Vec<BlockJob> {
    let mean_size = |job: &BlockJob| {
        let weights: u64 = job.size_mix.iter().map(|one| u64::from(one.weight)).sum();
        let sum: u64 = job.size_mix.iter().map(|o| o.size.get() * u64::from(o.weight)).sum();
        sum.checked_div(weights).unwrap_or(job.block_size.get())
    };
    let smallest = matrix.size_mix.iter().map(|one| one.size).min();
    let base = BlockJob {
        pattern: Pattern::Random,
        offsets: Offsets::Uniform,
        block_size: Bytes(4096),
        size_mix: matrix.size_mix.clone(),
        alignment: Bytes(4096),
        read_share: Share::ALL,
        queue_depth: 1,
        threads: 1,
        arrivals: matrix.arrivals,
        rate: Rate(0),
        rate_of_max: None,
        rate_step: matrix.rate_step.clone(),
        burst: matrix.burst,
        think_time: matrix.think_time,
        sync_every: 0,
        dsync: false,
        random_payload: matrix.random_payload,
        operations: None,
        verify: matrix.verify,
        batch: matrix.batch,
        precondition: matrix.precondition,
        beside: matrix.beside.clone(),
    };
    let closed = [Rate(0)];
    let rates = matrix.rate.as_ref().map_or(&closed[..], crate::Many::values);
    let mut jobs = vec![base];
    jobs = each(jobs, matrix.pattern.values(), |job, value| job.pattern = *value);
    jobs = each(jobs, matrix.offsets.values(), |job, value| job.offsets = *value);
    jobs = each(jobs, matrix.block_size.values(), |job, value| job.block_size = *value);
    jobs = each(jobs, matrix.read_share.values(), |job, value| job.read_share = *value);
    jobs = each(jobs, matrix.dsync.values(), |job, value| job.dsync = *value);
    jobs = each(jobs, matrix.sync_every.values(), |job, value| job.sync_every = *value);
    jobs = each(jobs, matrix.threads.values(), |job, value| job.threads = *value);
    jobs = each(jobs, matrix.queue_depth.values(), |job, value| job.queue_depth = *value);
    jobs = each(jobs, rates, |job, value| job.rate = *value);
    if let Some(shares) = &matrix.rate_of_max {
        jobs = each(jobs, shares.values(), |job, value| job.rate_of_max = Some(*value));
    }
    for job in &mut jobs {
        job.alignment = matrix.alignment.or(smallest).unwrap_or(job.block_size);
        let by_bytes = matrix.bytes.map(|bytes| bytes.get().div_ceil(mean_size(job).max(1)));
        job.operations = [matrix.operations, by_bytes].into_iter().flatten().min();
    }
    jobs
}

fn act_jobs(matrix: &ActMatrix) -> Vec<ActJob> {
    // A configuration that does not parse was refused before.
    let Ok(config) = act::Config::parse(&matrix.config) else { return Vec::new() };
    let mut jobs = vec![ActJob {
        phase: matrix.phase.values()[0],
        service_threads: config.service_threads,
        slice: matrix.slice,
        fills: matrix.fills,
        config: config.clone(),
    }];
    if let Some(ratings) = &matrix.rating {
        jobs = each(jobs, ratings.values(), |job, rating| job.config = config.at_rating(*rating));
    }
    jobs = each(jobs, matrix.phase.values(), |job, value| job.phase = *value);
    let Some(threads) = matrix.service_threads.as_ref().map(crate::Many::values) else {
        return jobs;
    };
    // Threads mean nothing to independent requests: one point, not one for each number.
    let with_threads = |job: ActJob| {
        let threads = if job.phase == ActPhase::Act { threads } else { &threads[..1] };
        each(vec![job], threads, |job, value| job.service_threads = *value)
    };
    jobs.into_iter().flat_map(with_threads).collect()
}
