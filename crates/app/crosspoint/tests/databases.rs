//! Databases on a file system of their own, under a memory limit, and what a kill leaves of them.

mod support;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use support::{Scratch, expect, has, is_root, skip};

/// A study of one database trial on a fresh ext4 of 400 MiB, with memory for a part of it.
fn write_study(scratch: &Scratch, engine: &str, measure: &str) {
    let text = format!(
        "schema = 1\nname = \"db\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n\
         file_system = \"ext4_no_journal\"\nsize = \"400MiB\"\n[[experiment]]\nname = \"e\"\n\
         warm_up = \"0s\"\nmeasure = \"{measure}\"\ninterval = \"100ms\"\n[experiment.kv]\n\
         engine = \"{engine}\"\nrecords = 30000\nvalue_size = \"4000B\"\nreaders = 2\n\
         load_batch = 1\nmemory = \"100MiB\"\n"
    );
    std::fs::write(scratch.path().join("db.toml"), text).expect("written");
}

fn possible(test: &str) -> bool {
    let tools = ["losetup", "mkfs.ext4", "mount"].iter().all(|tool| has(tool));
    let memory = std::fs::read_to_string("/proc/self/cgroup")
        .is_ok_and(|text| text.contains(":memory:") || text.starts_with("0::"));
    if !is_root() || !tools || !memory {
        skip(test, "root, losetup, mkfs.ext4, mount, a memory controller");
        return false;
    }
    true
}

/// What is mounted or attached below `scratch`, and control groups named after `process`.
fn left(scratch: &Path, process: u32) -> Vec<String> {
    let place = scratch.display().to_string();
    let lines = |text: String| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let mounts = lines(std::fs::read_to_string("/proc/self/mounts").unwrap_or_default());
    let mut left: Vec<String> = mounts.into_iter().filter(|line| line.contains(&place)).collect();
    for entry in std::fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let backing = std::fs::read_to_string(entry.path().join("loop/backing_file"));
        left.extend(backing.ok().filter(|path| path.contains(&place)));
    }
    for root in ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"] {
        let group = Path::new(root).join(format!("crosspoint-{process}"));
        left.extend(group.exists().then(|| group.display().to_string()));
    }
    left
}

fn figure(scratch: &Scratch, metric: &str) -> f64 {
    let output = scratch.run("figures run --json");
    expect(&output, 0);
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let figures = document["figures"].as_array().expect("a list");
    let found = figures.iter().find(|one| one["metric"] == metric && one["point"]["op"] == "load");
    found.and_then(|one| one["value"].as_f64()).unwrap_or_else(|| panic!("no {metric}"))
}

/// The two numbers of Symas's load table that no drive changes: LMDB's bytes a record (4130, within 1 %) and
/// RocksDB's blocks out a record (15.8, with the write-ahead log; within a tenth at this small scale).
#[test]
fn databases_take_what_their_format_says_on_a_fresh_file_system_under_a_memory_limit() {
    if !possible("databases") {
        return;
    }
    for (engine, metric, published, within) in [
        ("lmdb", "db_bytes_per_record", 4130.35, 0.01),
        ("lmdb", "blocks_out_per_record", 8.07, 0.02),
        ("rocksdb", "blocks_out_per_record", 15.82, 0.10),
    ] {
        let scratch = Scratch::new();
        write_study(&scratch, engine, "500ms");
        let output = scratch.run("run db.toml --out run");
        expect(&output, 0);
        let notes = String::from_utf8_lossy(&output.stderr).into_owned();
        for words in ["on ext4", "memory limited to 100 MiB", "resident at the end"] {
            assert!(notes.contains(words), "{words}: {notes}");
        }
        let found = figure(&scratch, metric);
        assert!((found / published - 1.0).abs() < within, "{engine} {metric}: {found}");
        assert_eq!(left(scratch.path(), 0), Vec::<String>::new());
    }
}

/// A kill must leave nothing that `clean` does not undo: a mount or a loop device would hold the disk.
#[test]
fn clean_undoes_the_file_system_and_the_group_of_a_killed_run() {
    if !possible("killed database") {
        return;
    }
    let scratch = Scratch::new();
    write_study(&scratch, "lmdb", "60s");
    let mut command = scratch.crosspoint();
    command.args(["run", "db.toml", "--out", "run", "--progress", "plain"]);
    let mut child =
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut errors = BufReader::new(child.stderr.take().expect("its errors"));
    let mut line = String::new();
    while !line.contains(" t=") {
        line.clear();
        assert!(errors.read_line(&mut line).expect("a line") > 0, "it ended early");
    }
    let process = child.id();
    assert!(left(scratch.path(), process).len() >= 3, "mount, loop device and group are there");
    child.kill().expect("killed");
    child.wait().expect("it ended");
    expect(&scratch.run("clean"), 0);
    assert_eq!(left(scratch.path(), process), Vec::<String>::new());
    let work = std::fs::read_dir(scratch.path()).expect("a directory").flatten();
    let work = work.filter(|entry| entry.file_name().to_string_lossy().starts_with(".crosspoint"));
    assert_eq!(work.count(), 0);
}

#[test]
fn what_can_not_be_had_is_said_with_what_helps() {
    let scratch = Scratch::new();
    let small = "schema = 1\nname = \"db\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n\
                 [[experiment]]\nname = \"e\"\n[experiment.kv]\nengine = \"lmdb\"\nrecords = 1000\n\
                 value_size = \"100B\"\nreaders = 1\n";
    let write = |text: String| {
        std::fs::write(scratch.path().join("db.toml"), text).expect("written");
    };
    write(format!("{small}memory = \"20%\"\n"));
    let output = scratch.run("plan db.toml");
    expect(&output, 3);
    assert!(String::from_utf8_lossy(&output.stderr).contains("at least 96"), "{output:?}");
    let other = small.replace("lmdb", "rocksdb");
    write(format!("{other}library = \"/no/such/librocksdb.so\"\n"));
    let output = scratch.run("run db.toml --out two");
    expect(&output, 5);
    assert!(String::from_utf8_lossy(&output.stderr).contains("/no/such/librocksdb.so"));
    write(format!("{small}memory = \"much\"\n"));
    let output = scratch.run("plan db.toml");
    expect(&output, 3);
    assert!(String::from_utf8_lossy(&output.stderr).contains("unlimited"));
}
