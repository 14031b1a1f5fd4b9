//! Typed analysis of runs: groups of trials, figures with intervals, curves, cliffs, published
//! figures next to ours.
//!
//! Invariants: every figure carries its source, and sources never mix; a percentile that the sample count
//! cannot support is left out.

pub mod act;
pub mod advice;
pub mod background;
#[cfg(test)]
mod claims_tests;
pub mod cliffs;
pub mod compared;
#[cfg(test)]
mod compared_tests;
pub mod comparing;
pub mod decision;
pub mod doubts;
mod figure;
mod figures;
pub mod fitness;
pub mod gain;
mod groups;
pub mod knee;
pub mod laws;
mod metric;
pub mod objective;
pub mod overall;
pub mod own_disk;
mod part;
pub mod published;
pub mod range;
mod reliability;
mod repetitions;
pub mod sameness;
pub mod scaling;
mod shape;
mod simulated_class;
pub mod sql;
pub mod suitability;
pub mod table;
#[cfg(test)]
mod test_run;
pub mod time_parts;
pub mod trend;
pub mod verdict;

pub use act::{ActTest, act_tests};
pub use figure::{Figure, unit_text};
pub use figures::{PERCENTILES, document, figures};
pub use groups::{Group, Ops, Times, depth_of, groups, in_flight, is_sql};
pub use published::{Publication, publication};
pub use shape::{shape_of, worth_of};
