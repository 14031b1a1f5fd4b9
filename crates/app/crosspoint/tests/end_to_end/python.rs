//! The Python package for notebooks: its values must equal the report's.

use std::path::PathBuf;
use std::process::Command;

use crate::support::{Scratch, expect, needs, stderr};

#[test]
fn the_package_reads_figures_series_and_histograms_as_they_are() {
    let Some(()) = needs("the_package_reads_figures", &["python3"]) else { return };
    let scratch = Scratch::new();
    let job = "run block --rw randrw --iodepth 4 --runtime 2 model:intel-p4800x --out run";
    expect(&scratch.run(job), 0);
    let python = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../python");
    let tests = Command::new("python3")
        .arg("-B")
        .arg(python.join("tests/test_crosspoint.py"))
        .env("PYTHONPATH", python.join("src"))
        .env("CROSSPOINT", env!("CARGO_BIN_EXE_crosspoint"))
        .env("CROSSPOINT_RUN", scratch.path().join("run"))
        .env("CROSSPOINT_STATE_DIR", scratch.state())
        .current_dir(scratch.path())
        .output()
        .expect("it starts");
    expect(&tests, 0);
    assert!(stderr(&tests).contains("Ran 9 tests"), "{}", stderr(&tests));
}

/// A notebook's type checker must know what the package gives.
#[test]
fn the_package_has_correct_types() {
    let Some(()) = needs("the_package_has_correct_types", &["mypy"]) else { return };
    let scratch = Scratch::new();
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../python/src");
    let checked = Command::new("mypy")
        .args(["--strict", "--allow-untyped-calls", "--ignore-missing-imports"])
        .arg("--cache-dir")
        .arg(scratch.path().join("cache"))
        .arg(source)
        .output()
        .expect("it starts");
    expect(&checked, 0);
}

/// An export for other programs must be complete, and binary formats must not go to a terminal.
#[test]
fn series_and_histograms_are_written_in_every_form() {
    let scratch = Scratch::new();
    let job = "run block --rw randread --runtime 1 model:intel-p4800x --out run";
    expect(&scratch.run(job), 0);
    for of in ["figures", "series", "histograms"] {
        for (format, begins) in [("csv", ""), ("json", "{"), ("parquet", "PAR1")] {
            let file = format!("{of}.{format}");
            let words = format!("figures run --of {of} --format {format} -o {file}");
            expect(&scratch.run(&words), 0);
            let bytes = std::fs::read(scratch.path().join(&file)).expect("the file");
            assert!(bytes.starts_with(begins.as_bytes()), "{file}");
            assert!(bytes.len() > 200, "{file}");
            // An existing file is not overwritten without `--force`.
            let again = scratch.run(&format!("figures run --of {of} --format json -o {of}.csv"));
            assert!(!again.status.success(), "{of}");
        }
    }
    expect(&scratch.run("figures run --of series --format table"), 2);
}
