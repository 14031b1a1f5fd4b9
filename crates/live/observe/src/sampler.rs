//! Samples of a database's counters over time, next to its clients' results.
//!
//! Invariants: samples carry the clients' time; totals become rates. Runs on a separate thread.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stats::CounterSample;
use units::Nanos;

use crate::Clock;

/// A counter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Counter {
    /// Its name with the unit.
    pub name: &'static str,
    /// Its value now.
    pub value: f64,
    /// It only grows; shown as a rate.
    pub sum: bool,
}

/// Maximum delay of the first reading after the clients started.
const ORIGIN_WITHIN: Duration = Duration::from_millis(2);

/// Reads counters every `every` from the start of `clock` until `done`: values, and rates of totals since the
/// previous sample. Returns at once if there are none.
pub fn sample(
    read: &mut dyn FnMut(Nanos) -> Vec<Counter>,
    every: Duration,
    clock: &OnceLock<Clock>,
    done: &AtomicBool,
) -> Vec<CounterSample> {
    let mut samples = Vec::new();
    let mut before = values(&read(Nanos::ZERO));
    if before.is_empty() {
        return samples;
    }
    // Counters run while clients wait for the start: rates begin with the clients.
    let clock = loop {
        match clock.get() {
            Some(clock) => break *clock,
            None if done.load(Ordering::Relaxed) => return samples,
            None => std::thread::park_timeout(ORIGIN_WITHIN.min(every)),
        }
    };
    before = values(&read(clock.now()));
    let mut last = clock.now();
    while !done.load(Ordering::Relaxed) {
        std::thread::park_timeout(every);
        let at = clock.now();
        let passed = at.since(last).as_secs_f64();
        if passed < every.as_secs_f64() / 2.0 {
            continue;
        }
        let counters = read(at);
        last = at;
        let mut sampled = BTreeMap::new();
        for counter in &counters {
            let value = match (counter.sum, before.get(counter.name)) {
                (true, Some(earlier)) => (counter.value - earlier).max(0.0) / passed,
                (true, None) => continue,
                (false, _) => counter.value,
            };
            sampled.insert(counter.name.to_owned(), value);
        }
        before = values(&counters);
        samples.push(CounterSample { at_ns: at.get(), values: sampled });
    }
    samples
}

fn values(counters: &[Counter]) -> BTreeMap<&'static str, f64> {
    counters.iter().map(|counter| (counter.name, counter.value)).collect()
}

/// CPU time, reads and writes of another process and of the processes that it started, as counters.
#[must_use]
pub fn watch_process(process: u32) -> Vec<Counter> {
    let family = family(process);
    let sum = |read: &dyn Fn(u32) -> Option<f64>| {
        let values: Vec<f64> = family.iter().filter_map(|one| read(*one)).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>())
    };
    let mut out = Vec::new();
    let mut add = |name, value: Option<f64>| {
        out.extend(value.map(|value| Counter { name, value, sum: true }));
    };
    add("server CPU, s/s", sum(&cpu_of));
    add("server reads, B/s", sum(&|one| bytes_of(one, "read_bytes: ")));
    add("server writes, B/s", sum(&|one| bytes_of(one, "write_bytes: ")));
    out
}

/// A process and its living descendants.
#[must_use]
pub fn family(process: u32) -> Vec<u32> {
    let mut family = vec![process];
    let mut next = 0;
    while let Some(one) = family.get(next).copied() {
        next += 1;
        let threads = std::fs::read_dir(format!("/proc/{one}/task")).into_iter().flatten();
        for thread in threads.flatten() {
            let children = std::fs::read_to_string(thread.path().join("children"));
            let children = children.unwrap_or_default();
            family.extend(children.split_whitespace().filter_map(|id| id.parse::<u32>().ok()));
        }
    }
    family
}

/// CPU seconds of a process and of its children that have ended.
fn cpu_of(process: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is the command in parentheses and may contain spaces; count from its end.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11..15)?.iter().filter_map(|text| text.parse::<f64>().ok());
    Some(ticks.sum::<f64>() / rustix::param::clock_ticks_per_second() as f64)
}

/// A line of /proc/PID/io.
fn bytes_of(process: u32, field: &str) -> Option<f64> {
    let io = std::fs::read_to_string(format!("/proc/{process}/io")).ok()?;
    io.lines().find_map(|line| line.strip_prefix(field))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Activity of a racer that waits for the others must not appear as its first second's rate.
    #[test]
    fn rates_begin_with_the_clients() {
        let (clock, done) = (OnceLock::new(), AtomicBool::new(false));
        let mut reads = 0;
        let every = Duration::from_millis(2);
        let mut read = |_| {
            reads += 1;
            match reads {
                // Before the clients begin, a thousand are counted; from then on nothing.
                1 => {
                    let _ = clock.set(Clock::start());
                    vec![Counter { name: "reads, 1/s", value: 0.0, sum: true }]
                }
                more => {
                    done.store(more > 4, Ordering::Relaxed);
                    vec![Counter { name: "reads, 1/s", value: 1000.0, sum: true }]
                }
            }
        };
        let samples = sample(&mut read, every, &clock, &done);
        // One reading is before the clients, one with their beginning, and each of the others gives a sample.
        assert_eq!(samples.len(), 3);
        for one in samples {
            assert!(one.values["reads, 1/s"] == 0.0, "{one:?}");
        }
    }
}
