//! Times of threads, and counters of the scheduler.
//!
//! Invariant: a thread's times sum to the time since it entered.

use units::Nanos;

/// The kinds of waiting that are counted separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wait {
    /// For a lock or a condition.
    Lock,
    /// For a message.
    Network,
    /// For a device to read.
    Read,
    /// For a device to write.
    Write,
    /// For a device to flush.
    Flush,
    /// For a fixed time.
    Sleep,
    /// A thread that exchanges messages waited for a lock or a condition, and one that does not woke it:
    /// a server's session waited for a background thread.
    Background,
}

impl Wait {
    /// Every kind.
    pub const ALL: [Self; 7] = [
        Self::Lock,
        Self::Network,
        Self::Read,
        Self::Write,
        Self::Flush,
        Self::Sleep,
        Self::Background,
    ];
}

/// A wait that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wake {
    /// Its kind.
    pub wait: Wait,
    /// How long the core on which the thread continues had been idle; zero if it was busy.
    pub idle: Nanos,
}

/// A thread's time by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// CPU time, including that of switching and waking.
    pub cpu: Nanos,
    /// Ready, without a core.
    pub run_queue: Nanos,
    /// From the event that ended a wait until its core had left idle.
    pub wake_up: Nanos,
    /// Waiting, by [`Wait`].
    pub waits: [Nanos; Wait::ALL.len()],
}

impl Times {
    /// Adds the times of another thread.
    pub fn add(&mut self, other: &Self) {
        self.cpu += other.cpu;
        self.run_queue += other.run_queue;
        self.wake_up += other.wake_up;
        self.waits.iter_mut().zip(other.waits).for_each(|(own, other)| *own += other);
    }

    /// Whether the thread exchanges messages.
    pub(super) fn serves(&self) -> bool {
        self.waits[Wait::Network as usize] > Nanos::ZERO
    }

    /// The sum.
    #[must_use]
    pub fn total(&self) -> Nanos {
        let waits = self.waits.iter().fold(Nanos::ZERO, |sum, wait| sum + *wait);
        self.cpu + self.run_queue + self.wake_up + waits
    }
}

/// Counters of the scheduler, to compare with a traced real run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Waits of threads: voluntary context switches.
    pub waits: u64,
    /// Wake-ups of threads whose core had been idle.
    pub idle_wakes: u64,
    /// Wake-ups onto a busy core.
    pub busy_wakes: u64,
    /// Threads that started on a core on which another had run before.
    pub switches: u64,
    /// Threads that lost their core before they waited.
    pub preemptions: u64,
    /// Threads that were moved to an idle or less busy core.
    pub migrations: u64,
}
