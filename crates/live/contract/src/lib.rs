//! The contract suites: what every engine promises, run by each engine's own tests.
//!
//! They use nothing but the contract in `engine`. A development dependency; no program contains it.

pub mod key_value;
pub mod sql;
