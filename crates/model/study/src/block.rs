//! Block jobs in a study: the clients under test, and background clients.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use units::{Bytes, Nanos, Rate, Share, words};

use crate::defaults::{all, bytes, millis, number};
use crate::parameters::Parameters;
use crate::{EngineName, Offsets};

/// Block operations: a closed loop that keeps `queue_depth` operations of each thread in flight, or an open
/// loop on a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BlockJob {
    /// The engine: `block`.
    pub engine: EngineName,
    /// Position of the next block.
    #[serde(default)]
    pub pattern: Pattern,
    /// Distribution of the offsets of random operations: `uniform`; `zipf:0.99`; `hot-spot:80%/20%` (80 % of
    /// the operations to 20 % of the space); `gaussian:15%` (standard deviation, as a share of the space).
    #[serde(default)]
    pub distribution: Offsets,
    /// Bytes per operation; a multiple of 512, up to 16MiB.
    #[serde(default = "bytes::<4096>")]
    pub block_size: Bytes,
    /// Instead of `block_size`: several sizes, drawn by their weights: `[{ size = "4KiB", weight = 3 }, {
    /// size = "64KiB", weight = 1 }]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub size_mix: Vec<SizeWeight>,
    /// Offsets are multiples of this, itself a multiple of 512; by default of the (smallest) size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alignment: Option<Bytes>,
    /// Share of operations that read; the rest write.
    #[serde(default = "all")]
    pub read_share: Share,
    /// Operations in flight per thread, 1 to 4096; the maximum in an open loop.
    #[serde(default = "number::<1>")]
    pub queue_depth: u32,
    /// Submitting threads, 1 to 256.
    #[serde(default = "number::<1>")]
    pub clients: u32,
    /// When operations are due.
    #[serde(default)]
    pub arrivals: Arrivals,
    /// Open loop: operations per second, all threads together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Open loop, instead of `rate`: shares of the highest rate of a closed loop of the same operations,
    /// earlier in this run on the same stack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_of_max: Option<Share>,
    /// Open loop: later changes of the rate, in order of time: `[{ at = "10s", rate = "20k/s" }]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rate_step: Vec<RateStep>,
    /// Open loop: operations due at once, up to a million; `rate` still counts operations.
    #[serde(default = "number::<1>")]
    pub burst: u32,
    /// Closed loop: think time of a slot after each completion.
    #[serde(default)]
    pub think_time: Nanos,
    /// Flush (fdatasync) after this many writes of a thread, once they have completed; 0: never.
    #[serde(default)]
    pub sync_every: u32,
    /// Every write reaches the medium before it is acknowledged (O_DSYNC; on a device, forced unit
    /// access).
    #[serde(default)]
    pub dsync: bool,
    /// Share of the data written that cannot be compressed.
    #[serde(default = "all")]
    pub random_payload: Share,
    /// End after this many operations, all threads together, if the time is not over before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operations: Option<u64>,
    /// End after this many bytes of all clients together, or at the end of `duration`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Bytes>,
    /// Stamp every write, check every read and read everything back; wrong data ends the run. See
    /// Verification below.
    #[serde(default)]
    pub verify: bool,
    /// On real devices with root: run for another second while the kernel's tracing reports when each request
    /// reaches the block layer, the driver and the drive; the report then splits an operation's time there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trace: bool,
    /// Completions that the io_uring driver waits for at once, 1 to 4096. A larger batch costs less CPU and,
    /// on a device slower than the CPU, overstates latency.
    #[serde(default = "number::<1>")]
    pub batch: u32,
    /// Preconditioning of the device before each trial.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precondition: Option<Precondition>,
    /// Background clients, reported separately as `background_*`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Background>,
}

impl BlockJob {
    /// Whether anything in it writes: its own clients, background clients, or preconditioning.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.read_share != Share::ALL
            || self.precondition.is_some()
            || self.beside.iter().any(|beside| beside.read_share != Share::ALL)
    }

    /// Whether `other` issues the same operations, at any rate.
    #[must_use]
    pub fn same_operations(&self, other: &Self) -> bool {
        self.operations_key() == other.operations_key()
    }

    /// Equal exactly for jobs with the [`same operations`](Self::same_operations).
    pub(crate) fn operations_key(&self) -> String {
        let shape = (self.pattern, self.distribution, self.block_size, self.read_share);
        format!("{shape:?} {:?} {} {}", self.size_mix, self.sync_every, self.dsync)
    }

    /// Offsets are multiples of this.
    #[must_use]
    pub fn alignment(&self) -> Bytes {
        self.alignment.unwrap_or_else(|| self.smallest())
    }

    /// The smallest operation, bytes.
    pub(crate) fn smallest(&self) -> Bytes {
        self.size_mix.iter().map(|one| one.size).min().unwrap_or(self.block_size)
    }

    /// Operations per second of an open loop; 0 in a closed one, or until the highest rate is known.
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.rate.unwrap_or(Rate(0))
    }

    /// Operations after which the trial ends, from a limit on operations or on bytes.
    #[must_use]
    pub fn operations_limit(&self) -> Option<u64> {
        let weights: u64 = self.size_mix.iter().map(|one| u64::from(one.weight)).sum();
        let sum: u64 = self.size_mix.iter().map(|o| o.size.get() * u64::from(o.weight)).sum();
        let mean = sum.checked_div(weights).unwrap_or(self.block_size.get());
        let by_bytes = self.bytes.map(|bytes| bytes.get().div_ceil(mean.max(1)));
        [self.operations, by_bytes].into_iter().flatten().min()
    }

    /// The largest operation, bytes.
    #[must_use]
    pub fn largest(&self) -> Bytes {
        let own = self.size_mix.iter().map(|one| one.size).max().unwrap_or(self.block_size);
        self.beside.iter().map(|beside| beside.block_size).fold(own, Bytes::max)
    }

    /// The parameters of every block job, and non-default ones.
    pub(crate) fn parameters(&self) -> Parameters {
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
        let mut add = |differs, name: &'static str, value| parameters.add(differs, name, value);
        let open = self.arrivals != Arrivals::Closed;
        add(self.distribution != Offsets::Uniform, "distribution", self.distribution.to_string());
        add(self.alignment() != self.smallest(), "alignment", self.alignment().exact());
        add(self.clients > 1, "clients", self.clients.to_string());
        add(open, "arrivals", self.arrivals.word().into());
        match self.rate_of_max {
            Some(share) => add(true, "rate_of_max", share.exact()),
            None if open => add(true, "rate", self.rate().exact()),
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

/// Describes the background load: `100% writes of 16KiB at 1k/s`.
fn beside_text(beside: &Background) -> String {
    let kind = match beside.read_share {
        Share::ALL => "reads".to_owned(),
        Share::NONE => "writes".to_owned(),
        share => format!("{} reads", share.exact()),
    };
    let load = match beside.rate {
        Some(rate) => format!("at {}", rate.exact()),
        None => format!("{} deep", beside.clients * beside.queue_depth),
    };
    format!("{kind} of {} {load}", beside.block_size.exact())
}

/// A size and how often it is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SizeWeight {
    /// Bytes per operation; a multiple of 512, up to 16MiB.
    pub size: Bytes,
    /// Relative weight, a whole number above 0.
    pub weight: u32,
}

/// A later change of the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateStep {
    /// Time since the start of the trial, warm-up included.
    pub at: Nanos,
    /// Operations per second from then on; `"0/s"` pauses.
    pub rate: Rate,
}

/// Preconditioning, after SNIA's Solid State Storage Performance Test Specification: sequential writes over
/// the addressed span, then rounds of the trial's own operations until steady state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Precondition {
    /// How often the addressed span is written sequentially first, in blocks of 128 KiB; once per stack.
    #[serde(default = "number::<2>")]
    pub fills: u32,
    /// Length of a round.
    #[serde(default = "millis::<60000>")]
    pub round: Nanos,
    /// Maximum number of rounds of the trial's own operations; then the trial begins, steady or not; 0: none.
    /// Steady state: two windows of five rounds, each within 20 % range and 10 % drift, with means within 5
    /// %; a job with writes must also have written twice its span. The report says whether it was reached.
    #[serde(default = "number::<25>")]
    pub rounds_max: u32,
}

/// Background clients, from the start to the end of the trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Background {
    /// Position of the next block.
    #[serde(default)]
    pub pattern: Pattern,
    /// How the offsets of random operations are distributed.
    #[serde(default)]
    pub distribution: Offsets,
    /// Bytes per operation; a multiple of 512, up to 16MiB.
    #[serde(default = "bytes::<4096>")]
    pub block_size: Bytes,
    /// Share of operations that read; the rest write.
    #[serde(default = "all")]
    pub read_share: Share,
    /// Operations in flight per thread, 1 to 4096.
    #[serde(default = "number::<1>")]
    pub queue_depth: u32,
    /// Threads, 1 to 256.
    #[serde(default = "number::<1>")]
    pub clients: u32,
    /// When operations are due.
    #[serde(default)]
    pub arrivals: Arrivals,
    /// Open loop: operations per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Open loop: operations due at once.
    #[serde(default = "number::<1>")]
    pub burst: u32,
    /// Closed loop: think time of a slot after each completion.
    #[serde(default)]
    pub think_time: Nanos,
    /// Flush after this many writes of a thread; 0: never.
    #[serde(default)]
    pub sync_every: u32,
    /// Every write reaches the medium before it is acknowledged.
    #[serde(default)]
    pub dsync: bool,
}

/// When operations are due.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// When the previous one has completed (closed loop).
    #[default]
    Closed,
    /// Open loop with constant gaps.
    Constant,
    /// Open loop with exponential gaps.
    Poisson,
}

/// Position of the next block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Random, with the `distribution`.
    #[default]
    Random,
    /// One after the other.
    Sequential,
}

words!(Arrivals { Closed => "closed", Constant => "constant", Poisson => "poisson" });
words!(Pattern { Random => "random", Sequential => "sequential" });
