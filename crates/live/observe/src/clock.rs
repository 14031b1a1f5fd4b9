//! The clock of a trial, with one time origin.
//!
//! If the kernel's clock source is the time-stamp counter, it is read directly, with its rate measured once
//! per process against the kernel's clock; otherwise the kernel's clock is read, as in a simulation, where
//! the C library's clock is the virtual one. Invariants: it never goes back; deviation from the kernel's
//! clock is detected.

use std::sync::OnceLock;
use std::time::Duration;

use units::Nanos;

use crate::first_line;

/// Time since a start; copies share the origin. The counter takes half the time of the kernel's clock and
/// does not serialize: drivers read it once per operation.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    /// None: the kernel's clock is read.
    counter: Option<Counter>,
    /// Reading at the origin.
    origin: u64,
    /// The kernel's clock before and after the origin, ns.
    kernel: (u64, u64),
}

/// The CPU's counter and its rate.
#[derive(Debug, Clone, Copy)]
struct Counter {
    /// Nanoseconds of 2^32 ticks.
    scale: u64,
}

/// Time over which the counter's rate is measured: readings are accurate to 50 ns, so the rate to 3 ppm.
const CALIBRATED_OVER: Duration = Duration::from_millis(20);
/// Number of readings; the one with the shortest duration is used.
const READINGS: usize = 64;

impl Counter {
    /// Uses the least interrupted readings: with the last ones the rate was up to 0.5 % off on a busy host.
    fn calibrated() -> Self {
        let from = together();
        std::thread::sleep(CALIBRATED_OVER);
        let until = together();
        let nanos = u128::from(until.0.saturating_sub(from.0));
        let ticks = u128::from(until.1.saturating_sub(from.1)).max(1);
        let scale = u64::try_from((nanos << 32) / ticks).unwrap_or(u64::MAX);
        Self { scale }
    }

    #[inline]
    fn since(self, origin: u64) -> u64 {
        let ticks = ticks().saturating_sub(origin);
        ((u128::from(ticks) * u128::from(self.scale)) >> 32) as u64
    }
}

/// Nanoseconds per tick of the time-stamp counter; `None` if the kernel does not use it.
pub(crate) fn tick() -> Option<f64> {
    counter().map(|counter| counter.scale as f64 / 2f64.powi(32))
}

/// The kernel's clock, ns, and the counter at the same moment.
fn together() -> (u64, u64) {
    let reading = |_| {
        let before = monotonic();
        let ticks = ticks();
        let took = monotonic().saturating_sub(before);
        (took, (before + took / 2, ticks))
    };
    (0..READINGS).map(reading).min().map_or((0, 0), |(_, both)| both)
}

/// The kernel's name of the counter, if it is constant and synchronized.
const COUNTER: &str = "tsc";

/// The counter, without a fence.
#[cfg(target_arch = "x86_64")]
#[inline]
fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and it touches no memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Other architectures have no clock source of that name.
#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    monotonic()
}

/// Largest relative deviation of the clocks in a trial.
const APART: f64 = 0.001;

impl Clock {
    /// A clock that shows 0 now. The first of a process takes 20 ms: see [`Clock::prepare`].
    #[must_use]
    pub fn start() -> Self {
        let counter = counter();
        let before = monotonic();
        let origin = counter.map_or(before, |_| ticks());
        Self { counter, origin, kernel: (before, monotonic()) }
    }

    /// Measures the counter's rate, so that no client waits for it.
    pub fn prepare() {
        counter();
    }

    /// The current time.
    #[inline]
    #[must_use]
    pub fn now(self) -> Nanos {
        Nanos(match self.counter {
            Some(counter) => counter.since(self.origin),
            None => monotonic().saturating_sub(self.origin),
        })
    }

    /// Why its times are unreliable, if they deviate from the kernel's clock.
    #[must_use]
    pub fn trouble(self) -> Option<String> {
        let before = monotonic();
        let ours = self.now();
        let after = monotonic();
        // However long the thread was interrupted between two readings, the true time lies between these.
        let least = Nanos(before.saturating_sub(self.kernel.1));
        let most = Nanos(after.saturating_sub(self.kernel.0));
        apart(ours, (least, most)).then(|| {
            format!(
                "the time-stamp counter measured {ours} for the trial, the kernel's clock {most}; \
                 neither is reliable"
            )
        })
    }
}

/// Whether a time contradicts the other clock, which was between `least` and `most`.
fn apart(ours: Nanos, (least, most): (Nanos, Nanos)) -> bool {
    let ours = ours.get() as f64;
    ours < least.get() as f64 * (1.0 - APART) || ours > most.get() as f64 * (1.0 + APART)
}

/// The time-stamp counter, if it is the kernel's clock source.
fn counter() -> Option<Counter> {
    static KNOWN: OnceLock<Option<Counter>> = OnceLock::new();
    let relied_on = || {
        let source = first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
        source.is_some_and(|source| source == COUNTER) && !vtime::is_simulated()
    };
    *KNOWN.get_or_init(|| relied_on().then(Counter::calibrated))
}

/// The kernel's monotonic clock, nanoseconds.
#[inline]
pub fn monotonic() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a local variable, and a clock that every kernel has.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error of the clock would be an error of every latency and every rate.
    #[test]
    fn it_goes_as_the_kernels_clock_does() {
        let clock = Clock::start();
        let before = monotonic();
        let first = clock.now();
        let within = monotonic();
        while monotonic() - within < 50_000_000 {}
        let until = monotonic();
        let last = clock.now();
        let after = monotonic();
        // However long this thread was interrupted, it lies between the inner and the outer readings.
        let passed = last.since(first).get() as f64;
        let (least, most) = ((until - within) as f64, (after - before) as f64);
        assert!(least * 0.99999 <= passed && passed <= most * 1.00001, "{least} {passed} {most}");
        assert_eq!(clock.trouble(), None);
    }

    /// A counter that drifts, or was reset by a suspended machine, must be detected.
    #[test]
    fn clocks_that_come_apart_are_found() {
        let millis = Nanos::from_millis;
        let between = (millis(1000), millis(1005));
        for (ours, wrong) in [(0, true), (998, true), (1000, false), (1006, false), (1007, true)] {
            assert_eq!(apart(millis(ours), between), wrong, "{ours} ms");
        }
    }
}
