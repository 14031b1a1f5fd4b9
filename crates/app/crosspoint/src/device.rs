//! `crosspoint device`: lists, shows and checks device models.
//!
//! Invariant: errors against published results are computed on request, never stored.

use std::collections::BTreeMap;

use device::{Evidence, Profile};
use serde_json::json;
use toml::{Table, Value};
use validate::Check;

use crate::cli::DeviceAction;
use crate::exit::{self, ExitCode};
use crate::show::Failure;
use crate::words::plain;

pub fn run(action: DeviceAction) -> Result<ExitCode, Failure> {
    match action {
        DeviceAction::List { json } => list(json),
        DeviceAction::Show { name, toml: true } => {
            // Only a valid profile is printed.
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
        let held_out = held_out(&profile);
        if as_json {
            documents.push(json!({
                "name": name, "kind": kind, "capacity_bytes": capacity.get(),
                "title": profile.title, "not_covered": profile.not_covered,
                "published_figures": published(&profile),
                "held_out_figures": held_out.iter().copied().collect::<BTreeMap<_, _>>(),
            }));
        } else {
            let capacity = capacity.to_string();
            out!("{name:<32} {kind:<12} {capacity:>8}  {:<27} {}", words(&held_out), profile.title);
        }
    }
    if as_json {
        out!("{:#}", json!({"schema": 1, "profiles": documents}));
    } else {
        out!(
            "\nreads, writes, mixes, others: held-out published figures. Errors: crosspoint device check NAME"
        );
    }
    Ok(exit::OK)
}

/// Classes of held-out figures with their counts.
fn held_out(profile: &Profile) -> Vec<(&'static str, usize)> {
    let mut counts = [("reads", 0), ("writes", 0), ("mixes", 0), ("others", 0)];
    for job in &profile.acceptance {
        let beside = job.beside_writes.is_some() || job.beside_depth.is_some();
        let place = match job.read_share {
            units::Share::ALL if !beside => 0,
            units::Share::NONE => 1,
            _ => 2,
        };
        let published = job.published();
        counts[place].1 += published.iter().filter(|one| one.evidence == Evidence::HeldOut).count();
    }
    let phenomena = profile.phenomena.iter();
    counts[3].1 = phenomena.filter(|one| one.evidence == Evidence::HeldOut).count();
    counts.into_iter().filter(|(_, count)| *count > 0).collect()
}

/// Formats the counts: `12 reads, 1 mix`.
fn words(held_out: &[(&'static str, usize)]) -> String {
    let one = |(kind, count): &(&str, usize)| match (*count, *kind) {
        (1, "mixes") => "1 mix".to_owned(),
        (1, kind) => format!("1 {}", kind.trim_end_matches('s')),
        (count, kind) => format!("{count} {kind}"),
    };
    match held_out {
        [] => "none held out".into(),
        some => some.iter().map(one).collect::<Vec<_>>().join(", "),
    }
}

/// Number of published figures.
fn published(profile: &Profile) -> usize {
    let of_jobs = profile.acceptance.iter().map(|job| job.published().len());
    of_jobs.sum::<usize>() + profile.phenomena.len()
}

fn show(name: &str) -> Result<ExitCode, Failure> {
    let profile = runner::profile(name)?;
    out!("{}", profile.title);
    draw(&profile, "", "");
    out!("\nlimits: {}", profile.not_covered);
    let mut shown = Vec::new();
    constants(&profile, name, &mut shown)?;
    let checks = runner::check_profile(&profile);
    match checks.len() {
        0 => out!("\npublished figures: none, so predictions say \"not validated\""),
        _ => out!("\n{}; crosspoint device check {name}", summary(&checks)),
    }
    Ok(exit::OK)
}

/// Draws the layers of a profile, indented.
fn draw(profile: &Profile, indent: &str, role: &str) {
    let (kind, capacity) = (profile.parameters.kind(), profile.capacity);
    out!("{indent}{role}{} [{kind}, {capacity}]", profile.name);
    for (role, below) in profile.parameters.below() {
        draw(below, &format!("{indent}  "), &format!("{role}: "));
    }
}

/// Prints the constants of a profile and its layers, each profile once.
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
    let missed = all.iter().filter(|one| !one.within()).count();
    if as_json {
        let counts = Evidence::ALL.map(|is| (key(is), json!(of(&all, is).count())));
        let counts: serde_json::Map<String, serde_json::Value> = counts.into_iter().collect();
        out!(
            "{:#}",
            json!({
                "schema": 2, "checks": documents, "counts": counts, "missed_bands": missed,
                "held_out_median_absolute_error": held_out_median(&all),
            })
        );
    } else {
        out!("{}", summary(&all));
    }
    Ok(if missed > 0 { exit::OBJECTIVE_MISSED } else { exit::OK })
}

/// The checks with one kind of evidence.
fn of(checks: &[Check], is: Evidence) -> impl Iterator<Item = &Check> {
    checks.iter().filter(move |one| one.evidence == is)
}

/// Name of a kind of evidence in documents.
fn key(is: Evidence) -> String {
    is.word().replace(' ', "_")
}

/// Summarizes the checks; only held-out figures have an error.
fn summary(checks: &[Check]) -> String {
    if checks.is_empty() {
        return "no published figures".to_owned();
    }
    let count = |is| of(checks, is).count();
    let missed = |is| of(checks, is).filter(|one| !one.within()).count();
    let held_out = match count(Evidence::HeldOut) {
        0 => "none held out".to_owned(),
        all => {
            let errors = of(checks, Evidence::HeldOut).filter_map(Check::error).count();
            let median = held_out_median(checks).filter(|_| errors > 1);
            let median = median.map(|m| format!(", median absolute error {:.0} %", m * 100.0));
            let (missed, median) = (missed(Evidence::HeldOut), median.unwrap_or_default());
            format!(
                "{missed} of {all} held-out figures outside their tolerance (default 10 %){median}"
            )
        }
    };
    let rest = [Evidence::Fitted, Evidence::Constructed, Evidence::Duplicate];
    let outside: usize = rest.into_iter().map(missed).sum();
    format!(
        "published figures: {held_out}; {} fitted, {} constructed, {} duplicate, of which {outside} outside: \
         agreement with these is no evidence",
        count(Evidence::Fitted),
        count(Evidence::Constructed),
        count(Evidence::Duplicate),
    )
}

fn print_checks(profile: &Profile, checks: &[Check]) {
    out!("{} ({})", profile.name, profile.title);
    if checks.is_empty() {
        out!("  no published figures: not validated");
    }
    for one in checks {
        // Agreement with a fitted figure says nothing about the model's error.
        let error = one.error().filter(|_| one.evidence == Evidence::HeldOut);
        let error = error.map_or_else(String::new, |error| format!("{:+.1} %", error * 100.0));
        let verdict = match (one.within(), one.missed) {
            (true, _) => "ok".to_owned(),
            (false, None) => "outside".to_owned(),
            (false, Some(cause)) => format!("outside: {}", cause.word()),
        };
        out!(
            "  {:<54} {:>26} {:>9} {error:>8}  {:<11} {verdict:<8} {}",
            one.what(),
            one.published_text(),
            one.text(one.predicted),
            one.evidence.word(),
            plain(&one.source)
        );
    }
    out!("");
}

fn document(name: &str, one: &Check) -> serde_json::Value {
    json!({
        "profile": name, "what": one.what(), "metric": one.metric,
        "kind": one.kind.map_or("phenomenon", validate::JobKind::word),
        "published": one.published.value(), "band": one.published.band(),
        "predicted": one.predicted, "error": one.error(), "within_band": one.within(),
        "is": key(one.evidence), "missed": one.missed,
        "source": one.source,
    })
}

/// Median absolute held-out error; `None` without held-out figures.
fn held_out_median(checks: &[Check]) -> Option<f64> {
    let held_out = of(checks, Evidence::HeldOut);
    validate::median_absolute(&held_out.filter_map(Check::error).collect::<Vec<f64>>())
}
