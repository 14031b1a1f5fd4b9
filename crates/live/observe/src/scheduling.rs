//! CPU placement and priority of this thread, and how long it was ready but not running.
//!
//! Invariant: only the calling thread is changed.

use std::fs::File;
use std::os::unix::fs::FileExt;

use units::Nanos;

/// Runs this thread only on otherwise idle CPUs (`SCHED_IDLE`): a client that it wakes on its CPU stays there
/// and continues at once, instead of moving to one that must be woken first. No effect if refused.
pub fn give_way() {
    set_policy(libc::SCHED_IDLE);
}

/// Gives this thread priority, as far as its user may: the normal policy, a low nice value, and slices short
/// enough to preempt (Linux 6.12). For a thread that others wait for. If refused, only the policy changes.
/// Real-time priority would be sooner, but starve the clients.
pub fn go_first() {
    set_policy(libc::SCHED_OTHER);
    for nice in [FIRST, 0] {
        // SAFETY: plain data; zeros mean the usual policy (sched_setattr(2)).
        let mut how: libc::sched_attr = unsafe { std::mem::zeroed() };
        (how.size, how.sched_nice) = (size_of_val(&how) as u32, nice);
        how.sched_runtime = SHORTEST_TURN.get();
        // SAFETY: the struct is valid during the call and contains its size; only this thread is affected.
        if unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const how, 0) } == 0 {
            return;
        }
    }
}

/// Nice value with priority.
const FIRST: libc::c_int = -15;
/// The kernel's shortest slice.
const SHORTEST_TURN: Nanos = Nanos::from_micros(100);

fn set_policy(policy: libc::c_int) {
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: the struct is valid during the call; only this thread is affected.
    unsafe { libc::sched_setscheduler(0, policy, &raw const none) };
}

/// How a thread spent its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThreadTimes {
    /// Time running.
    pub ran: Nanos,
    /// Time ready but not running.
    pub waited: Nanos,
    /// Number of times it got a CPU.
    pub turns: u64,
    /// Time stopped, by a signal or with the machine, if the owner counts that.
    pub away: Nanos,
}

impl ThreadTimes {
    /// The sum of two threads.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            ran: self.ran + other.ran,
            waited: self.waited + other.waited,
            turns: self.turns + other.turns,
            away: self.away + other.away,
        }
    }

    /// The difference to an earlier reading.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            ran: self.ran.since(earlier.ran),
            waited: self.waited.since(earlier.waited),
            turns: self.turns.saturating_sub(earlier.turns),
            away: self.away.since(earlier.away),
        }
    }

    /// Time waiting for a CPU beyond the usual wait per turn.
    #[must_use]
    pub const fn starved(&self, usual: Nanos) -> Nanos {
        self.waited.since(Nanos(usual.get().saturating_mul(self.turns)))
    }
}

/// The times of one thread, readable by any (`/proc/PID/task/TID/schedstat`, proc(5)).
#[derive(Debug)]
pub struct ThreadClock(Option<File>);

impl ThreadClock {
    /// Reads the calling thread.
    #[must_use]
    pub fn of_this_thread() -> Self {
        Self(File::open("/proc/thread-self/schedstat").ok())
    }

    /// Times since the thread began; `None` once it has ended, or if the kernel has none. Allocates nothing.
    #[must_use]
    pub fn times(&self) -> Option<ThreadTimes> {
        let mut text = [0u8; 96];
        let read = self.0.as_ref()?.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(&text[..read]).ok()?;
        let mut words = text.split_ascii_whitespace().map_while(|word| word.parse().ok());
        let mut next = || words.next();
        let (ran, waited, turns) = (Nanos(next()?), Nanos(next()?), next()?);
        Some(ThreadTimes { ran, waited, turns, away: Nanos::ZERO })
    }
}

/// CPUs that this thread may use.
pub(crate) fn allowed() -> Vec<usize> {
    // SAFETY: a cpu_set_t is plain data; all zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is valid and writable, its size is given.
    let read = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
    let places = 0..libc::CPU_SETSIZE as usize;
    // SAFETY: the indices are within the set.
    places.filter(|cpu| read == 0 && unsafe { libc::CPU_ISSET(*cpu, &set) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A serving thread that is kept from running must detect it, because its clients wait.
    #[test]
    fn time_in_which_others_ran_is_counted() {
        let cpu = allowed()[0];
        let stay = move || {
            let mut only = rustix::thread::CpuSet::new();
            only.set(cpu);
            rustix::thread::sched_setaffinity(None, &only).expect("it was allowed");
        };
        let stop = std::sync::atomic::AtomicBool::new(false);
        let stopped = || stop.load(std::sync::atomic::Ordering::Relaxed);
        let waited = std::thread::scope(|scope| {
            scope.spawn(|| {
                stay();
                while !stopped() {
                    std::hint::spin_loop();
                }
            });
            let waiting = scope.spawn(|| {
                stay();
                let clock = ThreadClock::of_this_thread();
                let waited = || clock.times().expect("the kernel counts").waited;
                let (before, began) = (waited(), std::time::Instant::now());
                // Both threads compete for one CPU until some time was lost.
                while waited().since(before) < Nanos::from_millis(5) {
                    assert!(began.elapsed().as_secs() < 60, "no waiting is counted");
                    std::hint::spin_loop();
                }
                stop.store(true, std::sync::atomic::Ordering::Relaxed);
                waited().since(before)
            });
            waiting.join().expect("it ended")
        });
        assert!(waited >= Nanos::from_millis(5));
    }
}
