//! Views of runs: tables, sentences and the one-file report.
//!
//! Invariants: what is shown carries its source; the report asks nothing of the network. What it is not: a
//! judge; what is shown was found by `analysis`.

mod answer;
mod bounds;
mod chart;
mod charts;
mod drives;
mod drives_picture;
mod faster;
mod page;
mod picture;
mod sql_answer;
mod sql_charts;
mod sweeps;
mod table;

pub use answer::headline;
pub use page::{ReportError, html};
pub use table::{csv, text_table};
