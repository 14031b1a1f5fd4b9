//! Whether a claim of a publication holds for our results.
//!
//! A claim is about specific drives: only a real device that the study declares with `identity`, or its
//! model, can decide it; other stacks are stand-ins, shown and not judged. Our number has an interval across
//! repetitions if measured, from the held-out error if predicted, and none if emulated; without an interval
//! the claim is inconclusive. Values that a model was fitted to, or that follow from its constants, are no
//! evidence. Invariant: each claim has a number that fails it. No shipped model decides a claim yet: none has
//! three held-out figures for such a job.

use device::Evidence;
use study::Source;

use crate::figure::Figure;
use crate::published::{Claim, Ours, Publication};

/// A verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The whole interval lies in the range.
    Holds,
    /// The whole interval lies outside.
    DoesNotHold,
    /// The interval crosses a bound, or there is none.
    Inconclusive,
    /// No result corresponds to it.
    NotTested,
    /// The model was fitted to it, or it follows from fitted constants.
    Fitted,
}

units::words!(Verdict {
    Holds => "holds", DoesNotHold => "does not hold", Inconclusive => "inconclusive",
    NotTested => "not tested", Fitted => "fitted",
});

/// A claim with our number and the verdict.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// The verdict.
    pub verdict: Verdict,
    /// Our number, also where it is not judged.
    pub ours: Option<f64>,
    /// Confidence interval of our number.
    pub interval: Option<(f64, f64)>,
    /// Source of our number.
    pub source: Option<Source>,
    /// Position of our number if inconclusive.
    pub lies: Option<Lies>,
    /// Why it is inconclusive; otherwise empty.
    pub why: String,
}

/// Where a value without a verdict lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Lies {
    /// Within the bounds of the claim.
    Inside,
    /// Outside.
    Outside,
}

/// A stack of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunStack {
    /// Its name.
    pub name: String,
    /// Name of the profile of its drive: that of a model, or the study's `identity`.
    pub identity: Option<String>,
    /// Its title, for people.
    pub title: String,
    /// Time scale of the drive: it ran this many times slower.
    pub time_scale: u32,
}

/// Whether a stack is one of the wanted drives.
pub(crate) fn is_drive(wanted: &[String], stack: Option<&RunStack>) -> bool {
    let identity = stack.and_then(|stack| stack.identity.as_ref());
    identity.is_some_and(|identity| wanted.contains(identity))
}

/// One of our numbers.
struct Number {
    value: f64,
    interval: Option<(f64, f64)>,
    source: Source,
    /// The warning that makes it unreliable.
    spoiled: Option<String>,
}

/// Judges `claim` by `figures` of a run with these stacks.
pub(crate) fn judge(
    publication: &Publication,
    claim: &Claim,
    figures: &[Figure],
    stacks: &[RunStack],
) -> Judged {
    let none = |why: &str| Judged {
        verdict: Verdict::NotTested,
        ours: None,
        interval: None,
        source: None,
        lies: None,
        why: why.to_owned(),
    };
    let found = [Source::Measured, Source::Emulated, Source::Predicted]
        .into_iter()
        .find_map(|source| number(claim, figures, source));
    let Some(number) = found else { return none("not tested by this run") };
    let (from, to) = claim.bounds();
    let lies = match (from..=to).contains(&number.value) {
        true => Lies::Inside,
        false => Lies::Outside,
    };
    let judged = |verdict, why: String| Judged {
        verdict,
        lies: (!why.is_empty() && number.value.is_finite()).then_some(lies),
        ours: Some(number.value).filter(|value| value.is_finite()),
        interval: number.interval,
        source: Some(number.source),
        why,
    };
    if let Some(stand_in) = stand_in(publication, claim, stacks) {
        return judged(Verdict::NotTested, stand_in);
    }
    let slower = stacks.iter().find(|stack| stack.name == claim.of.stack && stack.time_scale > 1);
    if let Some(stack) = slower.filter(|_| number.source == Source::Emulated && !claim.any_drive) {
        let scale = stack.time_scale;
        let why =
            format!("not comparable: the emulated drive ran {scale}x slower, but the CPU did not");
        return judged(Verdict::Inconclusive, why);
    }
    let input = claim.is.is_some_and(|is| is != Evidence::HeldOut);
    if number.source == Source::Predicted && input {
        let why = "no test, because the model was fitted to this figure or its constants imply it";
        return judged(Verdict::Fitted, why.to_owned());
    }
    if let Some(why) = number.spoiled.clone() {
        return judged(Verdict::Inconclusive, why);
    }
    match number.interval {
        None => {
            let why = match number.source {
                Source::Predicted => {
                    "with fewer than three held-out figures, the prediction error is unknown"
                }
                Source::Emulated => {
                    "no held-out figure for such jobs, so the model error is unknown"
                }
                _ => "an interval across repetitions needs three of them",
            };
            judged(Verdict::Inconclusive, why.to_owned())
        }
        Some((low, high)) if low >= from && high <= to => judged(Verdict::Holds, String::new()),
        Some((low, high)) if high < from || low > to => judged(Verdict::DoesNotHold, String::new()),
        Some(_) => judged(Verdict::Inconclusive, "its interval crosses a bound".to_owned()),
    }
}

/// Describes stacks that stand in for the claim's drives; `None` if the claim holds for any drive.
fn stand_in(publication: &Publication, claim: &Claim, stacks: &[RunStack]) -> Option<String> {
    if claim.any_drive {
        return None;
    }
    let sides = std::iter::once(&claim.of).chain(&claim.over);
    let others: Vec<String> = sides
        .filter_map(|side: &Ours| {
            let stack = stacks.iter().find(|stack| stack.name == side.stack);
            let wanted = publication.drives.get(&side.stack).map_or(&[][..], Vec::as_slice);
            let title = stack.map_or(side.stack.as_str(), |stack| stack.title.as_str());
            (!is_drive(wanted, stack)).then(|| title.to_owned())
        })
        .collect();
    let first = others.first()?;
    Some(format!("stand-in: {first} replaces the published drive"))
}

/// Our number from one source.
fn number(claim: &Claim, figures: &[Figure], source: Source) -> Option<Number> {
    let of = claim.of.find(figures, source)?;
    let Some(over) = &claim.over else {
        let spoiled = spoiled(of);
        return Some(Number { value: of.value, interval: interval(of), source, spoiled });
    };
    let over = over.find(figures, source)?;
    let spoiled = spoiled(of).or_else(|| spoiled(over));
    let value = of.value / over.value;
    if !value.is_finite() {
        let spoiled = Some("division by 0".to_owned());
        return Some(Number { value: f64::NAN, interval: None, source, spoiled });
    }
    let interval = interval(of).zip(interval(over));
    let interval = interval.and_then(|(a, b)| ratio((of.value, a), (over.value, b)));
    Some(Number { value, interval, source, spoiled })
}

fn spoiled(figure: &Figure) -> Option<String> {
    if figure.partial {
        return Some("a trial was stopped or failed".to_owned());
    }
    if let Some(kind) = figure.spoiled {
        return Some(format!("not reliable: {}", kind.title().to_lowercase()));
    }
    figure.at_least.then(|| "operations never ended: our number is a lower bound".to_owned())
}

/// The interval of the true value: across repetitions if measured, from the held-out error if predicted.
/// Repetitions on an emulated drive say nothing about the drive.
fn interval(figure: &Figure) -> Option<(f64, f64)> {
    match figure.source {
        Source::Predicted => {
            // `predicted = true (1 + error)`.
            let error = figure.worth?.expected_error().filter(|error| *error < 1.0)?;
            Some((figure.value / (1.0 + error), figure.value / (1.0 - error)))
        }
        Source::Emulated => None,
        _ => figure.lo.zip(figure.hi).filter(|_| figure.interval == Some("repetitions")),
    }
}

/// The interval of a ratio of independent numbers: errors of the logarithms add in squares.
fn ratio(
    (a, (a_low, a_high)): (f64, (f64, f64)),
    (b, (b_low, b_high)): (f64, (f64, f64)),
) -> Option<(f64, f64)> {
    let sound = [a, a_low, b, b_low].iter().all(|value| *value > 0.0);
    let together = |x: f64, y: f64| x.ln().hypot(y.ln()).exp();
    let ends = (a / b / together(a / a_low, b_high / b), a / b * together(a_high / a, b / b_low));
    sound.then_some(ends)
}
