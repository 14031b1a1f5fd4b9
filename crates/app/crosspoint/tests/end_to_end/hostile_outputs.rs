//! Output paths that lead elsewhere must change nothing.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::runs::{finished_run, trial_folders};
use crate::support::{Loop, Scratch, expect, is_root, needs, skip, stderr, study};

fn make_fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo").success());
}

/// `run --resume` must not write the report through a link, or onto a block device.
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
    // The same names as directories, pipes and links.
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

/// The joint report of a rating search must not be written through a link either.
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

/// Commands that write to a path of the user's, each with an output `OUT`.
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

/// Outputs must be regular files: a report was once written to a disk, with exit code 0 and without
/// `--force`.
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
            assert_eq!(code, Some(4), "{words} to {output}: {}", stderr(&done));
        }
        if !words.starts_with("import") {
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
    // A command must not overwrite its inputs.
    let job = fs::read(at("job.fio")).expect("it reads");
    expect(&scratch.run("import job.fio -o job.fio --force"), 4);
    assert_eq!(fs::read(at("job.fio")).expect("it reads"), job);
    expect(&scratch.run("figures run"), 0);
}

/// Outputs in another user's directory must be refused: `man` followed links there.
#[test]
fn outputs_in_a_directory_of_another_user_are_refused() {
    let test = "directories of other users";
    let Some(()) = needs(test, &["root"]) else { return };
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
    let directories = [
        "theirs", "open", "theirs/link", "theirs/link/", "theirs/link/new", "theirs/new",
        "theirs/../mine",
    ];
    for directory in directories {
        let mut all: Vec<String> =
            WRITERS.iter().map(|words| words.replace("OUT", &format!("{directory}/out"))).collect();
        all.push(format!("man {directory}"));
        all.push(format!("run short.toml --out {directory}/run --progress none"));
        all.push(format!("run short.toml --detach --out {directory}/run"));
        all.push(format!("power-cuts lmdb --cuts 1 --keep {directory}/kept"));
        for words in all {
            let done = scratch.run(&words);
            let code = done.status.code();
            // Only some commands create a missing directory.
            let missing = directory.ends_with("new") && code == Some(5);
            assert!(code == Some(4) || missing, "{words}: {code:?}: {}", stderr(&done));
        }
    }
    let entries = |name: &str| fs::read_dir(at(name)).expect("it").count();
    assert_eq!((entries("theirs"), entries("open"), entries("mine")), (1, 0, 0));
}

/// Replacing another user's page must not keep its owner and set-user-id bits.
#[test]
fn a_file_of_another_user_is_not_replaced_and_no_bits_are_taken_over() {
    let Some(()) = needs("files of other users", &["root"]) else { return };
    let scratch = Scratch::new();
    finished_run(&scratch);
    let at = |name: &str| scratch.path().join(name);
    fs::create_dir(at("shared")).expect("a directory");
    fs::set_permissions(at("shared"), fs::Permissions::from_mode(0o1777)).expect("chmod");
    let page = at("shared/page.html");
    expect(&scratch.run("report run -o shared/page.html"), 0);
    fs::set_permissions(&page, fs::Permissions::from_mode(0o6777)).expect("chmod");
    fs::write(at("short2"), "x").expect("written");
    expect(&scratch.run("report run run -o shared/page.html"), 0);
    assert_eq!(fs::metadata(&page).expect("a page").mode() & 0o7777, 0o755);
    let before = fs::read(&page).expect("a page");
    std::os::unix::fs::chown(&page, Some(1234), Some(1234)).expect("chown");
    for force in ["", " --force"] {
        expect(&scratch.run(&format!("report run -o shared/page.html{force}")), 4);
    }
    assert_eq!(fs::read(&page).expect("a page"), before);
}

/// A refused command must not create directories among the trials of a run.
#[test]
fn nothing_is_made_in_a_run_folder_of_another_run() {
    let scratch = Scratch::new();
    write_inputs(&scratch);
    fs::write(scratch.path().join("more.fio"), "[b]\nrw=read\nsize=1g\n").expect("written");
    for (words, code) in [
        ("man run/trials/pages", 4),
        ("man run/evidence-x", 4),
        ("import job.fio more.fio -o run/trials/new", 4),
        ("run short.toml --out run/trials/x --progress none", 4),
        ("run short.toml --out run/aside --progress none", 4),
        ("run short.toml --detach --out run/trials/x/y", 4),
        ("power-cuts lmdb --cuts 1 --keep run/trials/k", 4),
    ] {
        expect(&scratch.run(words), code);
    }
    expect(&scratch.run("figures run"), 0);
    assert!(!scratch.path().join("run/aside").exists());
    assert!(!scratch.path().join("run/evidence-x").exists());
    // A link is not accepted as a new run folder.
    fs::create_dir(scratch.path().join("empty")).expect("a directory");
    symlink(scratch.path().join("empty"), scratch.path().join("link")).expect("a link");
    expect(&scratch.run("run short.toml --out link --progress none"), 4);
    expect(&scratch.run("run short.toml --out link/ --progress none"), 4);
    expect(&scratch.run("power-cuts lmdb --cuts 1 --keep link/"), 4);
    expect(&scratch.run("man link/"), 4);
    assert_eq!(fs::read_dir(scratch.path().join("empty")).expect("it").count(), 0);
}

/// An included study must be read before another job replaces it.
#[test]
fn no_import_replaces_what_another_includes() {
    let scratch = Scratch::new();
    let write = |name: &str, text: &str| {
        fs::write(scratch.path().join(name), text).expect("written");
    };
    write("b.toml", "bs=4k\n");
    write("a.fio", "[a]\nrw=read\nsize=1g\ninclude b.toml\n");
    write("b.fio", "[b]\nrw=read\nsize=1g\n");
    scratch.fails("import b.fio a.fio --force", 4, &["it is an input of this command"]);
    assert_eq!(fs::read_to_string(scratch.path().join("b.toml")).expect("it"), "bs=4k\n");
}

/// Identical results replace nothing, and stdout accepts any of them.
#[test]
fn equal_results_and_stdout_are_no_conflict() {
    let scratch = Scratch::new();
    finished_run(&scratch);
    for words in ["figures run -o f.csv", "bundle run -o b.tar.gz", "report run -o p.html"] {
        expect(&scratch.run(words), 0);
        expect(&scratch.run(words), 0);
    }
    let bundle = scratch.run("bundle run -o -");
    expect(&bundle, 0);
    assert_eq!(bundle.stdout, fs::read(scratch.path().join("b.tar.gz")).expect("a bundle"));
    assert!(scratch.run("report run -o -").stdout.starts_with(b"<!doctype html>"));
    assert!(!scratch.path().join("-").exists());
    expect(&scratch.run("run --resume nowhere"), 2);
}

/// Manual pages are replaced like every other result: only unedited ones of ours, no links.
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
    expect(&scratch.run("man pages --force"), 0);
    fs::write(&page, format!("{whole}mine\n")).expect("written");
    assert!(fs::read_to_string(&page).expect("a page").ends_with("mine\n"));
    fs::remove_file(&page).expect("removed");
    fs::write(scratch.path().join("victim"), "mine").expect("written");
    symlink(scratch.path().join("victim"), &page).expect("a link");
    expect(&scratch.run("man pages"), 4);
    assert_eq!(fs::read_to_string(scratch.path().join("victim")).expect("mine"), "mine");
}

/// A page with the user's notes must not be replaced silently.
#[test]
fn a_report_that_was_edited_is_kept_when_its_run_is_resumed() {
    let scratch = Scratch::new();
    finished_run(&scratch);
    let page = scratch.path().join("run/report.html");
    let edited = fs::read_to_string(&page).expect("a page").replace("</html>", "<p>mine</html>");
    fs::write(&page, &edited).expect("written");
    scratch.fails("run --resume run --progress none", 0, &["report-1.html"]);
    let kept = fs::read_to_string(scratch.path().join("run/report-1.html")).expect("kept");
    assert_eq!(kept, edited);
    assert!(!fs::read_to_string(&page).expect("a page").contains("<p>mine"));
}

/// A failed run must not leave an empty run folder if the state directory cannot be created.
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

/// The error of an include must not show lines of the included file.
#[test]
fn an_include_shows_no_line_of_the_file() {
    let scratch = Scratch::new();
    let write = |name: &str, text: &str| {
        fs::write(scratch.path().join(name), text).expect("written");
    };
    write("job.fio", "[a]\nrw=read\nsize=1g\ninclude secret\n");
    // Secrets in known fio options, in misspelled ones, and in values that only the study's check rejects.
    for secret in [
        "root:$6$hash:1", "hash", "[hash]", "fsync=hash", "numjobs=9999", "${hash}", "include hash",
    ] {
        write("secret", &format!("{secret}\n"));
        let output = scratch.run("import job.fio");
        assert!(matches!(output.status.code(), Some(0 | 3)), "{secret}: {}", stderr(&output));
        let said = stderr(&output) + &String::from_utf8_lossy(&output.stdout);
        assert!(!said.contains("hash") && !said.contains("9999"), "{secret}: {said}");
    }
    write("secret", "root:$6$hash:1\n");
    let said = stderr(&scratch.run("import job.fio"));
    assert!(said.contains("line 4: include secret: line 1"), "{said}");
}

/// If a drive cannot be served, its server and its parent must not wait for each other.
#[test]
fn a_drive_server_without_a_drive_ends() {
    let scratch = Scratch::new();
    let mut command = scratch.crosspoint();
    let mut child = command
        .arg("serve-drive")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut input = child.stdin.take().expect("stdin");
    let spec = r#"{"model":"none","size":"64MiB","condition":"steady","seed":1,"store":null,
        "at":"/nowhere","scale":1,"spin":null,"path":null,"transport":null,"block":false,
        "staged":false,"faults":null,"owner":null}"#;
    let spec = spec.replace('\n', "");
    std::io::Write::write_all(&mut input, format!("{{\"Serve\":{spec}}}\n").as_bytes())
        .expect("sent");
    // Standard input stays open.
    let output = child.wait_with_output().expect("it ends");
    assert!(String::from_utf8_lossy(&output.stdout).contains("Failed"), "{output:?}");
    drop(input);
}

/// A server killed while its file system is being mounted must not leave its parent waiting.
#[test]
fn power_cuts_that_are_killed_during_a_mount_end() {
    let test = "power-cuts killed during a mount";
    let Some(()) = needs(test, &["root", "losetup", "mkfs.ext4", "/dev/fuse"]) else { return };
    let scratch = crate::support::DiskScratch(Scratch::new());
    let mut command = scratch.crosspoint();
    command.args(["power-cuts", "lmdb", "--attach", "--cuts", "50", "--size", "256MiB"]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    for _ in 0..3 {
        let mut child = command.spawn().expect("it starts");
        // A thread of the process, or a child, that is in mount(2).
        let until = Instant::now() + Duration::from_secs(60);
        let mut seen = false;
        while !seen && Instant::now() < until {
            seen = is_mounting(child.id());
        }
        assert!(seen, "no mount was seen");
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
