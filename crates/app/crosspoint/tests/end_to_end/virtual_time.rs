//! Commands in virtual time: what they see, what they cost, and how they end.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Scratch, expect, has, skip, stderr, stdout};

/// Debian's own: a version manager's would be a shell script around it.
const PYTHON: &str = "/usr/bin/python3";

fn exec(scratch: &Scratch, options: &str, script: &str) -> Output {
    let mut command = scratch.crosspoint();
    command.arg("exec").args(options.split(' ')).args(["--", PYTHON, "-c", script]);
    command.output().expect("it starts")
}

fn is_missing() -> bool {
    let missing = !std::path::Path::new(PYTHON).exists() || cfg!(not(target_arch = "x86_64"));
    if missing {
        skip("commands in virtual time", "/usr/bin/python3, or an x86-64 processor");
    }
    missing
}

/// The number before a word of the summary.
fn count(summary: &str, word: &str) -> f64 {
    let before = summary.split(word).next().expect("a text").trim_end();
    let before =
        before.rsplit_once(" (").filter(|_| before.ends_with(')')).map_or(before, |(a, _)| a);
    let number = before.rsplit([' ', '\n']).next().expect("a number");
    number.parse().unwrap_or_else(|_| panic!("{word}: {number}: {summary}"))
}

/// An hour of sleep must not take an hour, and the command must see that it passed.
#[test]
fn idle_time_is_skipped() {
    if is_missing() {
        return;
    }
    let scratch = Scratch::new();
    let began = Instant::now();
    let script = "import time; a = time.time(); b = time.monotonic(); time.sleep(3600)\n\
                  print(int(time.time() - a), int(time.monotonic() - b))";
    let output = exec(&scratch, "--on model:intel-p4800x", script);
    expect(&output, 0);
    assert_eq!(stdout(&output).trim(), "3600 3600");
    assert!(began.elapsed() < Duration::from_secs(600));
    assert!(stderr(&output).contains("sleep"), "{}", stderr(&output));
}

/// A rate on a modelled drive is wrong if requests are lost, or served by this machine's cache.
#[test]
fn each_request_takes_the_models_time() {
    if is_missing() {
        return;
    }
    let scratch = Scratch::new();
    let script = "import os, threading, time\n\
        f = os.open('data', os.O_RDWR | os.O_CREAT)\n\
        os.pwrite(f, bytes(1 << 20), 0); os.fsync(f)\n\
        begin = time.monotonic()\n\
        for i in range(100):\n    os.pwrite(f, bytes(4096), i * 4096); os.fdatasync(f)\n\
        print(time.monotonic() - begin)\n\
        def reads():\n    for i in range(50): os.pread(f, 4096, i * 4096)\n\
        all = [threading.Thread(target=reads) for _ in range(4)]\n\
        [one.start() for one in all]; [one.join() for one in all]";
    let times = ["model:intel-p4800x", "model:intel-s3520"].map(|model| {
        let output = exec(&scratch, &format!("--on {model} --cores 2"), script);
        expect(&output, 0);
        let summary = stderr(&output);
        // The first flush commits the file's size, and the journal's block is forced to the medium.
        assert_eq!(count(&summary, "flushes"), 101.0, "{summary}");
        assert_eq!(count(&summary, "hits"), 200.0, "{summary}");
        assert!(summary.contains("time of 5 threads"), "{summary}");
        stdout(&output).trim().parse::<f64>().expect("seconds") / 100.0
    });
    // Published write latencies: about 10 us, and with the flush of a SATA drive some tens.
    assert!((5e-6..100e-6).contains(&times[0]), "{times:?}");
    assert!(times[1] > times[0] * 2.0, "{times:?}");
}

/// SQLite in virtual time commits as often as it does anywhere.
#[test]
fn a_database_commits_on_the_modelled_drive() {
    if is_missing() {
        return;
    }
    let scratch = Scratch::new();
    let script = "import sqlite3\n\
        c = sqlite3.connect('db', isolation_level=None)\n\
        c.execute('pragma journal_mode=wal'); c.execute('pragma synchronous=full')\n\
        c.execute('create table t (a integer primary key, b blob)')\n\
        for i in range(100): c.execute('insert into t values (?, zeroblob(1000))', (i,))\n\
        print(c.execute('select count(*) from t').fetchone()[0])";
    let output = exec(&scratch, "--on model:samsung-990-pro", script);
    expect(&output, 0);
    assert_eq!(stdout(&output).trim(), "100");
    let flushes = count(&stderr(&output), "flushes");
    assert!((100.0..120.0).contains(&flushes), "{}", stderr(&output));
}

/// What has no simulated time must be named, not measured wrong, and never hang.
#[test]
fn what_is_not_simulated_is_named() {
    if is_missing() {
        return;
    }
    let scratch = Scratch::new();
    let on = "--on model:intel-p4800x";
    let refused = [
        ("import os; os.fork()", "fork"),
        (
            "import mmap; f = open('data', 'w+b'); f.truncate(4096); mmap.mmap(f.fileno(), 0)",
            "mmap",
        ),
        ("import threading; a = threading.Lock(); a.acquire(); a.acquire()", "wait for each other"),
        ("import os; a, b = os.pipe(); os.read(a, 1)", "system call 0"),
    ];
    for (script, reason) in refused {
        let output = exec(&scratch, on, script);
        expect(&output, 5);
        assert!(stderr(&output).contains(reason), "{script}: {}", stderr(&output));
        assert!(stderr(&output).contains("help: "), "{}", stderr(&output));
    }
    let killed = exec(&scratch, on, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)");
    expect(&killed, 6);
    assert!(stderr(&killed).contains("killed by signal 9"), "{}", stderr(&killed));
    let failed = exec(&scratch, on, "raise SystemExit(3)");
    expect(&failed, 6);
    assert!(stderr(&failed).contains("exit code 3"), "{}", stderr(&failed));
    if has("cc") {
        std::fs::write(scratch.path().join("one.c"), "int main(void) { return 0; }")
            .expect("written");
        let mut build = std::process::Command::new("cc");
        build.args(["-static", "-o", "one", "one.c"]).current_dir(scratch.path());
        assert!(build.status().expect("cc").success());
        let mut command = scratch.crosspoint();
        command.args(["exec", "--on", "intel-p4800x", "--", "./one"]);
        let output = command.output().expect("it starts");
        expect(&output, 5);
        assert!(stderr(&output).contains("statically linked"), "{}", stderr(&output));
    }
}

/// A killed simulation must not leave its program asleep for ever.
#[test]
fn a_killed_simulation_takes_its_program_along() {
    if is_missing() {
        return;
    }
    let scratch = Scratch::new();
    let mut command = scratch.crosspoint();
    let script = "import os\nprint(os.getpid(), flush=True)\nwhile True: pass";
    command.args(["exec", "--on", "intel-p4800x", "--", PYTHON, "-c", script]);
    let mut simulation = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    let mut reader = BufReader::new(simulation.stdout.take().expect("stdout"));
    reader.read_line(&mut line).expect("its number");
    simulation.kill().expect("killed");
    simulation.wait().expect("reaped");
    // The pipe is closed by the end of its last writer.
    let mut rest = String::new();
    reader.read_to_string(&mut rest).expect("the end");
    let status = std::fs::read_to_string(format!("/proc/{}/stat", line.trim()));
    assert!(status.is_err() || status.is_ok_and(|status| status.contains(") Z ")), "{line}");
}
