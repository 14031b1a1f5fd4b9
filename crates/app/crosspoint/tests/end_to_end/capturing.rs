//! Recording a program that runs: its waits are named, and nothing stays behind, however recording ends.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{DiskScratch, Scratch, expect, is_root, sh, skip, stderr, stdout};

/// A program that makes each block durable, until it is killed.
struct Writer(Child);

impl Writer {
    fn start(scratch: &Scratch) -> Self {
        let mut command = Command::new("dd");
        command.args([
            "if=/dev/zero", "of=data", "bs=4k", "count=100000000", "oflag=dsync", "conv=notrunc",
        ]);
        let child = command.current_dir(scratch.path()).stderr(Stdio::null()).spawn();
        Self(child.expect("dd starts"))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The trace instances of the run in `scratch`; those of other tests have other marks.
fn instances(mark: &str) -> Vec<String> {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().display().to_string();
    assert!(sh(&format!("mount -t tracefs nodev {path}")));
    let found = std::fs::read_dir(place.path().join("instances")).expect("instances").flatten();
    let names = found.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let names = names.filter(|name| name.contains(mark)).collect();
    assert!(sh(&format!("umount {path}")));
    names
}

/// A user would look at the wrong resource, or leave production with tracing enabled.
#[test]
fn a_capture_names_the_waits_and_leaves_nothing() {
    if !is_root() {
        return skip("capture", "root");
    }
    let scratch = DiskScratch(Scratch::new());
    let writer = Writer::start(&scratch);
    let capture = format!("capture --pid {} --for 2s", writer.0.id());
    let output = scratch.run(&format!("{capture} -o dd.cpcap --max-overhead 90%"));
    expect(&output, 0);
    let text = stdout(&output);
    assert!(text.contains("busy time of the foreground threads"), "{text}");
    // An existing file is not overwritten by mistake.
    scratch.fails(&format!("{capture} -o dd.cpcap"), 5, &["--force"]);
    let shown = scratch.json("capture show dd.cpcap --json");
    let class = shown["classes"].as_array().expect("classes").iter();
    let foreground =
        class.into_iter().find(|one| one["class"] == "foreground").expect("dd is busy");
    let parts = foreground["time_ns"].as_object().expect("parts");
    let of = |name: &str| parts.get(name).and_then(serde_json::Value::as_f64).unwrap_or(0.0);
    let total: f64 = parts.values().filter_map(serde_json::Value::as_f64).sum();
    let seconds = shown["seconds"].as_f64().expect("seconds");
    assert!((total / 1e9 / seconds - 1.0).abs() < 0.05, "{shown:#}");
    // dd writes with O_DSYNC: it waits for writes, or for the journal that makes them durable.
    let waits = of("write") + of("kernel");
    assert!(waits / total > 0.1 && of("unattributed") / total < 0.05, "{shown:#}");
    let drives = shown["drives"].as_array().expect("drives");
    assert!(drives.iter().any(|drive| drive["writes"]["count"].as_u64() > Some(10)), "{shown:#}");
    drop(writer);
    // Deterministic for one recording and one seed.
    let predict = "capture predict dd.cpcap --on intel-p4800x --json";
    let (first, second) = (scratch.run(predict), scratch.run(predict));
    expect(&first, 0);
    assert_eq!(stdout(&first), stdout(&second));
    let first: serde_json::Value = serde_json::from_str(&stdout(&first)).expect("JSON");
    assert_eq!(first["predictions"].as_array().map(Vec::len), Some(2), "{first:#}");
    assert!(first["identity_error"].as_f64().is_some_and(|error| error.abs() < 0.1), "{first:#}");
    // A valid study, which the plan accepts.
    expect(&scratch.run("capture study dd.cpcap --on intel-p4800x -o captured.toml"), 0);
    scratch.prints("plan captured.toml", 0, &["intel-p4800x"]);
    let bytes = std::fs::read(scratch.path().join("dd.cpcap")).expect("a recording");
    std::fs::write(scratch.path().join("cut.cpcap"), &bytes[..bytes.len() / 2]).expect("written");
    scratch.fails("capture show cut.cpcap", 7, &["cut.cpcap", "crosspoint capture"]);
}

/// The breakdown of a block trial would end at the system call.
#[test]
fn a_traced_trial_splits_a_request_below_the_system_call() {
    if !is_root() {
        return skip("tracing a trial", "root");
    }
    let scratch = DiskScratch(Scratch::new());
    let study = [
        "schema = 2\nname = \"path\"",
        "[[stack]]\nname = \"disk\"\ndevice = \"file\"\nsize = \"64MiB\"\nsubmission = \"psync\"",
        "[[experiment]]\nname = \"reads\"\nwarm_up = \"200ms\"\nduration = \"1s\"",
        "[experiment.job]\nengine = \"block\"\ntrace = true",
        // Fast enough that the kernel's buffer is never empty.
        "[[experiment]]\nname = \"writes\"\nwarm_up = \"200ms\"\nduration = \"1s\"",
        "[experiment.job]\nengine = \"block\"\nread_share = \"0%\"\nclients = 2\ntrace = true",
    ]
    .join("\n");
    std::fs::write(scratch.path().join("path.toml"), study).expect("written");
    expect(&scratch.run("run path.toml --out run"), 0);
    let figures = scratch.json("figures run --json");
    let figures = figures["figures"].as_array().expect("figures");
    let writes = figures.iter().filter(|one| one["workload"] == "writes");
    assert!(writes.filter(|one| one["metric"] == "time_share_drive").count() == 1);
    let shares: Vec<(&str, f64)> = figures
        .iter()
        .filter(|one| one["workload"] == "reads")
        .filter_map(|one| Some((one["metric"].as_str()?, one["value"].as_f64()?)))
        .filter_map(|(metric, value)| Some((metric.strip_prefix("time_share_")?, value)))
        .collect();
    let of =
        |name: &str| shares.iter().find(|(metric, _)| *metric == name).map(|(_, value)| *value);
    let sum: f64 = shares.iter().map(|(_, value)| value).sum();
    assert!((sum - 100.0).abs() < 0.1, "{shares:?}");
    // A thread that runs everything while it waits for the drive has no wake-up, but each has the others.
    for part in ["submission", "drive", "completion"] {
        assert!(of(part).is_some_and(|share| share > 0.0), "{part}: {shares:?}");
    }
    assert!(of("rest").unwrap_or_default() < 1.0, "{shares:?}");
    expect(&scratch.run("clean"), 0);
}

/// A killed recorder must not leave the kernel tracing.
#[test]
fn a_killed_capture_leaves_no_trace_instance() {
    if !is_root() {
        return skip("killed capture", "root");
    }
    let scratch = DiskScratch(Scratch::new());
    let writer = Writer::start(&scratch);
    let pid = writer.0.id().to_string();
    let mut command = scratch.crosspoint();
    command.args(["capture", "--pid", &pid, "--for", "60s", "-o", "killed.cpcap"]);
    let mut recorder = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    let journal = scratch.state().join("undo");
    let noted = || std::fs::read_dir(&journal).is_ok_and(|mut entries| entries.next().is_some());
    wait_until("the journal exists", noted);
    let mark = scratch.mark();
    wait_until("recording begins", || instances(&mark).len() == 2);
    recorder.kill().expect("killed");
    recorder.wait().expect("reaped");
    wait_until("the guard cleans up", || instances(&mark).is_empty());
    let left = scratch.run("clean --json");
    expect(&left, 0);
    assert!(!stdout(&left).contains("trace instance"), "{}{}", stdout(&left), stderr(&left));
    assert_eq!(scratch.leftovers(), Vec::<PathBuf>::new());
}

/// Nor must a killed run whose block trial is traced: every program of the host would stay slow.
#[test]
fn a_killed_traced_trial_leaves_no_trace_instance() {
    if !is_root() {
        return skip("killed traced trial", "root");
    }
    let scratch = DiskScratch(Scratch::new());
    let study = "schema = 2\nname = \"traced\"\n[[stack]]\nname = \"disk\"\ndevice = \"file\"\n\
                 size = \"16MiB\"\n[[experiment]]\nname = \"e\"\nwarm_up = \"0s\"\nduration = \"200ms\"\n\
                 interval = \"100ms\"\nrepeat = 20\n[experiment.job]\nengine = \"block\"\ntrace = true\n";
    std::fs::write(scratch.path().join("traced.toml"), study).expect("written");
    let mut command = scratch.crosspoint();
    command.args(["run", "traced.toml", "--out", "run"]);
    let mut run = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    let journal = scratch.state().join("undo");
    let noted = || std::fs::read_dir(&journal).is_ok_and(|mut entries| entries.next().is_some());
    wait_until("the journal exists", noted);
    let mark = scratch.mark();
    wait_until("tracing begins", || !instances(&mark).is_empty());
    run.kill().expect("killed");
    run.wait().expect("reaped");
    wait_until("the guard cleans up", || instances(&mark).is_empty());
    expect(&scratch.run("clean"), 0);
}

#[test]
fn what_cannot_be_recorded_is_refused() {
    let scratch = Scratch::new();
    scratch.fails("capture --for 1s", 2, &["no process is named", "--pid"]);
    scratch.fails("capture --service no-such-unit", 5, &["no-such-unit"]);
    scratch.fails("capture --pid 1 --for 1ns", 2, &["at least"]);
    scratch.fails("capture predict x.cpcap", 2, &["--on"]);
    scratch.fails("capture show x.cpcap", 5, &["x.cpcap"]);
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
