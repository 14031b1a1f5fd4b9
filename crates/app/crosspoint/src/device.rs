//! `crosspoint device`: what models there are, what they are made of, how near they come.
//!
//! Invariant: errors against published figures are computed when asked for, never stored. What it is not:
//! the models.

use device::Profile;
use serde_json::json;
use sim::Check;
use toml::{Table, Value};

use crate::cli::DeviceAction;
use crate::exit::{self, ExitCode};
use crate::show::Failure;

/// Does what was asked.
pub fn run(action: DeviceAction) -> Result<ExitCode, Failure> {
    match action {
        DeviceAction::List { json } => list(json),
        DeviceAction::Show { name, toml: true } => {
            // What is no profile is not shown: it may be anything.
            runner::profile(&name)?;
            out!("{}", runner::profile_text(&name)?.trim_end());
            Ok(exit::OK)
        }
        DeviceAction::Show { name, .. } => show(&name),
        DeviceAction::Fit(arguments) => crate::fit::run(&arguments),
        DeviceAction::Check { names, all, json } => {
            let built_in = runner::built_in_profiles().into_iter().map(str::to_owned);
            check(&if all { built_in.collect() } else { names }, json)
        }
    }
}

fn list(as_json: bool) -> Result<ExitCode, Failure> {
    let mut documents = Vec::new();
    for name in runner::built_in_profiles() {
        let profile = runner::profile(name)?;
        let (kind, capacity) = (profile.parameters.kind(), profile.capacity);
        if as_json {
            documents.push(json!({
                "name": name, "kind": kind, "capacity_bytes": capacity.get(),
                "title": profile.title, "not_covered": profile.not_covered,
                "published_figures": runner::check_profile(&profile).len(),
            }));
        } else {
            out!("{name:<28} {kind:<13} {:>8}  {}", capacity.to_string(), profile.title);
        }
    }
    if as_json {
        out!("{:#}", json!({"schema": 1, "profiles": documents}));
    }
    Ok(exit::OK)
}

fn show(name: &str) -> Result<ExitCode, Failure> {
    let profile = runner::profile(name)?;
    out!("{}", profile.title);
    draw(&profile, "", "");
    out!("\nnot covered: {}", profile.not_covered);
    let mut shown = Vec::new();
    constants(&profile, name, &mut shown)?;
    let checks = runner::check_profile(&profile);
    match median_error(&checks) {
        Some(median) => out!(
            "\nheld against {} figures, median error {:.1} %; crosspoint device check {name}",
            checks.len(),
            median * 100.0
        ),
        None => out!("\npublished figures: none, so predictions say \"not validated here\""),
    }
    Ok(exit::OK)
}

/// Draws what a profile stands on, indented.
fn draw(profile: &Profile, indent: &str, role: &str) {
    let (kind, capacity) = (profile.parameters.kind(), profile.capacity);
    out!("{indent}{role}{} [{kind}, {capacity}]", profile.name);
    for (role, below) in profile.parameters.below() {
        draw(below, &format!("{indent}  "), &format!("{role}: "));
    }
}

/// Prints the constants of a profile and of those below it, each once.
fn constants(profile: &Profile, name: &str, shown: &mut Vec<String>) -> Result<(), Failure> {
    if shown.contains(&profile.name) {
        return Ok(());
    }
    shown.push(profile.name.clone());
    let text = runner::profile_text(name)?;
    let table: Table = text.parse().unwrap_or_default();
    out!("\n{}", profile.name);
    for (_, section) in table.iter().filter(|(_, value)| value.is_table()) {
        let Some(section) = section.as_table() else { continue };
        for (key, constant) in section {
            let word = |field: &str| {
                let value = constant.get(field).unwrap_or(constant);
                value.as_str().map_or_else(|| value.to_string(), str::to_owned)
            };
            match constant {
                Value::Table(_) => {
                    out!(
                        "  {key:<20} {:<12} {:<10} {}",
                        word("value"),
                        word("kind"),
                        word("source")
                    );
                }
                other => out!("  {key:<20} {other}"),
            }
        }
    }
    for (_, below) in profile.parameters.below() {
        constants(below, &below.name, shown)?;
    }
    Ok(())
}

fn check(names: &[String], as_json: bool) -> Result<ExitCode, Failure> {
    let mut all: Vec<Check> = Vec::new();
    let mut documents = Vec::new();
    for name in names {
        let profile = runner::profile(name)?;
        let checks = runner::check_profile(&profile);
        if as_json {
            documents.extend(checks.iter().map(|one| document(name, one)));
        } else {
            print_checks(&profile, &checks);
        }
        all.extend(checks);
    }
    let median = median_error(&all);
    if as_json {
        out!("{:#}", json!({"schema": 1, "checks": documents, "median_absolute_error": median}));
        return Ok(exit::OK);
    }
    let errors = all.iter().filter_map(Check::error).count();
    let (inside, of) = (all.iter().filter(|one| one.within()).count(), all.len());
    if let Some(median) = median {
        out!(
            "{errors} values held against: median absolute error {:.1} %; {inside} of all {of} checks within \
             their bands (10 % where none is given)",
            median * 100.0
        );
    }
    Ok(exit::OK)
}

fn print_checks(profile: &Profile, checks: &[Check]) {
    out!("{} ({})", profile.name, profile.title);
    if checks.is_empty() {
        out!("  no published figures: not validated");
    }
    for one in checks {
        let error =
            one.error().map_or_else(String::new, |error| format!("{:+.1} %", error * 100.0));
        let verdict = if one.within() { "ok" } else { "outside" };
        out!(
            "  {:<54} {:>26} {:>9} {error:>8}  {verdict:<8} {}",
            one.what(),
            one.published_text(),
            one.text(one.predicted),
            one.source
        );
    }
    out!("");
}

fn document(name: &str, one: &Check) -> serde_json::Value {
    json!({
        "profile": name, "what": one.what(), "metric": one.metric,
        "kind": one.kind.map_or("phenomenon", sim::JobKind::word),
        "published": one.published.value(), "band": one.published.band(),
        "predicted": one.predicted, "error": one.error(), "within_band": one.within(),
        "source": one.source,
    })
}

fn median_error(checks: &[Check]) -> Option<f64> {
    let mut errors: Vec<f64> = checks.iter().filter_map(Check::error).map(f64::abs).collect();
    errors.sort_by(f64::total_cmp);
    errors.get(errors.len() / 2).copied()
}
