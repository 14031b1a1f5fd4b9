//! Compares device profiles with published figures: acceptance jobs, phenomena over time, and the expected
//! error of a prediction at a job like the published ones.
//!
//! Invariants: errors are computed in virtual time, never stored; a figure that a constant was chosen with is
//! no evidence.

#![forbid(unsafe_code)]

mod acceptance;
mod phenomena;
mod prediction_error;
mod write_cliff;

pub use acceptance::{Check, JobKind, check_job, predicted};
pub use phenomena::{GROWTH, check_growth, check_phenomena, growth_shape};
pub use prediction_error::{
    CheckedFigure, FIGURES_MIN, JobShape, PredictionError, median_absolute,
};
