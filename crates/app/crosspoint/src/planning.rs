//! `crosspoint plan`: trials, time, space, what is skipped, and the parts that can run apart.

use runner::StudyText;
use serde_json::json;
use study::{Job, Source};

use crate::exit::{self, ExitCode};
use crate::show::Failure;

/// Prints what a study would do on this machine.
pub fn plan(text: &StudyText, as_json: bool) -> Result<ExitCode, Failure> {
    let study = study::parse(&text.text, engines::list())
        .and_then(|study| study::check_size(&study).map(|()| study))
        .map_err(|error| Failure::Runner(Box::new(error.into()), Some(text.clone())))?;
    let (plan, _) = runner::possible(&study, study::plan(&study));
    let estimate = runner::estimate(&study, &plan);
    let mut models = Vec::new();
    for stack in &study.stack {
        if let study::DeviceName::Model(model) = &stack.device {
            let profile = runner::profile(model)?;
            runner::check_faults(stack)?;
            let jobs = plan.trials.iter().filter(|trial| trial.stack == stack.name);
            runner::check_model(stack, &profile, jobs.map(|trial| &trial.job))?;
            models.push(profile.title);
        }
    }
    if as_json {
        let trials: Vec<_> = plan
            .trials
            .iter()
            .map(|trial| {
                let point: serde_json::Map<_, _> = trial
                    .job
                    .point()
                    .into_iter()
                    .map(|(key, value)| (key.into_owned(), json!(value)))
                    .collect();
                json!({
                    "number": trial.number, "experiment": trial.experiment, "stack": trial.stack,
                    "engine": trial.job.engine(), "source": trial.source.word(),
                    "execution": trial.execution().word(),
                    "repetition": trial.repetition, "point": point,
                })
            })
            .collect();
        let skipped: Vec<_> = plan
            .skipped
            .iter()
            .map(|s| json!({"experiment": s.experiment, "stack": s.stack, "reason": s.full_reason()}))
            .collect();
        let document = json!({
            "schema": 1, "study": study.name, "trials": trials, "skipped": skipped,
            "seconds": estimate.seconds.round(), "prepared_bytes": estimate.prepared.get(),
            "space_bytes": estimate.space.get(), "privileges": runner::privileges(&study, &plan),
            "overwrites": runner::overwrites(&study), "lacks": runner::lacks(&study, &plan),
            "parts": parts(&study),
        });
        out!("{document:#}");
        return Ok(exit::OK);
    }
    print_plan(&study, &plan, &estimate);
    Ok(exit::OK)
}

/// The parts of the whole plan, each with what this machine lacks for it.
fn parts(study: &study::Study) -> Vec<serde_json::Value> {
    let whole = study::plan(study);
    let lacks = |part: &runner::Part| {
        let own = |trial: &&study::Trial| {
            // Optional trials are left out where they cannot run.
            let mut optional = study.experiment.iter().filter(|one| one.optional);
            part.trials.contains(&trial.number) && !optional.any(|one| one.name == trial.experiment)
        };
        let trials = whole.trials.iter().filter(own).cloned().collect();
        runner::lacks(study, &study::Plan { trials, skipped: Vec::new() })
    };
    let one = |part: &runner::Part| {
        json!({
            "trials": part.trials, "exclusive": part.exclusive, "seconds": part.seconds,
            "lacks": lacks(part),
        })
    };
    runner::parts(study, &whole).iter().map(one).collect()
}

fn print_plan(study: &study::Study, plan: &study::Plan, estimate: &runner::Estimate) {
    out!("study {}: {}", study.name, study.question);
    for trial in &plan.trials {
        out!(
            "{:>4}  {:<9}  {:<12} {:<18} {:<7} {}",
            trial.number,
            trial.source.word(),
            trial.experiment,
            trial.stack,
            trial.job.engine(),
            trial.point_text()
        );
    }
    for skip in &plan.skipped {
        out!("skip: {} on {}: {}", skip.experiment, skip.stack, skip.full_reason());
    }
    let mut measured = plan.trials.iter().filter(|trial| trial.source == Source::Measured);
    let writes = measured
        .any(|trial| trial.job.writes_blocks() || matches!(trial.job, Job::Kv(_) | Job::Sql(_)));
    let of = |source| plan.trials.iter().filter(|trial| trial.source == source).count();
    let emulated = match of(Source::Emulated) {
        0 => String::new(),
        count => format!(", {count} emulated"),
    };
    out!("trials:     {} ({} measured{emulated})", plan.trials.len(), of(Source::Measured));
    out!("time:       about {:.0} s", estimate.seconds);
    out!(
        "written:    {} during setup{}; peak disk use {}, removed afterwards",
        estimate.prepared,
        if writes { ", plus what the write trials write" } else { "" },
        estimate.space
    );
    for line in runner::overwrites(study) {
        out!("overwrites: {line}");
    }
    out!("privileges: {}", runner::privileges(study, plan));
    for lack in runner::lacks(study, plan) {
        out!("missing:    stack {}: {}\n            help: {}", lack.stack, lack.what, lack.next);
    }
}
