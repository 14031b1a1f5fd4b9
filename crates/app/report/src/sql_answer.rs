//! The answer of SQL trials in words.
//!
//! Invariant: says nothing that the run did not measure. What it is not: advice.

use archive::Run;
use units::{Nanos, human_count};
use workload::OpClass;

use crate::chart::short;
use crate::drives::engine_title;
use analysis::cliffs;
use analysis::sql::races;
use analysis::{Group, Ops, groups, is_sql};

/// Cliffs that are told one by one.
const CLIFFS_TOLD: usize = 3;
/// Stacks whose best is told.
const STACKS_TOLD: usize = 6;

/// All of it, most important first; `each_stack`: also what each did at best.
pub(crate) fn sql_sentences(run: &Run, each_stack: bool) -> Vec<String> {
    let mut out: Vec<String> = race_sentences(run);
    if each_stack {
        out.extend(best_sentences(run));
    }
    out.extend(cliff_sentence(run));
    out
}

fn title<'a>(run: &'a Run, stack: &'a str) -> &'a str {
    let found = run.header.stacks.iter().find(|one| one.name == stack);
    found.map_or(stack, |one| short(&one.title))
}

fn race_sentences(run: &Run) -> Vec<String> {
    let source = |stack: &&str| {
        let found = run.trials.iter().find(|trial| trial.stack == **stack);
        found.map_or("measured", |trial| trial.source.word())
    };
    let sources = |stacks: &[&str]| {
        let mut words: Vec<&str> = stacks.iter().map(source).collect();
        words.dedup();
        format!("; {}", words.join(" and "))
    };
    let of = |race: &analysis::sql::Race<'_>| {
        let mut times: Vec<(&str, f64)> = race
            .racers
            .iter()
            .map(|(stack, times)| (*stack, times.iter().sum::<f64>() / times.len() as f64))
            .collect();
        times.sort_by(|a, b| a.1.total_cmp(&b.1));
        let ((first, fastest), (last, slowest)) = (times.first().copied()?, times.last().copied()?);
        Some(format!(
            "The race over {} transactions: {} took {fastest:.0} s, {} {slowest:.0} s: {:.1} times as long \
             (both at once{}).",
            human_count(race.transactions),
            title(run, first),
            title(run, last),
            slowest / fastest.max(1e-9),
            sources(&[first, last])
        ))
    };
    races(run).iter().filter_map(of).collect()
}

/// Of each stack, the point with the most transactions a second.
fn best_sentences(run: &Run) -> Vec<String> {
    const WHOLE: Ops = Ops::Only(OpClass::Transaction);
    let mut best: Vec<(String, f64, Group<'_>)> = Vec::new();
    let whole = |group: &Group<'_>| is_sql(group.first) && group.is_sound();
    for group in groups(run).into_iter().filter(whole) {
        let Some(rate) = group.rate(WHOLE) else { continue };
        let workload = group.first.point.get("workload").cloned().unwrap_or_default();
        let key = format!("{} {} {workload}", group.first.engine, group.first.stack);
        match best.iter_mut().find(|(other, ..)| *other == key) {
            Some(entry) if entry.1 >= rate.value => {}
            Some(entry) => *entry = (key, rate.value, group),
            None => best.push((key, rate.value, group)),
        }
    }
    best.truncate(STACKS_TOLD);
    let sentence = |(_, rate, group): &(String, f64, Group<'_>)| {
        let of = |name: &str| group.first.point.get(name).cloned().unwrap_or_default();
        let slow = group.percentile(WHOLE, 99.0).map_or_else(
            |_| String::new(),
            |slow| format!(", 1 in 100 over {}", Nanos(slow.value as u64)),
        );
        let engine = engine_title(group);
        let setting =
            |name: &str| group.first.result.settings.get(name).cloned().unwrap_or_default();
        let (place, pool, durable) = match group.first.point.get("buffer_pool") {
            Some(pool) => (
                short(group.stack_title()).to_owned(),
                format!("a buffer pool of {pool}"),
                format!("durability {}", of("durability")),
            ),
            None => (
                "your own server".to_owned(),
                setting("innodb_buffer_pool_size").parse().map_or_else(
                    |_| "the server's buffer pool".to_owned(),
                    |bytes| format!("the server's buffer pool of {}", units::Bytes(bytes)),
                ),
                match setting("innodb_flush_log_at_trx_commit").as_str() {
                    "" => "the server's durability".to_owned(),
                    value => format!("innodb_flush_log_at_trx_commit = {value}"),
                },
            ),
        };
        format!(
            "{engine} on {place}, {} with {} connections and {pool}: {} transactions/s{slow} \
             ({durable}, {}).",
            of("workload").replace('_', "-"),
            of("threads"),
            human_count(*rate),
            group.first.source,
        )
    };
    best.iter().map(sentence).collect()
}

fn cliff_sentence(run: &Run) -> Option<String> {
    let told = cliffs::told(run);
    if told.is_empty() {
        return None;
    }
    let one = |cliff: &cliffs::Told| {
        let cause = if cliff.cause.is_empty() {
            "nothing that is counted shows why".to_owned()
        } else {
            cliff.cause.clone()
        };
        format!("{} at {:.0} s {}: {cause}", title(run, &cliff.stack), cliff.at, cliff.change)
    };
    let shown: Vec<String> = told.iter().take(CLIFFS_TOLD).map(one).collect();
    let more = told.len().saturating_sub(CLIFFS_TOLD);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    Some(format!("Cliffs, where the rate changed for good: {}{more}.", shown.join("; ")))
}
