//! Parts of a study in several processes: nothing lost, nothing twice, and the results of one process.

use std::collections::BTreeMap;
use std::path::Path;

use crate::support::{Scratch, expect, stderr};

const STUDY: &str = "schema = 2\nname = \"grid\"\n\
    [[stack]]\nname = \"optane\"\ndevice = \"model:intel-p4800x\"\ncpu_time = \"1us\"\ncores = 2\n\
    [[stack]]\nname = \"flash\"\ndevice = \"model:samsung-pm9a3\"\ncpu_time = \"1us\"\ncores = 2\n\
    [[stack]]\nname = \"here\"\ndevice = \"file\"\nsize = \"16MiB\"\n\
    [[experiment]]\nname = \"blocks\"\nwarm_up = \"50ms\"\nduration = \"4s\"\nstacks = [\"optane\", \"flash\"]\n\
    [experiment.job]\nengine = \"block\"\nqueue_depth = [1, 8, 32]\n\
    [[experiment]]\nname = \"updates\"\nwarm_up = \"0s\"\nduration = \"1s\"\nstacks = [\"optane\", \"flash\"]\n\
    [experiment.job]\nengine = \"sqlite\"\nworkload = \"overwrite\"\nrecords = 100\nvalue_size = \"100B\"\n\
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
    let finished = || {
        let all = std::fs::read_dir(&parts).into_iter().flatten().flatten();
        all.filter(|part| part.path().join("report.html").exists()).count()
    };
    while finished() < 1 && child.try_wait().expect("a child").is_none() {
        std::thread::yield_now();
    }
    child.kill().expect("SIGKILL");
    child.wait().expect("it ended");
    assert!(!scratch.path().join("three/run.json").exists(), "it was over before the kill");
    expect(&scratch.run("run grid.toml --workers 2 --out three"), 0);
    assert_eq!(trials(&scratch.path().join("three")), one);
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
