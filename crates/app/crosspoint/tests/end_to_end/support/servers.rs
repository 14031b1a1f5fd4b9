//! Shared helpers of server tests: SQL studies, leftover processes, and a server that plays the user's own.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use engine::{Home, Hosting, Listen, Preload, PrivateServer};
use engine_mysql::{Binary, Server, arguments, connect_briefly, initialise};
use mysql::prelude::Queryable;
use serde_json::Value;
use stack::{Journal, WorkArea};

use super::{Scratch, expect, has, skip, stdout};

/// Skips a test if no server is installed.
pub fn has_server(test: &str) -> Option<()> {
    let there = Binary::find("auto").is_ok() && (has("mariadb-install-db") || has("mysqld"));
    if !there {
        skip(test, "mariadb-server");
    }
    there.then_some(())
}

/// A study with one stack and SQL experiments, each with its keys and its measurement time.
pub fn write_study(scratch: &Scratch, stack: &str, experiments: &[(&str, &str, &str)]) {
    let mut text =
        format!("schema = 1\nname = \"sql\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n{stack}");
    for (name, times, keys) in experiments {
        text.push_str(&format!(
            "[[experiment]]\nname = \"{name}\"\n{times}[experiment.sql]\n{keys}"
        ));
    }
    std::fs::write(scratch.path().join("sql.toml"), text).expect("written");
}

pub const SHORT: &str = "warm_up = \"0s\"\nmeasure = \"1s\"\ninterval = \"250ms\"\n";
pub const LONG: &str = "warm_up = \"0s\"\nmeasure = \"20s\"\ninterval = \"250ms\"\n";
pub const SMALL: &str = "rows = 2000\ntables = 2\nthreads = 2\n";

pub fn figures(scratch: &Scratch) -> Vec<Value> {
    let output = scratch.run("figures run --format json");
    expect(&output, 0);
    let document: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    document["figures"].as_array().expect("figures").clone()
}

pub fn value(figures: &[Value], metric: &str, op: &str) -> f64 {
    let is = |one: &&Value| one["metric"] == metric && one["point"]["op"] == op;
    let found = figures.iter().find(is).unwrap_or_else(|| panic!("no {metric} of {op}"));
    found["value"].as_f64().expect("a number")
}

/// Processes started from this scratch directory, by their environment.
pub fn processes_on(place: &Path) -> Vec<u32> {
    let wanted = format!("CROSSPOINT_STATE_DIR={}", place.join("state").display());
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let on_it = |number: &u32| {
        let environment = std::fs::read(format!("/proc/{number}/environ")).unwrap_or_default();
        let name = std::fs::read_to_string(format!("/proc/{number}/comm")).unwrap_or_default();
        let from_here = environment.split(|byte| *byte == 0).any(|word| word == wanted.as_bytes());
        from_here && name.trim() != "crosspoint"
    };
    numbers.filter(on_it).collect()
}

/// The server processes among them.
pub fn servers_on(place: &Path) -> Vec<u32> {
    let is_server = |number: &u32| {
        std::fs::read_to_string(format!("/proc/{number}/comm"))
            .is_ok_and(|name| name.trim() == "mariadbd")
    };
    processes_on(place).into_iter().filter(is_server).collect()
}

/// Asserts that no server, mount or directory of ours is left.
pub fn nothing_left(scratch: &Scratch) {
    assert_eq!(processes_on(scratch.path()), Vec::<u32>::new());
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    assert!(!mounts.contains(&scratch.path().display().to_string()), "{mounts}");
    assert_eq!(scratch.leftovers(), Vec::<PathBuf>::new());
}

/// A server that plays the user's own: started by the test, used by DSN.
pub struct Theirs {
    pub server: Box<Server>,
    _area: WorkArea,
    _journal: &'static Journal,
    _dir: tempfile::TempDir,
}

pub const PASSWORD: &str = "correct-horse-battery";

impl Theirs {
    pub fn start() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let journal: &'static Journal =
            Box::leak(Box::new(Journal::new(&dir.path().join("state"), |_, _, _| Ok(()))));
        let area = WorkArea::create(journal, dir.path(), "theirs").expect("an area");
        let binary = Binary::find("auto").expect("a server");
        let place = area.fresh("database").expect("a directory");
        let job = study::parse(
            "schema = 1\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n\
             [[experiment]]\nname = \"e\"\n[experiment.sql]\nrows = 10\n",
            engines::list(),
        );
        let plan = study::plan(&job.expect("a study"));
        let study::Job::Sql(job) = plan.trials[0].job.clone() else { panic!("a SQL job") };
        let never = AtomicBool::new(false);
        let home = Home::make(&binary.path, &place).expect("folders");
        initialise(&binary, &home, (journal.mark(), &never), units::Bytes(16 << 10))
            .expect("a data directory");
        let all = arguments(&binary, &job, &home, units::Bytes::mib(32));
        let log = dir.path().join("theirs.log");
        let with = (&Listen::Own, all.as_slice());
        let limits = &stack::Limits::default();
        let pool = units::Bytes::mib(32);
        let private = PrivateServer {
            place: &place,
            log: &log,
            pool,
            limits,
            preload: Preload::None,
            wal: None,
        };
        let server =
            Server::start(&binary, Hosting { journal, stop: &never }, (&home, private), with);
        let server = server.expect("it starts");
        let mut conn = connect_briefly(&server.target(None)).expect("a connection");
        for statement in [
            "CREATE DATABASE mine".to_owned(),
            format!("CREATE USER rich IDENTIFIED BY '{PASSWORD}'"),
            "GRANT ALL ON mine.* TO rich".into(),
            format!("CREATE USER poor IDENTIFIED BY '{PASSWORD}'"),
            "GRANT SELECT ON mine.* TO poor".into(),
        ] {
            conn.query_drop(statement).expect("it is allowed");
        }
        Self { server: Box::new(server), _area: area, _journal: journal, _dir: dir }
    }

    pub fn keys(&self, user: &str, database: &str) -> String {
        let socket = self.server.address();
        format!("{SMALL}dsn = \"mysql://{user}@{socket}:{database}\"\n")
    }
}
