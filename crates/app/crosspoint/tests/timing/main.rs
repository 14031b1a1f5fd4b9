//! What other tests next to it would spoil: a binary of its own runs alone.

mod cliffs;
// Of the helpers few are needed here.
#[allow(dead_code, unused_imports)]
#[path = "../end_to_end/support/mod.rs"]
mod support;
