//! CPUs shared fairly by the running threads.
//!
//! Processor sharing: each of `n` threads advances at the same speed, `capacity(n) / n`. Service is kept as
//! one number that all threads share, so a thread's end is known when it begins, and each begin or end costs
//! O(log n).
//!
//! Invariant: work is conserved to a thousandth of a nanosecond per event. There are no time slices,
//! priorities or affinity.

use std::collections::VecDeque;

use device::EventQueue;
use units::Nanos;

use super::ThreadId;

/// Units of service per nanosecond, and of capacity per CPU.
const PART: u64 = 1024;
/// Capacity, in parts of a CPU, that a second hardware thread adds to a core: together 1.3 times the
/// throughput of one (assumed; the usual SMT yield).
const SIBLING: u64 = 3 * PART / 10;

/// The processors of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Processors {
    /// Cores; 0: one for each thread.
    pub cores: u32,
    /// Whether each core has two hardware threads.
    pub siblings: bool,
}

impl Processors {
    /// Capacity that `threads` threads get together, in parts of a CPU.
    fn capacity(self, threads: u64) -> u64 {
        let cores = u64::from(self.cores);
        if cores == 0 || threads <= cores {
            return threads * PART;
        }
        let doubled = (threads - cores).min(if self.siblings { cores } else { 0 });
        cores * PART + doubled * SIBLING
    }
}

/// Running threads, by the service at which they are done.
#[derive(Debug)]
pub(crate) struct Sharing {
    processors: Processors,
    /// At service time (in parts of a nanosecond), not at an instant.
    ends: EventQueue<ThreadId>,
    /// Service that each thread has received since the start, in parts, at `at`.
    service: u64,
    at: Nanos,
}

impl Sharing {
    pub fn new(processors: Processors) -> Self {
        Self { processors, ends: EventQueue::default(), service: 0, at: Nanos::ZERO }
    }

    /// Advances service to `now`.
    #[inline]
    fn reach(&mut self, now: Nanos) {
        let (passed, threads) = (now.since(self.at).get(), self.ends.len() as u64);
        if passed > 0 && threads > 0 {
            let capacity = self.processors.capacity(threads);
            let gained = u128::from(passed) * u128::from(capacity) / u128::from(threads);
            self.service += gained as u64;
        }
        self.at = now;
    }

    /// `thread` needs `time` from `now` on.
    #[inline]
    pub fn begin(&mut self, now: Nanos, thread: ThreadId, time: Nanos) {
        self.reach(now);
        self.ends.push(Nanos(self.service + time.get() * PART), thread);
    }

    /// When the first thread is done, if none begins before.
    #[inline]
    pub fn next_event(&self) -> Option<Nanos> {
        let left = self.ends.next_time()?.get() - self.service;
        let threads = self.ends.len() as u64;
        let capacity = self.processors.capacity(threads);
        let time = (u128::from(left) * u128::from(threads)).div_ceil(u128::from(capacity));
        Some(self.at + Nanos(time as u64))
    }

    /// Adds to `ready` the threads that are done at `now`.
    #[inline]
    pub fn advance(&mut self, now: Nanos, ready: &mut VecDeque<ThreadId>) {
        self.reach(now);
        while let Some((_, thread)) = self.ends.pop_due(Nanos(self.service)) {
            ready.push_back(thread);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When each of `works` ends that begin together.
    fn ends(processors: Processors, works: &[u64]) -> Vec<u64> {
        let mut sharing = Sharing::new(processors);
        for (number, work) in (0..).zip(works) {
            sharing.begin(Nanos::ZERO, ThreadId(number), Nanos(*work));
        }
        let (mut out, mut ready) = (vec![0; works.len()], VecDeque::new());
        while let Some(at) = sharing.next_event() {
            sharing.advance(at, &mut ready);
            ready.drain(..).for_each(|ThreadId(thread)| out[thread as usize] = at.get());
        }
        out
    }

    /// Threads that share unfairly, or lose work, would make every engine's twin too slow or too fast.
    #[test]
    fn processors_are_shared_fairly() {
        let one = Processors { cores: 1, siblings: false };
        // 100 each for 100 + 200: the first has its 100 after 200, the other the rest alone.
        assert_eq!(ends(one, &[100, 200]), [200, 300]);
        let two = Processors { cores: 2, siblings: false };
        assert_eq!(ends(two, &[100, 200]), [100, 200]);
        assert_eq!(ends(two, &[100, 100, 100, 100]), [200; 4]);
        let doubled = Processors { cores: 1, siblings: true };
        // Two on one core go at 0.65 each.
        assert_eq!(ends(doubled, &[65_000, 65_000]), [100_016; 2]);
        assert_eq!(ends(Processors { cores: 0, siblings: false }, &[7, 9, 7]), [7, 9, 7]);
    }
}
