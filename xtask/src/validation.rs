//! The tables of `docs/VALIDATION.md`, and `docs/validation.csv`: every shipped profile against its published
//! figures, fitted and held out.
//!
//! Invariant: computed, never typed; only held-out figures count as errors.

use std::collections::BTreeMap;
use std::fmt::Write;

use rayon::prelude::*;

use device::{Evidence, Profile};
use validate::{Check, median_absolute};

use crate::{bars, left_out};

const BEGIN: &str = "<!-- computed: cargo xtask validation -->";
const END: &str = "<!-- end of computed part -->";

/// The generated part of the document, and the CSV with every figure.
pub struct Validation {
    pub tables: String,
    pub csv: String,
}

/// Computes both for every shipped profile.
pub fn validate() -> Result<Validation, String> {
    let checked = |name: &str| {
        let profile = runner::profile(name).map_err(|error| error.to_string())?;
        let checks = runner::check_profile(&profile);
        Ok((profile, checks))
    };
    let mut names = runner::built_in_profiles();
    names.sort_by_key(|name| format!("{name}.toml"));
    let profiles: Vec<Checked> =
        names.into_par_iter().map(checked).collect::<Result<_, String>>()?;
    let mut out = format!("{BEGIN}\n");
    counts(&mut out, &profiles);
    bars::tables(&mut out, &profiles)?;
    left_out::table(&mut out, &profiles);
    held_out(&mut out, &profiles);
    let _ = write!(out, "\n{END}");
    Ok(Validation { tables: out, csv: csv(&profiles) })
}

type Checked = (Profile, Vec<Check>);

/// Counts of published figures by evidence.
fn counts(out: &mut String, profiles: &[Checked]) {
    let all = || profiles.iter().flat_map(|(_, checks)| checks);
    let _ = writeln!(out, "\n## Published figures by role\n");
    let _ = writeln!(out, "| | figures | with a number | median error | outside their band |");
    let _ = writeln!(out, "|---|---|---|---|---|");
    for is in Evidence::ALL {
        let of = || all().filter(|one| one.evidence == is);
        let errors: Vec<f64> = of().filter_map(Check::error).collect();
        let (figures, outside) = (of().count(), of().filter(|one| !one.within()).count());
        let median = match is {
            Evidence::HeldOut => {
                median_absolute(&errors).map_or("-".into(), |m| format!("{:.0} %", m * 100.0))
            }
            _ => "no evidence".into(),
        };
        let (word, numbers) = (is.word(), errors.len());
        let _ = writeln!(out, "| {word} | {figures} | {numbers} | {median} | {outside} |");
    }
}

/// Held-out figures of one device class, kind and group of metrics: error, and description.
type Group = Vec<(f64, String)>;

/// Groups of metrics: typical values, and tails.
fn group(metric: &str) -> &'static str {
    match metric.split(" of ").next().unwrap_or(metric) {
        "p99" => "p99",
        "p99.9" | "p99.99" | "p99.999" => "p99.9 and beyond",
        _ => "rate, mean, p50",
    }
}

/// A source that was known when the mechanism was chosen, and is less independent than others.
const SHAPED: &str = "Haas et al.";

/// Held-out errors by device class, kind of job and group of metrics, with the worst of each; the CSV file
/// has all.
fn held_out(out: &mut String, profiles: &[Checked]) {
    let _ = writeln!(out, "\n## Held-out error by class of device and kind of job\n");
    let _ = writeln!(
        out,
        "| class | kind of job | metrics | figures | median error | within 10 % | within 25 % | worst |"
    );
    let _ = writeln!(out, "|---|---|---|---|---|---|---|---|");
    let mut rows: BTreeMap<(String, &str, &str), Group> = BTreeMap::new();
    let (mut shaped, mut others) = (Vec::new(), Vec::new());
    for (profile, checks) in profiles {
        for one in checks.iter().filter(|one| one.evidence == Evidence::HeldOut) {
            let Some(error) = one.error() else { continue };
            if one.source.contains(SHAPED) { &mut shaped } else { &mut others }.push(error);
            let (kind, group) = match one.kind {
                Some(kind) => (kind.word(), group(one.metric)),
                None => ("several jobs together", "all"),
            };
            let which = format!("{} {}", profile.name, one.what());
            let key = (profile.parameters.kind(), kind, group);
            rows.entry(key).or_default().push((error, which));
        }
    }
    for ((class, kind, group), found) in &rows {
        let (count, counted) = (found.len(), counted(found));
        let _ = writeln!(out, "| {class} | {kind} | {group} | {count} | {counted} |");
    }
    let all: Group = rows.values().flatten().cloned().collect();
    let errors: Vec<f64> = all.iter().map(|(error, _)| *error).collect();
    let within = errors.iter().filter(|error| error.abs() <= 0.10).count();
    let median = median_absolute(&errors).unwrap_or(0.0) * 100.0;
    let _ = writeln!(
        out,
        "\nTogether: {} figures, median error {median:.0} %, {within} within 10 %.",
        all.len()
    );
    let percent = |errors: &[f64]| median_absolute(errors).unwrap_or(0.0) * 100.0;
    let _ = writeln!(
        out,
        "\n{} of them are from {SHAPED} (median error {:.0} %). They are at other rates, percentiles or \
         drives than the fitted figures, but the flash model was designed from the same raw data. The \
         other {}: median {:.0} %.",
        shaped.len(),
        percent(&shaped),
        others.len(),
        percent(&others)
    );
}

/// Median, counts within two bands, and the worst.
fn counted(found: &Group) -> String {
    let errors: Vec<f64> = found.iter().map(|(error, _)| *error).collect();
    let median = median_absolute(&errors).unwrap_or(0.0) * 100.0;
    let within = |band: f64| errors.iter().filter(|error| error.abs() <= band).count();
    let worst = found.iter().max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()));
    let worst = worst.map_or(String::new(), |(e, which)| format!("{:+.0} % ({which})", e * 100.0));
    format!("{median:.0} % | {} | {} | {worst}", within(0.10), within(0.25))
}

/// A row for each published figure: profile, job and metric, both numbers, its evidence, the error (of
/// held-out figures only: a fit's distance from its target is no error), the band, the cause of a miss, and
/// the source.
fn csv(profiles: &[Checked]) -> String {
    let mut out =
        String::from("profile,job and metric,published,predicted,role,error,band,cause,source\n");
    for (profile, checks) in profiles {
        for one in checks {
            let held_out = one.evidence == Evidence::HeldOut;
            let error = one.error().filter(|_| held_out);
            let fields = [
                profile.name.clone(),
                one.what(),
                one.published_text(),
                one.text(one.predicted),
                one.evidence.word().to_owned(),
                error.map_or_else(String::new, |error| format!("{:+.1} %", error * 100.0)),
                if one.within() { "inside" } else { "outside" }.to_owned(),
                one.missed.filter(|_| !one.within()).map_or("", |cause| cause.word()).to_owned(),
                one.source.clone(),
            ];
            out.push_str(&fields.map(|field| quoted(&field)).join(","));
            out.push('\n');
        }
    }
    out
}

/// A field of a CSV file (RFC 4180).
fn quoted(field: &str) -> String {
    match field.contains([',', '"', '\n']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.to_owned(),
    }
}
