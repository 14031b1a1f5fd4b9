//! Every claim of every publication must fail with a number that contradicts it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use device::Evidence;
use study::Source;
use validate::PredictionError;

use crate::doubts::WarningKind;
use crate::figure::Figure;
use crate::published::{Claim, FILES, Ours, Publication, Take, publication};
use crate::verdict::{About, Judged, Lies, RunFacts, RunStack, Verdict, is_count, judge};

/// All publications, also as other studies cast them.
fn publications() -> Vec<Publication> {
    let parsed = || FILES.iter().map(|text| toml::from_str::<Publication>(text).unwrap());
    let cast: BTreeSet<String> =
        parsed().flat_map(|one| one.cast.into_iter().map(|cast| cast.study)).collect();
    parsed().chain(cast.iter().map(|study| publication(study).unwrap())).collect()
}

/// A figure of `of` whose repetitions spread by `spread` to either side, or whose model has that error.
fn figure(of: &Ours, (source, value): (Source, f64), spread: Option<f64>) -> Figure {
    let end = |sign: f64| spread.map(|spread| value * (1.0 + sign * spread));
    Figure {
        spoiled: None,
        others: 0.0,
        moved: 1.0,
        study: String::new(),
        stack: of.stack.clone(),
        engine: of.engine.clone(),
        workload: of.workload.clone(),
        point: of.point.clone(),
        defaults: Arc::new(BTreeMap::new()),
        job: None,
        metric: of.metric.clone().into(),
        unit: "".into(),
        value,
        lo: end(-1.0).filter(|_| source == Source::Measured),
        hi: end(1.0).filter(|_| source == Source::Measured),
        interval: spread.map(|_| "repetitions"),
        at_least: false,
        n: 3,
        source,
        run: String::new(),
        citation: None,
        validation: None,
        worth: spread.map(|error| PredictionError::HeldOut {
            median: error,
            worst: error,
            // Enough for their largest error to stand alone.
            figures: 9,
            one_sided: false,
        }),
        partial: false,
    }
}

/// The figures of a run for which the expression of `claim` evaluates to `value`; see [`figure`].
fn run_of(claim: &Claim, (source, value): (Source, f64), spread: Option<f64>) -> Vec<Figure> {
    let Some(over) = &claim.over else { return vec![figure(&claim.of, (source, value), spread)] };
    let (mut a, mut b) = (value * 1000.0, 1000.0);
    // Maximum and minimum of one sweep must keep their order.
    let swapped = claim.of.stack == over.stack && claim.of.take == Take::Max && a < b;
    if swapped {
        (a, b) = (b, a);
    }
    vec![figure(&claim.of, (source, a), spread), figure(over, (source, b), spread)]
}

/// The stacks of the publication; with `are`, each is the published drive itself.
fn facts(publication: &Publication, claim: &Claim, are: bool) -> RunFacts {
    let names = std::iter::once(&claim.of).chain(&claim.over).map(|ours| ours.stack.clone());
    let stacks = names
        .map(|name| RunStack {
            identity: claim
                .drives
                .get(&name)
                .or_else(|| publication.drives.get(&name))
                .and_then(|all| all.first().cloned())
                .filter(|_| are),
            title: name.clone(),
            name,
            time_scale: 1,
            simulated: false,
            raw: false,
        })
        .collect();
    RunFacts { stacks, ..RunFacts::default() }
}

fn judged(
    (publication, claim): (&Publication, &Claim),
    (source, value): (Source, f64),
    spread: Option<f64>,
    are: bool,
) -> Judged {
    let figures = run_of(claim, (source, value), spread);
    judge(publication, claim, &figures, &facts(publication, claim, are))
}

/// A value that clearly satisfies the claim.
fn inside(claim: &Claim) -> f64 {
    match claim.bounds() {
        (low, high) if low.is_finite() && high.is_finite() => (low + high) / 2.0,
        (low, _) if low.is_finite() => low * 1.5,
        (_, high) => high / 2.0,
    }
}

fn each(mut test: impl FnMut(&Publication, &Claim)) -> usize {
    let all = publications();
    all.iter().for_each(|one| one.claim.iter().for_each(|claim| test(one, claim)));
    all.iter().map(|one| one.claim.len()).sum()
}

const TIGHT: f64 = 1e-6;

/// A claim that nothing can refute says nothing when it holds.
#[test]
fn every_claim_fails_with_its_failing_number_and_holds_inside() {
    let count = each(|publication, claim| {
        // A stack without an identified drive has no answer.
        let named =
            facts(publication, claim, true).stacks.iter().all(|stack| stack.identity.is_some());
        let of = |value| judged((publication, claim), (Source::Measured, value), Some(TIGHT), true);
        let (low, high) = claim.bounds();
        assert!(low <= high && (low.is_finite() || high.is_finite()), "{}", claim.text);
        assert!(claim.fails < low || claim.fails > high, "{}", claim.text);
        assert!(!claim.because.is_empty() && claim.text.ends_with('.'), "{}", claim.text);
        let printed = claim.value.unwrap_or(inside(claim));
        assert!((low..=high).contains(&printed), "what was printed must hold: {}", claim.text);
        let about = if named { About::Theirs } else { About::Yours };
        let about = if claim.is_ours() { About::Ours } else { about };
        assert_eq!(of(claim.fails).about, about, "{}", claim.text);
        assert_eq!(of(claim.fails).verdict, Verdict::DoesNotHold, "{}", claim.text);
        let exact = low == high;
        let holds =
            judged((publication, claim), (Source::Measured, inside(claim)), Some(0.0), true);
        assert_eq!(holds.verdict, Verdict::Holds, "{} {exact}", claim.text);
    });
    assert!(count >= 80, "{count}");
}

/// A single run, or an interval that spans a bound, must leave the claim inconclusive.
#[test]
fn every_claim_is_undecided_without_repetitions_and_with_a_wide_interval() {
    each(|publication, claim| {
        let of =
            |spread| judged((publication, claim), (Source::Measured, inside(claim)), spread, true);
        let named =
            facts(publication, claim, true).stacks.iter().all(|stack| stack.identity.is_some());
        let counts =
            run_of(claim, (Source::Measured, 1.0), None).iter().all(|one| is_count(one, false));
        if !counts && named {
            assert_eq!(of(None).verdict, Verdict::Inconclusive, "{}", claim.text);
            assert_eq!(of(Some(3.0)).verdict, Verdict::Inconclusive, "{}", claim.text);
        }
    });
}

/// A RAM file system used instead of an Optane drive must not confirm claims about Optane: its verdict is
/// about itself.
#[test]
fn stand_ins_are_judged_as_what_they_are() {
    each(|publication, claim| {
        let of = judged((publication, claim), (Source::Measured, claim.fails), Some(TIGHT), false);
        assert_eq!(of.verdict, Verdict::DoesNotHold, "{}", claim.text);
        let about = if claim.is_ours() { About::Ours } else { About::Yours };
        assert_eq!(of.about, about, "{}", claim.text);
        let once = judged((publication, claim), (Source::Measured, claim.fails), None, false);
        if !run_of(claim, (Source::Measured, 1.0), None).iter().all(|one| is_count(one, false)) {
            assert_eq!(once.verdict, Verdict::Inconclusive, "one run: {}", claim.text);
            assert_eq!(
                once.lies,
                Some(Lies::Outside),
                "the contrary is not hidden: {}",
                claim.text
            );
        }
        let nothing = judge(publication, claim, &[], &facts(publication, claim, true));
        assert_eq!((nothing.verdict, nothing.ours), (Verdict::NotTested, None));
    });
}

/// A model that was fitted to a claim agrees with it by construction.
#[test]
fn predictions_are_judged_by_their_held_out_error_and_inputs_not_at_all() {
    each(|publication, claim| {
        if claim.of.engine != "block" {
            assert_eq!(claim.is, None, "{}", claim.text);
            return;
        }
        let of =
            |value, spread| judged((publication, claim), (Source::Predicted, value), spread, true);
        if claim.is == Some(Evidence::HeldOut) {
            assert_eq!(
                of(claim.fails, Some(TIGHT)).verdict,
                Verdict::DoesNotHold,
                "{}",
                claim.text
            );
            assert_eq!(of(claim.fails, None).verdict, Verdict::Inconclusive, "{}", claim.text);
            assert_eq!(of(claim.fails, Some(3.0)).verdict, Verdict::Inconclusive, "{}", claim.text);
        } else {
            assert_eq!(of(claim.fails, Some(TIGHT)).verdict, Verdict::Fitted, "{}", claim.text);
        }
    });
}

#[test]
fn what_is_cut_short_or_never_ended_is_undecided() {
    each(|publication, claim| {
        let spoil = |change: &dyn Fn(&mut Figure)| {
            let mut figures = run_of(claim, (Source::Measured, inside(claim)), Some(0.0));
            change(&mut figures[0]);
            judge(publication, claim, &figures, &facts(publication, claim, true)).verdict
        };
        let foreign = spoil(&|one| one.spoiled = Some(WarningKind::OtherWrites));
        for verdict in
            [spoil(&|one| one.partial = true), spoil(&|one| one.at_least = true), foreign]
        {
            assert!(
                matches!(verdict, Verdict::Inconclusive | Verdict::NotTested),
                "{}",
                claim.text
            );
        }
    });
}

/// Simulations are judged where such figures were compared with real drives, and only there.
#[test]
fn simulations_are_judged_by_the_errors_of_their_class() {
    let mut judged_claims = 0;
    each(|publication, claim| {
        let mut facts = facts(publication, claim, true);
        facts.stacks.iter_mut().for_each(|stack| stack.simulated = true);
        let of = |value: f64, simulated: bool| {
            let mut facts = facts.clone();
            facts.stacks.iter_mut().for_each(|stack| stack.simulated = simulated);
            judge(publication, claim, &run_of(claim, (Source::Emulated, value), None), &facts)
        };
        let figures = run_of(claim, (Source::Emulated, 1.0), None);
        let known =
            figures.iter().all(|one| crate::simulated_class::of_figure(one, false).is_some());
        // `run_of` keeps the order of the ends of a sweep.
        let sweep = claim.of.take == Take::Max;
        if !known || sweep || figures.iter().any(|one| is_count(one, false)) {
            return;
        }
        judged_claims += 1;
        // Attached drives have no such range.
        assert_eq!(of(claim.fails, false).verdict, Verdict::Inconclusive, "{}", claim.text);
        let (low, high) = claim.bounds();
        let far = if claim.fails > high { high.abs() * 10.0 } else { low.abs() / 10.0 };
        assert_eq!(of(far, true).verdict, Verdict::DoesNotHold, "{}", claim.text);
        let bound = if low.is_finite() && low > 0.0 { low } else { high };
        assert_eq!(of(bound, true).verdict, Verdict::Inconclusive, "at a bound: {}", claim.text);
    });
    assert!(judged_claims >= 5, "{judged_claims}");
}

/// A single measurement is judged by the variation of its host.
#[test]
fn a_single_run_is_judged_by_the_noise_of_its_host() {
    each(|publication, claim| {
        let mut facts = facts(publication, claim, true);
        let metric = &claim.of.metric;
        for metric in ["rate", metric.as_str()] {
            facts.noise.insert(format!("any all {metric}"), 1e-6);
        }
        if let Some(over) = &claim.over {
            facts.noise.insert(format!("any all {}", over.metric), 1e-6);
        }
        let of = |value| {
            judge(publication, claim, &run_of(claim, (Source::Measured, value), None), &facts)
                .verdict
        };
        assert_eq!(of(claim.fails), Verdict::DoesNotHold, "{}", claim.text);
    });
}

/// Other programs take from a rate at most their share of the CPUs, and nobody knows what from a percentile.
#[test]
fn a_busy_host_widens_the_interval_of_a_rate() {
    let mut rates = 0;
    each(|publication, claim| {
        let facts = facts(publication, claim, true);
        let (low, high) = claim.bounds();
        let with = |value, others| {
            let mut figures = run_of(claim, (Source::Measured, value), Some(TIGHT));
            for figure in &mut figures {
                (figure.others, figure.spoiled) = (others, Some(WarningKind::BusyHost));
            }
            let all = ["iops", "ops_rate", "tx_rate", "throughput", "load_time"];
            let rate = figures.iter().all(|one| all.contains(&&*one.metric));
            (
                judge(publication, claim, &figures, &facts).verdict,
                rate,
                figures.iter().any(|one| is_count(one, false)),
            )
        };
        let near = if low > 0.0 { low * 0.95 } else { high * 1.05 };
        let far = if low > 0.0 { low / 3.0 } else { high * 3.0 };
        let (verdict, rate, counted) = with(near, 0.2);
        let sweep = std::iter::once(&claim.of).chain(&claim.over).any(|of| of.take != Take::First);
        if sweep || counted || !near.is_finite() {
            return;
        }
        assert_eq!(verdict, Verdict::Inconclusive, "{}", claim.text);
        let expected = if rate { Verdict::DoesNotHold } else { Verdict::Inconclusive };
        assert_eq!(with(far, 0.2).0, expected, "{}", claim.text);
        assert_eq!(with(far, 0.4).0, Verdict::Inconclusive, "{}", claim.text);
        rates += u32::from(rate);
    });
    assert!(rates >= 10, "{rates}");
}

/// Data in memory, or a rate that changed within its trial, says little about a drive.
#[test]
fn a_drive_that_took_no_part_decides_nothing() {
    each(|publication, claim| {
        let facts = facts(publication, claim, true);
        let of = |change: &dyn Fn(&mut Figure)| {
            let mut figures = run_of(claim, (Source::Measured, claim.fails), Some(TIGHT));
            figures.iter_mut().for_each(change);
            (judge(publication, claim, &figures, &facts).verdict, figures)
        };
        let (verdict, figures) = of(&|one| one.spoiled = Some(WarningKind::InMemory));
        if figures.iter().any(|one| is_count(one, false)) {
            return;
        }
        assert_eq!(verdict, Verdict::Inconclusive, "{}", claim.text);
        let (verdict, figures) = of(&|one| one.moved = 1e6);
        let rates = ["iops", "ops_rate", "tx_rate", "throughput", "load_time"];
        if figures.iter().all(|one| rates.contains(&&*one.metric)) {
            assert_eq!(verdict, Verdict::Inconclusive, "{}", claim.text);
        }
    });
}

/// A claim that cannot be tested must say what it takes, and not vanish.
#[test]
fn an_untested_claim_names_what_the_run_lacks() {
    each(|publication, claim| {
        let nothing = judge(publication, claim, &[], &RunFacts::default());
        assert_eq!(nothing.verdict, Verdict::NotTested);
        let stack = format!("`{}`", claim.of.stack);
        assert!(nothing.why.contains("needs stack") && nothing.why.contains(&stack), "{nothing:?}");
        let there = judge(publication, claim, &[], &facts(publication, claim, true));
        assert!(there.why.contains("needs experiment"), "{there:?}");
    });
}
