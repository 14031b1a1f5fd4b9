//! Outputs that lead elsewhere, and runs that claim more than they hold: nothing is changed, and memory is
//! bounded. A few of each by default; `scripts/attack` repeats them with more.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{Loop, Scratch, expect, has, is_root, skip, stderr, stdout, study};

/// A finished run of predictions with two trials.
fn finished_run(scratch: &Scratch) {
    let text = fs::read_to_string(study("virtual")).expect("the study");
    let head = text.lines().take_while(|line| !line.contains("[[experiment]]"));
    let head: String = head.map(|line| format!("{line}\n")).collect();
    let short = head
        + "[[experiment]]\nname = \"e\"\nmeasure = \"200ms\"\ninterval = \"100ms\"\n\
           [experiment.block]\nqueue_depth = [1, 4]\n";
    fs::write(scratch.path().join("short.toml"), short).expect("written");
    expect(&scratch.run("run short.toml --out run"), 0);
}

fn trial_folders(run: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(run.join("trials")).expect("trials").flatten();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    folders.sort();
    folders
}

fn make_fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo").success());
}

/// Adds lines with the checksums of files of a run that were changed on purpose; the last line of a name holds.
fn sign(run: &Path, names: &[String]) {
    let mut list = fs::read_to_string(run.join("sums.txt")).expect("the list");
    for name in names {
        let bytes = fs::read(run.join(name)).expect("it reads");
        let line = format!("{:08x} {} {name}", crc32fast::hash(&bytes), bytes.len());
        list.push_str(&format!("{line} {:08x}\n", crc32fast::hash(line.as_bytes())));
    }
    fs::write(run.join("sums.txt"), list).expect("written");
}

/// `run --resume` wrote the report through a link over any file, and onto block devices, with exit code 0.
#[test]
fn a_resumed_run_writes_through_no_link_at_any_of_its_files() {
    let scratch = Scratch::new();
    finished_run(&scratch);
    let run = scratch.path().join("run");
    let victim = scratch.path().join("victim");
    let folder = scratch.path().join("folder");
    fs::create_dir(&folder).expect("a directory");
    let removed = trial_folders(&run).pop().expect("a trial");
    let kept = scratch.path().join("kept");
    let names =
        ["report.html", "run.json", "study.toml", "sums.txt", ".lock", "trials", "aside", ".live"];
    for name in names {
        for target in [&victim, &folder, Path::new("/dev/null")] {
            fs::write(&victim, "mine").expect("written");
            // A trial is missing, so that there is something to run and to report.
            fs::rename(&removed, &kept).expect("renamed");
            let (at, aside) = (run.join(name), scratch.path().join("real"));
            let existed = fs::rename(&at, &aside).is_ok();
            symlink(target, &at).expect("a link");
            let output = scratch.run("run --resume run --progress none");
            let code = output.status.code().unwrap_or(-1);
            // A run whose socket cannot be made runs without one.
            let refused = matches!(code, 2 | 4 | 5 | 7);
            assert!(
                refused || (name == ".live" && code == 0),
                "{name}: {code}: {}",
                stderr(&output)
            );
            assert_eq!(fs::read_to_string(&victim).expect("mine"), "mine", "{name}");
            assert_eq!(fs::read_dir(&folder).expect("it").count(), 0, "{name}");
            assert!(fs::metadata("/dev/null").expect("it").file_type().is_char_device());
            assert!(fs::symlink_metadata(&at).expect("the link").is_symlink(), "{name}");
            fs::remove_file(&at).expect("removed");
            if existed {
                fs::rename(&aside, &at).expect("renamed");
            }
            let _ = fs::remove_dir_all(&removed);
            fs::rename(&kept, &removed).expect("renamed");
        }
    }
    // The same files as something else than files.
    for name in ["report.html", ".lock", "sums.txt", "run.json"] {
        let (at, aside) = (run.join(name), scratch.path().join("real"));
        fs::rename(&removed, &kept).expect("renamed");
        fs::rename(&at, &aside).expect("renamed");
        make_fifo(&at);
        let output = scratch.run("run --resume run --progress none");
        let code = output.status.code();
        assert!(matches!(code, Some(4 | 5 | 7)), "{name}: {code:?}: {}", stderr(&output));
        fs::remove_file(&at).expect("removed");
        fs::rename(&aside, &at).expect("renamed");
        fs::rename(&kept, &removed).expect("renamed");
    }
    expect(&scratch.run("run --resume run --progress none"), 0);
}

/// The joint report of a search went the same way.
#[test]
fn the_page_of_an_act_search_is_written_through_no_link() {
    let scratch = Scratch::new();
    let config = "device-names: /dev/none\ntest-duration-sec: 1\nread-reqs-per-sec: 2000\n\
                  record-bytes: 1536\n";
    fs::write(scratch.path().join("a.conf"), config).expect("written");
    fs::create_dir(scratch.path().join("out")).expect("a directory");
    let victim = scratch.path().join("victim");
    fs::write(&victim, "mine").expect("written");
    symlink(&victim, scratch.path().join("out/report.html")).expect("a link");
    symlink(&victim, scratch.path().join("log")).expect("a link");
    let act = "act a.conf --device model:intel-p4800x --duration 1s --rest 0s --progress none";
    expect(&scratch.run(&format!("{act} --search --rating 10000 --out out")), 4);
    expect(&scratch.run(&format!("{act} --rating 1 --log log --force --out more")), 4);
    expect(&scratch.run(&format!("{act} --rating 1 --log a.conf --force --out more")), 4);
    assert_eq!(fs::read_to_string(&victim).expect("mine"), "mine");
    assert_eq!(fs::read_to_string(scratch.path().join("a.conf")).expect("mine"), config);
}

/// Commands that write where the user says, each with an output `OUT`.
const WRITERS: [&str; 7] = [
    "report run -o OUT --force",
    "figures run -o OUT --format csv --force",
    "figures run -o OUT --of histograms --format parquet --force",
    "bundle run -o OUT --force",
    "import job.fio -o OUT --force",
    "device fit --from run -o OUT --force",
    "act a.conf --device model:intel-p4800x --duration 1s --rating 1 --log OUT --force --progress none",
];

fn write_inputs(scratch: &Scratch) {
    finished_run(scratch);
    let job = "[a]\nioengine=io_uring\nrw=randread\nsize=1g\n";
    fs::write(scratch.path().join("job.fio"), job).expect("written");
    let config = "device-names: /dev/none\ntest-duration-sec: 1\nread-reqs-per-sec: 2000\n\
                  record-bytes: 1536\n";
    fs::write(scratch.path().join("a.conf"), config).expect("written");
}

/// A disk's first megabyte was a report, with exit code 0 and without `--force`.
#[test]
fn no_command_writes_onto_anything_but_a_regular_file() {
    let scratch = Scratch::new();
    write_inputs(&scratch);
    let at = |name: &str| scratch.path().join(name);
    fs::write(at("victim"), "mine").expect("written");
    symlink(at("victim"), at("link")).expect("a link");
    symlink(at("nothing"), at("dangling")).expect("a link");
    make_fifo(&at("fifo"));
    fs::create_dir(at("dir")).expect("a directory");
    let disk = is_root().then(|| Loop::new(scratch.path(), "disk", 4 << 20)).flatten();
    if disk.is_none() {
        skip("outputs onto block devices", "root, losetup");
    }
    let mut outputs = vec!["link", "dangling", "fifo", "/dev/null", "run/run.json"];
    outputs.extend(["run/sums.txt", "run/trials/new", "run/.lock"]);
    let device = disk.as_ref().map(|disk| disk.device.clone());
    outputs.extend(device.as_deref());
    let run_before = fs::read(at("run/run.json")).expect("it reads");
    for words in WRITERS {
        for output in &outputs {
            let done = scratch.run(&words.replace("OUT", output));
            let code = done.status.code();
            // Only a fit may fail earlier: the run is not one of its study.
            let fine = code == Some(4) || (words.starts_with("device") && code == Some(3));
            assert!(fine, "{words} to {output}: {code:?}: {}", stderr(&done));
        }
        if !words.starts_with("import") && !words.starts_with("device") {
            expect(&scratch.run(&words.replace("OUT", "dir")), 4);
        }
    }
    assert_eq!(fs::read_to_string(at("victim")).expect("mine"), "mine");
    assert!(!at("nothing").exists() && fs::read_dir(at("dir")).expect("it").next().is_none());
    assert_eq!(fs::read(at("run/run.json")).expect("it reads"), run_before);
    assert!(!at("run/trials/new").exists());
    if let Some(disk) = &disk {
        let bytes = fs::read(&disk.backing).expect("the disk");
        assert!(bytes.iter().all(|byte| *byte == 0), "the disk is as it was");
    }
    assert!(fs::metadata("/dev/null").expect("it").file_type().is_char_device());
    // The inputs of a command are no outputs of it.
    let job = fs::read(at("job.fio")).expect("it reads");
    expect(&scratch.run("import job.fio -o job.fio --force"), 4);
    assert_eq!(fs::read(at("job.fio")).expect("it reads"), job);
    expect(&scratch.run("figures run"), 0);
}

/// `man` overwrote files and followed links in a directory of another user.
#[test]
fn outputs_in_a_directory_of_another_user_are_refused() {
    let test = "directories of other users";
    if !is_root() || !has("setpriv") {
        return skip(test, "root, setpriv");
    }
    let scratch = Scratch::new();
    write_inputs(&scratch);
    let at = |name: &str| scratch.path().join(name);
    let other = |name: &str, mode: u32| {
        fs::create_dir(at(name)).expect("a directory");
        std::os::unix::fs::chown(at(name), Some(1234), Some(1234)).expect("chown");
        fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).expect("chmod");
    };
    other("theirs", 0o755);
    fs::create_dir(at("open")).expect("a directory");
    fs::set_permissions(at("open"), fs::Permissions::from_mode(0o777)).expect("chmod");
    fs::create_dir(at("mine")).expect("a directory");
    symlink(at("mine"), at("theirs/link")).expect("a link");
    std::os::unix::fs::lchown(at("theirs/link"), Some(1234), Some(1234)).expect("chown");
    for directory in ["theirs", "open", "theirs/link", "theirs/link/new", "theirs/new"] {
        let mut all: Vec<String> =
            WRITERS.iter().map(|words| words.replace("OUT", &format!("{directory}/out"))).collect();
        all.push(format!("man {directory}"));
        all.push(format!("run short.toml --out {directory}/run --progress none"));
        for words in all {
            let done = scratch.run(&words);
            let code = done.status.code();
            // A directory that does not exist is made by few of them.
            let missing = directory.ends_with("new") && code == Some(5);
            let fit = words.starts_with("device") && code == Some(3);
            assert!(code == Some(4) || missing || fit, "{words}: {code:?}: {}", stderr(&done));
        }
    }
    let entries = |name: &str| fs::read_dir(at(name)).expect("it").count();
    assert_eq!((entries("theirs"), entries("open"), entries("mine")), (1, 0, 0));
}

/// Manual pages are replaced as every other result: ours if unedited, no links.
#[test]
fn manual_pages_replace_only_what_was_not_edited() {
    let scratch = Scratch::new();
    expect(&scratch.run("man pages"), 0);
    expect(&scratch.run("man pages"), 0);
    let page = scratch.path().join("pages/crosspoint.1");
    let whole = fs::read_to_string(&page).expect("a page");
    assert!(fs::read_dir(scratch.path().join("pages")).expect("pages").count() > 20);
    fs::write(&page, format!("{whole}mine\n")).expect("written");
    expect(&scratch.run("man pages"), 5);
    assert!(fs::read_to_string(&page).expect("a page").ends_with("mine\n"));
    fs::remove_file(&page).expect("removed");
    fs::write(scratch.path().join("victim"), "mine").expect("written");
    symlink(scratch.path().join("victim"), &page).expect("a link");
    expect(&scratch.run("man pages"), 4);
    assert_eq!(fs::read_to_string(scratch.path().join("victim")).expect("mine"), "mine");
}

/// A page with notes of the user's was replaced without a word.
#[test]
fn a_report_that_was_edited_is_kept_when_its_run_is_resumed() {
    let scratch = Scratch::new();
    finished_run(&scratch);
    let page = scratch.path().join("run/report.html");
    let edited = fs::read_to_string(&page).expect("a page").replace("</html>", "<p>mine</html>");
    fs::write(&page, &edited).expect("written");
    let output = scratch.run("run --resume run --progress none");
    expect(&output, 0);
    assert!(stderr(&output).contains("report-1.html"), "{}", stderr(&output));
    let kept = fs::read_to_string(scratch.path().join("run/report-1.html")).expect("kept");
    assert_eq!(kept, edited);
    assert!(!fs::read_to_string(&page).expect("a page").contains("<p>mine"));
    // It is not read whole to find that out: 6 GB were.
    let sparse = fs::OpenOptions::new().write(true).open(&page).expect("it opens");
    sparse.set_len(6 << 30).expect("a sparse page");
    let peak = peak_memory(&scratch, "run --resume run --progress none", 0);
    assert!(peak < 300 << 20, "{} MiB", peak >> 20);
}

/// Runs the program; gives the most memory that it had resident, bytes.
fn peak_memory(scratch: &Scratch, words: &str, code: i32) -> u64 {
    let list = scratch.path().join("peak");
    let mut command = Command::new("/usr/bin/env");
    // The child waits to be reaped while its counters are read.
    command.args(["python3", "-c", PEAK]).arg(&list).arg(env!("CARGO_BIN_EXE_crosspoint"));
    command.args(words.split(' ')).current_dir(scratch.path());
    command.env("CROSSPOINT_STATE_DIR", scratch.state()).env("NO_COLOR", "1");
    let output = command.output().expect("python3");
    expect(&output, code);
    let kib: u64 = fs::read_to_string(list).expect("a peak").trim().parse().expect("a number");
    kib << 10
}

/// Runs a command and writes its largest resident set, KiB.
const PEAK: &str = "import os, resource, subprocess, sys\n\
    code = subprocess.call(sys.argv[2:])\n\
    open(sys.argv[1], 'w').write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))\n\
    sys.exit(code)";

/// A log whose only line has a histogram that claims `length` bytes, deflated.
fn forged_log(log: &str, length: u32) -> String {
    use base64::Engine as _;
    let mut plain = 0x1c84_9313_u32.to_be_bytes().to_vec();
    plain.extend(length.to_be_bytes());
    plain.extend(0_u32.to_be_bytes());
    plain.extend(3_u32.to_be_bytes());
    plain.extend(1_u64.to_be_bytes());
    plain.extend(3_600_000_000_000_u64.to_be_bytes());
    plain.extend(1_f64.to_be_bytes());
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    zlib.write_all(&plain).expect("deflated");
    // Enough zeros that even a reader which believes the length finds its bytes.
    let mut left = u64::from(length);
    while left > 0 {
        let part = left.min(1 << 20);
        zlib.write_all(&vec![0; part as usize]).expect("deflated");
        left -= part;
    }
    let packed = zlib.finish().expect("deflated");
    let mut bytes = 0x1c84_9314_u32.to_be_bytes().to_vec();
    bytes.extend((packed.len() as u32).to_be_bytes());
    bytes.extend(packed);
    let encoded = base64::engine::general_purpose::STANDARD.encode(bytes);
    let line = log.lines().find(|line| line.starts_with("Tag=")).expect("a line");
    let (start, _) = line.rsplit_once(',').expect("a payload");
    format!("{start},{encoded}\n")
}

/// Runs with a length in a binary field, or a document, that is far beyond what it holds, under right sums.
fn hostile_runs(scratch: &Scratch, count: usize) -> Vec<String> {
    let source = scratch.path().join("run");
    let trial = trial_folders(&source)[0].clone();
    let slug = trial.file_name().expect("a name").to_string_lossy().into_owned();
    let log = fs::read_to_string(trial.join("latency.hlog")).expect("a log");
    let document = fs::read_to_string(trial.join("trial.json")).expect("a document");
    let with_log = |log: &str| {
        let mut value: serde_json::Value = serde_json::from_str(&document).expect("JSON");
        value["log_bytes"] = log.len().into();
        value["log_crc32"] = crc32fast::hash(log.as_bytes()).into();
        (value.to_string(), log.to_owned())
    };
    let notes = |count: usize| {
        let notes = format!("\"notes\": [{}\"\"],\"was\"", "\"\",".repeat(count));
        (document.replacen("\"notes\"", &notes, 1).replacen("\"was\": [],", "", 1), log.clone())
    };
    let kinds: [(String, String); 6] = [
        with_log(&forged_log(&log, 64 << 20)),
        with_log(&forged_log(&log, 512 << 20)),
        with_log(&"a".repeat(8 << 20)),
        notes(12 << 20),
        notes(60 << 20),
        (format!("{document}{}", " ".repeat(180 << 20)), log.clone()),
    ];
    let mut names = Vec::new();
    let mut made: Vec<PathBuf> = Vec::new();
    fs::create_dir(scratch.path().join("hostile")).expect("a directory");
    for number in 0..count {
        let name = format!("hostile/{number:03}");
        let run = scratch.path().join(&name);
        if number < kinds.len() {
            copy(&source, &run);
            let (document, log) = &kinds[number];
            let folder = run.join("trials").join(&slug);
            fs::write(folder.join("trial.json"), document).expect("written");
            fs::write(folder.join("latency.hlog"), log).expect("written");
            let files = ["trial.json", "latency.hlog"];
            sign(&run, &files.map(|file| format!("trials/{slug}/{file}")));
            made.push(run);
        } else {
            link(&made[number % kinds.len()], &run);
        }
        names.push(name);
    }
    names
}

fn copy(from: &Path, to: &Path) {
    each_file(from, to, &|from, to| assert!(fs::copy(from, to).is_ok()));
}

/// The same files under other names: two hundred runs of 180 MB take no room.
fn link(from: &Path, to: &Path) {
    each_file(from, to, &|from, to| fs::hard_link(from, to).expect("linked"));
}

fn each_file(from: &Path, to: &Path, place: &dyn Fn(&Path, &Path)) {
    fs::create_dir(to).expect("a directory");
    for entry in fs::read_dir(from).expect("it reads").flatten() {
        let to = to.join(entry.file_name());
        match entry.file_type().expect("a kind") {
            kind if kind.is_dir() => each_file(&entry.path(), &to, place),
            kind if kind.is_file() => place(&entry.path(), &to),
            _ => {}
        }
    }
}

/// 3.7 KB of a run cost `figures` 4.1 GB, and five requests to `serve` 20.5 GB.
#[test]
fn hostile_runs_take_little_memory() {
    const MOST: u64 = 300 << 20;
    let scratch = Scratch::new();
    finished_run(&scratch);
    let times: usize =
        std::env::var("CROSSPOINT_ATTACK").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let names = hostile_runs(&scratch, (12 * times).min(200));
    for words in ["figures", "report -o page.html", "bundle -o b.tar.gz"] {
        for name in &names[..6] {
            let peak = peak_memory(&scratch, &format!("{words} {name}"), 7);
            assert!(peak < MOST, "{words} {name}: {} MiB", peak >> 20);
        }
    }
    // With the damage left out there is one trial of each.
    let all = names.join(" ");
    let peak = peak_memory(&scratch, &format!("figures --skip-damaged --format csv {all}"), 0);
    assert!(peak < MOST, "{} MiB", peak >> 20);
    for name in &names[..6] {
        let bundle = format!("{}.tar.gz", name.replace('/', "-"));
        let run = name.rsplit('/').next().expect("a name");
        let tar = Command::new("sh")
            .current_dir(scratch.path().join("hostile"))
            .args(["-c", &format!("find {run} -type f ! -name .lock | tar -czf ../{bundle} -T -")])
            .status();
        assert!(tar.expect("tar").success());
        let peak = peak_memory(&scratch, &format!("bundle --check {bundle}"), 7);
        assert!(peak < MOST, "{bundle}: {} MiB", peak >> 20);
    }
    serve_in_little_memory(&scratch, MOST);
}

/// Asks a library of hostile runs for its list and for one of them, five at once.
fn serve_in_little_memory(scratch: &Scratch, most: u64) {
    let mut command = scratch.crosspoint();
    command.args(["serve", "hostile"]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("it starts");
    let mut line = String::new();
    let mut reader = BufReader::new(child.stdout.take().expect("stdout"));
    reader.read_line(&mut line).expect("its address");
    let address = line.trim().strip_prefix("http://127.0.0.1:").expect("an address");
    let (port, token) = address.split_once("/?token=").expect("a token");
    let (port, token): (u16, String) = (port.parse().expect("a port"), token.to_owned());
    let get = |path: &'static str| {
        let token = token.clone();
        std::thread::spawn(move || {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
            let request = format!(
                "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\
                 Cookie: crosspoint-{port}={token}\r\n\r\n"
            );
            stream.write_all(request.as_bytes()).expect("sent");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("an answer");
            answer
        })
    };
    let asked: Vec<_> = ["/", "/run/001", "/run/001", "/run/003", "/"].map(get).into();
    let answers: Vec<String> =
        asked.into_iter().map(|one| one.join().expect("an answer")).collect();
    assert!(answers[0].contains("unreadable"), "{}", answers[0]);
    assert!(answers[1].contains("damaged"), "{}", answers[1]);
    // A damaged run is remembered: it is not read again.
    let began = Instant::now();
    assert!(get("/run/001").join().expect("an answer").contains("damaged"));
    assert!(began.elapsed() < Duration::from_secs(5));
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("its status");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    let kib: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number");
    let _ = child.kill();
    let _ = child.wait();
    assert!(kib << 10 < most, "{} MiB", kib >> 10);
}

/// 21 of 28 rows came with exit code 0 when trial folders were missing.
#[test]
fn a_missing_trial_is_damage_everywhere() {
    let scratch = Scratch::new();
    finished_run(&scratch);
    let run = scratch.path().join("run");
    expect(&scratch.run("bundle run -o whole.tar.gz"), 0);
    let rows = stdout(&scratch.run("figures run --format csv")).lines().count();
    fs::remove_dir_all(&trial_folders(&run)[1]).expect("removed");
    let commands = [
        "figures run",
        "report run -o page.html",
        "bundle run -o b.tar.gz",
        "compare run run",
        "device fit --from run -o fit.toml",
    ];
    for words in commands {
        let output = scratch.run(words);
        expect(&output, 7);
        assert!(stderr(&output).contains("the trial is missing"), "{words}: {}", stderr(&output));
    }
    let output = scratch.run("figures run --skip-damaged --format csv");
    expect(&output, 0);
    assert!(stderr(&output).contains("left out: "), "{}", stderr(&output));
    assert!(stdout(&output).lines().count() < rows);
    // A bundle without the trial, its own sums right.
    let script = "tar -xzf whole.tar.gz && mv run b && cd b && rm -r run 2>/dev/null; cd .. && \
                  rm -rf b/trials/0002* && cd b && grep -v trials/0002 SHA256SUMS > ../S && \
                  mv ../S SHA256SUMS && cd .. && find b -type f | LC_ALL=C sort | \
                  tar -czf forged.tar.gz --no-recursion -T -";
    let dir = scratch.path().join("unpacked");
    fs::create_dir(&dir).expect("a directory");
    fs::rename(scratch.path().join("whole.tar.gz"), dir.join("whole.tar.gz")).expect("renamed");
    let done = Command::new("sh").current_dir(&dir).args(["-c", script]).status();
    assert!(done.expect("sh").success());
    expect(&scratch.run("bundle --check unpacked/forged.tar.gz"), 7);
    // Resuming runs what is missing, and the run is whole again.
    expect(&scratch.run("run --resume run --progress none"), 0);
    assert_eq!(stdout(&scratch.run("figures run --format csv")).lines().count(), rows);
    expect(&scratch.run("bundle run -o again.tar.gz"), 0);
}

/// A folder without a run stayed when the state directory could not be made.
#[test]
fn no_folder_is_left_when_the_state_directory_cannot_be_made() {
    let scratch = Scratch::new();
    fs::write(scratch.path().join("file"), "").expect("written");
    for state in ["/proc/none", "file/state"] {
        let mut command = scratch.crosspoint();
        command.env("CROSSPOINT_STATE_DIR", state).args([
            "run",
            &study("tiny"),
            "--out",
            "deep/run",
        ]);
        let output = command.output().expect("it starts");
        assert!(matches!(output.status.code(), Some(4 | 5)), "{}", stderr(&output));
        assert!(!scratch.path().join("deep").exists(), "{state}");
    }
}

/// `import` showed a line of any file that it was made to include.
#[test]
fn an_include_shows_no_line_of_the_file() {
    let scratch = Scratch::new();
    fs::write(scratch.path().join("secret"), "root:$6$hash:1\n").expect("written");
    fs::write(scratch.path().join("job.fio"), "[a]\nrw=read\ninclude secret\n").expect("written");
    let output = scratch.run("import job.fio");
    expect(&output, 3);
    assert!(stderr(&output).contains("line 3: include secret: line 1"), "{}", stderr(&output));
    assert!(!stderr(&output).contains("hash"), "{}", stderr(&output));
}

/// Killed while its file system was mounted, the process stayed and its parent waited until `clean`: what
/// served the drive had gone, and the mount waited for the drive.
#[test]
fn power_cuts_that_are_killed_during_a_mount_end() {
    let test = "power-cuts killed during a mount";
    if !is_root() || !has("losetup") || !has("mkfs.ext4") || !Path::new("/dev/fuse").exists() {
        return skip(test, "root, losetup, mkfs.ext4, /dev/fuse");
    }
    let scratch = support::DiskScratch(Scratch::new());
    let mut command = scratch.crosspoint();
    command.args(["power-cuts", "lmdb", "--cuts", "50", "--size", "256MiB"]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    for _ in 0..3 {
        let mut child = command.spawn().expect("it starts");
        // A thread of it, or a child, that is in mount(2).
        let until = Instant::now() + Duration::from_secs(60);
        while !is_mounting(child.id()) && Instant::now() < until {
            std::thread::yield_now();
        }
        child.kill().expect("killed");
        let until = Instant::now() + Duration::from_secs(20);
        let ended = loop {
            if child.try_wait().expect("a state").is_some() {
                break true;
            }
            if Instant::now() > until {
                break false;
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        if !ended {
            scratch.run("clean");
            let _ = child.wait();
        }
        assert!(ended, "the killed process hangs");
        expect(&scratch.run("clean"), 0);
    }
}

/// Whether a thread of the process is in mount(2).
fn is_mounting(process: u32) -> bool {
    let mount = libc::SYS_mount.to_string();
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    threads.into_iter().any(|thread| {
        let call = fs::read_to_string(thread.path().join("syscall")).unwrap_or_default();
        call.split(' ').next() == Some(mount.as_str())
    })
}
