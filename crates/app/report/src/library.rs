//! Pages of a library of runs: the list, trends of one study, a run in progress.
//!
//! Invariants: as in the report, scripts and styles are allowed by hash, and only the page's own server is
//! contacted; text is escaped.

use std::fmt::Write;

use analysis::trend::Trend;
use analysis::unit_text;
use indexmap::IndexMap;
use minijinja::value::Serde;
use minijinja::{Environment, context};
use serde::Serialize;

use crate::page::{ReportError, policy_hash};
use crate::pivot::metric_words;
use crate::svg::{Scale, below, cut, levels, marks, open, path};

const TEMPLATE: &str = include_str!("../assets/library.html");
const STYLE: &str = include_str!("../assets/report.css");
const FOLLOW: &str = include_str!("../assets/follow.js");

/// A run in a list.
#[derive(Debug, Clone, Serialize)]
pub struct Listed {
    /// Name of its folder.
    pub name: String,
    /// Name of the study.
    pub study: String,
    /// When it began.
    pub started: String,
    /// Its first sentence, or why there is none.
    pub headline: String,
    /// `whole`, `partial`, `running`, `unreadable`.
    pub state: &'static str,
    /// Finished and planned trials.
    pub trials: String,
}

/// The list of runs.
///
/// # Errors
/// [`ReportError`] when the template fails.
pub fn library_page(folder: &str, runs: &[Listed]) -> Result<String, ReportError> {
    let goes_on = runs.iter().any(|one| one.state == "running");
    let studies = studies_of(runs);
    made(folder, "", context! { runs => Serde(runs), studies => Serde(&studies), goes_on })
}

/// Trends of one study's figures over its runs.
///
/// # Errors
/// [`ReportError`] if the template fails.
pub fn trend_page(study: &str, trends: &[Trend]) -> Result<String, ReportError> {
    let left = trends.len().saturating_sub(TRENDS_MAX);
    let views: Vec<_> = trends.iter().take(TRENDS_MAX).map(view).collect();
    made(study, "", context! { trends => Serde(&views), left })
}

/// A run in progress, updated by its script.
///
/// # Errors
/// [`ReportError`] if the template fails.
pub fn follow_page(run: &str) -> Result<String, ReportError> {
    made(run, FOLLOW, context! {})
}

/// Lines that a page draws.
const TRENDS_MAX: usize = 60;

#[derive(Serialize)]
struct TrendView {
    title: String,
    point: String,
    source: &'static str,
    change: String,
    left: String,
    picture: String,
}

fn made(title: &str, script: &str, own: minijinja::Value) -> Result<String, ReportError> {
    let policy = format!(
        "default-src 'none'; style-src '{}'; script-src '{}'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'",
        policy_hash(STYLE),
        policy_hash(script)
    );
    let all = context! { policy, title, style => STYLE, script, ..own };
    Ok(Environment::new().render_named_str("library.html", TEMPLATE, all)?)
}

/// Studies with more than one run, each with its number of runs.
fn studies_of(runs: &[Listed]) -> Vec<(String, usize)> {
    let mut all: IndexMap<&str, usize> = IndexMap::new();
    for run in runs.iter().filter(|run| !run.study.is_empty()) {
        *all.entry(&run.study).or_default() += 1;
    }
    let several = all.into_iter().filter(|(_, count)| *count > 1);
    several.map(|(name, count)| (name.to_owned(), count)).collect()
}

/// Height of a picture, pixels.
const HEIGHT: f64 = 110.0;
/// Height below the axis.
const BELOW: f64 = 20.0;

fn view(trend: &Trend) -> TrendView {
    let ends = trend.points.iter().flat_map(|one| {
        let (low, high) = one.interval.unwrap_or((one.value, one.value));
        [one.value, low, high]
    });
    let scale = Scale::over(ends, false).unwrap_or_else(|| Scale::new(0.0, 1.0, false));
    let plot = HEIGHT - BELOW;
    let y = |value: f64| plot * (1.0 - scale.at(value) / 100.0);
    let last = trend.points.len().saturating_sub(1).max(1) as f64;
    let x = |place: usize| 2.0 + place as f64 / last * 96.0;
    let mut out = String::new();
    open(&mut out, "trend", HEIGHT, &format!("{} {}", trend.name, trend.metric));
    levels(&mut out, scale.ticks().into_iter().map(y));
    let way: Vec<(f64, f64)> =
        trend.points.iter().enumerate().map(|(place, one)| (x(place), y(one.value))).collect();
    path(&mut out, &format!("line {}", trend.source.word()), HEIGHT, &way);
    for (place, one) in trend.points.iter().enumerate() {
        if let Some((low, high)) = one.interval {
            let _ = write!(
                out,
                "<line class=\"whisker\" x1=\"{0:.2}%\" x2=\"{0:.2}%\" y1=\"{1:.1}\" y2=\"{2:.1}\"/>",
                x(place),
                y(low),
                y(high)
            );
        }
        let _ = write!(
            out,
            "<circle class=\"mark {}\" cx=\"{:.2}%\" cy=\"{:.1}\" r=\"3.5\"><title>{}, {}: \
             {}</title></circle>",
            trend.source.word(),
            x(place),
            y(one.value),
            crate::svg::escape(&one.run),
            crate::svg::escape(&one.started),
            short(one.value)
        );
    }
    let day = |text: &str| cut(text, 10).trim_end_matches('\u{2026}').to_owned();
    let names = [trend.points.first().map(|one| (6.0, day(&one.started)))];
    let names = names.into_iter().chain([trend.points.last().map(|one| (94.0, day(&one.started)))]);
    below(&mut out, HEIGHT, names.flatten());
    out.push_str("</svg>");
    let ticks = scale.ticks().into_iter().map(|value| (y(value), short(value)));
    TrendView {
        title: format!(
            "{}, {} ({})",
            trend.name,
            metric_words(&trend.metric),
            unit_text(&trend.unit)
        ),
        point: trend.point.clone(),
        source: trend.source.word(),
        change: format!("last over first: {:.2} \u{d7}", trend.change()),
        left: marks(HEIGHT, ticks),
        picture: out,
    }
}

/// Formats with three significant digits.
fn short(value: f64) -> String {
    match value.abs() {
        1000.0.. => units::human_count(value),
        _ => crate::svg::short(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use analysis::trend::TrendPoint;
    use study::Source;

    fn listed(name: &str) -> Listed {
        Listed {
            name: name.into(),
            study: "s".into(),
            started: "2026-01-01 00:00:00 UTC".into(),
            headline: "<b>faster</b>".into(),
            state: "whole",
            trials: "4 of 4".into(),
        }
    }

    /// A run's name and texts are untrusted input.
    #[test]
    fn text_of_runs_is_escaped_and_studies_with_several_runs_have_a_trend() {
        let page = library_page("runs", &[listed("a"), listed("<i>b")]).unwrap();
        assert!(!page.contains("<b>faster") && !page.contains("<i>b"), "{page}");
        assert!(page.contains("&lt;b&gt;faster"));
        assert!(page.contains("href=\"trend/s\""));
        assert!(!library_page("runs", &[listed("a")]).unwrap().contains("trend/"));
    }

    #[test]
    fn a_trend_has_each_run_and_its_change() {
        let point = |run: &str, value: f64| TrendPoint {
            run: run.into(),
            started: "2026-01-01 00:00:00 UTC".into(),
            value,
            interval: Some((value * 0.9, value * 1.1)),
        };
        let trend = Trend {
            name: "disk, lmdb: e".into(),
            point: "op=read".into(),
            metric: "ops_rate".into(),
            unit: "1/s".into(),
            source: Source::Measured,
            points: vec![point("first", 1000.0), point("second", 500.0)],
        };
        let page = trend_page("s", &[trend]).unwrap();
        assert_eq!(page.matches("<circle").count(), 2);
        assert_eq!(page.matches("class=\"whisker\"").count(), 2);
        assert!(page.contains("last over first: 0.50"), "{page}");
    }

    /// Pages of the library must load nothing from other origins.
    #[test]
    fn pages_name_what_may_run() {
        let page = follow_page("run").unwrap();
        assert!(page.contains(&policy_hash(FOLLOW)) && page.contains("connect-src 'self'"));
        assert!(!page.contains("http:") && !page.contains("https:"));
    }
}
