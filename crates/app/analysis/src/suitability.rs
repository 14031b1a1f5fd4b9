//! Which of several storages is enough for a required load.
//!
//! Works on runs whose study has the experiment `need` (the required rate in an open loop, with an objective
//! for its latency) and `limit` (as fast as it goes), as `crosspoint advise` writes them. A verdict holds
//! for the whole range of a value; where the requirement lies within the range, it is borderline. Values
//! whose range is not known have an assumed one ([`RATE_ERROR`], [`P99_ERROR`]).

use archive::Run;
use study::{Objective, Stack};
use units::Rate;
use workload::OpClass;

use crate::decision::{Choice, Decision, DecisionMetric, counted_of};
use crate::doubts::{WarningKind, doubts_of};
use crate::groups::{Group, Ops, groups, is_sql};
use crate::objective::Outcome;
use crate::range::{ValueRange, value_range};
use crate::reliability::{Reliability, standing};

/// Factor either way of a simulated rate without a known range: the worst of the embedded engines next to
/// real time on the same models is 1.3 (docs/VALIDATION.md); assumed.
pub const RATE_ERROR: f64 = 1.5;
/// The same of a p99; assumed.
pub const P99_ERROR: f64 = 2.0;

/// Experiment with the required load.
pub const NEED: &str = "need";
/// Experiment without a pace.
pub const LIMIT: &str = "limit";
/// A storage is better than needed if it has half the allowed latency and twice the required rate.
const MUCH: f64 = 2.0;

/// Verdict on one storage, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Suitability {
    /// Half the allowed latency and twice the required rate.
    Better,
    /// It meets the requirement.
    Enough,
    /// The requirement lies within the range of its value.
    Borderline,
    /// It does not meet it.
    NotEnough,
    /// No result.
    Unknown,
}

impl Suitability {
    /// The words in tables.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Better => "better than needed",
            Self::Enough => "enough",
            Self::Borderline => "borderline",
            Self::NotEnough => "not enough",
            Self::Unknown => "no result",
        }
    }
}

/// A value and its range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ranged {
    /// The simulated or measured value.
    pub value: f64,
    /// Where it is expected on real storage.
    pub range: ValueRange,
}

impl Ranged {
    /// The value with its range, or one by the assumed error.
    fn new(value: f64, known: Option<ValueRange>, error: f64) -> Self {
        let assumed = ValueRange { low: value / error, high: value * error };
        Self { value, range: known.unwrap_or(assumed) }
    }
}

/// One storage of the shortlist.
#[derive(Debug)]
pub struct Candidate<'a> {
    /// The stack.
    pub stack: &'a Stack,
    /// Its title.
    pub title: &'a str,
    /// Whether the required load was kept; `None` without a result.
    pub kept: Option<bool>,
    /// p99 at the required load, nanoseconds, of the slower kind of operation; `None` if the load was not
    /// kept, nothing was required, or there are too few samples.
    pub p99: Option<Ranged>,
    /// Highest rate, operations per second.
    pub most: Option<Ranged>,
    /// The decision's result with the highest rate.
    pub limit: Option<&'a Choice<'a>>,
    /// The verdict.
    pub verdict: Suitability,
}

/// The requirement and the storages, best verdict first, then by price, then by rate.
#[derive(Debug)]
pub struct Shortlist<'a> {
    /// Rate required; `None`: as fast as possible.
    pub rate: Option<Rate>,
    /// Latency required.
    pub objective: Option<Objective>,
    /// What the rate counts, with its unit.
    pub counted: &'static str,
    /// The storages.
    pub candidates: Vec<Candidate<'a>>,
}

/// The shortlist of a run with these decisions; `None` if its study is not one of `advise`, or has no result.
#[must_use]
pub fn shortlist<'a>(run: &'a Run, decided: &'a [Decision<'a>]) -> Option<Shortlist<'a>> {
    if run.study.answer != Some(study::Finding::Suitability) {
        return None;
    }
    let all = groups(run);
    let of = |name: &'static str| {
        all.iter().filter(move |group| group.first.experiment == name && group.is_sound())
    };
    let any = of(LIMIT).next()?;
    let (_, counted) = counted_of(any)?;
    let need = run.study.experiment.iter().find(|one| one.name == NEED);
    let objective = need.and_then(|need| need.objectives.first().copied());
    let rate = of(NEED).find_map(|group| group.first.point.get("rate")?.parse::<Rate>().ok());
    let required = objective.and_then(|one| one.at).or(rate);
    let choices = || {
        let limits = decided.iter().filter(|one| one.first().experiment == LIMIT);
        limits.flat_map(|one| &one.choices)
    };
    let candidate = |stack: usize| {
        let on = |group: &&Group<'_>| group.first.stack == run.study.stack[stack].name;
        let limit = choices().find(|one| on(&&one.group));
        let most = limit.map(ranged);
        let need = of(NEED).find(on);
        let (p99, kept) = need.map_or((None, None), at_load);
        let wanted = Requirement { rate: required, objective };
        let stack = &run.study.stack[stack];
        Candidate {
            stack,
            title: crate::groups::stack_title(run, &stack.name),
            kept,
            p99,
            most,
            limit,
            verdict: wanted.verdict(kept, p99, most),
        }
    };
    let own = (0..run.study.stack.len()).filter(|at| run.study.stack[*at].variant_of.is_none());
    let mut candidates: Vec<Candidate<'_>> = own.map(candidate).collect();
    let rate_of = |one: &Candidate<'_>| one.most.map_or(0.0, |most| most.value);
    candidates.sort_by(|a, b| {
        let price = |one: &Candidate<'_>| price_of(one.stack).unwrap_or(f64::MAX);
        let by_price = price(a).total_cmp(&price(b));
        a.verdict.cmp(&b.verdict).then(by_price).then(rate_of(b).total_cmp(&rate_of(a)))
    });
    let counted = if whole_classes(any).len() > 1 { "operations/s" } else { counted.words() };
    Some(Shortlist { rate: required, objective, counted, candidates })
}

impl Shortlist<'_> {
    /// Whether a candidate is enough: missed if none is, inconclusive if that is not known.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let has = |verdict| self.candidates.iter().any(|one| one.verdict == verdict);
        match () {
            () if has(Suitability::Better) || has(Suitability::Enough) => Outcome::Met,
            () if has(Suitability::Borderline) || has(Suitability::Unknown) => Outcome::Open,
            () => Outcome::Missed,
        }
    }
}

/// The number that a stack's price begins with.
#[must_use]
pub fn price_of(stack: &Stack) -> Option<f64> {
    stack.price.as_deref()?.split(' ').next()?.parse().ok()
}

/// The kinds of operations that a required rate counts: lookups and updates, or transactions.
fn whole_classes(group: &Group<'_>) -> Vec<Ops> {
    let all = group.classes().into_iter();
    match is_sql(group.first) {
        true => vec![Ops::Only(OpClass::Transaction)],
        false => all.filter(|ops| ops.class().is_some_and(OpClass::is_whole)).collect(),
    }
}

/// The rate of all operations; its range is that of the kind that the decision counts.
fn ranged(choice: &Choice<'_>) -> Ranged {
    let counted = choice.value.value;
    let rate = |ops: &Ops| choice.group.rate(*ops).map_or(0.0, |rate| rate.value);
    let value = whole_classes(&choice.group).iter().map(rate).sum::<f64>().max(counted);
    let share = value / counted.max(f64::MIN_POSITIVE);
    let known = choice.range.map(|one| ValueRange { low: one.low * share, high: one.high * share });
    Ranged::new(value, known, RATE_ERROR)
}

/// p99 of a load that was kept, of the slower kind of operation, and whether it was; `None` if emulation is
/// unreliable.
fn at_load(group: &Group<'_>) -> (Option<Ranged>, Option<bool>) {
    if group.trials.iter().any(|trial| doubts_of(trial).contains(&WarningKind::LoadNotKept)) {
        return (None, Some(false));
    }
    let of = |ops: &Ops| {
        let metric = DecisionMetric::TimeAtRate(ops.class()?);
        let standing = standing(group, metric);
        if matches!(standing, Reliability::Unreliable(_)) {
            return Some(None);
        }
        let p99 = group.percentile(*ops, 99.0).ok()?;
        let range = value_range(group, (&p99, metric), &standing);
        Some(Some(Ranged::new(p99.value, range, P99_ERROR)))
    };
    let all: Vec<Option<Option<Ranged>>> = whole_classes(group).iter().map(of).collect();
    if all.iter().any(|one| matches!(one, Some(None))) {
        return (None, None);
    }
    // A kind without enough samples is rare, and says nothing.
    let known = all.into_iter().flatten().flatten();
    (known.max_by(|a, b| a.value.total_cmp(&b.value)), Some(true))
}

/// What is required of a storage.
#[derive(Debug, Clone, Copy)]
struct Requirement {
    rate: Option<Rate>,
    objective: Option<Objective>,
}

impl Requirement {
    /// `kept`: whether the required load was, if that is known.
    fn verdict(self, kept: Option<bool>, p99: Option<Ranged>, most: Option<Ranged>) -> Suitability {
        use Suitability::{Better, Borderline, Enough, NotEnough, Unknown};
        let Some(rate) = self.rate.map(|rate| rate.get() as f64) else {
            return if most.is_some() { Enough } else { Unknown };
        };
        let by_rate = match most {
            Some(most) if most.range.high < rate => NotEnough,
            Some(most) if most.range.low >= rate * MUCH => Better,
            Some(most) if most.range.low >= rate => Enough,
            Some(_) => Borderline,
            None => Unknown,
        };
        let by_load = match (kept, p99, self.objective) {
            (Some(false), ..) => NotEnough,
            (None, ..) => Unknown,
            (Some(true), _, None) => by_rate,
            (Some(true), None, Some(_)) => Unknown,
            (Some(true), Some(p99), Some(objective)) => {
                let limit = objective.at_most.get() as f64;
                match p99.range {
                    range if range.low > limit => NotEnough,
                    range if range.high <= limit / MUCH => Better,
                    range if range.high <= limit => Enough,
                    _ => Borderline,
                }
            }
        };
        match by_rate == NotEnough || by_load == NotEnough {
            true => NotEnough,
            false => by_rate.max(by_load),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranged(value: f64, error: f64) -> Option<Ranged> {
        Some(Ranged::new(value, None, error))
    }

    /// A verdict that ignores the range, or one of two requirements, sells the wrong drive.
    #[test]
    fn a_verdict_holds_over_the_whole_range() {
        use Suitability::{Better, Borderline, Enough, NotEnough, Unknown};
        let objective: Objective = "p99 <= 5ms at 200/s".parse().expect("an objective");
        let need = Requirement { rate: objective.at, objective: Some(objective) };
        let of =
            |p99: f64, most: f64| need.verdict(Some(true), ranged(p99, 1.2), ranged(most, 1.2));
        assert_eq!(of(1e6, 5000.0), Better);
        assert_eq!(of(4e6, 5000.0), Enough);
        assert_eq!(of(1e6, 300.0), Enough, "half the latency, but not twice the rate");
        assert_eq!(of(4.9e6, 5000.0), Borderline);
        assert_eq!(of(1e6, 210.0), Borderline);
        assert_eq!(of(9e6, 5000.0), NotEnough);
        assert_eq!(of(1e6, 100.0), NotEnough);
        assert_eq!(need.verdict(Some(false), None, ranged(210.0, 1.2)), NotEnough);
        assert_eq!(need.verdict(None, None, ranged(5000.0, 1.2)), Unknown);
        assert_eq!(need.verdict(None, None, ranged(100.0, 1.2)), NotEnough, "by the rate alone");
        assert_eq!(need.verdict(Some(true), ranged(1e6, 1.2), None), Unknown);
        let rate_alone = Requirement { objective: None, ..need };
        assert_eq!(rate_alone.verdict(Some(true), None, ranged(500.0, 1.2)), Better);
        let nothing = Requirement { rate: None, objective: None };
        assert_eq!(nothing.verdict(None, None, ranged(500.0, 1.2)), Enough);
    }
}
