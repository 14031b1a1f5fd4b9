//! Commands in virtual time: what they see, what they cost, and how they end.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::servers::{figures, has_server};
use crate::support::{Scratch, expect, has, has_rocksdb, is_root, sh, skip, stderr, stdout};

/// User and group without rights.
const NOBODY: u32 = 65_534;

/// Debian's own: that of a version manager would be a shell script.
pub(crate) const PYTHON: &str = "/usr/bin/python3";

pub(crate) fn exec(scratch: &Scratch, options: &str, script: &str) -> Output {
    let mut command = scratch.crosspoint();
    command.arg("exec").args(options.split(' ')).args(["--", PYTHON, "-c", script]);
    command.output().expect("it starts")
}

/// Skips a test if no command can run in virtual time.
pub(crate) fn has_python() -> Option<()> {
    let there = Path::new(PYTHON).exists() && cfg!(target_arch = "x86_64");
    if !there {
        skip("commands in virtual time", "/usr/bin/python3, or an x86-64 processor");
    }
    there.then_some(())
}

/// The number before `word` in the summary.
pub(crate) fn count(summary: &str, word: &str) -> f64 {
    let before = summary.split(word).next().expect("a text").trim_end();
    let before =
        before.rsplit_once(" (").filter(|_| before.ends_with(')')).map_or(before, |(a, _)| a);
    let number = before.rsplit([' ', '\n']).next().expect("a number");
    number.parse().unwrap_or_else(|_| panic!("{word}: {number}: {summary}"))
}

/// An hour of sleep must not take an hour, and the command must see that it passed.
#[test]
fn idle_time_is_skipped() {
    let Some(()) = has_python() else { return };
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

/// A rate on a modelled drive is wrong if requests are lost or served by this machine's cache.
#[test]
fn each_request_takes_the_models_time() {
    let Some(()) = has_python() else { return };
    let scratch = Scratch::new();
    let script = "import os, threading, time\n\
        f = os.open('data', os.O_RDWR | os.O_CREAT)\n\
        os.pwrite(f, bytes(1 << 20), 0); os.fsync(f)\n\
        times = []\n\
        for i in range(100):\n    begin = time.monotonic()\n    os.pwrite(f, bytes(4096), i * 4096)\n\
        \x20   os.fdatasync(f); times.append(time.monotonic() - begin)\n\
        print(sorted(times)[50])\n\
        def reads():\n    for i in range(50): os.pread(f, 4096, i * 4096)\n\
        all = [threading.Thread(target=reads) for _ in range(4)]\n\
        [one.start() for one in all]; [one.join() for one in all]";
    let times = ["model:intel-p4800x", "model:intel-s3520"].map(|model| {
        let output = exec(&scratch, &format!("--on {model} --cores 2"), script);
        expect(&output, 0);
        let summary = stderr(&output);
        // The first flush commits the file size, and the journal block is flushed.
        assert_eq!(count(&summary, "flushes"), 101.0, "{summary}");
        assert_eq!(count(&summary, "hits"), 200.0, "{summary}");
        assert!(summary.contains("sum over 5 threads"), "{summary}");
        stdout(&output).trim().parse::<f64>().expect("seconds")
    });
    // Published write latencies: about 10 us, and some tens of us with the flush of a SATA drive.
    assert!((5e-6..100e-6).contains(&times[0]), "{times:?}");
    assert!(times[1] > times[0] * 2.0, "{times:?}");
}

/// SQLite in virtual time commits as often as it does anywhere.
#[test]
fn a_database_commits_on_the_modelled_drive() {
    let Some(()) = has_python() else { return };
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

/// A call that is not simulated must be named; it must neither give wrong numbers nor hang.
#[test]
fn what_is_not_simulated_is_named() {
    let Some(()) = has_python() else { return };
    let scratch = Scratch::new();
    let on = "--on model:intel-p4800x";
    let refused = [
        ("import os; os.system('true')", "system"),
        ("import os; os.posix_spawn('/bin/true', ['true'], {})", "posix_spawn"),
        (
            "import mmap; f = open('data', 'w+b'); f.truncate(4096); mmap.mmap(f.fileno(), 0)",
            "mmap",
        ),
        ("import threading; a = threading.Lock(); a.acquire(); a.acquire()", "wait for each other"),
        ("import os; os.mkfifo('pipe'); os.open('pipe', 0)", "system call 257"),
        ("import os; os.execve('/bin/true', ['true'], {})", "true did not load"),
        (
            "import os, threading, time; os.mkfifo('other')\n\
             def naps():\n    while True: time.sleep(0.001)\n\
             threading.Thread(target=naps, daemon=True).start(); os.open('other', 0)",
            "system call 257",
        ),
        (
            "import os, signal, threading, time; pid = os.fork()\n\
             if pid == 0: signal.pause()\n\
             time.sleep(1); os.kill(pid, signal.SIGKILL); os.wait()\n\
             a = threading.Lock(); a.acquire(); a.acquire()",
            "wait for each other",
        ),
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
    assert!(stderr(&failed).contains("exited with 3"), "{}", stderr(&failed));
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

/// Processes that talk to each other share the clock: otherwise a client would see the server's time wrong.
#[test]
fn processes_and_sockets_share_one_clock() {
    let Some(()) = has_python() else { return };
    let scratch = Scratch::new();
    let script = "import os, select, socket, time\n\
        a, b = socket.socketpair()\n\
        begin = time.monotonic()\n\
        child = os.fork()\n\
        if child == 0:\n    a.close(); time.sleep(5); b.sendall(b'x' * 3_000_000); os._exit(3)\n\
        b.close()\n\
        ask = time.monotonic()\n\
        none = select.select([a], [], [], 2)[0]; waited = time.monotonic() - ask\n\
        got = 0\n\
        while part := a.recv(65536): got += len(part)\n\
        took = time.monotonic() - begin\n\
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n\
        lost = os.fork()\n\
        if lost == 0: os.kill(os.getpid(), 9)\n\
        killed = os.waitstatus_to_exitcode(os.wait()[1])\n\
        begin, cpu = time.monotonic(), time.process_time()\n\
        sum(range(5_000_000))\n\
        alone = time.process_time() - cpu; begin = time.monotonic()\n\
        busy = os.fork()\n\
        if busy == 0: sum(range(5_000_000)); os._exit(0)\n\
        os.waitpid(busy, 0); spent = (time.monotonic() - begin) / alone > 0.5\n\
        for i in range(50):\n    r, w = os.pipe()\n\
        \x20   if os.fork() == 0: os.write(w, b'x'); os._exit(0)\n\
        \x20   os.read(r, 1); os.wait(); os.close(r); os.close(w)\n\
        m, n = socket.socketpair(); r, w = os.pipe()\n\
        if os.fork() == 0:\n    n.close(); os.close(r); time.sleep(1)\n\
        \x20   m.sendmsg([b'y' * 1_000_000, b'z' * 500_000]); m.close()\n\
        \x20   os.writev(w, [b'p' * 200_000, b'q']); os._exit(0)\n\
        m.close(); os.close(w); parts = []\n\
        while part := n.recv(65536): parts.append(part)\n\
        while part := os.read(r, 65536): parts.append(part)\n\
        os.wait()\n\
        whole = b''.join(parts) == b'y' * 1_000_000 + b'z' * 500_000 + b'p' * 200_000 + b'q'\n\
        print(none, round(waited, 2), got, int(took), code, killed, spent, whole)";
    let output = exec(&scratch, "--on model:intel-p4800x --cores 2", script);
    expect(&output, 0);
    assert_eq!(stdout(&output).trim(), "[] 2.0 3000000 5 3 -9 True True", "{}", stderr(&output));
    let mut command = scratch.crosspoint();
    let pipes = "dd if=/dev/zero bs=300000 count=10 2>/dev/null | wc -c; \
                 (sleep 3; echo late) | cat; sleep 100 &";
    command.args(["exec", "--on", "intel-p4800x", "--", "sh", "-c", pipes]);
    let output = command.output().expect("it starts");
    expect(&output, 0);
    assert_eq!(stdout(&output), "3000000\nlate\n", "{}", stderr(&output));
}

/// A server and its clients on a model, loaded once: each transaction must reach the drive once.
#[test]
fn a_server_and_its_clients_run_on_a_model() {
    let Some(()) = has_python() else { return };
    let Some(()) = has_server("a server in virtual time") else { return };
    let scratch = Scratch::new();
    let text = "schema = 2\nname = \"server\"\n[[stack]]\nname = \"gp3\"\ndevice = \"model:aws-gp3\"\n\
        [[stack]]\nname = \"optane\"\ndevice = \"model:intel-p4800x\"\ncores = 4\n\
        [[experiment]]\nname = \"commits\"\nwarm_up = \"0s\"\nduration = \"60s\"\n\
        interval = \"100ms\"\noptional = true\n[experiment.job]\n\
        engine = [\"mysql\", \"sqlite\", \"postgres\"]\n\
        workload = \"update_non_index\"\nrecords = 2000\ntables = 1\nclients = 1\n\
        durability = \"device\"\noperations = 200\n";
    std::fs::write(scratch.path().join("server.toml"), text).expect("written");
    let output = scratch.run("run server.toml --out run");
    expect(&output, 0);
    for folder in std::fs::read_dir(scratch.path().join("run/trials")).expect("trials").flatten() {
        let text = std::fs::read_to_string(folder.path().join("trial.json")).expect("a trial");
        let trial: Value = serde_json::from_str(&text).expect("JSON");
        let flushes = trial["served"]["flushes"]["requests"].as_u64().expect("a count");
        assert!((200..=215).contains(&flushes), "{flushes}: {text}");
    }
    let figures = figures(&scratch);
    // A write of the volume takes 450 us, one of the Optane drive 10.
    for engine in ["mysql", "sqlite", "postgres"] {
        let [slow, fast] = ["gp3", "optane"].map(|drive| {
            let is = |one: &&Value| {
                one["metric"] == "tx_rate" && one["engine"] == engine && one["stack"] == drive
            };
            let found = figures.iter().find(is).unwrap_or_else(|| panic!("{engine} {drive}"));
            found["value"].as_f64().expect("a number")
        });
        assert!((250.0..2_200.0).contains(&slow) && fast > slow * 2.0, "{engine}: {slow} {fast}");
    }
}

/// A user who buys a faster drive for a job that it does not limit wastes the money.
#[test]
fn a_run_says_how_much_a_free_part_gains() {
    let Some(()) = has_python() else { return };
    let scratch = Scratch::new();
    let study = "schema = 2\nname = \"gains\"\n[[stack]]\nname = \"volume\"\ndevice = \"model:aws-gp3\"\n\
        cores = 1\nwhat_if = [\"drive\", \"cores\", \"journal\"]\n[[experiment]]\nname = \"updates\"\n\
        warm_up = \"100ms\"\nduration = \"1s\"\n[experiment.job]\nengine = \"sqlite\"\n\
        workload = \"overwrite\"\nrecords = 1000\nvalue_size = \"100B\"\ndurability = \"device\"\n";
    std::fs::write(scratch.path().join("gains.toml"), study).expect("written");
    let output = scratch.run("run gains.toml --out run");
    expect(&output, 0);
    let said = stdout(&output);
    assert!(said.starts_with("SQLite durable updates reach "), "{said}");
    let gain = |change: &str| -> f64 {
        let start = format!("With {change}, SQLite durable updates on gp3 base are ");
        let line = said.lines().find_map(|line| line.strip_prefix(&start));
        let line = line.unwrap_or_else(|| panic!("{change}: {said}"));
        line.split('x').next().and_then(|number| number.parse().ok()).expect("a number")
    };
    // A flush of the volume takes 450 us, a commit some tens of us of CPU time, on one core.
    assert!(gain("an infinitely fast drive") > 4.0, "{said}");
    assert!((0.8..1.25).contains(&gain("twice the cores")), "{said}");
    assert!(gain("no journal") > 1.2, "{said}");
    assert!(figures(&scratch).iter().any(|figure| figure["stack"] == "volume-drive"));
}

/// A result that differs between two machines cannot be checked by anyone else, or in CI.
#[test]
fn with_a_fixed_cpu_time_two_runs_are_the_same() {
    let scratch = Scratch::new();
    let study = "schema = 2\nname = \"fixed\"\n[[stack]]\nname = \"drive\"\n\
        device = \"model:samsung-pm9a3\"\ncores = 4\ncpu_time = \"1us\"\n[[experiment]]\n\
        name = \"updates\"\nwarm_up = \"100ms\"\nduration = \"500ms\"\ninterval = \"100ms\"\n\
        [experiment.job]\nengine = [\"lmdb\", \"sqlite\"]\n\
        workload = \"overwrite\"\nclients = [1, 4]\nrecords = 2000\nvalue_size = \"100B\"\n\
        durability = \"device\"\n";
    std::fs::write(scratch.path().join("fixed.toml"), study).expect("written");
    let figures = |out: &str| {
        expect(&scratch.run(&format!("run fixed.toml --out {out}")), 0);
        let said = scratch.run(&format!("figures {out} --json"));
        stdout(&said).replace(out, "run")
    };
    let (first, second) = (figures("one"), figures("two"));
    let different: Vec<_> =
        first.lines().zip(second.lines()).filter(|(one, two)| one != two).collect();
    assert!(first == second, "{different:#?}");
    assert!(first.contains("\"ops_rate\"") && first.contains("lmdb"), "{first}");
    scratch.fails("run lmdb . --set stack.target.cpu_time=1us", 3, &["in virtual time only"]);
    // Threads that poll would take hours.
    let short = "run fixed.toml --set stack.drive.cpu_time=1ns";
    scratch.fails(short, 3, &["allowed: 100ns to 1ms"]);
}

/// A program that waits for input must neither stop the others nor be reported as a deadlock.
#[test]
fn input_is_waited_for_outside_of_the_simulation() {
    let Some(()) = has_python() else { return };
    let scratch = Scratch::new();
    let mut command = scratch.crosspoint();
    let script = "import threading, time\n\
        threading.Thread(target=lambda: print(int(time.sleep(100) or 100), flush=True)).start()\n\
        print(input())";
    command.args(["exec", "--on", "intel-p4800x", "--", PYTHON, "-c", script]);
    let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut simulation = started.spawn().expect("it starts");
    let mut output = BufReader::new(simulation.stdout.take().expect("stdout"));
    let mut line = String::new();
    output.read_line(&mut line).expect("the other thread's");
    assert_eq!(line.trim(), "100");
    use std::io::Write as _;
    simulation.stdin.take().expect("stdin").write_all(b"given\n").expect("written");
    line.clear();
    output.read_line(&mut line).expect("its own");
    assert_eq!(line.trim(), "given");
    assert!(simulation.wait().expect("its end").success());
}

/// A killed simulation must not leave its program, or a child of it, asleep for ever.
#[test]
fn a_killed_simulation_takes_its_program_along() {
    let Some(()) = has_python() else { return };
    let scratch = Scratch::new();
    let busy = "import os\nprint(os.getpid(), flush=True)\nwhile True: pass";
    let asleep = "import os, time\nchild = os.fork()\nif child == 0: os.close(1); time.sleep(1e6)\n\
                  print(child, flush=True)\nwhile True: pass";
    [busy, asleep].iter().for_each(|script| is_taken_along(&scratch, script));
}

/// Runs a script that prints the number of a process, and kills the simulation.
fn is_taken_along(scratch: &Scratch, script: &str) {
    let mut command = scratch.crosspoint();
    command.args(["exec", "--on", "intel-p4800x", "--", PYTHON, "-c", script]);
    let mut simulation = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    let mut reader = BufReader::new(simulation.stdout.take().expect("stdout"));
    reader.read_line(&mut line).expect("its number");
    simulation.kill().expect("killed");
    simulation.wait().expect("reaped");
    // The pipe is closed when its last writer exits.
    let mut rest = String::new();
    reader.read_to_string(&mut rest).expect("the end");
    // Files are closed before a process is gone.
    let place = format!("/proc/{}/stat", line.trim());
    let lives = || std::fs::read_to_string(&place).is_ok_and(|status| !status.contains(") Z "));
    let began = Instant::now();
    while lives() {
        assert!(began.elapsed() < Duration::from_secs(60), "{line}");
        std::thread::yield_now();
    }
}

/// A directory that every user can reach, with programs that every user can run.
fn public_place() -> tempfile::TempDir {
    let place = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let program = Path::new(env!("CARGO_BIN_EXE_crosspoint"));
    let library = "libcrosspoint_vtime_shim.so";
    for name in [Path::new("crosspoint"), &Path::new("deps").join(library)] {
        let from = program.parent().expect("its directory").join(name);
        std::fs::copy(from, place.path().join(name.file_name().expect("a name"))).expect("copied");
    }
    place
}

/// Durable updates of every embedded engine on a volume and on an Optane drive, as an unprivileged user: a
/// lost flush would make the rates wrong.
#[test]
fn a_study_runs_databases_on_models_without_root() {
    let Some(()) = has_python() else { return };
    if is_root() && !has("setpriv") {
        return skip("databases in virtual time without root", "setpriv");
    }
    let scratch = Scratch::new();
    let engines = match has_rocksdb(&scratch) {
        true => "[\"lmdb\", \"sqlite\", \"rocksdb\"]",
        false => "[\"lmdb\", \"sqlite\"]",
    };
    let place = public_place();
    let text = format!(
        "schema = 2\nname = \"db\"\n[[stack]]\nname = \"gp3\"\ndevice = \"model:aws-gp3\"\n\
         [[stack]]\nname = \"optane\"\ndevice = \"model:intel-p4800x\"\ncores = 4\n\
         [[experiment]]\nname = \"updates\"\nwarm_up = \"0s\"\nduration = \"10s\"\n\
         interval = \"50ms\"\n[experiment.job]\nengine = {engines}\nworkload = \"overwrite\"\n\
         records = 5000\nvalue_size = \"400B\"\ndurability = \"device\"\noperations = 200\n\
         [[experiment]]\nname = \"reads\"\nwarm_up = \"0s\"\nduration = \"20ms\"\n\
         interval = \"20ms\"\nstacks = [\"optane\"]\n\
         [experiment.job]\nengine = \"lmdb\"\nworkload = \"read_random\"\nrecords = 40_000\n\
         value_size = \"4000B\"\nclients = 4\nmemory = \"97MiB\"\n"
    );
    std::fs::write(place.path().join("db.toml"), text).expect("written");
    let mut command = Command::new("./crosspoint");
    if is_root() {
        assert!(sh(&format!(
            "chown -R {NOBODY}:{NOBODY} {0} && chmod -R a+rX {0}",
            place.path().display()
        )));
        command = Command::new("setpriv");
        let (user, group) = (format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"));
        command.args([&user, &group, "--clear-groups", "./crosspoint"]);
    }
    command.current_dir(place.path()).env("CROSSPOINT_STATE_DIR", place.path().join("state"));
    expect(&command.args(["run", "db.toml", "--out", "run"]).output().expect("it starts"), 0);
    let mut figures = scratch.crosspoint();
    let figures = figures.args(["figures", "--json"]).arg(place.path().join("run"));
    let document: Value =
        serde_json::from_slice(&figures.output().expect("it starts").stdout).expect("JSON");
    let figures = document["figures"].as_array().expect("a list");
    let medians = figures.iter().filter(|one| one["metric"] == "latency_p50");
    let mut seen = 0;
    for one in medians {
        assert_eq!(one["source"], "emulated");
        let micros = one["value"].as_f64().expect("a number");
        let allowed = match (one["workload"].as_str(), one["stack"].as_str()) {
            // A write of the volume takes 450 us; a commit is at least one.
            (_, Some("gp3")) => 450.0..4_000.0,
            // A commit of LMDB is two writes and two flushes; the others extend a log.
            (Some("updates"), _) => 15.0..150.0,
            _ => 10.0..100.0,
        };
        assert!(allowed.contains(&micros), "{one}");
        seen += 1;
    }
    assert_eq!(seen, 2 * engines.matches('"').count() / 2 + 1, "{document}");
    for folder in std::fs::read_dir(place.path().join("run/trials")).expect("trials").flatten() {
        let text = std::fs::read_to_string(folder.path().join("trial.json")).expect("a trial");
        let trial: Value = serde_json::from_str(&text).expect("JSON");
        // LMDB flushes its data and its meta page; the others flush their log, and once or twice a new file.
        let allowed = match (trial["experiment"].as_str(), trial["engine"].as_str()) {
            (Some("reads"), _) => 0..=0,
            (_, Some("lmdb")) => 400..=400,
            _ => 200..=203,
        };
        let flushes = trial["served"]["flushes"]["requests"].as_u64().expect("a count");
        assert!(allowed.contains(&flushes), "{flushes}: {text}");
    }
    // Other simulations of this host have their own.
    let nobodys = |one: &std::fs::DirEntry| {
        one.metadata().is_ok_and(|file| !is_root() || file.uid() == NOBODY)
    };
    let ours = |name: String| name.contains("crosspoint") && name.ends_with("memory");
    let mut left = std::fs::read_dir("/dev/shm").expect("a directory").flatten().filter(nobodys);
    assert!(!left.any(|one| ours(one.file_name().to_string_lossy().into_owned())));
}

/// A library that another user can replace would run with this user's rights.
#[test]
fn a_library_that_others_can_replace_is_not_loaded() {
    use std::os::unix::fs::PermissionsExt as _;
    let scratch = Scratch::new();
    let folder = scratch.path().join("open");
    std::fs::create_dir(&folder).expect("a directory");
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).expect("open");
    let program = folder.join("crosspoint");
    std::fs::copy(env!("CARGO_BIN_EXE_crosspoint"), &program).expect("copied");
    std::fs::write(folder.join("libcrosspoint_vtime_shim.so"), "anything").expect("a file");
    let mut command = std::process::Command::new(program);
    command.args(["exec", "--on", "model:intel-p4800x", "--", "/bin/true"]);
    let output = command.current_dir(scratch.path()).output().expect("it runs");
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
}

/// With fsync, which SQLite uses unless its build says otherwise, a commit takes twice as long here (283/s):
/// users have builds of distributions.
#[test]
fn sqlite_commits_by_fdatasync() {
    let scratch = Scratch::new();
    let output = scratch
        .run("run sqlite --durability device --runtime 5 --progress none model:samsung-990-pro");
    expect(&output, 0);
    let said = stdout(&output);
    let rate = said.split("reach ").nth(1).and_then(|rest| rest.split("/s").next());
    let rate: f64 = rate.and_then(|rate| rate.parse().ok()).unwrap_or_else(|| panic!("{said}"));
    assert!((400.0..700.0).contains(&rate), "{said}");
}
