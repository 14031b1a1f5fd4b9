//! Project tasks: `schema` writes the schema of study files and the reference in docs/STUDY.md, `validation`
//! writes or checks the tables of docs/VALIDATION.md, `fuzz` runs every fuzz target for a while.
//!
//! The rules of the workspace (crate graph, purity, headers, sizes) are tests of this crate.

mod bars;
mod format;
mod left_out;
mod marked;
mod validation;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["schema"] => write_schema(),
        ["validation"] => write_validation(),
        ["validation", "--check"] => check_validation(),
        ["fuzz"] => fuzz("20"),
        ["fuzz", seconds] => fuzz(seconds),
        _ => Err("usage: cargo xtask schema | validation [--check] | fuzz [SECONDS]".to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The schema as checked in.
fn schema_text() -> String {
    let schema = study::schema();
    let text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text + "\n"
}

fn write_schema() -> Result<(), String> {
    let path = root().join("docs/schema/study.schema.json");
    std::fs::write(&path, schema_text()).map_err(|error| format!("{}: {error}", path.display()))?;
    marked::replace(&root().join("docs/STUDY.md"), &reference()?)
}

/// The reference of study files, as in docs/STUDY.md.
fn reference() -> Result<String, String> {
    let schema = serde_json::to_value(study::schema()).map_err(|error| error.to_string())?;
    format::reference(&schema)
}

fn write_validation() -> Result<(), String> {
    let found = validation::validate()?;
    let path = root().join("docs/validation.csv");
    std::fs::write(&path, found.csv).map_err(|error| format!("{}: {error}", path.display()))?;
    marked::replace(&root().join("docs/VALIDATION.md"), &found.tables)
}

/// Checks that the errors shown to users are those of the models that ship.
///
/// # Errors
/// What is out of date.
fn check_validation() -> Result<(), String> {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap_or_default();
    let validation::Validation { tables, csv } = validation::validate()?;
    if !read("docs/VALIDATION.md").contains(&tables) || read("docs/validation.csv") != csv {
        return Err(
            "docs/VALIDATION.md or its CSV is out of date; run: cargo xtask validation".into()
        );
    }
    // The README quotes one number of them.
    let together = tables.lines().find(|line| line.starts_with("Together: "));
    let quoted = together.and_then(|line| line.split(", ").nth(1)).unwrap_or_default();
    let readme = read("README.md").replace("the median error is ", "median error ");
    match !quoted.is_empty() && readme.contains(quoted) {
        true => Ok(()),
        false => Err(format!("README does not say `{quoted}`")),
    }
}

/// Flags for libFuzzer's coverage instrumentation; the same that cargo-fuzz passes, except for the sanitizer,
/// so that a stable compiler without extra tools suffices.
const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Ccodegen-units=1";

/// The fuzz targets, one file each: every parser of external input.
fn targets(dir: &Path) -> Result<Vec<String>, String> {
    let files = std::fs::read_dir(dir.join("src")).map_err(|error| error.to_string())?;
    let names = files.flatten().filter_map(|file| file.file_name().into_string().ok());
    let targets = names.filter_map(|name| name.strip_suffix(".rs").map(str::to_owned));
    Ok(targets.filter(|name| name != "main").collect())
}

/// Builds the fuzz targets and runs each for `seconds`, two at a time; new inputs stay in `fuzz/corpus`.
fn fuzz(seconds: &str) -> Result<(), String> {
    let dir = root().join("fuzz");
    let host = host_triple()?;
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| dir.join("target"), |shared| PathBuf::from(shared).join("fuzz"));
    let build = Command::new("cargo")
        .args(["build", "--quiet", "--release", "--target", &host, "--manifest-path"])
        .arg(dir.join("Cargo.toml"))
        .env("CARGO_TARGET_DIR", &target)
        .env("RUSTFLAGS", COVERAGE)
        .status();
    if !build.map_err(|error| error.to_string())?.success() {
        return Err("the fuzz targets do not build".into());
    }
    let program = target.join(&host).join("release/crosspoint-fuzz");
    let targets = Mutex::new(targets(&dir)?.into_iter());
    let run = || -> Result<(), String> {
        loop {
            let next = targets.lock().map_err(|error| error.to_string())?.next();
            let Some(name) = next else { return Ok(()) };
            println!("fuzz {name}: {}", fuzz_one(&program, &dir, (&name, seconds))?);
        }
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(run);
        run().and(other.join().unwrap_or_else(|_| Err("a thread panicked".into())))
    })
}

/// Runs one fuzz target and reports libFuzzer's output.
fn fuzz_one(program: &Path, dir: &Path, (name, seconds): (&str, &str)) -> Result<String, String> {
    let corpus = dir.join("corpus").join(name);
    std::fs::create_dir_all(&corpus).map_err(|error| error.to_string())?;
    let output = Command::new(program)
        .env("CROSSPOINT_FUZZ", name)
        .arg(format!("-max_total_time={seconds}"))
        .args(["-max_len=4096", "-timeout=10", "-rss_limit_mb=2048"])
        .arg(format!("-artifact_prefix={}/", corpus.display()))
        .arg(&corpus)
        .arg(dir.join("seeds").join(name))
        .output()
        .map_err(|error| format!("{}: {error}", program.display()))?;
    let log = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("fuzz target {name} failed:\n{log}"));
    }
    Ok(log.lines().rev().find(|line| line.starts_with("Done")).unwrap_or("no runs").to_owned())
}

fn host_triple() -> Result<String, String> {
    let output = Command::new("rustc").arg("-vV").output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix("host: "));
    line.map(str::to_owned).ok_or_else(|| "rustc does not say its host".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An editor that completes study files from a stale schema misleads its user.
    #[test]
    fn the_schema_that_is_checked_in_is_current() {
        let path = root().join("docs/schema/study.schema.json");
        let stored = std::fs::read_to_string(path).unwrap_or_default();
        assert!(stored == schema_text(), "out of date; run: cargo xtask schema");
    }

    /// A reference that is older than the program has keys that it refuses.
    #[test]
    fn the_reference_of_study_files_is_current() {
        let stored = std::fs::read_to_string(root().join("docs/STUDY.md")).unwrap_or_default();
        assert!(stored.contains(&reference().unwrap()), "out of date; run: cargo xtask schema");
    }
}
