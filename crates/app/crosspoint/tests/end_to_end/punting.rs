//! A target that io_uring serves with worker threads: their CPU must be counted, with a note.

use crate::support::{Scratch, needs, skip};

/// A zram device that the test makes; removed when dropped.
struct Zram(String);

impl Zram {
    fn new() -> Option<Self> {
        let number = std::fs::read_to_string("/sys/class/zram-control/hot_add").ok()?;
        let made = Self(number.trim().to_owned());
        std::fs::write(format!("/sys/block/zram{}/disksize", made.0), "64M").ok()?;
        Some(made)
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        // The kernel lets go of a ring's device a moment after the program has ended.
        for _ in 0..1000 {
            let reset = std::fs::write(format!("/sys/block/zram{}/reset", self.0), "1");
            if reset.is_ok() {
                break;
            }
            std::thread::yield_now();
        }
        let _ = std::fs::write("/sys/class/zram-control/hot_remove", &self.0);
    }
}

/// fio does not count the CPU of such threads.
#[test]
fn requests_that_worker_threads_carry_out_are_told() {
    let Some(()) = needs("worker_threads", &["root"]) else { return };
    let Some(zram) = Zram::new() else { return skip("worker_threads", "a zram device") };
    let scratch = Scratch::new();
    let text = format!(
        "schema = 1\nname = \"punted\"\n[[stack]]\nname = \"d\"\ndevice = \"/dev/zram{}\"\n\
         size = \"64MiB\"\n[[experiment]]\nname = \"e\"\nwarm_up = \"0s\"\nmeasure = \"300ms\"\n\
         interval = \"100ms\"\n[experiment.block]\nqueue_depth = [1, 8]\n",
        zram.0
    );
    std::fs::write(scratch.path().join("punted.toml"), text).expect("written");
    scratch.fails(
        "run punted.toml --out run",
        0,
        &["queue depth 1 uses pread and pwrite instead", "so io_uring used"],
    );
}
