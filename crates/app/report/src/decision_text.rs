//! The decision tables of a run as text: for a terminal, as Markdown, and objectives as JUnit's XML for CI.

use std::fmt::Write;

use analysis::decision::{Choice, Decision, decisions};
use analysis::fitness::{FitnessCheck, fitness};
use analysis::objective::{Outcome, asked_of, objectives};
use analysis::range::ValueRange;
use analysis::suitability::shortlist;
use archive::{Run, TrialOutcome};
use units::{Nanos, human_count};

use crate::chart::short;
use crate::decision_view::{decision_title, limited_words, times_number};
use crate::svg::escape;
use crate::table::aligned;
use crate::what_if::without_variants;

/// Number of decisions that are printed; the report has more.
const TABLES_MAX: usize = 6;
/// Number of storages in one table.
const ROWS_MAX: usize = 24;

/// A table with its title; the first row is the header.
struct TextTable {
    title: String,
    rows: Vec<Vec<String>>,
}

/// One table for each job that ran on at least `stacks` stacks.
fn tables(run: &Run, stacks: usize) -> Vec<TextTable> {
    let own = without_variants(run);
    let all = decisions(&own);
    let several = all.iter().filter(|one| one.choices.len() >= stacks).take(TABLES_MAX);
    several.map(|one| table(one, has_namesake(&all, one))).collect()
}

/// One table for each job that ran on several stacks; empty if none did.
#[must_use]
pub fn decision_lines(run: &Run) -> Vec<String> {
    let lines = |one: TextTable| {
        let rows = aligned(&one.rows).into_iter().map(|line| format!("  {line}"));
        std::iter::once(one.title).chain(rows).collect::<Vec<_>>()
    };
    tables(run, 2).into_iter().flat_map(lines).collect()
}

/// The answer, warnings and tables of a run as Markdown.
#[must_use]
pub fn markdown(run: &Run) -> String {
    let (headline, doubts) = crate::headline(run);
    let cell = |text: &String| text.replace('|', "\\|").replace(['\n', '\r'], " ");
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut out = format!("**{}**\n", cell(&headline));
    for doubt in &doubts {
        let _ = write!(out, "\n* Warning: {}", cell(doubt));
    }
    out.push('\n');
    for lines in [crate::check_lines(run), crate::shortlist_lines(run)] {
        if !lines.is_empty() {
            let _ = write!(out, "\n```\n{}\n```\n", lines.join("\n").replace('`', "'"));
        }
    }
    for one in tables(run, 1) {
        let _ = write!(out, "\n{}\n\n", cell(&one.title));
        for (at, row) in one.rows.iter().enumerate() {
            out.push_str(&line(row.iter().map(cell).collect()));
            if at == 0 {
                out.push_str(&line(row.iter().map(|_| "---".to_owned()).collect()));
            }
        }
    }
    out
}

/// The checks of `check`, or the answer of `advise`, each with its result and reason.
fn answer_cases(run: &Run) -> Vec<(String, Outcome, String)> {
    let check = |one: FitnessCheck| (one.name.to_owned(), one.verdict.into(), one.text);
    let mut all: Vec<_> = fitness(run).into_iter().map(check).collect();
    let decided = decisions(run);
    if let Some(list) = shortlist(run, &decided) {
        all.push(("a candidate is enough".into(), list.outcome(), crate::headline(run).0));
    }
    all
}

/// The objectives of a run as test cases (JUnit's XML, as CI systems read it): missed ones are failures,
/// inconclusive ones are skipped; failed trials are errors.
#[must_use]
pub fn junit(run: &Run) -> String {
    // A candidate that is not enough is no failure; that none is enough is one.
    let answers = answer_cases(run);
    let all = if answers.is_empty() { objectives(run) } else { Vec::new() };
    let failed = run.trials.iter().filter(|trial| trial.outcome == TrialOutcome::Failed);
    let failed: Vec<_> = failed.collect();
    let count = |outcome| all.iter().filter(|one| one.outcome == outcome).count();
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" \
         errors=\"{}\" skipped=\"{}\">\n",
        escape(&run.study.name),
        all.len() + failed.len() + answers.len(),
        count(Outcome::Missed) + answers.iter().filter(|one| one.1 == Outcome::Missed).count(),
        failed.len(),
        count(Outcome::Open) + answers.iter().filter(|one| one.1 == Outcome::Open).count()
    );
    let clean = |text: &str| escape(&text.replace(char::is_control, " "));
    let mut case = |class: &str, name: String, inside: String| {
        let (class, name) = (clean(class), clean(&name));
        let _ =
            writeln!(out, "<testcase classname=\"{class}\" name=\"{name}\">{inside}</testcase>");
    };
    let inside = |outcome: Outcome, text: &str| {
        let text = clean(text);
        match outcome {
            Outcome::Met => format!("<system-out>{text}</system-out>"),
            Outcome::Missed => format!("<failure message=\"{text}\"/>"),
            Outcome::Open => format!("<skipped message=\"{text}\"/>"),
        }
    };
    for (name, outcome, text) in &answers {
        case(&run.study.name, name.clone(), inside(*outcome, text));
    }
    for one in &all {
        let inside = inside(one.outcome, &one.text);
        let name = format!("{} on {} {}", one.objective, one.stack, one.point);
        case(&one.experiment, name.trim_end().to_owned(), inside);
    }
    for trial in failed {
        let reason = clean(trial.result.failure.as_deref().unwrap_or("no reason was recorded"));
        case(&trial.experiment, trial.slug.clone(), format!("<error message=\"{reason}\"/>"));
    }
    out + "</testsuite>\n"
}

/// Whether the engine has another table, so that the experiment is named.
fn has_namesake(all: &[Decision<'_>], one: &Decision<'_>) -> bool {
    all.iter().filter(|other| other.first().engine == one.first().engine).count() > 1
}

fn table(decision: &Decision<'_>, several: bool) -> TextTable {
    let text = |value: f64| match decision.counted.is_rate() {
        true => human_count(value),
        false => Nanos(value as u64).to_string(),
    };
    let ranged =
        |value: String, range: Option<ValueRange>, text: &dyn Fn(f64) -> String| match range
            .map(|range| (text(range.low), text(range.high)))
        {
            Some((low, high)) if low != high => format!("{value} ({low} to {high})"),
            _ => value,
        };
    let objectives = |one: &Choice<'_>| {
        let words = |outcome| match outcome {
            Outcome::Met => "pass",
            Outcome::Missed => "FAIL",
            Outcome::Open => "inconclusive",
        };
        let all = asked_of(&one.group);
        all.iter().map(|one| words(one.outcome)).collect::<Vec<_>>().join(", ")
    };
    let with_objectives = decision.choices.iter().any(|one| !asked_of(&one.group).is_empty());
    let row = |one: &Choice<'_>| {
        let least = if one.value.at_least { ">= " } else { "" };
        let ratio = match &one.ratio {
            None => "reference".to_owned(),
            Some(ratio) => {
                let ratio = format!("{} x", times_number(ratio.value));
                ranged(ratio, one.ratio_range, &times_number)
            }
        };
        let p99 = one.p99.map_or_else(String::new, |p99| Nanos(p99.value as u64).to_string());
        vec![
            short(one.group.stack_title()).to_owned(),
            one.group.first.source.word().to_owned(),
            ranged(format!("{least}{}", text(one.value.value)), one.range, &text),
            ratio,
            p99,
            if with_objectives { objectives(one) } else { String::new() },
            limited_words(one),
        ]
    };
    let objective = if with_objectives { "objective" } else { "" };
    let header = ["storage", "source", "value", "ratio", "p99", objective, "limited by"];
    let rows = decision.choices.iter().take(ROWS_MAX).map(row);
    let rows: Vec<Vec<String>> =
        std::iter::once(header.map(str::to_owned).to_vec()).chain(rows).collect();
    // Without objectives the column is left out, with its gap.
    let kept = |row: Vec<String>| {
        let cells = row.into_iter().enumerate();
        cells.filter(|(at, _)| with_objectives || *at != 5).map(|(_, cell)| cell).collect()
    };
    let rows: Vec<Vec<String>> = rows.into_iter().map(kept).collect();
    TextTable { title: decision_title(decision, several), rows }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored;

    /// A CI system that cannot read the file, or sees no failure, lets a regression pass.
    #[test]
    fn missed_objectives_and_failed_trials_are_failures() {
        let mut run = stored::run();
        let first = &mut run.study.experiment[0];
        first.objectives = vec!["p50 <= 1ns".parse().expect("an objective")];
        run.trials[0].outcome = TrialOutcome::Failed;
        run.trials[0].result.failure = Some("<disk> & \"gone\"".into());
        let text = junit(&run);
        let count = |part: &str| text.matches(part).count();
        assert!(count("<failure ") > 0 && count("<error ") == 1, "{text}");
        assert!(text.contains("&lt;disk&gt; &amp; &quot;gone&quot;"), "{text}");
        assert_eq!(count("<testcase "), count("</testcase>"));
    }

    #[test]
    fn markdown_has_a_row_per_storage() {
        let run = stored::run();
        let text = markdown(&run);
        assert!(text.starts_with("**") && text.contains("| --- |"), "{text}");
        let rows = |table: &TextTable| table.rows.len() + 1;
        let rows: usize = tables(&run, 1).iter().map(rows).sum();
        assert_eq!(text.lines().filter(|line| line.starts_with('|')).count(), rows);
    }
}
