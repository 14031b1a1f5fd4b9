//! Output files: never overwrite what we did not make, never lose data silently, never inject into a terminal
//! or a spreadsheet.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{Scratch, expect, stderr, stdout, study};

/// A run of predictions: quick and deterministic.
fn virtual_run(scratch: &Scratch) {
    expect(&scratch.run(&format!("run {} --out run", study("virtual"))), 0);
}

/// `--out .` must not overwrite the user's study and report.
#[test]
fn a_run_folder_is_one_that_we_made() {
    let scratch = Scratch::new();
    let text = fs::read_to_string(study("virtual")).expect("the study");
    fs::write(scratch.path().join("study.toml"), &text).expect("mine");
    fs::write(scratch.path().join("report.html"), "mine").expect("mine");
    for out in [".", "/"] {
        scratch.fails(&format!("run study.toml --out {out}"), 2, &["not empty"]);
    }
    assert_eq!(fs::read_to_string(scratch.path().join("study.toml")).expect("mine"), text);
    assert_eq!(fs::read_to_string(scratch.path().join("report.html")).expect("mine"), "mine");
    fs::create_dir(scratch.path().join("empty")).expect("a directory");
    expect(&scratch.run("run study.toml --out empty"), 0);
    expect(&scratch.run("run study.toml --out empty"), 2);
}

#[test]
fn results_replace_only_what_carries_our_mark() {
    let scratch = Scratch::new();
    virtual_run(&scratch);
    let path = scratch.path().join("page.html");
    for neighbour in ["page.html.tmp", "page.tmp"] {
        fs::write(scratch.path().join(neighbour), "mine").expect("mine");
    }
    expect(&scratch.run("report run -o page.html"), 0);
    expect(&scratch.run("report run -o page.html"), 0);
    fs::write(&path, "my own page").expect("mine");
    scratch.fails("report run -o page.html", 5, &["--force"]);
    assert_eq!(fs::read_to_string(&path).expect("mine"), "my own page");
    expect(&scratch.run("report run -o page.html --force"), 0);
    for neighbour in ["page.html.tmp", "page.tmp"] {
        assert_eq!(fs::read_to_string(scratch.path().join(neighbour)).expect("mine"), "mine");
    }
    expect(&scratch.run("report run -o /dev/null"), 4);
    assert!(!fs::metadata("/dev/null").expect("it is there").is_file());
    assert_eq!(scratch.leftovers(), Vec::<PathBuf>::new());
}

/// A result that cannot be written completely must be an error.
#[test]
fn a_result_that_cannot_be_written_is_a_failure() {
    let scratch = Scratch::new();
    virtual_run(&scratch);
    for words in
        ["figures run --json", "figures run --format csv", "doctor", "device list", "--help"]
    {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        let mut command = scratch.crosspoint();
        command.args(words.split(' ')).stdout(Stdio::from(full)).stderr(Stdio::piped());
        let output = command.output().expect("it starts");
        expect(&output, 5);
        assert!(stderr(&output).contains("could not be written"), "{}", stderr(&output));
    }
    // The reader closed the pipe; that is not an error.
    let script = format!(
        "'{0}' figures run --json | head -c 10 >/dev/null; [ ${{PIPESTATUS[0]}} = 0 ] && \
         '{0}' report run -o - | head -c 10 >/dev/null; exit ${{PIPESTATUS[0]}}",
        env!("CARGO_BIN_EXE_crosspoint")
    );
    let mut command = std::process::Command::new("bash");
    command.args(["-c", &script]).current_dir(scratch.path());
    assert!(command.status().expect("bash").success());
}

/// A study or a run from another user must not control the reader's terminal.
#[test]
fn titles_hold_no_control_characters_and_cells_no_formulas() {
    let scratch = Scratch::new();
    let text = fs::read_to_string(study("virtual")).expect("the study");
    let first = text.lines().find(|line| line.starts_with("question")).unwrap_or("schema = 2");
    for title in ["\\u001b[2J", "\\u0007", "\\u009b31m"] {
        let bad = text.replacen(first, &format!("{first}\nabout = \"{title}\""), 1);
        let bad = if text.contains("\nabout") {
            text.replacen("about = \"", &format!("about = \"{title}"), 1)
        } else {
            bad
        };
        fs::write(scratch.path().join("bad.toml"), bad).expect("written");
        let output = scratch.run("plan bad.toml");
        expect(&output, 3);
        assert!(stderr(&output).contains("control character"), "{}", stderr(&output));
        assert!(!stderr(&output).contains('\u{1b}') && !stderr(&output).contains('\u{9b}'));
    }
    // Errors show the offending text without control characters.
    let output =
        scratch.crosspoint().args(["plan", "no\u{1b}[31mstudy"]).output().expect("it starts");
    expect(&output, 2);
    assert!(!stderr(&output).contains('\u{1b}'), "{:?}", stderr(&output));
    fs::write(scratch.path().join("bad.toml"), "schema = 1\nname = \"\\u001b[2Jx\"\n")
        .expect("written");
    let output = scratch.run("plan bad.toml");
    expect(&output, 3);
    assert!(!stderr(&output).contains('\u{1b}'), "{:?}", stderr(&output));
}

/// Oversized input must be rejected at once, with little memory and a short message.
#[test]
fn what_is_far_too_large_is_refused_in_a_second_and_little_memory() {
    let scratch = Scratch::new();
    let text = fs::read_to_string(study("virtual")).expect("the study");
    let write =
        |name: &str, text: &str| fs::write(scratch.path().join(name), text).expect("written");
    let list = |count: u32| (1..=count).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    let head = "schema = 1\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"model:intel-p4800x\"\n\
                [[experiment]]\nname = \"e\"\n[experiment.block]\n";
    let axes = list(1000);
    write(
        "points.toml",
        &format!(
            "{head}queue_depth = [{axes}]\nthreads = [{}]\nsync_every = [{axes}]\n",
            list(256)
        ),
    );
    write(
        "background.toml",
        &(head.to_owned() + &"[[experiment.block.beside]]\nread_share = \"0%\"\n".repeat(2000)),
    );
    write("line.toml", &format!("{text}\nx = \"{}\"\n", "a".repeat(3 << 20)));
    write("huge.toml", &format!("{text}\n# {}\n", "a".repeat(100 << 20)));
    let profile = stdout(&scratch.run("device show intel-p4800x --toml"));
    let many = profile.replace("channels = { value = 7", "channels = { value = 4294967295");
    assert_ne!(many, profile);
    write("many.toml", &many);
    let times =
        |times: &str| head.replace("[experiment.block]", &format!("{times}\n[experiment.block]"));
    write("long.toml", &times("warm_up = \"18446744073709551615ns\""));
    write("fine.toml", &times("warm_up = \"9999999999ms\"\ninterval = \"1ms\""));
    write("many-intervals.toml", &times("warm_up = \"150s\"\ninterval = \"1ms\""));
    fs::create_dir(scratch.path().join("fan")).expect("a directory");
    write("fan/a.fio", &"include b\n".repeat(1000));
    write("fan/b", &"include c\n".repeat(1000));
    write("fan/c", "# nothing\n");
    let names: Vec<String> = (0..300_000).map(|number| format!("/dev/{number}")).collect();
    write("names.conf", &format!("device-names: {}\ntest-duration-sec: 1\n", names.join(",")));
    let pipe = std::process::Command::new("mkfifo").arg(scratch.path().join("pipe.toml")).status();
    assert!(pipe.expect("mkfifo").success());
    for (words, code, said) in [
        ("plan pipe.toml", 2, "it is a pipe"),
        ("device check pipe.toml", 3, "it is a pipe"),
        ("plan points.toml", 3, "at most 100000"),
        ("plan background.toml", 3, "at most 64"),
        ("plan line.toml", 3, "unknown field"),
        ("plan huge.toml", 2, "longer than 4 MiB"),
        ("plan /dev/zero", 2, "longer than 4 MiB"),
        ("device check many.toml", 3, "at most 65536"),
        ("import huge.toml", 2, "longer than 4 MiB"),
        ("plan long.toml", 3, "at most a year"),
        ("plan fine.toml", 3, "million intervals"),
        ("plan many-intervals.toml", 3, "allowed: at most 100000"),
        ("import fan/a.fio", 3, "more than 1000 includes"),
        ("act names.conf --device model:intel-p4800x --rating 1", 3, "1 to 128 names"),
    ] {
        let began = Instant::now();
        // Memory is bounded by the shell's limit on address space, not by what this machine has.
        let script =
            format!("ulimit -v 262144; exec '{}' {words}", env!("CARGO_BIN_EXE_crosspoint"));
        let mut command = std::process::Command::new("bash");
        command.args(["-c", &script]).current_dir(scratch.path());
        let output = command.output().expect("bash");
        expect(&output, code);
        assert!(stderr(&output).contains(said), "{words}: {}", stderr(&output));
        assert!(stderr(&output).len() < 8000, "{words}: {} bytes", stderr(&output).len());
        // A bound against endless work; the aim is a second.
        assert!(began.elapsed() < Duration::from_secs(10), "{words}");
    }
}

/// Every file of a run has a checksum: a flipped bit must not become a figure.
#[test]
fn a_flipped_bit_in_any_file_of_a_run_is_found() {
    let scratch = Scratch::new();
    virtual_run(&scratch);
    let before = stdout(&scratch.run("figures run --format csv"));
    let names = ["run.json", "study.toml", "study.original.toml", "sums.txt"];
    let mut files: Vec<PathBuf> = names.map(|name| scratch.path().join("run").join(name)).to_vec();
    let trial = fs::read_dir(scratch.path().join("run/trials")).expect("trials").flatten().next();
    let trial = trial.expect("a trial").path();
    files.extend(["trial.json", "latency.hlog"].map(|name| trial.join(name)));
    for file in files {
        let whole = fs::read(&file).expect("it reads");
        for place in 0..6usize {
            let at = (whole.len() - 1) * place / 5;
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (place % 8);
            fs::write(&file, &bytes).expect("written");
            let output = scratch.run("figures run --format csv");
            let found = output.status.code() == Some(7) || output.status.code() == Some(2);
            assert!(found, "{} byte {at}: {}", file.display(), stderr(&output));
        }
        fs::write(&file, &whole).expect("written");
    }
    assert_eq!(stdout(&scratch.run("figures run --format csv")), before);
    // A run of an early version without checksums, with terminal control sequences in it.
    let old = fs::read_to_string(scratch.path().join("run/run.json")).expect("the header");
    fs::write(scratch.path().join("run/run.json"), old.replace(",\n  \"sums\": true", ""))
        .expect("it");
    let list = fs::read(scratch.path().join("run/sums.txt")).expect("the list");
    fs::remove_file(scratch.path().join("run/sums.txt")).expect("removed");
    let document = fs::read_to_string(trial.join("trial.json")).expect("a trial");
    let steering = document.replacen("\"engine\": \"block\"", "\"engine\": \"\\u001b[2Jblock\"", 1);
    assert_ne!(steering, document);
    fs::write(trial.join("trial.json"), steering).expect("written");
    for words in ["figures run", "figures run --format csv"] {
        let output = scratch.run(words);
        expect(&output, 0);
        assert!(!stdout(&output).contains('\u{1b}'), "{words}");
    }
    fs::write(trial.join("trial.json"), document).expect("written");
    fs::write(scratch.path().join("run/run.json"), old).expect("written");
    fs::write(scratch.path().join("run/sums.txt"), list).expect("written");
    fs::remove_file(scratch.path().join("run/study.original.toml")).expect("removed");
    expect(&scratch.run("figures run"), 7);
    // A run that lost its checksum list is not taken for an early version.
    fs::remove_file(scratch.path().join("run/sums.txt")).expect("removed");
    expect(&scratch.run("figures run"), 7);
}

/// A bundle must be rejected if anything in it differs, and bundling twice must give the same bytes.
#[test]
fn a_bundle_is_made_again_byte_for_byte_and_a_changed_one_is_found() {
    let scratch = Scratch::new();
    virtual_run(&scratch);
    for name in ["one.tar.gz", "two.tar.gz"] {
        expect(&scratch.run(&format!("bundle run -o {name}")), 0);
    }
    let at = |name: &str| scratch.path().join(name);
    let whole = fs::read(at("one.tar.gz")).expect("a bundle");
    assert!(whole == fs::read(at("two.tar.gz")).expect("a bundle"), "the same run, the same bytes");
    scratch.prints("bundle --check one.tar.gz", 0, &["regenerate byte for byte"]);
    // An existing file is not replaced without `--force`.
    expect(&scratch.run("bundle run -o one.tar.gz"), 0);
    fs::write(at("mine.tar.gz"), "mine").expect("written");
    expect(&scratch.run("bundle run -o mine.tar.gz"), 5);
    assert_eq!(fs::read_to_string(at("mine.tar.gz")).expect("mine"), "mine");

    // A changed number in the report with correct checksums: only rendering the report again finds that.
    let unpacked = at("unpacked");
    fs::create_dir(&unpacked).expect("a directory");
    let tar = |words: &[&str]| {
        let done = std::process::Command::new("tar").current_dir(&unpacked).args(words).status();
        assert!(done.is_ok_and(|status| status.success()), "tar {words:?}");
    };
    tar(&["-xzf", "../one.tar.gz"]);
    let page = unpacked.join("run/report.html");
    let text = fs::read_to_string(&page).expect("a page");
    fs::write(&page, text.replacen("predicted", "measured!", 1)).expect("written");
    let sums = "cd run && sha256sum $(cut -c67- SHA256SUMS) > new && mv new SHA256SUMS";
    let summed =
        std::process::Command::new("sh").current_dir(&unpacked).args(["-c", sums]).status();
    assert!(summed.is_ok_and(|status| status.success()), "sums");
    // Regular files only: a bundle has no directory entries.
    let packed = "find run -type f | tar -czf ../forged.tar.gz -T -";
    let packed =
        std::process::Command::new("sh").current_dir(&unpacked).args(["-c", packed]).status();
    assert!(packed.is_ok_and(|status| status.success()), "packed");
    scratch.fails("bundle --check forged.tar.gz", 7, &["packed by another program"]);
    // Truncated, and none at all.
    fs::write(at("cut.tar.gz"), &whole[..whole.len() / 2]).expect("written");
    for name in ["cut.tar.gz", "mine.tar.gz", "none.tar.gz"] {
        expect(&scratch.run(&format!("bundle --check {name}")), 7);
    }
}

/// A missed objective must show in the exit code, or a script accepts a slow drive.
#[test]
fn a_missed_objective_ends_with_its_own_code() {
    let scratch = Scratch::new();
    let text = fs::read_to_string(study("virtual")).expect("the study");
    let with = |objective: &str| {
        let text = text.replace("[[experiment]]\n", &format!("[[experiment]]\n{objective}\n"));
        fs::write(scratch.path().join("asks.toml"), text).expect("written");
    };
    with("objectives = [\"p50 <= 1s\"]");
    scratch.prints("run asks.toml --out met", 0, &["0 missed"]);
    with("objectives = [\"p50 <= 1s\", \"p50 <= 1ns\"]");
    scratch.prints("run asks.toml --out missed", 8, &["objective missed: p50"]);
    expect(&scratch.run("run --resume missed"), 8);
    let page = fs::read_to_string(scratch.path().join("missed/report.html")).expect("a page");
    assert!(page.contains("\u{2715} fail"), "the table says so");
    with("objectives = [\"p98 <= 1s\"]");
    scratch.fails("run asks.toml --out wrong", 3, &["p50, p90, p99, p99_9"]);
    with("");
    let wrong = "reference = \"nobody\"\n";
    let text = text.replacen("schema = 2\n", &format!("schema = 2\n{wrong}"), 1);
    fs::write(scratch.path().join("asks.toml"), text).expect("written");
    expect(&scratch.run("run asks.toml --out wrong"), 3);
}
