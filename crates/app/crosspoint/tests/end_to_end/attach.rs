//! Attached device models end to end: attach, use as a disk, run studies on it, kill its server; nothing may
//! be left.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;

use crate::support::disks::{attach, file_of, mounted, nothing_left, possible};
use crate::support::{DiskScratch, Scratch, expect, is_root, needs, skip, stderr, stdout};
use serde_json::Value;

/// A disk must never lose or mix up data, whatever path requests take.
#[test]
fn what_is_written_is_read_back_as_from_any_disk() {
    let Some(()) = possible("what_is_written_is_read_back_as_from_any_disk") else { return };
    as_from_any_disk("classic");
    let parameter = Path::new("/sys/module/fuse/parameters/enable_uring");
    if !is_root() || !parameter.exists() {
        return skip("what_is_written_is_read_back_as_from_any_disk", "root, and Linux 6.14");
    }
    // A concurrent attach holds the lock while its settings differ.
    let value = || {
        let file = OpenOptions::new().write(true).open(parameter).expect("opened");
        file.lock().expect("locked");
        std::fs::read_to_string(parameter).expect("it is there")
    };
    let before = value();
    as_from_any_disk("rings");
    assert_eq!(before, value(), "what was allowed for a while");
}

fn as_from_any_disk(transport: &str) {
    let scratch = DiskScratch(Scratch::new());
    let words =
        format!("intel-s3520 --scale 10 --size 16MiB --store kept.img --transport {transport}");
    let disk = attach(&scratch, &words);
    assert_eq!(disk["transport"], transport);
    let path = file_of(&disk);
    assert_eq!(path.metadata().expect("it is there").len(), 16 << 20);
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("opened");
    let pattern: Vec<u8> = (0..300_000u32).map(|byte| (byte % 251) as u8).collect();
    file.write_all_at(&pattern, 12_345).expect("written");
    file.sync_data().expect("flushed");
    // Direct I/O, as engines use it.
    let direct = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(&path);
    let direct = direct.expect("opened past the page cache");
    let mut space = vec![7u8; 12_288];
    let start = space.as_ptr().align_offset(4096);
    let block = &mut space[start..start + 4096];
    direct.read_exact_at(block, 16_384).expect("read");
    assert_eq!(block[..], pattern[16_384 - 12_345..][..4096]);
    block.fill(9);
    direct.write_all_at(block, 1 << 20).expect("written");
    let mut found = [0u8; 4096];
    file.read_exact_at(&mut found, 1 << 20).expect("read");
    assert_eq!(found, [9; 4096], "both see the same disk");
    // A hole reads as zeros; the size stays.
    let mut hole = Command::new("fallocate");
    hole.args(["-p", "-o", "1048576", "-l", "4096"]).arg(&path);
    assert!(hole.status().expect("it runs").success());
    file.read_exact_at(&mut found, 1 << 20).expect("read");
    assert_eq!(found, [0; 4096]);
    assert!(file.set_len(1 << 20).is_err(), "a disk does not shrink");
    assert!(file.write_at(b"beyond", 16 << 20).is_err());
    assert!(
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666))
            .is_err()
    );
    assert!(std::fs::remove_file(&path).is_err(), "a disk is not removed");
    side_by_side(&path);
    // A disk in use survives every signal; when it is closed it detaches.
    let process = disk["process"].as_u64().expect("a process").to_string();
    for refusals in 1..=3 {
        assert!(Command::new("kill").arg(&process).status().expect("it runs").success());
        // Waits until each signal was handled: a late check would detach as soon as the disk is closed.
        while the_disk(&scratch)["stayed"] != refusals {
            std::thread::yield_now();
        }
    }
    file.read_exact_at(&mut found, 0).expect("it is still there");
    let shown = path.display().to_string();
    let refused = scratch.run(&format!("detach {shown}"));
    assert_ne!(refused.status.code(), Some(0));
    assert!(stderr(&refused).contains("in use by"), "{}", stderr(&refused));
    drop((file, direct));
    scratch.prints(&format!("detach {shown}"), 0, &["is detached"]);
    nothing_left(&scratch);
    // A store keeps its data for the next attach and cannot be attached twice at the same time.
    let disk = attach(&scratch, "intel-s3520 --scale 10 --size 16MiB --store kept.img");
    let file = File::open(file_of(&disk)).expect("opened");
    let mut found = vec![0u8; pattern.len()];
    file.read_exact_at(&mut found, 12_345).expect("read");
    assert!(found == pattern, "the data of last time");
    drop(file);
    let twice = scratch.run("attach intel-s3520 --scale 10 --size 16MiB --store kept.img");
    assert_ne!(twice.status.code(), Some(0));
    assert!(stderr(&twice).contains("already attached to it"), "{}", stderr(&twice));
    expect(&scratch.run("detach --all"), 0);
    nothing_left(&scratch);
}

/// Clients on all CPUs, each writing and reading back its own blocks with direct I/O.
fn side_by_side(path: &Path) {
    std::thread::scope(|scope| {
        for client in 0..4u8 {
            scope.spawn(move || {
                let mut options = OpenOptions::new();
                let direct = options.read(true).write(true).custom_flags(libc::O_DIRECT).open(path);
                let direct = direct.expect("opened past the page cache");
                let mut space = vec![0u8; 8192];
                let start = space.as_ptr().align_offset(4096);
                let block = &mut space[start..start + 4096];
                for round in 0..50u8 {
                    let place = (2 << 20) + (u64::from(client) * 16 + u64::from(round % 16)) * 4096;
                    let stamp = client * 50 + round;
                    block.fill(stamp);
                    direct.write_all_at(block, place).expect("written");
                    block.fill(0);
                    direct.read_exact_at(block, place).expect("read");
                    assert!(block.iter().all(|byte| *byte == stamp), "client {client}");
                }
            });
        }
    });
}

/// A write that fails for lack of space must not be acknowledged.
#[test]
fn a_full_store_is_an_error_and_stays_attached() {
    let test = "a_full_store_is_an_error_and_stays_attached";
    let Some(()) = possible(test) else { return };
    let Some(()) = needs(test, &["root, for a small file system"]) else { return };
    let scratch = DiskScratch(Scratch::new());
    let small = scratch.path().join("small");
    std::fs::create_dir(&small).expect("made");
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=1M,mode=700", "tmpfs"]).arg(&small);
    assert!(mount.status().expect("it runs").success());
    let disk = attach(&scratch, "intel-s3520 --scale 10 --size 16MiB --store small/disk.img");
    let direct =
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(file_of(&disk));
    let direct = direct.expect("opened past the page cache");
    let mut space = vec![7u8; 8 << 20];
    let start = space.as_ptr().align_offset(4096);
    let data = &mut space[start..start + (4 << 20)];
    let failed = direct.write_all_at(data, 0).expect_err("there is no room for that");
    assert_eq!(failed.raw_os_error(), Some(libc::ENOSPC), "{failed}");
    // Acknowledged writes must be readable.
    let part = &mut data[..4096];
    direct.read_exact_at(part, 0).expect("read");
    assert_eq!(part[..], [7; 4096]);
    drop(direct);
    expect(&scratch.run("detach --all"), 0);
    assert!(Command::new("umount").arg(&small).status().expect("it runs").success());
    nothing_left(&scratch);
}

/// A client of a disk whose server was killed must get an error, not hang.
#[test]
fn a_killed_disk_leaves_errors_and_clean_leaves_nothing() {
    let Some(()) = possible("a_killed_disk_leaves_errors_and_clean_leaves_nothing") else { return };
    let scratch = DiskScratch(Scratch::new());
    // Ten thousand times slower: a read takes a second or so.
    let disk = attach(&scratch, "intel-s3520 --size 16MiB --scale 10000");
    // Opened first: killing the disk during open is another error than one during read.
    let file = File::open(file_of(&disk)).expect("opened");
    let reader = std::thread::spawn(move || {
        file.read_exact_at(&mut [0u8; 4096], 1 << 20).map_err(|error| error.raw_os_error())
    });
    let process = disk["process"].as_u64().expect("a process").to_string();
    // The read is in progress once a thread waits in the kernel for the disk; then the server is killed.
    while !reader.is_finished() && !waits_for_fuse() {
        std::thread::yield_now();
    }
    assert!(Command::new("kill").args(["-9", &process]).status().expect("it runs").success());
    let read = reader.join().expect("it ended");
    assert!(read.is_err(), "{read:?}");
    // The error message must lead to a command that helps.
    let file = file_of(&disk).display().to_string();
    for words in ["attach".to_owned(), "detach --all".to_owned(), format!("detach {file}")] {
        let said = stderr(&scratch.run(&words));
        assert!(said.contains("crosspoint clean"), "{words}: {said}");
    }
    expect(&scratch.run("clean"), 0);
    assert!(!stderr(&scratch.run("attach")).contains("crosspoint clean"));
    assert!(!mounted(&scratch));
    let output = scratch.run("attach");
    assert!(stdout(&output).contains("nothing is attached"), "{}", stdout(&output));
    nothing_left(&scratch);
}

/// A run that was killed with an attached disk and a mounted file system must be cleaned in one go.
#[test]
fn a_killed_run_with_a_disk_is_cleaned_at_once() {
    let Some(()) = possible("a_killed_run_with_a_disk_is_cleaned_at_once") else { return };
    let Some(()) =
        needs("a_killed_run_with_a_disk_is_cleaned_at_once", &["root, for a file system on it"])
    else {
        return;
    };
    let scratch = DiskScratch(Scratch::new());
    let kv = "[experiment.kv]\nengine = \"lmdb\"\nworkload = \"read_random\"\nrecords = 1000\n\
              value_size = \"100B\"\n";
    let text = format!("{STUDY}{kv}").replace("FILE_SYSTEM", "file_system = \"ext4\"");
    let text = text.replace("measure = \"400ms\"", "measure = \"60s\"");
    std::fs::write(scratch.path().join("live.toml"), text).expect("a study");
    let (mut run, errors) = crate::support::start_and_wait(&scratch, &["run", "live.toml"]);
    run.kill().expect("killed");
    run.wait().expect("ended");
    drop(errors);
    expect(&scratch.run("clean"), 0);
    nothing_left(&scratch);
}

/// Whether a thread of this process is waiting for a FUSE reply.
fn waits_for_fuse() -> bool {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    threads.into_iter().any(|thread| {
        let what = std::fs::read_to_string(thread.path().join("wchan")).unwrap_or_default();
        what.contains("fuse") || what.contains("request_wait") || what.contains("folio")
    })
}

#[test]
fn disks_come_and_go_and_what_cannot_be_is_refused() {
    let Some(()) = possible("disks_come_and_go_and_what_cannot_be_is_refused") else { return };
    let scratch = DiskScratch(Scratch::new());
    for _ in 0..10 {
        attach(&scratch, "hdd-7200 --size 16MiB");
        attach(&scratch, "intel-s3520 --scale 10 --size 16MiB");
        let document = scratch.json("attach --json");
        assert_eq!(document["disks"].as_array().map(Vec::len), Some(2), "{document}");
        let output = scratch.run("detach --all --json");
        expect(&output, 0);
    }
    nothing_left(&scratch);
    // Most machines cannot emulate memory fast enough; one that can attaches it like any other model.
    let output = scratch.run("attach ram-disk --size 16MiB");
    if output.status.code() == Some(0) {
        expect(&scratch.run("detach --all"), 0);
    } else {
        assert!(stderr(&output).contains("--scale"), "{}", stderr(&output));
    }
    for (words, why) in [
        ("attach intel-s3520 --size 900TiB", "at most"),
        ("attach intel-s3520 --size 5000B", "4 KiB"),
        ("attach no-such-drive --size 16MiB", "no-such-drive"),
        ("detach /tmp", "not attached"),
    ] {
        let output = scratch.run(words);
        assert_ne!(output.status.code(), Some(0), "{words}");
        assert!(stderr(&output).contains(why), "{words}: {}", stderr(&output));
    }
    nothing_left(&scratch);
}

const STUDY: &str = r#"
schema = 1
name = "live"
question = "What does it do on that drive?"

[[stack]]
name = "drive"
device = "model:intel-s3520"
attach = true
# The way to it takes more than its own time on a machine that others use.
scale = 10
size = "64MiB"
FILE_SYSTEM

[[experiment]]
name = "reads"
title = "Reads"
warm_up = "100ms"
measure = "400ms"
interval = "100ms"
"#;

fn figures(scratch: &Scratch, run: &str) -> Vec<Value> {
    let document = scratch.json(&format!("figures {run} --json"));
    document["figures"].as_array().expect("figures").clone()
}

/// Figures of an emulated drive must not be presented as those of a real one.
#[test]
fn a_study_on_an_attached_model_is_emulated() {
    let Some(()) = possible("a_study_on_an_attached_model_is_emulated") else { return };
    let scratch = DiskScratch(Scratch::new());
    let block = format!("{STUDY}[experiment.block]\nread_share = [\"100%\", \"50%\"]\n");
    let study = scratch.path().join("live.toml");
    std::fs::write(&study, block.replace("FILE_SYSTEM", "")).expect("a study");
    expect(&scratch.run("run live.toml --out runs/live"), 0);
    let found = figures(&scratch, "runs/live");
    assert!(!found.is_empty() && found.iter().all(|one| one["source"] == "emulated"));
    let median = found.iter().find(|one| one["metric"] == "latency_p50").expect("a median");
    // The model takes 104 us ten times; a busy machine delivers late, never early.
    assert!(median["value"].as_f64().is_some_and(|us| us > 950.0), "{median}");
    let page =
        std::fs::read_to_string(scratch.path().join("runs/live/report.html")).expect("a page");
    assert!(page.contains("emulated"));
    nothing_left(&scratch);
    let Some(()) =
        needs("a_study_on_an_attached_model_is_emulated", &["root, for a file system on it"])
    else {
        return;
    };
    let kv = "[experiment.kv]\nengine = \"lmdb\"\nworkload = \"read_random\"\nrecords = 1000\n\
              value_size = \"100B\"\n";
    let text = format!("{STUDY}{kv}").replace("FILE_SYSTEM", "file_system = \"ext4\"");
    std::fs::write(&study, text).expect("a study");
    expect(&scratch.run("run live.toml --out runs/lmdb"), 0);
    let found = figures(&scratch, "runs/lmdb");
    assert!(!found.is_empty() && found.iter().all(|one| one["source"] == "emulated"));
    nothing_left(&scratch);
}

/// Detaching a disk whose server is stopped must report that, not wait.
#[test]
fn a_stopped_disk_says_how_it_goes_on() {
    let Some(()) = possible("a_stopped_disk_says_how_it_goes_on") else { return };
    let scratch = DiskScratch(Scratch::new());
    let disk = attach(&scratch, "intel-s3520 --scale 10 --size 16MiB");
    let process = disk["process"].as_u64().expect("a process").to_string();
    let signal = |name: &str| {
        let sent = Command::new("kill").args([name, &process]).status().expect("it runs");
        assert!(sent.success());
    };
    signal("-STOP");
    let stopped = || {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("it lives");
        stat.contains(") T ")
    };
    while !stopped() {
        std::thread::yield_now();
    }
    let output = scratch.run("detach --all");
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    assert!(stderr(&output).contains(&format!("kill -CONT {process}")), "{}", stderr(&output));
    signal("-CONT");
    expect(&scratch.run("detach --all"), 0);
    nothing_left(&scratch);
}

/// The only attached disk.
fn the_disk(scratch: &Scratch) -> Value {
    let document = scratch.json("attach --json");
    document["disks"][0].clone()
}

/// Requests the start or end of staging from a disk's server, and waits for it.
fn stage(scratch: &Scratch, staging: bool) {
    let process = the_disk(scratch)["process"].as_u64().expect("a process").to_string();
    assert!(Command::new("kill").args(["-USR2", &process]).status().expect("it runs").success());
    while the_disk(scratch)["staging"] != staging {
        std::thread::yield_now();
    }
}

/// A staged cache must not contain blocks from the table load.
#[test]
fn what_is_staged_is_there_and_was_never_asked_for() {
    let Some(()) = possible("what_is_staged_is_there_and_was_never_asked_for") else { return };
    let scratch = DiskScratch(Scratch::new());
    let plan = "schema = 1\n[[fault]]\nkind = \"error\"\nof = [\"write\"]\n";
    std::fs::write(scratch.path().join("plan.toml"), plan).expect("a plan");
    let disk = attach(&scratch, "hdd-7200 --size 16MiB --staged --faults plan.toml");
    let path = file_of(&disk);
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("opened");
    for block in 0..256u64 {
        file.write_all_at(&[block as u8; 4096], block << 16).expect("written");
    }
    file.sync_all().expect("synced");
    drop(file);
    stage(&scratch, false);
    let count =
        |kind: &str| the_disk(&scratch)["served"][kind]["requests"].as_u64().expect("a count");
    assert_eq!(["reads", "writes", "flushes"].map(count), [0; 3]);
    let direct = libc::O_DIRECT;
    let file = OpenOptions::new().read(true).custom_flags(direct).open(&path).expect("opened");
    let mut space = vec![0u8; 8192];
    let start = space.as_ptr().align_offset(4096);
    let block = &mut space[start..start + 4096];
    file.read_exact_at(block, 7 << 16).expect("read");
    assert_eq!(block, [7; 4096]);
    drop(file);
    // Faults start with the staged drive's life.
    let file = OpenOptions::new().write(true).custom_flags(direct).open(&path).expect("opened");
    assert!(file.write_all_at(block, 0).is_err());
    stage(&scratch, true);
    file.write_all_at(block, 0).expect("written before a life begins");
    drop(file);
    stage(&scratch, false);
    let file = OpenOptions::new().read(true).custom_flags(direct).open(&path).expect("opened");
    file.read_exact_at(block, 0).expect("read");
    drop(file);
    while count("reads") == 0 {
        std::thread::yield_now();
    }
    expect(&scratch.run("detach --all"), 0);
    nothing_left(&scratch);
}

/// A study's fault injection must produce exactly those faults, and a note.
#[test]
fn a_study_has_its_drive_fail_as_planned() {
    let Some(()) = possible("a_study_has_its_drive_fail_as_planned") else { return };
    let scratch = DiskScratch(Scratch::new());
    let study = scratch.path().join("failing.toml");
    let with = |fault: &str| {
        let faults = format!("[stack.faults]\nseed = 3\n[[stack.faults.fault]]\n{fault}");
        let text = format!("{STUDY}[experiment.block]\nread_share = \"100%\"\n");
        std::fs::write(&study, text.replace("FILE_SYSTEM", &faults)).expect("a study");
    };
    with("kind = \"error\"\nof = [\"read\"]\nwhen = { for = \"1ns\" }\n");
    let output = scratch.run("plan failing.toml");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    with("kind = \"stall\"\n");
    let output = scratch.run("plan failing.toml");
    assert_ne!(output.status.code(), Some(0));
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("missing field `when`"), "{}", stderr(&output));
    with("kind = \"error\"\nof = [\"read\"]\n");
    let output = scratch.run("run failing.toml --out runs/failing");
    assert_eq!(output.status.code(), Some(6), "{}", stderr(&output));
    assert!(stderr(&output).contains("with planned faults"), "{}", stderr(&output));
    nothing_left(&scratch);
    let Some(()) =
        needs("a_study_has_its_drive_fail_as_planned", &["root, for a file system on it"])
    else {
        return;
    };
    // Creating the file system and loading tables precede the life of a staged drive.
    let faults = "staged = true\nfile_system = \"ext4\"\n[stack.faults]\n[[stack.faults.fault]]\n\
                  kind = \"read_only\"\n";
    let sql = "[experiment.sql]\nengine = \"sqlite\"\nworkload = \"write_only\"\nrows = 1000\n";
    let text = format!("{STUDY}{sql}").replace("FILE_SYSTEM", faults);
    std::fs::write(&study, text).expect("a study");
    let output = scratch.run("run failing.toml --out runs/staged");
    assert_eq!(output.status.code(), Some(6), "{}", stderr(&output));
    nothing_left(&scratch);
}
