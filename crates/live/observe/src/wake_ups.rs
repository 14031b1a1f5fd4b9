//! Wake-up latency of a sleeping thread on this host: after an interrupt, and by another thread on the same
//! or another CPU.
//!
//! Invariants: needs no privileges; runs on its own threads, so the caller's affinity is unchanged.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::{CpuSet, clock_nanosleep_absolute, sched_setaffinity};
use rustix::time::{ClockId, Timespec, clock_gettime};
use units::Nanos;

use crate::scheduling::allowed;
use crate::thread_usage;

/// Number of sleeps whose overshoot is read.
const SLEEPS: usize = 1_000;
/// Length of a sleep: long enough for an idle CPU to enter a sleep state.
const SLEEP: Nanos = Nanos::from_micros(60);
/// Round trips of two threads.
const ROUNDS: u32 = 10_000;

/// Sorted overshoots of sleeps (interrupt, leaving idle, getting a CPU), and the CPU time of one sleep. Takes
/// about 0.1 s.
///
/// # Errors
/// If no thread can be started.
pub fn interrupt_wake_ups() -> io::Result<(Vec<Nanos>, Nanos)> {
    let thread = std::thread::Builder::new().spawn(|| {
        // SAFETY: changes only this thread's timer slack; if refused, sleeps are as inaccurate as usual.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        let before = thread_usage();
        let mut found: Vec<Nanos> = (0..SLEEPS).map(|_| overshoot()).collect();
        let cpu = thread_usage().since(&before).cpu();
        found.sort_unstable();
        (found, Nanos(cpu.get() / SLEEPS as u64))
    })?;
    Ok(thread.join().unwrap_or_default())
}

/// How much later than [`SLEEP`] this thread ran again.
fn overshoot() -> Nanos {
    let now = || Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default();
    // Absolute: the time until the timer is armed does not count.
    let due = now() + SLEEP.into();
    if let Ok(until) = Timespec::try_from(due) {
        let _ = clock_nanosleep_absolute(ClockId::Monotonic, &until);
    }
    Nanos::from(now().saturating_sub(due))
}

/// Mean time from waking a thread to its running, half of a round trip: on the same CPU, and on another one
/// if this process may use two.
///
/// # Errors
/// If threads or events cannot be created.
pub fn handed_wake_ups() -> io::Result<(Nanos, Option<Nanos>)> {
    let cpus = allowed();
    let first = cpus.first().copied().unwrap_or(0);
    let same = round_trip(first, first)?;
    let other = cpus.get(1).map(|other| round_trip(first, *other)).transpose()?;
    Ok((half(same), other.map(half)))
}

fn half(round: Duration) -> Nanos {
    Nanos::from(round / 2)
}

fn stay_on(cpu: usize) {
    let mut only = CpuSet::new();
    only.set(cpu);
    let _ = sched_setaffinity(None, &only);
}

fn event() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE)?)
}

fn ring(event: &OwnedFd) {
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

fn hear(event: &OwnedFd) {
    let _ = rustix::io::read(event, &mut [0; 8]);
}

/// Time of one of many round trips of two threads on two processors.
fn round_trip(here: usize, there: usize) -> io::Result<Duration> {
    let (ask, answer) = (event()?, event()?);
    std::thread::scope(|scope| {
        std::thread::Builder::new().spawn_scoped(scope, || {
            stay_on(there);
            for _ in 0..ROUNDS {
                hear(&ask);
                ring(&answer);
            }
        })?;
        let asking = std::thread::Builder::new().spawn_scoped(scope, || {
            stay_on(here);
            let began = Instant::now();
            for _ in 0..ROUNDS {
                ring(&ask);
                hear(&answer);
            }
            began.elapsed() / ROUNDS
        });
        match asking {
            Ok(asking) => Ok(asking.join().unwrap_or_default()),
            Err(error) => {
                // The listening thread ends as well.
                (0..ROUNDS).for_each(|_| ring(&ask));
                Err(error)
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wake-up time of zero would make every predicted latency too short.
    #[test]
    fn wake_ups_take_time_and_leave_the_affinity_alone() {
        let before = allowed();
        let (sleeps, cpu) = interrupt_wake_ups().unwrap();
        assert!(cpu > Nanos::ZERO && cpu < SLEEP * 10, "{cpu}");
        assert_eq!(sleeps.len(), SLEEPS);
        assert!(sleeps.is_sorted() && sleeps[SLEEPS / 2] > Nanos::ZERO);
        let (same, other) = handed_wake_ups().unwrap();
        assert!(same > Nanos::ZERO && same < Nanos::from_millis(100), "{same}");
        assert_eq!(other.is_some(), before.len() > 1);
        assert_eq!(allowed(), before);
    }
}
