//! Randomized attacks: kills at random moments, flipped bits, malformed inputs. A few of each by default;
//! more with `scripts/attack`, which sets `CROSSPOINT_ATTACK`.
//!
//! The moments are drawn from a seed, which is printed.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Scratch, expect, has, is_root, skip, stderr, stdout, study};
use engine_mysql::Binary;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Multiple of the default number, and the seed.
fn wanted() -> (usize, u64) {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let seed = number("CROSSPOINT_SEED").unwrap_or(1);
    println!("CROSSPOINT_SEED={seed}");
    (number("CROSSPOINT_ATTACK").unwrap_or(1) as usize, seed)
}

/// One study that uses everything that needs cleaning: files, a file system with a cgroup, servers, engines
/// in virtual time.
fn write_everything(scratch: &Scratch) {
    let times = "warm_up = \"0s\"\nmeasure = \"400ms\"\ninterval = \"100ms\"\n";
    let text = format!(
        "schema = 1\nname = \"all\"\n[[stack]]\nname = \"file\"\ndevice = \"file\"\nsize = \"4MiB\"\n\
         [[stack]]\nname = \"ext4\"\ndevice = \"file\"\nfile_system = \"ext4\"\nsize = \"320MiB\"\n\
         [[stack]]\nname = \"drive\"\ndevice = \"model:samsung-980-pro\"\nsize = \"1GiB\"\n\
         [[experiment]]\nname = \"server\"\nstacks = [\"ext4\", \"drive\"]\n{times}\
         [experiment.sql]\nrows = 500\n\
         tables = 1\nthreads = 1\nredo_log = \"16MiB\"\n\
         [[experiment]]\nname = \"block\"\nstacks = [\"file\"]\n{times}[experiment.block]\n\
         read_share = \"50%\"\n\
         [[experiment]]\nname = \"db\"\nstacks = [\"ext4\", \"drive\"]\n{times}[experiment.kv]\n\
         engine = [\"lmdb\", \"sqlite\", \"rocksdb\"]\nrecords = 1000\nvalue_size = \"500B\"\n\
         memory = \"100MiB\"\n"
    );
    fs::write(scratch.path().join("all.toml"), text).expect("written");
}

/// Everything that `scratch` left on this machine: mounts, loop devices, processes, files, cgroups of
/// `marks`.
fn left(scratch: &Scratch, marks: &[String]) -> Vec<String> {
    let here = scratch.path().display().to_string();
    let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
    let mut left: Vec<String> =
        mounts.lines().filter(|line| line.contains(&here)).map(str::to_owned).collect();
    for entry in fs::read_dir("/sys/block").expect("block devices").flatten() {
        let backing = fs::read_to_string(entry.path().join("loop/backing_file"));
        left.extend(backing.ok().filter(|path| path.contains(&here)));
    }
    let name = |process: i32| fs::read_to_string(format!("/proc/{process}/comm"));
    left.extend(processes(scratch).into_iter().map(|process| name(process).unwrap_or_default()));
    for root in ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"] {
        let entries = fs::read_dir(root).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        left.extend(names.filter(|name| marks.iter().any(|mark| name.contains(mark.as_str()))));
    }
    left.extend(scratch.leftovers().iter().map(|path| path.display().to_string()));
    left
}

/// Processes that a run in `scratch` started, and the run itself.
fn processes(scratch: &Scratch) -> Vec<i32> {
    let state = format!("CROSSPOINT_STATE_DIR={}", scratch.state().display());
    let own = |entry: fs::DirEntry| {
        let environment = fs::read(entry.path().join("environ")).ok()?;
        let is_own = environment.split(|byte| *byte == 0).any(|word| word == state.as_bytes());
        entry.file_name().to_str()?.parse().ok().filter(|_| is_own)
    };
    fs::read_dir("/proc").expect("/proc").flatten().filter_map(own).collect()
}

/// Kills or stops the run, an engine, a server or a client. A run that is left has to end within two minutes,
/// after Ctrl-C if a part of it is stopped, by itself and not by a signal.
fn strike(scratch: &Scratch, mut run: Child, random: &mut Xoshiro256PlusPlus) -> String {
    let victims = processes(scratch);
    let own = run.id() as i32;
    let is_run = victims.is_empty() || random.random_range(0..3) == 0;
    let victim = if is_run { own } else { victims[random.random_range(0..victims.len())] };
    let name = fs::read_to_string(format!("/proc/{victim}/comm")).unwrap_or_default();
    let stops = victim != own && random.random_range(0..3) == 0;
    let what = format!("{} {}", if stops { "stopped" } else { "killed" }, name.trim());
    // It is waited for below, so its number is still its own.
    send(victim, if stops { libc::SIGSTOP } else { libc::SIGKILL });
    if stops {
        send(own, libc::SIGINT);
    }
    let began = Instant::now();
    while run.try_wait().expect("a state").is_none() {
        if began.elapsed() > Duration::from_secs(120) {
            let _ = run.kill();
            panic!("{what}: the run does not end");
        }
        std::thread::yield_now();
    }
    let output = run.wait_with_output().expect("it ended");
    assert!(victim == own || output.status.code().is_some(), "{what}: {}", output.status);
    assert!(!stderr(&output).contains("panicked"), "{what}: {}", stderr(&output));
    what
}

fn send(process: i32, signal: i32) {
    // SAFETY: a process of this test.
    unsafe { libc::kill(process, signal) };
}

/// Marks in the existing journals.
fn marks(scratch: &Scratch) -> Vec<String> {
    let journals = fs::read_dir(scratch.state().join("undo")).into_iter().flatten().flatten();
    let mark = |entry: fs::DirEntry| {
        let text = fs::read_to_string(entry.path()).ok()?;
        let header: serde_json::Value = serde_json::from_str(text.lines().next()?).ok()?;
        header["mark"].as_str().map(str::to_owned)
    };
    journals.filter_map(mark).collect()
}

/// After kills and stops at random moments in every layer, one `clean` must leave nothing.
#[test]
fn after_a_kill_at_any_moment_one_clean_leaves_nothing() {
    let test = "kills at random moments";
    let tools = ["losetup", "mkfs.ext4", "mount"].iter().all(|tool| has(tool));
    if !is_root() || !tools || Binary::find("auto").is_err() {
        return skip(test, "root, losetup, mkfs.ext4, mount, mariadb-server");
    }
    let (times, seed) = wanted();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let scratch = Scratch::new();
    write_everything(&scratch);
    // The duration of an uninterrupted run on this machine; kill times are drawn from it.
    let began = Instant::now();
    expect(&scratch.run("run all.toml --out whole --progress none"), 0);
    let whole = began.elapsed();
    assert_eq!(left(&scratch, &[]), Vec::<String>::new(), "a whole run leaves nothing");
    for kill in 0..6 * times {
        let out = format!("run-{kill}");
        let mut command = scratch.crosspoint();
        command.args(["run", "all.toml", "--progress", "none", "--out", &out]);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let moment = whole.mul_f64(random.random_range(0.0..1.05));
        let began = Instant::now();
        while began.elapsed() < moment {
            if child.try_wait().expect("a state").is_some() {
                break;
            }
            std::thread::yield_now();
        }
        let struck = match child.try_wait().expect("a state") {
            Some(_) => "nothing".to_owned(),
            None => strike(&scratch, child, &mut random),
        };
        let marks = marks(&scratch);
        let cleaned = scratch.run("clean");
        let left = left(&scratch, &marks);
        let said = format!("{}{}", stdout(&cleaned), stderr(&cleaned));
        assert!(left.is_empty(), "{kill}: {struck} after {moment:?}: {left:?}\n{said}");
        expect(&cleaned, 0);
    }
}

/// A single flipped bit in any file of a run must be detected, or change no figure.
#[test]
fn flipped_bits_are_found_or_harmless() {
    let (times, seed) = wanted();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let scratch = Scratch::new();
    let text = fs::read_to_string(study("virtual")).expect("the study");
    let short = text.lines().take_while(|line| !line.contains("[[experiment]]"));
    let short: String = short.map(|line| format!("{line}\n")).collect();
    let short = short
        + "[[experiment]]\nname = \"e\"\nduration = \"1s\"\n[experiment.job]\nengine = \"block\"\n\
           queue_depth = [1, 4]\n";
    fs::write(scratch.path().join("short.toml"), short).expect("written");
    expect(&scratch.run("run short.toml --out run"), 0);
    let before = stdout(&scratch.run("figures run --format csv"));
    let mut files = Vec::new();
    all_files(&scratch.path().join("run"), &mut files);
    assert!(files.len() >= 8, "{files:?}");
    for file in files {
        let whole = fs::read(&file).expect("it reads");
        for _ in 0..(2 * times).min(whole.len() * 8) {
            let (at, bit) = (random.random_range(0..whole.len()), random.random_range(0..8));
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            fs::write(&file, &bytes).expect("written");
            let output = scratch.run("figures run --format csv");
            let found = matches!(output.status.code(), Some(2 | 7));
            let harmless = output.status.code() == Some(0) && stdout(&output) == before;
            assert!(
                found || harmless,
                "{} byte {at} bit {bit}: {}",
                file.display(),
                stderr(&output)
            );
        }
        fs::write(&file, &whole).expect("written");
    }
    assert_eq!(stdout(&scratch.run("figures run --format csv")), before);
}

fn all_files(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("it is there").flatten() {
        if entry.file_type().expect("a kind").is_dir() {
            all_files(&entry.path(), files);
        } else if entry.metadata().expect("a size").len() > 0 {
            files.push(entry.path());
        }
    }
}

/// Studies, profiles, job files and configurations with parts removed, duplicated, swapped or replaced must
/// be rejected or run, without a panic, a hang or excessive memory.
#[test]
fn malformed_inputs_are_refused_or_run() {
    let (times, seed) = wanted();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let scratch = Scratch::new();
    let fixture = |text: &str| text.to_owned();
    let profile = stdout(&scratch.run("device show samsung-980-pro --toml"));
    let job = "[global]\nioengine=io_uring\nsize=1g\n[a]\nrw=randrw\nbssplit=4k/60:64k/40\nrate_iops=10\n\
               [b]\nstonewall\nrw=write\nfdatasync=1\n";
    let act =
        "device-names: /dev/a\ntest-duration-sec: 1\nread-reqs-per-sec: 2000\nrecord-bytes: 1536\n";
    let kinds: [(&str, String, &[&str]); 5] = [
        ("s.toml", fs::read_to_string(study("virtual")).expect("it"), &["plan"]),
        ("q.toml", fs::read_to_string(study("tiny")).expect("it"), &["plan"]),
        ("p.toml", profile, &["device", "show"]),
        ("j.fio", fixture(job), &["import"]),
        ("a.conf", fixture(act), &["act", "--device", "model:intel-p4800x", "--duration", "1s"]),
    ];
    let pieces: [&[u8]; 10] = [
        b"4294967295", b"-1", b"18446744073709551616", b"\"\\u001b[2J\"", b"[[[[", b"\xff\xfe",
        b"1e999", b"\"\"", b"\n[experiment.block]\n", b"0",
    ];
    for round in 0..6 * times {
        for (name, text, verb) in &kinds {
            let mut bytes = text.clone().into_bytes();
            for _ in 0..random.random_range(1..4) {
                let from = random.random_range(0..bytes.len());
                let to = (from + random.random_range(0..40)).min(bytes.len());
                let piece = pieces[random.random_range(0..pieces.len())];
                let part = bytes[from..to].to_vec();
                match random.random_range(0..4) {
                    0 => drop(bytes.drain(from..to)),
                    1 => drop(bytes.splice(from..from, part)),
                    2 => drop(bytes.splice(from..to, piece.iter().copied())),
                    _ => {
                        let digits = bytes[from..].iter().position(u8::is_ascii_digit);
                        let at = digits.map_or(from, |digit| from + digit);
                        let end = (at + 1).min(bytes.len());
                        drop(bytes.splice(at..end, piece.iter().copied()));
                    }
                }
            }
            fs::write(scratch.path().join(name), &bytes).expect("written");
            let mut command = Command::new("bash");
            let script =
                format!("ulimit -v 1500000; exec '{}' \"$@\"", env!("CARGO_BIN_EXE_crosspoint"));
            command.args(["-c", &script, "x"]).args(*verb).arg(name).arg0("bash");
            command.current_dir(scratch.path()).env("CROSSPOINT_STATE_DIR", scratch.state());
            let began = Instant::now();
            let output = command.output().expect("bash");
            let code = output.status.code();
            let kept = String::from_utf8_lossy(&bytes);
            let fine = matches!(code, Some(0 | 2 | 3 | 5 | 6 | 8));
            assert!(fine, "round {round}, {name}: {code:?}: {}\n{kept}", stderr(&output));
            assert!(!stderr(&output).contains('\u{1b}'), "{name}: {:?}", stderr(&output));
            // A bound against endless work, wide enough for a busy machine.
            assert!(began.elapsed() < Duration::from_secs(120), "round {round}, {name}\n{kept}");
        }
    }
}
