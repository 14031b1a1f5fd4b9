//! The table of a test and its verdict: the share of reads above 1, 2, 4, ... ms (us if configured) in each
//! slice, and whether every slice is within the limits.
//!
//! The limits are Aerospike's for certification, in every slice of one hour: fewer than 5 % of reads above 1
//! ms, 1 % above 8 ms and 0.1 % above 64 ms (ACT's README). Invariants: an incomplete slice has no verdict,
//! unless there is no other; an aborted test fails.

use std::fmt::Write;

use stats::{Phase as TrialPhase, Recording};
use units::Nanos;
use workload::OpClass;

use crate::log::{BUCKETS, Buckets, add_buckets, unit};
use crate::{Config, Load};

/// Limits: milliseconds, and the percentage that reads above them must stay below in every slice.
pub const LIMITS: [(u64, f64); 3] = [(1, 5.0), (8, 1.0), (64, 0.1)];
/// Share of the load that must be reached: over the hours of a certification test a smaller share would
/// exceed `max-lag-sec`, which a short test may not show.
const KEPT_UP: f64 = 0.98;
/// Columns of the table: above 1, 2, 4, ... 64 units.
const COLUMNS: usize = 7;

/// One slice of a test, by service time or by response time.
#[derive(Debug, Clone, PartialEq)]
pub struct Slice {
    /// Percent of requests that took at least 1, 2, 4, ... 64 units.
    pub over: [f64; COLUMNS],
    /// Number of requests.
    pub requests: u64,
    /// Its length.
    pub length: Nanos,
    /// Percent that took longer than each of [`LIMITS`].
    pub over_limits: [f64; LIMITS.len()],
}

/// Verdict of a test.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// Every slice is within the limits and the load was kept up.
    pub passed: bool,
    /// Slices by service time, as ACT times.
    pub service: Vec<Slice>,
    /// The slices by response time.
    pub response: Vec<Slice>,
    /// Why it failed; empty when it passed.
    pub reasons: Vec<String>,
    /// Reads per second, and the requested rate.
    pub rate: (f64, f64),
}

/// Judges `recording` of a test of `config` in slices of `slice`; `failure` says why it was aborted, if it
/// was.
#[must_use]
pub fn judge(
    config: &Config,
    recording: &Recording,
    slice: Nanos,
    failure: Option<&str>,
) -> Verdict {
    let service = slices(config, recording, slice, false);
    let response = slices(config, recording, slice, true);
    let mut reasons: Vec<String> = failure.map(str::to_owned).into_iter().collect();
    for ((limit, most), column) in LIMITS.iter().zip(0..) {
        let worst = service.iter().map(|slice| slice.over_limits[column]).fold(0.0, f64::max);
        if worst >= *most {
            reasons.push(format!(
                "{worst:.2} % of reads took longer than {limit} ms; allowed: less than {most} %"
            ));
        }
    }
    let asked = f64::from(Load::of(config).reads);
    let reads = recording.total(Some(OpClass::Read)).counts.ops;
    let rate = reads as f64 / recording.seconds().max(1e-9);
    if service.is_empty() && asked > 0.0 {
        reasons.push("no reads were recorded".into());
    } else if rate < asked * KEPT_UP && reasons.is_empty() {
        reasons.push(format!("reached {rate:.0} of {asked:.0} reads/s"));
    }
    Verdict { passed: reasons.is_empty(), service, response, reasons, rate: (rate, asked) }
}

fn slices(config: &Config, recording: &Recording, length: Nanos, response: bool) -> Vec<Slice> {
    let mut slices = Vec::new();
    let (mut counts, mut limits) = ([0u64; BUCKETS], [0u64; LIMITS.len()]);
    let mut start = Nanos::ZERO;
    let mut last = Nanos::ZERO;
    for interval in recording.intervals.iter().filter(|i| i.phase != TrialPhase::Drain) {
        let tally = &interval.tallies[OpClass::Read];
        let times = if response { &tally.latency } else { &tally.service }.histogram();
        add_buckets(&times, unit(config), &mut counts);
        for ((limit, _), over) in LIMITS.iter().zip(&mut limits) {
            *over += times.len() - times.count_between(0, limit * 1_000_000 - 1);
        }
        last = interval.end;
        if last.since(start) >= length {
            slices.extend(slice(&counts, limits, last.since(start)));
            (counts, limits, start) = ([0; BUCKETS], [0; LIMITS.len()], last);
        }
    }
    if slices.is_empty() {
        slices.extend(slice(&counts, limits, last.since(start)));
    }
    slices
}

fn slice(counts: &Buckets, limits: [u64; LIMITS.len()], length: Nanos) -> Option<Slice> {
    let requests: u64 = counts.iter().sum();
    if requests == 0 {
        return None;
    }
    let percent = |count: u64| count as f64 * 100.0 / requests as f64;
    let mut over = [0.0; COLUMNS];
    let mut below = 0;
    for (column, share) in over.iter_mut().enumerate() {
        below += counts[column];
        *share = percent(requests - below);
    }
    Some(Slice { over, requests, length, over_limits: limits.map(percent) })
}

/// The table: each slice, their mean and their maximum; service time next to response time.
#[must_use]
pub fn table_text(config: &Config, verdict: &Verdict) -> String {
    let label = if config.microsecond_histograms { "us" } else { "ms" };
    let mut out = String::new();
    let width = COLUMNS * 8;
    let title = |text: &str| format!("{text:<width$}");
    let _ = writeln!(
        out,
        "         {}  {}",
        title(&format!("reads, % above ({label}): service time, as ACT")),
        title("response time, from when due").trim_end(),
    );
    let numbers: String = (0..COLUMNS).map(|power| format!("{:>8}", 1u64 << power)).collect();
    let _ = writeln!(out, "slice    {numbers}  {numbers}   reads/s");
    let row = |over: &[f64; COLUMNS]| over.map(|share| format!("{share:>8.2}")).concat();
    let pairs = || verdict.service.iter().zip(&verdict.response);
    for (number, (service, response)) in pairs().enumerate() {
        let _ = writeln!(
            out,
            "{:>5}    {}  {}  {:>8.0}",
            number + 1,
            row(&service.over),
            row(&response.over),
            service.requests as f64 / service.length.as_secs_f64().max(1e-9),
        );
    }
    let fold = |slices: &[Slice], fold: &dyn Fn(&mut dyn Iterator<Item = f64>) -> f64| {
        let mut folded = [0.0; COLUMNS];
        for (column, value) in folded.iter_mut().enumerate() {
            *value = fold(&mut slices.iter().map(|slice| slice.over[column]));
        }
        folded
    };
    let count = verdict.service.len().max(1) as f64;
    for (name, how) in [
        (
            "avg",
            &(|values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / count)
                as &dyn Fn(&mut dyn Iterator<Item = f64>) -> f64,
        ),
        ("max", &|values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max)),
    ] {
        let _ = writeln!(
            out,
            "{name:>5}    {}  {}",
            row(&fold(&verdict.service, how)),
            row(&fold(&verdict.response, how)),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_text;
    use stats::{Recorder, Sample, Timeline};
    use workload::Outcome;

    fn config() -> Config {
        Config::parse(
            "device-names: /dev/sda\ntest-duration-sec: 4\nread-reqs-per-sec: 100\n\
             write-reqs-per-sec: 0\n",
        )
        .unwrap()
    }

    /// 100 reads per second for 4 s: `slow` of each second take 1.5 ms, the others 0.1 ms; all are issued
    /// 10 ms late.
    fn recording(slow: u64) -> Recording {
        let second = Nanos::from_secs(1);
        let timeline = Timeline { warm_up: Nanos::ZERO, measure: second * 4, interval: second };
        let mut recorder = Recorder::with_service(timeline, &[OpClass::Read]);
        for number in 0..400u64 {
            let took = Nanos::from_micros(if number % 100 < slow { 1_500 } else { 100 });
            let issued = Nanos::from_millis(number * 10 + 5);
            while recorder.poll(issued + took).is_some() {}
            recorder.record(Sample {
                class: OpClass::Read,
                intended: issued.since(Nanos::from_millis(10)),
                issued,
                completed: issued + took,
                bytes: 1536,
                outcome: Outcome::Done,
                position: 0,
            });
        }
        recorder.finish(second * 4)
    }

    #[test]
    fn the_limits_are_held_to_in_every_slice() {
        let slice = Nanos::from_secs(2);
        let good = judge(&config(), &recording(4), slice, None);
        assert!(good.passed, "{:?}", good.reasons);
        assert_eq!(good.service.len(), 2);
        assert_eq!((good.service[0].over[0], good.service[0].over[1]), (4.0, 0.0));
        assert!(good.response[0].over[0] > 90.0, "issued late: {:?}", good.response[0].over);
        let bad = judge(&config(), &recording(5), slice, None);
        assert!(!bad.passed && bad.reasons[0].contains("5.00 %"), "{:?}", bad.reasons);
        assert!(!judge(&config(), &recording(0), slice, Some("fell behind")).passed, "given up");
        assert!((good.rate.0 - 100.0).abs() < 1.0);
    }

    /// ACT's own script must be able to read the log: cumulative counts, four buckets per line.
    #[test]
    fn the_log_counts_up() {
        let log = log_text(&config(), 40, &recording(4));
        assert!(log.contains("\nACT version 6.6\n") && log.contains("service-threads: 40\n"));
        assert!(log.contains("HISTOGRAM NAMES\nreads\n/dev/sda-reads\n\n"));
        let second = "after 2 sec:\nreads (200 total)\n (00: 0000000192) (01: 0000000008)\n";
        assert!(log.contains(second), "{log}");
        assert_eq!(log.matches("after ").count(), 4);
    }

    #[test]
    fn the_table_has_both_ways_of_timing() {
        let verdict = judge(&config(), &recording(4), Nanos::from_secs(2), None);
        let table = table_text(&config(), &verdict);
        assert_eq!(table.lines().count(), 6, "{table}");
        assert!(table.lines().last().unwrap().trim_start().starts_with("max"));
    }
}
