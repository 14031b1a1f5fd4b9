//! State that trials on this host share.

use std::collections::BTreeMap;

use block::OwnCost;

use crate::devices::Targets;
use crate::servers::Loaded;

/// Targets and tables created by one trial and used by the next.
pub(crate) struct Bench<'a> {
    pub targets: Targets<'a>,
    /// Harness overhead per operation, measured before the first block trial.
    pub own_cost: Option<OwnCost>,
    /// Tables left by SQL trials, by stack.
    pub loaded: BTreeMap<String, Loaded>,
}

impl Bench<'_> {
    /// Removes the tables of a stack; what cannot be removed now is left to the undo journal.
    pub fn forget(&mut self, stack: &str) {
        if let Some(loaded) = self.loaded.remove(stack) {
            for place in loaded.wal.iter().chain([&loaded.place]) {
                let _ = std::fs::remove_dir_all(place);
            }
        }
    }
}
