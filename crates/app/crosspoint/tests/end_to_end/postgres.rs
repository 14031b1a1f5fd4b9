//! PostgreSQL from the command line: results, leftovers of killed programs, and servers of the user's.

use std::io::Write;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use engine::{Home, Hosting, Listen, Preload, PrivateServer, Target};
use engine_postgres::{Binary, Server, connect_briefly, initialise};
use serde_json::Value;
use stack::{Journal, WorkArea};

use crate::support::servers::{PASSWORD, figures, nothing_left, processes_on, value};
use crate::support::{Scratch, expect, finish, skip, start_and_wait, stderr, stdout};

/// Skips a test if no server is installed.
fn has_postgres(test: &str) -> Option<()> {
    let there = Binary::find("auto").is_ok();
    if !there {
        skip(test, "postgresql");
    }
    there.then_some(())
}

/// A study with one stack and experiments with these keys.
fn write_study(scratch: &Scratch, seconds: u32, experiments: &[(&str, &str)]) {
    let mut text =
        "schema = 2\nname = \"pg\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n".to_owned();
    for (name, keys) in experiments {
        text.push_str(&format!(
            "[[experiment]]\nname = \"{name}\"\nwarm_up = \"0s\"\nduration = \"{seconds}s\"\n\
             interval = \"250ms\"\n[experiment.job]\nengine = \"postgres\"\n{keys}"
        ));
    }
    std::fs::write(scratch.path().join("pg.toml"), text).expect("written");
}

const SYSBENCH: &str = "workload = \"read_write\"\nrecords = 2000\ntables = 2\nclients = 2\n";
const PGBENCH: &str = "workload = \"tpcb_like\"\nrecords = 100_000\nclients = 2\n";

/// Segments of System V shared memory, which no process holds.
fn left_segments() -> usize {
    let all = std::fs::read_to_string("/proc/sysvipc/shm").expect("segments");
    all.lines().skip(1).count()
}

/// Results of both kinds of scripts: rates, classes, counters and settings.
#[test]
fn transactions_are_measured_on_a_private_postgres() {
    let Some(()) = has_postgres("transactions of PostgreSQL") else { return };
    let scratch = Scratch::new();
    write_study(&scratch, 1, &[("sysbench", SYSBENCH), ("pgbench", PGBENCH)]);
    let output = scratch.run("run pg.toml --out run");
    expect(&output, 0);
    assert!(stdout(&output).contains("PostgreSQL transactions reach "), "{}", stdout(&output));
    let all = figures(&scratch);
    let of = |experiment: &str| -> Vec<Value> {
        all.iter().filter(|one| one["workload"] == experiment).cloned().collect()
    };
    for (experiment, class, per_transaction, queries) in
        [("sysbench", "point_select", 10.0, 20.0), ("pgbench", "teller_update", 1.0, 7.0)]
    {
        let figures = of(experiment);
        let whole = value(&figures, "tx_rate", "transaction");
        let parts = value(&figures, "ops_rate", class) / whole;
        assert!((parts / per_transaction - 1.0).abs() < 0.05, "{experiment}: {parts} of {class}");
        let all = value(&figures, "query_rate", "all") / whole;
        assert!((all / queries - 1.0).abs() < 0.05, "{experiment}: {all} statements");
        for metric in ["server_cpu", "buffer_pool_hit_ratio", "redo_bytes"] {
            assert!(value(&figures, metric, "all") > 0.0, "{experiment}: {metric}");
        }
    }
    let trial = scratch.path().join("run/trials/0002-pgbench-d/trial.json");
    let trial: Value = serde_json::from_slice(&std::fs::read(trial).expect("it")).expect("JSON");
    for (name, is) in [("fsync", "on"), ("synchronous_commit", "on"), ("listen_addresses", "")] {
        assert_eq!(trial["settings"][name], is, "{name}");
    }
    let samples = trial["counters"].as_array().expect("samples");
    let kinds = ["running or ready", "waiting for the log", "waiting for locks"];
    let busy = samples.iter().any(|sample| {
        let of = |kind: &str| sample["values"][format!("backends {kind}, 1")].as_f64().expect(kind);
        kinds.map(of).into_iter().sum::<f64>() > 0.0
    });
    assert!(busy, "no backend ever ran or waited: {samples:?}");
    for name in ["checkpoints running, 1", "vacuums running, 1", "log written, B/s"] {
        assert!(samples.iter().all(|sample| sample["values"][name].is_number()), "{name}");
    }
    nothing_left(&scratch);
}

/// A key without effect would be in the study and not in the run.
#[test]
fn keys_of_sysbench_are_refused_for_the_scripts_of_pgbench() {
    let scratch = Scratch::new();
    for key in ["tables = 2", "range_size = 10", "dialect = \"0.5\""] {
        write_study(&scratch, 1, &[("pgbench", &format!("{PGBENCH}{key}\n"))]);
        let output = scratch.run("plan pg.toml");
        let name = key.split(' ').next().expect("a key");
        let said = stderr(&output);
        assert!(!output.status.success() && said.contains("sysbench's scripts"), "{key}: {said}");
        assert!(said.contains(name), "{said}");
    }
}

/// A kill of the program, or of the server, leaves no process and no shared memory, and the run can go on.
#[test]
fn a_killed_program_or_server_leaves_nothing() {
    let Some(()) = has_postgres("a killed PostgreSQL") else { return };
    let segments = left_segments();
    let scratch = Scratch::new();
    write_study(&scratch, 20, &[("long", SYSBENCH)]);
    let words = ["run", "pg.toml", "--out", "run"];
    let (mut child, _errors) = start_and_wait(&scratch, &words);
    child.kill().expect("SIGKILL");
    child.wait().expect("it ended");
    expect(&scratch.run("clean"), 0);
    nothing_left(&scratch);
    write_study(&scratch, 20, &[("long", SYSBENCH)]);
    let (child, errors) = start_and_wait(&scratch, &["run", "pg.toml", "--out", "second"]);
    let server = first_server(scratch.path());
    assert!(crate::support::sh(&format!("kill -9 {server}")));
    let output = finish(child, errors);
    expect(&output, 6);
    assert!(stderr(&output).contains("ended by signal 9"), "{}", stderr(&output));
    nothing_left(&scratch);
    if crate::support::is_root() {
        assert_eq!(left_segments(), segments, "shared memory is left");
    }
}

/// Files of PostgreSQL in POSIX shared memory, which no process holds.
fn left_files() -> usize {
    let all = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    all.filter(|one| one.file_name().to_string_lossy().starts_with("PostgreSQL.")).count()
}

/// While it creates the system tables, PostgreSQL uses memory that outlives a kill: a MiB per killed run.
#[test]
fn a_killed_initialisation_leaves_no_shared_memory() {
    let Some(()) = has_postgres("a killed initialisation") else { return };
    if !crate::support::is_root() {
        return skip("a killed initialisation", "root, for a mount name space");
    }
    let binary = Binary::find("auto").expect("checked above");
    let dir = tempfile::tempdir().expect("a directory");
    let journal = Journal::new(&dir.path().join("state"), |_, _, _| Ok(()));
    let area = WorkArea::create(&journal, dir.path(), "initdb").expect("an area");
    let home = Home::make(&binary.path, area.path()).expect("a home");
    let user = std::fs::metadata(area.path()).expect("its owner").uid();
    let (before, seen) = (left_files(), std::cell::Cell::new(false));
    let mark = journal.mark();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let run = scope.spawn(|| initialise(&binary, &home, (mark, &stop), false));
        while !run.is_finished() {
            for process in std::fs::read_dir("/proc").expect("/proc").flatten() {
                let ours = process.metadata().is_ok_and(|entry| entry.uid() == user);
                let maps = ours.then(|| std::fs::read_to_string(process.path().join("maps")));
                if maps.is_some_and(|maps| maps.is_ok_and(|maps| maps.contains("/PostgreSQL."))) {
                    seen.set(true);
                    let number = process.file_name().into_string().expect("a number");
                    // It can have ended meanwhile.
                    crate::support::sh(&format!("kill -9 {number}"));
                }
            }
        }
        run.join().expect("no panic").expect_err("it was killed");
    });
    assert!(seen.get(), "its shared memory was never seen");
    assert_eq!(left_files(), before, "shared memory is left");
}

/// The oldest process of a server that was started from this directory.
fn first_server(place: &Path) -> u32 {
    let all = processes_on(place).into_iter().filter(|number| {
        std::fs::read_to_string(format!("/proc/{number}/comm"))
            .is_ok_and(|name| name.trim() == "postgres")
    });
    all.min().expect("a server")
}

/// A study of a log on a stack of its own; `other` has the data alone.
fn write_wal_study(scratch: &Scratch, stacks: [&str; 3], seconds: u32) {
    let [data, log, other] = stacks;
    let text = format!(
        "schema = 2\nname = \"pg\"\n[[stack]]\nname = \"split\"\n{data}wal = \"log\"\n\
         [[stack]]\nname = \"log\"\n{log}[[stack]]\nname = \"whole\"\n{other}\
         [[experiment]]\nname = \"e\"\nstacks = [\"split\", \"whole\"]\nwarm_up = \"0s\"\n\
         duration = \"{seconds}s\"\n[experiment.job]\nengine = \"postgres\"\n\
         workload = \"simple_update\"\nrecords = 100_000\nclients = 1\n"
    );
    std::fs::write(scratch.path().join("pg.toml"), text).expect("written");
}

/// Commits wait for the log: with it on a fast drive, a slow drive under the tables hardly matters.
#[test]
fn commits_take_the_time_of_the_logs_drive() {
    let Some(()) = has_postgres("a log on a modelled drive of its own") else { return };
    let scratch = Scratch::new();
    let [slow, fast] = ["samsung-990-pro", "intel-p4800x"]
        .map(|name| format!("device = \"model:{name}\"\ncores = 2\n"));
    write_wal_study(&scratch, [&slow, &fast, &slow], 1);
    expect(&scratch.run("run pg.toml --out run"), 0);
    let rate = |stack: &str| -> f64 {
        let all = figures(&scratch);
        let of = all.into_iter().filter(|one| one["stack"] == stack).collect::<Vec<_>>();
        value(&of, "tx_rate", "transaction")
    };
    let (split, whole) = (rate("split"), rate("whole"));
    assert!(split > 2.5 * whole, "{split} commits/s with the log on Optane, {whole} without");
}

/// The log must be where the study says, or its drive would get the credit of another; and a kill must not
/// leave it there.
#[test]
fn the_log_is_in_the_directory_of_its_stack() {
    let Some(()) = has_postgres("a log in a directory of its own") else { return };
    let scratch = Scratch::new();
    // The server of root sees its own directory there instead.
    let outside = if crate::support::is_root() { Path::new("/mnt") } else { scratch.path() };
    let disk = tempfile::tempdir_in(outside).expect("a directory");
    let place = disk.path();
    let here = "device = \"file\"\n";
    let there = format!("{here}directory = \"{}\"\n", place.display());
    write_wal_study(&scratch, [here, &there, &format!("{here}wal = \"log\"\n")], 1);
    // Each stack keeps its own log there from one job to the next.
    expect(&scratch.run("run pg.toml --out short --set experiment.e.job.clients=[1,2]"), 0);
    write_wal_study(&scratch, [here, &there, here], 20);
    let words = ["run", "pg.toml", "--out", "run"];
    let (mut child, _errors) = start_and_wait(&scratch, &words);
    let segments =
        format!("ls {}/.crosspoint-work-*/wal-split/0000* | grep -q 0000", place.display());
    let left = format!("ls {}/.crosspoint-work-*/*/data/pg_wal/0*", scratch.path().display());
    let (found, twice) = (crate::support::sh(&segments), crate::support::sh(&left));
    child.kill().expect("SIGKILL");
    child.wait().expect("it ended");
    assert!(found, "no log in {}", place.display());
    assert!(!twice || !crate::support::is_root(), "the log is with the data");
    expect(&scratch.run("clean"), 0);
    nothing_left(&scratch);
    assert_eq!(std::fs::read_dir(place).expect("a directory").count(), 0, "the log is left");
}

/// A server that plays the user's own, with a database of its tables, and an empty one.
struct Theirs {
    server: Server,
    _area: WorkArea,
    _dir: tempfile::TempDir,
}

impl Theirs {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let journal: &'static Journal =
            Box::leak(Box::new(Journal::new(&dir.path().join("state"), |_, _, _| Ok(()))));
        let area = WorkArea::create(journal, dir.path(), "theirs").expect("an area");
        let binary = Binary::find("auto").expect("a server");
        let place = area.fresh("database").expect("a directory");
        let text = format!(
            "schema = 2\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n[[experiment]]\n\
             name = \"e\"\n[experiment.job]\nengine = \"postgres\"\n{SYSBENCH}"
        );
        let plan = study::plan(&study::parse(&text, engines::list()).expect("a study"));
        let study::Job::Sql(job) = plan.trials[0].job.clone() else { panic!("a SQL job") };
        let never = AtomicBool::new(false);
        let home = Home::make(&binary.path, &place).expect("folders");
        initialise(&binary, &home, (journal.mark(), &never), false).expect("a data directory");
        let log = dir.path().join("theirs.log");
        let (limits, pool) = (&stack::Limits::default(), units::Bytes::mib(32));
        let private = PrivateServer {
            place: &place,
            log: &log,
            pool,
            limits,
            preload: Preload::None,
            wal: None,
        };
        let hosting = Hosting { journal, stop: &never };
        let server = Server::start(&binary, hosting, (&home, private), (&Listen::Own, &job));
        let server = server.expect("it starts");
        let hba = std::fs::OpenOptions::new().append(true).open(place.join("data/pg_hba.conf"));
        hba.expect("accounts").write_all(b"local all all scram-sha-256\n").expect("written");
        let mut conn = connect_briefly(&server.target(None)).expect("a connection");
        for statement in [
            "SELECT pg_reload_conf()".to_owned(),
            format!("CREATE ROLE rich LOGIN PASSWORD '{PASSWORD}'"),
            format!("CREATE ROLE poor LOGIN PASSWORD '{PASSWORD}'"),
            "CREATE DATABASE mine OWNER rich".into(),
            "CREATE DATABASE empty OWNER rich".into(),
        ] {
            conn.run(&statement).expect("it is allowed");
        }
        Self { server, _area: area, _dir: dir }
    }

    /// The owner's account.
    fn rich(&self, database: &str) -> Target {
        let password = Some(engine::Secret::new(PASSWORD.into()));
        Target { user: "rich".into(), password, ..self.server.target(Some(database)) }
    }

    /// The values that ALTER SYSTEM gave variables.
    fn altered(&self) -> Vec<Vec<Option<String>>> {
        let mut conn = connect_briefly(&self.server.target(None)).expect("a connection");
        let all = "SELECT name, setting FROM pg_file_settings WHERE sourcefile LIKE '%auto.conf'";
        conn.rows(all).expect("settings")
    }

    fn keys(&self, user: &str, database: &str) -> String {
        format!("{SYSBENCH}dsn = \"postgresql://{user}@{}:{database}\"\n", self.server.address())
    }
}

/// Tables, roles and settings of a user's cluster must stay as they were, except for what the study names.
#[test]
fn a_users_cluster_stays_untouched() {
    let Some(()) = has_postgres("a user's PostgreSQL") else { return };
    let theirs = Theirs::start();
    let mut conn = connect_briefly(&theirs.rich("mine")).expect("a connection");
    conn.run(
        "CREATE TABLE sbtest1 AS SELECT n * 3 AS id, 'mine' AS c FROM generate_series(1, 2000) n; \
         CREATE TABLE letters (text TEXT); INSERT INTO letters VALUES ('dear')",
    )
    .expect("tables");
    let mut sum = || {
        let all = "SELECT count(*) || ' ' || sum(id) || ' ' || (SELECT string_agg(text, ',') FROM letters) \
                   FROM sbtest1 WHERE c = 'mine'";
        conn.one(all).expect("an answer").expect("a row")
    };
    let before = sum();
    let mut admin = connect_briefly(&theirs.server.target(None)).expect("a connection");
    let mut cluster = || {
        let roles = "SELECT rolname FROM pg_roles UNION ALL SELECT datname FROM pg_database \
                     UNION ALL SELECT name || setting FROM pg_settings ORDER BY 1";
        admin.rows(roles).expect("roles")
    };
    let roles = cluster();
    let scratch = Scratch::new();
    let run = |keys: &str, password: &str, code: i32| {
        write_study(&scratch, 1, &[("e", keys)]);
        let mut command = scratch.crosspoint();
        command.args(["run", "pg.toml", "--out", "run"]).env("CROSSPOINT_SQL_PASSWORD", password);
        let output = command.output().expect("it starts");
        expect(&output, code);
        let said = stderr(&output) + &stdout(&output);
        assert!(!said.contains(PASSWORD), "{said}");
        let _ = std::fs::remove_dir_all(scratch.path().join("run"));
        said
    };
    let said = run(&theirs.keys("rich", "mine"), PASSWORD, 4);
    assert!(said.contains("tables that Crosspoint did not make"), "{said}");
    assert!(said.contains("allow_overwrite = \"mine\""), "{said}");
    let said = run(&theirs.keys("rich", "empty"), "wrong", 5);
    assert!(said.contains("CROSSPOINT_SQL_PASSWORD"), "{said}");
    let said = run(&theirs.keys("poor", "empty"), PASSWORD, 5);
    assert!(said.contains("user poor cannot fill tables in database empty"), "{said}");
    // An empty database becomes ours, and stays so.
    run(&theirs.keys("rich", "empty"), PASSWORD, 0);
    run(&theirs.keys("rich", "empty"), PASSWORD, 0);
    let other = theirs.keys("rich", "empty").replace("records = 2000", "records = 3000");
    let said = run(&other, PASSWORD, 4);
    assert!(said.contains("tables of another study"), "{said}");
    assert_eq!(sum(), before, "the user's tables");
    // What depends on a table keeps all of them, even if they are given up.
    let given = format!("{}allow_overwrite = \"mine\"\n", theirs.keys("rich", "mine"));
    let mut conn = connect_briefly(&theirs.rich("mine")).expect("a connection");
    conn.run("CREATE VIEW seen AS SELECT id FROM sbtest1").expect("a view");
    let said = run(&given, PASSWORD, 6);
    assert!(said.contains("none was dropped"), "{said}");
    conn.run("DROP VIEW seen").expect("dropped");
    run(&given, PASSWORD, 0);
    let letters = conn.one("SELECT text FROM letters").expect("an answer");
    assert_eq!(letters.as_deref(), Some("dear"), "a table that the study does not fill");
    assert_eq!(cluster(), roles, "roles, databases and settings");
}

/// A variable that stays changed after a trial, or after a kill, spoils the user's server.
#[test]
fn variables_of_a_users_server_are_restored() {
    let Some(()) = has_postgres("variables of a user's PostgreSQL") else { return };
    let theirs = Theirs::start();
    let mut conn = connect_briefly(&theirs.server.target(None)).expect("a connection");
    conn.run("CREATE DATABASE ours").expect("created");
    conn.run("ALTER SYSTEM SET work_mem = '5MB'").expect("set");
    let before = theirs.altered();
    assert_eq!(before.len(), 1, "{before:?}");
    let account = theirs.server.target(None).password.expect("a password");
    let scratch = Scratch::new();
    let command = |words: &[&str]| {
        let mut command = scratch.crosspoint();
        command.args(words).env("CROSSPOINT_SQL_PASSWORD", account.text());
        command
    };
    let change = |set: &str| format!("change = [{{ at = \"100ms\", set = \"{set}\" }}]\n");
    let keys = theirs.keys("crosspoint", "ours");
    let both = change("work_mem=8MB;checkpoint_timeout=17min");
    write_study(&scratch, 1, &[("e", &format!("{keys}{both}"))]);
    let output = command(&["run", "pg.toml", "--out", "run"]).output().expect("it starts");
    expect(&output, 0);
    let trial = scratch.path().join("run/trials/0001-e-d/trial.json");
    let trial: Value = serde_json::from_slice(&std::fs::read(trial).expect("it")).expect("JSON");
    assert_eq!(trial["settings"]["checkpoint_timeout"], "17min", "the change took effect");
    assert_eq!(theirs.altered(), before);
    // A killed run owes the restoration to `clean`.
    write_study(&scratch, 20, &[("e", &format!("{keys}{both}"))]);
    let killed = command(&["run", "pg.toml", "--out", "killed", "--progress", "plain"]);
    let (mut child, _errors) = crate::support::wait_for_interval(killed);
    child.kill().expect("SIGKILL");
    child.wait().expect("it ended");
    assert_ne!(theirs.altered(), before);
    expect(&command(&["clean"]).output().expect("it starts"), 0);
    assert_eq!(theirs.altered(), before);
    // What takes a restart would be reported without being true.
    write_study(&scratch, 1, &[("e", &format!("{keys}{}", change("huge_pages=off")))]);
    let output = command(&["run", "pg.toml", "--out", "third"]).output().expect("it starts");
    assert!(stderr(&output).contains("takes effect at the server's start alone"), "{output:?}");
    assert_eq!(theirs.altered(), before);
}
