//! From what a job asks for to the clients that do it, for every kind of job, real or virtual.
//!
//! Invariant: measured, emulated and predicted trials of one job have the same clients.

mod block;
mod databases;

pub use block::{Extent, block_groups, service_threads};
pub use databases::{kv_roles, sql_plan, value_shape};

use units::{Nanos, Rate};
use workload::{OpenLoop, Spacing};

/// When operations are due: `think` apart in a closed loop, else `burst` at once at `rate` and then at the
/// rates of `steps`.
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
