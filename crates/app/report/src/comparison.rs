//! One job on several stacks: the sentence that compares the best with the reference, and the second line.
//!
//! Invariant: unreliable results are not ranked.

use analysis::Group;
use analysis::decision::{Choice, Decision, DecisionMetric, LimitedBy, Reliability};
use analysis::doubts::{WarningKind, moved_by};
use analysis::gain::{Change, Gain};
use analysis::overall::overall;
use analysis::range::ValueRange;
use archive::Run;
use stats::estimate::Estimate;
use study::Source;
use units::{Nanos, human_count};
use workload::OpClass;

use crate::chart::short;
use crate::decision_view::{limited_words, times_number};
use crate::finding::{Finding, Order, Side};
use crate::words::{
    engine_title, experiment_title, point_words, storage_words, varied_words, with_clients,
};

/// Ratios closer to 1 than this give no headline.
const ABOUT: f64 = 0.05;

/// The finding of a decision, and the second line.
pub(crate) fn decision_finding(decision: &Decision<'_>) -> (Finding, String) {
    let here = decision.here();
    if decision.choices.len() == 1 {
        return (reached(decision, here), String::new());
    }
    let finding = match decision.best_other() {
        Some(best) if is_unreliable(here) => reached(decision, best),
        Some(best) => compared(decision, here, best),
        None => reached(decision, here),
    };
    (finding, second_line(decision))
}

/// A title without its capital, unless that is of a name: `Cold lookups`, but `MariaDB`.
fn within_sentence(title: &str) -> String {
    let (first, rest) = title.split_at(title.chars().next().map_or(0, char::len_utf8));
    let is_word = rest.starts_with(char::is_lowercase);
    let word = rest.split(' ').next().unwrap_or_default();
    match is_word && !word.contains(char::is_uppercase) {
        true => format!("{}{rest}", first.to_lowercase()),
        false => title.to_owned(),
    }
}

/// For the two storages of the first decision, if several jobs ran on both: the best over the reference in
/// each, ascending.
pub(crate) fn across(run: &Run, decisions: &[Decision<'_>]) -> Option<Finding> {
    let first = decisions.first()?;
    let best = first.best_other()?;
    let (here, other) = (&first.here().group.first.stack, &best.group.first.stack);
    let all = overall(run, here, other);
    let [(least, ..), .., (most, ..)] = all.ratios.as_slice() else { return None };
    let job = |(_, counted, place): &(f64, DecisionMetric, usize)| {
        let group = &all.groups[*place];
        let (subject, title) = (subject(group, *counted), experiment_title(group));
        let within = within_sentence(title);
        let noun = within.rsplit(' ').next().unwrap_or_default();
        match () {
            () if subject.to_lowercase().ends_with(&title.to_lowercase()) => subject,
            // `LMDB cold lookups`, not `LMDB lookups, cold lookups`.
            () if noun.len() < within.len() && subject.ends_with(&format!(" {noun}")) => {
                format!("{} {within}", subject[..subject.len() - noun.len()].trim_end())
            }
            () => format!("{subject}, {within}"),
        }
    };
    let ends = [&all.ratios[0], &all.ratios[all.ratios.len() - 1]];
    let [mut of_least, mut of_most] = ends.map(job);
    if of_least == of_most {
        // One job with several numbers of clients.
        let with = |(_, _, place): &(f64, DecisionMetric, usize)| with_clients(&all.groups[*place]);
        of_least = format!("{of_most} {}", with(ends[0]));
        of_most = format!("those {}", with(ends[1]));
    }
    Some(Finding::Across {
        best: title(best).to_owned(),
        here: place(first.here()),
        least: (*least, of_least),
        most: (*most, of_most),
    })
}

fn is_unreliable(choice: &Choice<'_>) -> bool {
    matches!(choice.standing, Reliability::Unreliable(_))
}

/// The value with its unit.
fn value(choice: &Choice<'_>, counted: DecisionMetric) -> String {
    let at_least = if choice.value.at_least { "at least " } else { "" };
    let time = Nanos(choice.value.value as u64);
    match counted {
        DecisionMetric::ReadTime => format!("{at_least}{time}"),
        DecisionMetric::TimeAtRate(_) => format!("p99 {at_least}{time}"),
        _ => format!("{at_least}{}/s", human_count(choice.value.value)),
    }
}

fn title<'a>(choice: &'a Choice<'_>) -> &'a str {
    short(choice.group.stack_title())
}

/// The title for use within a sentence: `this disk`.
fn place(choice: &Choice<'_>) -> String {
    storage_words(choice.group.stack_title())
}

fn side(choice: &Choice<'_>, counted: DecisionMetric) -> Side {
    Side::new(place(choice), value(choice, counted))
}

/// The subject of a sentence: `LMDB lookups with 4 readers`, `4 KiB random reads`.
pub(crate) fn subject(group: &Group<'_>, counted: DecisionMetric) -> String {
    let noun = match counted {
        DecisionMetric::Transactions | DecisionMetric::TimeAtRate(OpClass::Transaction) => {
            "transactions"
        }
        DecisionMetric::DurableUpdates => "durable updates",
        DecisionMetric::Lookups | DecisionMetric::TimeAtRate(OpClass::Read) => "lookups",
        DecisionMetric::Updates => "updates without fsync",
        DecisionMetric::TimeAtRate(_) => "updates",
        DecisionMetric::ReadTime => return point_words(group),
    };
    let of = |name: &str| group.first.point.get(name).map(String::as_str);
    let readers = of("clients").filter(|count| !["0", "1"].contains(count));
    let readers = match (counted, readers) {
        (DecisionMetric::Lookups, Some(count)) => format!(" with {count} readers"),
        _ => String::new(),
    };
    let rate = match counted {
        DecisionMetric::TimeAtRate(_) => of("rate").or_else(|| of("write_rate")),
        _ => None,
    };
    let rate = rate.map_or_else(String::new, |rate| format!(" at {rate}"));
    let options = varied_words(group);
    let options = if options.is_empty() { options } else { format!(" ({options})") };
    format!("{} {noun}{readers}{rate}{options}", engine_title(group))
}

/// Text of the bracket: n, the ratio's interval, and the source if not measured; also that of the reference
/// if it differs.
fn note(choice: &Choice<'_>, here: Option<&Choice<'_>>, interval: Option<String>) -> String {
    let runs = choice.group.trials.len();
    let other = here.map_or(runs, |here| here.group.trials.len());
    let count =
        if other == runs { format!("n = {runs}") } else { format!("n = {runs} vs {other}") };
    let mut words = vec![count];
    match (&choice.standing, choice.group.first.source) {
        (Reliability::Predicted(worth), _) => words = vec!["predicted".into(), worth.brief()],
        (_, Source::Emulated) => words.push("emulated".into()),
        _ => {}
    }
    if here.is_some_and(|here| {
        let source = here.group.first.source;
        source == Source::Emulated && source != choice.group.first.source
    }) {
        words.push("reference emulated".into());
    }
    if choice.group.time_scale() > 1 {
        words.push(format!("time-scaled {}x", choice.group.time_scale()));
    }
    let busy = |one: &Choice<'_>| one.doubts.contains(&WarningKind::BusyHost);
    if busy(choice) || here.is_some_and(busy) {
        words.push("busy host".into());
    }
    words.splice(0..0, interval);
    words.join(", ")
}

fn ratio_interval(range: ValueRange) -> String {
    format!("{} to {}x", times_number(range.low), times_number(range.high))
}

/// How a ratio is worded: by its range, else by its value.
fn order_of(ratio: Estimate, range: Option<ValueRange>) -> Order {
    let value = ratio.value;
    let (lo, hi) = range.map_or((value, value), |range| (range.low, range.high));
    match () {
        () if lo >= 1.0 - ABOUT && hi <= 1.0 + ABOUT => Order::Same,
        () if lo <= 1.0 && 1.0 <= hi => Order::Inconclusive,
        () if value > 1.0 => Order::Faster(value),
        () => Order::Slower(1.0 / value),
    }
}

/// Warnings that make the ratio of two stacks unreliable if both have one.
const GRAVE: [WarningKind; 5] = [
    WarningKind::Errors,
    WarningKind::LoadNotKept,
    WarningKind::BusyHost,
    WarningKind::InMemory,
    WarningKind::Unsteady,
];

/// Ratio from which on a storage is faster although results have grave warnings, unless operations failed.
const FAR: f64 = 1.5;

/// Whether grave warnings may explain the difference between two storages.
fn is_shaky(here: &Choice<'_>, best: &Choice<'_>) -> bool {
    let grave =
        |choice: &Choice<'_>| choice.doubts.iter().filter(|kind| GRAVE.contains(kind)).count() > 1;
    // What failed or came late may have taken any time.
    let failed = |choice: &Choice<'_>| {
        [WarningKind::Errors, WarningKind::LoadNotKept]
            .iter()
            .any(|kind| choice.doubts.contains(kind))
    };
    let apart = ratio_of(best).max(1.0 / ratio_of(best));
    (grave(here) || grave(best)) && (apart < FAR || failed(here) || failed(best))
}

/// Whether a single-run rate changed within its trial by as much as the two stacks differ.
fn moved_as_much(counted: DecisionMetric, here: &Choice<'_>, best: &Choice<'_>) -> bool {
    let apart = ratio_of(best).max(1.0 / ratio_of(best));
    let alone = best.ratio.and_then(|ratio| ratio.between_repetitions()).is_none();
    let moved = here.group.trials.iter().chain(&best.group.trials).map(|trial| moved_by(trial));
    counted.is_rate() && alone && apart > 1.0 + ABOUT && moved.fold(1.0, f64::max) >= apart
}

fn ratio_of(choice: &Choice<'_>) -> f64 {
    choice.ratio.map_or(1.0, |ratio| ratio.value)
}

fn compared(decision: &Decision<'_>, here: &Choice<'_>, best: &Choice<'_>) -> Finding {
    let counted = decision.counted;
    let shaky = is_shaky(here, best) || moved_as_much(counted, here, best);
    let order = match best.ratio {
        _ if shaky => Order::Inconclusive,
        ratio => ratio.map_or(Order::Same, |ratio| order_of(ratio, best.ratio_range)),
    };
    let range = best.ratio_range.map(|range| match order {
        Order::Slower(_) => ValueRange { low: 1.0 / range.high, high: 1.0 / range.low },
        _ => range,
    });
    Finding::Compared {
        subject: subject(&here.group, counted),
        best: side(best, counted),
        here: side(here, counted),
        order,
        note: note(best, Some(here), range.map(ratio_interval)),
    }
}

fn reached(decision: &Decision<'_>, choice: &Choice<'_>) -> Finding {
    let counted = decision.counted;
    let interval = choice.range.map(|ValueRange { low, high }| match counted.is_rate() {
        true => format!("{} to {}", human_count(low), human_count(high)),
        false => format!("{} to {}", Nanos(low as u64), Nanos(high as u64)),
    });
    Finding::Reached {
        subject: subject(&choice.group, counted),
        is_rate: counted.is_rate(),
        side: side(choice, counted),
        note: note(choice, None, interval),
    }
}

/// Values of all stacks by source, unreliable results, and the limit of the reference.
fn second_line(decision: &Decision<'_>) -> String {
    let mut parts = Vec::new();
    let here = place(decision.here());
    let free = decision.here().gains.iter().find(|gain| gain.change == Change::FreeDrive);
    if decision.here().limited != LimitedBy::Unknown {
        let ceiling = free.map_or_else(String::new, ceiling_words);
        parts.push(format!("Bottleneck on {here}: {}{ceiling}.", limited_words(decision.here())));
    }
    for source in [Source::Measured, Source::Emulated, Source::Predicted] {
        let own = decision.choices.iter().filter(|one| one.group.first.source == source);
        let reliable = own.filter(|one| !is_unreliable(one));
        let own: Vec<String> = reliable
            .map(|one| format!("{} on {}", value(one, decision.counted), place(one)))
            .collect();
        let word = source.word();
        let (first, rest) = word.split_at(1);
        if !own.is_empty() {
            parts.push(format!("{}{rest}: {}.", first.to_uppercase(), own.join(", ")));
        }
    }
    let unreliable: Vec<String> = decision
        .choices
        .iter()
        .filter_map(|one| match &one.standing {
            Reliability::Unreliable(why) => Some(format!("{} ({why})", title(one))),
            _ => None,
        })
        .collect();
    if !unreliable.is_empty() {
        parts.push(format!("Not reliable: {}.", unreliable.join(", ")));
    }
    let beyond = |best: &&Choice<'_>| free.is_some_and(|free| ratio_of(best) > free.high);
    if let Some(best) = decision.best_other().filter(beyond) {
        parts.push(format!(
            "{} gains more than an infinitely fast drive could here, so a part of it is its simulated host, \
             which is faster or less busy.",
            title(best)
        ));
    }
    parts.join(" ")
}

/// What a drive can still do: `; no drive can add more than 28 %`.
fn ceiling_words(free: &Gain) -> String {
    match free.high {
        high if high < ADDED_TOLD => {
            format!("; no drive can add more than {:.0} %", (high - 1.0).max(0.0) * 100.0)
        }
        high => format!("; an infinitely fast drive gives {:.1} to {high:.1}x", free.low),
    }
}

/// Gains below this are printed as added shares.
const ADDED_TOLD: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::times;
    use crate::stored::{self, DRIVES, at_depth_1, named};
    use analysis::decision::decisions;
    use archive::TrialRecord;
    use stats::estimate::over_values;

    /// Two LMDB jobs on two drives with opposite results, derived from a stored run.
    fn two_jobs() -> Run {
        let mut run = stored::run();
        let reads = at_depth_1(&run, "100%");
        let job = |name: &str, of: [&TrialRecord; 2]| -> Vec<TrialRecord> {
            of.into_iter()
                .zip(DRIVES)
                .map(|(one, stack)| named(one, ["lmdb", stack, name]))
                .collect()
        };
        run.trials = job("there", [&reads[0], &reads[1]]);
        run.trials.extend(job("back", [&reads[1], &reads[0]]));
        run
    }

    /// The headline must mention jobs with the opposite result.
    #[test]
    fn what_other_jobs_say_stands_beside_the_first() {
        let run = two_jobs();
        let all = decisions(&run);
        assert_eq!(all.len(), 2);
        let said = across(&run, &all).expect("both jobs ran on both drives").to_string();
        let (least, most) = (said.find("back").unwrap(), said.find("there").unwrap());
        assert!(said.contains(" delivers "), "{said}");
        let ratio = ratio_of(all[0].best_other().unwrap());
        let (lower, upper) = (ratio.min(1.0 / ratio), ratio.max(1.0 / ratio));
        assert!(lower < 0.8, "the drives differ: {lower}");
        assert!(said.contains(&times(lower)) && said.contains(&times(upper)), "{said}");
        assert_eq!(least < most, ratio > 1.0, "the job with the least stands first: {said}");
        let mut one = run.clone();
        one.trials.truncate(2);
        assert_eq!(across(&one, &decisions(&one)), None, "one job speaks for itself");
        // A job with two sets of parameters counts twice: the experiment alone does not identify a job.
        let mut more = run.clone();
        more.trials.extend(run.trials[..2].iter().cloned().map(|mut trial| {
            trial.point.insert("clients".into(), "64".into());
            trial
        }));
        let all = decisions(&more);
        let (here, best) = (all[0].here(), all[0].best_other().expect("another"));
        let ratios = overall(&more, &here.group.first.stack, &best.group.first.stack).ratios;
        assert_eq!(ratios.len(), 3);
    }

    #[test]
    fn titles_lose_their_capital_within_a_sentence_and_names_do_not() {
        let titles = ["Cold lookups", "MariaDB reads", "SQLite", "4 KiB reads", "", "A B"];
        let expected = ["cold lookups", "MariaDB reads", "SQLite", "4 KiB reads", "", "A B"];
        assert_eq!(titles.map(within_sentence), expected);
    }

    /// A reference that stalled for half of its trial would make any other drive look faster.
    #[test]
    fn a_ratio_that_is_no_more_than_a_trial_moved_by_itself_is_open() {
        let mut run = two_jobs();
        run.trials.truncate(2);
        for trial in &mut run.trials {
            trial.source = Source::Measured;
        }
        let moved = |run: &Run| {
            let all = decisions(run);
            let (here, best) = (all[0].here(), all[0].best_other().expect("another"));
            let found = compared(&all[0], here, best);
            let open = matches!(found, Finding::Compared { order: Order::Inconclusive, .. });
            (moved_as_much(all[0].counted, here, best), open)
        };
        assert_eq!(moved(&run), (false, false), "both were steady");
        let intervals = &mut run.trials[0].result.recording.intervals;
        let half = intervals.len() / 2;
        for interval in &mut intervals[half..] {
            let (phase, start, end) = (interval.phase, interval.start, interval.end);
            *interval = stats::Interval::empty(phase, start, end);
        }
        assert_eq!(moved(&run), (true, true));
    }

    /// A ratio whose sign another run may reverse must be inconclusive.
    #[test]
    fn a_difference_that_another_run_may_turn_round_is_open() {
        let of = |ratios: &[f64]| over_values(ratios).expect("an estimate");
        let order = |ratios: &[f64]| {
            let ratio = of(ratios);
            let range = ratio.between_repetitions();
            order_of(ratio, range.map(|(low, high)| ValueRange { low, high }))
        };
        assert_eq!(order(&[0.7, 1.2, 2.0]), Order::Inconclusive, "from a third less to twice");
        assert!(matches!(order(&[1.9, 2.0, 2.1]), Order::Faster(_)), "twice, whichever run");
        let Order::Slower(ratio) = order(&[0.49, 0.5, 0.51]) else { panic!() };
        assert!((ratio - 2.0).abs() < 0.01, "{ratio}");
        assert_eq!(order(&[0.99, 1.0, 1.01]), Order::Same);
        assert_eq!(order(&[0.6, 1.02, 1.7]), Order::Inconclusive, "its value alone is near 1");
        assert!(matches!(order(&[2.0]), Order::Faster(_)), "one run has no interval to go by");
        assert_eq!(order(&[1.02]), Order::Same);
        assert!(matches!(order(&[1.07]), Order::Faster(_)), "more than 5 %");
    }

    /// One run with errors on a busy host proves no difference; the bracket says how many runs there were.
    #[test]
    fn a_result_with_two_grave_warnings_is_open() {
        let mut run = two_jobs();
        run.trials.truncate(2);
        for trial in &mut run.trials {
            trial.source = Source::Measured;
        }
        let found = |run: &Run| {
            let all = decisions(run);
            compared(&all[0], all[0].here(), all[0].best_other().expect("another"))
        };
        let is_open =
            |one: &Finding| matches!(one, Finding::Compared { order: Order::Inconclusive, .. });
        assert!(!is_open(&found(&run)) && found(&run).to_string().ends_with(" (n = 1)."));
        let recording = &mut run.trials[0].result.recording;
        for interval in &mut recording.intervals {
            interval.tallies.of(workload::OpClass::Read).counts.errors = 1;
        }
        assert!(!is_open(&found(&run)), "one warning");
        run.trials[0].result.limits = vec![stats::Limit::Others { others: 0.5 }];
        assert!(is_open(&found(&run)), "{}", found(&run));
    }
}
