//! Threads on the cores of a host, one event per piece of work.
//!
//! Invariants: work of a thread follows its earlier work; a core does one thing at a time, slower next to a
//! busy sibling.

use units::Nanos;

/// Slowdown in percent while the other hardware thread of the core is busy: two hardware threads give 1.3
/// times the throughput of one (assumed; the usual SMT yield).
pub(crate) const SIBLING_BUSY_PERCENT: u64 = 154;

/// When each thread and each hardware thread is next free.
#[derive(Debug)]
pub(crate) struct Cores {
    /// `[thread]`: time until which it is busy.
    thread_free: Vec<Nanos>,
    /// `[hardware thread]`, siblings adjacent; empty where each thread has its own core.
    core_free: Vec<Nanos>,
    /// Whether each core has two hardware threads.
    siblings: bool,
    /// Hardware thread to try first.
    next_core: usize,
}

impl Cores {
    /// `threads` threads on this many cores, with two hardware threads each if `siblings`; 0 cores: one for
    /// each thread.
    pub fn new(threads: usize, (cores, siblings): (u32, bool)) -> Self {
        // Counting is unnecessary if each thread always finds an idle core.
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

    /// Whether there are more threads than cores.
    #[inline]
    pub fn shared(&self) -> bool {
        !self.core_free.is_empty()
    }

    #[inline]
    pub fn free_at(&self, thread: u32) -> Nanos {
        self.thread_free[thread as usize]
    }

    /// Runs a thread for `takes`, from `from` at the earliest; returns when it is done. The current time is
    /// `now`.
    #[inline]
    pub fn compute(&mut self, thread: u32, from: Nanos, takes: Nanos, now: Nanos) -> Nanos {
        let ready = self.thread_free[thread as usize].max(from);
        let done = if self.shared() { self.on_core(ready, takes, now) } else { ready + takes };
        self.thread_free[thread as usize] = done;
        done
    }

    /// Runs work of `takes` on an idle core if there is one, otherwise on the hardware thread that is free
    /// first; slower next to a busy sibling.
    fn on_core(&mut self, ready: Nanos, takes: Nanos, now: Nanos) -> Nanos {
        let free = &self.core_free;
        let beside = |place: usize| if self.siblings { free[place ^ 1] } else { Nanos::ZERO };
        let idle = |place: &usize| free[*place] <= ready && beside(*place) <= ready;
        // Cores in turn: the one after the last used is the likeliest to be idle.
        let (before, after) = (0..self.next_core, self.next_core..free.len());
        let place = after
            .chain(before)
            .find(idle)
            .unwrap_or_else(|| (0..free.len()).min_by_key(|place| free[*place]).unwrap_or(0));
        let begins = free[place].max(ready);
        // The sibling's next work is not known yet: if it is busy now, it is assumed to stay busy.
        let percent = if beside(place) > now { SIBLING_BUSY_PERCENT } else { 100 };
        self.next_core = (place + if self.siblings { 2 } else { 1 }) % free.len();
        self.core_free[place] = begins + Nanos(takes.get() * percent / 100);
        self.core_free[place]
    }
}
