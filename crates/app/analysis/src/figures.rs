//! The figures of runs: one tidy table, the source of every picture and export.
//!
//! Invariants: metric names and fields are the stable interface described in `docs/FIGURES.md`; the same
//! archive gives the same bytes.

use std::collections::{BTreeMap, BTreeSet};
use study::Source;

use archive::{Run, TrialOutcome, TrialRecord};
use serde::Serialize;
use serde_json::Value;
use stats::estimate::Estimate;
use workload::OpClass;

use crate::act::{ActTest, act_tests};
use crate::background::{background_cpus, background_written};
use crate::decision::{counted_of, limited_by};
use crate::doubts::failures;
use crate::figure::Figure;
use crate::gain::Change;
use crate::groups::{Group, Ops, Times, groups, typed};
use crate::knee::{DEPTH, OFFERED, THREADS, curves};
use crate::published::published_figures;
use crate::sql::{PAGE_SIZE, best_page_sizes, sql_figures};
use crate::time_parts::{stalled_share, time_parts};

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    figures: &'a [Figure],
}

/// The figures of `runs`, in the order of their plans.
#[must_use]
pub fn figures(runs: &[Run]) -> Vec<Figure> {
    let of_groups = runs.iter().flat_map(groups).flat_map(|group| group_figures(&group));
    let studies: BTreeSet<&str> = runs.iter().map(|run| run.header.study.as_str()).collect();
    of_groups
        .chain(runs.iter().flat_map(curve_figures))
        .chain(runs.iter().flat_map(act_figures))
        .chain(runs.iter().flat_map(page_size_figures))
        .chain(studies.into_iter().flat_map(published_figures))
        .collect()
}

/// The JSON document of `figures`.
///
/// # Panics
/// Never: figures are plain data.
#[must_use]
pub fn document(figures: &[Figure]) -> String {
    let document = Document { schema: 1, figures };
    let mut text = serde_json::to_string_pretty(&document).expect("invariant: plain data is JSON");
    text.push('\n');
    text
}

/// Percentiles that are reported if there are enough samples.
pub const PERCENTILES: [(&str, f64); 6] = [
    ("latency_p50", 50.0),
    ("latency_p90", 90.0),
    ("latency_p99", 99.0),
    ("latency_p99_9", 99.9),
    ("latency_p99_99", 99.99),
    ("latency_p99_999", 99.999),
];

fn group_figures(group: &Group<'_>) -> Vec<Figure> {
    let mut out = Vec::new();
    for ops in group.classes() {
        let mut add = |metric, unit, scale: f64, estimate: Option<Estimate>| {
            out.extend(estimate.map(|e| figure(group, ops.word(), metric, unit, scale, e)));
        };
        let rate = match ops.class() {
            _ if group.first.engine == "block" => "iops",
            Some(OpClass::Transaction) => "tx_rate",
            _ => "ops_rate",
        };
        add(rate, "1/s", 1.0, group.rate(ops));
        add("throughput", "MB/s", 1e-6, group.throughput(ops));
        add("latency_mean", "us", 1e-3, group.mean_latency(ops));
        let wanted = PERCENTILES.map(|(_, p)| p);
        let found = group.percentiles(ops, Times::Response, &wanted);
        for ((metric, _), estimate) in PERCENTILES.into_iter().zip(found) {
            add(metric, "us", 1e-3, estimate.ok());
        }
        if let Some(parts) = time_parts(group, ops) {
            for (part, _) in &parts.parts {
                add(part.metric(), "%", 100.0, Some(Estimate::of(parts.share(*part), 1)));
            }
        }
    }
    let rate = counted_of(group).map(|(_, counted)| counted);
    let gains = rate.map(|counted| limited_by(group, counted).1).unwrap_or_default();
    for gain in gains.iter().filter(|gain| gain.change == Change::FreeDrive) {
        let ends = [
            ("free_drive_gain_least", gain.low),
            ("free_drive_gain_likely", gain.likely),
            ("free_drive_gain_most", gain.high),
        ];
        for (metric, value) in ends {
            let value = Estimate::of(value, 1);
            out.push(figure(group, Ops::All.word(), metric, "x", 1.0, value));
        }
    }
    let lifted = gains.iter().find(|gain| gain.change == Change::NoLimit);
    out.extend(lifted.map(|gain| {
        let most = Estimate::of(gain.high, 1);
        figure(group, Ops::All.word(), "no_limit_gain_most", "x", 1.0, most)
    }));
    open_loop_figures(group, &mut out);
    if group.trials.iter().any(|trial| failures(trial).0 > 0) {
        let errors = group.over_trials(|trial| Some(failures(trial).0 as f64));
        let all = Ops::All.word();
        out.extend(errors.map(|e| figure(group, all, "errors", "count", 1.0, e)));
    }
    cost_figures(group, &mut out);
    load_figures(group, &mut out);
    total_figures(group, &mut out);
    out.extend(
        sql_figures(group)
            .into_iter()
            .map(|(op, metric, unit, estimate)| figure(group, op, metric, unit, 1.0, estimate)),
    );
    out
}

/// Figures of IOPS-latency curves: highest rate, knee, latency growth at 95 %.
fn curve_figures(run: &Run) -> Vec<Figure> {
    let mut out = Vec::new();
    for curve in curves(run) {
        let Some(growth) = curve.growth() else { continue };
        let (first, ops) = (&curve.points[0].group, curve.ops().word());
        let (top, knee) = (&curve.points[growth.top], &curve.points[growth.knee]);
        let figures = [
            // The maximum of several rates is biased upwards, so no single point's interval applies.
            ("iops_max", "1/s", 1.0, &top.group, Some(Estimate::of(top.rate.value, top.rate.n))),
            ("iops_knee", "1/s", 1.0, &knee.group, Some(knee.rate)),
            ("latency_growth_95", "%", 100.0, first, growth.growth),
        ];
        for (metric, unit, scale, group, estimate) in figures {
            let Some(estimate) = estimate else { continue };
            let mut made = figure(group, ops, metric, unit, scale, estimate);
            // It describes the whole curve, not its first point's job.
            made.job = None;
            for name in [DEPTH, THREADS, OFFERED[0], OFFERED[1]] {
                let swept = curve
                    .points
                    .iter()
                    .any(|point| point.group.first.point.get(name) != first.first.point.get(name));
                if swept {
                    made.point.remove(name);
                }
            }
            out.push(made);
        }
    }
    out
}

/// For each stack and workload, the page size with the highest transaction rate.
fn page_size_figures(run: &Run) -> Vec<Figure> {
    let all = groups(run);
    let best = best_page_sizes(&all);
    let made = best.into_iter().map(|(group, size, tried)| {
        let single = Estimate::of(size, tried);
        let mut made = figure(group, "transaction", "best_page_size", "KiB", 1.0, single);
        made.point.remove(PAGE_SIZE);
        made.job = None;
        made
    });
    made.collect()
}

/// Figures of ACT's limits in the worst slice of each test, and the highest rating passed.
fn act_figures(run: &Run) -> Vec<Figure> {
    let tests = act_tests(run);
    let groups = groups(run);
    // By `[stack, arrivals]`: the highest passed rating of each repetition.
    let mut best: BTreeMap<(String, String), BTreeMap<u32, Score<'_>>> = BTreeMap::new();
    // By number of the first trial: the repetitions of one test.
    let mut of_group: BTreeMap<u32, (&Group<'_>, Vec<&ActTest<'_>>)> = BTreeMap::new();
    let of_trial: BTreeMap<u32, &Group<'_>> = groups
        .iter()
        .flat_map(|group| group.trials.iter().map(move |trial| (trial.number, group)))
        .collect();
    for test in &tests {
        let Some(group) = of_trial.get(&test.trial.number).copied() else { continue };
        let shown = of_group.entry(group.first.number).or_insert((group, Vec::new()));
        shown.1.push(test);
        let Some(rating) = test.config.rating() else { continue };
        let arrivals = test.trial.point.get("arrivals").cloned().unwrap_or_default();
        let repetitions = best.entry((test.trial.stack.clone(), arrivals)).or_default();
        let score = repetitions.entry(test.trial.repetition).or_default();
        score.tried += 1;
        if test.verdict.passed && rating > score.rating {
            (score.rating, score.test) = (rating, Some((group, test)));
        }
    }
    let mut out: Vec<Figure> =
        of_group.values().flat_map(|(group, tests)| test_figures(group, tests)).collect();
    out.extend(best.values().flat_map(score_figures));
    out
}

/// Figures of the repetitions of one test: the worst slice of each.
fn test_figures(group: &Group<'_>, tests: &[&ActTest<'_>]) -> Vec<Figure> {
    type Slices = fn(&::act::Verdict) -> &[::act::Slice];
    let kinds: [(Slices, [&'static str; 3]); 2] = [
        (|verdict| &verdict.service, ["act_over_1ms", "act_over_8ms", "act_over_64ms"]),
        (
            |verdict| &verdict.response,
            ["act_response_over_1ms", "act_response_over_8ms", "act_response_over_64ms"],
        ),
    ];
    let mut out = Vec::new();
    for (slices, names) in kinds {
        for (column, metric) in names.into_iter().enumerate() {
            let worst = |test: &&ActTest<'_>| {
                let all = slices(&test.verdict).iter().map(|slice| slice.over_limits[column]);
                all.fold(0.0, f64::max)
            };
            let values: Vec<f64> = tests.iter().map(worst).collect();
            let estimate = stats::estimate::over_values(&values);
            out.extend(estimate.map(|e| figure(group, "read", metric, "%", 1.0, e)));
        }
    }
    let passed: Vec<f64> = tests.iter().map(|t| f64::from(u8::from(t.verdict.passed))).collect();
    let passed = stats::estimate::over_values(&passed);
    out.extend(passed.map(|e| figure(group, "all", "act_passed", "1 or 0", 1.0, e)));
    out
}

/// The highest rating passed, and the number of ratings tried.
#[derive(Default)]
struct Score<'a> {
    rating: u32,
    tried: u32,
    test: Option<(&'a Group<'a>, &'a ActTest<'a>)>,
}

/// Figures of a score. With a single rating the result is only pass or fail.
fn score_figures(repetitions: &BTreeMap<u32, Score<'_>>) -> Vec<Figure> {
    let passed = |score: &&Score<'_>| score.tried > 1 && score.test.is_some();
    let scored: Vec<&Score<'_>> = repetitions.values().filter(passed).collect();
    let Some((group, first)) = scored.iter().find_map(|score| score.test) else {
        return Vec::new();
    };
    let over = |of: &dyn Fn(&Score<'_>) -> f64| {
        let values: Vec<f64> = scored.iter().map(|score| of(score)).collect();
        stats::estimate::over_values(&values)
    };
    let worst = |score: &Score<'_>, share: &dyn Fn(&::act::Slice) -> f64| {
        let slices = score.test.iter().flat_map(|(_, test)| &test.verdict.service);
        slices.map(share).fold(0.0, f64::max)
    };
    let mut out = Vec::new();
    let mut add = |ops, metric, unit, estimate: Option<Estimate>| {
        let Some(estimate) = estimate else { return };
        let mut made = figure(group, ops, metric, unit, 1.0, estimate);
        // It describes all ratings.
        made.job = None;
        out.push(made);
    };
    add("all", "act_score", "x", over(&|score| f64::from(score.rating)));
    add(
        "read",
        "act_score_over_1ms",
        "%",
        over(&|score| worst(score, &|slice| slice.over_limits[0])),
    );
    if !first.config.microsecond_histograms {
        add("read", "act_score_over_2ms", "%", over(&|score| worst(score, &|slice| slice.over[1])));
    }
    out
}

/// Percentiles of the service time, next to the response times of `latency_*`.
const SERVICE_PERCENTILES: [(&str, f64); 3] =
    [("service_time_p50", 50.0), ("service_time_p99", 99.0), ("service_time_p99_9", 99.9)];

/// Figures of open loops besides response times: service times and missed arrivals.
fn open_loop_figures(group: &Group<'_>, out: &mut Vec<Figure>) {
    if !group.is_open_loop() {
        return;
    }
    for ops in group.classes() {
        let wanted = SERVICE_PERCENTILES.map(|(_, p)| p);
        let found = group.percentiles(ops, Times::Service, &wanted);
        for ((metric, _), estimate) in SERVICE_PERCENTILES.into_iter().zip(found) {
            out.extend(estimate.ok().map(|e| figure(group, ops.word(), metric, "us", 1e-3, e)));
        }
    }
    let missed = group.over_trials(|trial| Some(trial.result.recording.missed_arrivals as f64));
    let all = Ops::All.word();
    out.extend(missed.map(|e| figure(group, all, "missed_arrivals", "count", 1.0, e)));
}

/// CPU time, context switches and blocks of a measured trial, including warm-up.
fn cost_figures(group: &Group<'_>, out: &mut Vec<Figure>) {
    let mut add = |metric, unit, value: &dyn Fn(&stats::Usage) -> f64| {
        let estimate = group.over_trials(|trial| trial.result.usage.as_ref().map(value));
        out.extend(estimate.map(|e| figure(group, Ops::All.word(), metric, unit, 1.0, e)));
    };
    add("cpu_user", "s", &|usage| usage.cpu_user_ns as f64 / 1e9);
    add("cpu_sys", "s", &|usage| usage.cpu_system_ns as f64 / 1e9);
    add("ctx_switches_voluntary", "count", &|usage| usage.switches_voluntary as f64);
    add("ctx_switches_involuntary", "count", &|usage| usage.switches_involuntary as f64);
    add("fs_in", "blocks of 512 B", &|usage| usage.blocks_in as f64);
    add("fs_out", "blocks of 512 B", &|usage| usage.blocks_out as f64);
    add("faults_major", "count", &|usage| usage.faults_major as f64);
    let per_op = group.over_trials(|trial| {
        let ops: u64 = trial.result.recording.intervals.iter().map(|i| i.counts().ops).sum();
        let cpu = trial.result.usage.as_ref()?.cpu();
        (ops > 0).then(|| cpu.get() as f64 / ops as f64)
    });
    let all = Ops::All.word();
    out.extend(per_op.map(|e| figure(group, all, "cpu_per_op", "us", 1e-3, e)));
    let cpus = group.over_trials(background_cpus);
    out.extend(cpus.map(|e| figure(group, all, "background_cpus", "CPUs", 1.0, e)));
    let written = group.over_trials(background_written);
    out.extend(written.map(|e| figure(group, all, "background_written", "%", 100.0, e)));
}

/// Figures of the load phase of a database.
fn load_figures(group: &Group<'_>, out: &mut Vec<Figure>) {
    let mut add = |metric, unit, value: &dyn Fn(&stats::LoadRecord) -> Option<f64>| {
        let estimate = group.over_trials(|trial| trial.result.load.as_ref().and_then(value));
        out.extend(estimate.map(|e| figure(group, "load", metric, unit, 1.0, e)));
    };
    add("load_time", "s", &|load| Some(load.wall_ns as f64 / 1e9));
    add("db_size", "B", &|load| Some(load.db_bytes as f64));
    add("cpu_user", "s", &|load| Some(load.usage.cpu_user_ns as f64 / 1e9));
    add("cpu_sys", "s", &|load| Some(load.usage.cpu_system_ns as f64 / 1e9));
    add("cpu_ratio", "%", &|load| {
        Some(load.usage.cpu().get() as f64 / load.wall_ns.max(1) as f64 * 100.0)
    });
    add("ctx_switches_voluntary", "count", &|load| Some(load.usage.switches_voluntary as f64));
    add("ctx_switches_involuntary", "count", &|load| Some(load.usage.switches_involuntary as f64));
    add("fs_in", "blocks of 512 B", &|load| Some(load.usage.blocks_in as f64));
    add("fs_out", "blocks of 512 B", &|load| Some(load.usage.blocks_out as f64));
    add("faults_major", "count", &|load| Some(load.usage.faults_major as f64));
    let mut per_record = |metric, unit, value: &dyn Fn(&stats::LoadRecord) -> Option<f64>| {
        let of = |load: &stats::LoadRecord| {
            (load.records > 0).then(|| Some(value(load)? / load.records as f64)).flatten()
        };
        add(metric, unit, &of);
    };
    let blocks = "blocks of 512 B";
    per_record("blocks_out_per_record", blocks, &|load| Some(load.usage.blocks_out as f64));
    per_record("blocks_in_per_record", blocks, &|load| Some(load.usage.blocks_in as f64));
    per_record("switches_per_record", "count", &|load| Some(load.usage.switches_voluntary as f64));
    per_record("db_bytes_per_record", "B", &|load| Some(load.db_bytes as f64));
    let written = |load: &stats::LoadRecord| Some(load.disk.as_ref()?.write_bytes as f64);
    per_record("device_bytes_per_record", "B", &written);
    add("write_amplification", "x", &|load| {
        (load.user_bytes > 0).then(|| Some(written(load)? / load.user_bytes as f64)).flatten()
    });
}

/// Totals reported by a database.
const TOTALS: [(&str, &str); 4] =
    [("stall_time", "s"), ("ingest_bytes", "B"), ("flush_bytes", "B"), ("compaction_bytes", "B")];

/// Times of single operations reported by a database, in seconds.
const OP_TIMES: [&str; 7] = [
    "get_time", "get_block_read_time", "put_time", "put_log_time", "put_memtable_time",
    "put_stall_time", "put_wait_time",
];

fn total_figures(group: &Group<'_>, out: &mut Vec<Figure>) {
    let mut add = |metric, unit, value: &dyn Fn(&TrialRecord) -> Option<f64>| {
        let estimate = group.over_trials(value);
        out.extend(estimate.map(|e| figure(group, Ops::All.word(), metric, unit, 1.0, e)));
    };
    for (metric, unit) in TOTALS {
        add(metric, unit, &|trial| trial.result.totals.get(metric).copied());
    }
    for metric in ["gets_timed", "puts_timed"] {
        add(metric, "count", &|trial| trial.result.totals.get(metric).copied());
    }
    for metric in OP_TIMES.into_iter().chain([stats::START_SKEW, stats::END_SKEW]) {
        add(metric, "us", &|trial| Some(trial.result.totals.get(metric)? * 1e6));
    }
    add("observe_overhead", "%", &|trial| {
        let clients: f64 = trial.result.client_times()?.iter().sum();
        Some(trial.result.totals.get(stats::OBSERVING_COST)? / clients.max(1e-9) * 100.0)
    });
    add("stall_share", "%", &|trial| Some(stalled_share(trial)? * 100.0));
    add("write_amplification", "x", &|trial| {
        let written = |i: &stats::Interval| i.tallies[OpClass::Write].counts.bytes;
        let user: u64 = trial.result.recording.intervals.iter().map(written).sum();
        let device = trial.result.disk.as_ref()?.write_bytes as f64;
        (user > 0 && trial.result.load.is_some()).then(|| device / user as f64)
    });
}

fn figure(
    group: &Group<'_>,
    ops: &str,
    metric: &'static str,
    unit: &'static str,
    scale: f64,
    estimate: Estimate,
) -> Figure {
    let first = group.first;
    let mut point = typed(&first.point);
    point.insert("op".into(), Value::from(ops));
    let stack = group.run.header.stacks.iter().find(|stack| stack.name == first.stack);
    let citation = (first.source == Source::Predicted).then(|| {
        let host = stack.and_then(|s| s.host_model.clone()).unwrap_or_default();
        let device = stack.map(|s| s.device.clone()).unwrap_or_default();
        format!("device profile {device}; host path {host}")
    });
    let worth = group.worth(metric);
    // For an emulated trial: emulation accuracy, the worst of its repetitions.
    let attached = group.trials.iter().filter(|trial| !trial.result.is_simulated());
    let served = attached.filter_map(|trial| trial.result.served);
    let off = |served: &stats::Served| served.difference().map_or(0.0, |(off, _)| off.abs());
    let served = served.max_by(|a, b| {
        (!a.is_faithful(), off(a))
            .partial_cmp(&(!b.is_faithful(), off(b)))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    let delivered = served.map(|served| format!("delivered vs modelled: {served}"));
    let cut = |trial: &&TrialRecord| trial.outcome != TrialOutcome::Complete;
    Figure {
        study: group.run.header.study.clone(),
        stack: first.stack.clone(),
        engine: first.engine.clone(),
        workload: first.experiment.clone(),
        point,
        defaults: group.defaults(),
        job: (!first.job.is_empty()).then(|| first.job.clone()),
        metric: metric.into(),
        unit: unit.into(),
        value: significant(estimate.value * scale),
        lo: estimate.lo.map(|value| significant(value * scale)),
        hi: estimate.hi.map(|value| significant(value * scale)),
        interval: estimate.basis.map(stats::estimate::Basis::word),
        at_least: estimate.at_least,
        n: estimate.n,
        source: first.source,
        run: group.run.name.clone(),
        citation,
        validation: worth.map(|worth| worth.text()).or(delivered),
        worth,
        spoiled: group.trials.iter().filter_map(|trial| crate::doubts::misleads(trial)).min(),
        others: group.others(),
        moved: group.trials.iter().map(|trial| crate::doubts::moved_by(trial)).fold(1.0, f64::max),
        partial: group.trials.iter().any(cut),
    }
}

/// Rounds to six significant digits.
fn significant(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let digits = 5 - value.abs().log10().floor() as i32;
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_digits_are_kept() {
        assert_eq!(significant(123_456_789.0), 123_457_000.0);
        assert_eq!(significant(0.001_234_567_8), 0.001_234_57);
        assert_eq!(significant(0.0), 0.0);
    }
}
