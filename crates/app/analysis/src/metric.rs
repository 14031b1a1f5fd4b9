//! The metric in which storages are compared.

use workload::OpClass;

use crate::groups::Ops;

/// The metric that is compared for an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DecisionMetric {
    /// SQL transactions per second.
    Transactions,
    /// Updates per second, each on the medium before it was acknowledged.
    DurableUpdates,
    /// Updates per second.
    Updates,
    /// Lookups per second.
    Lookups,
    /// The time of one read at the lowest queue depth.
    ReadTime,
    /// p99 of an operation in an open loop, where the rate itself carries no information.
    TimeAtRate(OpClass),
}

impl DecisionMetric {
    /// Name with its unit.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Transactions => "transactions/s",
            Self::DurableUpdates => "durable updates/s",
            Self::Updates => "updates/s",
            Self::Lookups => "lookups/s",
            Self::ReadTime => "median read latency",
            Self::TimeAtRate(OpClass::Transaction) => "99th percentile of a transaction",
            Self::TimeAtRate(OpClass::Read) => "99th percentile of a lookup",
            Self::TimeAtRate(_) => "99th percentile of an update",
        }
    }

    /// Whether more is better.
    #[must_use]
    pub const fn is_rate(self) -> bool {
        !matches!(self, Self::ReadTime | Self::TimeAtRate(_))
    }

    /// The operations that it counts.
    #[must_use]
    pub const fn ops(self) -> Ops {
        Ops::Only(match self {
            Self::Transactions => OpClass::Transaction,
            Self::DurableUpdates | Self::Updates => OpClass::Write,
            Self::Lookups | Self::ReadTime => OpClass::Read,
            Self::TimeAtRate(class) => class,
        })
    }
}
