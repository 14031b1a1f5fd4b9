//! A synchronous session: one thread with pread and pwrite per operation in flight.
//!
//! Each thread is a client of its own at queue depth 1.

use std::io::IoSlice;
use std::os::unix::fs::FileExt;

use engine::{Ended, EngineError, Session, Submit};
use rustix::io::{ReadWriteFlags, pwritev2};
use units::Nanos;
use workload::{BlockGroup, BlockOp, Issue, OpClass};

use crate::buffers::Buffers;
use crate::checked::Checked;

/// Threads that a group needs on this path.
pub(crate) fn threads_of(group: &BlockGroup) -> u32 {
    group.plan.queue_depth * group.clients
}

/// How long before an operation is due a thread stops sleeping. Half of a ring's: there are more threads.
const SPIN: Nanos = Nanos::from_micros(60);

/// One thread's operations.
pub(crate) struct Psync<'a> {
    pub data: Checked<'a>,
    pub buffers: Buffers,
    /// Polls shortly before an operation is due. Not with phase-aligned threads, where every polling thread
    /// takes CPU time from the others.
    pub spin: bool,
}

impl Session for Psync<'_> {
    type Op = BlockOp;

    #[inline]
    fn submit(&mut self, issue: &Issue<BlockOp>) -> Submit {
        Submit::Done(self.perform(issue.op))
    }

    #[inline]
    fn verify(&mut self, issue: &Issue<BlockOp>) -> Result<(), EngineError> {
        self.data.after(issue.op, self.buffers.get(0))
    }

    fn spin(&self) -> Nanos {
        if self.spin { SPIN } else { Nanos::ZERO }
    }
}

impl Psync<'_> {
    #[inline]
    fn perform(&mut self, op: BlockOp) -> Ended {
        let target = self.data.target;
        let (file, offset) = target.locate(op.offset);
        let file = target.file(file);
        let length = op.length as usize;
        let result = match op.class {
            OpClass::Read | OpClass::BackgroundRead => {
                file.read_at(&mut self.buffers.get(0)[..length], offset)
            }
            OpClass::Write | OpClass::BackgroundWrite => {
                let buffer = self.buffers.stamped(0, length);
                self.data.before(op, buffer);
                if op.dsync {
                    // On a device a write with forced unit access.
                    let parts = [IoSlice::new(buffer)];
                    pwritev2(file, &parts, offset, ReadWriteFlags::DSYNC).map_err(Into::into)
                } else {
                    file.write_at(buffer, offset)
                }
            }
            // Block workloads have no other classes.
            _ => file.sync_data().map(|()| length),
        };
        match result {
            Ok(bytes) if bytes == length => Ok(op.length),
            // A short transfer inside the span: the target has shrunk.
            Ok(_) => Err(EngineError::Os(libc::EIO)),
            Err(error) => Err(EngineError::Os(error.raw_os_error().unwrap_or(libc::EIO))),
        }
    }
}
