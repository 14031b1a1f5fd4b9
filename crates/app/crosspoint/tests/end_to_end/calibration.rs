//! Calibrated hosts end to end: predictions use this host's I/O path or a published host by name, and never
//! two hosts in one run.

use std::path::Path;

use crate::support::{Scratch, expect, finish, start_and_wait, stderr, stdout};

/// Deep enough that the thread is the bottleneck.
const STUDY: &str = r#"
schema = 1
name = "thread"
question = "What does one thread reach?"

[[stack]]
name = "here"
title = "Here"
device = "model:intel-p5800x"

[[stack]]
name = "there"
title = "There"
device = "model:intel-p5800x"
host = "io_uring"

[[experiment]]
name = "deep"
title = "Deep"
warm_up = "10ms"
measure = "100ms"
interval = "50ms"

[experiment.block]
queue_depth = 128
"#;

fn rates(scratch: &Scratch, run: &str) -> Vec<f64> {
    let document = scratch.json(&format!("figures {run} --json"));
    let figures = document["figures"].as_array().expect("figures");
    let of = |stack: &str| {
        let found = figures.iter().find(|one| one["stack"] == stack && one["metric"] == "iops");
        found.and_then(|one| one["value"].as_f64()).expect("a rate")
    };
    vec![of("here"), of("there")]
}

/// Predictions must use this host once it is calibrated, with a note for any other host.
#[test]
fn predictions_are_of_this_host_once_it_was_measured() {
    let scratch = Scratch::new();
    std::fs::write(scratch.path().join("thread.toml"), STUDY).expect("a study");
    expect(&scratch.run("run thread.toml --out runs/before"), 0);
    let before = rates(&scratch, "runs/before");
    assert!((before[0] / before[1] - 1.0).abs() < 1e-9, "{before:?}");

    let document = scratch.json("calibrate --json .");
    let paths = document["calibration"]["path"].as_array().expect("paths");
    assert_eq!(paths.len(), 4);
    for path in paths {
        let cpu: units::Nanos = path["cpu"].as_str().expect("a time").parse().expect("a time");
        let (rate, sleeps) = (path["rate"].as_f64().unwrap_or(0.0), path["sleeps"].as_f64());
        // Plausibility: a system call takes at least this long, and no CPU is busy for longer than the
        // elapsed time.
        assert!(cpu.get() > 300 && cpu.as_secs_f64() * rate < 4.0, "{path}");
        assert!(rate > 10.0 && sleeps.is_some_and(|sleeps| sleeps < 3.0), "{path}");
    }
    let wake = &document["calibration"]["wake_ups"];
    let time = |name: &str| -> units::Nanos { wake[name].as_str().unwrap_or("").parse().unwrap() };
    assert!(time("interrupt").get() > 0 && time("interrupt") <= time("interrupt_p90"), "{wake}");
    assert!(scratch.leftovers().is_empty(), "{:?}", scratch.leftovers());
    let costs = &document["calibration"]["scheduler"];
    let wakee: units::Nanos =
        costs["socket"]["busy"].as_str().expect("a time").parse().expect("one");
    assert!(wakee < units::Nanos::from_millis(10), "{costs}");
    let cache = &document["calibration"]["page_cache"];
    for (name, least) in [("read", 50), ("write", 50), ("fault", 50), ("fault_allocated", 100)] {
        let time: units::Nanos = cache[name].as_str().expect("a time").parse().expect("one");
        assert!((least..1_000_000).contains(&time.get()), "{cache}");
    }
    a_validation_that_is_stopped_leaves_nothing(&scratch);
    // A host whose thread takes 10 us per operation, independent of this machine.
    let file = scratch.state().join("host.toml");
    let text = std::fs::read_to_string(&file).expect("the measurements");
    let slow = |line: &str| match line.split(" = ").next() {
        Some("client" | "sleeps") => {
            format!("{} = \"0ns\"", line.split(" = ").next().unwrap_or(""))
        }
        Some("cpu") => "cpu = \"10us\"".to_owned(),
        _ => line.to_owned(),
    };
    let text: Vec<String> = text.lines().map(slow).collect();
    let text = text.join("\n").replace("sleeps = \"0ns\"", "sleeps = 0.0");
    std::fs::write(&file, &text).expect("a slow host");
    expect(&scratch.run("run thread.toml --out runs/after"), 0);
    let after = rates(&scratch, "runs/after");
    assert!((after[0] / 100_000.0 - 1.0).abs() < 0.02, "{after:?}");
    assert!(
        (after[1] / before[1] - 1.0).abs() < 1e-9,
        "the published host is as before: {after:?}"
    );

    wake_ups_are_those_of_the_file(&scratch, &file, &text);

    // A run that was begun on one host does not continue on another.
    let trials = scratch.path().join("runs/after/trials");
    let first = std::fs::read_dir(trials).expect("trials").flatten().next().expect("a trial");
    std::fs::remove_dir_all(first.path()).expect("one is missing");
    expect(&scratch.run("calibrate --forget"), 0);
    let output = scratch.run("run --resume runs/after");
    assert_ne!(output.status.code(), Some(0));
    assert!(stderr(&output).contains("two hosts"), "{}", stderr(&output));

    // A calibration of other CPUs is not used, with a note.
    let other = text.replace("host = \"", "host = \"Another, ");
    std::fs::write(&file, other).expect("another host");
    scratch.fails("run thread.toml --out runs/other", 0, &["crosspoint calibrate"]);
    assert_eq!(rates(&scratch, "runs/other"), before);
    std::fs::write(&file, "schema = 1\nhost").expect("half a file");
    scratch.fails("run thread.toml --out runs/none", 0, &["calibrate --forget"]);
    assert_eq!(rates(&scratch, "runs/none"), before);
}

/// Simulated threads must wake each other with the costs of the calibration.
fn wake_ups_are_those_of_the_file(scratch: &Scratch, file: &Path, text: &str) {
    let costly = |line: &str| match line.split(" = ").next() {
        Some(name @ ("waker" | "latency" | "wakee" | "busy")) => format!("{name} = \"1ms\""),
        _ => line.to_owned(),
    };
    let lines: Vec<String> = text.lines().map(costly).collect();
    std::fs::write(file, lines.join("\n")).expect("a file");
    let mut command = scratch.crosspoint();
    command.args(["exec", "--on", "model:intel-p4800x", "--"]);
    let output =
        command.args([env!("CARGO_BIN_EXE_crosspoint"), "waking"]).output().expect("it ran");
    expect(&output, 0);
    let hop: u64 = stdout(&output).trim().parse().expect("nanoseconds");
    assert!((1_000_000..3_500_000).contains(&hop), "{hop} ns");
    std::fs::write(file, text).expect("the file as it was");
}

/// A failed calibration must be refused before anything is created.
#[test]
fn a_place_that_is_no_directory_leaves_nothing() {
    let scratch = Scratch::new();
    std::fs::write(scratch.path().join("file"), "").expect("a file");
    let output = scratch.run("calibrate file");
    assert_ne!(output.status.code(), Some(0));
    expect(&scratch.run("clean"), 0);
    assert!(scratch.leftovers().is_empty());
    assert!(!scratch.state().join("host.toml").exists());
}

/// What was found on this machine's own disk is on the pages of simulations, unless it is another machine's.
#[test]
fn errors_on_the_own_disk_are_on_the_pages_of_simulations() {
    let scratch = Scratch::new();
    let study = "schema = 2\nname = \"s\"\n[[stack]]\nname = \"a\"\ndevice = \"model:samsung-pm9a3\"\n\
        [[experiment]]\nname = \"e\"\nwarm_up = \"50ms\"\n\
        duration = \"200ms\"\ninterval = \"50ms\"\n[experiment.job]\n\
        engine = \"lmdb\"\nworkload = \"read_random\"\nrecords = 1000\nvalue_size = \"100B\"\n";
    std::fs::write(scratch.path().join("s.toml"), study).expect("a study");
    std::fs::create_dir_all(scratch.state()).expect("a folder");
    for (host, told) in [(runner::host_name(), true), ("another".into(), false)] {
        let kept = format!(
            r#"{{"host": {host:?}, "version": {:?}, "run": "r",
            "own_disk": {{"directory": "/d", "ratios": {{"lmdb lookups": [0.8766, 1.1234]}}}}}}"#,
            env!("CARGO_PKG_VERSION")
        );
        std::fs::write(scratch.state().join("validation.json"), kept).expect("written");
        expect(&scratch.run(&format!("run s.toml --out {told}")), 0);
        let page = scratch.path().join(format!("{told}/report.html"));
        let page = std::fs::read_to_string(page).expect("a page");
        let told_there = page.contains(", over measured rates: 0.88 to 1.12 x (LMDB lookups)");
        assert_eq!(told_there, told);
    }
    expect(&scratch.run("calibrate --forget"), 0);
    assert!(!scratch.state().join("validation.json").exists(), "found with another calibration");
}

/// Ctrl-C in the middle of five minutes.
fn a_validation_that_is_stopped_leaves_nothing(scratch: &Scratch) {
    let (child, errors) = start_and_wait(scratch, &["validate", "."]);
    // SAFETY: interrupts the child that this test started and has not waited for.
    unsafe { libc::kill(child.id().cast_signed(), libc::SIGINT) };
    expect(&finish(child, errors), 130);
    assert_eq!(scratch.leftovers(), Vec::<std::path::PathBuf>::new());
    assert!(!scratch.state().join("validation.json").exists());
}
