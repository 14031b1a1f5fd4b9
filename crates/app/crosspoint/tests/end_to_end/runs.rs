//! Whole runs: complete, killed, interrupted, resumed, cleaned; runs in virtual time are byte-identical.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Scratch, expect, stderr, stdout, study};

/// Waits for an effect of the program, at most half a minute.
fn wait_for(what: &str, mut there: impl FnMut() -> bool) {
    let began = Instant::now();
    while !there() {
        assert!(began.elapsed() < Duration::from_secs(30), "waited in vain for {what}");
        std::thread::yield_now();
    }
}

fn finished_trials(run: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(run.join("trials")).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<_> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    names
}

fn planned(scratch: &Scratch, name: &str) -> usize {
    let document = scratch.json(&format!("plan {} --json", study(name)));
    document["trials"].as_array().expect("trials").len()
}

fn start(scratch: &Scratch, words: &[&str]) -> Child {
    let mut command = scratch.crosspoint();
    command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the program starts")
}

#[test]
fn a_whole_run_leaves_figures_a_report_and_nothing_else() {
    let scratch = Scratch::new();
    let output = scratch.run(&format!("run {} --out out/run", study("tiny")));
    expect(&output, 0);
    assert_eq!(finished_trials(&scratch.path().join("out/run")).len(), planned(&scratch, "tiny"));
    assert_eq!(scratch.leftovers(), Vec::<std::path::PathBuf>::new());
    assert!(scratch.path().join("out/run/report.html").exists());

    let document = scratch.json("figures out/run --json");
    let figures = document["figures"].as_array().expect("figures");
    for (source, engine) in [("measured", "block"), ("predicted", "block"), ("measured", "lmdb")] {
        assert!(
            figures.iter().any(|f| f["source"] == source && f["engine"] == engine),
            "no {source} figure of {engine}"
        );
    }
    // A prediction is never shown without its expected error.
    let bare = figures.iter().find(|f| f["source"] == "predicted" && f["validation"].is_null());
    assert!(bare.is_none(), "{bare:?}");
    for format in ["table", "csv"] {
        let text = stdout(&scratch.run(&format!("figures out/run --format {format}")));
        assert!(text.contains("latency_p50") && text.contains("predicted"), "{format}");
    }
    // The resolved study in the run folder is itself a study.
    expect(&scratch.run("plan out/run/study.toml"), 0);
    scratch.fails(&format!("run {} --out out/run", study("tiny")), 2, &["--resume out/run"]);
}

/// A power cut or a kill must cost one trial, not the run, and must not fill the disk.
#[test]
fn a_killed_run_is_cleaned_and_resumed_with_every_trial_once() {
    let scratch = Scratch::new();
    let tiny = study("tiny");
    let mut child = start(&scratch, &["run", &tiny, "--out", "out/run", "--progress", "none"]);
    let run = scratch.path().join("out/run");
    wait_for("three trials", || finished_trials(&run).len() >= 3);
    child.kill().expect("SIGKILL");
    child.wait().expect("it ends");
    assert!(!scratch.leftovers().is_empty(), "killed too late to leave anything");
    let before = finished_trials(&run);
    assert!(before.len() < planned(&scratch, "tiny"));
    let stamp = |name: &String| {
        let file = run.join("trials").join(name).join("trial.json");
        file.metadata().and_then(|m| m.modified()).expect("a time")
    };
    let stamps: Vec<_> = before.iter().map(stamp).collect();

    let clean = scratch.run("clean");
    expect(&clean, 0);
    assert!(stdout(&clean).contains("removed"), "{}", stdout(&clean));
    assert_eq!(scratch.leftovers(), Vec::<std::path::PathBuf>::new());
    assert!(stdout(&scratch.run("clean")).contains("nothing to clean"));

    let resumed = scratch.run("run --resume out/run");
    expect(&resumed, 0);
    let after = finished_trials(&run);
    assert_eq!(after.len(), planned(&scratch, "tiny"), "every trial once");
    let numbers: Vec<_> = after.iter().map(|name| name[..4].parse::<usize>().unwrap()).collect();
    assert_eq!(numbers, (1..=after.len()).collect::<Vec<_>>());
    assert_eq!(
        before.iter().map(stamp).collect::<Vec<_>>(),
        stamps,
        "finished trials are untouched"
    );
    assert_eq!(scratch.leftovers(), Vec::<std::path::PathBuf>::new());
}

/// Ctrl-C must keep what was measured and say how to resume.
#[test]
fn ctrl_c_saves_reports_partial_and_exits_130() {
    let scratch = Scratch::new();
    let tiny = study("tiny");
    let long = "--set=experiment.latency.duration=20s";
    let mut child =
        start(&scratch, &["run", &tiny, long, "--out", "out/run", "--progress", "plain"]);
    let run = scratch.path().join("out/run");
    // The long measured trial is the first; its working directory appears just before it.
    wait_for("the working directory", || !scratch.leftovers().is_empty());
    let mut text = String::new();
    let mut errors = std::io::BufReader::new(child.stderr.take().expect("piped"));
    while !text.contains("t=") {
        let read = std::io::BufRead::read_line(&mut errors, &mut text).expect("a progress line");
        assert!(read > 0, "ended early: {text}");
    }
    let process = i32::try_from(child.id()).expect("a process id");
    // SAFETY: sends a signal to the child that this test started and has not waited for yet.
    assert_eq!(unsafe { libc::kill(process, libc::SIGINT) }, 0);
    std::io::Read::read_to_string(&mut errors, &mut text).expect("the rest");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{text}");
    assert!(text.contains("run --resume out/run"), "{text}");
    assert_eq!(finished_trials(&run).len(), 1);
    let page = std::fs::read_to_string(run.join("report.html")).expect("a report");
    assert!(page.contains("<b>Partial.</b> 1 of"));
    assert_eq!(scratch.leftovers(), Vec::<std::path::PathBuf>::new());
    let figures = stdout(&scratch.run("figures out/run --json"));
    assert!(figures.contains("\"partial\": true"));
}

/// Simulating a day takes hours of real time: Ctrl-C must stop it immediately.
#[test]
fn ctrl_c_ends_a_prediction_on_the_way() {
    let scratch = Scratch::new();
    let text = "schema = 1\nname = \"day\"\n[[stack]]\nname = \"m\"\ndevice = \"model:intel-p4800x\"\n\
                [[experiment]]\nname = \"e\"\nmeasure = \"24h\"\ninterval = \"60s\"\n\
                [experiment.block]\nqueue_depth = 16\n";
    std::fs::write(scratch.path().join("day.toml"), text).expect("written");
    let mut child = start(&scratch, &["run", "day.toml", "--out", "run"]);
    wait_for("the run", || scratch.path().join("run/run.json").exists());
    let process = i32::try_from(child.id()).expect("a process id");
    // SAFETY: sends a signal to the child that this test started and has not waited for yet.
    assert_eq!(unsafe { libc::kill(process, libc::SIGINT) }, 0);
    wait_for("its end", || child.try_wait().is_ok_and(|ended| ended.is_some()));
    let output = child.wait_with_output().expect("it ended");
    assert_eq!(output.status.code(), Some(130), "{output:?}");
}

/// The same seed must give the same bytes, or nobody else can check a prediction.
#[test]
fn a_virtual_run_is_the_same_to_the_byte_and_matches_the_golden_figures() {
    let documents: Vec<String> = (0..2)
        .map(|_| {
            let scratch = Scratch::new();
            expect(&scratch.run(&format!("run {} --out run", study("virtual"))), 0);
            stdout(&scratch.run("figures run --format csv"))
        })
        .collect();
    assert_eq!(documents[0], documents[1]);
    insta::assert_snapshot!("virtual_figures", documents[0]);
}

/// Figures published from an old run must be the same in a newer version.
#[test]
fn a_run_of_the_first_format_has_the_figures_that_it_had() {
    let old = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures/runs/v1");
    let scratch = Scratch::new();
    let output = scratch.run(&format!("figures {} --format csv", old.display()));
    expect(&output, 0);
    insta::assert_snapshot!("figures_of_the_first_format", stdout(&output));
}

#[test]
fn repeat_and_set_go_through_the_same_parser() {
    let scratch = Scratch::new();
    let virtual_study = study("virtual");
    expect(&scratch.run(&format!("run {virtual_study} --repeat 2 --out run")), 0);
    assert_eq!(finished_trials(&scratch.path().join("run")).len(), 36);
    expect(&scratch.run(&format!("run {virtual_study} --repeat 0 --out other")), 3);
    scratch.fails(
        &format!("run {virtual_study} --set experiment.mix.mesure=1s --out other"),
        3,
        &["mesure", "duration"],
    );
    assert!(!scratch.path().join("other").exists(), "nothing half made");
}

/// `crosspoint run ... | head` must neither kill the run nor leave its files behind.
#[test]
fn a_reader_that_goes_away_ends_nothing() {
    let scratch = Scratch::new();
    let tiny = study("tiny");
    let mut child = start(&scratch, &["run", &tiny, "--out", "out/run", "--progress", "plain"]);
    drop(child.stderr.take());
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    assert_eq!(finished_trials(&scratch.path().join("out/run")).len(), planned(&scratch, "tiny"));
    assert_eq!(scratch.leftovers(), Vec::<std::path::PathBuf>::new());
    for words in [["figures", "out/run"], ["plan", &tiny], ["completions", "bash"]] {
        let mut child = start(&scratch, &words);
        drop(child.stdout.take());
        assert_eq!(child.wait().expect("it ends").code(), Some(0), "{words:?}");
    }
}

/// The value of the first figure that matches all of `wanted` (`key`, `value`).
fn value(figures: &serde_json::Value, wanted: &[(&str, &str)]) -> f64 {
    let matches = |figure: &&serde_json::Value| {
        wanted.iter().all(|(key, value)| {
            let number = value.parse::<u64>().ok();
            let point = &figure["point"][*key];
            figure[*key] == *value
                || *point == *value
                || number.is_some_and(|number| point.as_u64() == Some(number))
        })
    };
    let found = figures["figures"].as_array().and_then(|all| all.iter().find(matches));
    found.and_then(|figure| figure["value"].as_f64()).unwrap_or_else(|| panic!("no {wanted:?}"))
}

/// Every key of a block job must reach the driver and appear in the figures.
#[test]
fn every_kind_of_block_workload_runs() {
    let scratch = Scratch::new();
    let output = scratch.run(&format!("run {} --out run", study("everything")));
    // A failed ACT verdict does not change a study's exit code.
    expect(&output, 0);
    let said = stderr(&output);
    for note in
        ["preconditioned: 1 x 8 MiB written", "rounds of 50", "offered ", "harness overhead "]
    {
        assert!(said.contains(note), "{note}: {said}");
    }
    let figures = scratch.json("figures run --json");
    let of = |workload: &str, op: &str, metric: &str| {
        value(&figures, &[("workload", workload), ("op", op), ("metric", metric)])
    };
    // 1000/s for 200 ms, then 3000/s for 200 ms.
    let steps = of("steps", "read", "iops");
    assert!((1_900.0..2_100.0).contains(&steps), "{steps}");
    // Flushes per write; the machine's speed affects both counts.
    let of_log = |op: &str, every: &str| {
        value(
            &figures,
            &[("workload", "log"), ("op", op), ("metric", "iops"), ("sync_every", every)],
        )
    };
    for (every, share) in [("1", 1.0), ("4", 0.25)] {
        let found = of_log("sync", every) / of_log("write", every);
        assert!((found / share - 1.0).abs() < 0.2, "{found} flushes a write, every {every}");
    }
    let beside = of("beside", "background_write", "iops");
    assert!((800.0..1_200.0).contains(&beside), "{beside}");
    assert!(of("beside", "background_sync", "latency_mean") > 0.0);
    assert!(of("closed", "read", "iops_max") > 0.0);
    let reads = of("act", "read", "iops");
    assert!((120.0..280.0).contains(&reads), "{reads}");
    assert!(of("act", "write", "iops") > 50.0, "commit-to-device writes one by one");
    let text =
        std::fs::read_to_string(scratch.path().join("run/trials/0004-bounded-here/trial.json"));
    let trial: serde_json::Value = serde_json::from_str(&text.expect("a trial")).expect("JSON");
    let ops: u64 = trial["intervals"]
        .as_array()
        .expect("intervals")
        .iter()
        .map(|interval| interval["read"]["ops"].as_u64().unwrap_or(0))
        .sum();
    assert_eq!((ops, trial["outcome"].as_str()), (500, Some("complete")));
    assert_eq!(scratch.leftovers(), Vec::<std::path::PathBuf>::new());
}

/// The quickstart must run even if one of its four engines is not installed.
#[test]
fn what_the_machine_lacks_something_for_is_left_out_where_it_may_be() {
    let scratch = Scratch::new();
    let write = |optional: bool| {
        let text = format!(
            "schema = 1\nname = \"some\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\nsize = \"8MiB\"\n\
             [[experiment]]\nname = \"gone\"\noptional = {optional}\nwarm_up = \"0s\"\nmeasure = \"100ms\"\n\
             interval = \"10ms\"\n[experiment.kv]\nengine = [\"rocksdb\", \"lmdb\"]\nrecords = 1000\n\
             value_size = \"100B\"\nlibrary = \"/no/such/librocksdb.so\"\n\
             [[experiment]]\nname = \"there\"\nwarm_up = \"0s\"\nmeasure = \"100ms\"\ninterval = \"10ms\"\n\
             [experiment.block]\n"
        );
        std::fs::write(scratch.path().join("some.toml"), text).expect("written");
    };
    write(false);
    assert_ne!(scratch.run("run some.toml --out all").status.code(), Some(0));
    write(true);
    scratch.prints(
        "plan some.toml",
        0,
        &["skip: gone on d: rocksdb: library /no/such", "trials:     2 "],
    );
    expect(&scratch.run("run some.toml --out part"), 0);
    let page = std::fs::read_to_string(scratch.path().join("part/report.html")).expect("a page");
    assert!(page.contains("gone on d: rocksdb") && !page.contains("Partial"));
    scratch.prints("run --resume part", 0, &["nothing was left"]);
}
