//! Whether a claim of a publication holds for our results.
//!
//! A claim is about specific drives. A real device that the study declares with `identity`, or a model of the
//! drive, decides whether it holds there; any other stack, whether the same holds on that storage. Our number
//! has an interval across repetitions, or by the host's variation, if measured; from the held-out error if
//! predicted; from comparisons of simulations if simulated; and none on attached drives. Counts that depend
//! on neither drive nor CPU have a narrow one whatever their source. Without an interval the claim is
//! inconclusive. Values that a model was fitted to, or that follow from its constants, are no evidence.
//! Invariant: each claim has a number that fails it.

use std::collections::BTreeMap;

use device::Evidence;
use study::Source;

use crate::doubts::WarningKind;
use crate::figure::Figure;
use crate::published::{Claim, Ours, Publication};
use crate::range::{of_prediction, ratio_of, single_run_factor};
use crate::simulated_class::{ValueRange, of_figure, ratio_factor};
use crate::time_parts::is_layered;

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

/// What a verdict is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// The published drives.
    Theirs,
    /// Models of the published drives: whether the model reproduces the claim.
    Models,
    /// The storage of the run, in place of the published drives.
    Yours,
    /// Models of other drives, in their place.
    Others,
    /// No claim of the publication: our explanation of what it left open.
    Ours,
}

units::words!(About {
    Theirs => "on the published drives", Models => "on models of the published drives",
    Yours => "on this storage", Others => "on models of other drives",
    Ours => "our explanation, not published",
});

/// A claim with our number and the verdict.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// What it is about.
    pub about: About,
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
    /// Its databases ran in virtual time, with measured CPU times.
    pub simulated: bool,
    /// They use the device without a file system.
    pub raw: bool,
}

/// Facts about a run that verdicts need in addition to its figures.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunFacts {
    /// Its stacks.
    pub stacks: Vec<RunStack>,
    /// Standard deviation of one run on its host, as in the run's header.
    pub noise: BTreeMap<String, f64>,
}

impl RunFacts {
    fn stack(&self, figure: &Figure) -> Option<&RunStack> {
        self.stacks.iter().find(|stack| stack.name == figure.stack)
    }

    fn is_count(&self, figure: &Figure) -> bool {
        is_count(figure, self.stack(figure).is_some_and(|stack| stack.raw))
    }

    /// Real over simulated values of a figure; `None` unless it was simulated and such jobs were compared.
    fn real_over_simulated(&self, figure: &Figure) -> Option<ValueRange> {
        let stack = self.stack(figure).filter(|stack| stack.simulated)?;
        of_figure(figure, stack.raw).filter(|_| figure.source == Source::Emulated)
    }
}

/// Counts of a load per record, which depend on neither drive nor CPU here: how far they vary between runs,
/// and between a simulation and a disk on one kernel (LMDB and RocksDB: bytes and blocks written 0.5 %,
/// blocks read and switches on a raw device 1.6 %, rare events 0.005; docs/method/ranges.md).
const COUNTS: [&str; 3] = ["blocks_in_per_record", "db_bytes_per_record", "db_size"];
/// The same, but simulated on a raw device only.
const SWITCHES: &str = "switches_per_record";
/// The same on a file system only: writes of a raw device are split differently from run to run.
const WRITTEN: &str = "blocks_out_per_record";
const COUNT_ERROR: f64 = 0.02;
const COUNT_SLACK: f64 = 0.01;

pub(crate) fn is_count(figure: &Figure, raw: bool) -> bool {
    let counted = match &*figure.metric {
        WRITTEN => !raw,
        // What makes a thread wait in write-back is not simulated.
        SWITCHES => raw || figure.source == Source::Measured,
        metric => COUNTS.contains(&metric),
    };
    counted && ["lmdb", "rocksdb"].contains(&&*figure.engine)
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
    facts: &RunFacts,
) -> Judged {
    let stacks = &facts.stacks;
    let stand_in = stand_in(publication, claim, stacks);
    let about = |source| match source {
        _ if claim.is_ours() => About::Ours,
        Source::Predicted | Source::Emulated if stand_in => About::Others,
        Source::Predicted | Source::Emulated => About::Models,
        _ if stand_in => About::Yours,
        _ => About::Theirs,
    };
    let none = || Judged {
        about: about(Source::Measured),
        verdict: Verdict::NotTested,
        ours: None,
        interval: None,
        source: None,
        lies: None,
        why: needed(publication, claim, stacks),
    };
    let found = [Source::Measured, Source::Emulated, Source::Predicted]
        .into_iter()
        .find_map(|source| number(claim, (figures, facts), source));
    let Some(number) = found else { return none() };
    let (from, to) = claim.bounds();
    let lies = match (from..=to).contains(&number.value) {
        true => Lies::Inside,
        false => Lies::Outside,
    };
    let judged = |verdict, why: String| Judged {
        about: about(number.source),
        verdict,
        lies: (!why.is_empty() && number.value.is_finite()).then_some(lies),
        ours: Some(number.value).filter(|value| value.is_finite()),
        interval: number.interval,
        source: Some(number.source),
        why,
    };
    let slower = stacks.iter().find(|stack| stack.name == claim.of.stack && stack.time_scale > 1);
    if let Some(stack) = slower.filter(|_| number.source == Source::Emulated) {
        let scale = stack.time_scale;
        let why =
            format!("not comparable: the emulated drive ran {scale}x slower, but the CPU did not");
        return judged(Verdict::Inconclusive, why);
    }
    let input = claim.is.is_some_and(|is| is != Evidence::HeldOut);
    if number.source == Source::Predicted && input && !stand_in {
        let why =
            "no test, because constants of the model were chosen with this figure or a related one";
        return judged(Verdict::Fitted, why.to_owned());
    }
    if let Some(why) = number.spoiled.clone() {
        return judged(Verdict::Inconclusive, why);
    }
    match number.interval {
        None => {
            let why = match number.source {
                Source::Predicted => {
                    "the error of such predictions is unknown: no held-out figures of such jobs"
                }
                Source::Emulated => {
                    "such figures of simulated or attached drives were not compared with real ones"
                }
                _ => "needs three repetitions (--repeat 3), or doctor --noise before the run",
            };
            judged(Verdict::Inconclusive, why.to_owned())
        }
        Some((low, high)) if low >= from && high <= to => judged(Verdict::Holds, String::new()),
        Some((low, high)) if high < from || low > to => judged(Verdict::DoesNotHold, String::new()),
        Some(_) => judged(Verdict::Inconclusive, "its interval crosses a bound".to_owned()),
    }
}

/// What a run lacks to test a claim: stacks, or trials on them.
fn needed(publication: &Publication, claim: &Claim, stacks: &[RunStack]) -> String {
    let mut wanted: Vec<&str> = vec![&claim.of.stack];
    wanted.extend(claim.over.as_ref().map(|over| &*over.stack).filter(|one| *one != wanted[0]));
    let missing = |name: &&&str| stacks.iter().all(|stack| stack.name != ***name);
    let words = |name: &&str| {
        let drives = publication.drives.get(*name).map(|all| all.join(" or "));
        let drives = drives.filter(|drives| !drives.is_empty());
        format!("`{name}`{}", drives.map_or_else(String::new, |drives| format!(" ({drives})")))
    };
    let missing: Vec<String> = wanted.iter().filter(missing).map(words).collect();
    match missing.len() {
        0 => format!(
            "not in this run: needs experiment `{}` on `{}`",
            claim.of.workload,
            wanted.join("` and `")
        ),
        1 => format!("not in this run: needs stack {}", missing[0]),
        _ => format!("not in this run: needs stacks {}", missing.join(" and ")),
    }
}

/// Whether other drives stand in for the claim's.
fn stand_in(publication: &Publication, claim: &Claim, stacks: &[RunStack]) -> bool {
    let mut sides = std::iter::once(&claim.of).chain(&claim.over);
    let other = |side: &Ours| {
        let stack = stacks.iter().find(|stack| stack.name == side.stack);
        let own = claim.drives.get(&side.stack).or_else(|| publication.drives.get(&side.stack));
        let wanted = own.map_or(&[][..], Vec::as_slice);
        !is_drive(wanted, stack)
    };
    sides.any(other)
}

/// Our number from one source.
fn number(
    claim: &Claim,
    (figures, facts): (&[Figure], &RunFacts),
    source: Source,
) -> Option<Number> {
    let of = claim.of.find(figures, source)?;
    let Some(over) = &claim.over else {
        let (spoiled, interval) = (spoiled(of, facts), interval(of, facts));
        return Some(Number { value: of.value, interval, source, spoiled });
    };
    let over = over.find(figures, source)?;
    let spoiled = spoiled(of, facts).or_else(|| spoiled(over, facts));
    let value = of.value / over.value;
    if !value.is_finite() {
        let spoiled = Some("division by 0".to_owned());
        return Some(Number { value: f64::NAN, interval: None, source, spoiled });
    }
    let simulated = [of, over].iter().all(|one| facts.real_over_simulated(one).is_some());
    // Drives alone were compared, not what is in front of them.
    let alone = |figure: &Figure| {
        let identity = facts.stack(figure).and_then(|stack| stack.identity.as_deref());
        identity.is_some_and(|identity| !is_layered(identity))
    };
    let shared = ratio_factor(of, over).filter(|_| simulated && alone(of) && alone(over));
    let interval = match shared {
        // Errors that both simulations share cancel.
        Some(factor) => {
            let factor = factor * disturbed(of) * disturbed(over);
            Some((value / factor, value * factor))
        }
        None => interval(of, facts).zip(interval(over, facts)).and_then(|(a, b)| ratio_of(a, b)),
    };
    Some(Number { value, interval, source, spoiled })
}

fn spoiled(figure: &Figure, facts: &RunFacts) -> Option<String> {
    if figure.partial {
        return Some("a trial was stopped or failed".to_owned());
    }
    use WarningKind::{BusyHost, InMemory};
    // They say nothing about counts.
    let of_rates = |kind: &WarningKind| matches!(kind, BusyHost | InMemory);
    let widened =
        |kind: &WarningKind| *kind == BusyHost && figure.others <= OTHERS_MAX && is_rate(figure);
    let spoiled = figure.spoiled.filter(|kind| !facts.is_count(figure) || !of_rates(kind));
    let spoiled = spoiled.filter(|kind| !widened(kind));
    if let Some(kind) = spoiled {
        return Some(format!("not reliable: {}", kind.title().to_lowercase()));
    }
    figure.at_least.then(|| "operations never ended: our number is a lower bound".to_owned())
}

/// Share of the CPUs that other programs may use: above, the figure is theirs.
const OTHERS_MAX: f64 = 0.25;

/// Whether other programs take at most their share of the CPUs from it: tails grow by more.
fn is_rate(figure: &Figure) -> bool {
    ["iops", "ops_rate", "tx_rate", "throughput", "load_time"].contains(&&*figure.metric)
}

/// Factor by which a rate may differ because other programs used CPUs, as much as is left without them, and
/// because it changed within its trial.
fn disturbed(figure: &Figure) -> f64 {
    match is_rate(figure) {
        true => figure.moved.max(1.0) / (1.0 - figure.others.clamp(0.0, OTHERS_MAX)),
        false => 1.0,
    }
}

/// The interval of the true value, wider by what other programs may have taken.
fn interval(figure: &Figure, facts: &RunFacts) -> Option<(f64, f64)> {
    let (low, high) = undisturbed(figure, facts)?;
    let factor = disturbed(figure);
    Some((low / factor, high * factor))
}

/// Repetitions on an attached drive say nothing about the drive.
fn undisturbed(figure: &Figure, facts: &RunFacts) -> Option<(f64, f64)> {
    let around = |factor: f64| (figure.value / factor, figure.value * factor);
    let repeated = figure.lo.zip(figure.hi);
    let repeated = repeated.filter(|_| figure.interval == Some("repetitions"));
    match figure.source {
        // No figure is negative.
        Source::Measured if repeated.is_some() => repeated.map(|(low, high)| (low.max(0.0), high)),
        _ if facts.is_count(figure) => {
            let slack = (figure.value * COUNT_ERROR).max(COUNT_SLACK);
            Some(((figure.value - slack).max(0.0), figure.value + slack))
        }
        Source::Predicted => {
            let error = of_prediction(figure)?;
            Some((figure.value * error.low, figure.value * error.high))
        }
        Source::Emulated => {
            let error = facts.real_over_simulated(figure)?;
            // Repetitions add to the error.
            let (low, high) = repeated.unwrap_or((figure.value, figure.value));
            Some((low * error.low, high * error.high))
        }
        _ => Some(around(noise(figure, facts)?)),
    }
}

/// The factor that contains 95 % of single runs on this host; `None` for several runs.
fn noise(figure: &Figure, facts: &RunFacts) -> Option<f64> {
    let metric = match &*figure.metric {
        // Durations of whole jobs vary as their rates do.
        "iops" | "ops_rate" | "tx_rate" | "throughput" | "load_time" => "rate",
        metric => metric,
    };
    let op = figure.point.get("op").and_then(|value| value.as_str()).unwrap_or("all");
    let single = !matches!(figure.interval, Some("repetitions" | "range"));
    single_run_factor(&facts.noise, [&figure.engine, op, metric]).filter(|_| single)
}
