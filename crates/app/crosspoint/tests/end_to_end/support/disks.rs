//! Shared helpers for tests of attached disks.
//!
//! Invariant: only disks of the test's own scratch directory are inspected.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Scratch, expect, has, is_root, skip};

/// Skips a test if disks cannot be attached here.
pub fn possible(test: &str) -> Option<()> {
    let there = Path::new("/dev/fuse").exists() && (is_root() || has("fusermount3"));
    if !there {
        skip(test, "/dev/fuse, and root or fusermount3");
    }
    there.then_some(())
}

/// Attaches; returns the description of the disk.
pub fn attach(scratch: &Scratch, words: &str) -> Value {
    let output = scratch.run(&format!("attach {words} --json"));
    expect(&output, 0);
    serde_json::from_slice(&output.stdout).expect("JSON")
}

pub fn file_of(disk: &Value) -> PathBuf {
    PathBuf::from(disk["file"].as_str().expect("a file"))
}

pub fn mounted(scratch: &Scratch) -> bool {
    let place = scratch.path().canonicalize().expect("it is there");
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    mounts.contains(place.to_str().expect("plain"))
}

pub fn nothing_left(scratch: &Scratch) {
    assert!(!mounted(scratch), "something is still mounted");
    assert!(scratch.leftovers().is_empty(), "{:?}", scratch.leftovers());
    let noted = std::fs::read_dir(scratch.state().join("attached")).into_iter().flatten().count();
    assert_eq!(noted, 0, "notes of disks that have gone");
}
