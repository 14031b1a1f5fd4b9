//! What trials on this host leave for each other.

use std::collections::BTreeMap;

use block::OwnCost;

use crate::devices::Targets;
use crate::servers::Loaded;

/// Targets and tables that are made for one trial and used by the next.
pub(crate) struct Bench<'a> {
    pub targets: Targets<'a>,
    /// Our own cost per operation, measured before the first block trial.
    pub own_cost: Option<OwnCost>,
    /// Tables that SQL trials left, by stack.
    pub loaded: BTreeMap<String, Loaded>,
}

impl Bench<'_> {
    /// Removes the tables of a stack; what cannot be removed now is left to the undo journal.
    pub fn forget(&mut self, stack: &str) {
        if let Some(loaded) = self.loaded.remove(stack) {
            let _ = std::fs::remove_dir_all(&loaded.place);
        }
    }
}
