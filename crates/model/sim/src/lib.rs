//! Virtual time: the host that submits, the driver that owns the clock, and the targets that it drives.
//!
//! Invariants: no clock, no I/O; the same plan and seed give the same recording, byte for byte; every
//! operation issued completes exactly once.

#![forbid(unsafe_code)]

mod block_path;
mod calibration;
mod cores;
mod driver;
mod host;
mod jitter;
mod page_cache;
mod page_cache_costs;
pub mod scheduler;

pub use block_path::BlockPath;
pub use calibration::{Calibration, MeasuredCosts, PathCost, WakeUps};
pub use driver::{STEPS, run, run_unless};
pub use host::HostModel;
pub use jitter::Jitter;
pub use page_cache::{PageCache, Recency};
pub use page_cache_costs::PageCacheCosts;
