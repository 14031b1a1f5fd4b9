//! The load of a configuration, and the clients that offer it.
//!
//! The formula is ACT's: a large block holds a whole number of records (its README divides exactly). Two
//! phases: `act` reproduces ACT (service threads fire at the same instants, and lose the remainder of the
//! rate divided by their number), `independent` offers the same rates with exponential gaps.

use units::{Bytes, Nanos, Share};
use workload::{Arrivals, BlockPlan, OpenLoop, Pattern, RateStep, Sizes, Spacing};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Config;

/// Distribution of arrivals over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "ActPhase")]
pub enum Phase {
    /// Independent random arrivals, as from many database clients.
    Independent,
    /// Synchronized arrivals, as from ACT's threads.
    Act,
}

units::words!(Phase {
    Independent => "independent", Act => "act",
});

/// Rates that follow from a configuration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Reads per second by service threads.
    pub reads: u32,
    /// Writes per second by service threads; 0 unless each write is committed separately.
    pub writes: u32,
    /// Large-block reads per second, all devices together.
    pub large_reads: f64,
    /// Large-block writes per second.
    pub large_writes: f64,
    /// Bytes of the smallest and of the largest record as stored.
    pub stored: (u32, u32),
}

impl Load {
    /// The load of `config`.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let updates = u64::from(config.write_reqs_per_sec) * u64::from(config.update_pct) / 100;
        let updates = u32::try_from(updates).unwrap_or(u32::MAX);
        let reads = config.read_reqs_per_sec.saturating_add(updates);
        let writes = config.replication_factor.saturating_mul(config.write_reqs_per_sec);
        let smallest = config.record_bytes.next_multiple_of(16);
        let biggest = match config.record_bytes_range_max {
            0 => smallest,
            bytes => bytes.next_multiple_of(16),
        };
        let records_a_block =
            config.large_block_op_kbytes * 1024 / u32::midpoint(smallest, biggest);
        let blocks = f64::from(writes) / f64::from(records_a_block);
        let amplification = 100.0 / f64::from(100 - config.defrag_lwm_pct);
        let committed = config.commit_to_device;
        let all = blocks * amplification;
        Self {
            reads,
            writes: if committed { writes } else { 0 },
            large_reads: if config.no_defrag_reads { 0.0 } else { all },
            large_writes: if committed { blocks * (amplification - 1.0) } else { all },
            stored: (smallest, biggest),
        }
    }
}

/// Properties of the target and the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of each device.
    pub device: Bytes,
    /// Smallest request of the devices, bytes.
    pub smallest_request: u32,
    /// Threads that issue requests.
    pub service_threads: u32,
}

impl Shape {
    /// Bytes of each device that are used: whole large blocks.
    #[must_use]
    pub fn addressed(&self, config: &Config) -> Bytes {
        let large = u64::from(config.large_block_op_kbytes) * 1024;
        Bytes(self.device.get() / large * large)
    }
}

/// Maximum number of independent requests in flight: more than any drive serves at once.
const DEPTH: u32 = 512;
/// The same for large blocks.
const LARGE_DEPTH: u32 = 64;

/// Clients of one kind: plan, number, and whether they are recorded.
pub type ActGroup = (BlockPlan, u32, bool);

/// The clients that offer `config`'s load in `phase` until `end`.
///
/// # Errors
/// If a device is smaller than one large block, or there are more service threads than requests.
pub fn groups(
    config: &Config,
    phase: Phase,
    shape: Shape,
    end: Nanos,
) -> Result<Vec<ActGroup>, String> {
    let load = Load::of(config);
    let devices = u32::try_from(config.device_names.len()).unwrap_or(1).max(1);
    let each = shape.addressed(config);
    if each.get() == 0 {
        return Err(format!("a device of {} is smaller than a large block", shape.device));
    }
    let threads = shape.service_threads.max(1);
    let total = load.reads.saturating_add(load.writes);
    if phase == Phase::Act && total > 0 && total / threads == 0 {
        return Err(format!(
            "{total} requests per second are too few for {threads} service threads"
        ));
    }
    let base = BlockPlan {
        devices,
        span: Bytes(each.get().saturating_mul(u64::from(devices))),
        ..BlockPlan::reads(shape.smallest_request, each, end)
    };
    let mut groups = Vec::new();
    let records = |rate: f64, share: Share, clients: u32, depth: u32| {
        let plan = BlockPlan {
            sizes: record_sizes(load.stored, shape.smallest_request),
            alignment: Bytes(u64::from(shape.smallest_request)),
            read_share: share,
            queue_depth: depth,
            arrivals: arrivals(phase, rate),
            ..base.clone()
        };
        (plan, clients, true)
    };
    match phase {
        Phase::Act if total > 0 => {
            // Integer division: the remainder is not offered.
            let offered = f64::from(total / threads * threads);
            let percent = f64::from(load.reads) / f64::from(total) * 100.0;
            let share = format!("{percent:.2}%").parse().unwrap_or(Share::ALL);
            groups.push(records(offered, share, threads, 1));
        }
        Phase::Act => {}
        Phase::Independent => {
            let kinds = [(load.reads, Share::ALL), (load.writes, Share::NONE)];
            for (rate, share) in kinds.into_iter().filter(|(rate, _)| *rate > 0) {
                groups.push(records(f64::from(rate), share, 1, DEPTH));
            }
        }
    }
    groups.extend(large_groups(config, phase, &load, &base));
    Ok(groups)
}

/// Clients for large blocks, and for the tomb raider's scans.
fn large_groups(config: &Config, phase: Phase, load: &Load, base: &BlockPlan) -> Vec<ActGroup> {
    let devices = base.devices;
    let mut groups = Vec::new();
    let large = config.large_block_op_kbytes * 1024;
    for (rate, share) in [(load.large_reads, Share::ALL), (load.large_writes, Share::NONE)] {
        if rate > 0.0 {
            let (clients, queue_depth) =
                if phase == Phase::Act { (devices, 1) } else { (1, LARGE_DEPTH) };
            let plan = BlockPlan {
                sizes: Sizes::one(large),
                alignment: Bytes(u64::from(large)),
                read_share: share,
                queue_depth,
                arrivals: arrivals(phase, rate),
                background: true,
                ..base.clone()
            };
            groups.push((plan, clients, true));
        }
    }
    if config.tomb_raider {
        let think = Nanos::from_micros(u64::from(config.tomb_raider_sleep_usec));
        let plan = BlockPlan {
            pattern: Pattern::Sequential,
            sizes: Sizes::one(large),
            alignment: Bytes(u64::from(large)),
            arrivals: Arrivals::Closed { think },
            background: true,
            ..base.clone()
        };
        groups.push((plan, devices, false));
    }
    groups
}

fn arrivals(phase: Phase, per_second: f64) -> Arrivals {
    let spacing = match phase {
        Phase::Independent => Spacing::Poisson,
        Phase::Act => Spacing::InPhase,
    };
    let rates = vec![RateStep { from: Nanos::ZERO, per_second }];
    Arrivals::Open(OpenLoop { spacing, rates, burst: 1 })
}

/// Sizes of record requests on the device: every size from the smallest to the largest is equally likely.
fn record_sizes(stored: (u32, u32), step: u32) -> Sizes {
    let (from, to) = (stored.0.div_ceil(step), stored.1.div_ceil(step));
    let sizes: Vec<(u32, f64)> = (from..=to).map(|count| (count * step, 1.0)).collect();
    match sizes.as_slice() {
        [(only, _)] => Sizes::one(*only),
        many => Sizes::mix(many),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config::parse(
            "device-names: /dev/sda\ntest-duration-sec: 60\nread-reqs-per-sec: 2000\n\
             write-reqs-per-sec: 1000\n",
        )
        .unwrap()
    }

    const SHAPE: Shape =
        Shape { device: Bytes(1 << 30), smallest_request: 512, service_threads: 300 };

    /// Rates must equal those of the released program: 23.53 large blocks per second each way at 1x (85
    /// records per block), 22.99 with records of 1504 bytes (its README says 22.95).
    #[test]
    fn rates_are_those_of_the_program() {
        let load = Load::of(&config());
        assert!((load.large_reads - 23.529).abs() < 0.001, "{load:?}");
        assert_eq!((load.reads, load.writes, load.stored), (2000, 0, (1536, 1536)));
        let small = Load::of(&Config { record_bytes: 1504, ..config() });
        assert!((small.large_writes - 22.989).abs() < 0.001, "{small:?}");
        let committed = Load::of(&Config {
            commit_to_device: true,
            update_pct: 50,
            replication_factor: 2,
            defrag_lwm_pct: 60,
            ..config()
        });
        assert_eq!((committed.reads, committed.writes), (2500, 2000));
        assert!((committed.large_writes / committed.large_reads - 0.6).abs() < 1e-9);
        assert_eq!(Load::of(&Config { no_defrag_reads: true, ..config() }).large_reads, 0.0);
    }

    fn offered(phase: Phase) -> f64 {
        let groups = groups(&config(), phase, SHAPE, Nanos::MAX).unwrap();
        let Arrivals::Open(open) = &groups[0].0.arrivals else { panic!("closed") };
        open.rates[0].per_second
    }

    /// In the program 2000 requests on 300 threads are 6 each: 1800.
    #[test]
    fn only_acts_own_phase_loses_the_remainder() {
        assert_eq!(offered(Phase::Act), 1800.0);
        assert_eq!(offered(Phase::Independent), 2000.0);
        let many = Shape { service_threads: 2001, ..SHAPE };
        assert!(groups(&config(), Phase::Act, many, Nanos::MAX).is_err());
    }

    #[test]
    fn every_option_has_its_clients() {
        let all = Config {
            commit_to_device: true,
            tomb_raider: true,
            tomb_raider_sleep_usec: 5,
            record_bytes_range_max: 4096,
            device_names: vec!["a".into(), "b".into()],
            ..config()
        };
        let groups = groups(&all, Phase::Independent, SHAPE, Nanos::MAX).unwrap();
        assert_eq!(groups.len(), 5);
        let (records, ..) = &groups[0];
        assert_eq!((records.sizes.smallest(), records.sizes.largest()), (1536, 4096));
        assert_eq!((records.devices, records.span), (2, Bytes(2 << 30)));
        assert!(groups.iter().filter(|(_, _, recorded)| !recorded).count() == 1);
    }
}
