//! `compare`: two stacks of one run, or two runs, metric by metric.
//!
//! Invariant: exit code 9 if something is worse, else 10 if something is inconclusive or cannot be compared,
//! else 0.

use analysis::compared::{Comparison, METRICS, Question, Refused, Verdict, runs, stacks};
use archive::Run;
use serde_json::{Value, json};

use crate::cli::CompareArguments;
use crate::exit::{self, ExitCode};
use crate::show::Failure;
use crate::words::plain;

/// Compares.
pub fn run(arguments: &CompareArguments) -> Result<ExitCode, Failure> {
    let read =
        arguments.runs.iter().map(|path| Run::read(path, engines::list()).map_err(Failure::from));
    let read: Vec<Run> = read.collect::<Result<_, _>>()?;
    let question = Question {
        margin: arguments.margin.fraction(),
        metrics: arguments.metric.clone(),
        allowed: arguments.allow_mismatch.clone(),
    };
    if let Some(unknown) = question.metrics.iter().find(|one| !METRICS.contains(&one.as_str())) {
        say!("error: metric {unknown:?} cannot be compared\n  help: one of {}", METRICS.join(", "));
        return Ok(exit::USAGE);
    }
    if question.margin <= stats::compare::TRIVIAL {
        say!("error: the margin must be greater than 1 %\n  help: --margin 2%, or more");
        return Ok(exit::USAGE);
    }
    let found = match read.as_slice() {
        [one] => match pair_of(one, &arguments.stacks) {
            Ok([first, second]) => stacks(one, [&first, &second], &question),
            Err(why) => {
                say!("error: {}\n  help: --stacks FIRST,SECOND", plain(&why));
                return Ok(exit::USAGE);
            }
        },
        [first, second] if same_place(first, second) => Err(Refused::Same),
        [first, second] if arguments.stacks.is_empty() => runs(first, second, &question),
        _ => {
            say!("error: --stacks takes one run\n  help: crosspoint compare RUN --stacks A,B");
            return Ok(exit::USAGE);
        }
    };
    match found {
        Ok(comparison) => Ok(print(&comparison, arguments.json)),
        Err(refused) => Ok(refuse(&refused)),
    }
}

/// Whether both are the same folder.
fn same_place(first: &Run, second: &Run) -> bool {
    let real = |run: &Run| std::fs::canonicalize(&run.path).ok();
    real(first).is_some_and(|one| Some(one) == real(second))
}

/// The stacks that were named, or the only two.
fn pair_of(run: &Run, named: &[String]) -> Result<[String; 2], String> {
    let names = run.header.stacks.iter().map(|stack| stack.name.clone());
    let known: Vec<String> = names.filter(|name| !run.study.is_variant(name)).collect();
    match (named, known.as_slice()) {
        ([first, second], _) | ([], [first, second]) => Ok([first.clone(), second.clone()]),
        ([], _) => Err(format!("the run has {} stacks: {}", known.len(), known.join(", "))),
        _ => Err(format!("{} stacks given; two can be compared", named.len())),
    }
}

/// Prints a comparison; returns its exit code.
pub fn print(comparison: &Comparison, as_json: bool) -> ExitCode {
    let view = report::compare_view(comparison);
    if as_json {
        out!("{:#}", document(comparison, &view.sentence));
    } else {
        out!("{}", line(&view.sentence));
        for row in &view.rows {
            let (verdict, difference, interval) = (row.verdict, &row.difference, &row.interval);
            out!("{verdict:<7}{difference:>9} ({interval})  {}", row.figure);
            out!("       {}", line(&row.values));
            out!("       {}", line(&row.place));
            out!("       {}", line(&row.basis));
        }
        out!("{}", line(&view.about));
        let noise = crate::noise_file::beside(comparison);
        view.notes.iter().chain(&noise).for_each(|note| out!("note: {}", line(note)));
        if !view.advice.is_empty() {
            out!("help: {}", line(&view.advice));
        }
    }
    // A metric that one of two runs lacks was not compared; stacks of one run may differ.
    let lacking = if comparison.turns { 0 } else { comparison.alone.len() };
    match (comparison.count(Verdict::Worse), comparison.count(Verdict::Inconclusive) + lacking) {
        (0, 0) => exit::OK,
        (0, _) => exit::INCONCLUSIVE,
        _ => exit::REGRESSION,
    }
}

/// User text on one line: a newline in a name must not imitate our output.
fn line(text: &str) -> String {
    plain(text).replace(['\n', '\t'], " ")
}

fn document(comparison: &Comparison, sentence: &str) -> Value {
    let rows: Vec<Value> = comparison
        .rows
        .iter()
        .map(|row| {
            let known = row.difference.map(|one| {
                let (lo, hi) = one.interval();
                json!({
                    "ratio": one.ratio, "lo": lo, "hi": hi, "n": one.n, "finds": one.finds(),
                    "needs": one.needed(comparison.margin, comparison.judged()), "p_differs": one.p_differs(),
                    "p_equal": one.p_equal(comparison.margin),
                })
            });
            json!({
                "experiment": row.experiment, "engine": row.engine, "stack": row.stack,
                "point": row.point, "op": row.ops, "metric": row.metric, "unit": row.unit,
                "first": row.values[0], "second": row.values[1],
                "sources": row.sources.map(|source| source.word()),
                "difference": known, "judged": row.judged().is_some(), "verdict": row.verdict,
                "why": row.why,
            })
        })
        .collect();
    json!({
        "schema": 1, "first": comparison.names[0], "second": comparison.names[1],
        "took_turns": comparison.turns, "margin": comparison.margin, "sentence": sentence,
        "figures": rows, "noise": crate::noise_file::beside(comparison), "alone": comparison.alone,
        "notes": comparison.notes,
    })
}

/// Prints why the comparison was refused.
pub fn refuse(refused: &Refused) -> ExitCode {
    match refused {
        Refused::Differ(all) => {
            say!("error: the runs differ in workload or target:");
            for one in all {
                say!("  {}: {} and {}", line(&one.what), line(&one.first), line(&one.second));
            }
            let mut words: Vec<&str> = all.iter().filter_map(|one| one.word.as_deref()).collect();
            words.sort_unstable();
            words.dedup();
            if all.iter().any(|one| one.word.is_none()) {
                say!("  help: run the same study twice; different jobs cannot be compared");
            } else {
                say!(
                    "  help: --allow-mismatch {}, if that difference is intended",
                    words.join(",")
                );
            }
            exit::INCONCLUSIVE
        }
        Refused::NothingShared => {
            say!("error: no metric in common\n  help: crosspoint figures RUN shows each");
            exit::INCONCLUSIVE
        }
        Refused::Same => {
            say!(
                "error: both are the same run or stack\n  help: name two runs, or two stacks of one"
            );
            exit::USAGE
        }
        Refused::NoWord(word) => {
            let word = line(word);
            say!(
                "error: no mismatch is named {word:?}\n  help: run without --allow-mismatch to list \
                 mismatches"
            );
            exit::USAGE
        }
        Refused::NoStack(name, known) => {
            let known: Vec<String> = known.iter().map(|one| line(one)).collect();
            let (name, known) = (line(name), known.join(", "));
            say!("error: no stack {name:?}\n  help: --stacks, two of {known}");
            exit::USAGE
        }
    }
}
