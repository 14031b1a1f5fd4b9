//! Wake-up latency of a sleeping thread on this host: after an interrupt, and by another thread on the same
//! or another CPU.
//!
//! Invariants: needs no privileges; runs on its own threads, so the caller's affinity is unchanged.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::thread::{CpuSet, clock_nanosleep_absolute, futex, sched_setaffinity};
use rustix::time::{ClockId, Timespec, clock_gettime};
use units::Nanos;

use crate::scheduling::allowed;
use crate::thread_usage;

/// Number of sleeps whose overshoot is read.
const SLEEPS: usize = 1_000;
/// Length of a sleep: long enough for an idle CPU to enter a sleep state.
const SLEEP: Nanos = Nanos::from_micros(60);
/// Batches of round trips of two threads; the fastest is the one that other processes disturbed least.
const BATCHES: usize = 20;
/// Round trips of a batch.
const ROUNDS: u32 = 500;

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

/// How one thread wakes another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waking {
    /// Through an event counter.
    Event,
    /// Through a futex, as locks and condition variables do.
    Futex,
    /// Through a Unix socket.
    Socket,
}

/// Means over a batch of round trips of two threads that only wake each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop {
    /// From the start of one waking call to that of the next, by the woken thread.
    pub time: Nanos,
    /// CPU time of both threads in it.
    pub cpu: Nanos,
    /// Duration of the waking call.
    pub call: Nanos,
}

/// Two threads on the same CPU, and on two if this process may use two, wake each other.
///
/// # Errors
/// If threads or events cannot be created.
pub fn hops(waking: Waking) -> io::Result<(Hop, Option<Hop>)> {
    let cpus = allowed();
    let first = cpus.first().copied().unwrap_or(0);
    let same = fastest(waking, [first, first])?;
    let other = cpus.get(1).map(|other| fastest(waking, [first, *other])).transpose()?;
    Ok((same, other))
}

/// Two threads wherever they are placed wake each other this many times.
///
/// # Errors
/// If threads or events cannot be created.
pub fn hop_anywhere(waking: Waking, rounds: u32) -> io::Result<Nanos> {
    let line = || Line::new(waking);
    trips(&[line()?, line()?], rounds, &|_| ()).map(|(hop, _)| hop.time)
}

/// Median duration of a waking call that wakes nobody.
///
/// # Errors
/// If it cannot be made.
pub fn unheard_call(waking: Waking) -> io::Result<Nanos> {
    let line = Line::new(waking)?;
    let mut calls = Vec::new();
    for _ in 0..ROUNDS {
        let began = Instant::now();
        line.ring();
        calls.push(began.elapsed());
        line.hear();
    }
    calls.sort_unstable();
    Ok(Nanos::from(calls[calls.len() / 2]))
}

fn stay_on(cpu: usize) {
    let mut only = CpuSet::new();
    only.set(cpu);
    let _ = sched_setaffinity(None, &only);
}

/// A one-way means of waking.
enum Line {
    Event(OwnedFd),
    Futex(AtomicU32),
    Socket(UnixStream, UnixStream),
}

impl Line {
    fn new(waking: Waking) -> io::Result<Self> {
        Ok(match waking {
            Waking::Event => {
                Self::Event(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE)?)
            }
            Waking::Futex => Self::Futex(AtomicU32::new(0)),
            Waking::Socket => {
                let (from, to) = UnixStream::pair()?;
                Self::Socket(from, to)
            }
        })
    }

    fn ring(&self) {
        match self {
            Self::Event(event) => _ = rustix::io::write(event, &1u64.to_ne_bytes()),
            Self::Futex(word) => {
                word.fetch_add(1, Ordering::SeqCst);
                let _ = futex::wake(word, futex::Flags::PRIVATE, 1);
            }
            Self::Socket(from, _) => _ = rustix::io::write(from, &[1; MESSAGE]),
        }
    }

    fn hear(&self) {
        match self {
            Self::Event(event) => _ = rustix::io::read(event, &mut [0; 8]),
            Self::Futex(word) => {
                while word.load(Ordering::SeqCst) == 0 {
                    let _ = futex::wait(word, futex::Flags::PRIVATE, 0, None);
                }
                word.fetch_sub(1, Ordering::SeqCst);
            }
            Self::Socket(_, to) => _ = rustix::io::read(to, &mut [0; MESSAGE]),
        }
    }
}

/// Bytes of a message: about those of a short query.
const MESSAGE: usize = 64;

/// The fastest batch of two threads on these CPUs.
fn fastest(waking: Waking, cpus: [usize; 2]) -> io::Result<Hop> {
    let lines = [Line::new(waking)?, Line::new(waking)?];
    let batch = || trips(&lines, ROUNDS, &|thread| stay_on(cpus[thread]));
    let batches = (0..BATCHES).map(|_| batch()).collect::<io::Result<Vec<(Hop, f64)>>>()?;
    // On two CPUs a thread may find its message before it sleeps. On one CPU it often does: the woken thread
    // runs first.
    let counts = |sleeps: f64| cpus[0] == cpus[1] || sleeps > ASLEEP;
    let asleep = batches.iter().filter(|(_, sleeps)| counts(*sleeps)).map(|(hop, _)| *hop);
    let found = asleep.min_by_key(|hop| hop.time);
    // On a busy host there may be none.
    let most = || batches.iter().max_by(|a, b| a.1.total_cmp(&b.1)).map(|(hop, _)| *hop);
    found.or_else(most).ok_or_else(|| io::Error::other("no round trips"))
}

/// Fewest sleeps per waking of a batch on two CPUs that counts.
const ASLEEP: f64 = 0.9;

/// Round trips of two threads, each of which calls `place` with its number first, and how often they slept
/// per waking.
fn trips(
    [ask, answer]: &[Line; 2],
    rounds: u32,
    place: &(dyn Fn(usize) + Sync),
) -> io::Result<(Hop, f64)> {
    std::thread::scope(|scope| {
        let answering = std::thread::Builder::new().spawn_scoped(scope, || {
            place(0);
            let before = thread_usage();
            for _ in 0..rounds {
                ask.hear();
                answer.ring();
            }
            thread_usage().since(&before)
        })?;
        let asking = std::thread::Builder::new().spawn_scoped(scope, || {
            place(1);
            let before = thread_usage();
            let (mut calls, began) = (Duration::ZERO, Instant::now());
            for _ in 0..rounds {
                let rings = Instant::now();
                ask.ring();
                calls += rings.elapsed();
                answer.hear();
            }
            (began.elapsed(), calls, thread_usage().since(&before))
        });
        let asking = asking.inspect_err(|_| {
            // The answering thread ends as well.
            (0..rounds).for_each(|_| ask.ring());
        })?;
        let (time, calls, asked) = asking.join().unwrap_or_default();
        let answered = answering.join().unwrap_or_default();
        let hop = Hop {
            time: Nanos::from(time / (2 * rounds)),
            cpu: Nanos((asked.cpu() + answered.cpu()).get() / u64::from(2 * rounds)),
            call: Nanos::from(calls / rounds),
        };
        let sleeps = asked.switches_voluntary + answered.switches_voluntary;
        Ok((hop, sleeps as f64 / f64::from(2 * rounds)))
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
        for waking in [Waking::Event, Waking::Futex, Waking::Socket] {
            let (same, other) = hops(waking).unwrap();
            let alone = unheard_call(waking).unwrap();
            assert!(same.time > Nanos::ZERO && same.time < Nanos::from_millis(100), "{same:?}");
            assert!(same.cpu > Nanos::ZERO && alone > Nanos::ZERO, "{same:?}");
            assert_eq!(other.is_some(), before.len() > 1);
        }
        assert_eq!(allowed(), before);
    }
}
