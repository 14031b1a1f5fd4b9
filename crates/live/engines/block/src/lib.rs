//! Block I/O on real devices: io_uring, or threads with pread and pwrite.
//!
//! Both are sessions of the engine contract, driven by its one client loop. The safety guard is in `stack`.

mod buffers;
mod checked;
mod ledger;
mod own_cost;
mod psync;
mod run;
mod spec;
mod target;
mod uring;
mod verify;

use engine::EngineError;
use study::{Descriptor, Operations};

pub use ledger::Ledger;
pub use own_cost::{OwnCost, own_cost};
pub use run::{RunError, run};
pub use spec::{BlockSpec, Path};
pub use target::Target;
pub use uring::available as io_uring_available;
pub use verify::{Corruption, read_back};

/// Description of block I/O for users.
pub static DESCRIPTOR: Descriptor = Descriptor {
    bare_device: true,
    install: "sysctl kernel.io_uring_disabled=0 (in a container: allow io_uring_setup)",
    durability: [
        "writes are acknowledged by the device",
        "writes are acknowledged by the device",
        "writes reach the medium: fdatasync after them, or RWF_DSYNC (dsync)",
    ],
    power_cuts: None,
    ..Descriptor::new("block", "block", Operations::Block)
};

/// Checks that io_uring is available.
///
/// # Errors
/// If io_uring is unavailable; threads with pread and pwrite are used then.
pub fn probe() -> Result<String, EngineError> {
    let limited = |reason| {
        let reason = format!("io_uring: {reason}; threads with pread and pwrite are used instead");
        EngineError::refused(reason, DESCRIPTOR.install)
    };
    io_uring_available().map(|()| "io_uring".to_owned()).map_err(limited)
}
