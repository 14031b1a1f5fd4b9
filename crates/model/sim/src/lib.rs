//! Virtual time: the host that submits, the driver that owns the clock, and the check of a profile
//! against published figures.
//!
//! Invariants: no clock, no I/O; the same plan and seed give the same recording, byte for byte; every
//! operation issued completes exactly once.
//! What it is not: device models (`device`) or workloads (`workload`), which it only connects.

#![forbid(unsafe_code)]

mod acceptance;
mod block_path;
mod calibration;
mod cores;
mod driver;
mod fit;
mod fit_paced;
mod fit_points;
mod fit_rested;
mod fit_rows;
mod fit_run;
mod fit_tables;
mod fit_thread;
mod host;
mod machine;
mod null_engine;
mod page_cache;
mod phenomena;
mod target;
mod worth;
mod write_cliff;

pub use acceptance::{Check, JobKind, check, check_job};
pub use block_path::BlockPath;
pub use calibration::{Calibration, PathCost, WakeUps};
pub use driver::{STEPS, run, run_unless};
pub use fit::{Naming, fit};
pub use fit_points::{FitCategory, FitError, FitPoint, FitTimes, kept_up};
pub use fit_run::{Residual, residuals};
pub use host::HostModel;
pub use machine::{Desk, Lock, LockGuard, Machine, Processors, ThreadId, Threads, Waiters};
pub use null_engine::{Layout, NullEngine};
pub use page_cache::{PageCache, Recency};
pub use phenomena::{GROWTH, check_growth, check_phenomena, growth_shape};
pub use target::{Done, Target, Ticket};
pub use worth::{CheckedFigure, FIGURES_MIN, JobShape, Worth};
