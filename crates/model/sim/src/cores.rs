//! Threads on the cores of a host, one event for each piece of work.
//!
//! Invariants: work of a thread follows its earlier work; a core does one thing at a time, slower next to a
//! busy sibling.

use units::Nanos;

/// Work takes so much longer, in percent, while the other hardware thread of the core is busy: two threads
/// give 1.3 times the throughput of one (assumed; the usual yield of simultaneous multithreading).
pub(crate) const SIBLING_BUSY_PERCENT: u64 = 154;

/// When each thread and each hardware thread is next free.
#[derive(Debug)]
pub(crate) struct Cores {
    /// `[thread]`.
    thread_free: Vec<Nanos>,
    /// `[hardware thread]`, siblings side by side; empty where each thread has a core of its own.
    core_free: Vec<Nanos>,
    /// Whether a core is of two hardware threads.
    siblings: bool,
    /// Hardware thread that is looked at first.
    next_core: usize,
}

impl Cores {
    /// `threads` threads on this many cores, of two hardware threads each if they have siblings; 0 cores:
    /// each thread has its own.
    pub fn new(threads: usize, (cores, siblings): (u32, bool)) -> Self {
        // Threads that each find a core idle need no count of them.
        let hardware = match cores as usize {
            cores if cores < threads => cores * if siblings { 2 } else { 1 },
            _ => 0,
        };
        Self {
            thread_free: vec![Nanos::ZERO; threads],
            core_free: vec![Nanos::ZERO; hardware],
            siblings,
            next_core: 0,
        }
    }

    /// Whether threads have to share.
    #[inline]
    pub fn shared(&self) -> bool {
        !self.core_free.is_empty()
    }

    /// When a thread is next free.
    #[inline]
    pub fn free_at(&self, thread: u32) -> Nanos {
        self.thread_free[thread as usize]
    }

    /// A thread computes for `takes`, not before `from`; gives when it is done. It is `now`.
    #[inline]
    pub fn compute(&mut self, thread: u32, from: Nanos, takes: Nanos, now: Nanos) -> Nanos {
        let ready = self.thread_free[thread as usize].max(from);
        let done = if self.shared() { self.on_core(ready, takes, now) } else { ready + takes };
        self.thread_free[thread as usize] = done;
        done
    }

    /// Work of `takes` on a core that is idle, if there is one, else on the hardware thread that is free
    /// first; slower next to a busy sibling.
    fn on_core(&mut self, ready: Nanos, takes: Nanos, now: Nanos) -> Nanos {
        let free = &self.core_free;
        let beside = |place: usize| if self.siblings { free[place ^ 1] } else { Nanos::ZERO };
        let idle = |place: &usize| free[*place] <= ready && beside(*place) <= ready;
        // Cores in turn: the one after the last is the likeliest to be idle.
        let (before, after) = (0..self.next_core, self.next_core..free.len());
        let place = after
            .chain(before)
            .find(idle)
            .unwrap_or_else(|| (0..free.len()).min_by_key(|place| free[*place]).unwrap_or(0));
        let begins = free[place].max(ready);
        // What the sibling does next is not known yet: one that is busy now is taken to continue.
        let percent = if beside(place) > now { SIBLING_BUSY_PERCENT } else { 100 };
        self.next_core = (place + if self.siblings { 2 } else { 1 }) % free.len();
        self.core_free[place] = begins + Nanos(takes.get() * percent / 100);
        self.core_free[place]
    }
}
