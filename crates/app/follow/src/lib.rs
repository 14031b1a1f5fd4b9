//! What is running in a run, for whoever looks.
//!
//! The run keeps a [`Live`] document in memory and gives it to whoever connects to a socket in its folder:
//! nothing is written while it is measured, and it costs nothing while nobody looks. [`Screen`] draws it on
//! a terminal. Invariants: only the user of the run (and root) can connect; a reader that hangs holds up
//! nothing.

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
