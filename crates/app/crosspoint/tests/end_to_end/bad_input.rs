//! Bad input and restricted environments: each gives a clear message, the next command, its exit code, and
//! leaves nothing behind.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::support::{Loop, Scratch, expect, is_root, needs, skip, stderr, stdout, study};

fn tiny_with(scratch: &Scratch, from: &str, to: &str) -> String {
    let text = std::fs::read_to_string(study("tiny")).expect("the study");
    let changed = text.replacen(from, to, 1);
    assert_ne!(changed, text);
    std::fs::write(scratch.path().join("bad.toml"), changed).expect("written");
    "bad.toml".to_owned()
}

#[test]
fn a_wrong_study_is_underlined_with_what_is_allowed() {
    let cases = [
        (
            "queue_depth = [1, 4, 16]", "queue_dept = [1]", "unknown field `queue_dept`",
            "queue_depth",
        ),
        ("\"4MiB\"", "\"4 apples\"", "the unit `apples`", "KiB"),
        ("\"4MiB\"", "4", "size", "\"4KiB\""),
        ("[1, 4, 16]", "[]", "empty list", "at least one"),
        ("[\"this-disk\"]", "[\"that-disk\"]", "no stack is named `that-disk`", "this-disk"),
        ("schema = 2", "schema = [", "bad.toml, line", "plan"),
    ];
    for (from, to, message, help) in cases {
        let scratch = Scratch::new();
        let name = tiny_with(&scratch, from, to);
        scratch.fails(&format!("run {name}"), 3, &[message, help, "bad.toml, line"]);
        assert!(!scratch.path().join("runs").exists(), "nothing half made");
    }
}

/// Operations that do not fit a modelled drive must be reported before the run, not hours into it.
#[test]
fn operations_that_do_not_fit_a_modelled_drive_are_refused_before_the_run() {
    let text = "schema = 2\nname = \"s\"\n[[stack]]\nname = \"m\"\ndevice = \"model:intel-p4800x\"\n\
                [[experiment]]\nname = \"e\"\n[experiment.job]\nengine = \"block\"\nalignment = \"1TiB\"\n";
    let scratch = Scratch::new();
    std::fs::write(scratch.path().join("bad.toml"), text).expect("written");
    for verb in ["plan", "run"] {
        scratch.fails(&format!("{verb} bad.toml"), 3, &["larger than a device of"]);
    }
}

/// A study must not be able to move the private server's data or open it to others.
#[test]
fn settings_name_nothing_that_makes_a_server_private() {
    let scratch = Scratch::new();
    for setting in ["datadir=/x", "socket=/tmp/s", "init_file=/x", "plugin-dir=/x", "port=3306"] {
        let text = format!(
            "schema = 1\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n\
             [[experiment]]\nname = \"e\"\nstacks = [\"d\"]\nmeasure = \"1s\"\n[experiment.sql]\n\
             engine = \"mysql\"\nworkload = \"read_write\"\ntables = 1\nrows = 1000\n\
             settings = \"{setting}\"\n"
        );
        std::fs::write(scratch.path().join("bad.toml"), text).expect("written");
        let output = scratch.run("plan bad.toml");
        expect(&output, 3);
        let name = setting.split('=').next().unwrap_or_default();
        let said = stderr(&output);
        assert!(said.contains(name) && !said.contains("invalid type"), "{said}");
    }
}

/// A plan must list what this machine lacks; otherwise the run fails later.
#[test]
fn a_plan_says_what_this_machine_lacks() {
    let scratch = Scratch::new();
    let name = tiny_with(&scratch, "size = ", "directory = \"/no/such\"\nsize = ");
    scratch.prints(&format!("plan {name}"), 0, &["directory /no/such does not exist", "mkdir"]);
    scratch.fails("run quickstart --again failed", 2, &["--resume"]);
    std::fs::write(scratch.path().join("there"), b"the user's").expect("written");
    scratch.fails(&format!("run {} --out there", study("tiny")), 2, &["another --out"]);
}

/// Users plan a study before they trust it: planning must not execute anything.
#[test]
fn a_plan_starts_nothing_that_a_study_names() {
    let scratch = Scratch::new();
    let program = scratch.path().join("server");
    let ran = scratch.path().join("ran");
    std::fs::write(&program, format!("#!/bin/sh\ntouch {}\n", ran.display())).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).expect("executable");
    let text = format!(
        "schema = 1\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n\
         [[experiment]]\nname = \"e\"\nstacks = [\"d\"]\nmeasure = \"1s\"\n[experiment.sql]\n\
         rows = 1000\nserver = \"{}\"\n[[experiment]]\nname = \"k\"\nmeasure = \"1s\"\n\
         [experiment.kv]\nengine = \"rocksdb\"\nrecords = 1000\nvalue_size = \"1kB\"\nlibrary = \"{}\"\n",
        program.display(),
        scratch.path().join("gone.so").display()
    );
    std::fs::write(scratch.path().join("theirs.toml"), text).expect("written");
    scratch.prints("plan theirs.toml", 0, &["gone.so is not a file"]);
    assert!(!ran.exists(), "the plan ran it");
}

#[test]
fn names_that_are_nothing_are_told_with_what_there_is() {
    let scratch = Scratch::new();
    scratch.fails("run no-such-study", 2, &["quickstart"]);
    let name = tiny_with(&scratch, "model:intel-p4800x", "model:no-such-drive");
    scratch.fails(&format!("run {name}"), 3, &["samsung-980-pro"]);
    expect(&scratch.run("run"), 2);
    expect(&scratch.run("figures no-such-run"), 2);
    expect(&scratch.run("no-such-verb"), 2);
    expect(&scratch.run("--version"), 0);
}

#[test]
fn a_path_without_space_is_told_before_anything_is_written() {
    let scratch = Scratch::new();
    scratch.fails(
        &format!("run {} --set stack.this-disk.size=4096TiB", study("tiny")),
        5,
        &["free", "stack.NAME.directory"],
    );
    assert_eq!(scratch.leftovers(), Vec::<PathBuf>::new());
    scratch.fails(
        &format!("run {} --set stack.this-disk.directory=/no/such/place", study("tiny")),
        5,
        &["/no/such/place"],
    );
}

/// ramfs is the only file system of every kernel that rejects O_DIRECT.
#[test]
fn a_file_system_without_direct_io_is_told_with_both_ways_out() {
    let scratch = Scratch::new();
    let place = scratch.path().join("ramfs");
    std::fs::create_dir(&place).expect("a directory");
    let mounted = is_root()
        && Command::new("mount")
            .args(["-t", "ramfs", "none"])
            .arg(&place)
            .status()
            .is_ok_and(|status| status.success());
    if !mounted {
        return skip("a_file_system_without_direct_io", "root and mount(8)");
    }
    let set = format!("--set=stack.this-disk.directory={}", place.display());
    let tiny = study("tiny");
    let output = scratch.crosspoint().args(["run", &tiny, &set]).output().expect("it runs");
    let left = std::fs::read_dir(&place).expect("readable").count();
    let unmounted = Command::new("umount").arg(&place).status().expect("umount runs");
    assert!(unmounted.success());
    expect(&output, 5);
    assert_eq!(left, 0);
    let text = stderr(&output);
    assert!(text.contains("O_DIRECT") && text.contains("(ramfs)"), "{text}");
    assert!(text.contains("stack.NAME.directory") && text.contains("direct=false"), "{text}");
}

/// Containers often forbid io_uring; the run must continue with threads and say so.
#[test]
fn without_io_uring_threads_are_used_and_the_result_says_so() {
    let scratch = Scratch::new();
    let tiny = study("tiny");
    let mut command = scratch.crosspoint();
    command.args(["run", &tiny, "--out", "run", "--progress", "plain"]);
    forbid_io_uring(&mut command);
    let output = command.output().expect("it runs");
    expect(&output, 0);
    assert!(stderr(&output).contains("io_uring is not available"), "{}", stderr(&output));
    let trial = std::fs::read_dir(scratch.path().join("run/trials"))
        .expect("trials")
        .flatten()
        .find(|entry| entry.file_name().to_string_lossy().contains("0001"))
        .expect("the first trial");
    let text = std::fs::read_to_string(trial.path().join("trial.json")).expect("its document");
    assert!(text.contains("pread/pwrite"), "{text}");

    let mut command = scratch.crosspoint();
    command.args(["run", &tiny, "--set=stack.this-disk.submission=io_uring", "--out", "other"]);
    forbid_io_uring(&mut command);
    let output = command.output().expect("it runs");
    expect(&output, 5);
    assert!(stderr(&output).contains("submission=psync"), "{}", stderr(&output));
    let mut command = scratch.crosspoint();
    command.arg("doctor");
    forbid_io_uring(&mut command);
    let doctor = command.output().expect("it runs");
    let told = "limited  block            io_uring: Operation not permitted";
    assert!(stdout(&doctor).contains(told), "{}", stdout(&doctor));
}

/// Makes io_uring_setup fail with EPERM in the child, as container runtimes do (seccomp filter).
fn forbid_io_uring(command: &mut Command) {
    let instruction =
        |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    let setup = u32::try_from(libc::SYS_io_uring_setup).expect("a small number");
    let mut filter = [
        // Load the system call's number; if it is io_uring_setup say EPERM, else allow.
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, setup, 0, 1),
        instruction(
            libc::BPF_RET | libc::BPF_K,
            libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
            0,
            0,
        ),
        instruction(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let apply = move || {
        let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
        // SAFETY: plain system calls with valid arguments; the filter outlives the call.
        let results = unsafe {
            [
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
                libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program),
            ]
        };
        if results == [0, 0] { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: between fork and exec only system calls are made; nothing is allocated.
    unsafe { command.pre_exec(apply) };
}

#[test]
fn a_truncated_archive_is_told_and_can_be_measured_again() {
    let scratch = Scratch::new();
    expect(&scratch.run(&format!("run {} --out run", study("virtual"))), 0);
    let file = scratch.path().join("run/trials/0002-mix-samsung-980-pro/latency.hlog");
    let whole = std::fs::read(&file).expect("the log");
    std::fs::write(&file, &whole[..whole.len() / 2]).expect("truncated");
    for verb in ["figures run", "report run"] {
        scratch.fails(
            verb,
            7,
            &["0002-mix-samsung-980-pro/latency.hlog is damaged", "crosspoint run --resume run"],
        );
    }
    assert!(!scratch.path().join("report.html").exists(), "no half report");
    expect(&scratch.run("run --resume run"), 0);
    expect(&scratch.run("figures run"), 0);
    assert_eq!(std::fs::read(&file).expect("the log"), whole, "a prediction comes out the same");
}

fn device_study(scratch: &Scratch, device: &str, writes: bool) {
    let text = format!(
        "schema = 1\nname = \"device\"\n[[stack]]\nname = \"d\"\ndevice = \"{device}\"\nsize = \"32MiB\"\n\
         allow_write = {writes}\n[[experiment]]\nname = \"e\"\nwarm_up = \"10ms\"\nmeasure = \"50ms\"\n\
         interval = \"10ms\"\n[experiment.block]\nread_share = \"{}\"\n",
        if writes { "50%" } else { "100%" }
    );
    std::fs::write(scratch.path().join("device.toml"), text).expect("written");
}

fn refused(scratch: &Scratch, words: &str, reason: &str) {
    scratch.fails(words, 4, &["refused", reason, "help:"]);
}

/// Overwriting a disk with data on it is the one mistake that cannot be undone.
#[test]
fn the_guard_refuses_every_device_that_is_not_free() {
    let scratch = Scratch::new();
    let tools = ["root", "losetup", "mkfs.ext4", "mkswap", "sfdisk", "blkid"];
    let Some(()) = needs("the_guard_refuses", &tools) else { return };
    let Some(disk) = Loop::new(scratch.path(), "backing.img", 64 << 20) else {
        return skip("the_guard_refuses", "a free loop device");
    };
    let confirmed = format!("run device.toml --i-will-lose-data {}", disk.backing.display());

    // Free: reading is allowed; writing only when the study says so and the caller confirms.
    device_study(&scratch, &disk.device, false);
    expect(&scratch.run("run device.toml --out read"), 0);
    device_study(&scratch, &disk.device, true);
    refused(&scratch, "run device.toml", "--i-will-lose-data");
    refused(&scratch, "run device.toml --i-will-lose-data wrong", "--i-will-lose-data");
    expect(&scratch.run(&format!("{confirmed} --out write")), 0);
    let text = std::fs::read_to_string(scratch.path().join("device.toml")).expect("the study");
    let text = text.replace("allow_write = true", "allow_write = false");
    std::fs::write(scratch.path().join("device.toml"), text).expect("written");
    refused(&scratch, &confirmed, "allows no writes");

    device_study(&scratch, &disk.device, true);
    disk.tool("mkfs.ext4", &["-q", "-F"]);
    refused(&scratch, &confirmed, "TYPE=ext4");
    let place = scratch.path().join("mounted");
    std::fs::create_dir(&place).expect("a directory");
    let mount = Command::new("mount").arg(&disk.device).arg(&place).status().expect("mount runs");
    assert!(mount.success());
    let output = scratch.run(&confirmed);
    device_study(&scratch, &disk.device, false);
    let reading = scratch.run("run device.toml");
    let unmount = Command::new("umount").arg(&place).status().expect("umount runs");
    assert!(unmount.success());
    for output in [output, reading] {
        expect(&output, 4);
        assert!(stderr(&output).contains("it is mounted at"), "{}", stderr(&output));
    }

    device_study(&scratch, &disk.device, true);
    disk.tool("wipefs", &["-a", "-q", "-f"]);
    disk.tool("mkswap", &[]);
    refused(&scratch, &confirmed, "TYPE=swap");
    if Command::new("swapon").arg(&disk.device).status().is_ok_and(|status| status.success()) {
        let output = scratch.run(&confirmed);
        assert!(Command::new("swapoff").arg(&disk.device).status().expect("swapoff").success());
        expect(&output, 4);
        assert!(stderr(&output).contains("swap space"), "{}", stderr(&output));
    } else {
        skip("the_guard_refuses (swap in use)", "swapon on a loop device");
    }

    disk.tool("wipefs", &["-a", "-q", "-f"]);
    let table = format!("printf ',,L\\n' | sfdisk -q --no-reread --no-tell-kernel {}", disk.device);
    assert!(Command::new("sh").args(["-c", &table]).status().expect("sfdisk").success());
    refused(&scratch, &confirmed, "PTTYPE=dos");

    disk.tool("wipefs", &["-a", "-q", "-f"]);
    let held = std::fs::OpenOptions::new().read(true).custom_flags_excl().open(&disk.device);
    let held = held.expect("opened exclusively");
    refused(&scratch, &confirmed, "in use");
    drop(held);
    expect(&scratch.run(&format!("{confirmed} --out again")), 0);
    assert_eq!(scratch.leftovers(), Vec::<PathBuf>::new());
}

trait Exclusive {
    fn custom_flags_excl(&mut self) -> &mut Self;
}

impl Exclusive for std::fs::OpenOptions {
    fn custom_flags_excl(&mut self) -> &mut Self {
        std::os::unix::fs::OpenOptionsExt::custom_flags(self, libc::O_EXCL)
    }
}

/// A run in which every trial is skipped must give the reasons.
#[test]
fn a_study_of_which_nothing_can_run_says_why() {
    let scratch = Scratch::new();
    let study = "schema = 1\nname = \"none\"\n[[stack]]\nname = \"m\"\ndevice = \"model:intel-p4800x\"\n\
        [[experiment]]\nname = \"e\"\n[experiment.sql]\nrows = 100\ndsn = \"mysql://me@localhost/db\"\n";
    std::fs::write(scratch.path().join("none.toml"), study).expect("written");
    scratch.fails("run none.toml --out run", 3, &["races need attach = true"]);
    assert!(!scratch.path().join("run").exists(), "no folder is made for nothing");
    scratch.prints("plan none.toml", 0, &["about 0 s"]);
}

/// A trial that ends during its warm-up has failed; it must not end the run like Ctrl-C.
#[test]
fn a_trial_that_ends_in_its_warm_up_has_failed_and_the_next_goes_on() {
    let scratch = Scratch::new();
    let study = "schema = 1\nname = \"early\"\n[[stack]]\nname = \"m\"\ndevice = \"model:intel-p4800x\"\n\
        [[experiment]]\nname = \"short\"\n[experiment.block]\noperations = 10\n\
        [[experiment]]\nname = \"whole\"\nmeasure = \"50ms\"\ninterval = \"50ms\"\n[experiment.block]\n";
    std::fs::write(scratch.path().join("early.toml"), study).expect("written");
    scratch.fails("run early.toml --out run", 6, &["completed during the warm-up"]);
    let figures = stdout(&scratch.run("figures run --format csv"));
    assert!(
        figures.lines().any(|line| line.contains("whole") && line.contains("iops")),
        "{figures}"
    );
}
