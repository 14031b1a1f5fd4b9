//! Verdicts of `check` and `advise` in words: the first sentence, and lines for a terminal.

use analysis::decision::decisions;
use analysis::fitness::{Fitness, FitnessCheck, fitness};
use analysis::suitability::{Candidate, Ranged, Shortlist, Suitability, price_of, shortlist};
use archive::Run;
use units::{Nanos, human_count};

use crate::decision_view::limited_words;
use crate::finding::Finding;
use crate::table::aligned;
use crate::words::storage_words;

/// The checks of a run, one line each; empty if it is not one of `check`.
#[must_use]
pub fn check_lines(run: &Run) -> Vec<String> {
    let line =
        |one: &FitnessCheck| [one.verdict.word().to_owned(), one.name.to_owned(), one.text.clone()];
    aligned(&fitness(run).iter().map(line).collect::<Vec<_>>())
}

/// The worst verdict first, then one sentence per check.
pub(crate) fn fitness_findings(run: &Run) -> Vec<Finding> {
    let all = fitness(run);
    let Some(worst) = all.iter().map(|one| one.verdict).max() else { return Vec::new() };
    let title = run.header.stacks.first().map_or("", |stack| stack.title.as_str());
    let names: Vec<&str> =
        all.iter().filter(|one| one.verdict == worst).map(|one| one.name).collect();
    let storage = storage_words(title);
    let first = match worst {
        Fitness::Fit => format!("{storage} is fit for a database: all {} checks pass.", all.len()),
        Fitness::Doubtful => format!(
            "{storage} may be fit for a database, depending on {} ({} of {} checks pass).",
            names.join(" and "),
            all.iter().filter(|one| one.verdict == Fitness::Fit).count(),
            all.len()
        ),
        Fitness::Unfit => format!("{storage} is not fit for a database: {}.", names.join(" and ")),
    };
    let sentence = |one: &FitnessCheck| {
        Finding::Text(format!("{} ({}): {}.", capital(one.name), one.verdict.word(), one.text))
    };
    std::iter::once(Finding::Text(first)).chain(all.iter().map(sentence)).collect()
}

fn capital(text: &str) -> String {
    let (first, rest) = text.split_at(text.chars().next().map_or(0, char::len_utf8));
    format!("{}{rest}", first.to_uppercase())
}

/// The shortlist of a run as a table; empty if it is not one of `advise`.
#[must_use]
pub fn shortlist_lines(run: &Run) -> Vec<String> {
    let decided = decisions(run);
    let Some(list) = shortlist(run, &decided) else { return Vec::new() };
    let required = list.rate.is_some();
    let load = list.rate.map_or_else(String::new, |rate| format!("p99 at {rate}"));
    let priced = list.candidates.iter().any(|one| one.stack.price.is_some());
    let header = ["storage", "verdict", &load, "highest rate", "limited by", "price"];
    let row = |one: &Candidate<'_>| {
        let time = |value: f64| Nanos(value as u64).to_string();
        let rate = |value: f64| format!("{}/s", human_count(value));
        [
            crate::chart::short(one.title).to_owned(),
            one.verdict.words().to_owned(),
            match (one.kept, one.p99) {
                (_, Some(p99)) => ranged(p99, time),
                (Some(false), None) => "load not kept".into(),
                (Some(true), None) => "too few samples".into(),
                (None, None) => String::new(),
            },
            one.most.map_or_else(String::new, |most| ranged(most, rate)),
            one.limit.map_or_else(String::new, limited_words),
            one.stack.price.clone().unwrap_or_default(),
        ]
    };
    let rows = list.candidates.iter().map(row);
    let rows: Vec<Vec<String>> = std::iter::once(header.map(str::to_owned))
        .chain(rows)
        .map(|row| {
            let shown = |at: &usize| match at {
                1 | 2 => required,
                5 => priced,
                _ => true,
            };
            (0..row.len()).filter(shown).map(|at| row[at].clone()).collect()
        })
        .collect();
    aligned(&rows)
}

/// `1.2 ms (1.0 to 1.5 ms)`.
fn ranged(one: Ranged, text: impl Fn(f64) -> String) -> String {
    let [low, value, high] = [one.range.low, one.value, one.range.high].map(text);
    if low == high { value } else { format!("{value} ({low} to {high})") }
}

/// Which storage to take, and why.
pub(crate) fn suitability_findings(run: &Run) -> Vec<Finding> {
    let decided = decisions(run);
    let Some(list) = shortlist(run, &decided) else { return Vec::new() };
    let Some(best) = list.candidates.first() else { return Vec::new() };
    let text = if list.rate.is_some() { for_load(&list, best) } else { fastest(&list) };
    vec![Finding::Text(text)]
}

/// What is required: `200 transactions/s` and its p99.
fn requirement(list: &Shortlist<'_>) -> String {
    let rate = list.rate.map_or_else(String::new, |rate| {
        format!("{} {}", human_count(rate.get() as f64), list.counted)
    });
    match list.objective {
        Some(objective) => format!("{rate} with p99 \u{2264} {}", objective.at_most),
        None => rate,
    }
}

fn name(one: &Candidate<'_>) -> String {
    let title = storage_words(one.title);
    match &one.stack.price {
        Some(price) => format!("{title} ({price})"),
        None => title,
    }
}

fn for_load(list: &Shortlist<'_>, best: &Candidate<'_>) -> String {
    let need = requirement(list);
    let count = |verdict| list.candidates.iter().filter(|one| one.verdict == verdict).count();
    let enough = count(Suitability::Better) + count(Suitability::Enough);
    let all = list.candidates.len();
    if enough == 0 {
        let borderline = count(Suitability::Borderline);
        let most = list.candidates.iter().max_by(|a, b| {
            let rate = |one: &Candidate<'_>| one.most.map_or(0.0, |most| most.value);
            rate(a).total_cmp(&rate(b))
        });
        let most = most.and_then(|one| Some((name(one), one.most?.value)));
        let most = most.map_or_else(String::new, |(name, rate)| {
            format!("; the fastest, {name}, reaches {}/s", human_count(rate))
        });
        let unknown = count(Suitability::Unknown);
        return match borderline {
            0 if unknown > 0 => format!(
                "No candidate is known to be enough for {need}: {unknown} of {all} have no result{most}."
            ),
            0 => format!("None of {all} candidates is enough for {need}{most}."),
            _ => format!(
                "No candidate is surely enough for {need}: {borderline} of {all} are borderline, such as \
                 {}{most}.",
                name(best)
            ),
        };
    }
    // The cheapest, of those that are enough.
    let chosen = list
        .candidates
        .iter()
        .filter(|one| one.verdict <= Suitability::Enough)
        .min_by(|a, b| {
            let price = |one: &Candidate<'_>| price_of(one.stack).unwrap_or(f64::MAX);
            price(a).total_cmp(&price(b))
        })
        .unwrap_or(best);
    let p99 = chosen.p99.map_or_else(String::new, |p99| {
        format!(": p99 {}", ranged(p99, |value| Nanos(value as u64).to_string()))
    });
    let which = match chosen.stack.price {
        Some(_) => "the cheapest with a known price is",
        None => "one is",
    };
    let are = if enough == 1 { "is" } else { "are" };
    format!("{enough} of {all} candidates {are} enough for {need}; {which} {}{p99}.", name(chosen))
}

/// Without a requirement: the fastest, and those that are as good.
fn fastest(list: &Shortlist<'_>) -> String {
    let rate = |one: &Candidate<'_>| one.most.map_or(0.0, |most| most.value);
    let most = list.candidates.iter().max_by(|a, b| rate(a).total_cmp(&rate(b)));
    let Some(most) = most.filter(|one| one.most.is_some()) else {
        return "No storage has a result.".into();
    };
    let alike = |one: &&Candidate<'_>| rate(one) >= rate(most) * ALIKE;
    format!(
        "{} has the highest rate, {} {}; {} of {} others are within 5 % of it.",
        name(most),
        human_count(rate(most)),
        list.counted,
        list.candidates.iter().filter(alike).count() - 1,
        list.candidates.len() - 1
    )
}

/// Share of the highest rate from which on a storage is as good.
const ALIKE: f64 = 0.95;
