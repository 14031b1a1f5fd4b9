//! The live state of a run, for watchers.
//!
//! The run keeps a [`Live`] document in memory and sends it to whoever connects to a socket in its folder:
//! nothing is written while it measures, and nothing is spent while nobody watches. [`Screen`] draws it on a
//! terminal. Invariants: only the run's user (and root) can connect; a stuck reader delays nothing.

mod disks;
mod line;
mod live;
mod screen;
mod telling;

pub use disks::{Disks, Traffic};
pub use line::{Line, LiveSummary, ask, ask_all};
pub use live::{Live, LiveInterval, LiveTrial};
pub use screen::{Screen, line_of};
pub use telling::Telling;
