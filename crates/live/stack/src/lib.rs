//! Directories, files and devices under test: made, guarded, and unmade again.
//!
//! Invariants: everything made on the host is in the undo journal before it is made, undone on every
//! way out, and by `clean` after a kill; no block device is opened for writing unless the guard lets
//! it. What it is not: the drivers that do I/O.

mod error;
mod file_system;
mod groups;
mod guard;
mod journal;
mod limits;
mod probe;
mod processes;
mod test_file;
mod work_area;

pub use error::StackError;
pub use file_system::{Format, Ground};
pub use guard::{Access, open_device};
pub use journal::{Cleaned, Journal, Undo, clean, state_directory};
pub use limits::{DeviceRates, Limits, MemoryUse, Wanted};
pub use probe::{direct_io_works, free_space, reads_of};
pub use test_file::{TestFile, fill};
pub use work_area::WorkArea;
