//! Unmodified programs in virtual time, on a modelled drive and any number of virtual cores.
//!
//! A preloaded library (`crosspoint-vtime-shim`) replaces the calls by which a program waits, reads the clock
//! and uses files. One thread of the program runs at a time; each call goes to the coordinator, which keeps
//! the clock, the scheduler ([`sim::scheduler`]) and the drive, and gives the turn to the thread that is
//! furthest behind. A thread's time advances by the CPU time that it really used, and by its waits.
//!
//! Invariants: file contents are real and changed at once, only their time is simulated; a call that is not
//! simulated ends the simulation with its name.

mod awaited_files;
mod cold_caches;
mod coordinator;
mod drive;
mod drives;
mod error;
mod file_access;
mod file_calls;
mod host;
mod inside;
mod power_cut;
mod process;
mod program;
mod real_time;
mod simulation;
pub mod wire;

pub use drive::Drive;
pub use drives::Drives;
pub use error::VtimeError;
pub use file_access::{AccessStart, DriveTotals, FileAccess, FileSystem, StepEnd};
pub use host::{Ended, Host};
pub use inside::{is_simulated, server_totals, thread_totals, totals};
pub use power_cut::{CutLosses, PowerCut};
pub use process::Process;
pub use simulation::{RealTime, Simulation, simulate};
pub use wire::Totals;
