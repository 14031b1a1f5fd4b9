//! The block floor on real devices: io_uring, or threads with pread and pwrite.
//!
//! Drivers own the clock and nothing else: the workload says what to issue, the recorder takes what
//! completed. Invariants: in the loop nothing is allocated, locked or logged; one clock reading a
//! batch. What it is not: a chooser of targets; the safety guard is in `stack`.

mod buffers;
mod ledger;
mod own_cost;
mod psync;
mod run;
mod shared;
mod spec;
mod target;
mod uring;
mod verify;

pub use ledger::Ledger;
pub use own_cost::{OwnCost, own_cost};
pub use run::{RunError, run};
pub use spec::{BlockSpec, Path};
pub use target::Target;
pub use uring::available as io_uring_available;
pub use verify::{Corruption, read_back};
