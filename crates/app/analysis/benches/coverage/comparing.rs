//! How often `stats::compare` is wrong about equal systems, and how often it finds a planted difference, by
//! simulation in the order in which plans run: a table of `docs/COVERAGE.md`.
//!
//! Invariants: the same seeds give the same table; orders are those of `study::plan`.

use std::fmt::Write;

use stats::compare::{Finding, Placed, findings, paired};

use crate::Random;

/// Comparisons per cell of the table.
const COMPARISONS: u64 = 1000;
/// The planted difference; also the equivalence margin.
const MARGIN: f64 = 0.05;

/// A host effect: a factor by the elapsed share of the run and the position in the schedule.
struct Host {
    name: &'static str,
    effect: fn(f64, u32) -> f64,
}

const HOSTS: [Host; 4] = [
    Host { name: "steady", effect: |_, _| 0.0 },
    Host { name: "a fifth slower by and by", effect: |share, _| -0.2 * share },
    Host {
        name: "every fourth trial a tenth slower",
        effect: |_, place| if place % 4 == 3 { -0.1 } else { 0.0 },
    },
    Host {
        name: "a tenth slower from the middle on",
        effect: |share, _| if share >= 0.5 { -0.1 } else { 0.0 },
    },
];

/// Positions of both systems in each pair, as the schedule orders them.
fn places(pairs: u64, seed: u64) -> Vec<[u32; 2]> {
    let text = format!(
        "schema = 2\nname = \"order\"\nseed = {seed}\n[[stack]]\nname = \"a\"\ndevice = \"file\"\n\
         [[stack]]\nname = \"b\"\ndevice = \"file\"\n[[experiment]]\nname = \"e\"\nrepeat = {pairs}\n\
         [experiment.job]\nengine = \"block\"\n"
    );
    let plan = study::parse(&text, study::Engines::ANY)
        .map(|study| study::plan(&study).trials)
        .unwrap_or_default();
    let of = |stack: &str| -> Vec<u32> {
        plan.iter().filter(|trial| trial.stack == stack).map(|trial| trial.number - 1).collect()
    };
    of("a").into_iter().zip(of("b")).map(|(a, b)| [a, b]).collect()
}

/// One comparison of two systems whose true ratio is `ratio`.
fn compared(
    random: &mut Random,
    places: &[[u32; 2]],
    spread: f64,
    host: &Host,
    ratio: f64,
) -> Finding {
    let all = places.len() as f64 * 2.0;
    let mut value = |place: u32, of: f64| {
        let effect = (host.effect)(f64::from(place) / all, place);
        Placed { place, value: of * (effect + spread * random.normal()).exp() }
    };
    let pairs: Vec<(Placed, Placed)> =
        places.iter().map(|[a, b]| (value(*a, 1.0), value(*b, ratio))).collect();
    paired(&pairs).map_or(Finding::Open, |one| findings(&[one], MARGIN)[0])
}

pub fn table(out: &mut String) {
    let _ = writeln!(
        out,
        "\nComparison of two systems that took turns, one figure, margin 5 %, of {COMPARISONS} each: % in \
         which equal systems were called better or worse / called equal, and in which one that is 5 % \
         slower was called worse / called equal. What a verdict speaks of begins at 1 %.\n\n\
         | run to run | pairs | {} |\n|---|---|{}",
        HOSTS.map(|host| host.name).join(" | "),
        "---|".repeat(HOSTS.len())
    );
    for spread in [0.01, 0.03, 0.1] {
        for pairs in [3, 5, 10, 20] {
            let _ = write!(out, "| {:.0} % | {pairs} |", spread * 100.0);
            for host in &HOSTS {
                let share = |ratio: f64, found: &[Finding]| {
                    let hits = (0..COMPARISONS).filter(|seed| {
                        let mut random = Random::of(*seed);
                        let places = places(pairs, *seed + 1);
                        found.contains(&compared(&mut random, &places, spread, host, ratio))
                    });
                    hits.count() as f64 / COMPARISONS as f64 * 100.0
                };
                let _ = write!(
                    out,
                    " {:.1} / {:.0}, {:.0} / {:.1} |",
                    share(1.0, &[Finding::Larger, Finding::Smaller]),
                    share(1.0, &[Finding::Equal]),
                    share(1.0 / (1.0 + MARGIN), &[Finding::Smaller]),
                    share(1.0 / (1.0 + MARGIN), &[Finding::Equal])
                );
            }
            out.push('\n');
        }
    }
    out.push('\n');
}
