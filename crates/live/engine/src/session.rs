//! What the client loop needs of an engine: operations submitted, completions collected.
//!
//! As fio's `queue` and `getevents`: an engine answers at once, later, or is full, so that synchronous and
//! asynchronous engines share one loop.

use stats::Recorded;
use units::Nanos;
use workload::{Issue, OpId};

use crate::EngineError;

/// How an operation ended: the bytes that it moved, or why it failed.
pub type Ended = Result<u32, EngineError>;

/// What became of a submitted operation.
#[derive(Debug)]
pub enum Submit {
    /// It has ended.
    Done(Ended),
    /// It is in flight; [`Session::poll`] reports its end.
    Queued,
    /// Nothing was submitted: submit the same operation again after a completion.
    Full,
}

/// An operation in flight that has ended.
#[derive(Debug)]
pub struct Completion {
    /// Which one.
    pub id: OpId,
    /// How it ended.
    pub ended: Ended,
}

/// How long [`Session::poll`] may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// Time until the next operation is due; none: only a completion leads on.
    pub due_in: Option<Nanos>,
    /// Length of an interval of the trial: whoever can wake up earlier returns after it.
    pub interval: Nanos,
}

/// One client thread's access to an engine.
pub trait Session {
    /// What it can do.
    type Op: Recorded;

    /// Operations that can be in flight; those of a synchronous session never are.
    fn capacity(&self) -> usize {
        0
    }

    /// Starts an operation. `issue.id` is unique among those in flight and below [`Session::capacity`].
    fn submit(&mut self, issue: &Issue<Self::Op>) -> Submit;

    /// Appends operations that have ended to `done`, in any order; may return without one.
    ///
    /// # Errors
    /// When nothing can be collected any more; the trial ends.
    fn poll(&mut self, wait: Wait, done: &mut Vec<Completion>) -> Result<(), EngineError> {
        let _ = (wait, done);
        Ok(())
    }

    /// Verifies the data of an operation that ended well, after its time was taken.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Corruption`].
    #[inline]
    fn verify(&mut self, issue: &Issue<Self::Op>) -> Result<(), EngineError> {
        let _ = issue;
        Ok(())
    }

    /// How long before an operation is due the thread stops sleeping and polls the clock: a sleep overshoots
    /// by up to 0.1 ms.
    fn spin(&self) -> Nanos {
        Nanos::from_micros(120)
    }

    /// Whether operations in flight may be left behind when the trial is over; else their ends are awaited.
    fn abandons(&self) -> bool {
        false
    }
}
