//! What a trial costs the host, and facts of the host.
//!
//! [`usage`] is read before and after a trial; [`Provenance`] once per run. Invariant: unreadable facts are
//! "unknown", never a guess.

mod block_device;
mod clock;
mod control;
mod host_cpu;
mod io_workers;
mod page_cache;
mod provenance;
mod sampler;
mod scheduling;
mod usage;
pub mod waits;
mod wake_ups;

pub use block_device::BlockDevice;
pub use clock::{Clock, monotonic};
pub use control::{Control, Keep, Progress};
pub use host_cpu::{CPUS_VARIABLE, HostCpu, cores, cpus};
pub use io_workers::IoWorkers;
pub use page_cache::page_cache_costs;
pub use provenance::{Provenance, StorageFacts, memory_available};
pub use sampler::{Counter, family, sample, watch_process};
pub use scheduling::{ThreadClock, ThreadTimes, give_way, go_first};
pub use usage::{thread_usage, usage};
pub use wake_ups::{Hop, Waking, hop_anywhere, hops, interrupt_wake_ups, unheard_call};

/// The first line of a small file under `/proc` or `/sys`, trimmed.
pub(crate) fn first_line(path: impl AsRef<std::path::Path>) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}
