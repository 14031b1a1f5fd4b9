//! Parts of a study in several processes: nothing lost, nothing twice, and the results of one process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::support::{Scratch, expect, stderr};

const STUDY: &str = "schema = 2\nname = \"grid\"\n\
    [[stack]]\nname = \"optane\"\ndevice = \"model:intel-p4800x\"\ncpu_time = \"1us\"\ncores = 2\n\
    [[stack]]\nname = \"flash\"\ndevice = \"model:samsung-pm9a3\"\ncpu_time = \"1us\"\ncores = 2\n\
    [[stack]]\nname = \"here\"\ndevice = \"file\"\nsize = \"16MiB\"\n\
    [[experiment]]\nname = \"blocks\"\nwarm_up = \"50ms\"\nduration = \"4s\"\n\
    stacks = [\"optane\", \"flash\"]\n[experiment.job]\nengine = \"block\"\nqueue_depth = [1, 8, 32]\n\
    [[experiment]]\nname = \"updates\"\nwarm_up = \"0s\"\nduration = \"1s\"\n\
    stacks = [\"optane\", \"flash\"]\n[experiment.job]\nengine = \"sqlite\"\n\
    workload = \"overwrite\"\nrecords = 100\nvalue_size = \"100B\"\n\
    durability = \"device\"\n\
    [[experiment]]\nname = \"measured\"\nwarm_up = \"50ms\"\nduration = \"250ms\"\nstacks = [\"here\"]\n\
    [experiment.job]\nengine = \"block\"\nqueue_depth = [1, 4]\n";

/// The files of the predicted trials, and the names of all.
fn trials(run: &Path) -> (BTreeMap<String, Vec<u8>>, Vec<String>) {
    let mut names: Vec<String> = std::fs::read_dir(run.join("trials"))
        .expect("trials")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
        .collect();
    names.sort();
    let files = names.iter().filter(|name| name.contains("blocks")).flat_map(|name| {
        ["trial.json", "latency.hlog"].map(|file| {
            let path = format!("{name}/{file}");
            let contents = std::fs::read(run.join("trials").join(&path)).expect("a file");
            (path, contents)
        })
    });
    (files.collect(), names)
}

/// A figure must not depend on how many processes computed the study, nor a trial be lost by a kill.
#[test]
fn many_processes_give_what_one_gives_also_after_a_kill() {
    let scratch = Scratch::new();
    std::fs::write(scratch.path().join("grid.toml"), STUDY).expect("written");
    expect(&scratch.run("run grid.toml --out one --progress none"), 0);
    let one = trials(&scratch.path().join("one"));
    expect(&scratch.run("run grid.toml --workers 2 --out two"), 0);
    assert_eq!(trials(&scratch.path().join("two")), one);
    assert!(!scratch.path().join("two.parts").exists());

    let mut command = scratch.crosspoint();
    command.args(["run", "grid.toml", "--workers", "2", "--out", "three"]);
    let mut child = command.spawn().expect("it starts");
    let parts = scratch.path().join("three.parts");
    let folders = || {
        let all = std::fs::read_dir(&parts).into_iter().flatten().flatten();
        all.map(|part| part.path()).filter(|part| part.join("run.json").exists())
    };
    let has_ended = |part: &PathBuf| part.join("report.html").exists();
    // One part has ended, and others are at work.
    let is_amid =
        || folders().any(|part| has_ended(&part)) && !folders().all(|part| has_ended(&part));
    while !is_amid() && child.try_wait().expect("a child").is_none() {
        std::thread::yield_now();
    }
    child.kill().expect("SIGKILL");
    child.wait().expect("it ended");
    assert!(!scratch.path().join("three").exists(), "it was over before the kill");
    let measured = |run: &Path| {
        let (_, names) = trials(run);
        let mut own = names.iter().filter(|name| name.contains("measured"));
        own.next().map(|name| std::fs::read(run.join("trials").join(name).join("latency.hlog")))
    };
    let kept =
        folders().find_map(|part| measured(&part)).expect("a measured trial").expect("its log");
    // Its processes stop at the end of their interval.
    let mark = format!("CROSSPOINT_STATE_DIR={}", scratch.path().join("state").display());
    let is_ours = |process: std::fs::DirEntry| {
        let environment = std::fs::read(process.path().join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|word| word == mark.as_bytes())
    };
    while std::fs::read_dir("/proc").expect("/proc").flatten().any(is_ours) {
        std::thread::yield_now();
    }
    expect(&scratch.run("run grid.toml --workers 2 --out three"), 0);
    assert_eq!(trials(&scratch.path().join("three")), one);
    let merged = measured(&scratch.path().join("three")).expect("it").expect("its log");
    assert_eq!(merged, kept, "a finished part was run again");
}

/// A folder of the user's must not be taken for one of parts, and removed.
#[test]
fn a_folder_that_has_no_parts_is_left_alone() {
    let scratch = Scratch::new();
    std::fs::write(scratch.path().join("grid.toml"), STUDY).expect("written");
    std::fs::create_dir(scratch.path().join("out.parts")).expect("a directory");
    let own = scratch.path().join("out.parts/own");
    std::fs::write(&own, "mine").expect("written");
    assert!(!scratch.run("run grid.toml --workers 2 --out out").status.success());
    assert!(own.exists());
}

/// Parts of two studies in one run would be compared as if they were one.
#[test]
fn parts_of_other_studies_are_not_merged() {
    let scratch = Scratch::new();
    std::fs::write(scratch.path().join("grid.toml"), STUDY).expect("written");
    let other = STUDY.replace("queue_depth = [1, 8, 32]", "queue_depth = [1, 8, 16]");
    std::fs::write(scratch.path().join("other.toml"), other).expect("written");
    expect(&scratch.run("run grid.toml --only 1 --out a --progress none"), 0);
    expect(&scratch.run("run other.toml --only 2 --out b --progress none"), 0);
    let refused = scratch.run("merge whole a b");
    expect(&refused, 2);
    assert!(stderr(&refused).contains("another study"), "{}", stderr(&refused));
    expect(&scratch.run("run grid.toml --only 99 --out c --progress none"), 2);
    // What is missing can be run afterwards.
    let partial = scratch.run("merge whole a");
    expect(&partial, 130);
    assert!(stderr(&partial).contains("--resume whole"), "{}", stderr(&partial));
    expect(&scratch.run("run --resume whole --progress none"), 0);
}
