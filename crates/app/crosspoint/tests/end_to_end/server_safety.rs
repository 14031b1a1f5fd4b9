//! Servers on shared machines: access, ownership of tables, restored settings, hangs.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use crate::support::servers::{
    LONG, PASSWORD, SHORT, SMALL, Theirs, has_server, nothing_left, servers_on, write_study,
};
use crate::support::{Scratch, expect, finish, needs, start_and_wait, stderr, stdout};
use engine_mysql::connect_briefly;
use mysql::prelude::Queryable;
use serde_json::Value;

/// Skips unless root can become another user.
fn has_others(test: &str) -> Option<()> {
    needs(test, &["root", "setpriv", "mariadb"])
}

/// Runs a shell line as an unrelated user.
fn as_nobody(script: &str) -> Output {
    let words = ["--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "-c", script];
    std::process::Command::new("setpriv").args(words).output().expect("setpriv")
}

/// A private server must not give local users a root shell: it must not run as root, with an empty password,
/// in open directories.
#[test]
fn nobody_else_gets_into_a_private_server_or_at_its_files() {
    let test = "others next to a private server";
    let Some(()) = has_server(test) else { return };
    let Some(()) = has_others(test) else { return };
    // World-readable, so that only our own protection counts.
    let scratch = Scratch { dir: tempfile::tempdir_in("/var/tmp").expect("a directory") };
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(scratch.path(), open).expect("rights");
    let port =
        TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
    let keys = format!("{SMALL}listen = \"127.0.0.1:{port}\"\n");
    write_study(&scratch, "", &[("e", LONG, &keys)]);
    let (child, errors) = start_and_wait(&scratch, &["run", "sql.toml", "--out", "run"]);
    let server = servers_on(scratch.path());
    let [server] = server.as_slice() else { panic!("one server: {server:?}") };
    let status = std::fs::read_to_string(format!("/proc/{server}/status")).expect("its status");
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:")).expect("its user");
    let uid: u32 = uid.split_whitespace().next().and_then(|n| n.parse().ok()).expect("a number");
    assert!((61_184..=65_519).contains(&uid), "a user of its own, not {uid}");
    let accounts = std::fs::read_to_string("/etc/passwd").expect("accounts");
    assert!(!accounts.lines().any(|line| line.split(':').nth(2) == Some(&uid.to_string())));
    let socket = format!("/proc/{server}/cwd/crosspoint.sock");
    let area = scratch.leftovers().into_iter().find(|path| path.is_dir()).expect("a work area");
    let state = scratch.state();
    // The protected data must exist, and root must reach it.
    let data = area.join("database/data/ibdata1");
    assert!(crate::support::sh(&format!(
        "head -c 1 {} >/dev/null && test -S {socket}",
        data.display()
    )));
    // Attempts by a user who knows the path.
    for script in [
        format!("ls {}", area.display()),
        format!("cat {}/database/data/ibdata1", area.display()),
        format!("ls {0} || ls {0}/undo", state.display()),
        format!("echo x > {}/run/run.json", scratch.path().display()),
        format!("touch {}/run/new", scratch.path().display()),
        format!("mariadb -uroot --socket={socket} -e 'select 1'"),
        format!("cat /proc/{server}/environ"),
    ] {
        assert!(!as_nobody(&script).status.success(), "{script}");
    }
    // Root has no account, nor has any user over TCP; and our account cannot write files elsewhere.
    for words in ["-uroot", "-ucrosspoint", "-umysql", "-u ''"] {
        for place in [format!("--socket={socket}"), format!("-h127.0.0.1 -P{port}")] {
            let script =
                format!("mariadb {words} {place} -e 'select 1' 2>&1 | grep -q 'ERROR 1045'");
            assert!(crate::support::sh(&script), "{script}");
        }
    }
    // SAFETY: interrupts the child that this test started and has not waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
    expect(&finish(child, errors), 130);
    let trial = scratch.path().join("run/trials/0001-e-d/trial.json");
    let trial: Value =
        serde_json::from_slice(&std::fs::read(trial).expect("a trial")).expect("JSON");
    for (name, inside) in
        [("secure_file_priv", "/files/"), ("tmpdir", "/tmp"), ("datadir", "/data/")]
    {
        let value = trial["settings"][name].as_str().unwrap_or_default();
        assert!(value.ends_with(inside) && !value.starts_with("/tmp"), "{name} = {value}");
    }
    nothing_left(&scratch);
}

/// Servers started at the same time must not remove each other's temporary tables from a shared directory.
#[test]
fn servers_that_start_at_once_do_not_disturb_each_other() {
    let Some(()) = has_server("servers that start at once") else { return };
    // A server ends with the thread that started it.
    let one = || Theirs::start().server.stop().expect("it stops");
    let threads: Vec<_> = (0..6).map(|_| std::thread::spawn(one)).collect();
    for thread in threads {
        thread.join().expect("it starts");
    }
}

/// Tables that we did not create must never be written to: 588 of 2000 rows of a user's table once were.
#[test]
fn tables_that_we_did_not_make_are_never_written_to() {
    let Some(()) = has_server("tables of the user's") else { return };
    let theirs = Theirs::start();
    let mut conn = connect_briefly(&theirs.server.target(Some("mine"))).expect("a connection");
    conn.query_drop("CREATE TABLE sbtest1 (id INT PRIMARY KEY, k INT, c CHAR(120), pad CHAR(60))")
        .expect("a table");
    conn.query_drop("INSERT INTO sbtest1 SELECT seq * 3, 7, 'mine', 'mine' FROM seq_1_to_2000")
        .expect("rows");
    // Tables whose names only resemble those of the workload.
    for name in ["sbtest0", "sbtest01", "sbtest7", "sbtest1x"] {
        conn.query_drop(format!("CREATE TABLE {name} (id INT)")).expect("a table");
    }
    conn.query_drop("CREATE TABLE letters (text CHAR(10))").expect("a table");
    conn.query_drop("INSERT INTO letters VALUES ('dear')").expect("a row");
    let mut sum = move || -> (u64, Option<u64>, u64) {
        let all = "SELECT COUNT(*), SUM(id * k), (SELECT COUNT(*) FROM letters) \
                   FROM sbtest1 WHERE c = 'mine'";
        conn.query_first(all).expect("an answer").expect("a row")
    };
    let before = sum();
    assert_eq!(before.0, 2000);
    let scratch = Scratch::new();
    let run = |words: &[&str]| {
        let mut command = scratch.crosspoint();
        command.args(words).env("CROSSPOINT_SQL_PASSWORD", PASSWORD).output().expect("it starts")
    };
    let keys = theirs.keys("rich", "mine");
    write_study(&scratch, "", &[("e", SHORT, &keys)]);
    let output = run(&["run", "sql.toml", "--out", "one"]);
    expect(&output, 4);
    let said = stderr(&output);
    assert!(said.contains("tables that Crosspoint did not make: letters, sbtest0"), "{said}");
    assert!(said.contains("allow_overwrite = \"mine\""), "{said}");
    assert_eq!(sum(), before);
    // A wrong name gives up nothing.
    write_study(&scratch, "", &[("e", SHORT, &format!("{keys}allow_overwrite = \"other\"\n"))]);
    expect(&run(&["run", "sql.toml", "--out", "two"]), 3);
    assert_eq!(sum(), before);
    // Given up by name: the plan says so, and only the workload's tables are dropped.
    write_study(&scratch, "", &[("e", SHORT, &format!("{keys}allow_overwrite = \"mine\"\n"))]);
    let output = run(&["plan", "sql.toml"]);
    assert!(stdout(&output).contains("overwrites: tables sbtest1"), "{}", stdout(&output));
    expect(&run(&["run", "sql.toml", "--out", "three"]), 0);
    assert_eq!((sum().0, sum().2), (0, 1));
    let mut conn = connect_briefly(&theirs.server.target(Some("mine"))).expect("a connection");
    for name in ["sbtest0", "sbtest01", "sbtest7", "sbtest1x"] {
        conn.query_drop(format!("DROP TABLE {name}")).expect("it is still there");
    }
    // A probe table left by a kill is dropped; a user's table of that name stops the run.
    let probe = "CREATE TABLE crosspoint_may_this_user (id INT) COMMENT";
    conn.query_drop(format!("{probe}='made by Crosspoint'")).expect("a table");
    write_study(&scratch, "", &[("e", SHORT, &keys)]);
    expect(&run(&["run", "sql.toml", "--out", "left"]), 0);
    conn.query_drop(format!("{probe}='mine'")).expect("a table");
    conn.query_drop("INSERT INTO crosspoint_may_this_user VALUES (1)").expect("a row");
    expect(&run(&["run", "sql.toml", "--out", "theirs"]), 5);
    let kept: Option<u64> =
        conn.query_first("SELECT COUNT(*) FROM crosspoint_may_this_user").expect("it is there");
    assert_eq!(kept, Some(1));
    conn.query_drop("DROP TABLE crosspoint_may_this_user").expect("dropped");
    // From now on the tables are ours for this job, but not for another one.
    write_study(&scratch, "", &[("e", SHORT, &keys)]);
    expect(&run(&["run", "sql.toml", "--out", "four"]), 0);
    write_study(&scratch, "", &[("e", SHORT, &keys.replace("rows = 2000", "rows = 4000"))]);
    let output = run(&["run", "sql.toml", "--out", "five"]);
    expect(&output, 4);
    assert!(stderr(&output).contains("tables of another study"), "{}", stderr(&output));
    what_is_in_the_way_stops_all(&theirs, &scratch, &mut conn);
    theirs.server.stop().expect("it stops");
}

/// Another user's table or procedure must not be dropped.
fn what_is_in_the_way_stops_all(theirs: &Theirs, scratch: &Scratch, conn: &mut mysql::Conn) {
    let run = |words: &[&str]| {
        let mut command = scratch.crosspoint();
        command.args(words).env("CROSSPOINT_SQL_PASSWORD", PASSWORD).output().expect("it starts")
    };
    let keys = theirs.keys("rich", "mine");
    conn.query_drop("CREATE TABLE guard (id INT, FOREIGN KEY (id) REFERENCES sbtest1 (id))")
        .expect("a table");
    let given_up = keys.replace("rows = 2000", "rows = 4000") + "allow_overwrite = \"mine\"\n";
    write_study(scratch, "", &[("e", SHORT, &given_up)]);
    let before: Option<u64> = conn.query_first("SELECT COUNT(*) FROM sbtest1").expect("rows");
    let output = run(&["run", "sql.toml", "--out", "six"]);
    assert!(!output.status.success(), "{}", stderr(&output));
    assert_eq!(conn.query_first("SELECT COUNT(*) FROM sbtest1").expect("rows"), before);
    conn.query_drop("DROP TABLE guard").expect("dropped");
    // A foreign key between the tables stops the run as well, because they are dropped one at a time.
    conn.query_drop("ALTER TABLE sbtest2 ADD FOREIGN KEY (id) REFERENCES sbtest1 (id)")
        .expect("a key");
    let output = run(&["run", "sql.toml", "--out", "six-b"]);
    assert!(!output.status.success(), "{}", stderr(&output));
    assert_eq!(conn.query_first("SELECT COUNT(*) FROM sbtest1").expect("rows"), before);
    // A table with another program's mark belongs to another user.
    conn.query_drop("CREATE DATABASE other").expect("a database");
    conn.query_drop("GRANT ALL ON other.* TO rich").expect("rights");
    conn.query_drop("CREATE TABLE other.crosspoint_mark (identity INT)").expect("a table");
    conn.query_drop("INSERT INTO other.crosspoint_mark VALUES (7)").expect("a row");
    let theirs_too = theirs.keys("rich", "other") + "allow_overwrite = \"other\"\n";
    write_study(scratch, "", &[("e", SHORT, &theirs_too)]);
    expect(&run(&["run", "sql.toml", "--out", "eight"]), 4);
    let kept: Option<u64> =
        conn.query_first("SELECT COUNT(*) FROM other.crosspoint_mark").expect("it is there");
    assert_eq!(kept, Some(1));
    conn.query_drop("CREATE DATABASE code").expect("a database");
    conn.query_drop("GRANT ALL ON code.* TO rich").expect("rights");
    conn.query_drop("CREATE PROCEDURE code.p() SELECT 1").expect("a procedure");
    write_study(scratch, "", &[("e", SHORT, &theirs.keys("rich", "code"))]);
    expect(&run(&["run", "sql.toml", "--out", "seven"]), 4);
}

/// Settings changed on a user's server must be restored, such as innodb_flush_log_at_trx_commit.
#[test]
fn what_a_study_changes_on_a_users_server_is_set_back() {
    let Some(()) = has_server("a change on a user's server") else { return };
    let theirs = Theirs::start();
    let mut conn = connect_briefly(&theirs.server.target(None)).expect("a connection");
    let scratch = Scratch::new();
    what_rises_with_another_is_set_back(&theirs, &scratch, &mut conn);
    let mut flush = move || -> u32 {
        conn.query_first("SELECT @@GLOBAL.innodb_flush_log_at_trx_commit")
            .expect("it")
            .expect("a row")
    };
    assert_eq!(flush(), 1);
    let keys = theirs.keys("rich", "mine")
        + "change = [{ at = \"100ms\", set = \"innodb_flush_log_at_trx_commit=0\" }]\n";
    let times = "warm_up = \"0s\"\nmeasure = \"20s\"\ninterval = \"250ms\"\n";
    // Two trials: the second must not begin with what the first has changed.
    let first = times.replace("20s", "1s");
    write_study(&scratch, "", &[("first", &first, &keys), ("e", times, &keys)]);
    expect(
        &scratch
            .crosspoint()
            .args(["run", "sql.toml", "--progress", "none", "--out", "both"])
            .args(["--set", "experiment.e.duration=1s"])
            .env("CROSSPOINT_SQL_PASSWORD", PASSWORD)
            .output()
            .expect("it starts"),
        0,
    );
    let second = scratch.path().join("both/trials/0002-e-d/trial.json");
    let second: Value = serde_json::from_slice(&std::fs::read(second).expect("it")).expect("JSON");
    let note = second["notes"].to_string();
    assert!(!note.contains("could not be set back"), "{note}");
    assert_eq!(flush(), 1);
    write_study(&scratch, "", &[("e", times, &keys)]);
    for kill in [false, true] {
        let mut command = scratch.crosspoint();
        command.args(["run", "sql.toml", "--progress", "none", "--out", &format!("run-{kill}")]);
        command.env("CROSSPOINT_SQL_PASSWORD", PASSWORD).stderr(std::process::Stdio::null());
        let mut child = command.stdout(std::process::Stdio::null()).spawn().expect("it starts");
        let began = std::time::Instant::now();
        while flush() != 0 {
            assert!(began.elapsed() < std::time::Duration::from_secs(60), "it is changed");
            std::thread::yield_now();
        }
        let signal = if kill { libc::SIGKILL } else { libc::SIGINT };
        // SAFETY: a signal to the child that this test started and has not waited for.
        assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
        child.wait().expect("it ends");
        if kill {
            // The next run must not measure with the settings of the killed run.
            let mut next = scratch.crosspoint();
            next.args(["run", "sql.toml", "--progress", "none", "--out", "next"]);
            let output = next.env("CROSSPOINT_SQL_PASSWORD", PASSWORD).output().expect("it");
            expect(&output, 5);
            assert!(stderr(&output).contains("crosspoint clean"), "{}", stderr(&output));
            // Without the password the setting stays in the journal; with it, it is restored.
            expect(&scratch.run("clean"), 5);
            let mut clean = scratch.crosspoint();
            let output =
                clean.arg("clean").env("CROSSPOINT_SQL_PASSWORD", PASSWORD).output().expect("it");
            expect(&output, 0);
            assert!(stdout(&output).contains("back to 1"), "{}", stdout(&output));
        }
        assert_eq!(flush(), 1, "killed: {kill}");
    }
    theirs.server.stop().expect("it stops");
}

/// Without the required privilege nothing may be changed.
fn what_rises_with_another_is_set_back(theirs: &Theirs, scratch: &Scratch, conn: &mut mysql::Conn) {
    // Without the privilege nothing is changed and no journal entry is written that could not be undone.
    let change = "change = [{ at = \"100ms\", set = \"innodb_io_capacity=99999\" }]\n";
    let keys = theirs.keys("rich", "mine") + change;
    write_study(scratch, "", &[("e", SHORT, &keys)]);
    let mut command = scratch.crosspoint();
    command.args(["run", "sql.toml", "--out", "without"]);
    let output = command.env("CROSSPOINT_SQL_PASSWORD", PASSWORD).output().expect("it starts");
    expect(&output, 5);
    assert!(stderr(&output).contains("cannot be changed"), "{}", stderr(&output));
    expect(&scratch.run("clean"), 0);
    conn.query_drop("GRANT ALL ON *.* TO rich").expect("rights");
    let ask = "SELECT @@GLOBAL.innodb_io_capacity, @@GLOBAL.innodb_io_capacity_max";
    let capacity: Option<(u64, u64)> = conn.query_first(ask).expect("it");
    // A variable that the server raises along with it is restored as well.
    let mut command = scratch.crosspoint();
    command.args(["run", "sql.toml", "--out", "with"]);
    let output = command.env("CROSSPOINT_SQL_PASSWORD", PASSWORD).output().expect("it starts");
    expect(&output, 0);
    assert_eq!(conn.query_first(ask).expect("it"), capacity);
    // Also one that the server lowers along with it, in any spelling.
    let change = "change = [{ at = \"100ms\", set = \"INNODB_IO_CAPACITY_MAX=100\" }]\n";
    write_study(scratch, "", &[("e", SHORT, &(theirs.keys("rich", "mine") + change))]);
    let mut command = scratch.crosspoint();
    command.args(["run", "sql.toml", "--out", "falls"]);
    let output = command.env("CROSSPOINT_SQL_PASSWORD", PASSWORD).output().expect("it starts");
    expect(&output, 0);
    assert_eq!(conn.query_first(ask).expect("it"), capacity);
}

/// The password must not be in a child's environment.
#[test]
fn no_child_has_the_password_in_its_environment() {
    let Some(()) = has_server("the environment of children") else { return };
    let theirs = Theirs::start();
    let scratch = Scratch::new();
    write_study(&scratch, "", &[("e", LONG, &theirs.keys("rich", "mine"))]);
    let mut command = scratch.crosspoint();
    command.args(["run", "sql.toml", "--out", "run", "--progress", "plain"]);
    command.env("CROSSPOINT_SQL_PASSWORD", PASSWORD);
    let (child, errors) = crate::support::wait_for_interval(command);
    let own = child.id().to_string();
    let mut children = 0;
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let status = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = status.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1));
        if parent == Some(&own) {
            children += 1;
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            let found = environment.windows(PASSWORD.len()).any(|part| part == PASSWORD.as_bytes());
            assert!(!found, "{:?}", entry.path());
        }
    }
    assert!(children > 0, "the clients run in a child");
    // SAFETY: interrupts the child that this test started and has not waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
    expect(&finish(child, errors), 130);
    theirs.server.stop().expect("it stops");
}

/// A stopped server (SIGSTOP) must not hang the run or block Ctrl-C.
#[test]
fn a_stopped_server_neither_hangs_the_run_nor_swallows_ctrl_c() {
    let Some(()) = has_server("a server that is stopped") else { return };
    for interrupted in [true, false] {
        let scratch = Scratch::new();
        let times = "warm_up = \"0s\"\nmeasure = \"3s\"\ninterval = \"250ms\"\ndeadline = \"8s\"\n";
        write_study(&scratch, "", &[("e", if interrupted { LONG } else { times }, SMALL)]);
        let (child, errors) = start_and_wait(&scratch, &["run", "sql.toml", "--out", "run"]);
        let server = servers_on(scratch.path());
        assert!(crate::support::sh(&format!("kill -STOP {}", server[0])));
        if interrupted {
            // SAFETY: interrupts the child that this test started and has not waited for.
            assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
        }
        let output = finish(child, errors);
        expect(&output, if interrupted { 130 } else { 6 });
        if !interrupted {
            assert!(
                stderr(&output).contains("exceeded the trial's deadline"),
                "{}",
                stderr(&output)
            );
        }
        nothing_left(&scratch);
    }
}
