//! Tests that other tests running next to them would disturb; a binary of its own runs alone.

mod cliffs;
#[path = "../end_to_end/support/mod.rs"]
mod support;
