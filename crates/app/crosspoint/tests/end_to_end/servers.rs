//! SQL trials from the command line, on a real MariaDB: results, messages and leftovers when the server, its
//! disk or the study's settings are wrong.
//!
//! Every failure is real: SIGKILL, a full file system, a taken port, a user without privileges.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::support::servers::{
    LONG, PASSWORD, SHORT, SMALL, Theirs, figures, has_server, nothing_left, servers_on, value,
    write_study,
};
use crate::support::{Scratch, expect, finish, is_root, skip, start_and_wait, stderr, stdout};
use engine_mysql::connect_briefly;
use serde_json::Value;

/// Results of a SQL study: rates, classes, counters, settings; the second trial reuses the tables of the
/// first.
#[test]
fn transactions_are_measured_by_statement_on_a_server_of_our_own() {
    let Some(()) = has_server("a server of our own") else { return };
    let scratch = Scratch::new();
    let keys = format!("{SMALL}workload = [\"read_write\", \"read_only\"]\n");
    write_study(&scratch, "", &[("e", SHORT, &keys)]);
    let output = scratch.run("run sql.toml --out run");
    expect(&output, 0);
    assert!(stderr(&output).contains("tables of an earlier trial"), "{}", stderr(&output));
    assert!(stdout(&output).contains("MariaDB transactions reach "), "{}", stdout(&output));
    let figures = figures(&scratch);
    let whole = value(&figures, "tx_rate", "transaction");
    assert!(whole > 1.0);
    let points = value(&figures, "ops_rate", "point_select");
    assert!((points / whole / 10.0 - 1.0).abs() < 0.05, "{points} points for {whole}");
    let queries = value(&figures, "query_rate", "all");
    assert!((queries / whole / 20.0 - 1.0).abs() < 0.05, "{queries} queries for {whole}");
    for (metric, op) in [
        ("latency_p50", "commit"),
        ("latency_mean", "read_phase"),
        ("latency_mean", "write_phase"),
        ("cpu_per_query", "all"),
        ("server_cpu", "all"),
        ("buffer_pool_hit_ratio", "all"),
        ("load_time", "load"),
    ] {
        value(&figures, metric, op);
    }
    let trial = scratch.path().join("run/trials/0001-e-d/trial.json");
    let trial: Value =
        serde_json::from_str(&std::fs::read_to_string(trial).expect("a trial")).expect("JSON");
    assert_eq!(trial["settings"]["innodb_flush_log_at_trx_commit"], "1");
    assert_eq!(trial["settings"]["skip_networking"], "ON");
    assert!(!trial["counters"].as_array().expect("samples").is_empty());
    nothing_left(&scratch);
}

/// A server crash is a failed trial with the server's last messages; the next trial has a server again.
#[test]
fn a_server_that_is_killed_fails_its_trial_and_no_other() {
    let Some(()) = has_server("a server that is killed") else { return };
    for keep in [true, false] {
        let scratch = Scratch::new();
        let kept = format!("{SMALL}keep_failed = {keep}\n");
        write_study(&scratch, "", &[("first", LONG, &kept), ("second", SHORT, SMALL)]);
        let words = ["run", "sql.toml", "--out", "run"];
        let (child, errors) = start_and_wait(&scratch, &words);
        let server = servers_on(scratch.path());
        assert_eq!(server.len(), 1, "one server runs");
        assert!(crate::support::sh(&format!("kill -9 {}", server[0])));
        let output = finish(child, errors);
        expect(&output, 6);
        let said = stderr(&output);
        let failure = said.lines().find(|line| line.contains("ended by signal 9"));
        let failure = failure.unwrap_or_else(|| panic!("not told: {said}"));
        // The log's last lines, in the server's own words.
        assert!(failure.contains("the last lines of its log"), "{failure}");
        assert!(failure.contains("ready for connections"), "{failure}");
        let data = scratch.path().join("run/kept-0001-first-d/data/ibdata1");
        assert_eq!(data.exists(), keep, "the data directory");
        let figures = figures(&scratch);
        let second = figures.iter().find(|f| f["workload"] == "second" && f["metric"] == "tx_rate");
        assert!(second.is_some_and(|f| f["value"].as_f64() > Some(1.0) && f["partial"] == false));
        nothing_left(&scratch);
    }
}

/// A kill of the program ends its server, and `clean` and `--resume` do the rest.
#[test]
fn a_killed_program_leaves_no_server_and_can_go_on() {
    let Some(()) = has_server("a program that is killed") else { return };
    let scratch = Scratch::new();
    let keys = format!("{SMALL}workload = [\"read_only\", \"point_select\"]\n");
    let times = "warm_up = \"0s\"\nmeasure = \"2s\"\ninterval = \"250ms\"\n";
    write_study(&scratch, "", &[("e", times, &keys)]);
    let (mut child, _errors) = start_and_wait(&scratch, &["run", "sql.toml", "--out", "run"]);
    child.kill().expect("SIGKILL");
    child.wait().expect("it ended");
    expect(&scratch.run("clean"), 0);
    nothing_left(&scratch);
    expect(&scratch.run("run --resume run"), 0);
    nothing_left(&scratch);
}

/// A full disk is reported as full, whatever the server calls it.
#[test]
fn a_full_disk_is_told_and_nothing_stays_mounted() {
    let Some(()) = has_server("a full disk under a server") else { return };
    if !is_root() {
        skip("a full disk under a server", "root");
        return;
    }
    let scratch = Scratch::new();
    // The server's own files fit; a table of 200 MB does not.
    let stack = "file_system = \"ext4\"\nsize = \"192MiB\"\n";
    let large = "rows = 900000\ntables = 1\nthreads = 1\nredo_log = \"16MiB\"\n";
    let small = "rows = 2000\ntables = 1\nthreads = 1\nredo_log = \"16MiB\"\n";
    write_study(&scratch, stack, &[("large", SHORT, large), ("small", SHORT, small)]);
    scratch.fails("run sql.toml --out run", 6, &["the file system is full"]);
    let rates = figures(&scratch);
    assert!(rates.iter().any(|f| f["workload"] == "small" && f["metric"] == "tx_rate"));
    nothing_left(&scratch);
}

fn refused(scratch: &Scratch, code: i32, told: &[&str]) -> Output {
    let output = scratch.run("run sql.toml --out run");
    expect(&output, code);
    let said = stderr(&output);
    for words in told {
        assert!(said.contains(words), "`{words}` is not in: {said}");
    }
    nothing_left(scratch);
    output
}

/// Obstacles must be reported before anything is created.
#[test]
fn a_taken_place_and_an_old_server_are_told_before_anything_is_made() {
    let Some(()) = has_server("a taken port") else { return };
    let scratch = Scratch::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("its number").port();
    let keys = format!("{SMALL}listen = \"127.0.0.1:{port}\"\n");
    write_study(&scratch, "", &[("e", SHORT, &keys)]);
    refused(&scratch, 5, &["is not available", "choose another place to listen"]);
    drop(taken);
    let old = scratch.path().join("old-server");
    std::fs::write(&old, "#!/bin/sh\necho 'mysqld  Ver 5.1.73 for Linux on x86_64'\n").expect("it");
    std::fs::set_permissions(&old, std::fs::Permissions::from_mode(0o755)).expect("rights");
    let keys = format!("{SMALL}server = \"{}\"\n", old.display());
    write_study(&scratch, "", &[("e", SHORT, &keys)]);
    refused(&scratch, 5, &["MySQL 5.1.73 is too old; needed: 5.7 or later"]);
    let keys = format!("{SMALL}server = \"/no/such/server\"\n");
    write_study(&scratch, "", &[("e", SHORT, &keys)]);
    refused(&scratch, 5, &["/no/such/server", "server = \"auto\""]);
    assert!(!scratch.path().join("run/run.json").exists(), "nothing was begun");
}

/// A setting unknown to the server must end the trial with the server's own error.
#[test]
fn a_wrong_setting_is_told_in_the_servers_words() {
    let Some(()) = has_server("a wrong setting") else { return };
    let scratch = Scratch::new();
    let keys = format!("{SMALL}settings = \"innodb_no_such_thing=1\"\n");
    write_study(&scratch, "", &[("e", SHORT, &keys)]);
    refused(&scratch, 6, &["unknown variable", "innodb_no_such_thing"]);
}

/// A user's server needs only the documented privileges; errors name the missing one and never show a
/// password.
#[test]
fn a_server_of_the_users_is_used_with_its_rights_and_no_password_is_kept() {
    let Some(()) = has_server("a server supplied by the user") else { return };
    let theirs = Theirs::start();
    let scratch = Scratch::new();
    let run = |password: Option<&str>| {
        let mut command = scratch.crosspoint();
        command.args(["run", "sql.toml", "--out", "run"]);
        if let Some(password) = password {
            command.env("CROSSPOINT_SQL_PASSWORD", password);
        }
        command.output().expect("it starts")
    };
    write_study(&scratch, "", &[("e", SHORT, &theirs.keys("rich", "mine"))]);
    let output = run(Some("wrong-guess"));
    expect(&output, 5);
    assert!(stderr(&output).contains("CROSSPOINT_SQL_PASSWORD"), "{}", stderr(&output));
    assert!(!stderr(&output).contains("wrong-guess"));
    write_study(&scratch, "", &[("e", SHORT, &theirs.keys("rich", "no_such"))]);
    let output = run(Some(PASSWORD));
    expect(&output, 5);
    write_study(&scratch, "", &[("e", SHORT, &theirs.keys("poor", "mine"))]);
    let output = run(Some(PASSWORD));
    expect(&output, 5);
    let said = stderr(&output);
    assert!(said.contains("lacks CREATE in database mine"), "{said}");
    assert!(
        said.contains(
            "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, INDEX ON mine.* TO poor"
        )
    );
    let nobody = format!("{SMALL}dsn = \"mysql://me@127.0.0.1:1/mine\"\n");
    write_study(&scratch, "", &[("e", SHORT, &nobody)]);
    refused(&scratch, 5, &["no connection to 127.0.0.1:1 as me", "is the server running?"]);
    write_study(&scratch, "", &[("e", SHORT, &theirs.keys("rich", "mine"))]);
    expect(&run(Some(PASSWORD)), 0);
    assert!(value(&figures(&scratch), "tx_rate", "transaction") > 1.0);
    assert!(connect_briefly(&theirs.server.target(Some("mine"))).is_ok(), "their server lives");
    let mut files = Vec::new();
    everything(scratch.path(), &mut files);
    assert!(files.len() > 5);
    for file in files {
        let bytes = std::fs::read(&file).expect("it can be read");
        let found = bytes.windows(PASSWORD.len()).any(|part| part == PASSWORD.as_bytes());
        assert!(!found, "the password is in {}", file.display());
    }
    // A password in the study is refused and not echoed.
    let with = theirs.keys("rich:secret-in-study", "mine");
    write_study(&scratch, "", &[("e", SHORT, &with)]);
    let output = scratch.run("run sql.toml --out other");
    expect(&output, 3);
    assert!(stderr(&output).contains("CROSSPOINT_SQL_PASSWORD"), "{}", stderr(&output));
    assert!(!stderr(&output).contains("secret-in-study"), "{}", stderr(&output));
    theirs.server.stop().expect("it stops");
}

fn everything(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("it is there").flatten() {
        if entry.file_type().expect("a kind").is_dir() {
            everything(&entry.path(), files);
        } else {
            files.push(entry.path());
        }
    }
}

/// An open loop must offer its rate, with response times from when transactions were due.
#[test]
fn transactions_that_are_due_by_a_rate_come_at_that_rate() {
    let Some(()) = has_server("an open loop") else { return };
    let scratch = Scratch::new();
    let keys = format!("{SMALL}workload = \"point_select\"\nrate = \"400/s\"\n");
    let times = "warm_up = \"500ms\"\nmeasure = \"3s\"\ninterval = \"250ms\"\n";
    write_study(&scratch, "", &[("e", times, &keys)]);
    expect(&scratch.run("run sql.toml --out run"), 0);
    let figures = figures(&scratch);
    let rate = value(&figures, "tx_rate", "transaction");
    // 1200 arrivals on average: three standard deviations are 9 %.
    assert!((rate / 400.0 - 1.0).abs() < 0.12, "{rate}");
    let response = value(&figures, "latency_p50", "transaction");
    let service = value(&figures, "service_time_p50", "transaction");
    assert!(response >= service, "{response} {service}");
    nothing_left(&scratch);
}

/// Clients in four processes must be one load, with all their transactions, that starts at once.
#[test]
fn clients_in_several_processes_are_one_load() {
    let Some(()) = has_server("load generators") else { return };
    let scratch = Scratch::new();
    let keys =
        "rows = 2000\ntables = 2\nthreads = 6\nworkload = \"point_select\"\nrate = \"400/s\"\n";
    let times = "warm_up = \"500ms\"\nmeasure = \"3s\"\ninterval = \"250ms\"\n";
    write_study(&scratch, "", &[("e", times, keys)]);
    let own = env!("CARGO_BIN_EXE_crosspoint");
    let words = ["local", "local", own].map(|one| format!("--load-generator {one}")).join(" ");
    let output = scratch.run(&format!("run sql.toml --out run {words}"));
    expect(&output, 0);
    assert!(stderr(&output).contains("clients in 4 processes"), "{}", stderr(&output));
    let figures = figures(&scratch);
    // 1200 arrivals on average: three standard deviations are 9 %. A quarter would be those of one process.
    let rate = value(&figures, "tx_rate", "transaction");
    assert!((rate / 400.0 - 1.0).abs() < 0.12, "{rate}");
    assert!(value(&figures, "start_skew", "all") < 1e6, "microseconds");
    nothing_left(&scratch);

    // One that cannot be reached fails the trial before anything is measured.
    write_study(&scratch, "", &[("e", LONG, "rows = 2000\ntables = 2\nthreads = 6\n")]);
    let began = std::time::Instant::now();
    let output = scratch.run("run sql.toml --out lost --load-generator false");
    expect(&output, 6);
    assert!(stderr(&output).contains("clients of false: "), "{}", stderr(&output));
    assert!(began.elapsed() < std::time::Duration::from_secs(19), "less than its trial");
    // Another load than before must not be mixed in.
    let output = scratch.run("run --resume lost --again failed");
    expect(&output, 2);
    assert!(stderr(&output).contains("begun with 1"), "{}", stderr(&output));
    nothing_left(&scratch);
}

/// The same transactions without a server: SQLite, in the process of its clients.
#[test]
fn sqlite_does_the_same_transactions() {
    let scratch = Scratch::new();
    let keys = format!("{SMALL}engine = \"sqlite\"\n");
    write_study(&scratch, "", &[("e", SHORT, &keys)]);
    let output = scratch.run("run sql.toml --out run");
    expect(&output, 0);
    let said = stdout(&output);
    assert!(said.starts_with("SQLite transactions reach ") && said.contains("/s on d"), "{said}");
    let figures = figures(&scratch);
    let whole = value(&figures, "tx_rate", "transaction");
    let points = value(&figures, "ops_rate", "point_select");
    assert!((points / whole / 10.0 - 1.0).abs() < 0.10, "{points} points for {whole}");
    value(&figures, "latency_mean", "insert");
    nothing_left(&scratch);
}

/// Two servers run at once, each on its own stack, until both have finished.
#[test]
fn a_race_is_run_at_once_and_timed() {
    let Some(()) = has_server("a race") else { return };
    let scratch = Scratch::new();
    let times = "warm_up = \"0s\"\nmeasure = \"60s\"\ninterval = \"250ms\"\n";
    let keys = format!("{SMALL}race = true\ntransactions = 300\n");
    let second = "[[stack]]\nname = \"other\"\ndevice = \"file\"\n";
    write_study(&scratch, second, &[("race", times, &keys)]);
    scratch.prints("run sql.toml --out run", 0, &["finishes 300 transactions"]);
    let figures = figures(&scratch);
    let times: Vec<&Value> = figures.iter().filter(|f| f["metric"] == "race_time").collect();
    assert_eq!(times.len(), 2);
    let ratios: Vec<f64> = figures
        .iter()
        .filter(|f| f["metric"] == "speedup")
        .filter_map(|f| f["value"].as_f64())
        .collect();
    assert!(ratios.len() == 2 && ratios.iter().any(|ratio| (ratio - 1.0).abs() < 1e-9));
    // As after a kill between the records of the racers: the other one runs alone, which is not a race.
    let trials = std::fs::read_dir(scratch.path().join("run/trials")).expect("trials");
    let second = trials.flatten().find(|one| one.file_name().to_string_lossy().starts_with("0002"));
    std::fs::remove_dir_all(second.expect("the second racer").path()).expect("removed");
    let output = scratch.run("run --resume run");
    expect(&output, 0);
    assert!(!stdout(&output).contains("finishes "), "{}", stdout(&output));
    assert!(!self::figures(&scratch).iter().any(|figure| figure["metric"] == "speedup"));
    nothing_left(&scratch);
}
