//! `check` and `advise` end to end: verdicts on storage with known defects, and on a shortlist whose order is
//! known.

use std::path::{Path, PathBuf};

use crate::support::disks::{attach, possible};
use crate::support::{DiskScratch, Scratch, expect, needs, sh, stdout};

/// `check`'s study in five seconds: its lines on stdout.
fn check(scratch: &Scratch, directory: &Path, emulated: bool, code: i32) -> String {
    let short = "--set stack.target.size=32MiB --set experiment.*.warm_up=50ms \
                 --set experiment.*.duration=500ms --set experiment.*.interval=25ms \
                 --set experiment.sustained.duration=1500ms --set experiment.reads.duration=1s \
                 --set experiment.writes.duration=1s";
    let directory = directory.display();
    let emulated = format!("--set stack.target.emulated={emulated}");
    let set = format!("--set stack.target.directory={directory} {emulated} {short}");
    let output = scratch.run(&format!("run check {set}"));
    expect(&output, code);
    stdout(&output)
}

/// The file system on a block device, mounted until it is dropped: before the drive is detached, also if the
/// test fails.
struct Mounted(PathBuf);

impl Mounted {
    fn new(scratch: &Scratch, device: &str) -> Self {
        let place = scratch.path().join("place");
        std::fs::create_dir(&place).expect("a directory");
        let words = format!("mkfs.ext4 -q {device} && mount {device} {}", place.display());
        assert!(sh(&words));
        Self(place)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        sh(&format!("umount {}", self.0.display()));
    }
}

fn has_line(text: &str, verdict: &str, name: &str, part: &str) {
    let found = text
        .lines()
        .any(|line| line.starts_with(verdict) && line.contains(name) && line.contains(part));
    assert!(found, "{verdict} {name} {part}: {text}");
}

/// A drive that drops flushes must not be called safe, nor an honest one be suspected.
#[test]
fn a_check_suspects_dropped_flushes_only() {
    let test = "a_check_suspects_dropped_flushes_only";
    let (Some(()), Some(())) = (possible(test), needs(test, &["root", "mkfs.ext4"])) else {
        return;
    };
    let faults = "schema = 1\n[[fault]]\nkind = \"lying_flush\"\n";
    for (drops, verdict) in [(false, "ok"), (true, "doubtful")] {
        let scratch = DiskScratch(Scratch::new());
        std::fs::write(scratch.path().join("faults.toml"), faults).expect("written");
        let plan = if drops { "--faults faults.toml" } else { "" };
        // An honest flush of it takes most of a millisecond.
        let words = format!("samsung-860-qvo --size 128MiB --block {plan}");
        let disk = attach(&scratch, words.trim());
        let mounted = Mounted::new(&scratch, disk["block"].as_str().expect("a device"));
        let text = check(&scratch, &mounted.0, true, 0);
        has_line(&text, verdict, "durability", "");
    }
}

/// A volume's limit must not be taken for the drive's speed.
#[test]
fn a_check_finds_a_limit_on_operations() {
    let test = "a_check_finds_a_limit_on_operations";
    let (Some(()), Some(())) = (possible(test), needs(test, &["root", "mkfs.ext4"])) else {
        return;
    };
    let scratch = DiskScratch(Scratch::new());
    // Slow enough for a busy host.
    let disk = attach(&scratch, "aws-gp3 --scale 4 --size 128MiB --block");
    let mounted = Mounted::new(&scratch, disk["block"].as_str().expect("a device"));
    let text = check(&scratch, &mounted.0, true, 0);
    has_line(&text, "doubtful", "throttling", "throttled: ");
}

/// Data in memory is lost with the power, however fast its flushes are.
#[test]
fn a_check_fails_memory() {
    let scratch = Scratch::new();
    let place = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let text = check(&scratch, place.path(), false, 8);
    has_line(&text, "fail", "durability", "tmpfs is memory");
}

/// The order is known: gp3 has 3000 IOPS, so it cannot do 5,000 durable updates per second, and an
/// Optane can; a rate that nothing reaches ends with exit code 8.
#[test]
fn advice_ranks_a_known_shortlist() {
    let scratch = Scratch::new();
    let words =
        "advise sqlite --data 4MB --memory 8MB --reads 0% --clients 1 --on gp3,intel-p5800x";
    let output = scratch.run(&format!("{words} --rate 5k/s --p99 200ms"));
    expect(&output, 0);
    let text = stdout(&output);
    assert!(text.contains("1 of 2 candidates is enough for 5000"), "{text}");
    has_line(&text, "gp3", "not enough", "USD per month");
    assert!(text.starts_with("assumed: workload overwrite"), "{text}");
    let output = scratch.run(&format!("{words} --rate 2M/s"));
    expect(&output, 8);
    assert!(stdout(&output).contains("None of 2 candidates is enough"), "{}", stdout(&output));
}

/// One job on several targets ends with one table.
#[test]
fn several_targets_end_with_a_table() {
    let scratch = Scratch::new();
    let output = scratch
        .run("run sqlite --records 2000 --runtime 300ms --durability device --on gp3,intel-p5800x");
    expect(&output, 0);
    let text = stdout(&output);
    has_line(&text, "  gp3 base", "reference", "emulated");
    has_line(&text, "  P5800X", " x", "emulated");
    scratch.fails("run sqlite --on gp3,no-such-drive", 3, &["no such profile"]);
}
