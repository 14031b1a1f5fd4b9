//! Planning, order, failures, interruption, resuming and progress of runs, with trials from a script.
//!
//! Each test says what a user would lose. No engine, device or privilege is needed.

mod failing;
mod interrupting;
mod mock;
mod ordering;
mod planning;
mod racing;
mod resuming;
