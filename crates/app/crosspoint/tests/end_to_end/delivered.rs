//! The delivered service times of an attached disk, compared with independent clocks.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::support::{DiskScratch, Scratch, is_root, skip};

/// A disk that takes 100 ms for every request.
const SLOW: &str = r#"
schema = 1
name = "slow"
title = "Each request takes 100 ms"
capacity = "1GB"
not_covered = "all else"
[ram]
serial_time = { value = "1ns", kind = "assumed", source = "a test" }
copy_time = { value = "1ns", kind = "assumed", source = "a test" }
fixed_time = { value = "100ms", kind = "assumed", source = "a test" }
"#;

/// The delivered service times must be what clients measure with their own clocks.
#[test]
fn what_was_delivered_is_what_clients_saw() {
    if !Path::new("/dev/fuse").exists() || !(is_root() || crate::support::has("fusermount3")) {
        let missing = "/dev/fuse, and root or fusermount3";
        return skip("what_was_delivered_is_what_clients_saw", missing);
    }
    let scratch = DiskScratch(Scratch::new());
    std::fs::write(scratch.path().join("slow.toml"), SLOW).expect("written");
    let disk = scratch.json("attach slow.toml --size 16MiB --json");
    let path = PathBuf::from(disk["file"].as_str().expect("a file"));
    let (clients, reads) = (8u64, 5u64);
    let client = |number: u64| {
        let mut options = File::options();
        let file = options.read(true).custom_flags(libc::O_DIRECT).open(&path).expect("opened");
        let mut space = vec![0u8; 8192];
        let start = space.as_ptr().align_offset(4096);
        let began = std::time::Instant::now();
        for read in 0..reads {
            let at = (number * reads + read) * 4096;
            file.read_exact_at(&mut space[start..start + 4096], at).expect("read");
        }
        began.elapsed().as_nanos() as f64 / reads as f64
    };
    let seen: f64 = std::thread::scope(|scope| {
        let all: Vec<_> = (0..clients).map(|number| scope.spawn(move || client(number))).collect();
        all.into_iter().map(|one| one.join().expect("it ended")).sum()
    });
    let mean = seen / clients as f64;
    let said = scratch.json("detach --all --json");
    let said = &said["disks"][0]["served"]["reads"];
    assert!(said["requests"].as_u64() >= Some(clients * reads), "{said}");
    let delivered = said["delivered_mean_ns"].as_f64().expect("a number");
    assert!((delivered / mean - 1.0).abs() < 0.1, "{delivered} ns delivered, {mean} ns seen");
    assert!(delivered >= said["requested_mean_ns"].as_f64().expect("a number") * 0.99, "{said}");
}
