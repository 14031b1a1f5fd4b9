//! How often `compare` is wrong, or finds what was planted, on trials that really ran: the repetitions of a
//! run with two stacks are cut into sets, and each set is compared by itself.
//!
//! Invariant: sets do not overlap, and keep their places in the order of running.

use std::collections::BTreeMap;
use std::path::Path;

use analysis::compared::{Question, Verdict, stacks};
use archive::Run;

/// What came of one figure over all sets.
#[derive(Default)]
struct Tally {
    better: usize,
    worse: usize,
    equal: usize,
    open: usize,
    ratios: Vec<f64>,
    finds: Vec<f64>,
}

/// Prints how the second stack came out next to the first in each set of `pairs` repetitions.
pub fn table(path: &Path, pairs: u32, margin: f64) -> Result<(), String> {
    let run = Run::read(path, engines::list()).map_err(|error| error.to_string())?;
    let names: Vec<&str> = run.header.stacks.iter().map(|stack| stack.name.as_str()).collect();
    let [first, second] = names[..] else { return Err("a run with two stacks is needed".into()) };
    let most = run.trials.iter().map(|trial| trial.repetition).max().unwrap_or(0);
    let question = Question { margin, ..Question::default() };
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    let (mut sets, mut alarmed) = (0, 0);
    for set in 0..most / pairs {
        let own = set * pairs + 1..=(set + 1) * pairs;
        let mut part = run.clone();
        part.trials.retain(|trial| own.contains(&trial.repetition));
        let compared =
            stacks(&part, [first, second], &question).map_err(|refused| format!("{refused:?}"))?;
        sets += 1;
        alarmed +=
            usize::from(compared.count(Verdict::Worse) + compared.count(Verdict::Better) > 0);
        for row in &compared.rows {
            let name = format!("{} {} {} {}", row.experiment, row.engine, row.ops, row.metric);
            let tally = tallies.entry(name).or_default();
            match row.verdict {
                Verdict::Better => tally.better += 1,
                Verdict::Worse => tally.worse += 1,
                Verdict::Equal => tally.equal += 1,
                Verdict::Open => tally.open += 1,
            }
            tally.ratios.extend(row.difference.map(|one| one.ratio));
            tally.finds.extend(row.difference.map(|one| one.finds()));
        }
    }
    println!(
        "{sets} sets of {pairs} pairs, {second} next to {first}: {alarmed} with a better or worse"
    );
    println!(
        "| figure | better | worse | equal | open | median ratio | median of what a set finds |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (name, mut tally) in tallies {
        println!(
            "| {name} | {} | {} | {} | {} | {:.3} | {:.1} % |",
            tally.better,
            tally.worse,
            tally.equal,
            tally.open,
            median(&mut tally.ratios),
            median(&mut tally.finds) * 100.0
        );
    }
    Ok(())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
