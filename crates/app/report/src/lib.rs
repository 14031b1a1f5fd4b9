//! Figures and the one-file report.
//!
//! Invariants: every figure carries its source, and sources never mix; a percentile that the sample
//! count cannot support is left out; the report asks nothing of the network.
//! What it is not: a judge of differences between runs.

mod act;
mod answer;
mod bounds;
mod charts;
mod cliffs;
mod figures;
mod groups;
mod knee;
mod page;
mod picture;
mod published;
mod sql_answer;
mod sql_charts;
mod sql_figures;
mod sweeps;
mod table;

pub use act::{ActTest, act_tests};
pub use answer::headline;
pub use figures::{Figure, document, figures};
pub use page::{ReportError, html};
pub use published::{Publication, publication};
pub use table::{csv, text_table};
