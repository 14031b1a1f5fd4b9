//! Published numbers and claims, each with its place in the publication.
//!
//! They are stored in `published/STUDY.toml`. A published number of a drive states its role: `fitted` (a
//! constant was chosen with it), `constructed` (it follows from constants), `duplicate` (printed elsewhere,
//! too) or `held_out`; only held-out numbers measure a model's quality. Numbers of databases enter no model.
//! Invariants: a published number enters no average; it is shown even if nothing of ours corresponds to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::Evidence;
use serde::Deserialize;
use serde_json::Value;
use study::Source;

use crate::figure::Figure;

/// Published results that ship with the program.
pub(crate) const FILES: &[&str] = &[
    include_str!("../../../../published/icpads-3dxpoint.toml"),
    include_str!("../../../../published/latency-breakdown.toml"),
    include_str!("../../../../published/anandtech-optane.toml"),
    include_str!("../../../../published/nvmeof-block.toml"),
    include_str!("../../../../published/symas-optane.toml"),
    include_str!("../../../../published/circuitblvd-nvmeof.toml"),
    include_str!("../../../../published/icpads-mysql.toml"),
    include_str!("../../../../published/intel-cas-mysql.toml"),
];

/// A publication.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Publication {
    pub(crate) schema: u32,
    /// Name of the study file that repeats it.
    pub study: String,
    /// Authors, title, venue, year.
    pub citation: String,
    /// What a reader of all its claims should know; empty for nothing.
    #[serde(default)]
    pub remark: String,
    /// The published drives that each stack represents; other stacks are not listed.
    #[serde(default)]
    pub(crate) drives: BTreeMap<String, Vec<String>>,
    /// Our other studies that cover the publication.
    #[serde(default)]
    pub(crate) cast: Vec<Cast>,
    #[serde(default)]
    pub(crate) figure: Vec<Printed>,
    #[serde(default)]
    pub(crate) claim: Vec<Claim>,
}

/// Stacks of a study of ours that represent those of the publication: of another one, or of the same one in
/// the place of a single published drive ("does it hold here?").
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cast {
    /// Name of that study.
    pub study: String,
    /// Name of the drive's profile, if the publication had several drives as one stack.
    pub drive: Option<String>,
    /// Our stacks by the name of the publication's stack.
    pub stacks: BTreeMap<String, String>,
    /// The experiments that it repeats; empty for all.
    #[serde(default)]
    pub experiments: Vec<String>,
}

/// A printed number.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Printed {
    /// Table or slide.
    pub place: String,
    /// Selects our value.
    pub of: Ours,
    pub value: f64,
    pub unit: String,
    /// Independent of drive and scale: measurements on any stack are compared directly.
    #[serde(default)]
    pub outright: bool,
    /// The drive, if the stack stands for several.
    pub drive: Option<String>,
    /// Its role; `None` for databases, which no model predicts.
    pub is: Option<Evidence>,
}

/// Selects figures of ours.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ours {
    pub workload: String,
    pub stack: String,
    #[serde(default = "block")]
    pub engine: String,
    pub metric: String,
    /// Parameters, including defaults.
    #[serde(default)]
    pub point: BTreeMap<String, Value>,
    /// Which one to take if several match.
    #[serde(default)]
    pub take: Take,
}

fn block() -> String {
    BLOCK.into()
}

/// The engine whose figures models predict.
pub(crate) const BLOCK: &str = "block";

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Take {
    /// The first in the plan.
    #[default]
    First,
    /// The lowest.
    Min,
    /// The highest.
    Max,
}

/// A claim in words, or about several values.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Claim {
    pub place: String,
    /// The claim, paraphrased in one sentence.
    pub text: String,
    /// The metric, for people.
    pub number: String,
    /// Selects our figure.
    pub of: Ours,
    /// The divisor.
    pub over: Option<Ours>,
    /// The printed value, if any.
    pub value: Option<f64>,
    /// Lower bound of the range in which it holds; `None` for no bound.
    pub from: Option<f64>,
    /// Upper bound; `None` for no bound.
    pub to: Option<f64>,
    /// The words or digits that give these bounds.
    pub because: String,
    /// A number for which it does not hold; used in tests.
    #[cfg_attr(not(test), expect(dead_code, reason = "read by the test of every claim"))]
    pub fails: f64,
    /// Its role; `None` for databases.
    pub is: Option<Evidence>,
    /// Other bounds by drive, where the text gives them.
    #[serde(default)]
    pub on: BTreeMap<String, OnDrive>,
    /// The published drives by stack, for a claim that was cast to other stacks.
    #[serde(skip)]
    pub drives: BTreeMap<String, Vec<String>>,
}

/// Bounds of a claim on one drive.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OnDrive {
    /// Lower bound.
    pub from: f64,
    /// The words or digits that give it.
    pub because: String,
}

impl Claim {
    /// The claim with the bounds of `drive`.
    fn on_drive(&self, drive: Option<&String>) -> Self {
        let own = drive.and_then(|drive| self.on.get(drive)).cloned();
        let Some(OnDrive { from, because }) = own else { return self.clone() };
        Self { from: Some(from), because, ..self.clone() }
    }

    /// Whether it is our explanation of what the publication left open.
    pub fn is_ours(&self) -> bool {
        self.because.starts_with("OURS")
    }

    /// Lowest and highest number for which it holds.
    pub fn bounds(&self) -> (f64, f64) {
        (self.from.unwrap_or(f64::NEG_INFINITY), self.to.unwrap_or(f64::INFINITY))
    }
}

/// The publication that `study` repeats, if one ships. If `study` uses other stacks, they replace the
/// publication's, once per drive.
#[must_use]
pub fn publication(study: &str) -> Option<Publication> {
    let all = FILES.iter().filter_map(|text| toml::from_str::<Publication>(text).ok());
    all.filter(|one| one.schema == 1).find_map(|one| match one.study == study {
        true => Some(one.with_own_cast()),
        false => one.cast_as(study),
    })
}

/// The publication file that study `study` repeats or covers.
#[must_use]
pub fn source(study: &str) -> Option<&'static str> {
    FILES.iter().copied().find(|text| {
        let one = toml::from_str::<Publication>(text).ok();
        one.is_some_and(|one| one.study == study || one.cast.iter().any(|cast| cast.study == study))
    })
}

impl Publication {
    /// The publication with the stacks of `study`; `None` if that study does not cover it.
    fn cast_as(&self, study: &str) -> Option<Self> {
        let casts: Vec<&Cast> = self.cast.iter().filter(|cast| cast.study == study).collect();
        let drives = casts.iter().flat_map(|cast| self.drives_of(cast)).collect();
        let figures = self.figure.iter().flat_map(|one| {
            let on = |cast: &&&Cast| one.drive.is_none() || one.drive == cast.drive;
            casts
                .iter()
                .filter(on)
                .filter_map(|cast| Some(Printed { of: cast.of(&one.of)?, ..one.clone() }))
        });
        let claims = self.claim.iter().flat_map(|one| {
            casts.iter().filter_map(|cast| {
                let over = match &one.over {
                    Some(over) => Some(cast.of(over)?),
                    None => None,
                };
                let on = cast.drive.as_ref().map(|drive| format!(" ({drive})"));
                let printed = cast.drive.as_ref().and_then(|drive| self.printed(one, drive));
                let number = one.number.clone() + on.as_deref().unwrap_or_default();
                let value = printed.or(one.value);
                let of = cast.of(&one.of)?;
                let drives = self.drives_of(cast);
                Some(Claim { of, over, number, value, drives, ..one.on_drive(cast.drive.as_ref()) })
            })
        });
        let made = Self {
            study: study.to_owned(),
            drives,
            cast: Vec::new(),
            figure: figures.collect(),
            claim: claims.collect(),
            ..self.clone()
        };
        (!casts.is_empty()).then_some(made)
    }
}

impl Publication {
    /// The drives that the stacks of a cast stand for.
    fn drives_of(&self, cast: &Cast) -> BTreeMap<String, Vec<String>> {
        let wanted = |theirs| self.drives.get(theirs).cloned().unwrap_or_default();
        cast.stacks.iter().map(|(theirs, ours)| (ours.clone(), wanted(theirs))).collect()
    }

    /// The publication with its claims about one drive repeated for other stacks of the same study.
    fn with_own_cast(mut self) -> Self {
        if let Some(own) = self.cast_as(&self.study) {
            self.claim.extend(own.claim);
            self.drives.extend(own.drives);
        }
        self
    }

    /// The printed number of a claim for one of several drives, if its table gives one.
    fn printed(&self, claim: &Claim, drive: &str) -> Option<f64> {
        let on = |of: &Ours| {
            let mut all = self.figure.iter();
            let alike = |one: &&Printed| one.of == *of && one.drive.as_deref() == Some(drive);
            all.find(alike).map(|one| one.value)
        };
        match &claim.over {
            Some(over) => Some(on(&claim.of)? / on(over)?),
            None => on(&claim.of),
        }
    }
}

impl Cast {
    /// Selects our figure for this drive; `None` if the stack is not mapped.
    fn of(&self, of: &Ours) -> Option<Ours> {
        let repeated = self.experiments.is_empty() || self.experiments.contains(&of.workload);
        let stack = self.stacks.get(&of.stack).filter(|_| repeated)?.clone();
        Some(Ours { stack, ..of.clone() })
    }
}

impl Ours {
    pub(crate) fn is(&self, figure: &Figure) -> bool {
        let parameter = |name: &str| figure.point.get(name).or_else(|| figure.defaults.get(name));
        figure.workload == self.workload
            && figure.metric == self.metric
            && figure.engine == self.engine
            && self.point.iter().all(|(name, value)| parameter(name) == Some(value))
    }

    /// The figure of `source` of this stack.
    pub(crate) fn find<'a>(&self, figures: &'a [Figure], source: Source) -> Option<&'a Figure> {
        let fits = |one: &&Figure| one.source == source && one.stack == self.stack && self.is(one);
        let mut found = figures.iter().filter(fits);
        match self.take {
            Take::First => found.next(),
            Take::Min => found.min_by(|a, b| a.value.total_cmp(&b.value)),
            Take::Max => found.max_by(|a, b| a.value.total_cmp(&b.value)),
        }
    }

    /// The point in words: `latency, random, 100% reads`.
    pub(crate) fn what(&self) -> String {
        let plain = |value: &Value| value.as_str().map_or(value.to_string(), str::to_owned);
        let word = |(name, value): (&String, &Value)| match name.as_str() {
            "op" => None,
            "read_share" => Some(format!("{} reads", plain(value))),
            "pattern" => Some(plain(value)),
            name => Some(format!("{name} {}", plain(value))),
        };
        let words = self.point.iter().filter_map(word);
        let first = match self.engine.as_str() {
            BLOCK => self.workload.clone(),
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
        interval: None,
        at_least: false,
        n: 1,
        source: Source::Published,
        run: String::new(),
        citation: Some(format!("{}; {}", publication.citation, printed.place)),
        validation: printed.is.map(|is| format!("{} (what it is to our models)", is.word())),
        worth: None,
        spoiled: None,
        others: 0.0,
        moved: 1.0,
        partial: false,
    };
    publication.figure.iter().map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A publication that does not parse would vanish from the report without a word.
    #[test]
    fn every_publication_parses_and_says_what_its_numbers_are() {
        for text in FILES {
            let one: Publication = toml::from_str(text).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(one.schema, 1);
            assert!(publication(&one.study).is_some());
            assert!(!one.figure.is_empty() || !one.claim.is_empty());
            for printed in &one.figure {
                assert_eq!(printed.is.is_some(), printed.of.engine == BLOCK, "{}", printed.place);
                let drive = printed.drive.iter();
                let known = one.drives.get(&printed.of.stack);
                assert!(
                    drive.into_iter().all(|d| known.is_some_and(|k| k.contains(d))),
                    "{printed:?}"
                );
            }
        }
    }

    fn asked(one: &Publication) -> impl Iterator<Item = &Ours> {
        let over = one.claim.iter().filter_map(|claim| claim.over.as_ref());
        let figures = one.figure.iter().map(|printed| &printed.of);
        figures.chain(one.claim.iter().map(|claim| &claim.of)).chain(over)
    }

    /// A mapping to a stack or experiment that does not exist would never be compared.
    #[test]
    fn every_cast_names_stacks_and_experiments_that_are_there() {
        let parsed = FILES.iter().map(|text| toml::from_str::<Publication>(text).unwrap());
        let mut casts = 0;
        for (one, cast) in
            parsed.flat_map(|one| one.cast.clone().into_iter().map(move |c| (one.clone(), c)))
        {
            let file =
                format!("{}/../../../studies/{}.toml", env!("CARGO_MANIFEST_DIR"), cast.study);
            let study =
                study::parse(&std::fs::read_to_string(&file).expect(&file), study::Engines::ANY)
                    .unwrap();
            let has = |name: &String| study.stack.iter().any(|stack| stack.name == *name);
            assert!(cast.stacks.values().all(has), "{cast:?}");
            let theirs: Vec<&str> = asked(&one).map(|of| of.stack.as_str()).collect();
            assert!(cast.stacks.keys().all(|stack| theirs.contains(&stack.as_str())), "{cast:?}");
            let beside = publication(&cast.study).expect(&cast.study);
            for of in asked(&beside) {
                let run = study.experiment.iter().any(|one| one.name == of.workload);
                assert!(run && has(&of.stack), "{}: {of:?}", cast.study);
            }
            casts += 1;
        }
        assert_eq!(casts, 10);
    }

    /// A user's disk must be asked what it can answer alone, and never pass for a drive that it is not.
    #[test]
    fn one_disk_answers_the_claims_about_one_drive() {
        let own = publication("icpads-3dxpoint").unwrap();
        let here = |claim: &&Claim| claim.of.stack == "this-disk";
        let texts: Vec<&str> = own.claim.iter().filter(here).map(|one| &*one.text).collect();
        assert_eq!(texts.len(), 3, "{texts:?}");
        assert_eq!(own.claim.len(), 12 + 3, "those of the publication stay");
        let here = |one: &&Printed| one.of.stack == "this-disk";
        assert_eq!(own.figure.iter().filter(here).count(), 0);
        let sweep = publication("mixed-sweep").unwrap();
        assert!(sweep.claim.iter().all(|one| one.of.workload == "mix"));
        assert_eq!(sweep.claim.len(), 2 + 4, "{:?}", sweep.claim);
        let of =
            |drive: &str| sweep.claim.iter().filter(|one| one.drives["target"] == [drive]).count();
        assert_eq!((of("intel-p4800x"), of("micron-9100-max")), (2, 4), "each asks for its own");
    }

    /// A claim about several drives must be compared with the value printed for the same drive.
    #[test]
    fn a_claim_of_several_drives_has_the_printed_number_of_its_own() {
        let live = publication("live-symas").unwrap();
        let claims =
            live.claim.iter().filter(|one| one.text.contains("journal of the file system"));
        let of = |drive: &str| {
            let mut on = claims.clone().filter(|one| one.number.ends_with(&format!("({drive})")));
            on.next().and_then(|one| one.value).unwrap()
        };
        // Table "Loading the DB": 801.04 s for 710.91 s, and 911.10 s for 860.99 s.
        assert!((of("intel-p4500") - 801.04 / 710.91).abs() < 1e-9);
        assert!((of("intel-p4800x") - 911.1 / 860.99).abs() < 1e-9);
    }

    /// A drive judged by another one's bounds would hold where the text says that it does not.
    #[test]
    fn a_drive_is_judged_by_its_own_bounds() {
        let live = publication("live-nvmeof").unwrap();
        let bounds = |drive: &str| {
            let of = live.claim.iter().filter(|one| one.number.ends_with(&format!("({drive})")));
            of.map(|one| one.from.unwrap()).collect::<Vec<f64>>()
        };
        assert_eq!(
            (bounds("intel-p4500"), bounds("intel-p4800x")),
            ([0.795; 5].into(), [0.885; 5].into())
        );
    }

    /// Values that do not depend on the drive must show their error even if the claim holds.
    #[test]
    fn bytes_and_blocks_per_record_are_compared_outright() {
        let parsed = FILES.iter().map(|text| toml::from_str::<Publication>(text).unwrap());
        let printed: Vec<Printed> = parsed.flat_map(|one| one.figure).collect();
        let always = ["db_bytes_per_record", "blocks_out_per_record"];
        let of = |one: &&Printed| always.contains(&one.of.metric.as_str());
        assert!(printed.iter().filter(of).count() >= 16);
        assert!(printed.iter().filter(of).all(|one| one.outright));
    }
}
