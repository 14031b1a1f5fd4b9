//! fio job files and ACT configurations as users have them.

use std::fs;

use crate::support::{Scratch, expect, needs, stderr, stdout};

/// Where distributions install fio's own examples.
const EXAMPLES: &str = "/usr/share/doc/fio/examples";

/// None of these may make the program panic.
#[test]
fn every_example_of_fio_is_imported_or_refused_with_its_reason() {
    let Some(()) = needs("fio's examples", &[EXAMPLES]) else { return };
    let scratch = Scratch::new();
    let (mut imported, mut refused) = (0, 0);
    for entry in fs::read_dir(EXAMPLES).expect("the examples").flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|is| is != "fio") {
            continue;
        }
        let mut command = scratch.crosspoint();
        command.arg("import").arg(&path);
        // Variables that examples use.
        for (name, value) in
            [("SIZE", "1g"), ("DISK", "/dev/nvme0n1"), ("DIR", "."), ("FILENAME", "f")]
        {
            command.env(name, value);
        }
        let output = command.output().expect("it starts");
        match output.status.code() {
            Some(0) => {
                imported += 1;
                fs::write(scratch.path().join("job.toml"), stdout(&output)).expect("written");
                expect(&scratch.run("plan job.toml"), 0);
            }
            Some(3) => {
                refused += 1;
                let said = stderr(&output);
                assert!(said.contains("line ") || said.contains("valid study"), "{path:?}: {said}");
            }
            other => panic!("{path:?}: {other:?}: {}", stderr(&output)),
        }
    }
    assert!(imported >= 20 && refused >= 10, "{imported} imported, {refused} refused");
}

#[test]
fn a_folder_of_jobs_becomes_a_folder_of_studies() {
    let scratch = Scratch::new();
    let jobs = scratch.path().join("jobs");
    fs::create_dir(&jobs).expect("a directory");
    for (name, text) in [
        ("a.fio", "include common\n[a]\nrw=randread\n"),
        ("b.fio", "[b]\nioengine=net\nhostname=x\n"),
        ("common", "[global]\nsize=1g\n"),
    ] {
        fs::write(jobs.join(name), text).expect("written");
    }
    let output = scratch.run("import jobs -o studies");
    expect(&output, 3);
    assert!(stderr(&output).contains("b.fio") && stderr(&output).contains("is not supported"));
    // In a long list users do not notice a missing file, so the count is printed.
    assert!(stderr(&output).contains("1 of 2 job files converted"), "{}", stderr(&output));
    expect(&scratch.run("plan studies/a.toml"), 0);
    // fio users pass a job file to `plan` first.
    scratch.fails("plan jobs/a.fio", 3, &["crosspoint import jobs/a.fio"]);
    assert!(!scratch.path().join("studies/b.toml").exists());
    fs::write(scratch.path().join("studies/a.toml"), "mine").expect("written");
    expect(&scratch.run("import jobs/a.fio -o studies/a.toml"), 5);
    // A folder without jobs must not stop the other files.
    fs::create_dir(scratch.path().join("empty")).expect("a directory");
    scratch.fails("import empty jobs/a.fio -o more", 2, &["no .fio files"]);
    expect(&scratch.run("plan more/a.toml"), 0);
}

const ACT: &str = "device-names: /dev/a,/dev/b\ntest-duration-sec: 10\nread-reqs-per-sec: 4000\n\
                   write-reqs-per-sec: 2000\n";

/// A load for two drives must be shared out, or refused: run on one drive it gave half its rating.
#[test]
fn an_act_file_for_several_drives_has_its_load_shared_or_is_refused() {
    let scratch = Scratch::new();
    fs::write(scratch.path().join("two.conf"), ACT).expect("written");
    scratch.fails("act two.conf --device model:intel-p4800x", 3, &["for 2 devices", "--rating"]);
    scratch.fails("act two.conf --device model:intel-p4800x,model:intel-p4800x", 3, &["one model"]);
    let words =
        "act two.conf --device model:intel-p4800x --rating 2 --duration 2s --out one --json";
    let two = scratch.run(words);
    expect(&two, 0);
    let document: serde_json::Value = serde_json::from_str(&stdout(&two)).expect("JSON");
    let asked = document["tests"][0]["reads_per_second_asked"].as_f64().expect("a rate");
    assert!(
        (asked - 4000.0).abs() < 1.0,
        "a rating of 2 on one drive is 4000 reads/s, not {asked}"
    );
}

/// One log must hold all tests of a command.
#[test]
fn one_log_holds_all_tests_of_a_call() {
    let scratch = Scratch::new();
    let one = ACT.replace("/dev/a,/dev/b", "/dev/a");
    fs::write(scratch.path().join("one.conf"), one).expect("written");
    let words =
        "act one.conf --device model:intel-p4800x --duration 1s --phase both --log l.txt --out o";
    expect(&scratch.run(words), 0);
    let log = fs::read_to_string(scratch.path().join("l.txt")).expect("a log");
    assert_eq!(log.matches("HISTOGRAM NAMES").count(), 2, "{log}");
    expect(&scratch.run(&words.replace("--out o", "--out p")), 5);
}

#[test]
fn a_configuration_of_the_index_test_is_recognised() {
    let scratch = Scratch::new();
    let index = format!("{ACT}cache-threads: 8\n");
    for (name, text) in [("x.conf", index.as_str()), ("act_index.conf", ACT)] {
        fs::write(scratch.path().join(name), text).expect("written");
        scratch.fails(&format!("act {name} --device model:intel-p4800x"), 3, &["act_index"]);
    }
}
