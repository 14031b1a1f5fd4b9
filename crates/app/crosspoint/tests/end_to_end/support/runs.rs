//! Small finished runs, and edits of them.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Scratch, expect, study};

/// A finished run of predictions with two trials.
pub fn finished_run(scratch: &Scratch) {
    let text = fs::read_to_string(study("virtual")).expect("the study");
    let head = text.lines().take_while(|line| !line.contains("[[experiment]]"));
    let head: String = head.map(|line| format!("{line}\n")).collect();
    let short = head
        + "[[experiment]]\nname = \"e\"\nduration = \"200ms\"\ninterval = \"100ms\"\n\
           [experiment.job]\nengine = \"block\"\nqueue_depth = [1, 4]\n";
    fs::write(scratch.path().join("short.toml"), short).expect("written");
    expect(&scratch.run("run short.toml --out run"), 0);
}

pub fn trial_folders(run: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(run.join("trials")).expect("trials").flatten();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    folders.sort();
    folders
}

/// Appends the checksums of changed files of a run; the last line of a name counts.
pub fn sign(run: &Path, names: &[String]) {
    let mut list = fs::read_to_string(run.join("sums.txt")).expect("the list");
    for name in names {
        let bytes = fs::read(run.join(name)).expect("it reads");
        let line = format!("{:08x} {} {name}", crc32fast::hash(&bytes), bytes.len());
        list.push_str(&format!("{line} {:08x}\n", crc32fast::hash(line.as_bytes())));
    }
    fs::write(run.join("sums.txt"), list).expect("written");
}
