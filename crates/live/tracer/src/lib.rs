//! Records a running database: what its threads and their drive do, by the kernel's own events.
//!
//! Requires root and tracefs. Invariants: nothing changes in the recorded processes; the kernel's buffers
//! are in the undo journal before they exist and are removed when recording ends, however it ends; names of
//! files and contents are never recorded.

mod calls;
mod kernel;
mod pages;
mod processes;
mod record;

pub use processes::{named, with_files_on};
pub use record::{Progress, RecordOptions, TracerError, record};
