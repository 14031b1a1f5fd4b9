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
mod page_cache;
pub mod scheduler;

pub use block_path::BlockPath;
pub use calibration::{Calibration, PathCost, WakeUps};
pub use driver::{STEPS, run, run_unless};
pub use host::HostModel;
pub use page_cache::{PageCache, Recency};
