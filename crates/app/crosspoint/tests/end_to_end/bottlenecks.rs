//! Jobs whose bottleneck is known: what the time breakdown names as the largest part.

use std::collections::BTreeMap;

use crate::support::{Scratch, expect};

/// Shares of an operation's time, percent, of a job on this disk or on a model.
fn shares(stack: &str, job: &str) -> BTreeMap<String, f64> {
    let scratch = Scratch::new();
    let text = format!(
        "schema = 2\nname = \"known\"\n[[stack]]\nname = \"one\"\n{stack}\n[[experiment]]\n\
         name = \"job\"\nwarm_up = \"100ms\"\nduration = \"1s\"\ninterval = \"50ms\"\n\
         [experiment.job]\nvalue_size = \"400B\"\n{job}\n"
    );
    std::fs::write(scratch.path().join("known.toml"), text).expect("written");
    expect(&scratch.run("run known.toml --out run"), 0);
    let document = scratch.json("figures run --json");
    let figures = document["figures"].as_array().expect("a list").iter();
    let share = |one: &serde_json::Value| {
        let part = one["metric"].as_str()?.strip_prefix("time_share_")?;
        Some((part.to_owned(), one["value"].as_f64()?))
    };
    let shares: BTreeMap<String, f64> = figures.filter_map(share).collect();
    let sum: f64 = shares.values().sum();
    assert!((sum - 100.0).abs() < 1.0, "the parts sum to the whole: {shares:?}");
    shares
}

fn largest(shares: &BTreeMap<String, f64>) -> &str {
    shares.iter().max_by(|a, b| a.1.total_cmp(b.1)).expect("parts").0
}

/// Lookups that the page cache serves need nothing but a CPU.
#[test]
fn lookups_in_memory_are_bound_by_the_cpu() {
    let found = shares(
        "device = \"file\"\ndirectory = \"/dev/shm\"",
        "engine = \"lmdb\"\nworkload = \"read_random\"\nrecords = 1000",
    );
    let busy = found.get("run_queue").copied().unwrap_or_default();
    assert!(found["cpu"] + busy > 80.0, "{found:?}");
}

/// More clients than CPUs, all of which compute: waiting for a CPU must not count as engine or drive.
#[test]
fn clients_beyond_the_cpus_wait_for_one() {
    let clients = 4 * std::thread::available_parallelism().expect("CPUs").get();
    let job = format!(
        "engine = \"lmdb\"\nworkload = \"read_random\"\nrecords = 1000\nclients = {clients}"
    );
    let found = shares("device = \"file\"\ndirectory = \"/dev/shm\"", &job);
    assert_eq!(largest(&found), "run_queue", "{found:?}");
}

/// Sixteen durable writers of LMDB: one holds the lock and waits for the disk, the others wait for it.
#[test]
fn writers_behind_a_lock_wait_for_it_and_its_holder_for_the_disk() {
    let job = "engine = \"lmdb\"\nworkload = \"overwrite\"\ndurability = \"device\"\nrecords = 1000\n\
               clients = 16";
    let found = shares("device = \"file\"\ndirectory = \".\"", job);
    assert_eq!(largest(&found), "locks", "{found:?}");
    let disk = ["drive_flushes", "drive_writes"].map(|part| found.get(part).unwrap_or(&0.0));
    assert!(disk.into_iter().sum::<f64>() > 1.0, "{found:?}");
}

/// A volume that is held at its operations per second: neither its media nor the CPU is slow.
#[test]
fn a_full_volume_is_bound_by_its_rate_limit() {
    let job = "engine = \"lmdb\"\nworkload = \"read_random\"\nrecords = 100_000\nclients = 16\n\
               cold_start = true";
    let found = shares("device = \"model:aws-gp3\"", job);
    assert_eq!(largest(&found), "rate_limit", "{found:?}");
    let found = shares("device = \"model:samsung-pm9a3\"", job);
    assert!(!found.contains_key("rate_limit"), "{found:?}");
}
