//! What a study printed, beside what is measured and predicted here.
//!
//! The published numbers and claims of a study stand in `published/STUDY.toml`, each with its place in the
//! publication. Invariants: a published number enters no average and no model; one that nothing of ours
//! answers is shown all the same. What it is not: a verdict on the publication.

use std::collections::BTreeMap;
use std::sync::Arc;
use study::Source;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::figure::Figure;

/// The publications that ship.
const FILES: &[&str] = &[
    include_str!("../../../../published/icpads-3dxpoint.toml"),
    include_str!("../../../../published/anandtech-optane.toml"),
    include_str!("../../../../published/nvmeof-block.toml"),
    include_str!("../../../../published/symas-optane.toml"),
    include_str!("../../../../published/circuitblvd-nvmeof.toml"),
    include_str!("../../../../published/icpads-mysql.toml"),
    include_str!("../../../../published/intel-cas-mysql.toml"),
];

/// What a study printed.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Publication {
    schema: u32,
    /// Name of the study file that repeats it.
    pub study: String,
    /// Authors, title, venue, year.
    pub citation: String,
    #[serde(default)]
    figure: Vec<Printed>,
    #[serde(default)]
    claim: Vec<Claim>,
}

/// A printed number.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Printed {
    /// Table or slide.
    place: String,
    /// What of ours answers it.
    of: Ours,
    value: f64,
    unit: String,
    /// It does not depend on the drive or the scale: what is measured here is compared outright.
    #[serde(default)]
    outright: bool,
}

/// Figures of ours, by what they speak of.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ours {
    workload: String,
    stack: String,
    #[serde(default = "block")]
    engine: String,
    metric: String,
    #[serde(default)]
    point: BTreeMap<String, Value>,
    /// Which one, where several fit.
    #[serde(default)]
    take: Take,
}

fn block() -> String {
    "block".into()
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Take {
    /// The first of the plan.
    #[default]
    First,
    /// The lowest.
    Min,
    /// The highest.
    Max,
}

/// Something said in words, or of several numbers.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Claim {
    place: String,
    /// What it says, in our words.
    text: String,
    /// The number that it speaks of.
    of: Ours,
    /// Divided by this one.
    over: Option<Ours>,
    /// What was printed, if a number was.
    value: Option<f64>,
    /// It holds from here to there.
    holds: [f64; 2],
    /// What the number is, for people.
    number: String,
}

/// A table or slide with ours beside it.
#[derive(Debug, Serialize)]
pub struct PlaceView {
    /// Where it stands in the source.
    pub place: String,
    /// Its numbers.
    pub rows: Vec<RowView>,
    /// Its claims.
    pub claims: Vec<ClaimView>,
}

/// A printed number beside ours.
#[derive(Debug, Serialize)]
pub struct RowView {
    /// Title of the stack.
    pub stack: String,
    /// What was done to it.
    pub what: String,
    /// What is counted, with its unit.
    pub metric: String,
    /// As printed.
    pub published: String,
    /// Ours in virtual time.
    pub predicted: String,
    /// Ours on this machine.
    pub measured: String,
    /// Of the prediction, or of the measurement on the same device.
    pub error: String,
    /// Within a tenth, a third, or farther.
    pub near: &'static str,
}

/// A claim beside ours.
#[derive(Debug, Serialize)]
pub struct ClaimView {
    /// In the source's words.
    pub text: String,
    /// What number it is about.
    pub number: String,
    /// As printed.
    pub published: String,
    /// Ours.
    pub ours: String,
    /// Where ours comes from.
    pub source: String,
    /// Whether it holds.
    pub verdict: &'static str,
    /// Range in which it holds.
    pub range: String,
}

/// The publication that `study` repeats, if one ships.
#[must_use]
pub fn publication(study: &str) -> Option<Publication> {
    let all = FILES.iter().filter_map(|text| toml::from_str::<Publication>(text).ok());
    all.into_iter().find(|one| one.schema == 1 && one.study == study)
}

impl Ours {
    fn is(&self, figure: &Figure) -> bool {
        figure.workload == self.workload
            && figure.metric == self.metric
            && figure.engine == self.engine
            && self.point.iter().all(|(name, value)| figure.point.get(name) == Some(value))
    }

    /// The figure of `source`, of this stack or, where `any_stack`, of whichever.
    fn find<'a>(
        &self,
        figures: &'a [Figure],
        source: Source,
        any_stack: bool,
    ) -> Option<&'a Figure> {
        let mut found = figures
            .iter()
            .filter(|one| one.source == source && self.is(one))
            .filter(|one| any_stack || one.stack == self.stack);
        match self.take {
            Take::First => found.next(),
            Take::Min => found.min_by(|a, b| a.value.total_cmp(&b.value)),
            Take::Max => found.max_by(|a, b| a.value.total_cmp(&b.value)),
        }
    }

    /// The point in words: `latency, random, 100% reads`.
    fn what(&self) -> String {
        let plain = |value: &Value| value.as_str().map_or(value.to_string(), str::to_owned);
        let word = |(name, value): (&String, &Value)| match name.as_str() {
            "op" => None,
            "read_share" => Some(format!("{} reads", plain(value))),
            "pattern" => Some(plain(value)),
            name => Some(format!("{name} {}", plain(value))),
        };
        let words = self.point.iter().filter_map(word);
        let first = match self.engine.as_str() {
            "block" => self.workload.clone(),
            engine => format!("{engine}, {}", self.workload),
        };
        std::iter::once(first).chain(words).collect::<Vec<_>>().join(", ")
    }
}

/// The published figures as rows of the tidy table.
pub fn published_figures(study: &str) -> Vec<Figure> {
    let Some(publication) = publication(study) else { return Vec::new() };
    let figure = |printed: &Printed| Figure {
        study: publication.study.clone(),
        stack: printed.of.stack.clone(),
        engine: printed.of.engine.clone(),
        workload: printed.of.workload.clone(),
        point: printed.of.point.clone(),
        defaults: Arc::default(),
        job: None,
        metric: printed.of.metric.clone().into(),
        unit: printed.unit.clone().into(),
        value: printed.value,
        lo: None,
        hi: None,
        n: 1,
        source: Source::Published,
        run: String::new(),
        citation: Some(format!("{}; {}", publication.citation, printed.place)),
        validation: None,
        partial: false,
    };
    publication.figure.iter().map(figure).collect()
}

/// Every table and claim of the publication with ours beside it, in its own order.
pub fn beside(
    publication: &Publication,
    figures: &[Figure],
    title: &dyn Fn(&str) -> String,
) -> Vec<PlaceView> {
    let mut places: Vec<PlaceView> = Vec::new();
    let mut at = |name: &str| {
        places.iter().position(|view| view.place == name).unwrap_or_else(|| {
            let (rows, claims) = (Vec::new(), Vec::new());
            places.push(PlaceView { place: name.to_owned(), rows, claims });
            places.len() - 1
        })
    };
    let rows: Vec<(usize, RowView)> =
        publication.figure.iter().map(|one| (at(&one.place), row(one, figures, title))).collect();
    let claims: Vec<(usize, ClaimView)> =
        publication.claim.iter().map(|one| (at(&one.place), claim(one, figures))).collect();
    rows.into_iter().for_each(|(place, row)| places[place].rows.push(row));
    claims.into_iter().for_each(|(place, claim)| places[place].claims.push(claim));
    places
}

fn row(printed: &Printed, figures: &[Figure], title: &dyn Fn(&str) -> String) -> RowView {
    let predicted = printed.of.find(figures, Source::Predicted, false);
    let measured = printed.of.find(figures, Source::Measured, false);
    let measured = measured.or_else(|| printed.of.find(figures, Source::Measured, true));
    let text = |figure: &Figure| format!("{} {}", number(figure.value), figure.unit);
    let same = printed.of.find(figures, Source::Measured, false).filter(|_| printed.outright);
    let error = predicted.or(same).map(|figure| figure.value / printed.value - 1.0);
    RowView {
        stack: title(&printed.of.stack),
        what: printed.of.what(),
        metric: printed.of.metric.clone(),
        published: format!("{} {}", number(printed.value), printed.unit),
        predicted: predicted.map_or_else(|| "-".into(), text),
        measured: measured.map_or_else(
            || "-".into(),
            |figure| format!("{} ({})", text(figure), title(&figure.stack)),
        ),
        error: error.map_or_else(|| "-".into(), |error| format!("{:+.0} %", error * 100.0)),
        near: match error.map(f64::abs) {
            Some(error) if error <= 0.10 => "near",
            Some(error) if error <= 0.34 => "off",
            Some(_) => "far",
            None => "none",
        },
    }
}

fn claim(claim: &Claim, figures: &[Figure]) -> ClaimView {
    let of = |source: Source| {
        let value = |ours: &Ours| ours.find(figures, source, false).map(|figure| figure.value);
        let over = match &claim.over {
            Some(ours) => value(ours)?,
            None => 1.0,
        };
        Some((value(&claim.of)? / over, source))
    };
    // A claim is of those drives: only what ran on them, real or modelled, can answer it.
    let found = of(Source::Measured).or_else(|| of(Source::Predicted));
    let [low, high] = claim.holds;
    ClaimView {
        text: claim.text.clone(),
        number: claim.number.clone(),
        published: claim.value.map_or_else(|| "in words".into(), number),
        ours: found.map_or_else(|| "not in this run".into(), |(value, _)| number(value)),
        source: found.map_or_else(String::new, |(_, source)| source.to_string()),
        range: match (low, high) {
            (low, high) if high >= ENDLESS => format!("{} or more", number(low)),
            (low, high) => format!("{} to {}", number(low), number(high)),
        },
        verdict: match found {
            Some((value, _)) if (low..=high).contains(&value) => "holds",
            Some(_) => "does not hold",
            None => "not answered",
        },
    }
}

/// A range that ends here has no upper end.
const ENDLESS: f64 = 100.0;

/// Three significant digits, without a tail of zeros.
fn number(value: f64) -> String {
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

    /// A publication that does not parse would vanish from the report without a word.
    #[test]
    fn every_publication_parses_and_names_its_study() {
        for text in FILES {
            let one: Publication = toml::from_str(text).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(one.schema, 1);
            assert!(publication(&one.study).is_some());
            assert!(!one.figure.is_empty() || !one.claim.is_empty());
            assert!(one.claim.iter().all(|claim| claim.holds[0] <= claim.holds[1]));
        }
    }

    #[test]
    fn numbers_have_three_digits_at_most_after_which_nothing_is_said() {
        for (value, text) in [(14.0, "14"), (2512.9, "2513"), (0.1634, "0.163"), (5.02, "5.02")] {
            assert_eq!(number(value), text);
        }
    }
}
