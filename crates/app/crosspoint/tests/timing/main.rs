//! What other tests next to it would spoil: a binary of its own runs alone.

mod cliffs;
#[path = "../end_to_end/support/mod.rs"]
mod support;
