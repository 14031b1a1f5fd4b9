//! The client loop's interface to an engine: operations submitted, completions collected.
//!
//! Like fio's `queue` and `getevents`: an engine completes at once, later, or is full, so synchronous and
//! asynchronous engines share one loop.

use stats::Recorded;
use units::Nanos;
use workload::{Issue, OpId};

use crate::EngineError;

/// How an operation ended: the bytes that it moved, or why it failed.
pub type Ended = Result<u32, EngineError>;

/// Result of submitting an operation.
#[derive(Debug)]
pub enum Submit {
    /// It has completed.
    Done(Ended),
    /// It is in flight; [`Session::poll`] reports its end.
    Queued,
    /// Not submitted: submit the same operation again after a completion.
    Full,
}

/// A completed operation.
#[derive(Debug)]
pub struct Completion {
    /// Its ID.
    pub id: OpId,
    /// How it ended.
    pub ended: Ended,
}

/// How long [`Session::poll`] may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// Time until the next operation is due; `None` if nothing can be submitted before a completion.
    pub due_in: Option<Nanos>,
    /// Interval length of the trial: return after it if possible.
    pub interval: Nanos,
}

/// One client thread's access to an engine.
pub trait Session {
    /// Its operations.
    type Op: Recorded;

    /// Maximum operations in flight; a synchronous session never has any.
    fn capacity(&self) -> usize {
        0
    }

    /// Starts an operation. `issue.id` is unique among those in flight and below [`Session::capacity`].
    fn submit(&mut self, issue: &Issue<Self::Op>) -> Submit;

    /// Appends completed operations to `done`, in any order; may return without one.
    ///
    /// # Errors
    /// If nothing can be collected any more; the trial ends.
    fn poll(&mut self, wait: Wait, done: &mut Vec<Completion>) -> Result<(), EngineError> {
        let _ = (wait, done);
        Ok(())
    }

    /// Verifies the data of a successful operation, after its time was taken.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Corruption`] if the data differs.
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

    /// Whether operations in flight may be abandoned at the end of the trial; otherwise they are awaited.
    fn abandons(&self) -> bool {
        false
    }
}
