//! From what a trial asks for to the clients that do it, for real and for virtual time alike.
//!
//! Invariant: measured and predicted trials of one job have the same clients. What it is not: a driver.

use act::Shape;
use block::Group;
use study::{ActJob, Arrivals, Beside, BlockJob, Job, Offsets, Pattern};
use units::{Bytes, Nanos, Rate, Share};
use workload::{BlockPlan, OpenLoop, RateStep, Sizes, Spacing};

/// What the clients work on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ground {
    /// Bytes of each device that may be addressed.
    pub device: Bytes,
    /// Devices.
    pub devices: u32,
    /// Smallest request that they take, bytes.
    pub smallest_request: u32,
    /// No operation is issued from here on.
    pub end: Nanos,
}

/// Threads of ACT's phase for a job: its own number, or five a CPU as ACT has it.
pub(crate) fn service_threads(job: &ActJob) -> u32 {
    if job.service_threads > 0 {
        return job.service_threads;
    }
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    u32::try_from(cpus).unwrap_or(1) * 5
}

/// The clients of `job`, and the bytes of each device that they address.
///
/// # Errors
/// Why the load cannot be offered there.
pub(crate) fn groups(job: &Job, ground: Ground) -> Result<(Vec<Group>, Bytes), String> {
    match job {
        Job::Block(job) => Ok((block_groups(job, ground), ground.device)),
        Job::Act(job) => act_groups(job, ground),
        Job::Kv(_) | Job::Sql(_) => Err("a database is no block target".into()),
    }
}

fn act_groups(job: &ActJob, ground: Ground) -> Result<(Vec<Group>, Bytes), String> {
    let shape = Shape {
        device: ground.device,
        smallest_request: ground.smallest_request,
        service_threads: service_threads(job),
    };
    let planned = act::groups(&job.config, job.phase.phase(), shape, ground.end)?;
    let percent = format!("{}%", job.config.compress_pct);
    let group = |(plan, clients, recorded): (BlockPlan, u32, bool)| Group {
        clients,
        recorded,
        dsync: !job.config.disable_odsync,
        random_payload: percent.parse().unwrap_or(Share::ALL),
        ..Group::new(BlockPlan { devices: ground.devices, ..plan })
    };
    let each = shape.addressed(&job.config);
    let span = Bytes(each.get() * u64::from(ground.devices));
    let groups = planned.into_iter().map(group).map(|mut group| {
        group.plan.span = span;
        group
    });
    Ok((groups.collect(), each))
}

fn block_groups(job: &BlockJob, ground: Ground) -> Vec<Group> {
    let sizes: Vec<(u32, f64)> =
        job.size_mix.iter().map(|one| (length(one.size), f64::from(one.weight))).collect();
    let plan = BlockPlan {
        pattern: pattern(job.pattern, job.offsets),
        read_share: job.read_share,
        sizes: if sizes.is_empty() {
            Sizes::one(length(job.block_size))
        } else {
            Sizes::mix(&sizes)
        },
        alignment: job.alignment,
        span: Bytes(ground.device.get() * u64::from(ground.devices)),
        devices: ground.devices,
        queue_depth: job.queue_depth,
        arrivals: arrivals(job.arrivals, (job.rate, &job.rate_step), job.burst, job.think_time),
        sync_every: job.sync_every,
        background: false,
        exclusive: job.verify,
        operations: job.operations,
        end: ground.end,
    };
    let own = Group {
        clients: job.threads,
        batch: job.batch,
        dsync: job.dsync,
        random_payload: job.random_payload,
        ..Group::new(plan.clone())
    };
    let beside = job.beside.iter().map(|beside| beside_group(beside, &plan, job));
    std::iter::once(own).chain(beside).collect()
}

fn beside_group(beside: &Beside, own: &BlockPlan, job: &BlockJob) -> Group {
    let rate = beside.rate.unwrap_or(Rate(0));
    let plan = BlockPlan {
        pattern: pattern(beside.pattern, beside.offsets),
        read_share: beside.read_share,
        sizes: Sizes::one(length(beside.block_size)),
        alignment: beside.block_size,
        queue_depth: beside.queue_depth,
        arrivals: arrivals(beside.arrivals, (rate, &[]), beside.burst, beside.think_time),
        sync_every: beside.sync_every,
        background: true,
        exclusive: false,
        operations: None,
        ..own.clone()
    };
    Group {
        clients: beside.threads,
        dsync: beside.dsync,
        random_payload: job.random_payload,
        ..Group::new(plan)
    }
}

fn length(size: Bytes) -> u32 {
    u32::try_from(size.get()).unwrap_or(u32::MAX)
}

fn pattern(pattern: Pattern, offsets: Offsets) -> workload::Pattern {
    match pattern {
        Pattern::Random => workload::Pattern::Random(offsets.distribution()),
        Pattern::Sequential => workload::Pattern::Sequential,
    }
}

fn arrivals(
    kind: Arrivals,
    (rate, steps): (Rate, &[study::RateStep]),
    burst: u32,
    think: Nanos,
) -> workload::Arrivals {
    let spacing = match kind {
        Arrivals::Closed => return workload::Arrivals::Closed { think },
        Arrivals::Constant => Spacing::Constant,
        Arrivals::Poisson => Spacing::Poisson,
    };
    let step = |from: Nanos, rate: Rate| RateStep { from, per_second: rate.get() as f64 };
    let later = steps.iter().map(|one| step(one.at, one.rate));
    let rates = std::iter::once(step(Nanos::ZERO, rate)).chain(later).collect();
    workload::Arrivals::Open(OpenLoop { spacing, rates, burst })
}
