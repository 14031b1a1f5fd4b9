//! Open-loop arrivals on a real file system: a stall must show in the response time of every request that was
//! due in it.

use std::io::BufRead;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::support::{Scratch, expect, has, is_root, sh, skip, stdout};

const STUDY: &str = "
schema = 1
name = \"stall\"
[[stack]]
name = \"frozen\"
device = \"file\"
size = \"8MiB\"
[[experiment]]
name = \"steady\"
warm_up = \"0s\"
measure = \"5s\"
interval = \"250ms\"
[experiment.block]
read_share = \"0%\"
queue_depth = 64
arrivals = \"constant\"
rate = \"1k/s\"
";

/// The value of a write metric in the figures of `run`.
fn figure(scratch: &Scratch, metric: &str) -> f64 {
    let document = scratch.json("figures run --json");
    let figures = document["figures"].as_array().expect("figures").clone();
    let found = figures.iter().find(|figure| figure["metric"] == metric);
    found.and_then(|figure| figure["value"].as_f64()).unwrap_or_else(|| panic!("no {metric}"))
}

/// Runs `study` on a file system that is frozen during the run; returns for how long. `None` if freezing is
/// not possible.
fn over_a_stall(scratch: &Scratch, study: &str) -> Option<Stalled> {
    let tools = ["losetup", "mkfs.ext4", "fsfreeze", "mount", "chrt"];
    if !is_root() || !tools.iter().all(|tool| has(tool)) {
        skip("a_frozen_file_system", "root, losetup, mkfs.ext4, fsfreeze, chrt");
        return None;
    }
    let (image, place) = (scratch.path().join("image"), scratch.path().join("place"));
    std::fs::create_dir(&place).expect("a directory");
    std::fs::File::create(&image).and_then(|file| file.set_len(256 << 20)).expect("an image");
    let (image, place) = (image.display(), place.display());
    if !sh(&format!("mkfs.ext4 -q -F {image} && mount -o loop {image} {place}")) {
        skip("a_frozen_file_system", "mounting a loop device");
        return None;
    }
    std::fs::write(scratch.path().join("stall.toml"), study).expect("a study");
    let mut child = ahead_of_others(&scratch.crosspoint())
        .args(["run", "stall.toml", "--out", "run", "--progress", "plain"])
        .arg(format!("--set=stack.frozen.directory={place}"))
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut errors = std::io::BufReader::new(child.stderr.take().expect("piped"));
    let mut text = String::new();
    while !text.contains("t=") && errors.read_line(&mut text).expect("a line") > 0 {}
    let asked = Instant::now();
    let froze = sh(&format!("fsfreeze -f {place}"));
    let began = Instant::now();
    let thawed = sh(&format!("sleep 1; fsfreeze -u {place}"));
    let stalled =
        Stalled { least: began.elapsed().as_secs_f64(), most: asked.elapsed().as_secs_f64() };
    std::io::Read::read_to_string(&mut errors, &mut text).expect("the rest");
    let output = child.wait_with_output().expect("it ends");
    let unmounted = sh(&format!("umount {place}"));
    assert!(froze && thawed && unmounted, "froze {froze}, unmounted {unmounted}");
    assert_eq!(output.status.code(), Some(0), "{text}{}", stdout(&output));
    Some(stalled)
}

/// The same program with real-time priority: on a busy machine operations would also be late without a stall.
fn ahead_of_others(command: &Command) -> Command {
    let mut ahead = Command::new("chrt");
    ahead.args(["--rr", "1"]).arg(command.get_program());
    ahead.current_dir(command.get_current_dir().expect("a directory"));
    ahead.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    ahead
}

/// How long a file system stood still, in seconds: at least from the end of the freeze call to the start of
/// the thaw call, at most from the start of the former to the end of the latter.
#[derive(Clone, Copy)]
struct Stalled {
    least: f64,
    most: f64,
}

/// LMDB, one client.
const DATABASE: &str = "
schema = 1
name = \"stall\"
[[stack]]
name = \"frozen\"
device = \"file\"
[[experiment]]
name = \"steady\"
warm_up = \"0s\"
measure = \"5s\"
interval = \"250ms\"
[experiment.kv]
engine = \"lmdb\"
workload = \"overwrite\"
records = 1000
value_size = \"100B\"
durability = \"os\"
arrivals = \"constant\"
rate = \"1k/s\"
";

/// Asserts that the 5000 operations scheduled evenly over 5 s are charged with a stall of at least `stalled`
/// seconds. Operations scheduled during the stall are late by anything from the whole stall to nothing, so
/// p99 is the stall minus 1 % of 5 s, and p90 the stall minus 10 % of it. The stall may be longer than the
/// sleep on a busy machine, so the two percentiles are compared with each other.
fn assert_stall_is_charged(scratch: &Scratch, stalled: Stalled) {
    let p99 = figure(scratch, "latency_p99") / 1e6;
    let Stalled { least, most } = stalled;
    let within = (least - 0.05) * 0.95..(most - 0.05) * 1.10;
    assert!(within.contains(&p99), "p99 {p99} s of a stall of {least} to {most} s");
    // Four in five were not late at all.
    let p50 = figure(scratch, "latency_p50") / 1e6;
    assert!(p50 < 0.01, "p50 {p50} s");
    let apart = p99 - figure(scratch, "latency_p90") / 1e6;
    // 0.45 s less if the backlog is issued at once. At a finite rate p90 is nearer: 0.19 s less at the
    // slowest rate that keeps the median on time.
    assert!((0.19..0.45 * 1.10).contains(&apart), "p99 {p99} s, p90 {apart} s less");
    assert!(figure(scratch, "missed_arrivals") < 1.0);
}

/// 1000 updates per second for 5 s with a stall of 1 s: a fifth are late. A tool that starts its clock at
/// issue reports one late update of 5000.
#[test]
fn a_frozen_database_is_charged_to_every_update_that_was_due() {
    let scratch = Scratch::new();
    let Some(stalled) = over_a_stall(&scratch, DATABASE) else { return };
    assert_stall_is_charged(&scratch, stalled);
    let service = figure(&scratch, "service_time_p99") / 1e6;
    assert!(service < 0.1, "service time: {service} s");
}

/// Arrivals that clients cannot keep up with and never issue must be counted.
#[test]
fn arrivals_that_a_database_client_misses_are_counted() {
    let scratch = Scratch::new();
    let over = DATABASE.replace("1k/s", "20M/s").replace("\"5s\"", "\"1s\"");
    std::fs::write(scratch.path().join("stall.toml"), over).expect("a study");
    expect(&scratch.run("run stall.toml --out run"), 0);
    // Operations scheduled in one second are issued in another.
    let (rate, missed) = (figure(&scratch, "ops_rate"), figure(&scratch, "missed_arrivals"));
    let sum = (2.0 * rate + missed) / 20e6;
    assert!((sum - 1.0).abs() < 0.01 && missed > 10e6, "{rate} done, {missed} missed");
}

/// 1000 writes per second for 5 s with a stall of 1 s: a fifth are late. A tool that starts its clock at
/// issue reports less than a millisecond.
#[test]
fn a_frozen_file_system_is_charged_to_every_request_that_was_due() {
    let scratch = Scratch::new();
    let Some(stalled) = over_a_stall(&scratch, STUDY) else { return };
    assert_stall_is_charged(&scratch, stalled);
    let rate = figure(&scratch, "iops");
    assert!((990.0..=1001.0).contains(&rate), "{rate} a second, nothing was left out");
    // All but the 64 that filled the queue were served immediately once issued.
    assert!(figure(&scratch, "service_time_p50") < 100_000.0);
}

/// A resumed run must offer the same load, not a share of a newly measured rate.
#[test]
fn a_resumed_run_offers_what_it_would_have_offered() {
    let scratch = Scratch::new();
    let block = |name: &str, keys: &str| {
        format!(
            "[[experiment]]\nname = \"{name}\"\nmeasure = \"300ms\"\n[experiment.block]\n{keys}\n"
        )
    };
    let text = [
        "schema = 1\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"model:intel-s3520\"\n"
            .to_owned(),
        block("low", "queue_depth = 1"),
        block("open", "arrivals = \"poisson\"\nrate_of_max = \"50%\"\nqueue_depth = 64"),
        block("high", "queue_depth = 16"),
    ];
    std::fs::write(scratch.path().join("s.toml"), text.concat()).expect("a study");
    expect(&scratch.run("run s.toml --out run"), 0);
    let figures = || {
        let output = scratch.run("figures run --format csv");
        expect(&output, 0);
        output.stdout
    };
    let before = figures();
    std::fs::remove_dir_all(scratch.path().join("run/trials/0002-open-d")).expect("removed");
    expect(&scratch.run("run --resume run"), 0);
    assert!(before == figures(), "the resumed trial had another load");
}

/// A drive that gave no result must not block later trials, now or at `--resume`.
#[test]
fn a_share_of_a_rate_that_nobody_reached_fails_its_own_trial() {
    let scratch = Scratch::new();
    let block = |name: &str, measure: &str, keys: &str| {
        format!(
            "[[experiment]]\nname = \"{name}\"\nmeasure = \"{measure}\"\ninterval = \"100us\"\n\
             warm_up = \"0s\"\n[experiment.block]\n{keys}\n"
        )
    };
    let text = [
        "schema = 1\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"model:hdd-7200\"\n"
            .to_owned(),
        // Shorter than one seek: no operation completes.
        block("max", "100us", "queue_depth = 1"),
        block("open", "10ms", "arrivals = \"poisson\"\nrate_of_max = \"50%\"\nqueue_depth = 64"),
        block("after", "10ms", "queue_depth = 2"),
    ];
    std::fs::write(scratch.path().join("s.toml"), text.concat()).expect("a study");
    scratch.fails("run s.toml --out run", 6, &["no rate for 50%"]);
    let trials = std::fs::read_dir(scratch.path().join("run/trials")).expect("trials");
    assert_eq!(trials.count(), 3, "what came after it ran too");
    expect(&scratch.run("run --resume run"), 6);
    expect(&scratch.run("report run"), 0);
}
