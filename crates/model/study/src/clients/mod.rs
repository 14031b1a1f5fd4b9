//! Clients of a job, for every kind of job, measured or virtual.
//!
//! Invariant: measured, emulated and predicted trials of a job have the same clients.

mod block;
mod databases;

pub use block::{Extent, block_groups, service_threads};
pub use databases::{kv_roles, sql_plan, value_shape};

use units::{Nanos, Rate};
use workload::{OpenLoop, Spacing};

/// Arrivals of operations: with `think` time in a closed loop, otherwise `burst` at once at `rate`, then at
/// the rates of `steps`.
fn arrivals(
    kind: crate::Arrivals,
    (rate, steps): (Rate, &[crate::RateStep]),
    burst: u32,
    think: Nanos,
) -> workload::Arrivals {
    let spacing = match kind {
        crate::Arrivals::Closed => return workload::Arrivals::Closed { think },
        crate::Arrivals::Constant => Spacing::Constant,
        crate::Arrivals::Poisson => Spacing::Poisson,
    };
    let step = |from: Nanos, rate: Rate| workload::RateStep { from, per_second: rate.get() as f64 };
    let later = steps.iter().map(|one| step(one.at, one.rate));
    let rates = std::iter::once(step(Nanos::ZERO, rate)).chain(later).collect();
    workload::Arrivals::Open(OpenLoop { spacing, rates, burst })
}
