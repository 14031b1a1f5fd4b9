//! The engine's own counters over time, beside what its clients see.
//!
//! Invariant: samples carry the clients' time; sums become rates over the time that passed. What it is
//! not: in any client's way; it has a thread of its own.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use units::Nanos;

use crate::Engine;

/// Time between samples.
const EVERY: Duration = Duration::from_millis(250);

/// One sample: when, and each counter by name.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampled {
    /// Since the clients' common origin.
    pub at: Nanos,
    /// By name; of sums, the rate since the sample before.
    pub values: BTreeMap<&'static str, f64>,
}

/// Samples `engine` until `done`. Returns at once with nothing when it counts nothing.
pub(crate) fn sample<E: Engine>(
    engine: &E,
    origin: &OnceLock<Instant>,
    done: &AtomicBool,
) -> Vec<Sampled> {
    let mut samples = Vec::new();
    let mut before: BTreeMap<&'static str, f64> = BTreeMap::new();
    let mut last = Instant::now();
    for counter in engine.counters() {
        before.insert(counter.name, counter.value);
    }
    if before.is_empty() {
        return samples;
    }
    while !done.load(Ordering::Relaxed) {
        std::thread::park_timeout(EVERY);
        let Some(origin) = origin.get() else { continue };
        let (now, counters) = (Instant::now(), engine.counters());
        let passed = now.duration_since(last).as_secs_f64();
        if passed < EVERY.as_secs_f64() / 2.0 {
            continue;
        }
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
        samples.push(Sampled { at: Nanos::from(now.duration_since(*origin)), values });
    }
    samples
}
