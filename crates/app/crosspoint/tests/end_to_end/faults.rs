//! Targets that fail, fill up, disappear or lose data during a measurement.
//!
//! Every target is real and made by the test: loop devices over files that are too short or on a full file
//! system, a file system that is shut down.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::support::{
    Loop, Scratch, expect, finish, has, is_root, needs, sh, shut_down, skip, start_and_wait,
    stderr, stdout,
};

/// A study of one experiment on `device`; `keys` are those of its job table.
fn write_study(scratch: &Scratch, device: &str, measure: &str, keys: &str) {
    let allow = if device == "file" { "" } else { "allow_write = true\n" };
    let text = format!(
        "schema = 1\nname = \"fault\"\n[[stack]]\nname = \"d\"\ndevice = \"{device}\"\n\
         size = \"32MiB\"\n{allow}[[experiment]]\nname = \"e\"\nwarm_up = \"0s\"\n\
         measure = \"{measure}\"\ninterval = \"50ms\"\n[experiment.block]\n{keys}\n"
    );
    std::fs::write(scratch.path().join("fault.toml"), text).expect("written");
}

fn loop_device(scratch: &Scratch, bytes: u64, test: &str) -> Option<Loop> {
    if !is_root() || !["losetup", "mkfs.ext4", "mount"].iter().all(|tool| has(tool)) {
        skip(test, "root, losetup, mkfs.ext4, mount");
        return None;
    }
    let made = Loop::new(scratch.path(), "backing.img", bytes);
    if made.is_none() {
        skip(test, "a free loop device");
    }
    made
}

/// The failure recorded in the only trial of `run`.
fn failure(scratch: &Scratch) -> String {
    let trials = scratch.path().join("run/trials");
    let folder =
        std::fs::read_dir(trials).expect("trials").flatten().next().expect("a trial").path();
    let text = std::fs::read_to_string(folder.join("trial.json")).expect("its record");
    let document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(document["outcome"], "failed");
    assert!(document["error_samples"].as_array().is_some_and(|samples| !samples.is_empty()));
    document["failure"].as_str().expect("words").to_owned()
}

/// A device whose medium ends early must report errors and not look fast.
#[test]
fn reads_past_the_end_of_the_medium_are_failures_with_their_place() {
    let scratch = Scratch::new();
    let Some(disk) = loop_device(&scratch, 64 << 20, "reads_past_the_end") else { return };
    write_study(&scratch, &disk.device, "5s", "queue_depth = 4");
    let words = ["run", "fault.toml", "--out", "run"];
    let words =
        [&words[..], &["--i-will-lose-data", disk.backing.to_str().expect("a path")]].concat();
    let (child, errors) = start_and_wait(&scratch, &words);
    // The device keeps its size and loses its medium, as one that is pulled does.
    OpenOptions::new().write(true).open(&disk.backing).expect("it").set_len(0).expect("cut");
    let output = finish(child, errors);
    expect(&output, 6);
    let failure = failure(&scratch);
    assert!(failure.contains("read at byte") && failure.contains("os error 5"), "{failure}");
    assert!(stderr(&output).contains("some trials failed"), "{}", stderr(&output));
    expect(&scratch.run("figures run"), 0);
    expect(&scratch.run("report run"), 0);
    assert_eq!(scratch.leftovers(), Vec::<PathBuf>::new());
}

/// A full medium must end the trial with the kernel's own error.
#[test]
fn a_full_medium_is_a_failure() {
    let scratch = Scratch::new();
    let test = "a_full_medium";
    let Some(()) = needs(test, &["root", "losetup", "mount"]) else { return };
    let small = scratch.path().join("small");
    std::fs::create_dir(&small).expect("a directory");
    if !sh(&format!("mount -t tmpfs -o size=4m none {}", small.display())) {
        return skip(test, "mounting tmpfs");
    }
    let disk = Loop::new(&small, "backing.img", 64 << 20);
    if let Some(disk) = &disk {
        write_study(&scratch, &disk.device, "5s", "read_share = \"0%\"\nqueue_depth = 4");
        let words =
            format!("run fault.toml --out run --i-will-lose-data {}", disk.backing.display());
        let output = scratch.run(&words);
        expect(&output, 6);
        let failure = failure(&scratch);
        assert!(failure.contains("write at byte") && failure.contains("os error 28"), "{failure}");
    } else {
        skip(test, "a free loop device");
    }
    drop(disk);
    assert!(sh(&format!("umount {}", small.display())));
}

/// A device that disappears under its file system during a trial: measurements must be kept, the trial
/// marked, and nothing left behind.
#[test]
fn a_device_that_goes_away_mid_run_costs_its_trial_only() {
    let scratch = Scratch::new();
    let Some(disk) = loop_device(&scratch, 128 << 20, "a_device_that_goes_away") else { return };
    let place = scratch.path().join("place");
    std::fs::create_dir(&place).expect("a directory");
    disk.tool("mkfs.ext4", &["-q", "-F"]);
    assert!(sh(&format!("mount {} {}", disk.device, place.display())));
    write_study(&scratch, "file", "20s", "read_share = \"50%\"\nqueue_depth = 4");
    let set = format!("stack.d.directory={}", place.display());
    let (child, errors) =
        start_and_wait(&scratch, &["run", "fault.toml", "--out", "run", "--set", &set]);
    let gone = shut_down(&place);
    let output = finish(child, errors);
    assert!(sh(&format!("umount {}", place.display())));
    assert!(gone, "ext4 can be shut down");
    expect(&output, 6);
    assert!(failure(&scratch).contains("os error 5"), "{}", failure(&scratch));
    expect(&scratch.run("figures run"), 0);
    // The working directory could not be removed from a dead file system; with it unmounted it is gone.
    expect(&scratch.run("clean"), 0);
    assert_eq!(scratch.leftovers(), Vec::<PathBuf>::new());
}

const VERIFIED: &str = "read_share = \"50%\"\nqueue_depth = 8\nverify = true";

/// Acknowledged data must survive a kill, and the next run must verify it.
#[test]
fn verification_goes_on_across_a_kill() {
    let scratch = Scratch::new();
    let Some(disk) = loop_device(&scratch, 32 << 20, "verification_across_a_kill") else { return };
    write_study(&scratch, &disk.device, "30s", VERIFIED);
    let confirm = ["--i-will-lose-data", disk.backing.to_str().expect("a path")];
    let words = [&["run", "fault.toml", "--out", "run"][..], &confirm].concat();
    for corrupt in [false, true] {
        let _ = std::fs::remove_dir_all(scratch.path().join("run"));
        let (mut child, _errors) = start_and_wait(&scratch, &words);
        child.kill().expect("SIGKILL");
        child.wait().expect("it ends");
        if corrupt {
            let device = OpenOptions::new().write(true).open(&disk.device).expect("the device");
            device.write_all_at(&vec![0; 8 << 20], 8 << 20).expect("overwritten");
            device.sync_all().expect("written");
        }
        let words = [&["run", "--resume", "run"][..], &confirm].concat();
        if corrupt {
            let output = scratch.crosspoint().args(&words).output().expect("it starts");
            expect(&output, 7);
            let text = stderr(&output);
            let named = ["lost write at byte", "overwritten by others at byte"];
            assert!(named.iter().any(|name| text.contains(name)), "{text}");
            assert!(text.contains("no data of this run") && text.contains("evidence"), "{text}");
            let evidence = scratch.path().join("run/evidence-0001-e-d.bin");
            assert_eq!(evidence.metadata().expect("kept").len(), 4096);
        } else {
            // The rest of the trial need not run; this tests the check before it.
            let (mut child, _errors) = start_and_wait(&scratch, &words);
            child.kill().expect("SIGKILL");
            child.wait().expect("it ends");
        }
    }
    assert_eq!(scratch.leftovers(), Vec::<PathBuf>::new());
}

#[test]
fn a_verified_run_says_what_it_checked() {
    let scratch = Scratch::new();
    write_study(&scratch, "file", "300ms", VERIFIED);
    let output = scratch.run("run fault.toml --out run");
    expect(&output, 0);
    let said = stderr(&output) + &stdout(&output);
    assert!(said.contains("verified: ") && said.contains("read back at its end"), "{said}");
    let ledgers = std::fs::read_dir(scratch.path().join("run")).expect("the run").flatten();
    let ledgers = ledgers.filter(|e| e.path().extension().is_some_and(|x| x == "ledger")).count();
    assert_eq!(ledgers, 0, "the ledger of a whole trial is not kept");
}

/// A long trial that is killed must keep its measurements: block, LMDB in this process and in another.
#[test]
fn a_long_trial_that_is_killed_keeps_all_but_its_last_seconds() {
    let load = [
        "[experiment.block]\nthreads = 8\narrivals = \"constant\"\nrate = \"800/s\"\n",
        "[experiment.kv]\nengine = \"lmdb\"\nrecords = 1000\nvalue_size = \"100B\"\nreaders = 4\n\
         arrivals = \"constant\"\nrate = \"800/s\"\n",
    ];
    for load in load {
        let scratch = Scratch::new();
        let text = format!(
            "schema = 1\nname = \"long\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\nsize = \"8MiB\"\n\
             [[experiment]]\nname = \"e\"\nwarm_up = \"0s\"\nmeasure = \"10min\"\n\
             interval = \"100ms\"\n{load}"
        );
        std::fs::write(scratch.path().join("long.toml"), text).expect("a study");
        let (mut child, mut errors) =
            start_and_wait(&scratch, &["run", "long.toml", "--out", "run"]);
        let began = Instant::now();
        // Waits until the journal has some lines, and then for about one line's duration: the loss is largest
        // just before a line.
        let journal = scratch.path().join("run/trials/.running-0001-e-d");
        let lines = || std::fs::read_to_string(&journal).unwrap_or_default().lines().count();
        let mut line = String::new();
        let mut fourth = None;
        while fourth.is_none_or(|at: Instant| at.elapsed() < Duration::from_millis(1800)) {
            if fourth.is_none() && lines() >= 4 {
                fourth = Some(Instant::now());
            }
            line.clear();
            assert!(std::io::BufRead::read_line(&mut errors, &mut line).expect("a line") > 0);
        }
        let lasted = began.elapsed().as_secs_f64();
        child.kill().expect("killed");
        child.wait().expect("it ended");
        // A line that was cut off by the kill.
        let mut text = std::fs::read(&journal).expect("the journal");
        text.extend(b"[{\"format\":1,\"num");
        std::fs::write(&journal, text).expect("written");
        let document = scratch.json("figures run --json");
        let figures = document["figures"].as_array().expect("a list");
        let rate = figures.iter().find(|f| f["metric"] == "iops" || f["metric"] == "ops_rate");
        let rate = rate.expect("a rate");
        assert_eq!(rate["partial"], true);
        // One value per complete interval.
        let kept = rate["n"].as_f64().expect("intervals") / 10.0;
        assert!(kept > lasted - 5.0 && kept < lasted + 2.0, "{kept} s kept of {lasted} s");
        // Every kept interval has the operations of all clients: the rate must equal the offered load.
        let value = rate["value"].as_f64().expect("a number");
        assert!((value / 800.0 - 1.0).abs() < 0.025, "{value} of 800 a second");
        // It is kept aside when the trial is run again.
        let (child, errors) = start_and_wait(&scratch, &["run", "--resume", "run"]);
        // SAFETY: a signal to the child that this test started and has not waited for.
        assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
        expect(&finish(child, errors), 130);
        assert!(scratch.path().join("run/aside/running-0001-e-d").is_file());
        assert!(!journal.exists(), "what was stopped as it should is recorded whole");
        expect(&scratch.run("clean"), 0);
    }
}
