//! Block devices used by others: renamed links, devices stacked with an offset, media with read errors. Every
//! device here is a loop device of the test's own.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Loop, Scratch, expect, finish, needs, sh, skip, start_and_wait, stderr};

const BY_ID: &str = "/dev/disk/by-id";

/// A symbolic link in /dev/disk/by-id; removed when dropped.
struct Named(PathBuf);

impl Named {
    fn new(device: &str) -> Self {
        fs::create_dir_all(BY_ID).expect("stable names");
        let path = Path::new(BY_ID).join(format!("crosspoint-test-{}", stack::random_hex(8)));
        symlink(device, &path).expect("a name");
        Self(path)
    }

    fn point_at(&self, device: &str) {
        fs::remove_file(&self.0).expect("the name");
        symlink(device, &self.0).expect("a name");
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

const TOOLS: [&str; 4] = ["root", "losetup", "mkfs.ext4", "mount"];

fn loops(scratch: &Scratch, test: &str, names: [&str; 2], bytes: u64) -> Option<[Loop; 2]> {
    let made = names.map(|name| Loop::new(scratch.path(), name, bytes));
    let [Some(one), Some(two)] = made else {
        skip(test, "two free loop devices");
        return None;
    };
    Some([one, two])
}

/// Consecutive database trials on `device`.
fn write_databases(scratch: &Scratch, device: &Path, file_system: &str, trials: u32) {
    let text = format!(
        "schema = 1\nname = \"db\"\n[[stack]]\nname = \"d\"\ndevice = \"{}\"\nallow_write = true\n\
         file_system = \"{file_system}\"\nsize = \"64MiB\"\n[[experiment]]\nname = \"e\"\nwarm_up = \"0s\"\n\
         measure = \"1500ms\"\ninterval = \"100ms\"\nrepeat = {trials}\n[experiment.kv]\nengine = \"lmdb\"\n\
         records = 1000\nvalue_size = \"1000B\"\n",
        device.display()
    );
    fs::write(scratch.path().join("db.toml"), text).expect("written");
}

/// A device that the study does not name: its files and its first bytes must stay unchanged.
struct Precious {
    place: PathBuf,
    device: String,
    before: Vec<u8>,
}

impl Precious {
    fn on(scratch: &Scratch, disk: &Loop) -> Self {
        let place = scratch.path().join("precious");
        fs::create_dir(&place).expect("a directory");
        disk.tool("mkfs.ext4", &["-q", "-F"]);
        assert!(sh(&format!("mount {} {}", disk.device, place.display())));
        fs::write(place.join("letter"), "dear").expect("a letter");
        assert!(sh("sync"));
        let before = first_bytes(&disk.device);
        Self { place, device: disk.device.clone(), before }
    }

    fn check(self) {
        assert!(sh("sync"));
        assert_eq!(fs::read_to_string(self.place.join("letter")).expect("the letter"), "dear");
        assert!(sh(&format!("umount {}", self.place.display())));
        assert!(
            sh(&format!("e2fsck -fn {} >/dev/null 2>&1", self.device)),
            "its file system is whole"
        );
        // The superblock counts mounts; the other first bytes must be unchanged.
        let after = first_bytes(&self.device);
        assert_eq!(self.before[4096..8192], after[4096..8192]);
    }
}

fn first_bytes(device: &str) -> Vec<u8> {
    let output = Command::new("head").args(["-c", "65536", device]).output().expect("it reads");
    output.stdout
}

/// A by-id link that is changed during a run must not make it destroy a mounted device, with a file system
/// created for each trial or a raw device.
#[test]
fn a_name_that_is_pointed_elsewhere_in_mid_run_destroys_nothing() {
    let test = "a name that is pointed elsewhere";
    let Some(()) = needs(test, &TOOLS) else { return };
    for file_system in ["ext4", "raw"] {
        let scratch = Scratch::new();
        let Some([own, other]) = loops(&scratch, test, ["own.img", "other.img"], 64 << 20) else {
            return;
        };
        let precious = Precious::on(&scratch, &other);
        let named = Named::new(&own.device);
        write_databases(&scratch, &named.0, file_system, 3);
        let confirm = own.backing.to_str().expect("a path");
        let words = ["run", "db.toml", "--out", "run", "--i-will-lose-data", confirm];
        let (child, errors) = start_and_wait(&scratch, &words);
        named.point_at(&other.device);
        let output = finish(child, errors);
        expect(&output, 4);
        let said = stderr(&output);
        assert!(said.contains("now refers to another device"), "{file_system}: {said}");
        precious.check();
        assert_eq!(scratch.leftovers(), Vec::<PathBuf>::new());
        for beside in [own.device.as_str(), named.0.to_str().expect("a path")] {
            let lock = format!("{beside}-lock");
            assert!(!Path::new(&lock).exists(), "LMDB's lock is in our area: {lock}");
        }
    }
}

/// A loop device at an offset on the target: the kernel does not list it as a holder.
#[test]
fn a_loop_device_stacked_at_an_offset_is_seen() {
    let test = "a stacked loop device";
    let Some(()) = needs(test, &TOOLS) else { return };
    let scratch = Scratch::new();
    let Some(own) = Loop::new(scratch.path(), "own.img", 64 << 20) else {
        return skip(test, "a free loop device");
    };
    let stacked = Command::new("losetup")
        .args(["--find", "--show", "-o", "16777216", &own.device])
        .output()
        .expect("losetup");
    let stacked = String::from_utf8_lossy(&stacked.stdout).trim().to_owned();
    assert!(!stacked.is_empty(), "a loop device over a loop device");
    write_databases(&scratch, Path::new(&own.device), "ext4", 1);
    let words = format!("run db.toml --out run --i-will-lose-data {}", own.backing.display());
    let output = scratch.run(&words);
    assert!(sh(&format!("losetup --detach {stacked}")));
    expect(&output, 4);
    let name = stacked.trim_start_matches("/dev/");
    assert!(stderr(&output).contains(&format!("part of {name}")), "{}", stderr(&output));
}

/// A file system mounted through one loop device is visible through every other loop device over that file.
#[test]
fn a_file_system_under_another_loop_device_over_the_same_file_is_seen() {
    let test = "two loop devices over a file";
    let Some(()) = needs(test, &TOOLS) else { return };
    let scratch = Scratch::new();
    let Some(own) = Loop::new(scratch.path(), "own.img", 128 << 20) else {
        return skip(test, "a free loop device");
    };
    let other = Command::new("losetup")
        .args(["--find", "--show", "-o", "67108864"])
        .arg(&own.backing)
        .output()
        .expect("losetup");
    let other = String::from_utf8_lossy(&other.stdout).trim().to_owned();
    write_databases(&scratch, Path::new(&own.device), "ext4", 1);
    let words = format!("run db.toml --out run --i-will-lose-data {}", own.backing.display());
    let output = scratch.run(&words);
    assert!(sh(&format!("losetup --detach {other}")));
    expect(&output, 4);
    assert!(stderr(&output).contains("its file is also under loop"), "{}", stderr(&output));
}

/// blkid reports nothing for a device that it cannot read.
#[test]
fn a_device_whose_ends_cannot_be_read_is_not_empty() {
    let test = "a device that cannot be read";
    let Some(()) = needs(test, &TOOLS) else { return };
    for cut in [0u64, 16 << 20] {
        let scratch = Scratch::new();
        let Some(own) = Loop::new(scratch.path(), "own.img", 64 << 20) else {
            return skip(test, "a free loop device");
        };
        // The device keeps its size and loses its medium, from the start or from the middle on.
        let file = fs::OpenOptions::new().write(true).open(&own.backing).expect("it");
        file.set_len(cut).expect("cut");
        write_databases(&scratch, Path::new(&own.device), "ext4", 1);
        let words = format!("run db.toml --out run --i-will-lose-data {}", own.backing.display());
        scratch.fails(&words, 4, &["cannot tell whether it holds data"]);
    }
}

/// A kill of a run on a raw device must not leave LMDB's lock file in `/dev`.
#[test]
fn a_kill_of_a_run_on_a_bare_device_leaves_no_lock_beside_it() {
    let test = "a kill on a bare device";
    let Some(()) = needs(test, &TOOLS) else { return };
    let scratch = Scratch::new();
    let Some(own) = Loop::new(scratch.path(), "own.img", 512 << 20) else {
        return skip(test, "a free loop device");
    };
    let named = Named::new(&own.device);
    write_databases(&scratch, &named.0, "raw", 2);
    // On a busy host a reader that does not run pins old pages, and the writer needs new ones.
    let study = scratch.path().join("db.toml");
    let text = fs::read_to_string(&study).expect("a study").replace("64MiB", "512MiB");
    fs::write(study, text).expect("written");
    let confirm = own.backing.to_str().expect("a path");
    let words = ["run", "db.toml", "--out", "run", "--i-will-lose-data", confirm];
    let (mut child, _errors) = start_and_wait(&scratch, &words);
    child.kill().expect("killed");
    child.wait().expect("it ended");
    expect(&scratch.run("clean"), 0);
    assert_eq!(scratch.leftovers(), Vec::<PathBuf>::new());
    for beside in [own.device.as_str(), named.0.to_str().expect("a path")] {
        assert!(!Path::new(&format!("{beside}-lock")).exists(), "a lock next to {beside}");
    }
    // The device is free again, and the guard permits it.
    expect(&scratch.run(&format!("run db.toml --out again --i-will-lose-data {confirm}")), 0);
}
