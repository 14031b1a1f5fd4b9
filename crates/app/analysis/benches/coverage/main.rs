//! How often the intervals of `stats::estimate` cover, and how often `stats::cliffs` finds a cliff where
//! there is none, by simulation: the tables of `docs/COVERAGE.md`.
//!
//! Invariants: the same seeds give the same tables; the truth of each series is known, not estimated.

mod comparing;

use std::fmt::Write;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use stats::cliffs::{Course, course};
use stats::estimate::{
    Estimate, beyond, over_repetitions, percentile, percentile_within, ratio_within,
};

/// Simulated series per cell of the table.
const RUNS: u64 = 1000;
/// Simulated comparisons with repetitions; each repetition is a run.
const REPEATED: u64 = 500;

/// Random draws of a simulation.
pub(crate) struct Random(Xoshiro256PlusPlus);

impl Random {
    pub(crate) fn of(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    fn uniform(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Standard normal (Box and Muller).
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

/// Rates of the consecutive parts of one run.
struct Series {
    name: &'static str,
    /// `(random, parts) -> rates`; their long-run mean is 1.
    make: fn(&mut Random, usize) -> Vec<f64>,
}

/// First-order autoregressive noise with a standard deviation of 10 %.
fn alike(random: &mut Random, parts: usize, memory: f64) -> Vec<f64> {
    let fresh = (1.0 - memory * memory).sqrt();
    let mut last = random.normal();
    let mut next = || {
        let value = 1.0 + 0.1 * last;
        last = memory * last + fresh * random.normal();
        value
    };
    (0..parts).map(|_| next()).collect()
}

fn noise(random: &mut Random, parts: usize) -> Vec<f64> {
    alike(random, parts, 0.0)
}

/// Noise of 10 % times `shape`, a function of the elapsed share of the run with mean 1.
fn shaped(random: &mut Random, parts: usize, shape: impl Fn(f64) -> f64) -> Vec<f64> {
    let base = noise(random, parts);
    let at = |part: usize| (part as f64 + 0.5) / parts as f64;
    base.into_iter().enumerate().map(|(part, value)| value * shape(at(part))).collect()
}

/// Drops that last several parts and cover a fifth of the time: 4 parts long on average, or periodic if
/// `beat`.
fn bursts(random: &mut Random, parts: usize, beat: bool) -> Vec<f64> {
    let mut low = random.uniform() < 0.2;
    let shift = (random.uniform() * 20.0) as usize;
    (0..parts)
        .map(|part| {
            low = if beat {
                (part + shift) % 20 < 4
            } else if low {
                random.uniform() >= 0.25
            } else {
                random.uniform() < 0.0625
            };
            let level = if low { 0.4 } else { 1.15 };
            level * (1.0 + 0.1 * random.normal())
        })
        .collect()
}

const SERIES: [Series; 9] = [
    Series { name: "independent", make: noise },
    Series { name: "neighbours alike, 0.3", make: |r, n| alike(r, n, 0.3) },
    Series { name: "neighbours alike, 0.6", make: |r, n| alike(r, n, 0.6) },
    Series { name: "neighbours alike, 0.9", make: |r, n| alike(r, n, 0.9) },
    Series { name: "bursts to 40 %, at random", make: |r, n| bursts(r, n, false) },
    Series { name: "bursts to 40 %, by the beat", make: |r, n| bursts(r, n, true) },
    Series { name: "falling by 10 %", make: |r, n| shaped(r, n, |x| 1.05 - 0.1 * x) },
    Series { name: "falling by half", make: |r, n| shaped(r, n, |x| 1.25 - 0.5 * x) },
    Series {
        name: "a slow wave of 20 %",
        make: |r, n| shaped(r, n, |x| 1.0 + 0.2 * (x * std::f64::consts::TAU).sin()),
    },
];

/// Number of series that got an interval, and of those whose interval covers the true value.
#[derive(Default)]
struct Tally {
    all: u64,
    given: u64,
    covered: u64,
}

impl Tally {
    fn note(&mut self, estimate: Option<Estimate>, truth: f64) {
        self.all += 1;
        let Some((lo, hi)) = estimate.and_then(|one| one.lo.zip(one.hi)) else { return };
        self.given += 1;
        self.covered += u64::from(lo <= truth && truth <= hi);
    }

    /// Coverage in percent, with the share of series without an interval and the share of all series whose
    /// interval misses: `95.1 (2 refused, 4.8 wrong)`.
    fn text(&self) -> String {
        let percent = |part: u64, of: u64| part as f64 * 100.0 / of.max(1) as f64;
        let refused = percent(self.all - self.given, self.all);
        let wrong = percent(self.given - self.covered, self.all);
        match self.given {
            0 => "all refused".to_owned(),
            _ => format!(
                "{:.1} ({refused:.0} refused, {wrong:.1} wrong)",
                percent(self.covered, self.given)
            ),
        }
    }
}

fn main() {
    let mut out = String::from(
        "# Error rates of the statistics\n\nBy simulation; seeds are the numbers of the series. Generated: \
         `cargo bench --quiet -p crosspoint-analysis --bench coverage >docs/COVERAGE.md`. Formulas: \
         [METHODOLOGY.md](METHODOLOGY.md).\n",
    );
    within(&mut out);
    within_percentiles(&mut out);
    repeated(&mut out);
    alarms(&mut out);
    power(&mut out);
    comparing::table(&mut out);
    print!("{out}");
}

fn within(out: &mut String) {
    let _ = writeln!(
        out,
        "\nRate within one run, 95 % intervals: covered, % of those given (of all runs, % that were refused \
         one, and % that were given one that does not cover). With fewer than 60 parts none is given.\n"
    );
    let lengths = [60, 120, 240];
    let _ = writeln!(out, "| series | 60 parts | 120 parts | 240 parts |\n|---|---|---|---|");
    for series in &SERIES {
        let cells: Vec<String> = lengths
            .iter()
            .map(|parts| {
                let mut tally = Tally::default();
                for seed in 0..RUNS {
                    let rates = (series.make)(&mut Random::of(seed), *parts);
                    let pairs: Vec<(f64, f64)> = rates.iter().map(|rate| (*rate, 1.0)).collect();
                    tally.note(ratio_within(&pairs), 1.0);
                }
                tally.text()
            })
            .collect();
        let _ = writeln!(out, "| {} | {} |", series.name, cells.join(" | "));
    }
}

/// Latency around 100 us with a log-normal spread; slow episodes multiply it by 5, one operation in fifty.
fn latencies(random: &mut Random, ops: usize, episode: f64) -> Vec<u64> {
    let mut slow = random.uniform() < SLOW;
    let leave = 1.0 / episode;
    let enter = leave * SLOW / (1.0 - SLOW);
    (0..ops)
        .map(|_| {
            slow = if slow { random.uniform() >= leave } else { random.uniform() < enter };
            let base = 100_000.0 * (0.2 * random.normal()).exp();
            (if slow { base * 5.0 } else { base }) as u64
        })
        .collect()
}

/// Share of operations in slow episodes.
const SLOW: f64 = 0.02;

fn within_percentiles(out: &mut String) {
    const OPS: usize = 20_000;
    const PARTS: usize = 120;
    let wanted = [50.0, 90.0, 99.0, 99.9];
    let _ = writeln!(
        out,
        "\nMean latency and percentiles within one run of 20 000 operations in 120 parts, likewise. One \
         operation in fifty is five times as slow, in episodes.\n"
    );
    let _ = writeln!(
        out,
        "| slow episodes of, on average | mean | p50 | p90 | p99 | p99.9 |\n|---|---|---|---|---|---|"
    );
    for episode in [1.0, 10.0, 30.0] {
        // The truth from one long series.
        let mut long = stats::new_histogram();
        let mut random = Random::of(999);
        latencies(&mut random, 4_000_000, episode)
            .iter()
            .for_each(|time| long.saturating_record(*time));
        let truth = wanted.map(|p| long.value_at_quantile(p / 100.0) as f64);
        let of_mean = long.mean();
        let mut tallies: [Tally; 5] = Default::default();
        for seed in 0..REPEATED {
            let times = latencies(&mut Random::of(seed), OPS, episode);
            let histogram = |part: &[u64]| {
                let mut made = stats::new_histogram();
                part.iter().for_each(|time| made.saturating_record(*time));
                made
            };
            let whole = histogram(&times);
            let parts: Vec<_> = times.chunks(OPS.div_ceil(PARTS)).map(histogram).collect();
            let sums: Vec<(f64, f64)> = times
                .chunks(OPS.div_ceil(PARTS))
                .map(|part| (part.iter().sum::<u64>() as f64, part.len() as f64))
                .collect();
            tallies[0].note(ratio_within(&sums), of_mean);
            for ((p, truth), tally) in wanted.into_iter().zip(truth).zip(&mut tallies[1..]) {
                let made = percentile(&whole, 0, p).ok();
                let estimate = made.map(|made| {
                    let shares: Vec<_> =
                        parts.iter().map(|part| beyond(part, made.value)).collect();
                    percentile_within(made, (&whole, 0), &shares, p)
                });
                tally.note(estimate, truth);
            }
        }
        let cells = tallies.map(|tally| tally.text());
        let _ = writeln!(out, "| {episode:.0} | {} |", cells.join(" | "));
    }
}

/// Rate and percentiles of a run whose level is shifted by a normal draw with standard deviation `spread`.
fn run_of(random: &mut Random, spread: f64) -> [f64; 3] {
    let level = (spread * random.normal() - spread * spread / 2.0).exp();
    let mut histogram = stats::new_histogram();
    for _ in 0..2000 {
        let time = 100_000.0 / level * (0.3 * random.normal()).exp();
        histogram.saturating_record(time as u64);
    }
    let parts: f64 = noise(random, 40).iter().sum::<f64>() / 40.0;
    let at = |q: f64| histogram.value_at_quantile(q) as f64;
    [level * parts, at(0.5), at(0.99)]
}

fn repeated(out: &mut String) {
    let _ = writeln!(
        out,
        "\nBetween repetitions, 95 % intervals (t on logarithms): covered, %. Runs differ by a log-normal \
         factor.\n"
    );
    let _ = writeln!(out, "| repetitions | run to run | rate | p50 | p99 |\n|---|---|---|---|---|");
    // z of 99 % is 2.326.
    let truth = [1.0, 100_000.0, 100_000.0 * (0.3f64 * 2.326_348).exp()];
    for repetitions in [3, 5, 10] {
        for spread in [0.01, 0.03, 0.05, 0.10] {
            let mut tallies = [Tally::default(), Tally::default(), Tally::default()];
            for seed in 0..REPEATED {
                let mut random = Random::of(seed);
                let runs: Vec<[f64; 3]> =
                    (0..repetitions).map(|_| run_of(&mut random, spread)).collect();
                for (place, tally) in tallies.iter_mut().enumerate() {
                    let values = runs.iter().map(|run| Estimate::of(run[place], 1));
                    let shifted =
                        truth[place] * (spread * spread / 2.0 * [-1.0, 1.0, 1.0][place]).exp();
                    tally.note(over_repetitions(&values.collect::<Vec<_>>()), shifted);
                }
            }
            let cells = tallies
                .map(|tally| format!("{:.0}", tally.covered as f64 * 100.0 / tally.given as f64));
            let _ = writeln!(
                out,
                "| {repetitions} | {:.0} % | {} |",
                spread * 100.0,
                cells.join(" | ")
            );
        }
    }
    let _ = writeln!(
        out,
        "\nOne run has an interval within it (above), two have their range. Runs of two kinds \
         are covered by none: one in ten slow by 30 % (3, 5, 10 repetitions: {}), one in two ({}).",
        [3, 5, 10].map(|n| two_kinds(n, 0.1)).join(", "),
        [3, 5, 10].map(|n| two_kinds(n, 0.5)).join(", ")
    );
}

/// Coverage where a share of the runs is 30 % slower.
fn two_kinds(repetitions: usize, share: f64) -> String {
    let mut tally = Tally::default();
    for seed in 0..REPEATED {
        let mut random = Random::of(seed);
        let mut run = || {
            let slow = if random.uniform() < share { 0.7 } else { 1.0 };
            Estimate::of(slow * (1.0 + 0.01 * random.normal()), 1)
        };
        let runs: Vec<Estimate> = (0..repetitions).map(|_| run()).collect();
        tally.note(over_repetitions(&runs), 1.0 - 0.3 * share);
    }
    format!("{:.0} %", tally.covered as f64 * 100.0 / tally.given.max(1) as f64)
}

fn alarms(out: &mut String) {
    let _ = writeln!(out, "\nSeries without a cliff that were given one, % of {RUNS}.\n");
    let _ = writeln!(out, "| series | 40 points | 120 points | 400 points |\n|---|---|---|---|");
    let more: [Series; 6] = [
        Series {
            name: "bursts to 40 % of 12 parts, at random",
            make: |r, n| {
                let mut low = false;
                let mut next = |_| {
                    low = if low { r.uniform() >= 1.0 / 12.0 } else { r.uniform() < 1.0 / 48.0 };
                    (if low { 0.4 } else { 1.15 }) * (1.0 + 0.1 * r.normal())
                };
                (0..n).map(&mut next).collect()
            },
        },
        Series {
            name: "warming up by half",
            make: |r, n| shaped(r, n, |x| 1.0 - 0.5 * (-x * 8.0).exp()),
        },
        Series { name: "falling by a fifth", make: |r, n| shaped(r, n, |x| 1.1 - 0.2 * x) },
        Series {
            name: "a wave of 20 %, three periods",
            make: |r, n| shaped(r, n, |x| 1.0 + 0.2 * (x * 3.0 * std::f64::consts::TAU).sin()),
        },
        Series {
            name: "checkpoints to half, 4 of 20 points",
            make: |r, n| {
                let base = noise(r, n).into_iter().enumerate();
                base.map(|(at, value)| if at % 20 < 4 { value * 0.5 } else { value }).collect()
            },
        },
        Series {
            name: "random walk of 1 % a point",
            make: |r, n| {
                let mut level = 0.0;
                (0..n)
                    .map(|_| {
                        level += 0.01 * r.normal();
                        1.0 + level + 0.05 * r.normal()
                    })
                    .collect()
            },
        },
    ];
    let lengths = [40, 120, 400];
    for series in SERIES.iter().chain(&more) {
        let cells: Vec<String> = lengths
            .iter()
            .map(|points| {
                let alarm = |seed: &u64| {
                    let made = (series.make)(&mut Random::of(*seed), *points);
                    matches!(course(&made), Course::Cliffs(_))
                };
                format!("{:.1}", (0..RUNS).filter(alarm).count() as f64 * 100.0 / RUNS as f64)
            })
            .collect();
        let _ = writeln!(out, "| {} | {} |", series.name, cells.join(" | "));
    }
}

/// Share of planted performance drops that are found.
fn power(out: &mut String) {
    let _ = writeln!(
        out,
        "\nPlanted cliffs that were found within 5 points, % of {REPEATED}, 120 points.\n"
    );
    let _ = writeln!(
        out,
        "| noise | -12 % mid | -20 % mid | -50 % mid | -50 % at nine tenths |\n|---|---|---|---|---|"
    );
    for (name, spread, memory) in
        [("5 %", 0.5, 0.0), ("10 %, alike 0.4", 1.0, 0.4), ("20 %, alike 0.6", 2.0, 0.6)]
    {
        let cells = [(60, 0.88), (60, 0.8), (60, 0.5), (108, 0.5)].map(|(at, level)| {
            let found = |seed: &u64| {
                let mut made = alike(&mut Random::of(*seed), 120, memory);
                for (place, value) in made.iter_mut().enumerate() {
                    *value = 1.0 + (*value - 1.0) * spread;
                    if place >= at {
                        *value *= level;
                    }
                }
                course(&made).cliffs().iter().any(|cliff| cliff.at.abs_diff(at) <= 5)
            };
            format!("{:.0}", (0..REPEATED).filter(found).count() as f64 * 100.0 / REPEATED as f64)
        });
        let _ = writeln!(out, "| {name} | {} |", cells.join(" | "));
    }
}
