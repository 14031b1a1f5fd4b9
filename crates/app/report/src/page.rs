//! The report: one self-contained HTML file.
//!
//! A strict content-security policy names the hashes of our style and scripts and allows nothing else, so the
//! file makes no network request. Invariants: works from `file://`; text, first picture and tables need no
//! script.

use std::borrow::Cow;

use archive::{Run, StackRecord};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minijinja::value::Serde;
use minijinja::{Environment, context};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::advice_view::advice_views;
use crate::answer::answer;
use crate::bounds;
use crate::chart::Charts;
use crate::charts::charts;
use crate::compare_view::compared;
use crate::decision_view::{DecisionView, decision_views};
use crate::hue::Hues;
use crate::laws_view::{LawsView, laws_view};
use crate::parts_view::{PartsView, parts_views};
use crate::pivot::{PlaceTable, place_tables};
use crate::scaling_view::{ScalingView, scaling_views};
use crate::strip_view::{StripView, strip_view};
use crate::svg::cut;
use crate::table::{interval_text, point_text};
use crate::trust_view::{TrustLine, trust_lines};
use crate::what_if::{WhatIfView, what_if_view, what_ifs, without_variants};
use analysis::cliffs::{PerformanceDrop, count, told};
use analysis::comparing::{compared_places, tally};
use analysis::decision::{DecisionMetric, decisions};
use analysis::doubts::Warning;
use analysis::is_sql;
use analysis::objective::{ObjectiveResult, Outcome, objectives};
use analysis::published::publication;
use analysis::verdict::{RunFacts, RunStack};
use analysis::{Figure, figures, unit_text};

/// The page could not be rendered; contains the template's message.
#[derive(Debug, thiserror::Error)]
#[error("report: {0}")]
pub struct ReportError(#[from] minijinja::Error);

const TEMPLATE: &str = include_str!("../assets/report.html");
const STYLE: &str = include_str!("../assets/report.css");
const SCRIPT: &str = include_str!("../assets/report.js");
const UPLOT_STYLE: &str = include_str!("../assets/uPlot.min.css");
const UPLOT_SCRIPT: &str = include_str!("../assets/uPlot.iife.min.js");

/// The view of one run.
#[derive(Serialize)]
struct RunView<'a> {
    name: &'a str,
    title: &'a str,
    question: &'a str,
    about: &'a str,
    started: &'a str,
    partial: bool,
    finished: usize,
    planned: u32,
    headline: String,
    lead: String,
    doubts: Vec<WarningView>,
    decisions: Vec<DecisionView>,
    /// A job ran on more than one stack.
    compares: bool,
    /// Time scale of emulated drives, if any.
    stretched: Option<u32>,
    /// Whether any result counts updates that wait for a flush.
    durable: bool,
    /// The study has objectives.
    objectives: bool,
    /// Results of the objectives, missed ones first.
    asked: Vec<AskedView>,
    /// Number of objectives that are not listed.
    asked_left: usize,
    advice: Vec<String>,
    parts: Vec<PartsView>,
    trust: Vec<TrustLine>,
    scaling: Vec<ScalingView>,
    strip: Option<StripView>,
    laws: Option<LawsView>,
    points: Vec<String>,
    gains: Option<WhatIfView>,
    /// The publication whose results are shown.
    citation: Option<String>,
    remark: Option<String>,
    places: Vec<PlaceTable>,
    /// Summary of the claims' verdicts.
    tally: String,
    /// Performance drops with their evidence, if there are SQL trials.
    cliffs: Option<Vec<PerformanceDrop>>,
    /// No trial has enough intervals to find drops.
    intervals_few: bool,
    host: Vec<(&'static str, &'a str)>,
    stacks: Vec<StackView<'a>>,
    trials: Vec<TrialView<'a>>,
    /// Trials without a row.
    trials_left: usize,
    skipped: &'a [String],
    study: String,
}

/// A warning; details are folded.
#[derive(Serialize)]
struct WarningView {
    title: &'static str,
    count: String,
    worst: String,
    places: Vec<String>,
    /// What to do about it.
    remedy: &'static str,
}

/// Maximum length of the worst case on the first screen.
const WORST_MAX: usize = 220;

impl WarningView {
    fn new(doubt: &Warning) -> Self {
        Self {
            title: doubt.kind.title(),
            count: doubt.count_text(),
            worst: cut(&doubt.worst, WORST_MAX),
            remedy: doubt.kind.remedy(),
            // The full text, if it was shortened.
            places: match doubt.worst.chars().count() > WORST_MAX {
                true => doubt.places.iter().chain([&doubt.worst]).cloned().collect(),
                false => doubt.places.clone(),
            },
        }
    }
}

#[derive(Serialize)]
struct StackView<'a> {
    record: &'a StackRecord,
    facts: Vec<(&'static str, &'a str)>,
    validation: Vec<String>,
}

#[derive(Serialize)]
struct TrialView<'a> {
    slug: &'a str,
    point: String,
    source: &'a str,
    path: &'a str,
    outcome: String,
    notes: Vec<String>,
}

/// Figures that are in the page's text; a script adds the others.
const ROWS_SHOWN: usize = 20;

#[derive(Serialize)]
struct Row<'a> {
    figure: &'a Figure,
    point: String,
    value: String,
    unit: &'a str,
    interval: String,
    worth: String,
}

/// Renders the page for `runs`, the first of which answers the question.
///
/// # Errors
/// [`ReportError`] if the template fails.
pub fn html(runs: &[Run]) -> Result<String, ReportError> {
    let figures = figures(runs);
    let rows: Vec<Row<'_>> = bounds::rows(&figures)
        .into_iter()
        .map(|figure| Row {
            figure,
            point: point_text(figure),
            value: figure.value.to_string(),
            unit: unit_text(&figure.unit),
            interval: interval_text(figure),
            worth: figure.worth.map_or_else(String::new, |worth| worth.brief()),
        })
        .collect();
    let (shown, folded) = folded_rows(&rows);
    let without: Vec<Cow<'_, Run>> = runs.iter().map(without_variants).collect();
    let changed: Vec<Run>;
    let (runs, whole) = match without.iter().any(|run| matches!(run, Cow::Owned(_))) {
        false => (runs, runs),
        true => {
            changed = without.into_iter().map(Cow::into_owned).collect();
            (changed.as_slice(), runs)
        }
    };
    let mut drawn: Vec<Charts> = runs.iter().map(charts).collect();
    let not_drawn = bounds::fit(&mut drawn);
    let data = script_data(&drawn);
    let style = format!("{UPLOT_STYLE}\n{STYLE}");
    let library = without_links(UPLOT_SCRIPT);
    let policy = format!(
        "default-src 'none'; style-src '{}'; script-src '{}' '{}'; base-uri 'none'; form-action 'none'",
        policy_hash(&style),
        policy_hash(&library),
        policy_hash(SCRIPT)
    );
    let views: Vec<RunView<'_>> =
        runs.iter().zip(whole).map(|(run, whole)| view(run, whole)).collect();
    let compared = compared(runs);
    let overview = Overview::of(&views, compared.as_ref().and_then(|one| one.sentence()));
    let repeats = views.iter().any(|one| !one.places.is_empty());
    let sql = views.iter().any(|one| one.cliffs.is_some());
    let all = context! {
        policy, style, library, script => SCRIPT, data, repeats, sql,
        overview => Serde(&overview),
        rows => Serde(&shown), rows_all => rows.len(), folded, runs => Serde(&views),
        compared => Serde(&compared), not_drawn,
        figures_left => figures.len() - rows.len()
    };
    Ok(Environment::new().render_named_str("report.html", TEMPLATE, all)?)
}

/// JSON as the text of a script element, which `<` could end.
fn script_data(value: &impl Serialize) -> String {
    let data = serde_json::to_string(value).expect("invariant: plain data is JSON");
    data.replace('<', "\\u003c")
}

/// The most important rows, and all of them for the script: texts that repeat, and rows of places in them;
/// empty if few rows are left.
fn folded_rows<'r, 'a>(rows: &'r [Row<'a>]) -> (Vec<&'r Row<'a>>, String) {
    if rows.len() < ROWS_SHOWN * 2 {
        return (rows.iter().collect(), String::new());
    }
    let mut words = indexmap::IndexSet::new();
    let mut word = |text: String| words.insert_full(text).0;
    let coded = rows.iter().map(|row| {
        let figure = row.figure;
        let least = if figure.at_least { "\u{2265} " } else { "" };
        let partial = if figure.partial { " partial" } else { "" };
        serde_json::json!([
            word(format!("{}{partial}", figure.source)),
            word(figure.stack.clone()),
            word(figure.engine.clone()),
            word(figure.workload.clone()),
            word(row.point.clone()),
            word(figure.metric.to_string()),
            format!("{least}{}", row.value),
            word(row.unit.to_owned()),
            row.interval,
            figure.n,
            word(row.worth.clone())
        ])
    });
    let coded: Vec<_> = coded.collect();
    let words: Vec<String> = words.into_iter().collect();
    // A rate next to its latencies, not only rates.
    let shown = bounds::chosen(rows, ROWS_SHOWN, |row| bounds::rank(row.figure).max(2));
    (shown, script_data(&serde_json::json!({"words": words, "rows": coded})))
}

/// The head of a page with several runs.
#[derive(Serialize)]
struct Overview {
    kick: String,
    /// The result of a comparison, or what the runs share.
    title: String,
    lines: Vec<OverviewLine>,
}

/// A run in a line.
#[derive(Serialize)]
struct OverviewLine {
    title: String,
    headline: String,
}

impl Overview {
    /// `None` for a single run. `found` is the headline of a comparison of two.
    fn of(views: &[RunView<'_>], found: Option<&str>) -> Option<Self> {
        let (first, others) = views.split_first().filter(|(_, others)| !others.is_empty())?;
        let same = |of: &dyn Fn(&RunView<'_>) -> String| {
            let own = of(first);
            (!own.is_empty() && others.iter().all(|one| of(one) == own)).then_some(own)
        };
        let study = same(&|one| one.title.to_owned());
        let published = same(&|one| one.citation.clone().unwrap_or_default());
        let title = match (found, &study, published) {
            (Some(found), ..) => found.to_owned(),
            (None, Some(_), _) => format!("{} {} runs.", first.question, views.len()),
            (None, None, Some(publication)) => publication,
            (None, None, None) => format!("{} studies", views.len()),
        };
        let line = |one: &RunView<'_>| OverviewLine {
            title: if study.is_some() { one.name } else { one.title }.to_owned(),
            headline: one.headline.clone(),
        };
        let kick = match &study {
            Some(study) => format!("{study} \u{b7} {} runs", views.len()),
            None => format!("{} studies on one page", views.len()),
        };
        Some(Self { kick, title, lines: views.iter().map(line).collect() })
    }
}

/// One objective for one set of parameters.
#[derive(Serialize)]
struct AskedView {
    state: &'static str,
    objective: String,
    stack: String,
    experiment: String,
    point: String,
    text: String,
}

/// Objectives that are listed.
const ASKED_MAX: usize = 200;

fn asked_views(run: &Run) -> Vec<AskedView> {
    let mut all = objectives(run);
    all.sort_by_key(|one| match one.outcome {
        Outcome::Missed => 0,
        Outcome::Open => 1,
        Outcome::Met => 2,
    });
    let view = |one: ObjectiveResult| AskedView {
        state: match one.outcome {
            Outcome::Met => "\u{2713} pass",
            Outcome::Missed => "\u{2715} fail",
            Outcome::Open => "inconclusive",
        },
        objective: one.objective.to_string(),
        stack: one.stack,
        experiment: one.experiment,
        point: one.point,
        text: one.text,
    };
    all.into_iter().map(view).collect()
}

/// A run without its variants, and the whole run.
fn view<'a>(run: &'a Run, whole: &'a Run) -> RunView<'a> {
    let mut asked = asked_views(run);
    let asked_left = asked.len().saturating_sub(ASKED_MAX);
    asked.truncate(ASKED_MAX);
    let (decisions, hues) = (decisions(run), Hues::of(run));
    let answer = answer(run, &decisions);
    let gains = what_ifs(whole).into_iter().map(|gain| gain.to_string());
    let publication = publication(&run.study.name);
    let own = publication.as_ref().map(|_| figures(std::slice::from_ref(run)));
    let facts = RunFacts { stacks: run_stacks(run), noise: run.header.noise.clone() };
    let places = publication.as_ref().zip(own.as_ref());
    let places = places.map(|(one, own)| compared_places(one, own, &facts));
    let stacks = whole.header.stacks.iter().map(|record| StackView {
        record,
        facts: record.storage.as_ref().map(|facts| facts.rows()).unwrap_or_default(),
        validation: record.checked.iter().map(checked_text).collect(),
    });
    let shown = bounds::trials(&whole.trials);
    let trials_left = whole.trials.len() - shown.len();
    let trials = shown.into_iter().map(|trial| TrialView {
        slug: &trial.slug,
        point: trial.point_text(),
        source: trial.source.word(),
        path: &trial.result.path,
        outcome: format!("{:?}", trial.outcome).to_lowercase(),
        notes: trial.result.said().collect(),
    });
    RunView {
        name: &run.name,
        title: &run.study.name,
        question: &run.study.question,
        about: &run.study.about,
        started: &run.header.started,
        partial: whole.is_partial(),
        finished: whole.trials.len(),
        planned: run.header.trials_planned,
        headline: answer.headline,
        lead: answer.lead,
        doubts: answer.doubts.iter().map(WarningView::new).collect(),
        decisions: decision_views(run, &decisions, &hues),
        compares: decisions.iter().any(|one| one.choices.len() > 1),
        stretched: run.study.stack.iter().map(|one| one.scale).max().filter(|scale| *scale > 1),
        durable: decisions.iter().any(|one| one.counted == DecisionMetric::DurableUpdates),
        asked,
        asked_left,
        objectives: run.study.experiment.iter().any(|one| !one.objectives.is_empty()),
        advice: advice_views(&decisions),
        parts: parts_views(&decisions, &hues),
        trust: trust_lines(run, &decisions, &hues),
        scaling: scaling_views(run, &hues),
        strip: strip_view(run, &decisions, &hues),
        laws: laws_view(run, &hues),
        points: answer.points.into_iter().chain(gains).collect(),
        gains: what_if_view(whole),
        remark: publication.as_ref().map(|one| one.remark.clone()),
        citation: publication.map(|one| one.citation),
        tally: tally(places.as_deref().unwrap_or_default()),
        places: place_tables(places.unwrap_or_default()),
        cliffs: run.trials.iter().any(is_sql).then(|| told(run)),
        intervals_few: run.trials.iter().all(|trial| count(trial).is_none()),
        host: run.header.provenance.rows(),
        stacks: stacks.collect(),
        trials: trials.collect(),
        trials_left,
        skipped: &run.header.skipped,
        study: study::resolved_text(&run.study),
    }
}

/// The stacks of a run with their identified drives.
fn run_stacks(run: &Run) -> Vec<RunStack> {
    let of = |record: &StackRecord| {
        let declared = run.study.stack.iter().find(|stack| stack.name == record.name);
        let time_scale = declared.map_or(1, |stack| stack.scale);
        let raw = declared.is_some_and(|stack| stack.file_system == study::FileSystem::Raw);
        let measured_cpu = declared.is_none_or(|stack| stack.cpu_time.is_none());
        let declared = declared.and_then(|stack| stack.identity.clone());
        let model = record.device.strip_prefix("model:").map(str::to_owned);
        RunStack {
            name: record.name.clone(),
            identity: model.or(declared),
            title: record.title.clone(),
            time_scale,
            simulated: run
                .trials
                .iter()
                .any(|trial| trial.stack == record.name && trial.result.is_simulated())
                && measured_cpu,
            raw,
        }
    };
    run.header.stacks.iter().map(of).collect()
}

/// A published drive figure on one line; with an error only if it is held out.
fn checked_text(figure: &validate::CheckedFigure) -> String {
    let shape = &figure.shape;
    let order = if shape.sequential { "sequential" } else { "random" };
    let beside = match shape.background_writes {
        0 => String::new(),
        u64::MAX => " next to writes".to_owned(),
        rate => format!(" next to {} writes/s", units::human_count(rate as f64)),
    };
    let load = match shape.offered {
        0 => format!("{} in flight", shape.in_flight),
        rate => format!("{}/s", units::human_count(rate as f64)),
    };
    let durable = if shape.durable.is_empty() { "" } else { ", durable" };
    let error = match figure.evidence {
        device::Evidence::HeldOut => format!("held out, {:+.0} %", figure.error * 100.0),
        other => other.word().to_owned(),
    };
    format!(
        "{} of {} {order}, {:.0} % reads, {load}{beside}{durable}, {}: {error}",
        figure.metric,
        units::Bytes(shape.block_bytes),
        shape.read_percent,
        shape.host
    )
}

/// A source expression of a content-security policy.
pub(crate) fn policy_hash(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text.as_bytes())))
}

/// The chart library without the link in its banner: the page contains no external address.
fn without_links(script: &str) -> String {
    let banner_end = script.find("*/").map_or(0, |at| at + 2);
    format!("/*! uPlot 1.6.32, MIT licence, (c) Leon Sorokin */{}", &script[banner_end..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use archive::TrialOutcome;
    use stats::{Limit, Usage};

    fn stored() -> Run {
        let place = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fixtures/runs/v1");
        Run::read(std::path::Path::new(place), engines::list()).unwrap()
    }

    /// Everything before the first table.
    fn first_screen(run: Run) -> String {
        let page = html(&[run]).unwrap();
        let (_, head) = page.split_once("<section class=\"head\"").unwrap();
        head.split_once("</section>").unwrap().0.to_owned()
    }

    /// A page of several runs must not open with the headline of the first run alone.
    #[test]
    fn a_page_of_several_runs_says_what_each_found_before_any() {
        let (first, mut second) = (stored(), stored());
        second.study.name = "another".into();
        let page = html(&[first.clone(), second]).unwrap();
        assert_eq!(page.matches("<h1>").count(), 1);
        assert!(page.contains("<h1>2 studies</h1>"));
        for id in ["run-1", "run-2"] {
            assert!(page.contains(&format!("<a href=\"#{id}\">")), "{id}");
            assert!(page.contains(&format!("id=\"{id}\"")), "{id}");
        }
        let found = crate::headline(&first).0.replace('/', "&#x2f;");
        let (overview, _) = page.split_once("id=\"run-1\"").unwrap();
        assert_eq!(overview.matches(&found).count(), 2, "{found}");
        let alone = html(&[first]).unwrap();
        assert!(!alone.contains("run-1") && alone.contains("id=\"answer\""));
    }

    /// An unreliable figure must have its warning on the first screen.
    #[test]
    fn what_spoils_a_run_stands_on_its_first_screen() {
        let steady = |run: &mut Run| {
            for trial in &mut run.trials {
                trial.result.limits.clear();
                trial.result.disk = None;
                let intervals = &mut trial.result.recording.intervals;
                let first = intervals[0].clone();
                let same = |interval: &mut stats::Interval| {
                    interval.tallies = first.tallies.clone();
                };
                intervals.iter_mut().for_each(same);
                trial.result.usage = Some(Usage { blocks_in: 1 << 40, ..Usage::default() });
            }
        };
        let mut quiet = stored();
        steady(&mut quiet);
        let screen = first_screen(quiet.clone());
        for words in ["Busy host", "Data in memory", "Not steady", "Failed"] {
            assert!(!screen.contains(words), "nothing of the kind was seen: {words}");
        }
        let says = |words: &str, spoil: &dyn Fn(&mut archive::TrialRecord)| {
            let mut run = quiet.clone();
            run.trials.iter_mut().for_each(spoil);
            let screen = first_screen(run);
            assert!(screen.contains(words), "{words}: {screen}");
        };
        says("Busy host", &|trial| trial.result.limits = vec![Limit::Others { others: 0.4 }]);
        says("CPU-bound", &|trial| trial.result.limits = vec![Limit::Thread { busy: 0.99 }]);
        says("Data in memory", &|trial| trial.result.usage = Some(Usage::default()));
        says("Not steady", &|trial| {
            let intervals = &mut trial.result.recording.intervals;
            let half = intervals.len() / 2;
            for interval in &mut intervals[half..] {
                interval.tallies =
                    stats::Interval::empty(interval.phase, interval.start, interval.end).tallies;
            }
        });
        says("Failed", &|trial| {
            trial.outcome = TrialOutcome::Failed;
            trial.result.failure = Some("the disk went away".into());
        });
    }
}
