//! Runs that claim more than they hold, and runs that hold less than they list: memory is bounded, and
//! incomplete data is rejected. A few of each by default; `scripts/attack` repeats them with more.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::support::runs::{finished_run, sign, trial_folders};
use crate::support::{Scratch, expect, stderr, stdout};

/// Recognizing our own report must not read a 6 GB file.
#[test]
fn an_old_report_is_not_read_whole() {
    let scratch = Scratch::new();
    finished_run(&scratch);
    let page = scratch.path().join("run/report.html");
    let sparse = fs::OpenOptions::new().write(true).open(&page).expect("it opens");
    sparse.set_len(6 << 30).expect("a sparse page");
    let (peak, output) = peak_memory(&scratch, "run --resume run --progress none");
    expect(&output, 0);
    assert!(peak < 300 << 20, "{} MiB", peak >> 20);
}

/// Runs the program; returns its largest resident set, bytes.
fn peak_memory(scratch: &Scratch, words: &str) -> (u64, Output) {
    let list = scratch.path().join("peak");
    let mut command = Command::new("/usr/bin/env");
    // The child waits to be reaped while its counters are read.
    command.args(["python3", "-c", PEAK]).arg(&list).arg(env!("CARGO_BIN_EXE_crosspoint"));
    command.args(words.split(' ')).current_dir(scratch.path());
    command.env("CROSSPOINT_STATE_DIR", scratch.state()).env("NO_COLOR", "1");
    let output = command.output().expect("python3");
    let kib: u64 = fs::read_to_string(list).expect("a peak").trim().parse().expect("a number");
    (kib << 10, output)
}

/// Runs a command and writes its largest resident set, KiB.
const PEAK: &str = "import os, resource, subprocess, sys\n\
    code = subprocess.call(sys.argv[2:])\n\
    open(sys.argv[1], 'w').write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))\n\
    sys.exit(code)";

/// A log with one line: a deflated histogram that claims `length` bytes.
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
    // Bytes that a reader which trusts the length would inflate.
    let mut left = u64::from(length).min(64 << 20);
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

/// Kinds of hostile runs.
const KINDS: usize = 11;

/// Runs with valid checksums in which a binary length field or a document claims far more than the contents.
fn hostile_runs(scratch: &Scratch, count: usize) -> Vec<(String, &'static str)> {
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
    let with = |key: &str, value: String| {
        (document.replacen('{', &format!("{{\"{key}\": {value},"), 1), log.clone())
    };
    let counters = format!("[{}[0,{{\"\":0}}]]", "[0,{\"\":0}],".repeat(700_000));
    let failure = document.replacen(
        "\"failure\": null",
        &format!("\"failure\": \"{}\"", "<".repeat(60 << 20)),
        1,
    );
    assert_ne!(failure, document);
    let comments = format!("#{}\n", "x".repeat(1000)).repeat(40_000) + &log;
    let settings: String = (0..9_999).map(|number| format!("\"{number:06000}\":\"\",")).collect();
    let settings = format!("{{{}\"a\":\"\"}}", settings);
    let with_notes = {
        let long = format!("\"{}\",", "<".repeat(256 << 10)).repeat(100);
        let notes = format!("\"notes\": [{long}\"\"],\"was\"");
        (document.replacen("\"notes\"", &notes, 1).replacen("\"was\": [],", "", 1), log.clone())
    };
    let kinds: [(&str, (String, String)); KINDS] = [
        ("length is wrong", with_log(&forged_log(&log, 64 << 20))),
        ("length is wrong", with_log(&forged_log(&log, u32::MAX))),
        ("a line is longer than", with_log(&"a".repeat(8 << 20))),
        ("more values than any run", notes(12 << 20)),
        ("no run has more than", notes(60 << 20)),
        ("no run has more than", (format!("{document}{}", " ".repeat(180 << 20)), log.clone())),
        ("too long", (failure, log.clone())),
        ("", with("counters", counters)),
        ("a map of at most", with("settings", settings)),
        ("too long", with_notes),
        ("", with_log(&comments)),
    ];
    let mut names = Vec::new();
    let mut made: Vec<PathBuf> = Vec::new();
    fs::create_dir(scratch.path().join("hostile")).expect("a directory");
    for number in 0..count {
        let name = format!("hostile/{number:03}");
        let run = scratch.path().join(&name);
        if number < kinds.len() {
            copy(&source, &run);
            let (_, (document, log)) = &kinds[number];
            let folder = run.join("trials").join(&slug);
            fs::write(folder.join("trial.json"), document).expect("written");
            fs::write(folder.join("latency.hlog"), log).expect("written");
            let files = ["trial.json", "latency.hlog"];
            sign(&run, &files.map(|file| format!("trials/{slug}/{file}")));
            made.push(run);
        } else {
            link(&made[number % kinds.len()], &run);
        }
        names.push((name, kinds[number % kinds.len()].0));
    }
    names
}

fn copy(from: &Path, to: &Path) {
    each_file(from, to, &|from, to| assert!(fs::copy(from, to).is_ok()));
}

/// The same files under other names: two hundred runs of 180 MB take no space.
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

/// A small hostile run must not make `figures` or `serve` use gigabytes: 3.7 KB once cost 4.1 GB.
#[test]
fn hostile_runs_take_little_memory() {
    const MOST: u64 = 300 << 20;
    let scratch = Scratch::new();
    finished_run(&scratch);
    let times: usize =
        std::env::var("CROSSPOINT_ATTACK").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let names = hostile_runs(&scratch, (KINDS * times).min(200));
    for (at, (name, reason)) in names[..KINDS].iter().enumerate() {
        // All commands share one reader, so by default each kind is tested with one of them.
        let commands = ["figures", "report -o page.html --force", "bundle -o b.tar.gz --force"];
        for number in 0..if times > 1 { commands.len() } else { 1 } {
            let words = format!("{} {name}", commands[(at + number) % commands.len()]);
            let (peak, output) = peak_memory(&scratch, &words);
            let said = stderr(&output);
            let refused = said.contains(if reason.is_empty() { "unpacks to more" } else { reason });
            let code = output.status.code();
            let fine = if reason.is_empty() { code == Some(0) } else { code == Some(7) };
            assert!(refused || (fine && reason.is_empty()), "{words}: {code:?}: {said}");
            assert!(peak < MOST, "{words}: {} MiB", peak >> 20);
        }
        if at % (if times > 1 { 3 } else { 6 }) > 0 {
            continue;
        }
        pack(&scratch.path().join(name), &scratch.path().join("forged.tar.gz"));
        let (peak, output) = peak_memory(&scratch, "bundle --check forged.tar.gz");
        expect(&output, 7);
        let said = stdout(&output) + &stderr(&output);
        let expected = said.contains(reason) || said.contains("unpacks to more");
        assert!(expected, "{name}: {said}");
        assert!(peak < MOST, "bundle of {name}: {} MiB", peak >> 20);
    }
    // With `--skip-damaged` the remaining trials of each run must be shown.
    let all: Vec<&str> = names.iter().map(|(name, _)| name.as_str()).collect();
    for words in ["figures --format csv", "report -o all.html"] {
        let words = format!("{words} --skip-damaged {}", all.join(" "));
        let (peak, output) = peak_memory(&scratch, &words);
        expect(&output, 0);
        assert!(peak < MOST, "{} of {}: {} MiB", &words[..7], all.len(), peak >> 20);
    }
    serve_in_little_memory(&scratch, MOST);
}

/// Packs a folder as `bundle` does, with valid checksums, whatever is in it.
fn pack(folder: &Path, output: &Path) {
    use sha2::Digest as _;
    let mut files = Vec::new();
    list(folder, "", &mut files);
    files.sort();
    let mut sums = String::new();
    for name in &files {
        let digest = sha2::Sha256::digest(fs::read(folder.join(name)).expect("it reads"));
        let sum: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        sums.push_str(&format!("{sum}  {name}\n"));
    }
    let file = fs::File::create(output).expect("a file");
    let mut gzip = flate2::GzBuilder::new().mtime(0).write(file, flate2::Compression::fast());
    let mut tar = tar::Builder::new(&mut gzip);
    let mut add = |name: &str, bytes: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(0);
        tar.append_data(&mut header, format!("run/{name}"), bytes).expect("packed");
    };
    files.iter().for_each(|name| add(name, &fs::read(folder.join(name)).expect("it reads")));
    add("SHA256SUMS", sums.as_bytes());
    drop(tar);
    gzip.finish().expect("packed");
}

/// Files of a run folder that belong in a bundle.
fn list(folder: &Path, below: &str, files: &mut Vec<String>) {
    for entry in fs::read_dir(folder.join(below)).expect("it reads").flatten() {
        let name = format!("{below}{}", entry.file_name().to_string_lossy());
        let kind = entry.file_type().expect("a kind");
        if kind.is_dir() {
            list(folder, &format!("{name}/"), files);
        } else if !name.starts_with('.') && name != "report.html" {
            files.push(name);
        }
    }
}

/// Requests the list of hostile runs and one run from `serve`, five at a time.
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
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("its status");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    let kib: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number");
    let _ = child.kill();
    let _ = child.wait();
    assert!(kib << 10 < most, "{} MiB", kib >> 10);
}

/// Missing trial folders must be an error: 21 of 28 rows once came with exit code 0.
#[test]
fn a_missing_trial_is_damage_everywhere() {
    let scratch = Scratch::new();
    finished_run(&scratch);
    let run = scratch.path().join("run");
    // What is packed here passes as long as nothing is missing.
    pack(&run, &scratch.path().join("whole.tar.gz"));
    let output = scratch.run("bundle --check whole.tar.gz");
    let said = stdout(&output) + &stderr(&output);
    assert!(!said.contains("checksum") && !said.contains("another program"), "{said}");
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
        scratch.fails(words, 7, &["the trial is missing"]);
    }
    let output = scratch.run("figures run --skip-damaged --format csv");
    expect(&output, 0);
    assert!(stderr(&output).contains("left out: "), "{}", stderr(&output));
    assert!(stdout(&output).lines().count() < rows);
    // A bundle without the trial, with correct checksums.
    pack(&run, &scratch.path().join("forged.tar.gz"));
    scratch.fails("bundle --check forged.tar.gz", 7, &["the trial is missing"]);
    // Resuming runs the missing trial and completes the run; removing it again must be detected again.
    expect(&scratch.run("run --resume run --progress none"), 0);
    assert_eq!(stdout(&scratch.run("figures run --format csv")).lines().count(), rows);
    expect(&scratch.run("bundle run -o again.tar.gz"), 0);
    fs::write(trial_folders(&run)[1].join("trial.json"), "{").expect("written");
    expect(&scratch.run("run --resume run --progress none"), 0);
    let gone = trial_folders(&run)[1].clone();
    fs::remove_dir_all(&gone).expect("removed");
    // No hidden folder of that name explains the gap.
    let name = gone.file_name().expect("a name").to_string_lossy().into_owned();
    fs::write(run.join(format!("trials/.writing-{name}")), "").expect("written");
    fs::create_dir(run.join(format!("trials/.leaving-{name}"))).expect("a directory");
    expect(&scratch.run("figures run"), 7);
    // With every trial damaged there is nothing to show.
    for folder in trial_folders(&run) {
        let _ = fs::write(folder.join("trial.json"), "{");
    }
    expect(&scratch.run("figures --skip-damaged run"), 7);
}

/// A run whose study is too long to be read back must not begin.
#[test]
fn what_could_not_be_read_again_is_not_begun() {
    let scratch = Scratch::new();
    let mut text = "schema = 1\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \
                    \"model:intel-p4800x\"\n"
        .to_owned();
    for number in 0..4000 {
        text.push_str(&format!("[[experiment]]\nname = \"e{number}\"\n[experiment.block]\n"));
    }
    fs::write(scratch.path().join("long.toml"), text).expect("written");
    scratch.fails(
        "run long.toml --out long --progress none",
        5,
        &["larger than the limit", "help: split the study"],
    );
    assert!(!scratch.path().join("long").exists());
}

/// Small documents that take a gigabyte to parse, and a bundle of endless directories.
#[test]
fn small_documents_that_parse_to_much_are_refused() {
    const MOST: u64 = 300 << 20;
    let scratch = Scratch::new();
    finished_run(&scratch);
    let at = |name: &str| scratch.path().join(name);
    let nested = "{\"\":".repeat(100) + "0" + &"}".repeat(100);
    let header = format!("{{\"a\":[{}0]}}", format!("{nested},").repeat(7 << 10));
    fs::write(at("run/run.json"), header).expect("written");
    let (peak, output) = peak_memory(&scratch, "figures run");
    expect(&output, 7);
    assert!(peak < MOST, "run.json: {} MiB", peak >> 20);
    for text in [
        format!("a=[{}]", ("{a=".repeat(70) + "1" + &"}".repeat(70) + ",").repeat(10_000)),
        format!("{}=1", "a.".repeat(1 << 20) + "a"),
        format!("a={}{}", "[".repeat(60), "[],".repeat(1 << 20)),
    ] {
        fs::write(at("bomb.toml"), text).expect("written");
        for words in ["plan bomb.toml", "device show ./bomb.toml"] {
            let (peak, output) = peak_memory(&scratch, words);
            expect(&output, 3);
            assert!(peak < MOST, "{words}: {} MiB", peak >> 20);
        }
    }
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let mut tar = tar::Builder::new(&mut gzip);
    for number in 0..300 {
        let mut header = tar::Header::new_gnu();
        header.set_size(0);
        let name = format!("b/{number}/{}f", "a/".repeat(1900));
        tar.append_data(&mut header, name, &[][..]).expect("packed");
    }
    drop(tar);
    fs::write(at("deep.tar.gz"), gzip.finish().expect("packed")).expect("written");
    scratch.fails("bundle --check deep.tar.gz", 7, &["does not belong"]);
}
