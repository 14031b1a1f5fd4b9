//! Extra CPU time of a thread whose core was idle while it waited for the drive.
//!
//! The simulation skips waits, so a thread continues with warm caches; a core that was idle has lost part of
//! them. How much that costs depends on the program. Therefore bursts of waits take real time, so that caches
//! become as cold as on a real drive, and the mean extra CPU time until the next wait is charged for the
//! other waits.
//!
//! Invariant: an extra time compares a thread with itself, and only waits on an otherwise idle core count.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use sim::scheduler::{Wait, Wake};
use units::Nanos;

/// Waits of a burst.
const BURST: u64 = 32;
/// Waits between two bursts.
const GAP: u64 = 1_000;
/// Waits between the first bursts.
const FIRST_GAP: u64 = 100;
/// Number of bursts with the shorter gap between them.
const FIRST_BURSTS: u64 = 8;
/// Waits after which the caches have adapted to a burst, or to its end; those before are not compared.
const ADAPTED: u64 = 12;
/// A core that is idle for less keeps its caches.
const IDLE_MIN: Nanos = Nanos(3_000);
/// The longest real time of a wait.
const REAL_MAX: Nanos = Nanos(100_000);
/// More CPU time than this between two waits counts as this: it varies too much, and the extra time matters
/// less.
const CPU_MAX: Nanos = Nanos(300_000);
/// The mean extra time is charged once it has this many samples: five bursts.
const CHARGED: f64 = 100.0;
/// Window of the mean extra time.
const WINDOW: f64 = 500.0;
/// Window of the mean after skipped waits: those next to a burst.
const SKIPPED_WINDOW: f64 = 50.0;
/// Number of skipped waits of a thread with which its others are compared.
const SKIPPED_MIN: f64 = 10.0;

/// A running mean.
#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    value: f64,
    count: f64,
}

impl Mean {
    fn add(&mut self, value: f64, window: f64) {
        self.count = (self.count + 1.0).min(window);
        self.value += (value - self.value) / self.count;
    }
}

/// The CPU time of one thread since its last wait, and its mean after skipped waits.
#[derive(Debug, Default)]
pub(crate) struct Interval {
    /// The process, what the thread waited for, and whether that took real time; `None` if it is not
    /// compared.
    compared: Option<(u32, Wait, bool)>,
    cpu: Nanos,
    skipped: [Mean; Wait::ALL.len()],
}

impl Interval {
    /// The thread has used the CPU.
    pub fn add(&mut self, cpu: Nanos) {
        self.cpu += cpu;
    }
}

/// How a thread continues after a wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Start {
    /// Real time for which its core has to stay idle first.
    pub idle: Nanos,
    /// CPU time that is charged.
    pub extra: Nanos,
}

/// Mean extra times by process and kind of wait.
#[derive(Debug)]
pub(crate) struct ColdCaches {
    extra: HashMap<(u32, Wait), Mean>,
    /// Bursts so far.
    bursts: u64,
    /// Whether one is in progress, the waits since it began or ended, and the waits left.
    in_burst: bool,
    passed: u64,
    left: u64,
}

impl ColdCaches {
    pub fn new() -> Self {
        Self { extra: HashMap::new(), bursts: 0, in_burst: false, passed: 0, left: FIRST_GAP }
    }

    /// A wait of a thread of `process` has ended.
    pub fn start(&mut self, process: u32, wake: Wake, interval: &mut Interval) -> Start {
        self.finish(interval);
        let by_drive = matches!(wake.wait, Wait::Read | Wait::Write | Wait::Flush);
        if !by_drive || wake.idle < IDLE_MIN {
            return Start::default();
        }
        if self.left == 0 {
            self.in_burst = !self.in_burst;
            self.bursts += u64::from(self.in_burst);
            let gap = if self.bursts < FIRST_BURSTS { FIRST_GAP } else { GAP };
            (self.passed, self.left) = (0, if self.in_burst { BURST } else { gap });
        }
        self.left -= 1;
        self.passed += 1;
        let compared = (process, wake.wait, self.in_burst);
        interval.compared = (self.passed > ADAPTED).then_some(compared);
        if self.in_burst {
            return Start { idle: wake.idle.min(REAL_MAX), extra: Nanos::ZERO };
        }
        let mean = self.extra.get(&(process, wake.wait)).filter(|mean| mean.count >= CHARGED);
        // Negative times become 0.
        let extra = Nanos(mean.map_or(0, |mean| mean.value as u64));
        Start { idle: Nanos::ZERO, extra }
    }

    /// Counts the CPU time since the last wait.
    fn finish(&mut self, interval: &mut Interval) {
        let cpu = std::mem::take(&mut interval.cpu).min(CPU_MAX).get() as f64;
        let Some((process, wait, in_burst)) = interval.compared.take() else { return };
        let skipped = &mut interval.skipped[wait as usize];
        if !in_burst {
            skipped.add(cpu, SKIPPED_WINDOW);
        } else if skipped.count >= SKIPPED_MIN {
            self.extra.entry((process, wait)).or_default().add(cpu - skipped.value, WINDOW);
        }
    }
}

/// Leaves the programs' CPU idle for this real time; no thread polls for its turn.
pub(crate) fn leave_idle(time: Nanos, has_own_cpu: bool) {
    let time = Duration::from_nanos(time.get());
    if !has_own_cpu {
        // It is also the coordinator's.
        return std::thread::sleep(time);
    }
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits of a thread of `process` that uses `skipped` and `burst` of CPU time in turn, after a skipped
    /// wait and after one of a burst; returns the starts.
    fn run(
        of: &mut ColdCaches,
        (process, wait): (u32, Wait),
        (skipped, burst): ([u64; 2], [u64; 2]),
    ) -> Vec<Start> {
        let mut interval = Interval::default();
        let step = |number: usize| {
            let start = of.start(process, Wake { wait, idle: Nanos(150_000) }, &mut interval);
            let cpu = if start.idle > Nanos::ZERO { burst } else { skipped }[number % 2];
            // In two stretches.
            interval.add(Nanos(cpu / 2));
            interval.add(Nanos(cpu - cpu / 2));
            start
        };
        (0..10_000).map(step).collect()
    }

    fn last(starts: &[Start]) -> Nanos {
        starts.iter().rev().find(|start| start.idle == Nanos::ZERO).unwrap().extra
    }

    /// Otherwise lookups that miss the page cache are a third faster than on a real drive.
    #[test]
    fn skipped_waits_are_charged_the_mean_extra_time() {
        let mut caches = ColdCaches::new();
        let starts = run(&mut caches, (1, Wait::Read), ([10_000, 30_000], [25_000, 45_000]));
        let burst: Vec<&Start> = starts.iter().filter(|start| start.idle > Nanos::ZERO).collect();
        let share = burst.len() as f64 / starts.len() as f64;
        assert!((0.03..0.06).contains(&share), "{share}");
        let real = Start { idle: REAL_MAX, extra: Nanos::ZERO };
        assert!(burst.iter().all(|one| **one == real));
        // Not from the first burst, whose samples depend on each other.
        let first = starts.iter().position(|start| start.extra > Nanos::ZERO).unwrap();
        assert!(first as u64 > 4 * (FIRST_GAP + BURST), "{first}");
        assert!((14_500..15_500).contains(&last(&starts).get()), "{:?}", last(&starts));
        // Writes and other programs have their own, which may not be negative.
        for of in [(1, Wait::Write), (2, Wait::Read)] {
            let starts = run(&mut caches, of, ([10_000, 10_000], [9_000, 9_000]));
            assert!(starts.iter().all(|start| start.extra == Nanos::ZERO));
        }
    }

    /// A long computation between two waits, such as a compaction, would be charged for each lookup.
    #[test]
    fn long_computations_add_no_extra_time() {
        let mut caches = ColdCaches::new();
        let times = ([10_000, 5_000_000], [10_000, 9_000_000]);
        let starts = run(&mut caches, (1, Wait::Read), times);
        assert!(last(&starts) < Nanos(100), "{:?}", last(&starts));
        // Those just below the limit do not hide that of the others.
        let starts = run(&mut caches, (2, Wait::Read), ([20_000, 290_000], [35_000, 305_000]));
        assert!((10_000..15_000).contains(&last(&starts).get()), "{:?}", last(&starts));
    }

    /// Otherwise busy hosts would come out slower than they are: on a busy core other threads use the caches,
    /// in a simulation as well, and the calibrated costs of locks and messages include an idle core.
    #[test]
    fn busy_cores_locks_and_messages_are_not_charged() {
        let mut caches = ColdCaches::new();
        run(&mut caches, (1, Wait::Read), ([10_000, 10_000], [25_000, 25_000]));
        for idle in [Nanos::ZERO, Nanos(2_900)] {
            let wake = Wake { wait: Wait::Read, idle };
            let starts = (0..200).map(|_| caches.start(1, wake, &mut Interval::default()));
            assert!(starts.into_iter().all(|start| start == Start::default()));
        }
        for wait in [Wait::Lock, Wait::Network, Wait::Sleep] {
            let starts = run(&mut caches, (1, wait), ([10_000, 10_000], [25_000, 25_000]));
            assert!(starts.iter().all(|start| *start == Start::default()));
        }
    }
}
