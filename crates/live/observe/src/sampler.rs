//! A database's own counters over time, beside what its clients see.
//!
//! Invariants: samples carry the clients' time; sums become rates over the time that passed. What it is
//! not: in any client's way; it has a thread of its own.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use units::Nanos;

/// Something that is counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Counter {
    /// What it is, with its unit.
    pub name: &'static str,
    /// Its value now.
    pub value: f64,
    /// It only grows; shown as a rate.
    pub sum: bool,
}

/// One sample: when, and each counter by name.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampled {
    /// Since the clients' common origin.
    pub at: Nanos,
    /// By name; of sums, the rate since the sample before.
    pub values: BTreeMap<&'static str, f64>,
}

/// Reads counters every `every` from `origin`, once that is known, until `done`. Returns at once with
/// nothing when nothing is counted.
pub fn sample(
    read: &mut dyn FnMut(Nanos) -> Vec<Counter>,
    every: Duration,
    origin: &OnceLock<Instant>,
    done: &AtomicBool,
) -> Vec<Sampled> {
    let mut samples = Vec::new();
    let mut before: BTreeMap<&'static str, f64> = BTreeMap::new();
    let mut last = Instant::now();
    for counter in read(Nanos::ZERO) {
        before.insert(counter.name, counter.value);
    }
    if before.is_empty() {
        return samples;
    }
    while !done.load(Ordering::Relaxed) {
        std::thread::park_timeout(every);
        let Some(origin) = origin.get() else { continue };
        let now = Instant::now();
        let passed = now.duration_since(last).as_secs_f64();
        if passed < every.as_secs_f64() / 2.0 {
            continue;
        }
        let at = Nanos::from(now.duration_since(*origin));
        let counters = read(at);
        last = now;
        let mut values = BTreeMap::new();
        for counter in counters {
            let earlier = before.insert(counter.name, counter.value);
            let value = match (counter.sum, earlier) {
                (true, Some(earlier)) => (counter.value - earlier).max(0.0) / passed,
                (true, None) => continue,
                (false, _) => counter.value,
            };
            values.insert(counter.name, value);
        }
        samples.push(Sampled { at, values });
    }
    samples
}
