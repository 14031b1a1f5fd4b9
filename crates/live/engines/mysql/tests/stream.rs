//! Our statements and sysbench's, compared in the server's general log.
//!
//! If they differ, a study of sysbench's workload measures another one.

mod support;

use std::collections::BTreeMap;
use std::process::Command;

use crosspoint_engine_mysql::connect_briefly;
use engine::Server as _;
use mysql::prelude::Queryable;
use statrs::distribution::{ChiSquared, ContinuousCDF};
use support::{Private, job, missing};

const TABLES: u32 = 4;
const ROWS: u64 = 2000;
const TRANSACTIONS: u64 = 600;

/// A statement as logged: its shape with `?` for numbers and texts, its table, its first number.
#[derive(Debug, Clone, PartialEq)]
struct Logged {
    shape: String,
    table: u64,
    row: Option<u64>,
}

/// Executed statements in order, without `Prepare` and statements outside of the workload.
fn parse(log: &str) -> Vec<Logged> {
    let executed = log.lines().filter_map(|line| {
        let (head, text) = line.split_once("Execute\t").or_else(|| line.split_once("Query\t"))?;
        (!head.contains("Prepare")).then_some(text)
    });
    let ours = |text: &&str| {
        text.contains("sbtest") || ["BEGIN", "COMMIT"].contains(&text.to_uppercase().as_str())
    };
    executed.filter(ours).map(logged).collect()
}

fn logged(text: &str) -> Logged {
    let mut shape = String::new();
    let mut numbers = Vec::new();
    let mut rest = text.trim_end_matches(';').chars().peekable();
    while let Some(c) = rest.next() {
        if c == '\'' {
            while rest.next().is_some_and(|c| c != '\'') {}
            shape.push('?');
        } else if c.is_ascii_digit() {
            let mut number = u64::from(c.to_digit(10).expect("a digit"));
            while let Some(digit) = rest.peek().and_then(|c| c.to_digit(10)) {
                number = number * 10 + u64::from(digit);
                rest.next();
            }
            numbers.push(number);
            shape.push('?');
        } else {
            shape.push(c);
        }
    }
    let shape = shape.replace("sbtest?", "sbtest");
    let mut numbers = numbers.into_iter();
    // Only `k=k+1` has a number that is not a row; it precedes the row.
    let one = usize::from(shape.contains("k=k+?"));
    Logged { table: numbers.next().unwrap_or(0), row: numbers.nth(one), shape }
}

/// Whether two samples may come from one distribution: p of Pearson's chi-square test of homogeneity.
fn same(ours: &[u64], theirs: &[u64]) -> f64 {
    let (a, b) = (ours.iter().sum::<u64>() as f64, theirs.iter().sum::<u64>() as f64);
    let mut statistic = 0.0;
    let mut cells = 0;
    for (x, y) in ours.iter().zip(theirs) {
        let both = (x + y) as f64;
        if both < 10.0 {
            continue;
        }
        cells += 1;
        for (found, size) in [(*x as f64, a), (*y as f64, b)] {
            let expected = both * size / (a + b);
            statistic += (found - expected).powi(2) / expected;
        }
    }
    let freedom = f64::from(cells - 1);
    1.0 - ChiSquared::new(freedom).expect("cells").cdf(statistic)
}

struct Logs {
    private: Private,
}

/// The server's own log of statements: in its data directory, the only one that it may write to.
fn general_log(private: &Private) -> std::path::PathBuf {
    format!("/proc/{}/cwd/general.log", private.server.process.process()).into()
}

impl Logs {
    /// The log entries that `work` causes.
    fn of(&self, work: impl FnOnce()) -> Vec<Logged> {
        let mut conn = connect_briefly(&self.private.server.target(None)).expect("a connection");
        let path = general_log(&self.private);
        conn.query_drop("SET GLOBAL general_log = ON").expect("a log");
        work();
        conn.query_drop("SET GLOBAL general_log = OFF").expect("no log");
        let text = String::from_utf8_lossy(&std::fs::read(&path).expect("the log")).into_owned();
        std::fs::write(&path, "").expect("it works");
        parse(&text)
    }
}

fn sysbench(private: &Private, script: &str, options: &[&str], command: &str) {
    let socket = format!("--mysql-socket={}", private.socket());
    let old = script.ends_with("oltp.lua");
    let (tables, rows) = (format!("--tables={TABLES}"), format!("--table-size={ROWS}"));
    let sizes: &[&str] = if old { &[] } else { &[&tables, &rows] };
    let target = private.server.target(None);
    let user = format!("--mysql-user={}", target.user);
    let password = target.password.as_ref().map_or("", engine::Secret::text);
    let password = format!("--mysql-password={password}");
    let common = [script, "--db-driver=mysql", &user, &password, "--mysql-db=sbtest"];
    let output = Command::new("sysbench")
        .args(common)
        .arg(&socket)
        .args(sizes)
        .args(options)
        .arg(command)
        .output()
        .expect("it works");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// How often each table was chosen: once per kind of statement and transaction; in the old dialect once per
/// transaction.
fn tables(log: &[Logged], old: bool) -> Vec<u64> {
    let mut counts = vec![0; TABLES as usize];
    let several = log.iter().any(|one| one.shape != log[0].shape);
    let mut before = "";
    for one in log {
        let drawn = if old { before == "BEGIN" } else { !several || one.shape != before };
        before = &one.shape;
        if one.row.is_some() && drawn && !one.shape.starts_with("INSERT") {
            counts[one.table as usize - 1] += 1;
        }
    }
    counts
}

/// Rows in 25 parts of the table, by how often they were drawn; an insert brings back the row of its delete.
fn rows(log: &[Logged]) -> Vec<u64> {
    let mut counts = vec![0; 25];
    for one in log.iter().filter(|one| !one.shape.starts_with("INSERT")) {
        if let Some(row) = one.row {
            counts[((row - 1) * 25 / ROWS).min(24) as usize] += 1;
        }
    }
    counts
}

/// Statement mix and order must be equal; rows and tables may differ only by chance.
fn compare(ours: &[Logged], theirs: &[Logged], what: &str) {
    let shapes = |log: &[Logged]| log.iter().map(|one| one.shape.clone()).collect::<Vec<_>>();
    let mix = |log: &[Logged]| {
        let mut mix = BTreeMap::new();
        log.iter().for_each(|one| *mix.entry(one.shape.clone()).or_insert(0u32) += 1);
        mix
    };
    assert_eq!(mix(ours), mix(theirs), "{what}: the mix");
    assert!(shapes(ours) == shapes(theirs), "{what}: the order");
    let old = what.starts_with("0.5");
    let tables = same(&tables(ours, old), &tables(theirs, old));
    let rows = same(&rows(ours), &rows(theirs));
    println!("{what}: {} statements, tables p {tables:.3}, rows p {rows:.3}", ours.len());
    assert!(tables > 0.001 && rows > 0.001, "{what}: tables p {tables}, rows p {rows}");
}

#[test]
fn statements_are_those_of_sysbench() {
    if missing(&["mariadbd", "sysbench"]) {
        return;
    }
    let keys = |workload: &str, distribution: &str, prepared: bool| {
        job(&format!(
            "tables = {TABLES}\nrows = {ROWS}\nthreads = 1\ntransactions = {TRANSACTIONS}\n\
             workload = \"{workload}\"\nkeys = \"{distribution}\"\nprepared = {prepared}\n"
        ))
    };
    let private = Private::start(&keys("read_write", "uniform", true), &[]);
    let mut conn = connect_briefly(&private.server.target(None)).expect("a connection");
    conn.query_drop("SET GLOBAL general_log_file = 'general.log'").expect("it works");
    sysbench(&private, "oltp_read_write", &["--threads=2"], "prepare");
    let logs = Logs { private };
    let events = format!("--events={TRANSACTIONS}");
    for (workload, distribution, prepared) in [
        ("read_write", "gaussian", true),
        ("read_write", "special", true),
        ("read_write", "pareto", false),
        ("read_only", "uniform", true),
        ("write_only", "uniform", false),
        ("point_select", "gaussian", true),
        ("update_index", "uniform", true),
        ("update_non_index", "uniform", true),
    ] {
        let what = format!("{workload} {distribution} prepared {prepared}");
        let distribution_option = format!("--rand-type={distribution}");
        let mode = if prepared { "--db-ps-mode=auto" } else { "--db-ps-mode=disable" };
        // A fixed seed: the test is the same each time.
        let seed = "--rand-seed=11";
        let options = ["--threads=1", &events, "--time=0", &distribution_option, mode, seed];
        let script = format!("oltp_{workload}");
        let theirs = logs.of(|| sysbench(&logs.private, &script, &options, "run"));
        let job = keys(workload, distribution, prepared);
        let ours = logs.of(|| assert_eq!(logs.private.run(&job).failure, None));
        compare(&ours, &theirs, &what);
    }
    // The old script is in no package; it is compared if its path is given.
    let Ok(script) = std::env::var("CROSSPOINT_SYSBENCH_05_OLTP") else { return };
    for distribution in ["uniform", "gaussian"] {
        let distribution_option = format!("--rand-type={distribution}");
        let requests = format!("--events={TRANSACTIONS}");
        let (tables, rows) =
            (format!("--oltp-tables-count={TABLES}"), format!("--oltp-table-size={ROWS}"));
        let seed = "--rand-seed=11";
        let options =
            ["--threads=1", &requests, "--time=0", &distribution_option, seed, &tables, &rows];
        let theirs = logs.of(|| sysbench(&logs.private, &script, &options, "run"));
        let mut job = keys("read_write", distribution, false);
        job.dialect = study::SqlDialect::Sysbench05;
        let ours = logs.of(|| assert_eq!(logs.private.run(&job).failure, None));
        compare(&ours, &theirs, &format!("0.5 {distribution}"));
    }
}
