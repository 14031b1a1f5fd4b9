//! Jobs whose bottleneck is known: what the time breakdown names as the largest part.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::support::servers::{PASSWORD, Theirs, has_server};
use crate::support::{Scratch, expect, has_rocksdb, is_root, skip, stdout};

/// Figures of a job on this disk or on a model.
fn figures_of(stack: &str, job: &str) -> Vec<serde_json::Value> {
    run_of(stack, job).0
}

/// Figures, and what the terminal says.
fn run_of(stack: &str, job: &str) -> (Vec<serde_json::Value>, String) {
    run_with(stack, job, &[])
}

fn run_with(stack: &str, job: &str, with: &[(&str, &str)]) -> (Vec<serde_json::Value>, String) {
    let scratch = Scratch::new();
    let values = if job.contains("\"mysql\"") { "" } else { "value_size = \"400B\"\n" };
    let text = format!(
        "schema = 2\nname = \"known\"\n[[stack]]\nname = \"one\"\n{stack}\n[[experiment]]\n\
         name = \"job\"\nwarm_up = \"100ms\"\nduration = \"1s\"\ninterval = \"50ms\"\n\
         [experiment.job]\n{values}{job}\n"
    );
    std::fs::write(scratch.path().join("known.toml"), text).expect("written");
    let words = ["run", "known.toml", "--out", "run"];
    let run = scratch.crosspoint().args(words).envs(with.iter().copied()).output();
    let output = run.expect("it starts");
    expect(&output, 0);
    let document = scratch.json("figures run --json");
    (document["figures"].as_array().expect("a list").clone(), stdout(&output))
}

/// Shares of an operation's time, percent.
fn shares(stack: &str, job: &str) -> BTreeMap<String, f64> {
    shares_in(&figures_of(stack, job))
}

fn shares_in(all: &[serde_json::Value]) -> BTreeMap<String, f64> {
    let share = |one: &serde_json::Value| {
        let part = one["metric"].as_str()?.strip_prefix("time_share_")?;
        Some((part.to_owned(), one["value"].as_f64()?))
    };
    let shares: BTreeMap<String, f64> = all.iter().filter_map(share).collect();
    let sum: f64 = shares.values().sum();
    assert!((sum - 100.0).abs() < 1.0, "the parts sum to the whole: {shares:?}");
    let rest = shares.get("rest").copied().unwrap_or_default();
    assert!(rest < 20.0, "{rest} % is not attributed: {shares:?}");
    shares
}

/// Whether other programs, such as tests that run at the same time, left the CPUs to a job. Gains are about
/// the host as it was.
fn is_quiet(said: &str) -> bool {
    !said.contains("repeat it on an idle host")
}

fn largest(shares: &BTreeMap<String, f64>) -> &str {
    shares.iter().max_by(|a, b| a.1.total_cmp(b.1)).expect("parts").0
}

/// Lookups that the page cache serves need nothing but a CPU.
#[test]
fn lookups_in_memory_are_bound_by_the_cpu() {
    let (all, said) = run_of(
        "device = \"file\"\ndirectory = \"/dev/shm\"",
        "engine = \"lmdb\"\nworkload = \"read_random\"\nrecords = 1000",
    );
    let found = shares_in(&all);
    let busy = found.get("run_queue").copied().unwrap_or_default();
    assert!(found["cpu"] + busy > 80.0, "{found:?}");
    // Tests that run at the same time are other programs.
    let advised = ["a faster drive does not help", "repeat it on an idle host"];
    assert!(advised.iter().any(|advice| said.contains(advice)), "{said}");
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
    let (all, said) = run_of("device = \"file\"\ndirectory = \".\"", job);
    let found = shares_in(&all);
    assert_eq!(largest(&found), "locks", "{found:?}");
    let advised = ["batching more updates per commit will", "repeat it on an idle host"];
    assert!(advised.iter().any(|advice| said.contains(advice)), "{said}");
    // fdatasync(2) and writes with O_DSYNC.
    let [flushes, writes] = ["drive_flushes", "drive_writes"].map(|part| found.get(part).copied());
    assert!(flushes.is_some_and(|share| share > 0.5), "{found:?}");
    assert!(writes.is_some_and(|share| share > 0.5), "{found:?}");
}

/// One client that reads a cold database from a SATA drive.
#[test]
fn cold_lookups_are_bound_by_reads() {
    let job = "engine = \"lmdb\"\nworkload = \"read_random\"\nrecords = 100_000\ncold_start = true";
    let found = shares("device = \"model:intel-s3520\"", job);
    assert_eq!(largest(&found), "drive_reads", "{found:?}");
    assert!(found["drive_reads"] > 50.0, "{found:?}");
}

/// A buffer pool far smaller than the data, all of which is changed: sessions wait for the page cleaner. A
/// report that calls that "locks" sends its reader to the SQL.
#[test]
fn sessions_that_wait_for_free_pages_wait_for_the_page_cleaner() {
    if has_server("the page cleaner on a model").is_none() {
        return;
    }
    let job = "engine = \"mysql\"\nworkload = \"write_only\"\ndurability = \"none\"\ntables = 1\n\
               records = 100_000\nclients = 8\noptions.buffer_pool = \"8MiB\"";
    let stack = "device = \"model:intel-s3520\"\nwhat_if = [\"drive\"]";
    let (all, said) = run_of(stack, job);
    let own: Vec<_> = all.iter().filter(|one| one["stack"] == "one").cloned().collect();
    let found = shares_in(&own);
    assert!(largest(&found) == "background", "{found:?}");
    assert!(said.contains("(page cleaner, log)") && said.contains("keep up give"), "{said}");
    let value = |stack: &str, metric: &str, op: &str| {
        let found = all.iter().find(|one| {
            one["stack"] == stack && one["metric"] == metric && one["point"]["op"] == op
        });
        found.and_then(|one| one["value"].as_f64())
    };
    let rate = |stack| value(stack, "ops_rate", "write_phase").expect("a rate");
    let real = rate("one-drive") / rate("one");
    let ends = ["least", "most"].map(|end| value("one", &format!("free_drive_gain_{end}"), "all"));
    // Not printed for a trial that is not steady.
    if let [Some(least), Some(most)] = ends {
        assert!((least..most).contains(&real), "{real}, printed {ends:?}");
    }
    assert!(real > 2.0, "{real}");
}

/// Copies what arrives at `from` to `to`, each piece `late`.
fn pass(mut from: impl std::io::Read, mut to: impl std::io::Write, late: Duration) {
    let mut piece = [0; 16_384];
    while let Ok(read @ 1..) = from.read(&mut piece) {
        std::thread::sleep(late);
        if to.write_all(&piece[..read]).is_err() {
            break;
        }
    }
}

/// A TCP port whose messages reach the server at `socket` after `late`, as do its answers.
fn far_away(socket: &str, late: Duration) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let socket = socket.to_owned();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = UnixStream::connect(&socket) else { return };
            client.set_nodelay(true).expect("no delay");
            let back = (server.try_clone().expect("a copy"), client.try_clone().expect("a copy"));
            std::thread::spawn(move || pass(client, server, late));
            std::thread::spawn(move || pass(back.0, back.1, late));
        }
    });
    port
}

/// Clients 3 ms from their server, longer than a busy machine takes for anything: a report that does not say
/// so sends its reader to buy drives.
#[test]
fn a_distant_server_is_bound_by_the_network() {
    if has_server("a distant server").is_none() {
        return;
    }
    let theirs = Theirs::start();
    let of = |late| {
        let port = far_away(&theirs.server.address().to_string(), Duration::from_micros(late));
        let job = format!(
            "engine = \"mysql\"\nworkload = \"point_select\"\ntables = 1\nrecords = 2000\nclients = 2\n\
             dsn = \"mysql://rich@127.0.0.1:{port}/mine\""
        );
        run_with(
            "device = \"file\"\ndirectory = \".\"",
            &job,
            &[("CROSSPOINT_SQL_PASSWORD", PASSWORD)],
        )
    };
    let rate = |all: &[serde_json::Value]| {
        let mut own = all.iter().filter(|one| one["metric"] == "tx_rate");
        own.next().and_then(|one| one["value"].as_f64()).expect("a rate")
    };
    let ((far, said), (near, also_said)) = (of(1500), of(0));
    let found = shares_in(&far);
    assert_eq!(largest(&found), "network", "{found:?}");
    if is_quiet(&said) {
        assert!(said.contains("clients closer to the server"), "{said}");
    }
    if is_quiet(&also_said) {
        assert!(!shares_in(&near).contains_key("network"), "a server on this host");
    }
    let real = rate(&near) / rate(&far);
    assert!(real > 2.0, "{real}");
    let most = 100.0 / (100.0 - found["network"]);
    if is_quiet(&said) && is_quiet(&also_said) {
        assert!(real < 1.5 * most, "{real}, at most {most}");
    }
    theirs.server.stop().expect("it stops");
}

/// A cgroup that throttles the disk: the disk itself has time left, but its reads are what clients wait for.
#[test]
fn lookups_on_a_throttled_disk_are_bound_by_reads() {
    if !is_root() {
        return skip("a throttled disk", "root");
    }
    let disk = "device = \"file\"\ndirectory = \".\"\nfile_system = \"ext4\"\nsize = \"512MiB\"";
    let job =
        "engine = \"lmdb\"\nworkload = \"read_random\"\nrecords = 300_000\nmemory = \"96MiB\"";
    let rate = |all: &[serde_json::Value], metric: &str| {
        let found = all.iter().find(|one| one["metric"].as_str() == Some(metric));
        found.and_then(|one| one["value"].as_f64())
    };
    let (throttled, said) = run_of(&format!("{disk}\nlimit = {{ reads = \"100/s\" }}"), job);
    let found = shares_in(&throttled);
    assert_eq!(largest(&found), "drive_reads", "{found:?}");
    assert!(said.contains("the study's limit of"), "{said}");
    // Tests that run at the same time take CPUs from it.
    let own = 100.0 - found.get("run_queue").copied().unwrap_or_default();
    assert!(found["drive_reads"] > 0.8 * own, "{found:?}");
    assert!(rate(&throttled, "free_drive_gain_most").is_none(), "no drive removes the limit");
    // Without the limit it is faster, but not faster than with a drive that takes no time.
    let free = rate(&figures_of(disk, job), "ops_rate").expect("a rate");
    let real = free / rate(&throttled, "ops_rate").expect("a rate");
    assert!(real > 2.0, "{real}");
    if let Some(most) = rate(&throttled, "no_limit_gain_most").filter(|_| is_quiet(&said)) {
        assert!(real < most * 1.1, "{real}, at most {most}");
    }
}

/// A volume that is held at its operations per second: neither its media nor the CPU is slow.
#[test]
fn a_full_volume_is_bound_by_its_rate_limit() {
    let job = "engine = \"lmdb\"\nworkload = \"read_random\"\nrecords = 100_000\nclients = 16\n\
               cold_start = true";
    let (all, said) = run_of("device = \"model:aws-gp3\"", job);
    let found = shares_in(&all);
    assert_eq!(largest(&found), "rate_limit", "{found:?}");
    assert!(said.contains("advice: ") && said.contains("a higher limit than 3000 IOPS"), "{said}");
    let found = shares("device = \"model:samsung-pm9a3\"", job);
    assert!(!found.contains_key("rate_limit"), "{found:?}");
}

/// A range that does not contain what a drive without latency really gives is worse than none.
#[test]
fn the_gain_of_a_free_drive_is_in_its_range() {
    let job = "engine = \"lmdb\"\nworkload = \"overwrite\"\ndurability = \"device\"\nrecords = 1000\n\
               clients = [1, 4]";
    let mut compared = 0;
    for model in ["aws-gp3", "samsung-pm9a3"] {
        let stack = format!("device = \"model:{model}\"\nwhat_if = [\"drive\"]");
        let (all, said) = run_of(&stack, job);
        assert!(!said.contains("does not help"), "a free drive helps durable updates: {said}");
        for clients in ["1", "4"] {
            let value = |stack: &str, metric: &str, op: &str| {
                let found = all.iter().find(|one| {
                    let point = &one["point"];
                    let own = point["clients"].to_string().trim_matches('"') == clients;
                    own && one["stack"].as_str() == Some(stack)
                        && one["metric"].as_str() == Some(metric)
                        && point["op"].as_str() == Some(op)
                });
                found.and_then(|one| one["value"].as_f64())
            };
            let variant =
                all.iter().filter_map(|one| one["stack"].as_str()).find(|one| *one != "one");
            let rate = |stack| value(stack, "ops_rate", "write").expect("a rate");
            let real = rate(variant.expect("a variant")) / rate("one");
            let ends = ["free_drive_gain_least", "free_drive_gain_likely", "free_drive_gain_most"];
            let ends = ends.map(|metric| value("one", metric, "all"));
            let [Some(least), Some(likely), Some(most)] = ends else {
                // Not printed for a trial that is not steady.
                continue;
            };
            compared += 1;
            assert!(
                (least * 0.9..most * 1.1).contains(&real),
                "{model}, {clients} clients: {real}, printed {least} to {most}"
            );
            // Anything is between 1 and 1000.
            assert!(
                most / least < 30.0 && (0.5..2.0).contains(&(likely / real)),
                "{ends:?}, {real}"
            );
        }
    }
    assert!(compared >= 2, "{compared} of 4");
}

/// RocksDB is made to hold up its writer for most of the time: an operation that is not held up takes the
/// median, so the rest of the mean is the stalls.
#[test]
fn write_stalls_take_the_time_beyond_the_median() {
    if !has_rocksdb(&Scratch::new()) {
        return skip("write stalls of RocksDB on a model", "librocksdb");
    }
    let settings = "write_buffer_size=1048576;level0_file_num_compaction_trigger=2;\
                    level0_slowdown_writes_trigger=3;delayed_write_rate=4194304";
    let job = format!(
        "engine = \"rocksdb\"\nworkload = \"overwrite\"\nrecords = 50_000\noptions.settings = \"{settings}\""
    );
    let (all, said) = run_of("device = \"model:samsung-pm9a3\"", &job);
    assert!(said.contains("compaction that keeps up gives"), "{said}");
    let value = |metric: &str| {
        let found = all.iter().find(|one| one["metric"].as_str() == Some(metric));
        found.and_then(|one| one["value"].as_f64()).expect("a figure")
    };
    let expected = (1.0 - value("latency_p50") / value("latency_mean")) * 100.0;
    let found = shares_in(&all);
    assert_eq!(largest(&found), "stalls", "{found:?}");
    assert!((found["stalls"] - expected).abs() < 15.0, "{expected} of {found:?}");
    assert!((found["stalls"] - value("stall_share")).abs() < 5.0, "two numbers: {found:?}");
}
