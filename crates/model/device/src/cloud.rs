//! A cloud volume: token buckets and a latency with a long tail.
//!
//! # Model
//! A request costs one operation per started `operation_size`, and its bytes; each bucket refills at its rate
//! up to its burst, and a request waits for both. With `shared_budget` it takes the larger of its two shares
//! of a second from one budget. Then it takes a log-normal time around `latency_median` or, in a share of
//! cases, `outlier_time`.
//!
//! # Source
//! Amazon's documentation of volume types; the constants' sources are in the profiles.
//!
//! Invariant: the rate is not exceeded over any long time.

use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos, Rate, Seed, Share};

use crate::constant::Constant;
use crate::pending::Pending;
use crate::{Completion, Device, Operation, Request, Stage, Stages};

/// Constants of a cloud volume.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CloudParameters {
    /// Operations per second.
    pub operations: Constant<Rate>,
    /// Burst of operations.
    pub operations_burst: Constant<u64>,
    /// Bytes that count as one operation.
    pub operation_size: Constant<Bytes>,
    /// Bytes per second.
    pub bandwidth: Constant<Bytes>,
    /// Burst of bytes.
    pub bandwidth_burst: Constant<Bytes>,
    /// Operations and bytes share one budget; absent: separate ones.
    pub shared_budget: Option<Constant<bool>>,
    /// Median latency once admitted.
    pub latency_median: Constant<Nanos>,
    /// Standard deviation of its logarithm.
    pub latency_sigma: Constant<f64>,
    /// Share of requests that take `outlier_time` longer.
    pub outlier_share: Constant<Share>,
    /// Extra time of outliers.
    pub outlier_time: Constant<Nanos>,
    /// List price; absent: unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<VolumePrice>,
}

/// List price of a volume, US dollars per month.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct VolumePrice {
    /// For each GiB, which providers call GB.
    pub per_gib: f64,
    /// Operations per second that cost nothing.
    pub operations_included: Rate,
    /// For each further one.
    pub per_operation: f64,
    /// Bytes per second that cost nothing.
    pub bandwidth_included: Bytes,
    /// For each further MiB per second.
    pub per_mib: f64,
    /// Where from, with its date.
    pub source: String,
}

const MIB: f64 = 1_048_576.0;
const GIB: f64 = 1024.0 * MIB;

impl VolumePrice {
    /// Whether all prices are sums of money.
    pub(crate) fn is_possible(&self) -> bool {
        let all = [self.per_gib, self.per_operation, self.per_mib];
        all.iter().all(|price| price.is_finite() && *price >= 0.0)
    }
}

impl CloudParameters {
    /// List price of a volume of this `size`, US dollars per month; `None` if it is unknown.
    #[must_use]
    pub fn monthly_price(&self, size: Bytes) -> Option<f64> {
        let price = self.price.as_ref()?;
        let beyond = |all: u64, included: u64| all.saturating_sub(included) as f64;
        let operations = beyond(self.operations.value.get(), price.operations_included.get());
        let bandwidth = beyond(self.bandwidth.value.get(), price.bandwidth_included.get());
        Some(
            size.get() as f64 / GIB * price.per_gib
                + operations * price.per_operation
                + bandwidth / MIB * price.per_mib,
        )
    }
}

/// A token bucket, represented by the time at which it would be full (generic cell rate algorithm).
#[derive(Debug, Clone)]
struct Bucket {
    nanos_each: f64,
    burst: f64,
    full_at: f64,
}

impl Bucket {
    fn new(per_second: f64, burst: f64) -> Self {
        Self { nanos_each: 1e9 / per_second.max(1e-9), burst: burst.max(1.0), full_at: 0.0 }
    }

    /// Takes `count` tokens; returns when they are available.
    fn take(&mut self, now: f64, count: f64) -> f64 {
        self.full_at = self.full_at.max(now) + count * self.nanos_each;
        (self.full_at - self.burst * self.nanos_each).max(now)
    }
}

/// A cloud volume.
#[derive(Debug, Clone)]
pub struct Cloud {
    parameters: CloudParameters,
    operations: Bucket,
    bytes: Bucket,
    random: Xoshiro256PlusPlus,
    done: Pending,
}

impl Cloud {
    /// An idle volume with full buckets.
    #[must_use]
    pub fn new(parameters: &CloudParameters, seed: Seed) -> Self {
        let p = parameters;
        Self {
            operations: Bucket::new(
                p.operations.value.get() as f64,
                p.operations_burst.value as f64,
            ),
            bytes: Bucket::new(
                p.bandwidth.value.get() as f64,
                p.bandwidth_burst.value.get() as f64,
            ),
            random: Xoshiro256PlusPlus::seed_from_u64(seed.derive("cloud", 0).0),
            done: Pending::default(),
            parameters: parameters.clone(),
        }
    }
}

impl Device for Cloud {
    fn submit(&mut self, now: Nanos, request: Request) {
        // Writes are acknowledged when replicated: nothing is left to flush.
        if request.operation == Operation::Flush {
            return self.done.at_once(now, request.id);
        }
        let p = &self.parameters;
        let carries = matches!(request.operation, Operation::Read | Operation::Write);
        let length = if carries { u64::from(request.length) } else { 1 };
        let count = length.div_ceil(p.operation_size.value.get().max(1)) as f64;
        let at = now.get() as f64;
        let admitted = if p.shared_budget.as_ref().is_some_and(|shared| shared.value) {
            let (operations, bytes) = (p.operations.value.get(), p.bandwidth.value.get());
            let of_bytes = length as f64 / bytes.max(1) as f64 * operations as f64;
            self.operations.take(at, count.max(of_bytes))
        } else {
            self.operations.take(at, count).max(self.bytes.take(at, length as f64))
        };
        let normal: f64 = StandardNormal.sample(&mut self.random);
        let median = p.latency_median.value.get() as f64;
        let mut takes = median * (normal * p.latency_sigma.value).exp();
        let below = (p.outlier_share.value.fraction() * 2f64.powi(64)) as u64;
        if self.random.next_u64() < below {
            takes += p.outlier_time.value.get() as f64;
        }
        let at = Nanos((admitted + takes) as u64);
        let admitted = Nanos(admitted as u64);
        let parts = [(Stage::Throttle, admitted.since(now)), (Stage::Media, at.since(admitted))];
        let stages = Stages::new(at.since(now), parts);
        self.done.push(Completion { id: request.id, at, stages });
    }

    fn next_event(&self) -> Option<Nanos> {
        self.done.next_time()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        self.done.take_due(now, done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half the operations and half the bytes are a whole budget.
    /// A price that forgets provisioned operations or bandwidth makes an expensive volume the cheapest.
    #[test]
    fn a_price_has_three_parts() {
        let text = |name| crate::BUILT_IN.iter().find(|(own, _)| *own == name).expect("built in").1;
        let price = |name| {
            let profile = crate::Profile::parse(text(name)).expect("a profile");
            let crate::Parameters::Cloud(cloud) = &profile.parameters else { panic!("a volume") };
            cloud.monthly_price(Bytes(1_000_000_000_000)).expect("a price")
        };
        // 931.3 GiB at 0.08; 13,000 operations at 0.005; 828.7 MiB/s at 0.04.
        assert!((price("aws-gp3") - 74.5).abs() < 0.1, "{}", price("aws-gp3"));
        assert!((price("aws-gp3-16k") - 172.7).abs() < 0.1, "{}", price("aws-gp3-16k"));
        assert!((price("aws-io2-bx") - 4276.4).abs() < 0.1, "{}", price("aws-io2-bx"));
    }

    #[test]
    fn a_shared_budget_is_spent_by_operations_or_bytes() {
        let text = include_str!("../../../../devices/gcp-pd-ssd.toml");
        let profile = crate::Profile::parse(text).unwrap();
        let crate::Parameters::Cloud(p) = &profile.parameters else { panic!("a cloud volume") };
        let end = |requests: u64, length: u32| {
            let (mut volume, mut done) = (Cloud::new(p, Seed(1)), Vec::new());
            for id in 0..requests {
                volume.submit(Nanos::ZERO, Request::read(id, 0, length));
            }
            volume.advance(Nanos::from_secs(100), &mut done);
            done.last().unwrap().at.as_secs_f64()
        };
        // Ten seconds' worth, less the saved burst.
        let saved = p.operations_burst.value as f64 / p.operations.value.get() as f64;
        let ten = 10.0 - saved;
        let small = p.operations.value.get() * 10;
        assert!((end(small, 4096) / ten - 1.0).abs() < 0.02, "{}", end(small, 4096));
        let large = p.bandwidth.value.get() * 10 / (128 << 10);
        assert!((end(large, 128 << 10) / ten - 1.0).abs() < 0.02, "{}", end(large, 128 << 10));
    }

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let mut bucket = Bucket::new(1000.0, 10.0);
        let waits: Vec<f64> = (0..12).map(|_| bucket.take(0.0, 1.0)).collect();
        assert!(waits[..10].iter().all(|wait| *wait == 0.0), "{waits:?}");
        assert_eq!(&waits[10..], [1e6, 2e6]);
        // After one second the burst is available again.
        assert_eq!(bucket.take(1e9, 10.0), 1e9);
    }
}
