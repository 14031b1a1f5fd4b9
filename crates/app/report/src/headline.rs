//! The first sentence of a page: the answer to the study's own question, with its number, interval, source
//! and error.
//!
//! Invariants: every number is of the run and says its source; what may not be judged is not in the first
//! half of a sentence.

use analysis::Group;
use analysis::decision::{Choice, Counted, Decision, LimitedBy, Standing};
use analysis::doubts::{DoubtKind, moved_by};
use analysis::overall::overall;
use archive::Run;
use stats::estimate::Estimate;
use study::Source;
use units::{Nanos, human_count};
use workload::OpClass;

use crate::chart::short;
use crate::decision_view::{times, times_number};
use crate::words::{engine_title, experiment_title, point_words, runs_each};

/// Ratios nearer to 1 are no difference worth a headline.
const ABOUT: f64 = 0.05;

/// The sentence of a decision, and what belongs beside it.
pub(crate) fn decision_sentence(decision: &Decision<'_>) -> (String, String) {
    let here = decision.here();
    if decision.choices.len() == 1 {
        return (alone(here, decision.counted), String::new());
    }
    let sentence = match decision.best_other() {
        // A ratio is worth no more than what it is of.
        Some(best) if is_doubted(here) => beside_nothing(decision.counted, here, best),
        Some(best) => compared(decision, here, best),
        None => not_judged(decision, here),
    };
    let left_out = decision.choices.iter().filter(|one| is_doubted(one));
    let left_out: Vec<&str> = left_out.map(title).collect();
    let lead = lead(decision);
    match left_out.as_slice() {
        [] => (sentence, lead),
        names => {
            let were = if names.len() == 1 { "was" } else { "were" };
            let words =
                format!("Not ranked: {} {were} not delivered as modelled.", names.join(", "));
            (sentence, format!("{words} {lead}"))
        }
    }
}

/// Where several jobs ran on the two storages of the first decision: what the one gives over the other in
/// each, from the least to the most. Jobs of which either may not be judged are left out and counted.
pub(crate) fn over_all(run: &Run, decisions: &[Decision<'_>]) -> Option<String> {
    let first = decisions.first()?;
    let best = first.best_other()?;
    let (here, other) = (&first.here().group.first.stack, &best.group.first.stack);
    let all = overall(run, here, other);
    let [(least, ..), .., (most, ..)] = all.ratios.as_slice() else { return None };
    let job = |(_, counted, place): &(f64, Counted, usize)| {
        let group = &all.groups[*place];
        let (engine, title) = (engine_title(group), experiment_title(group));
        format!("{engine}, {title}: {}, {}", counted.words(), point_words(group))
    };
    let left_out = match all.not_judged {
        0 => String::new(),
        count => format!("; {count} more may not be judged"),
    };
    let last = all.ratios.len() - 1;
    Some(format!(
        "Over {} jobs {} gives from {} ({}) to {} ({}) of what {} gives ({}{left_out}).",
        all.ratios.len(),
        title(best),
        times(*least),
        job(&all.ratios[0]),
        times(*most),
        job(&all.ratios[last]),
        place(first.here()),
        runs_each(run),
    ))
}

/// The best of those that may be judged, where the reference may not.
fn beside_nothing(counted: Counted, here: &Choice<'_>, best: &Choice<'_>) -> String {
    let (engine, of_best) = (engine_with(&best.group), value(best, counted));
    let found = match counted {
        Counted::ReadTime => format!("One {} takes {of_best}", point_words(&best.group)),
        Counted::TimeAtRate(_) => {
            format!("{engine}: 1 {} in 100 takes over {of_best}", noun(counted))
        }
        _ => format!("{engine} does {of_best} {}", counted.words()),
    };
    format!(
        "{found} on {} ({}{}); the reference, {}, may not be judged here.",
        title(best),
        source_of(best),
        spoiled(best),
        place(here)
    )
}

fn is_doubted(choice: &Choice<'_>) -> bool {
    matches!(choice.standing, Standing::NotJudged(_))
}

/// The next best; where others were not delivered as modelled, of those that were.
fn next(decision: &Decision<'_>) -> &'static str {
    match decision.choices.iter().any(is_doubted) {
        true => "the next of those that may be judged",
        false => "the next",
    }
}

fn value(choice: &Choice<'_>, counted: Counted) -> String {
    let text = match counted.is_rate() {
        true => human_count(choice.value.value),
        false => Nanos(choice.value.value as u64).to_string(),
    };
    format!("{}{text}", if choice.value.at_least { "at least " } else { "" })
}

fn title<'a>(choice: &'a Choice<'_>) -> &'a str {
    short(choice.group.stack_title())
}

/// `In place of This disk`, but `this disk`.
fn place(choice: &Choice<'_>) -> String {
    match title(choice) {
        "This disk" => "this disk".into(),
        other => other.into(),
    }
}

fn noun(counted: Counted) -> &'static str {
    match counted {
        Counted::Transactions => "transactions",
        Counted::DurableUpdates => "durable updates",
        Counted::Updates => "updates",
        Counted::Lookups => "lookups",
        Counted::ReadTime => "reads",
        Counted::TimeAtRate(OpClass::Transaction) => "transaction",
        Counted::TimeAtRate(OpClass::Read) => "lookup",
        Counted::TimeAtRate(_) => "update",
    }
}

/// What is said beside a number.
pub(crate) const GRAVE: [DoubtKind; 5] = [
    DoubtKind::Errors,
    DoubtKind::LoadNotKept,
    DoubtKind::BusyHost,
    DoubtKind::InMemory,
    DoubtKind::Unsteady,
];

/// `, not steady` where that is so: a rate that moved is no rate, and what failed is in none.
fn spoiled(choice: &Choice<'_>) -> String {
    let seen = choice.doubts.iter().filter(|kind| GRAVE.contains(kind));
    seen.map(|kind| format!(", {}", kind.title().to_lowercase())).collect()
}

/// The source, and of a prediction its error: half of a ratio is the reference. A drive whose time was
/// stretched says so: its number is not the drive's.
fn source_of(choice: &Choice<'_>) -> String {
    let source = choice.group.first.source.word();
    match (&choice.standing, choice.group.time_scale()) {
        (Standing::Predicted(worth), _) => format!("{source}, {}", worth.brief()),
        (_, scale) if scale > 1 => format!("{source}, its time {scale} times as long"),
        _ => source.to_owned(),
    }
}

/// Why no interval stands there: a range of two runs is none.
fn no_interval(runs: usize) -> String {
    match runs {
        1 => "one run, no interval".into(),
        _ => format!("{runs} runs, no interval"),
    }
}

/// What a ratio is worth: interval, source, error.
fn worth(choice: &Choice<'_>) -> String {
    let source = choice.group.first.source.word();
    let interval = choice.ratio.and_then(|ratio| ratio.between_repetitions());
    let interval = match interval {
        Some((lo, hi)) => format!("{} to {}", times_number(lo), times_number(hi)),
        None => no_interval(choice.group.trials.len()),
    };
    match (&choice.standing, choice.group.first.source) {
        (Standing::Predicted(worth), _) => format!("{source}, {}", worth.brief()),
        (_, Source::Emulated) => {
            format!("{interval}; {}{}, model not validated", source_of(choice), spoiled(choice))
        }
        _ => format!("{interval}; {source}{}", spoiled(choice)),
    }
}

/// Whether another run of both might have said the contrary: the interval between repetitions holds 1, and
/// the ratio is far enough from it to be taken for a difference.
fn is_open(ratio: Estimate) -> bool {
    let holds_one = |(lo, hi): (f64, f64)| lo <= 1.0 && 1.0 <= hi;
    (ratio.value - 1.0).abs() > ABOUT && ratio.between_repetitions().is_some_and(holds_one)
}

/// Whether two things or more spoil a number: what is left of it carries no ratio.
fn is_shaky(choice: &Choice<'_>) -> bool {
    choice.doubts.iter().filter(|kind| GRAVE.contains(kind)).count() > 1
}

/// Whether a rate moved within its own trial by as much as the two are apart, where no other runs tell.
fn moved_as_much(counted: Counted, here: &Choice<'_>, best: &Choice<'_>) -> bool {
    let apart = ratio_of(best).max(1.0 / ratio_of(best));
    let alone = best.ratio.and_then(|ratio| ratio.between_repetitions()).is_none();
    let moved = here.group.trials.iter().chain(&best.group.trials).map(|trial| moved_by(trial));
    counted.is_rate() && alone && apart > 1.0 + ABOUT && moved.fold(1.0, f64::max) >= apart
}

fn compared(decision: &Decision<'_>, here: &Choice<'_>, best: &Choice<'_>) -> String {
    let counted = decision.counted;
    let shaky = is_shaky(here) || is_shaky(best) || moved_as_much(counted, here, best);
    if best.ratio.is_some_and(is_open) || shaky {
        return undecided(counted, here, best);
    }
    match counted {
        Counted::ReadTime => compared_read_time(decision, here, best),
        Counted::TimeAtRate(_) => compared_at_rate(decision, here, best),
        _ => compared_rates(decision, here, best),
    }
}

fn ratio_of(choice: &Choice<'_>) -> f64 {
    choice.ratio.map_or(1.0, |ratio| ratio.value)
}

/// What was found where nothing can be said of which is faster.
fn undecided(counted: Counted, here: &Choice<'_>, best: &Choice<'_>) -> String {
    let what = match counted {
        Counted::ReadTime => format!("Of one {} at a time", point_words(&here.group)),
        _ => format!("Of {} ({})", engine_title(&here.group), counted.words()),
    };
    format!(
        "{what} these runs do not decide whether {} or {} is faster: {} ({}) and {} ({}{}).",
        title(best),
        place(here),
        value(best, counted),
        worth(best),
        value(here, counted),
        source_of(here),
        spoiled(here)
    )
}

/// Times of one read alone.
fn compared_read_time(decision: &Decision<'_>, here: &Choice<'_>, best: &Choice<'_>) -> String {
    let counted = Counted::ReadTime;
    let (what, source) = (point_words(&here.group), source_of(here));
    let (of_here, of_best, worth) = (value(here, counted), value(best, counted), worth(best));
    match ratio_of(best) {
        ratio if ratio > 1.0 + ABOUT => format!(
            "{} is {} as fast as {} at one {what} at a time ({worth}): {of_best} instead of {of_here} \
             ({source}).",
            title(best),
            times(ratio),
            place(here)
        ),
        ratio if ratio < 1.0 - ABOUT => format!(
            "At one {what} at a time nothing here is faster than {}: {of_here} ({source}); {}, {}, \
             {of_best} ({worth}).",
            place(here),
            next(decision),
            title(best)
        ),
        _ => format!(
            "At one {what} at a time {} takes as long as {}: {of_here} ({source}) and {of_best} ({worth}).",
            title(best),
            place(here)
        ),
    }
}

/// The engine, with how many read at once: fewer may have had more.
fn engine_with(group: &Group<'_>) -> String {
    let readers =
        group.first.point.get("clients").filter(|count| !["0", "1"].contains(&count.as_str()));
    match readers {
        Some(count) => format!("{} with {count} readers", engine_title(group)),
        None => engine_title(group),
    }
}

/// What each did a second.
fn compared_rates(decision: &Decision<'_>, here: &Choice<'_>, best: &Choice<'_>) -> String {
    let (counted, ratio) = (decision.counted, ratio_of(best));
    let (engine, of_here) = (engine_with(&here.group), value(here, counted));
    let (noun, source) = (noun(counted), source_of(here));
    match ratio {
        _ if ratio > 1.0 + ABOUT => format!(
            "In place of {}, {} gives {engine} {} the {noun} ({}): {} a second instead of {of_here} \
             ({source}{}).",
            place(here),
            title(best),
            times(ratio),
            worth(best),
            value(best, counted),
            spoiled(here)
        ),
        _ if ratio < 1.0 - ABOUT => {
            let (place, spoiled) = (place(here), spoiled(here));
            let most = match decision.choices.iter().any(is_doubted) {
                true => {
                    format!("Of what may be judged here {place} gives {engine} the most {noun}")
                }
                false => format!("No other storage here gives {engine} more {noun} than {place}"),
            };
            format!(
                "{most}: {of_here} a second ({source}{spoiled}); the next, {}, gives {} of that ({}).",
                title(best),
                times(ratio),
                worth(best)
            )
        }
        _ => format!(
            "{engine} does as many {noun} on {} as on {}: {} ({}) and {of_here} a second ({source}).",
            title(best),
            place(here),
            value(best, counted),
            worth(best)
        ),
    }
}

/// Times at a rate that was asked of all and kept by all.
fn compared_at_rate(decision: &Decision<'_>, here: &Choice<'_>, best: &Choice<'_>) -> String {
    let counted = decision.counted;
    let engine = engine_title(&here.group);
    let at = format!("At the rate asked of {engine} ({})", point_words(&here.group));
    let (noun, of_best, of_here) = (noun(counted), value(best, counted), value(here, counted));
    let source = format!("{}{}", source_of(here), spoiled(here));
    let (best_title, here_title, worth) = (title(best), place(here), worth(best));
    match ratio_of(best) {
        ratio if ratio > 1.0 + ABOUT => format!(
            "{at} 1 {noun} in 100 takes over {of_best} on {best_title} ({} as fast: {worth}) instead of \
             {of_here} on {here_title} ({source}).",
            times(ratio)
        ),
        ratio if ratio < 1.0 - ABOUT => format!(
            "{at} nothing here is faster than {here_title}: 1 {noun} in 100 takes over {of_here} ({source}); \
             {}, {best_title}, {of_best} ({worth}).",
            next(decision)
        ),
        _ => format!(
            "{at} 1 {noun} in 100 takes over {of_here} on {here_title} ({source}) and {of_best} on \
             {best_title} ({worth})."
        ),
    }
}

fn not_judged(decision: &Decision<'_>, here: &Choice<'_>) -> String {
    let of_here = value(here, decision.counted);
    let why = decision.choices.iter().find_map(|choice| match &choice.standing {
        Standing::NotJudged(why) => Some(format!("{}: {why}", title(choice))),
        _ => None,
    });
    let why = why.unwrap_or_else(|| "nothing else gave a number".into());
    let (engine, words) = (engine_title(&here.group), decision.counted.words());
    let (found, other) = match decision.counted {
        Counted::TimeAtRate(_) => (format!("{engine}, {words}: {of_here}"), "be"),
        _ => (format!("{engine} does {of_here} {words}"), "do"),
    };
    format!(
        "{found} on {} ({}{}); what it would {other} on the others may not be judged here ({why}).",
        place(here),
        source_of(here),
        spoiled(here)
    )
}

fn alone(choice: &Choice<'_>, counted: Counted) -> String {
    let slow = choice
        .p99
        .map_or_else(String::new, |p99| format!(", 1 in 100 over {}", Nanos(p99.value as u64)));
    let interval = choice.value.between_repetitions().map_or_else(
        || no_interval(choice.group.trials.len()),
        |(lo, hi)| match counted.is_rate() {
            true => format!("{} to {}", human_count(lo), human_count(hi)),
            false => format!("{} to {}", Nanos(lo as u64), Nanos(hi as u64)),
        },
    );
    let source = source_of(choice);
    match counted {
        Counted::ReadTime => format!(
            "One {} takes {} on {} (median{slow}; {source}).",
            point_words(&choice.group),
            value(choice, counted),
            place(choice)
        ),
        Counted::TimeAtRate(_) => format!(
            "{} keeps the rate asked of it on {}: 1 {} in 100 takes over {} ({interval}; {source}; {}).",
            engine_title(&choice.group),
            place(choice),
            noun(counted),
            value(choice, counted),
            point_words(&choice.group)
        ),
        _ => format!(
            "{} does {} {} on {}{slow} ({interval}; {source}; {}).",
            engine_title(&choice.group),
            value(choice, counted),
            counted.words(),
            place(choice),
            point_words(&choice.group)
        ),
    }
}

/// Every drive's number, and what set the reference's.
fn lead(decision: &Decision<'_>) -> String {
    let mut parts = Vec::new();
    for source in [Source::Measured, Source::Emulated, Source::Predicted] {
        let own = decision.choices.iter().filter(|one| one.group.first.source == source);
        let own: Vec<String> = own
            .map(|one| {
                let doubt = if is_doubted(one) { ", not to be judged" } else { "" };
                format!("{} on {}{doubt}", value(one, decision.counted), place(one))
            })
            .collect();
        if !own.is_empty() {
            parts.push(format!("{} ({})", own.join(", "), source.word()));
        }
    }
    let set = match decision.here().limited {
        LimitedBy::Part(part, share) => format!(
            " On {} {:.0} % of the time goes to this: {}.",
            place(decision.here()),
            share * 100.0,
            part.words()
        ),
        LimitedBy::Processors(busy) => format!(
            " On {} {:.0} % of this host's CPUs were busy: they, not the drive alone, set it.",
            place(decision.here()),
            busy * 100.0
        ),
        LimitedBy::Nothing(part, share) => format!(
            " On {} no part takes half of the time; the most goes to this: {} ({:.0} %).",
            place(decision.here()),
            part.words(),
            share * 100.0
        ),
        LimitedBy::Thread(_) | LimitedBy::Unknown => String::new(),
    };
    let counted = decision.counted.words();
    let what = match decision.counted {
        Counted::ReadTime => "Median of one read".to_owned(),
        _ => format!("{}, {counted}", engine_title(&decision.here().group)),
    };
    format!("{what}: {}.{set}", parts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use analysis::decision::decisions;
    use archive::TrialRecord;
    use stats::estimate::over_values;

    /// Two jobs of LMDB on two drives, the second the other way round, made of a stored run.
    fn two_jobs() -> Run {
        let place = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fixtures/runs/v1");
        let mut run = Run::read(std::path::Path::new(place), engines::list()).unwrap();
        let drives = ["intel-p4800x", "samsung-980-pro"];
        let reads = |one: &&TrialRecord| {
            let share = one.point.get("read_share").is_some_and(|share| share == "100%");
            one.experiment == "latency" && share && drives.contains(&one.stack.as_str())
        };
        let reads: Vec<TrialRecord> = run.trials.iter().filter(reads).cloned().collect();
        let job = |name: &str, of: [&TrialRecord; 2]| -> Vec<TrialRecord> {
            let on = |(one, stack): (&TrialRecord, &str)| TrialRecord {
                engine: "lmdb".into(),
                experiment: name.into(),
                stack: stack.into(),
                ..one.clone()
            };
            of.into_iter().zip(drives).map(on).collect()
        };
        run.trials = job("there", [&reads[0], &reads[1]]);
        run.trials.extend(job("back", [&reads[1], &reads[0]]));
        run
    }

    /// A page that speaks of the first of several jobs sells what loses in the others.
    #[test]
    fn what_other_jobs_say_stands_beside_the_first() {
        let run = two_jobs();
        let all = decisions(&run);
        assert_eq!(all.len(), 2);
        let said = over_all(&run, &all).expect("both jobs ran on both drives");
        let (least, most) = (said.find("back").unwrap(), said.find("there").unwrap());
        assert!(said.starts_with("Over 2 jobs"), "{said}");
        let ratio = ratio_of(all[0].best_other().unwrap());
        let (lower, upper) = (ratio.min(1.0 / ratio), ratio.max(1.0 / ratio));
        assert!(lower < 0.8, "the drives differ: {lower}");
        assert!(said.contains(&times(lower)) && said.contains(&times(upper)), "{said}");
        assert_eq!(least < most, ratio > 1.0, "the job with the least stands first: {said}");
        let mut one = run.clone();
        one.trials.truncate(2);
        assert_eq!(over_all(&one, &decisions(&one)), None, "one job speaks for itself");
        // A job that ran at two points counts twice: the last is not the experiment.
        let mut more = run.clone();
        more.trials.extend(run.trials[..2].iter().cloned().map(|mut trial| {
            trial.point.insert("clients".into(), "64".into());
            trial
        }));
        let said = over_all(&more, &decisions(&more)).expect("both");
        assert!(said.starts_with("Over 3 jobs"), "{said}");
    }

    /// A reference that stood still for half of its trial crowned whichever drive it was beside.
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
            let said = compared(&all[0], here, best);
            (moved_as_much(all[0].counted, here, best), said.contains("do not decide"))
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

    /// "Twice as fast" of runs that might have said the contrary sells drives that are no better.
    #[test]
    fn a_difference_that_another_run_may_turn_round_is_open() {
        let of = |ratios: &[f64]| over_values(ratios).expect("an estimate");
        assert!(is_open(of(&[0.7, 1.2, 2.0])), "from a third less to twice");
        assert!(!is_open(of(&[1.9, 2.0, 2.1])), "twice, whichever run");
        assert!(!is_open(of(&[0.99, 1.01, 1.02])), "as good as the same");
        assert!(!is_open(of(&[2.0])), "one run has no interval to go by, and says so");
    }
}
