//! The key-value floor: what an engine must do, and the client threads that drive any engine.
//!
//! Invariants: the drivers know no engine; every value read is checked against what may have been
//! written; engines pass one contract suite ([`contract`]). What it is not: an engine.

pub mod contract;
mod driver;
mod engine;
mod ledger;
mod operations;
mod page_cache;

pub use driver::{KvSpec, load, measure};
pub use engine::{Engine, KvError, Options, Session};
pub use ledger::{Checked, Ledger};
pub use page_cache::{Residency, evict, residency};
