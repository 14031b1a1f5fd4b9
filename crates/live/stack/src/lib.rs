//! Directories, files and devices under test: created, guarded and undone.
//!
//! Invariants: everything created on the host is in the undo journal first, undone on every exit, and by
//! `clean` after a kill; a block device is opened through the guard, and held.

mod clean;
mod dying;
mod error;
mod groups;
mod guard;
mod journal;
mod limits;
mod mark;
mod modelled;
mod mounts;
mod probe;
mod processes;
mod quiet;
mod state;
mod test_file;
mod tracefs;
mod tracing;
mod trust;
mod undo;
mod ungroup;
mod users;
mod volume;
mod within;
mod work_area;

pub use clean::{Cleaned, clean};
pub use error::StackError;
pub use guard::{Access, HeldDevice};
pub use journal::{Journal, abandoned};
pub use limits::{DeviceRates, Limits, MemoryUse, Wanted};
pub use mark::{Mark, PASSWORD_VARIABLE, random_hex};
pub use modelled::on_a_model;
pub use mounts::{is_loop_over, release, still_used};
pub use probe::{direct_io_works, free_space, reads_of};
pub use quiet::{OpenMode, open_quietly};
pub use state::state_directory;
pub use test_file::{TestFile, fill};
pub use tracefs::has_event_tracing;
pub use tracing::TraceInstance;
pub use trust::{check_before_making, check_directory, is_trusted_owner};
pub use undo::{Restore, Undo};
pub use volume::{Format, Volume, loop_over};
pub use within::{find_program, output_within};
pub use work_area::WorkArea;

/// Parsers of kernel and program output and of journals; for fuzz targets, too.
pub mod parsing {
    pub use crate::clean::parse as journal;
    pub use crate::groups::own_group;
    pub use crate::guard::{Signature, signature_of};
    pub use crate::mounts::parse_mounts;
    pub use crate::users::{mounted_at, swaps_on};
}
