//! Scenarios with scripted trials: planning, order, failures, interruption, resuming and progress.
//!
//! Each test states the user's loss. No engine, device or privilege is needed.

mod failing;
mod interrupting;
mod mock;
mod ordering;
mod planning;
mod racing;
mod resuming;
