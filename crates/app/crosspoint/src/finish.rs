//! What a finished run prints: the answer, tables, warnings, objectives, and where the report is.

use std::path::Path;

use analysis::decision::decisions;
use analysis::fitness::{Fitness, fitness};
use analysis::objective::Outcome;
use analysis::suitability::shortlist;
use archive::Run;
use runner::{Ending, RunEnd};

use crate::exit::{self, ExitCode};
use crate::result_file;
use crate::show::Failure;
use crate::words::plain;

/// Writes the report of a finished run and prints where everything is.
pub fn finish_run(end: &RunEnd) -> Result<ExitCode, Failure> {
    let page = end.path.join("report.html");
    // A page made before the last trial is outdated.
    let changed = |path: &Path| std::fs::metadata(path).and_then(|facts| facts.modified()).ok();
    let known =
        changed(&page) >= changed(&end.path.join("trials")) && archive::output::is_unedited(&page);
    let (missed, answer);
    if end.ran == 0 && known && end.ending != Ending::Interrupted {
        // Rendering the report again takes longer than checking for missing trials.
        out!("nothing was left to run");
        let run = Run::read(&end.path, engines::list())?;
        missed = end.asks && say_objectives(&run);
        answer = code_of_answer(&run);
    } else {
        let run = Run::read(&end.path, engines::list())?;
        let (headline, doubts) = report::headline(&run);
        out!("{}", plain(&headline));
        let tables = [report::check_lines, report::shortlist_lines, report::decision_lines];
        let table = tables.iter().map(|table| table(&run)).find(|lines| !lines.is_empty());
        let table = table.unwrap_or_default();
        table.iter().for_each(|line| out!("{}", plain(line)));
        if table.is_empty() {
            report::bottlenecks(&run).iter().for_each(|line| out!("bottleneck of {}", plain(line)));
        }
        report::advice_lines(&run).iter().for_each(|line| out!("advice: {}", plain(line)));
        doubts.iter().for_each(|doubt| out!("warning: {}", plain(doubt)));
        let undelivered = |doubt: &analysis::doubts::Warning| {
            doubt.kind == analysis::doubts::WarningKind::NotDelivered
        };
        if analysis::doubts::doubts(&run).iter().any(undelivered) {
            out!("help: rerun on an idle host, or with time-scaled drives: {}", stretched(&run));
        }
        let lines = if table.is_empty() { report::summary(&run) } else { report::gains(&run) };
        lines.iter().for_each(|line| out!("{}", plain(line)));
        missed = say_objectives(&run);
        answer = code_of_answer(&run);
        result_file::write_own_page(&[run], &page)?;
    }
    out!("run:    {}", end.path.display());
    out!("report: {}", page.display());
    let resume = format!("crosspoint run --resume {}", end.path.display());
    Ok(match end.ending {
        Ending::Complete if missed => exit::OBJECTIVE_MISSED,
        Ending::Complete => answer,
        Ending::Interrupted => {
            say!("partial: results so far are kept; resume with: {resume}");
            exit::INTERRUPTED
        }
        Ending::Failed => {
            say!(
                "some trials failed; the report marks them and says why; repeat those with: {resume} \
                 --again failed"
            );
            exit::TARGET_FAILED
        }
    })
}

/// The command that repeats a run with its emulated drives ten times slower; experiments leave out real
/// drives, which cannot be scaled.
fn stretched(run: &Run) -> String {
    let study = &run.study;
    let live: Vec<&study::Stack> = study.stack.iter().filter(|stack| stack.attach).collect();
    let mut words = format!("crosspoint run {}/study.toml", run.path.display());
    for stack in &live {
        words.push_str(&format!(
            " --set stack.{}.scale={}",
            stack.name,
            stack.scale.saturating_mul(10).min(1000)
        ));
    }
    for experiment in &study.experiment {
        let on = |stack: &&study::Stack| {
            experiment.stacks.is_empty() || experiment.stacks.contains(&stack.name)
        };
        let all = study.stack.iter().filter(on).count();
        let own: Vec<String> = live
            .iter()
            .copied()
            .filter(|one| on(one))
            .map(|one| format!("{:?}", one.name))
            .collect();
        if !own.is_empty() && own.len() < all {
            words.push_str(&format!(
                " --set 'experiment.{}.stacks=[{}]'",
                experiment.name,
                own.join(",")
            ));
        }
    }
    words
}

/// The exit code of an answer: a check failed or no candidate is enough, or that is not known.
fn code_of_answer(run: &Run) -> ExitCode {
    match run.study.answer {
        Some(study::Finding::Fitness)
            if fitness(run).iter().any(|check| check.verdict == Fitness::Unfit) =>
        {
            exit::OBJECTIVE_MISSED
        }
        Some(study::Finding::Suitability) => {
            let decided = decisions(run);
            match shortlist(run, &decided).map_or(Outcome::Open, |list| list.outcome()) {
                Outcome::Met => exit::OK,
                Outcome::Open => exit::INCONCLUSIVE,
                Outcome::Missed => exit::OBJECTIVE_MISSED,
            }
        }
        _ => exit::OK,
    }
}

/// Prints the results of the objectives, missed ones in detail; returns whether one was missed.
fn say_objectives(run: &Run) -> bool {
    // A shortlist shows them for each storage.
    if run.study.answer == Some(study::Finding::Suitability) {
        return false;
    }
    let all = analysis::objective::objectives(run);
    let count = |wanted: Outcome| all.iter().filter(|one| one.outcome == wanted).count();
    let (missed, open) = (count(Outcome::Missed), count(Outcome::Open));
    if all.is_empty() {
        return false;
    }
    for one in all.iter().filter(|one| one.outcome == Outcome::Missed) {
        let (stack, experiment) = (plain(&one.stack), plain(&one.experiment));
        let point = plain(&one.point);
        out!(
            "objective missed: {} by {stack} in {experiment} at {point}: {}",
            one.objective,
            one.text
        );
    }
    out!(
        "objectives: {} of {} met, {missed} missed, {open} inconclusive",
        count(Outcome::Met),
        all.len()
    );
    missed > 0
}
