//! Runs that are stopped, hung, killed or resumed: no false results, nothing left, no other user's resources
//! touched.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{
    DiskScratch, Scratch, expect, finish, has, is_root, needs, sh, skip, start_and_wait, stderr,
    stdout,
};

/// A study of one database on `stack`; `times` are the durations of the experiment.
fn write_study(scratch: &Scratch, stack: &str, times: &str, keys: &str) {
    let text = format!(
        "schema = 1\nname = \"db\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n{stack}[[experiment]]\n\
         name = \"e\"\n{times}[experiment.kv]\nengine = \"lmdb\"\nrecords = 2000\n\
         value_size = \"1000B\"\n{keys}"
    );
    fs::write(scratch.path().join("db.toml"), text).expect("written");
}

const LONG: &str = "warm_up = \"0s\"\nmeasure = \"60s\"\ninterval = \"100ms\"\n";

fn signal(process: u32, signal: i32) {
    // SAFETY: signals a descendant of this test that has not been waited for.
    assert_eq!(unsafe { libc::kill(process as i32, signal) }, 0);
}

/// The engine process of a program.
fn engine_of(program: u32) -> u32 {
    let began = Instant::now();
    loop {
        for entry in fs::read_dir("/proc").expect("/proc").flatten() {
            let status = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let parent =
                status.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1));
            if parent == Some(&program.to_string()) {
                return entry.file_name().to_string_lossy().parse().expect("a number");
            }
        }
        assert!(began.elapsed() < Duration::from_secs(60), "an engine");
    }
}

/// A stopped engine must not hang the run or block Ctrl-C.
#[test]
fn a_stopped_engine_neither_hangs_the_run_nor_swallows_ctrl_c() {
    let scratch = Scratch::new();
    write_study(&scratch, "", LONG, "");
    let (child, errors) = start_and_wait(&scratch, &["run", "db.toml", "--out", "run"]);
    signal(engine_of(child.id()), libc::SIGSTOP);
    signal(child.id(), libc::SIGINT);
    expect(&finish(child, errors), 130);
    assert_eq!(scratch.leftovers(), Vec::<PathBuf>::new());
    let deadline = "warm_up = \"0s\"\nmeasure = \"2s\"\ninterval = \"100ms\"\ndeadline = \"4s\"\n";
    write_study(&scratch, "", deadline, "");
    let (child, errors) = start_and_wait(&scratch, &["run", "db.toml", "--out", "other"]);
    signal(engine_of(child.id()), libc::SIGSTOP);
    let output = finish(child, errors);
    expect(&output, 6);
    assert!(stderr(&output).contains("exceeded the trial's deadline"), "{}", stderr(&output));
    assert_eq!(scratch.leftovers(), Vec::<PathBuf>::new());
    let wrong = deadline.replace("4s", "1s");
    write_study(&scratch, "", &wrong, "");
    expect(&scratch.run("plan db.toml"), 3);
}

/// The second Ctrl-C ends the engine's file system: that is no failure of the engine.
#[test]
fn a_second_ctrl_c_records_no_failed_trial() {
    let test = "a second Ctrl-C";
    let Some(()) = needs(test, &["root", "losetup", "mkfs.ext4", "mount"]) else { return };
    let scratch = Scratch::new();
    for attempt in 0..5 {
        // Its file system is unmounted under the engine, and the engine is killed.
        write_study(&scratch, "file_system = \"ext4\"\nsize = \"64MiB\"\n", LONG, "");
        let out = format!("run-{attempt}");
        let (child, errors) = start_and_wait(&scratch, &["run", "db.toml", "--out", &out]);
        signal(child.id(), libc::SIGINT);
        signal(child.id(), libc::SIGTERM);
        expect(&finish(child, errors), 130);
        let trials = fs::read_dir(scratch.path().join(&out).join("trials")).expect("trials");
        for trial in trials.flatten().filter(|e| !e.file_name().to_string_lossy().starts_with('.'))
        {
            let text = fs::read_to_string(trial.path().join("trial.json")).expect("a record");
            assert!(!text.contains("\"outcome\": \"failed\""), "{text}");
        }
        assert_eq!(scratch.leftovers(), Vec::<PathBuf>::new());
    }
}

/// The server of an attached drive ends with the run while clients still have the drive open: its mount must
/// not stay.
#[test]
fn a_second_ctrl_c_leaves_no_drive_mounted() {
    if let Err(attach::Missing { reason: missing, .. }) = attach::available() {
        return skip("a_second_ctrl_c_leaves_no_drive_mounted", &missing);
    }
    let scratch = DiskScratch(Scratch::new());
    let text = "schema = 1\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"model:intel-s3520\"\n\
                attach = true\nscale = 10\nsize = \"64MiB\"\n\
                [[experiment]]\nname = \"e\"\nmeasure = \"60s\"\n\
                [experiment.block]\nqueue_depth = 8\n";
    fs::write(scratch.path().join("s.toml"), text).expect("a study");
    for attempt in 0..4 {
        // Also if the program chooses the folder name.
        let named = format!("run-{attempt}");
        let (words, out) = match attempt {
            0 => (vec!["run", "s.toml"], "runs/s-"),
            _ => (vec!["run", "s.toml", "--out", &named], named.as_str()),
        };
        let (child, errors) = start_and_wait(&scratch, &words);
        signal(child.id(), libc::SIGINT);
        signal(child.id(), libc::SIGTERM);
        let output = finish(child, errors);
        expect(&output, 130);
        let said = stderr(&output);
        assert!(!said.contains("could not be undone"), "{said}");
        assert!(said.contains(&format!("--resume {out}")), "which run: {said}");
        let left = scratch.leftovers();
        let texts = left.iter().filter_map(|path| fs::read_to_string(path).ok());
        assert!(left.is_empty(), "{left:?} {:?}", texts.collect::<Vec<_>>());
        assert!(!stderr(&scratch.run("attach")).contains("crosspoint clean"));
    }
}

/// A resumed run must report failed trials, and must be able to repeat them.
#[test]
fn failed_trials_are_still_failed_when_a_run_is_resumed_and_can_be_repeated() {
    let scratch = Scratch::new();
    let times = "warm_up = \"0s\"\nmeasure = \"2s\"\ninterval = \"100ms\"\n";
    write_study(&scratch, "", times, "");
    let (child, errors) = start_and_wait(&scratch, &["run", "db.toml", "--out", "run"]);
    signal(engine_of(child.id()), libc::SIGKILL);
    let output = finish(child, errors);
    expect(&output, 6);
    assert!(stderr(&output).contains("--again failed"), "{}", stderr(&output));
    expect(&scratch.run("run --resume run"), 6);
    expect(&scratch.run("run --resume run --again failed"), 0);
    expect(&scratch.run("run --resume run"), 0);
    let figures = stdout(&scratch.run("figures run --json"));
    let figures: serde_json::Value = serde_json::from_str(&figures).expect("JSON");
    let rate =
        figures["figures"].as_array().expect("a list").iter().find(|f| f["metric"] == "ops_rate");
    let rate = rate.expect("a rate");
    assert!(rate["partial"] == false && rate["value"].as_f64() > Some(1.0), "{rate}");
    assert!(scratch.path().join("run/aside").is_dir(), "what failed is kept");
}

/// Two containers that share a directory have the same process IDs: one must not delete the other's run in
/// progress.
#[test]
fn the_same_process_number_in_another_container_is_another_run() {
    let test = "two containers";
    if !is_root() || !has("unshare") || !sh("unshare --pid --fork --mount-proc true") {
        return skip(test, "root, unshare");
    }
    let scratch = Scratch::new();
    write_study(&scratch, "", LONG, "");
    let container = |words: &str| {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
        command.arg(env!("CARGO_BIN_EXE_crosspoint")).args(words.split(' '));
        command.current_dir(scratch.path()).env("CROSSPOINT_STATE_DIR", scratch.state());
        command
    };
    let (mut one, _one) =
        crate::support::wait_for_interval(container("run db.toml --out one --progress plain"));
    let areas = scratch.leftovers();
    assert!(areas.len() >= 2, "a work area and a journal: {areas:?}");
    let (mut two, _two) =
        crate::support::wait_for_interval(container("run db.toml --out two --progress plain"));
    assert_eq!(scratch.leftovers().len(), areas.len() * 2, "each has its own");
    let cleaned = container("clean").output().expect("it starts");
    assert!(stdout(&cleaned).contains("skipped: 2 running studies"), "{}", stdout(&cleaned));
    assert!(areas.iter().all(|path| path.exists()), "the living are spared");
    one.kill().expect("killed");
    one.wait().expect("it ended");
    // The program in the first container is gone with it; the second one continues.
    let began = Instant::now();
    while areas.iter().any(|path| path.exists()) {
        let cleaned = container("clean").output().expect("it starts");
        expect(&cleaned, 0);
        assert!(began.elapsed() < Duration::from_secs(60), "the dead are undone");
    }
    assert_eq!(scratch.leftovers().len(), areas.len());
    two.kill().expect("killed");
    two.wait().expect("it ended");
    let began = Instant::now();
    while !scratch.leftovers().is_empty() {
        expect(&scratch.run("clean"), 0);
        assert!(began.elapsed() < Duration::from_secs(60), "the dead are undone");
    }
}

/// `clean` must name the process that holds a mount, wait for one that exits, and end servers that it
/// started.
#[test]
fn clean_waits_for_a_busy_mount_and_says_what_holds_it() {
    let test = "a busy mount";
    let Some(()) = needs(test, &["root", "losetup", "mkfs.ext4", "mount"]) else { return };
    let scratch = Scratch::new();
    write_study(&scratch, "file_system = \"ext4\"\nsize = \"64MiB\"\n", LONG, "");
    let (mut child, _errors) = start_and_wait(&scratch, &["run", "db.toml", "--out", "run"]);
    let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
    let here = scratch.path().display().to_string();
    let place =
        mounts.lines().filter_map(|line| line.split(' ').nth(1)).find(|p| p.starts_with(&here));
    let place = PathBuf::from(place.expect("a mount"));
    // A process with its working directory on the mount.
    let mut holder = Command::new("sleep")
        .arg("600")
        .current_dir(&place)
        .stdin(Stdio::null())
        .spawn()
        .expect("sleep");
    child.kill().expect("killed");
    child.wait().expect("it ended");
    scratch.fails("clean", 5, &["held by", &format!("{} (sleep)", holder.id())]);
    assert!(holder.try_wait().expect("a state").is_none(), "a process of the user's is not ended");
    // `clean` waits for a holder that exits.
    let mut clean = scratch.crosspoint();
    let mut clean =
        clean.arg("clean").stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it");
    std::thread::yield_now();
    holder.kill().expect("killed");
    holder.wait().expect("it ended");
    assert!(clean.wait().expect("it ends").success());
    assert_eq!(scratch.leftovers(), Vec::<PathBuf>::new());
    assert!(!fs::read_to_string("/proc/self/mounts").expect("mounts").contains(&here));
}

/// Root must not follow another user's changes to a results or test directory and overwrite or empty it.
#[test]
fn folders_in_which_others_can_exchange_things_are_not_used() {
    let test = "folders of others";
    let Some(()) = needs(test, &["root"]) else { return };
    let scratch = Scratch::new();
    let times = "warm_up = \"0s\"\nmeasure = \"200ms\"\ninterval = \"100ms\"\n";
    write_study(&scratch, "", times, "");
    for name in ["theirs", "open"] {
        fs::create_dir(scratch.path().join(name)).expect("a directory");
    }
    fs::create_dir(scratch.path().join("theirs/run")).expect("a directory");
    let here = scratch.path().display();
    assert!(sh(&format!("chown -R 65534 {here}/theirs && chmod 777 {here}/open")));
    for words in [
        "run db.toml --out theirs/run",
        "run db.toml --out theirs/new",
        "run db.toml --out open/run",
        "run db.toml --out run-1 --set stack.d.directory=theirs",
        "run db.toml --out run-2 --set stack.d.directory=open",
    ] {
        let output = scratch.run(words);
        expect(&output, 4);
        assert!(stderr(&output).contains("who could replace what is written there"), "{words}");
    }
    assert!(sh(&format!("chmod 1777 {here}/open")), "as /tmp");
    expect(&scratch.run("run db.toml --out open/run --set stack.d.directory=open"), 0);
    assert_eq!(fs::read_dir(scratch.path().join("theirs/run")).expect("it").count(), 0);
    assert_eq!(scratch.leftovers(), Vec::<PathBuf>::new());
}

/// A pipe in place of a run's file must not block the reader.
#[test]
fn what_is_no_file_in_a_run_is_damage() {
    let scratch = Scratch::new();
    let times = "warm_up = \"0s\"\nmeasure = \"200ms\"\ninterval = \"100ms\"\n";
    write_study(&scratch, "", times, "");
    expect(&scratch.run("run db.toml --out run"), 0);
    for name in [".lock", "sums.txt", "run.json", "trials/0001-e-d/trial.json"] {
        let (path, aside) = (scratch.path().join("run").join(name), scratch.path().join("aside"));
        fs::rename(&path, &aside).expect("moved");
        assert!(sh(&format!("mkfifo {}", path.display())));
        // A lock file cannot be opened; any other file is reported as not ours.
        let (words, code) =
            if name == ".lock" { ("run --resume run", 5) } else { ("figures run", 7) };
        expect(&scratch.run(words), code);
        fs::remove_file(&path).expect("removed");
        fs::rename(&aside, &path).expect("moved");
    }
    expect(&scratch.run("figures run"), 0);
}

/// Without a private state directory there is no journal, and without a journal nothing is created.
#[test]
fn without_a_place_for_its_journal_nothing_is_made() {
    let scratch = Scratch::new();
    write_study(&scratch, "", LONG, "");
    let mut command = Command::new(env!("CARGO_BIN_EXE_crosspoint"));
    command.args(["run", "db.toml", "--out", "run"]).current_dir(scratch.path());
    for name in ["HOME", "XDG_STATE_HOME", "CROSSPOINT_STATE_DIR"] {
        command.env_remove(name);
    }
    let output = command.output().expect("it starts");
    expect(&output, 4);
    assert!(stderr(&output).contains("CROSSPOINT_STATE_DIR=/"), "{}", stderr(&output));
    let Some(()) = needs("another user's journal directory", &["root", "setpriv"]) else { return };
    // Another user created it first.
    let theirs = scratch.path().join("theirs");
    fs::create_dir(&theirs).expect("a directory");
    assert!(sh(&format!("chown 65534 {}", theirs.display())));
    let mut command = scratch.crosspoint();
    command.args(["run", "db.toml", "--out", "run"]).env("CROSSPOINT_STATE_DIR", &theirs);
    let output = command.output().expect("it starts");
    expect(&output, 4);
    assert!(stderr(&output).contains("belongs to user 65534"), "{}", stderr(&output));
}

/// A forged journal must not make `clean` delete anything of another user.
#[test]
fn what_a_journal_leads_to_outside_our_areas_is_left_alone() {
    let scratch = Scratch::new();
    let undo = scratch.state().join("undo");
    fs::create_dir_all(&undo).expect("a state directory");
    let closed = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o700));
    closed(&scratch.state()).and_then(|()| closed(&undo)).expect("ours alone");
    let here = scratch.path().display();
    fs::create_dir_all(scratch.path().join(".crosspoint-work-1-d")).expect("an area");
    fs::create_dir(scratch.path().join("precious")).expect("a directory");
    for name in ["device", "device-lock", "precious/data"] {
        fs::write(scratch.path().join(name), b"the user's").expect("a file");
    }
    // A journal that any version can read, of a process that no longer exists.
    let journal = format!(
        "{{\"undo\":\"remove_tree\",\"path\":\"{here}/.crosspoint-work-1-d/../precious\"}}\n\
         {{\"undo\":\"remove_lock\",\"device\":\"{here}/device\"}}\n"
    );
    fs::write(undo.join("4194304-1.jsonl"), journal).expect("a journal");
    expect(&scratch.run("clean"), 5);
    for name in ["device-lock", "precious/data"] {
        assert!(scratch.path().join(name).exists(), "{name} is gone");
    }
}
