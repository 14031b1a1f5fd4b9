//! `studies`: the built-in studies with question, duration and requirements.
//!
//! Invariant: durations and requirements are those of `plan` on this machine.

use serde_json::json;
use study::Source;

use crate::exit::{self, ExitCode};
use crate::show::Failure;

/// Prints the list.
pub fn list(as_json: bool) -> Result<ExitCode, Failure> {
    let mut documents = Vec::new();
    for name in runner::built_in_studies() {
        let text = runner::load_study(name)?;
        let study = study::parse(&text.text, engines::list())
            .map_err(|error| Failure::Runner(Box::new(error.into()), Some(text.clone())))?;
        let plan = study::plan(&study);
        let seconds = runner::estimate(&study, &plan).seconds;
        let needs = needs(&study, &plan);
        let of = |source: Source| plan.trials.iter().any(|trial| trial.source == source);
        let sources = [Source::Measured, Source::Emulated, Source::Predicted];
        let sources: Vec<&str> =
            sources.into_iter().filter(|one| of(*one)).map(Source::word).collect();
        if as_json {
            documents.push(json!({
                "name": name, "question": study.question, "seconds": seconds.round(),
                "needs": needs, "sources": sources, "trials": plan.trials.len(),
            }));
        } else {
            out!("{name}: {}", study.question);
            let needs = match needs.is_empty() {
                true => String::new(),
                false => format!("; needs {}", needs.join(", ")),
            };
            out!("    {}, {}{needs}", minutes(seconds), sources.join(", "));
        }
    }
    if as_json {
        out!("{:#}", json!({"schema": 1, "studies": documents}));
    } else {
        out!("Preview a study: crosspoint plan NAME. Run it: crosspoint run NAME.");
    }
    Ok(exit::OK)
}

/// Hard requirements of a study, without those of parts that can be left out.
fn needs(study: &study::Study, plan: &study::Plan) -> Vec<&'static str> {
    let mut needs = Vec::new();
    let optional = |experiment: &str| {
        study.experiment.iter().any(|one| one.name == experiment && one.optional)
    };
    let must = plan.trials.iter().filter(|trial| !optional(&trial.experiment));
    if runner::privileges(study, plan) != "none"
        && must.clone().any(|t| t.source != Source::Predicted)
    {
        needs.push("root");
    }
    for engine in engines::descriptors() {
        let runs = |trial: &study::Trial| {
            (trial.job.engine(), trial.job.operations()) == (engine.name, engine.operations)
        };
        needs.extend(engine.needs.filter(|_| must.clone().any(runs)));
    }
    needs
}

fn minutes(seconds: f64) -> String {
    match seconds {
        short if short < 90.0 => format!("about {short:.0} s"),
        long => format!("about {:.0} min", long / 60.0),
    }
}
