//! The tables of `docs/VALIDATION.md`: every profile that ships against its published figures, and what those
//! say that no constant has seen.
//!
//! Invariant: computed, never typed; only held-out figures make an error. What it is not: a verdict.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use device::{Evidence, Profile};
use sim::{Check, JobKind, check, check_phenomena};
use units::{Nanos, Seed};

const BEGIN: &str = "<!-- computed: cargo xtask validation -->";
const END: &str = "<!-- end of computed part -->";

/// The computed part for every profile in `devices`.
pub fn tables(devices: &Path) -> Result<String, String> {
    let mut paths: Vec<_> = std::fs::read_dir(devices)
        .map_err(|error| error.to_string())?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    let profile = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        let lookup = |name: &str| {
            let path = devices.join(format!("{name}.toml"));
            std::fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))
        };
        Profile::parse_with(&text, &lookup).map_err(|error| error.to_string())
    };
    let profiles: Vec<Profile> = paths.iter().map(profile).collect::<Result<_, String>>()?;
    let profiles = checked(profiles);
    let mut out = format!("{BEGIN}\n");
    counts(&mut out, &profiles);
    held_out(&mut out, &profiles);
    for (profile, checks) in &profiles {
        of_profile(&mut out, profile, checks);
    }
    let _ = write!(out, "\n{END}");
    Ok(out)
}

type Checked = (Profile, Vec<Check>);

/// Each with its checks, on all processors: those that write take seconds each.
fn checked(profiles: Vec<Profile>) -> Vec<Checked> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some(profile) = profiles.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut checks = check(profile, Nanos::from_millis(200), Seed(1));
            checks.extend(check_phenomena(profile, Seed(1)));
            done.push((profile.name.clone(), checks));
        }
        done
    };
    let mut by_name: BTreeMap<String, Vec<Check>> = std::thread::scope(|scope| {
        let cpus = observe::cpus();
        let threads: Vec<_> = (0..cpus).map(|_| scope.spawn(work)).collect();
        let joined = threads.into_iter().map(|thread| thread.join().unwrap_or_default());
        joined.flatten().collect()
    });
    let with = |profile: Profile| {
        let checks = by_name.remove(&profile.name).unwrap_or_default();
        (profile, checks)
    };
    profiles.into_iter().map(with).collect()
}

/// How many published figures are what.
fn counts(out: &mut String, profiles: &[Checked]) {
    let all = || profiles.iter().flat_map(|(_, checks)| checks);
    let _ = writeln!(out, "\n## Published figures of drives, and what they are to our models\n");
    let _ = writeln!(out, "| | figures | with a number | median error | outside their band |");
    let _ = writeln!(out, "|---|---|---|---|---|");
    for is in Evidence::ALL {
        let of = || all().filter(|one| one.evidence == is);
        let errors: Vec<f64> = of().filter_map(Check::error).collect();
        let (figures, outside) = (of().count(), of().filter(|one| !one.within()).count());
        let median = match is {
            Evidence::HeldOut => {
                median(&errors).map_or("-".into(), |m| format!("{:.0} %", m * 100.0))
            }
            _ => "no evidence".into(),
        };
        let (word, numbers) = (is.word(), errors.len());
        let _ = writeln!(out, "| {word} | {figures} | {numbers} | {median} | {outside} |");
    }
}

/// Every held-out figure with its error, by class of device and kind of job.
fn held_out(out: &mut String, profiles: &[Checked]) {
    let _ = writeln!(out, "\n## Held-out error by class of device and kind of job\n");
    let _ = writeln!(out, "| class | kind of job | figures | median error | worst | which |");
    let _ = writeln!(out, "|---|---|---|---|---|---|");
    let mut rows: BTreeMap<(String, &str), Vec<(f64, String)>> = BTreeMap::new();
    for (profile, checks) in profiles {
        for one in checks.iter().filter(|one| one.evidence == Evidence::HeldOut) {
            let Some(error) = one.error() else { continue };
            let kind = one.kind.map_or("several jobs together", JobKind::word);
            let which = format!("{} {} {:+.0} %", profile.name, one.what(), error * 100.0);
            rows.entry((profile.parameters.kind(), kind)).or_default().push((error, which));
        }
    }
    for ((class, kind), found) in &rows {
        let errors: Vec<f64> = found.iter().map(|(error, _)| *error).collect();
        let worst =
            errors.iter().copied().fold(0.0, |a: f64, b| if b.abs() > a.abs() { b } else { a });
        let median = median(&errors).unwrap_or(0.0) * 100.0;
        let which: Vec<&str> = found.iter().map(|(_, which)| which.as_str()).collect();
        let (count, worst) = (found.len(), worst * 100.0);
        let _ = writeln!(
            out,
            "| {class} | {kind} | {count} | {median:.0} % | {worst:+.0} % | {} |",
            which.join("; ")
        );
    }
    let all: Vec<f64> = rows.values().flatten().map(|(error, _)| *error).collect();
    let within = all.iter().filter(|error| error.abs() <= 0.10).count();
    let _ = writeln!(
        out,
        "\nTogether: {} figures, median error {:.0} %, {within} within 10 %.",
        all.len(),
        median(&all).unwrap_or(0.0) * 100.0
    );
}

fn of_profile(out: &mut String, profile: &Profile, checks: &[Check]) {
    let _ = write!(out, "\n## {}\n\n", profile.title);
    if checks.is_empty() {
        let _ = writeln!(out, "Nothing is published, or nothing is carried: not validated.");
        return;
    }
    let _ =
        writeln!(out, "| job and metric | published | predicted | is | error | band | source |");
    let _ = writeln!(out, "|---|---|---|---|---|---|---|");
    for one in checks {
        let (published, predicted) = (one.published_text(), one.text(one.predicted));
        // How near a fit comes to what it was chosen for is no error of the model.
        let held_out = one.evidence == Evidence::HeldOut;
        let error =
            one.error().filter(|_| held_out).map(|error| format!("{:+.1} %", error * 100.0));
        let error = error.unwrap_or_default();
        let outside = if one.within() { "inside" } else { "**outside**" };
        let (what, source, is) = (one.what(), &one.source, one.evidence.word());
        let _ = writeln!(
            out,
            "| {what} | {published} | {predicted} | {is} | {error} | {outside} | {source} |"
        );
    }
}

/// Of absolute values.
fn median(errors: &[f64]) -> Option<f64> {
    let mut sizes: Vec<f64> = errors.iter().map(|error| error.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let last = sizes.len().checked_sub(1)?;
    Some((sizes[last / 2] + sizes[sizes.len() / 2]) / 2.0)
}
