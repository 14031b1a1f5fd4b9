//! A device profile fitted to measurements, and its errors.
//!
//! Invariants: a held-out point enters no constant; the same points give the same profile, byte for byte.

#![forbid(unsafe_code)]

mod fitting;
mod flushes;
mod paced;
mod points;
mod rested;
mod rows;
mod run;
mod tables;
mod thread;

pub use fitting::{Naming, fit};
pub use flushes::{FlushPoint, fitted_flushes, flush_residuals, with_flushes};
pub use points::{FitCategory, FitError, FitPoint, FitTimes, kept_up};
pub use run::{Residual, residuals};
