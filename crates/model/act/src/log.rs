//! The log of a test in the format of `act_storage`, from a recording.
//!
//! Latencies are service times as in ACT: from the call to its return, not from the arrival. Invariants:
//! counts are cumulative; bucket `k` counts times from `2^(k-1)` up to `2^k` units, with the 0.1 % precision
//! of the recording's histograms.

use std::fmt::Write;

use stats::{Histogram, Phase as TrialPhase, Recording};
use units::Nanos;
use workload::OpClass;

use crate::{Config, Load, RELEASE};

/// Buckets that can be filled: up to 2^63 nanoseconds and more.
pub(crate) const BUCKETS: usize = 65;

/// Counts by ACT's buckets.
pub(crate) type Buckets = [u64; BUCKETS];

/// Adds the times of `histogram` to `buckets` of `unit` nanoseconds.
pub(crate) fn add_buckets(histogram: &Histogram, unit: u64, buckets: &mut Buckets) {
    for value in histogram.iter_recorded() {
        let units = histogram.lowest_equivalent(value.value_iterated_to()) / unit;
        let bucket = (u64::BITS - units.leading_zeros()) as usize;
        buckets[bucket] += value.count_since_last_iteration();
    }
}

/// Nanoseconds of a histogram's unit.
pub(crate) fn unit(config: &Config) -> u64 {
    if config.microsecond_histograms { 1_000 } else { 1_000_000 }
}

/// Histograms of the log with the class that each counts.
fn histograms(config: &Config) -> Vec<(String, OpClass)> {
    let device = match config.device_names.as_slice() {
        [only] => Some(only),
        // Requests are not recorded per device.
        _ => None,
    };
    let mut names = Vec::new();
    let mut add = |name: &str, class: OpClass, by_device: bool| {
        names.push((name.to_owned(), class));
        if let Some(device) = device.filter(|_| by_device) {
            names.push((format!("{device}-{name}"), class));
        }
    };
    if config.read_reqs_per_sec != 0 {
        add("reads", OpClass::Read, true);
    }
    if config.write_reqs_per_sec != 0 {
        add("large-block-reads", OpClass::BackgroundRead, false);
        add("large-block-writes", OpClass::BackgroundWrite, false);
        if config.commit_to_device {
            add("writes", OpClass::Write, true);
        }
    }
    names
}

/// The log of `recording`, a test of `config` with `service_threads` threads.
#[must_use]
pub fn log_text(config: &Config, service_threads: u32, recording: &Recording) -> String {
    let mut out = header(config, service_threads);
    let names = histograms(config);
    out.push_str("\nHISTOGRAM NAMES\n");
    for (name, _) in &names {
        let _ = writeln!(out, "{name}");
    }
    out.push('\n');
    let mut counts = vec![[0u64; BUCKETS]; names.len()];
    let mut next = u64::from(config.report_interval_sec);
    for interval in recording.intervals.iter().filter(|i| i.phase != TrialPhase::Drain) {
        for ((_, class), buckets) in names.iter().zip(&mut counts) {
            let service = interval.tallies[*class].service.histogram();
            add_buckets(&service, unit(config), buckets);
        }
        if interval.end >= Nanos::from_secs(next) {
            let _ = writeln!(out, "after {next} sec:");
            for ((name, _), buckets) in names.iter().zip(&counts) {
                dump(&mut out, name, buckets);
            }
            out.push('\n');
            next += u64::from(config.report_interval_sec);
        }
    }
    out
}

fn dump(out: &mut String, name: &str, buckets: &Buckets) {
    let _ = writeln!(out, "{name} ({} total)", buckets.iter().sum::<u64>());
    let filled: Vec<String> = buckets
        .iter()
        .enumerate()
        .filter(|(_, count)| **count > 0)
        .map(|(bucket, count)| format!(" ({bucket:02}: {count:010})"))
        .collect();
    for line in filled.chunks(4) {
        let _ = writeln!(out, "{}", line.concat());
    }
}

fn header(config: &Config, service_threads: u32) -> String {
    let load = Load::of(config);
    let mut out = format!(
        "\nACT version {RELEASE}\nStorage device IO test\nWritten by Crosspoint\n\n\
         ACT-STORAGE CONFIGURATION\n"
    );
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "{name}: {value}");
    };
    line("device-names", config.device_names.join(" "));
    line("num-devices", config.device_names.len().to_string());
    let config = Config { service_threads, ..config.clone() };
    for (key, value) in config.lines().into_iter().filter(|(key, _)| *key != "file-size-mbytes") {
        line(key, value);
    }
    out.push_str("\nDERIVED CONFIGURATION\n");
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "{name}: {value}");
    };
    line("record-stored-bytes", format!("{} ... {}", load.stored.0, load.stored.1));
    line("internal-read-reqs-per-sec", load.reads.to_string());
    line("internal-write-reqs-per-sec", load.writes.to_string());
    line("large-block-reads-per-sec", format!("{:.2}", load.large_reads));
    line("large-block-writes-per-sec", format!("{:.2}", load.large_writes));
    out
}
