//! The table of `docs/VALIDATION.md`: every profile that ships against its published figures.
//!
//! Invariant: computed, never typed. What it is not: a verdict.

use std::fmt::Write;
use std::path::Path;

use device::Profile;
use sim::{JobKind, check, check_phenomena, spread};
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
    let mut out = format!("{BEGIN}\n");
    for path in paths {
        let text = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
        let lookup = |name: &str| {
            let path = devices.join(format!("{name}.toml"));
            std::fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))
        };
        let profile = Profile::parse_with(&text, &lookup).map_err(|error| error.to_string())?;
        let mut checks = check(&profile, Nanos::from_millis(200), Seed(1));
        checks.extend(check_phenomena(&profile, Seed(1)));
        let _ = write!(out, "\n## {}\n\n", profile.title);
        let _ = writeln!(out, "| job and metric | published | predicted | error | source |");
        let _ = writeln!(out, "|---|---|---|---|---|");
        for one in &checks {
            let (published, predicted) = (one.published_text(), one.text(one.predicted));
            let error = one.error().map(|error| format!("{:+.1} %", error * 100.0));
            let error = error.unwrap_or_else(|| "band".into());
            let outside = if one.within() { "" } else { " **outside**" };
            let (what, source) = (one.what(), &one.source);
            let _ = writeln!(
                out,
                "| {what} | {published} | {predicted} | {error}{outside} | {source} |"
            );
        }
        out.push('\n');
        for kind in [JobKind::Read, JobKind::Write, JobKind::Mix, JobKind::Durable] {
            let _ = match spread(&checks, kind) {
                Some((median, worst, n)) => writeln!(
                    out,
                    "* {}: median error {:.1} %, worst {:.1} %, {n} figures",
                    kind.word(),
                    median * 100.0,
                    worst * 100.0
                ),
                None => writeln!(out, "* {}: not validated", kind.word()),
            };
        }
    }
    let _ = write!(out, "\n{END}");
    Ok(out)
}

/// `document` with its computed part replaced by `tables`.
pub fn replaced(document: &str, tables: &str) -> Result<String, String> {
    let missing = || "docs/VALIDATION.md has lost its marks".to_owned();
    let start = document.find(BEGIN).ok_or_else(missing)?;
    let end = document.find(END).ok_or_else(missing)? + END.len();
    Ok(format!("{}{tables}{}", &document[..start], &document[end..]))
}
