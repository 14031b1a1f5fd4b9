//! Shared helpers of the end-to-end tests: a scratch directory with its own state, the program, and skips.
//!
//! Invariant: no test touches the user's own state directory.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod disks;
pub mod runs;
pub mod servers;

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};

/// A scratch directory on a real file system, with a state directory of its own.
pub struct Scratch {
    pub dir: tempfile::TempDir,
}

impl Scratch {
    pub fn new() -> Self {
        Self {
            dir: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory"),
        }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn state(&self) -> PathBuf {
        self.path().join("state")
    }

    /// The program in this directory, without arguments.
    pub fn crosspoint(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_crosspoint"));
        command.current_dir(self.path()).env("CROSSPOINT_STATE_DIR", self.state());
        command.env("NO_COLOR", "1");
        command
    }

    /// Runs the program with `words` (split at spaces).
    pub fn run(&self, words: &str) -> Output {
        self.crosspoint().args(words.split(' ')).output().expect("the program starts")
    }

    /// Asserts the exit code, and that stderr contains all of `parts`.
    pub fn fails(&self, words: &str, code: i32, parts: &[&str]) {
        let output = self.run(words);
        expect(&output, code);
        contains(&stderr(&output), words, parts);
    }

    /// Like [`Self::fails`], for stdout.
    pub fn prints(&self, words: &str, code: i32, parts: &[&str]) {
        let output = self.run(words);
        expect(&output, code);
        contains(&stdout(&output), words, parts);
    }

    /// The JSON document that a command prints.
    pub fn json(&self, words: &str) -> serde_json::Value {
        let output = self.run(words);
        expect(&output, 0);
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// The mark of the only run with a journal here.
    pub fn mark(&self) -> String {
        let mut journals =
            std::fs::read_dir(self.state().join("undo")).expect("journals").flatten();
        let path = journals.next().expect("a journal").path();
        let text = std::fs::read_to_string(path).expect("its text");
        let header: serde_json::Value =
            serde_json::from_str(text.lines().next().unwrap_or_default()).expect("its first line");
        header["mark"].as_str().expect("a mark").to_owned()
    }

    /// Working directories that were left behind, at any depth below the scratch directory.
    pub fn leftovers(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        walk(self.path(), &mut found);
        found
    }
}

/// A scratch directory whose disks are detached when it is dropped, also if a test fails.
pub struct DiskScratch(pub Scratch);

impl std::ops::Deref for DiskScratch {
    type Target = Scratch;
    fn deref(&self) -> &Scratch {
        &self.0
    }
}

impl Drop for DiskScratch {
    fn drop(&mut self) {
        let _ = self.run("detach --all");
        let _ = self.run("clean");
    }
}

/// Whether the program finds RocksDB.
pub fn has_rocksdb(scratch: &Scratch) -> bool {
    let output = scratch.run("doctor");
    stdout(&output).contains("RocksDB ")
}

fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(".crosspoint-") {
            found.push(entry.path());
        } else if entry.path().is_dir() {
            walk(&entry.path(), found);
        }
    }
    let undo = dir.join("undo");
    found.extend(std::fs::read_dir(undo).into_iter().flatten().flatten().map(|e| e.path()));
}

/// Path of a test study.
pub fn study(name: &str) -> String {
    format!("{}/tests/studies/{name}.toml", env!("CARGO_MANIFEST_DIR"))
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Asserts the exit code, showing the program's output.
pub fn expect(output: &Output, code: i32) {
    let said = format!("{}{}", stdout(output), stderr(output));
    assert_eq!(output.status.code(), Some(code), "{said}");
}

fn contains(said: &str, words: &str, parts: &[&str]) {
    parts.iter().for_each(|part| assert!(said.contains(part), "{words}: `{part}`: {said}"));
}

/// Skips a test unless this is root (`root`, and what for) with these programs and paths.
pub fn needs(test: &str, wanted: &[&str]) -> Option<()> {
    let there = |one: &&str| match one.split(',').next() {
        Some("root") => is_root(),
        Some(path) if path.starts_with('/') => Path::new(path).exists(),
        _ => has(one),
    };
    let there = wanted.iter().all(there);
    if !there {
        skip(test, &wanted.join(", "));
    }
    there.then_some(())
}

/// Reports and counts a skipped test.
pub fn skip(test: &str, missing: &str) {
    println!("SKIPPED {test}: {missing}");
    if let Some(path) = std::env::var_os("CROSSPOINT_SKIPS") {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let _ = file.and_then(|mut file| writeln!(file, "{test}: {missing}"));
    }
}

pub fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status")
        .is_ok_and(|text| text.lines().any(|line| line.starts_with("Uid:\t0\t")))
}

pub fn has(program: &str) -> bool {
    Command::new("which").arg(program).output().is_ok_and(|output| output.status.success())
}

/// Loop devices of the tests; detached when dropped.
pub struct Loop {
    pub device: String,
    pub backing: PathBuf,
}

impl Loop {
    /// A sparse file of `bytes` bytes and a loop device over it; `None` if none is available.
    pub fn new(dir: &Path, name: &str, bytes: u64) -> Option<Self> {
        let backing = dir.join(name);
        let file = std::fs::File::create(&backing).expect("a backing file");
        file.set_len(bytes).expect("a size");
        let output =
            Command::new("losetup").args(["--find", "--show"]).arg(&backing).output().ok()?;
        let device = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(Self { device, backing })
    }

    pub fn tool(&self, program: &str, words: &[&str]) {
        let output =
            Command::new(program).args(words).arg(&self.device).output().expect("it starts");
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.device]).status();
    }
}

/// Runs a shell line; returns whether it succeeded.
pub fn sh(script: &str) -> bool {
    Command::new("sh").args(["-c", script]).status().is_ok_and(|status| status.success())
}

/// Starts a run and returns when its first interval is over.
pub fn start_and_wait(scratch: &Scratch, words: &[&str]) -> (Child, BufReader<ChildStderr>) {
    let mut command = scratch.crosspoint();
    command.args(words).args(["--progress", "plain"]);
    wait_for_interval(command)
}

/// Starts a program with plain progress lines, and returns when the first interval of a run is over.
pub fn wait_for_interval(mut command: Command) -> (Child, BufReader<ChildStderr>) {
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut errors = BufReader::new(child.stderr.take().expect("its errors"));
    let mut line = String::new();
    while !line.contains(" t=") {
        line.clear();
        assert!(
            errors.read_line(&mut line).expect("a line") > 0,
            "it ended before its first interval"
        );
    }
    (child, errors)
}

/// The output of a started program until its end.
pub fn finish(child: Child, mut errors: BufReader<ChildStderr>) -> Output {
    let mut said = String::new();
    std::io::Read::read_to_string(&mut errors, &mut said).expect("its errors");
    let mut output = child.wait_with_output().expect("it ends");
    output.stderr = said.into_bytes();
    output
}

/// ext4's shutdown (`EXT4_IOC_SHUTDOWN`, no log flush): from then on everything fails, as when the device
/// below is gone.
pub fn shut_down(place: &Path) -> bool {
    let dir = std::fs::File::open(place).expect("the file system");
    let how: u32 = 2;
    // _IOR('X', 125, __u32), from include/uapi/linux/fs.h.
    let request: libc::Ioctl = 0x8004_587D;
    // SAFETY: the ioctl reads one word, which lives through the call.
    unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&dir), request, &raw const how) == 0 }
}
