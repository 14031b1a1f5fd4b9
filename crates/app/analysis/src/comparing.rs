//! Every table and claim of a publication next to our values, in its own order.
//!
//! Invariants: published, predicted, emulated and measured values have columns of their own; a stand-in has
//! no error; a fitted or constructed figure shows its role instead of an error.

use indexmap::IndexMap;
use serde::Serialize;
use study::Source;

use crate::figure::{Figure, unit_text};
use crate::published::{Claim, Printed, Publication};
use crate::verdict::{About, Lies, RunFacts, RunStack, Verdict, is_drive, judge};

/// A published table or slide with our numbers.
#[derive(Debug, Serialize)]
pub struct PlaceView {
    /// Place in the publication.
    pub place: String,
    /// Its numbers.
    pub rows: Vec<RowView>,
    /// Its claims.
    pub claims: Vec<ClaimView>,
}

/// A printed number next to ours.
#[derive(Debug, Serialize)]
pub struct RowView {
    /// Title of the stack.
    pub stack: String,
    /// The workload.
    pub what: String,
    /// The metric and its unit.
    pub metric: String,
    /// Published value and ours, one line per source.
    pub lines: Vec<LineView>,
}

/// One number of a source.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LineView {
    /// Name of the source.
    pub source: &'static str,
    /// Value with unit.
    pub text: String,
    /// Run on another drive than the published one: the number is shown without a verdict.
    pub stand_in: bool,
    /// Error of a held-out prediction or comparable measurement, or the figure's role; may be empty.
    pub tag: String,
    /// Error class: within a tenth, within a third, beyond; `none` without an error.
    pub near: &'static str,
}

/// A claim with our number.
#[derive(Debug, Serialize)]
pub struct ClaimView {
    /// The claim, paraphrased.
    pub text: String,
    /// The metric.
    pub number: String,
    /// The published value.
    pub published: String,
    /// Our value with its interval.
    pub ours: String,
    /// Source of our value.
    pub source: String,
    /// Name of the verdict.
    pub verdict: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// Position of our value if the claim is inconclusive.
    pub lies: Option<Lies>,
    /// Our value over the published one, if both are positive.
    pub over_printed: Option<f64>,
    /// Reason for an inconclusive verdict; empty otherwise.
    pub why: String,
    /// Range in which the claim holds.
    pub range: String,
    /// Why this range was chosen.
    pub because: String,
}

/// Relative error up to which a number is coloured as near.
const NEAR: f64 = 0.10;
const OFF: f64 = 0.34;

/// Returns every table and claim of the publication next to our values, in its own order.
#[must_use]
pub fn compared_places(
    publication: &Publication,
    figures: &[Figure],
    facts: &RunFacts,
) -> Vec<PlaceView> {
    let mut places: IndexMap<&str, (Vec<RowView>, Vec<ClaimView>)> = IndexMap::new();
    for one in &publication.figure {
        places.entry(&one.place).or_default().0.push(row(publication, one, figures, &facts.stacks));
    }
    for one in &publication.claim {
        places.entry(&one.place).or_default().1.push(claim(publication, one, figures, facts));
    }
    let view = |(place, (rows, claims)): (&str, _)| PlaceView { place: place.into(), rows, claims };
    places.into_iter().map(view).collect()
}

/// Summarizes the verdicts in a sentence for each thing that they are about; empty without claims.
#[must_use]
pub fn tally(places: &[PlaceView]) -> String {
    let about = |about: &About| {
        let claims = || {
            let all = places.iter().flat_map(|place| &place.claims);
            all.filter(|one| one.about == about.word())
        };
        let part = |verdict: &Verdict| {
            let own = || claims().filter(|one| one.verdict == verdict.word());
            let outside = own().filter(|one| one.lies == Some(Lies::Outside)).count();
            let word = match verdict {
                Verdict::Holds if own().count() > 1 => "hold",
                Verdict::DoesNotHold if own().count() > 1 => "do not hold",
                verdict => verdict.word(),
            };
            match (own().count(), outside) {
                (0, _) => None,
                (count, 0) => Some(format!("{count} {word}")),
                (count, outside) => {
                    Some(format!("{count} {word} ({outside} outside the published range)"))
                }
            }
        };
        let parts: Vec<String> = Verdict::ALL.iter().filter_map(part).collect();
        let (count, verdicts) = (claims().count(), parts.join(", "));
        let plural = if count == 1 { "" } else { "s" };
        let what = match about {
            About::Ours => format!("explanation{plural} of ours"),
            about => format!("published claim{plural} {}", about.word()),
        };
        (!parts.is_empty()).then(|| format!("{count} {what}: {verdicts}."))
    };
    About::ALL.iter().filter_map(about).collect::<Vec<_>>().join(" ")
}

fn row(
    publication: &Publication,
    printed: &Printed,
    figures: &[Figure],
    stacks: &[RunStack],
) -> RowView {
    let predicted = printed.of.find(figures, Source::Predicted);
    let emulated = printed.of.find(figures, Source::Emulated);
    let measured = printed.of.find(figures, Source::Measured);
    let stack = stacks.iter().find(|stack| stack.name == printed.of.stack);
    let drives = publication.drives.get(&printed.of.stack).cloned().unwrap_or_default();
    let wanted = printed.drive.clone().map_or(drives, |drive| vec![drive]);
    let the_drive = is_drive(&wanted, stack);
    let title = stack.map_or(printed.of.stack.as_str(), |stack| stack.title.as_str());
    let slower = match stack.map_or(1, |stack| stack.time_scale) {
        1 => String::new(),
        scale => format!(", time-scaled {scale}x"),
    };
    let text = |figure: &Figure| {
        let least = if figure.at_least { "at least " } else { "" };
        let slower = if figure.source == Source::Emulated { slower.as_str() } else { "" };
        format!("{least}{}{slower}", amount(figure.value, &figure.unit))
    };
    let held_out = printed.is == Some(device::Evidence::HeldOut);
    let line = |figure: &Figure| {
        // A prediction is always for the published drive itself.
        let own = the_drive || printed.outright || figure.source == Source::Predicted;
        let comparable = !figure.at_least
            && !figure.partial
            && match figure.source {
                Source::Predicted => held_out && the_drive,
                Source::Measured => printed.outright || the_drive,
                Source::Emulated => printed.outright,
                Source::Published => false,
            };
        let error = comparable.then(|| figure.value / printed.value - 1.0);
        let role = printed.is.filter(|_| figure.source == Source::Predicted && the_drive);
        LineView {
            source: figure.source.word(),
            text: text(figure),
            stand_in: !own,
            tag: match (error, role) {
                // No "-0 %".
                (Some(error), _) => format!("{:+.0} %", (error * 100.0).round() + 0.0),
                (None, Some(role)) => role.word().to_owned(),
                (None, None) => String::new(),
            },
            near: match error.map(f64::abs) {
                Some(error) if error <= NEAR => "near",
                Some(error) if error <= OFF => "off",
                Some(_) => "far",
                None => "none",
            },
        }
    };
    let published = LineView {
        source: Source::Published.word(),
        text: amount(printed.value, &printed.unit),
        stand_in: false,
        tag: String::new(),
        near: "none",
    };
    let ours = [predicted, emulated, measured].into_iter().flatten().map(line);
    RowView {
        stack: title.to_owned(),
        what: printed.of.what(),
        metric: printed.of.metric.clone(),
        lines: std::iter::once(published).chain(ours).collect(),
    }
}

fn claim(
    publication: &Publication,
    claim: &Claim,
    figures: &[Figure],
    facts: &RunFacts,
) -> ClaimView {
    let judged = judge(publication, claim, figures, facts);
    let interval =
        judged.interval.map(|(low, high)| format!(" ({} to {})", digits(low), digits(high)));
    ClaimView {
        text: claim.text.clone(),
        number: claim.number.clone(),
        published: claim
            .value
            .map_or_else(|| without_a_number(claim).into(), |value| distinct_digits(value, claim)),
        ours: judged.ours.map_or_else(
            || "-".into(),
            |value| format!("{}{}", distinct_digits(value, claim), interval.unwrap_or_default()),
        ),
        source: judged.source.map_or_else(String::new, |source| source.to_string()),
        verdict: judged.verdict.word(),
        about: judged.about.word(),
        lies: judged.lies,
        over_printed: judged
            .ours
            .zip(claim.value)
            .filter(|(ours, printed)| *ours > 0.0 && *printed > 0.0)
            .map(|(ours, printed)| ours / printed),
        why: judged.why,
        range: match (claim.from, claim.to) {
            (Some(from), Some(to)) if from == to => digits(from),
            (Some(from), Some(to)) => format!("{} to {}", digits(from), digits(to)),
            (Some(from), None) => format!("{} or more", digits(from)),
            (None, Some(to)) => format!("{} or less", digits(to)),
            (None, None) => "any".to_owned(),
        },
        because: claim.because.clone(),
    }
}

/// A value with enough digits not to be printed as a bound of the claim's range that it is not.
fn distinct_digits(value: f64, claim: &Claim) -> String {
    let text = digits(value);
    let mut bounds = [claim.from, claim.to].into_iter().flatten();
    match bounds.any(|bound| bound != value && digits(bound) == text) {
        true => format!("{value:.4}"),
        false => text,
    }
}

/// What stands in place of a printed value.
fn without_a_number(claim: &Claim) -> &'static str {
    if claim.is_ours() { "not published" } else { "in words" }
}

/// A value with its unit; bytes in decimal units, as drive sizes are printed.
fn amount(value: f64, unit: &str) -> String {
    let larger = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB")];
    match larger.into_iter().find(|(least, _)| unit == "B" && value >= *least) {
        Some((least, name)) => format!("{} {name}", digits(value / least)),
        // Counts have no unit.
        None if unit == "count" => digits(value),
        None => format!("{} {}", digits(value), unit_text(unit)),
    }
}

/// Three significant digits, without trailing zeros.
fn digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let digits = (2 - value.abs().log10().floor() as i32).max(0) as usize;
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_at_most_after_which_nothing_is_said() {
        assert_eq!(amount(1_534_530_699_264.0, "B"), "1.53 TB");
        assert_eq!(amount(4096.0, "B"), "4096 B");
        assert_eq!(amount(9456.0, "s"), "9456 s");
        for (value, text) in [(14.0, "14"), (2512.9, "2513"), (0.1634, "0.163"), (5.02, "5.02")] {
            assert_eq!(digits(value), text);
        }
    }

    /// "1.01" outside of "1.01 to 1.2" would contradict itself.
    #[test]
    fn a_value_is_not_printed_as_a_bound_that_it_is_not() {
        let claims = crate::published::publication("symas-optane").expect("it is there").claim;
        let claim = claims.into_iter().find(|claim| claim.from == Some(1.01)).expect("a claim");
        assert_eq!(distinct_digits(1.0062, &claim), "1.0062");
        assert_eq!(
            (distinct_digits(1.01, &claim), distinct_digits(0.964, &claim)),
            ("1.01".into(), "0.964".into())
        );
    }
}
