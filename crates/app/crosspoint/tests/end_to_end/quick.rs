//! One-line jobs, end to end: options of fio users must have fio's meaning, and the job must be a study that
//! can be saved.

use std::fs;

use crate::support::{Scratch, expect, stdout};

#[test]
fn a_job_in_one_line_is_a_study_that_is_kept() {
    let scratch = Scratch::new();
    let words =
        "block --rw randrw --rwmixread 70 --bs 16k --iodepth 4 --runtime 1 model:intel-p4800x";
    let output = scratch.run(&format!("run {words} --out one"));
    expect(&output, 0);
    let said = stdout(&output);
    for kind in ["read on target (predicted): ", "write on target (predicted): "] {
        let line = said.lines().find(|line| line.starts_with(kind)).expect("a line a kind");
        assert!(line.contains("/s, ") && line.contains("p99 "), "{line}");
    }
    // The equivalent study must give the same figures.
    let printed = scratch.run(&format!("run {words} --print"));
    expect(&printed, 0);
    fs::write(scratch.path().join("job.toml"), stdout(&printed)).expect("a study");
    expect(&scratch.run("run job.toml --out two"), 0);
    let figures = |run: &str| {
        let output = scratch.run(&format!("figures {run} --format csv"));
        stdout(&output).replace(&format!(",{run},"), ",,")
    };
    assert!(figures("one") == figures("two"), "the same figures");
    assert!(scratch.path().join("one/study.original.toml").exists());
}

#[test]
fn a_database_runs_in_one_line() {
    let scratch = Scratch::new();
    let words = "run lmdb --workload read_random --records 2000 --threads 2 --runtime 1 . --out run \
                 --set experiment.job.warm_up=100ms";
    scratch.prints(words, 0, &["read on target (measured): "]);
}

/// An ignored option means that something else was measured.
#[test]
fn options_that_do_not_belong_are_refused() {
    let scratch = Scratch::new();
    for (words, says) in [
        ("run lmdb --bs 4k", "lmdb jobs have no option --bs"),
        ("run block --records 5", "block jobs have no option --records"),
        ("run block --rw trim", "randwrite"),
        ("run quickstart --bs 4k", "quickstart is a study"),
        ("run quickstart /mnt/nvme", "quickstart is a study"),
    ] {
        scratch.fails(words, 2, &[says]);
    }
    scratch.fails("run block --bs 3x", 3, &["3x"]);
    assert!(!scratch.path().join("runs").exists());
}
