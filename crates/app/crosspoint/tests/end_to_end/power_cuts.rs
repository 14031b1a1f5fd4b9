//! Fault injection: an attached disk follows its fault file, and databases survive power cuts on an honest
//! disk.

use std::fs::{File, OpenOptions};
use std::io::BufRead;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::support::{DiskScratch, Scratch, expect, needs, skip, stderr};
use serde_json::Value;

const NEEDED: [&str; 3] = ["root", "/dev/fuse", "mkfs.ext4"];

fn nothing_left(scratch: &Scratch) {
    let place = scratch.path().canonicalize().expect("it is there");
    let place = place.to_str().expect("plain");
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    assert!(!mounts.contains(place), "something is still mounted");
    assert!(scratch.leftovers().is_empty(), "{:?}", scratch.leftovers());
    let loops = std::fs::read_dir("/sys/block").expect("devices").flatten();
    let backed = |one: std::fs::DirEntry| {
        let file = one.path().join("loop/backing_file");
        std::fs::read_to_string(file).is_ok_and(|backing| backing.contains(place))
    };
    assert!(!loops.into_iter().any(backed), "a loop device is still there");
}

/// Attaches with the store `kept.img`; returns the disk's file.
fn attach(scratch: &Scratch, words: &str) -> PathBuf {
    let disk = scratch.json(&format!(
        "attach intel-s3520 --scale 10 --size 16MiB --store kept.img --json{words}"
    ));
    PathBuf::from(disk["file"].as_str().expect("a file"))
}

fn opened(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_DIRECT).open(path).expect("opened")
}

/// A block for direct I/O.
#[repr(align(4096))]
struct Block([u8; 4096]);

fn write(file: &File, block: u64, value: u8) -> std::io::Result<()> {
    file.write_all_at(&Block([value; 4096]).0, block * 4096)
}

fn read(file: &File, block: u64) -> [u8; 4096] {
    let mut found = Block([255; 4096]);
    file.read_exact_at(&mut found.0, block * 4096).expect("read");
    found.0
}

const PLAN: &str = r#"
schema = 1
seed = 11
[[fault]]
kind = "error"
of = ["write"]
range = { offset = "0B", length = "4KiB" }
[[fault]]
kind = "lost_write"
share = "100%"
range = { offset = "4KiB", length = "4KiB" }
[[fault]]
kind = "bit_rot"
share = "100%"
range = { offset = "8KiB", length = "4KiB" }
[[fault]]
kind = "power_cut"
write = 37
"#;

/// Injected faults must occur exactly as planned, so that error handling can be tested on a failing disk.
#[test]
fn a_disk_does_what_its_plan_of_faults_says() {
    let test = "a_disk_does_what_its_plan_of_faults_says";
    let Some(()) = needs(test, &NEEDED) else { return };
    let scratch = DiskScratch(Scratch::new());
    std::fs::write(scratch.path().join("plan.toml"), PLAN).expect("written");
    let path = attach(&scratch, " --faults plan.toml");
    let file = opened(&path);
    // Writes 1 to 3: one fails, one is lost, one rots.
    assert_eq!(write(&file, 0, 1).expect_err("it fails").raw_os_error(), Some(libc::EIO));
    write(&file, 1, 1).expect("acknowledged");
    write(&file, 2, 1).expect("acknowledged");
    assert_eq!((read(&file, 0), read(&file, 1)), ([0; 4096], [0; 4096]));
    let wrong: u32 = read(&file, 2).iter().map(|byte| (byte ^ 1).count_ones()).sum();
    assert_eq!(wrong, 1, "one bit");
    // Writes 4 to 20 are flushed, 21 to 36 are not; power fails at write 37.
    (10..27).for_each(|block| write(&file, block, 2).expect("written"));
    file.sync_data().expect("flushed");
    (20..36).for_each(|block| write(&file, block, 3).expect("written"));
    assert!(write(&file, 40, 4).is_err(), "the power goes");
    let mut any = Block([0; 4096]);
    assert!(file.read_exact_at(&mut any.0, 10 * 4096).is_err(), "and stays away");
    assert!(file.sync_data().is_err());
    drop(file);
    expect(&scratch.run("detach --all"), 0);
    let file = opened(&attach(&scratch, ""));
    (10..20).for_each(|block| assert_eq!(read(&file, block), [2; 4096], "flushed"));
    let mut older = 0;
    for block in 20..36 {
        let (found, before) = (read(&file, block), if block < 27 { 2 } else { 0 });
        assert!(found == [3; 4096] || found == [before; 4096], "block {block}");
        older += u32::from(found == [before; 4096]);
    }
    assert!(older > 0, "a cut that takes nothing away is none");
    drop(file);
    expect(&scratch.run("detach --all"), 0);
    nothing_left(&scratch);
    for (plan, why) in [
        ("schema = 1\n[[fault]]\nkind = \"stall\"\nwhen = {}\n", "needs `for`"),
        ("schema = 1\n[[fault]]\nkind = \"eror\"\n", "unknown variant"),
    ] {
        std::fs::write(scratch.path().join("plan.toml"), plan).expect("written");
        scratch.fails(
            "attach intel-s3520 --scale 10 --size 16MiB --faults plan.toml",
            3,
            &[why, "docs/FAULTS.md"],
        );
    }
    scratch.fails("attach intel-s3520 --size 0B", 4, &["one at least"]);
    nothing_left(&scratch);
}

/// Most seeds tried on a drive that ignores flushes, until a cut loses some rows, not all.
const LYING_TRIES: u32 = 30;

/// Whether a message such as `records not as ...: 12, in ...` or `3 of 40 acknowledged rows ...` reports a
/// partial loss.
fn lost_in_part(said: &Value) -> bool {
    let words: Vec<u64> = said
        .as_str()
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|word| word.trim_end_matches(',').parse().ok())
        .collect();
    // Key-value engines have 500 records.
    words.first().is_some_and(|lost| *lost < words.get(1).copied().unwrap_or(500))
}

/// Power cuts under an engine on a drive that honours flushes, then on one that ignores some. `end` is that
/// of the names of what is kept.
fn cut(engine: &str, (cuts, end): (u32, &str)) {
    let scratch = DiskScratch(Scratch::new());
    let honest = format!("power-cuts {engine} --cuts {cuts} --json");
    let lying = format!("{honest} --drop-flushes 50%");
    let document = scratch.json(&format!("{honest} --seed 3"));
    let cuts = document["cuts"].as_array().expect("cuts");
    let kept = |cut: &Value| cut["under_load"] == true && cut["found"] == "all";
    assert!(cuts.iter().all(kept), "{document}");
    let unflushed = cuts.iter().filter_map(|cut| cut["unflushed_blocks"].as_u64()).sum::<u64>();
    assert!(unflushed > 0, "nothing was there to be lost: {document}");
    // On a drive that drops flushes the check must find losses. If a database does not start or is empty,
    // everything is lost and nothing is compared; then another seed is tried.
    let compared = |seed: u32| {
        let output = scratch.run(&format!("{lying} --seed {seed} --keep kept"));
        assert!(matches!(output.status.code(), Some(0 | 7 | 10)), "{}", stderr(&output));
        let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let cuts = document["cuts"].as_array().expect("cuts");
        for cut in cuts {
            // Drive images of cuts that lost data are kept, the others removed.
            let file = format!("kept/seed-{seed}-cut-{}{end}", cut["number"]);
            assert_eq!(scratch.path().join(&file).exists(), cut["found"] != "all", "{file}");
            assert_eq!(cut["kept_drive"]["file"].is_string(), cut["found"] != "all");
            let blocks = cut["kept_drive"]["lost"].as_array().map(|blocks| blocks.len() as u64);
            // Only an attached drive names them.
            let named = if end.is_empty() { &Value::from(0) } else { &cut["lost_blocks"] };
            assert!(blocks.is_none_or(|count| named.as_u64() == Some(count)), "{cut}");
        }
        let kept = std::fs::read_dir(scratch.path().join("kept")).expect("there").flatten();
        let is_whole = |one: &std::fs::DirEntry| match end {
            // A directory with files.
            "" => std::fs::read_dir(one.path()).is_ok_and(|files| files.count() > 0),
            end => one.path().to_string_lossy().ends_with(end),
        };
        assert!(kept.into_iter().all(|one| is_whole(&one)));
        let some = |cut: &Value| cut["found"] == "lost" && lost_in_part(&cut["said"]);
        let any = cuts.iter().any(|cut| cut["found"] != "all");
        assert_eq!(output.status.code() == Some(7), any, "the exit code says so");
        cuts.iter().any(some)
    };
    assert!((3..3 + LYING_TRIES).any(compared), "{engine}: compared and found");
    nothing_left(&scratch);
}

#[test]
fn a_lost_update_is_seen_whichever_engine_lost_it() {
    let test = "a_lost_update_is_seen_whichever_engine_lost_it";
    let Some(()) = needs(test, &NEEDED) else { return };
    cut("lmdb --attach", (4, ".img"));
    cut("sqlite --attach", (4, ".img"));
    if crate::support::servers::has_server(test).is_some() {
        cut("mariadb --attach", (2, ".img"));
    }
}

#[test]
fn rocksdb_keeps_what_it_acknowledged() {
    let test = "rocksdb_keeps_what_it_acknowledged";
    let Some(()) = needs(test, &NEEDED) else { return };
    if !crate::support::has_rocksdb(&Scratch::new()) {
        return skip(test, "librocksdb");
    }
    cut("rocksdb --attach", (4, ".img"));
}

/// The same on simulated drives, without root: what it says of an engine must be as trustworthy.
#[test]
fn simulated_power_cuts_find_lost_updates_on_lying_drives_only() {
    cut("lmdb", (20, ""));
    cut("sqlite", (20, ""));
    if crate::support::has_rocksdb(&Scratch::new()) {
        cut("rocksdb", (20, ""));
    }
    let scratch = Scratch::new();
    scratch.fails("power-cuts mariadb --cuts 1", 4, &["--attach"]);
    scratch.fails("power-cuts lmdb --file-system xfs", 2, &["--attach"]);
}

/// A kill in the middle of a power cut must not leave the drive behind.
#[test]
fn a_killed_run_of_power_cuts_is_cleaned() {
    let test = "a_killed_run_of_power_cuts_is_cleaned";
    let Some(()) = needs(test, &NEEDED) else { return };
    let scratch = DiskScratch(Scratch::new());
    let mut command = scratch.crosspoint();
    command.args(["power-cuts", "lmdb", "--attach", "--cuts", "100000"]);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    // Progress is printed after a few seconds.
    let mut errors = std::io::BufReader::new(child.stderr.take().expect("piped"));
    let mut line = String::new();
    errors.read_line(&mut line).expect("a line");
    assert!(line.contains("of 100000 power cuts"), "{line}");
    child.kill().expect("killed");
    child.wait().expect("it ended");
    scratch.prints("clean", 0, &["removed"]);
    nothing_left(&scratch);
}
