//! The clients of block and ACT jobs.

use act::Shape;
use units::{Bytes, Rate, Share};
use workload::{BlockGroup, BlockPlan, Sizes, Until};

use super::arrivals;
use crate::{ActJob, Background, BlockJob, Job, Offsets, Pattern};

/// The address space of the clients.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    /// Bytes of each device that may be addressed.
    pub device: Bytes,
    /// Devices.
    pub devices: u32,
    /// Smallest request that they accept, bytes.
    pub smallest_request: u32,
    /// CPUs of the machine that issues them.
    pub cpus: u32,
    /// End of a trial whose clients all follow schedules; others issue nothing late, since it would run
    /// without the background load.
    pub until: Until,
}

/// Threads of ACT's phase for a job on a machine with `cpus`: the configured number, or five per CPU as in
/// ACT.
#[must_use]
pub fn service_threads(job: &ActJob, cpus: u32) -> u32 {
    let own = job.config().map_or(0, |config| config.service_threads);
    if own > 0 { own } else { cpus.saturating_mul(5) }
}

/// The clients of `job`, and the bytes of each device that they address.
///
/// # Errors
/// Why the load cannot run there.
pub fn block_groups(job: &Job, extent: Extent) -> Result<(Vec<BlockGroup>, Bytes), String> {
    match job {
        Job::Block(job) => {
            let groups = groups(job, extent);
            match groups.iter().find_map(|group| misfit(group, extent)) {
                Some(reason) => Err(reason),
                None => Ok((groups, extent.device)),
            }
        }
        Job::Act(job) => act_groups(job, extent),
        Job::Kv(_) | Job::Sql(_) => Err("a database is not a block target".into()),
    }
}

/// Why the operations of a group do not fit the devices.
fn misfit(group: &BlockGroup, extent: Extent) -> Option<String> {
    let (plan, device) = (&group.plan, extent.device);
    let (largest, alignment) = (Bytes(u64::from(plan.sizes.largest())), plan.alignment);
    if largest > device {
        return Some(format!("a block of {largest} does not fit a device of {device}"));
    }
    if alignment > device {
        return Some(format!("an alignment of {alignment} is larger than a device of {device}"));
    }
    // Clients that share a block would read each other's writes.
    let (clients, sites) = (group.clients, plan.sites());
    (plan.exclusive && sites < u64::from(clients)).then(|| {
        format!(
            "`verify` needs a block for each client: {clients} clients, {sites} blocks of {largest}"
        )
    })
}

fn act_groups(job: &ActJob, extent: Extent) -> Result<(Vec<BlockGroup>, Bytes), String> {
    let shape = Shape {
        device: extent.device,
        smallest_request: extent.smallest_request,
        service_threads: service_threads(job, extent.cpus),
    };
    let config = job.config().map_err(|error| error.to_string())?;
    let planned = act::groups(&config, job.phase, shape, extent.until.due)?;
    let percent = format!("{}%", config.compress_pct);
    let group = |(plan, clients, recorded): (BlockPlan, u32, bool)| BlockGroup {
        clients,
        recorded,
        random_payload: percent.parse().unwrap_or(Share::ALL),
        ..BlockGroup::new(BlockPlan {
            devices: extent.devices,
            dsync: !config.disable_odsync,
            ..plan
        })
    };
    let each = shape.addressed(&config);
    let span = Bytes(each.get().saturating_mul(extent.devices.into()));
    let groups = planned.into_iter().map(group).map(|mut group| {
        group.plan.span = span;
        group
    });
    Ok((groups.collect(), each))
}

fn groups(job: &BlockJob, extent: Extent) -> Vec<BlockGroup> {
    let sizes: Vec<(u32, f64)> =
        job.size_mix.iter().map(|one| (length(one.size), f64::from(one.weight))).collect();
    let plan = BlockPlan {
        pattern: pattern(job.pattern, job.distribution),
        read_share: job.read_share,
        sizes: if sizes.is_empty() {
            Sizes::one(length(job.block_size))
        } else {
            Sizes::mix(&sizes)
        },
        alignment: job.alignment(),
        span: Bytes(extent.device.get().saturating_mul(extent.devices.into())),
        devices: extent.devices,
        queue_depth: job.queue_depth,
        arrivals: arrivals(job.arrivals, (job.rate(), &job.rate_step), job.burst, job.think_time),
        sync_every: job.sync_every,
        dsync: job.dsync,
        background: false,
        exclusive: job.verify,
        operations: job.operations_limit(),
        until: extent.until,
    };
    let own = BlockGroup {
        clients: job.clients,
        batch: job.batch,
        random_payload: job.random_payload,
        ..BlockGroup::new(plan.clone())
    };
    let beside = job.beside.iter().map(|beside| beside_group(beside, &plan, job));
    let mut all: Vec<BlockGroup> = std::iter::once(own).chain(beside).collect();
    if all.iter().any(|group| !group.plan.arrivals.is_open()) {
        all.iter_mut().for_each(|group| group.plan.until = extent.until.due.into());
    }
    all
}

fn beside_group(beside: &Background, own: &BlockPlan, job: &BlockJob) -> BlockGroup {
    let rate = beside.rate.unwrap_or(Rate(0));
    let plan = BlockPlan {
        pattern: pattern(beside.pattern, beside.distribution),
        read_share: beside.read_share,
        sizes: Sizes::one(length(beside.block_size)),
        alignment: beside.block_size,
        queue_depth: beside.queue_depth,
        arrivals: arrivals(beside.arrivals, (rate, &[]), beside.burst, beside.think_time),
        sync_every: beside.sync_every,
        dsync: beside.dsync,
        background: true,
        exclusive: false,
        operations: None,
        ..own.clone()
    };
    BlockGroup {
        clients: beside.clients,
        random_payload: job.random_payload,
        ..BlockGroup::new(plan)
    }
}

fn length(size: Bytes) -> u32 {
    u32::try_from(size.get()).unwrap_or(u32::MAX)
}

fn pattern(pattern: Pattern, offsets: Offsets) -> workload::Pattern {
    match pattern {
        Pattern::Random => workload::Pattern::Random(offsets),
        Pattern::Sequential => workload::Pattern::Sequential,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::ENGINES;
    use units::Nanos;

    fn untils(beside: &str) -> Vec<Until> {
        let text = format!(
            "schema = 1\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n[[experiment]]\n\
             name = \"e\"\n[experiment.block]\narrivals = \"constant\"\nrate = \"1k/s\"\n{beside}"
        );
        let plan = crate::plan(&crate::parse(&text, ENGINES).unwrap());
        let extent = Extent {
            device: Bytes::mib(64),
            devices: 1,
            smallest_request: 512,
            cpus: 2,
            until: Until { due: Nanos(10), issue: Nanos(20) },
        };
        let (groups, _) = block_groups(&plan.trials[0].job, extent).unwrap();
        groups.iter().map(|group| group.plan.until).collect()
    }

    /// Late operations next to a closed loop that has ended would be measured without its load.
    #[test]
    fn only_schedules_by_themselves_are_issued_late() {
        let late = Until { due: Nanos(10), issue: Nanos(20) };
        assert_eq!(untils(""), [late]);
        let beside =
            |more: &str| format!("[[experiment.block.beside]]\nread_share = \"0%\"\n{more}");
        assert_eq!(untils(&beside("arrivals = \"poisson\"\nrate = \"10/s\"\n")), [late; 2]);
        assert_eq!(untils(&beside("")), [Until::from(Nanos(10)); 2]);
    }
}
