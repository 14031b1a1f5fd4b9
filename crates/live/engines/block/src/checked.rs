//! Data of a trial's operations: stamped before a write, checked after a read, if the study verifies.

use std::sync::OnceLock;

use engine::EngineError;
use workload::BlockOp;

use crate::verify::{self, Corruption};
use crate::{Ledger, Target};

/// The target and its expected contents.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Checked<'a> {
    pub target: &'a Target,
    pub ledger: Option<&'a Ledger>,
    /// The first wrong block: the evidence.
    pub corruption: &'a OnceLock<Box<Corruption>>,
}

impl Checked<'_> {
    /// Stamps a write.
    #[inline]
    pub fn before(&self, op: BlockOp, buffer: &mut [u8]) {
        if let Some(ledger) = self.ledger {
            verify::before(ledger, op, buffer);
        }
    }

    /// Notes a write, checks a read.
    #[inline]
    pub fn after(&self, op: BlockOp, buffer: &[u8]) -> Result<(), EngineError> {
        let Some(ledger) = self.ledger else { return Ok(()) };
        verify::after(ledger, self.target, op, buffer).map_err(|corruption| {
            let error = EngineError::corruption(op.offset, corruption.kind);
            let _ = self.corruption.set(corruption);
            error
        })
    }
}
