//! Databases whose program, process, disk or limits fail during a run.
//!
//! Every failure is real: SIGKILL, a full file system, a file system that is shut down, a device that is too
//! small.

use std::io::BufReader;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Stdio};

use crate::support::{
    Loop, Scratch, expect, finish, needs, sh, shut_down, skip, start_and_wait, stderr,
};

/// A study of one database trial in the scratch directory.
fn write_study(scratch: &Scratch, engine: &str, stack: &str, keys: &str) {
    let text = format!(
        "schema = 1\nname = \"db\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n{stack}\
         [[experiment]]\nname = \"e\"\nwarm_up = \"0s\"\nmeasure = \"2s\"\ninterval = \"100ms\"\n\
         [experiment.kv]\nengine = \"{engine}\"\n{keys}"
    );
    std::fs::write(scratch.path().join("db.toml"), text).expect("written");
}

const VERIFIED: &str = "records = 2000\nvalue_size = \"1000B\"\nverify = true\n";
/// Flushes each record: a load that can be interrupted.
const SLOW_LOAD: &str = "records = 4000\nvalue_size = \"1000B\"\nverify = true\nload_batch = 1\n\
                         durability = \"device\"\n";

/// Starts a run and returns when its first interval is over, or in the middle of its load.
fn start_until(scratch: &Scratch, moment: Moment) -> (Child, BufReader<ChildStderr>) {
    if moment == Moment::Measuring {
        return start_and_wait(scratch, &["run", "db.toml", "--out", "run"]);
    }
    let mut command = scratch.crosspoint();
    command.args(["run", "db.toml", "--out", "run", "--progress", "plain"]);
    let mut child =
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let errors = BufReader::new(child.stderr.take().expect("its errors"));
    // A fast disk loads faster than progress is reported, so the ledger shows when a part is loaded.
    let ledger = scratch.path().join("run/0001-e-d.ledger");
    while loaded(&ledger) < 100 {
        assert!(child.try_wait().expect("its state").is_none(), "it ended before it loaded");
        std::thread::yield_now();
    }
    (child, errors)
}

#[derive(Clone, Copy, PartialEq)]
enum Moment {
    Loading,
    Measuring,
}

/// Records loaded according to a ledger.
fn loaded(ledger: &Path) -> u64 {
    let mut word = [0; 8];
    let read = std::fs::File::open(ledger).and_then(|file| file.read_exact_at(&mut word, 16));
    read.map_or(0, |()| u64::from_le_bytes(word))
}

/// The engine process of `program`.
fn engine_of(program: u32) -> u32 {
    let tasks = std::fs::read_dir(format!("/proc/{program}/task")).expect("its threads").flatten();
    let children = tasks.map(|task| std::fs::read_to_string(task.path().join("children")));
    let all: String = children.flatten().collect::<Vec<_>>().join(" ");
    all.split_whitespace().next().expect("an engine's process").parse().expect("a number")
}

fn engines(test: &str) -> Vec<&'static str> {
    let scratch = Scratch::new();
    if crate::support::stdout(&scratch.run("doctor")).contains("RocksDB ") {
        return vec!["lmdb", "rocksdb", "sqlite"];
    }
    skip(test, "librocksdb");
    vec!["lmdb", "sqlite"]
}

/// Updates acknowledged before the program was killed must survive, or the reported durability is wrong; and
/// the run must continue.
#[test]
fn after_a_kill_of_the_program_the_database_holds_what_was_acknowledged() {
    for engine in engines("a kill of the program") {
        for (keys, moment) in [(VERIFIED, Moment::Measuring), (SLOW_LOAD, Moment::Loading)] {
            let scratch = Scratch::new();
            write_study(&scratch, engine, "", keys);
            let (mut child, _errors) = start_until(&scratch, moment);
            child.kill().expect("SIGKILL");
            child.wait().expect("it ended");
            let output = scratch.run("run --resume run");
            expect(&output, 0);
            let said = stderr(&output);
            let found = said.lines().find(|line| line.contains("after the end of the program"));
            let found = found.unwrap_or_else(|| panic!("{engine}: not looked at: {said}"));
            assert!(found.contains("all present") && !found.contains(": 0 records"), "{found}");
            expect(&scratch.run("clean"), 0);
            assert_eq!(scratch.leftovers(), Vec::<PathBuf>::new());
        }
    }
}

/// A missing acknowledged update must be reported, or the check is worthless.
#[test]
fn an_update_that_was_acknowledged_and_is_gone_is_told() {
    let scratch = Scratch::new();
    write_study(&scratch, "lmdb", "", VERIFIED);
    let (mut child, _errors) = start_until(&scratch, Moment::Measuring);
    child.kill().expect("SIGKILL");
    child.wait().expect("it ended");
    let ledger = scratch.path().join("run/0001-e-d.ledger");
    let file = std::fs::OpenOptions::new().write(true).open(&ledger).expect("the ledger");
    // As if a far later update of record 7 had been acknowledged.
    file.write_all_at(&u64::MAX.to_le_bytes(), 8192 + 7 * 8).expect("written");
    scratch.fails("run --resume run", 7, &["1 records differ from the last acknowledged update"]);
    assert!(scratch.path().join("run/evidence-0001-e-d/data.mdb").exists(), "the database is kept");
    expect(&scratch.run("clean"), 0);
}

/// An engine crash must fail its trial, not the run, and its database must be verified.
#[test]
fn after_a_kill_of_the_engine_the_trial_failed_and_the_next_goes_on() {
    for engine in engines("a kill of the engine") {
        for (keys, moment) in [(VERIFIED, Moment::Measuring), (SLOW_LOAD, Moment::Loading)] {
            let scratch = Scratch::new();
            write_study(&scratch, engine, "", keys);
            let path = scratch.path().join("db.toml");
            let text = std::fs::read_to_string(&path).expect("the study");
            let text = text.replace("measure = \"2s\"", "measure = \"2s\"\nrepeat = 2");
            std::fs::write(&path, text).expect("written");
            let (child, errors) = start_until(&scratch, moment);
            let host = i32::try_from(engine_of(child.id())).expect("a process");
            // SAFETY: kill takes two numbers; the process is the child of the program that this test started.
            assert_eq!(unsafe { libc::kill(host, libc::SIGKILL) }, 0);
            let output = finish(child, errors);
            expect(&output, 6);
            let said = stderr(&output);
            assert!(said.contains("was ended by signal 9"), "{engine}: {said}");
            let found = said.lines().find(|line| line.contains("after the end of the engine"));
            let found = found.unwrap_or_else(|| panic!("{engine}: not looked at: {said}"));
            assert!(found.contains("all present"), "{found}");
            assert!(said.contains("[2/2]") && said.contains("updates/s"), "the next trial: {said}");
            expect(&scratch.run("report run"), 0);
            assert_eq!(scratch.leftovers(), Vec::<PathBuf>::new());
        }
    }
}

/// Updates without a durability guarantee may be lost, and are counted.
#[test]
fn without_durability_a_kill_may_lose_updates_and_says_how_many() {
    if !engines("without durability").contains(&"rocksdb") {
        return;
    }
    let scratch = Scratch::new();
    write_study(&scratch, "rocksdb", "", &format!("{VERIFIED}durability = \"none\"\n"));
    let (child, errors) = start_until(&scratch, Moment::Measuring);
    let host = i32::try_from(engine_of(child.id())).expect("a process");
    // SAFETY: as above.
    assert_eq!(unsafe { libc::kill(host, libc::SIGKILL) }, 0);
    let output = finish(child, errors);
    expect(&output, 6);
    let said = stderr(&output);
    assert!(said.contains("lost (allowed by durability none)"), "{said}");
}

const TOOLS: [&str; 5] = ["root", "losetup", "mkfs.ext4", "mount", "unshare"];

const LARGE: &str = "records = 30000\nvalue_size = \"4000B\"\n";

/// A full disk, a small map or a small device must give the engine's own error, and leave nothing behind.
#[test]
fn what_is_too_small_for_the_data_is_a_failure_in_the_engines_words() {
    let Some(()) = needs("too small", &TOOLS) else { return };
    let ext4 = "file_system = \"ext4_no_journal\"\nsize = \"64MiB\"\n";
    let raw = "file_system = \"raw\"\nsize = \"64MiB\"\n";
    let small_map = format!("{LARGE}map_size = \"16MiB\"\n");
    let mut cases = vec![
        ("lmdb", ext4, LARGE, "the file system is full"),
        ("sqlite", ext4, LARGE, "full"),
        ("lmdb", "", small_map.as_str(), "MDB_MAP_FULL"),
        ("lmdb", raw, LARGE, "MDB_MAP_FULL"),
    ];
    if engines("too small").contains(&"rocksdb") {
        cases.push(("rocksdb", ext4, LARGE, "No space left"));
    }
    for (engine, stack, keys, word) in cases {
        let scratch = Scratch::new();
        write_study(&scratch, engine, stack, keys);
        scratch.fails("run db.toml --out run", 6, &[word]);
        assert_eq!(scratch.leftovers(), Vec::<PathBuf>::new());
        assert!(!mounted_below(scratch.path()));
    }
}

fn mounted_below(place: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    mounts.contains(&place.display().to_string())
}

/// A disk that disappears may kill its engine (a mapped page that cannot be read is a SIGBUS): the program
/// must survive and report it.
#[test]
fn a_disk_that_goes_away_under_an_engine_costs_its_trial_only() {
    let Some(()) = needs("a disk that goes away", &TOOLS) else { return };
    for engine in engines("a disk that goes away") {
        let scratch = Scratch::new();
        let Some(disk) = Loop::new(scratch.path(), "backing.img", 256 << 20) else {
            return skip("a disk that goes away", "a free loop device");
        };
        let place = scratch.path().join("place");
        std::fs::create_dir(&place).expect("a directory");
        disk.tool("mkfs.ext4", &["-q", "-F"]);
        assert!(sh(&format!("mount {} {}", disk.device, place.display())));
        let stack = format!("directory = \"{}\"\n", place.display());
        write_study(&scratch, engine, &stack, "records = 20000\nvalue_size = \"1000B\"\n");
        let (child, errors) = start_until(&scratch, Moment::Measuring);
        let gone = shut_down(&place);
        let output = finish(child, errors);
        assert!(sh(&format!("umount {}", place.display())));
        assert!(gone, "ext4 can be shut down");
        expect(&output, 6);
        let said = stderr(&output);
        let words = ["Input/output error", "I/O error", "IO error", "signal 7"];
        assert!(words.iter().any(|word| said.contains(word)), "{engine}: {said}");
        expect(&scratch.run("clean"), 0);
    }
}

/// A machine without the memory controller must be refused before a database larger than its memory is
/// created.
#[test]
fn a_missing_memory_controller_is_said_with_what_helps() {
    let Some(()) = needs("no memory controller", &TOOLS) else { return };
    let scratch = Scratch::new();
    write_study(
        &scratch,
        "lmdb",
        "",
        "records = 1000\nvalue_size = \"1000B\"\nmemory = \"128MiB\"\n",
    );
    let program = env!("CARGO_BIN_EXE_crosspoint");
    let script = format!(
        "for point in $(awk '$3 ~ /^cgroup/ {{ print $2 }}' /proc/self/mounts | sort -r); do \
         umount -l $point; done; exec {program} run db.toml --out run"
    );
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
    command.current_dir(scratch.path()).env("CROSSPOINT_STATE_DIR", scratch.state());
    let output = command.output().expect("unshare");
    expect(&output, 4);
    let said = stderr(&output);
    assert!(said.contains("memory controller") && said.contains("unlimited"), "{said}");
    assert_eq!(scratch.leftovers(), Vec::<PathBuf>::new());
}

/// Without root there is no loop device: the error must say what helps, not show some tool's permission
/// error.
#[test]
fn without_root_a_file_system_of_its_own_is_refused() {
    let Some(()) = needs("without root", &TOOLS) else { return };
    let Some(()) = needs("without root", &["setpriv"]) else { return };
    // A directory that every user can reach, with programs that every user can run.
    let place = tempfile::tempdir_in("/var/tmp").expect("a directory");
    for program in [env!("CARGO_BIN_EXE_crosspoint"), env!("CARGO_BIN_EXE_crosspoint-raw")] {
        let name = Path::new(program).file_name().expect("a name");
        std::fs::copy(program, place.path().join(name)).expect("copied");
    }
    assert!(sh(&format!("chown -R 65534:65534 {0} && chmod -R a+rX {0}", place.path().display())));
    let text = "schema = 1\nname = \"db\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n\
                file_system = \"ext4\"\nsize = \"64MiB\"\n[[experiment]]\nname = \"e\"\n\
                [experiment.kv]\nengine = \"lmdb\"\nrecords = 100\nvalue_size = \"100B\"\n";
    std::fs::write(place.path().join("db.toml"), text).expect("written");
    let mut command = std::process::Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "./crosspoint"]);
    command.args(["run", "db.toml", "--out", "run"]).current_dir(place.path());
    let output = command.env("CROSSPOINT_STATE_DIR", place.path().join("state")).output();
    let output = output.expect("setpriv");
    expect(&output, 4);
    assert!(stderr(&output).contains("requires root"), "{}", stderr(&output));
}
