//! Watching and serving a run in progress, end to end: leaving must not end it, and unauthorized users must
//! see nothing.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::support::{Scratch, expect, stderr};

/// Long enough to be watched on a busy machine.
const LONG: &str = "run block --rw randread --size 16m --runtime 600 . --out runs/long --detach";

/// Stops the detached run as a user would, and waits for it with `watch`.
fn stopped(scratch: &Scratch, process: &str) {
    let status = std::process::Command::new("kill").args(["-INT", process]).status();
    assert!(status.expect("kill starts").success());
    let watched = scratch.run("watch runs/long");
    assert!(watched.status.success() || stderr(&watched).contains("no run is in progress"));
}

/// A value from the run's document.
fn process(scratch: &Scratch) -> String {
    let live = follow::ask(&scratch.path().join("runs/long")).expect("it answers");
    live.expect("it is in progress").process.to_string()
}

#[test]
fn a_detached_run_goes_on_is_watched_and_keeps_what_it_has_when_it_is_stopped() {
    let scratch = Scratch::new();
    scratch.prints(LONG, 0, &["watch: crosspoint watch runs/long"]);
    // Without a terminal it prints one line per second; the reader leaves after the second line.
    let mut child =
        scratch.crosspoint().arg("watch").stdout(Stdio::piped()).spawn().expect("starts");
    let mut lines = BufReader::new(child.stdout.take().expect("its lines")).lines();
    for _ in 0..2 {
        let line = lines.next().expect("a line").expect("text");
        assert!(line.contains("of 1 trials"), "{line}");
    }
    child.kill().expect("it is left");
    child.wait().expect("it ends");
    // A second run in the same folder must report the first one, not take its progress for its own.
    scratch.fails(LONG, 2, &["exists already"]);
    let again = scratch.run("run --resume runs/long --detach");
    assert!(!again.status.success() && stderr(&again).contains("another process"));
    stopped(&scratch, &process(&scratch));
    let log = std::fs::read_to_string(scratch.path().join("runs/long.log")).expect("its log");
    assert!(log.contains("stopping at the end of this interval"), "{log}");
}

#[test]
fn what_is_wrong_is_said_before_anything_goes_on_in_the_background() {
    let scratch = Scratch::new();
    for (words, code) in [
        ("run nosuchstudy --detach", 2),
        ("run block --bs 0 --detach", 3),
        ("watch", 2),
        ("watch nosuchrun", 2),
        ("serve nosuchfolder", 2),
    ] {
        expect(&scratch.run(words), code);
    }
    expect(&scratch.run("run --resume nosuch/run --detach"), 2);
    assert!(!scratch.path().join("nosuch").exists(), "nothing is left of a mistake");
    // An unrelated file next to the run folder must stay.
    std::fs::create_dir(scratch.path().join("runs")).expect("a folder");
    std::fs::write(scratch.path().join("runs/a.log"), "mine").expect("written");
    let model = "run block --runtime 1 model:intel-p4800x --out runs/a --detach";
    let _ = scratch.run(model);
    let kept = std::fs::read_to_string(scratch.path().join("runs/a.log")).expect("there");
    assert_eq!(kept, "mine");
    assert!(scratch.path().join("runs/a-2.log").exists());
}

struct Serving(Child, String);

impl Serving {
    fn start(scratch: &Scratch) -> Self {
        let mut command = scratch.crosspoint();
        let mut child =
            command.args(["serve", "runs"]).stdout(Stdio::piped()).spawn().expect("starts");
        let mut address = String::new();
        BufReader::new(child.stdout.take().expect("stdout"))
            .read_line(&mut address)
            .expect("a line");
        Self(child, address.trim().to_owned())
    }

    /// Status and body; the token from the address is sent as a cookie.
    fn get(&self, path: &str, token: bool) -> (u16, String) {
        let (base, value) = self.1.split_once("/?token=").expect("an address with a token");
        let port = base.rsplit(':').next().expect("a port");
        let request = ureq::get(format!("{base}{path}"));
        let request = match token {
            true => request.header("Cookie", format!("crosspoint-{port}={value}")),
            false => request,
        };
        let limits = request.config().timeout_global(Some(Duration::from_secs(60)));
        let mut answer = limits.http_status_as_error(false).build().call().expect("it answers");
        (answer.status().as_u16(), answer.body_mut().read_to_string().expect("text"))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_library_has_each_run_its_trend_and_what_goes_on_and_gives_nothing_without_its_token() {
    let scratch = Scratch::new();
    let job = "run block --rw randread --runtime 1 model:intel-p4800x --out runs";
    for name in ["one", "two"] {
        expect(&scratch.run(&format!("{job}/{name}")), 0);
    }
    expect(&scratch.run(LONG), 0);
    let serving = Serving::start(&scratch);
    let (status, list) = serving.get("/", true);
    assert_eq!(status, 200);
    for words in
        ["href=\"run/one\"", "href=\"run/two\"", "href=\"live/long\"", "href=\"trend/block\""]
    {
        assert!(list.contains(words), "{words}: {list}");
    }
    let (_, page) = serving.get("/run/one", true);
    let own =
        std::fs::read_to_string(scratch.path().join("runs/one/report.html")).expect("its page");
    let unsealed = own.split("<!-- crosspoint:crc32").next().expect("a page");
    assert!(page.trim_end() == unsealed.trim_end(), "the page that the run has");
    let (_, trend) = serving.get("/trend/block", true);
    assert!(trend.contains("last over first: 1.00"), "the same in virtual time");
    let (_, live) = serving.get("/live/long.json", true);
    assert!(live.contains("\"trials\":1"), "{live}");
    for path in ["/", "/run/one", "/live/long.json", "/trend/block"] {
        let (status, body) = serving.get(path, false);
        assert_eq!(status, 403, "{path}");
        assert!(!body.contains("block") && !body.contains("one"), "{body}");
    }
    stopped(&scratch, &process(&scratch));
    assert_eq!(serving.get("/live/long.json", true), (200, "null".to_owned()));
}
