//! Disks in use in another namespace, and drives that cannot be attached in a run.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::disks::{attach, file_of, nothing_left, possible};
use crate::support::{DiskScratch, Scratch, expect, needs, sh, stdout};

/// A mount of a device in its own mount namespace, until dropped.
struct ElsewhereMounted(Child);

impl ElsewhereMounted {
    fn new(device: &str, place: &Path) -> Self {
        let script = format!("mount {device} {} && echo there && read line", place.display());
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut said = String::new();
        let output = child.stdout.take().expect("its output");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut said)
            .expect("a line");
        assert_eq!(said.trim(), "there");
        Self(child)
    }
}

impl Drop for ElsewhereMounted {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// A device marked for detaching is detached as soon as its user closes it, even after an error.
fn stays(scratch: &DiskScratch, file: &Path, device: &str, by: &str) {
    scratch.fails(&format!("detach {}", file.display()), 4, &[by]);
    let mark = device.replace("/dev/", "/sys/block/") + "/loop/autoclear";
    assert_eq!(fs::read_to_string(mark).expect("it is there").trim(), "0", "{by}");
}

/// A refused detach must not remove the device later from under swap or an unseen mount.
#[test]
fn what_the_kernel_holds_stays_attached() {
    let test = "what_the_kernel_holds_stays_attached";
    let Some(()) = possible(test) else { return };
    let tools = ["root", "losetup", "mkfs.ext4", "mkswap", "swapon", "unshare"];
    let Some(()) = needs(test, &tools) else { return };
    let scratch = DiskScratch(Scratch::new());
    let disk = attach(&scratch, "hdd-7200 --size 64MiB --scale 1 --block");
    let file = file_of(&disk);
    let device = disk["block"].as_str().expect("a block device").to_owned();
    let over = Command::new("losetup").args(["--find", "--show", &device]).output().expect("it");
    let over = String::from_utf8_lossy(&over.stdout).trim().to_owned();
    stays(&scratch, &file, &device, &over);
    assert!(sh(&format!("losetup --detach {over}")));
    let node = scratch.path().join("node");
    assert!(sh(&format!("mknod {} b $(stat -c '0x%t 0x%T' {device})", node.display())));
    let open = fs::File::open(&node).expect("the same device by another name");
    stays(&scratch, &file, &device, "end_to_end");
    drop(open);
    assert!(sh(&format!("mkfs.ext4 -q -F {device}")));
    let place = scratch.path().join("elsewhere");
    fs::create_dir(&place).expect("a directory");
    let mounted = ElsewhereMounted::new(&device, &place);
    stays(&scratch, &file, &device, "the kernel");
    drop(mounted);
    assert!(sh(&format!("mkswap -q {device} && swapon {device}")));
    stays(&scratch, &file, &device, "the kernel");
    assert!(sh(&format!("swapoff {device}")));
    // Detached by hand: by then the name may belong to another device.
    assert!(sh(&format!("losetup --detach {device}")));
    let own = scratch.path().join("own.img");
    fs::File::create(&own).expect("a file").set_len(16 << 20).expect("a size");
    // Unless another device has taken the name in the meantime.
    let taken = sh(&format!("losetup {device} {} 2>/dev/null", own.display()));
    scratch.fails(&format!("detach {device}"), 4, &["not attached"]);
    expect(&scratch.run(&format!("detach {}", file.display())), 0);
    if taken {
        assert!(sh(&format!("losetup --detach {device}")), "it is not ours to detach");
    }
    nothing_left(&scratch);
}

const HEAD: &str = r#"
schema = 1
name = "refused"
question = "What can still be said?"

[[stack]]
name = "instant"
device = "model:instant.toml"
attach = true
size = "16MiB"
"#;
const OTHER: &str = "[[stack]]\nname = \"predicted\"\ndevice = \"model:intel-p4800x\"\n";

/// A read experiment on a stack.
fn reads_of(stack: &str) -> String {
    format!(
        "[[experiment]]\nname = \"{stack}\"\ntitle = \"Reads\"\nstacks = [\"{stack}\"]\n\
         warm_up = \"0s\"\nmeasure = \"200ms\"\ninterval = \"100ms\"\n[experiment.block]\n"
    )
}

const RACE: &str = r#"
schema = 1
name = "raced"
question = "Who is first?"

[[stack]]
name = "slow"
device = "model:aws-gp3"
attach = true
file_system = "ext4"
size = "256MiB"

[[stack]]
name = "instant"
device = "model:instant.toml"
attach = true
file_system = "ext4"
size = "256MiB"

[[experiment]]
name = "race"
title = "The race"
warm_up = "0s"
measure = "10s"
interval = "100ms"

[experiment.sql]
engine = "sqlite"
race = true
transactions = 10
tables = 1
rows = 500
"#;

/// A drive that this machine cannot emulate must fail its own trials only, not the run.
#[test]
fn a_drive_that_cannot_be_attached_fails_its_own_trials_alone() {
    let Some(()) = possible("a_drive_that_cannot_be_attached_fails_its_own_trials_alone") else {
        return;
    };
    let scratch = DiskScratch(Scratch::new());
    let shown = scratch.run("device show ram-disk --toml");
    let text = stdout(&shown).replace("\"400ns\"", "\"1ns\"").replace("\"100ns\"", "\"0ns\"");
    let facts = text.split("[[acceptance]]").next().expect("a profile");
    fs::write(scratch.path().join("instant.toml"), facts).expect("written");
    let study = format!("{HEAD}{OTHER}{}{}", reads_of("instant"), reads_of("predicted"));
    fs::write(scratch.path().join("study.toml"), study).expect("written");
    let output = scratch.run("run study.toml --out run");
    expect(&output, 6);
    let document = scratch.json("figures run --json");
    let of = |stack: &str| {
        let figures = document["figures"].as_array().expect("figures");
        figures.iter().any(|figure| figure["stack"] == stack)
    };
    assert!(of("predicted") && !of("instant"));
    let page = fs::read_to_string(scratch.path().join("run/report.html")).expect("a page");
    assert!(page.contains("too fast to be emulated"), "the reason is on the page");
    // If no other trial remains, the run is refused as for a command-line job.
    let alone = format!("{HEAD}{}", reads_of("instant"));
    fs::write(scratch.path().join("alone.toml"), alone).expect("written");
    scratch.fails("run alone.toml --out alone", 4, &["--set stack.instant.scale="]);
    nothing_left(&scratch);
    let Some(()) =
        needs("a_drive_that_cannot_be_attached_fails_its_own_trials_alone", &["root, for a race"])
    else {
        return;
    };
    fs::write(scratch.path().join("race.toml"), RACE).expect("written");
    let output = scratch.run("run race.toml --out race");
    expect(&output, 6);
    let document = scratch.json("figures race --json");
    let figures = document["figures"].as_array().expect("figures");
    assert!(!figures.is_empty() && figures.iter().all(|figure| figure["stack"] == "slow"));
    nothing_left(&scratch);
}
