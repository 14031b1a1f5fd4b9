//! A private server for one test, with tables.

#![allow(dead_code, reason = "each test file uses its part")]

use std::sync::atomic::AtomicBool;

use crosspoint_engine_mysql::{Binary, Mysql, Server, arguments, connect_briefly, initialise};
use engine::sql::{SqlSpec, measure};
use engine::{Home, Hosting, Listen, Preload, PrivateServer, TrialSpec};
use mysql::prelude::Queryable;
use observe::Control;
use stack::{Journal, WorkArea};
use stats::Timeline;
use study::{Job, SqlJob, sql_plan};
use units::{Bytes, Nanos, Seed};
use workload::SqlClient;

/// Reports missing programs; returns whether any are missing.
pub fn missing(programs: &[&str]) -> bool {
    for program in programs {
        let there = match *program {
            "mariadbd" => Binary::find("auto").is_ok(),
            other => std::process::Command::new(other).arg("--version").output().is_ok(),
        };
        if !there {
            contract::skip(&format!("statements next to sysbench: {program}"));
            return true;
        }
    }
    false
}

/// The job with these keys of an experiment.
pub fn job(keys: &str) -> SqlJob {
    let text = format!(
        "schema = 1\nname = \"s\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n[[experiment]]\n\
         name = \"e\"\n[experiment.sql]\n{keys}"
    );
    const ENGINES: &[&study::Descriptor] = &[<Mysql as engine::Engine>::DESCRIPTOR];
    let plan = study::plan(&study::parse(&text, study::Engines::of(ENGINES)).expect("a study"));
    let Job::Sql(job) = plan.trials[0].job.clone() else { panic!("a SQL job") };
    *job
}

/// A server with an empty database, in a temporary directory.
pub struct Private {
    pub server: Server,
    pub binary: Binary,
    pub dir: tempfile::TempDir,
    _area: WorkArea,
    _journal: &'static Journal,
}

impl Private {
    /// Starts it for `job` with `more` settings.
    pub fn start(job: &SqlJob, more: &[String]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        // The journal outlives everything that is in it.
        let journal: &'static Journal =
            Box::leak(Box::new(Journal::new(&dir.path().join("state"), |_, _, _| Ok(()))));
        let area = WorkArea::create(journal, dir.path(), "server").expect("an area");
        let binary = Binary::find("auto").expect("a server");
        let place = area.fresh("database").expect("a directory");
        let never = AtomicBool::new(false);
        let home = Home::make(&binary.path, &place).expect("folders");
        initialise(
            &binary,
            &home,
            (journal.mark(), &never),
            job.options.size("page_size").unwrap_or(units::Bytes(16 << 10)),
        )
        .expect("a data directory");
        let mut arguments = arguments(&binary, job, &home, Bytes::mib(64));
        arguments.extend_from_slice(more);
        let log = dir.path().join("server.log");
        let with = (&Listen::Own, arguments.as_slice());
        let limits = &stack::Limits::default();
        let pool = Bytes::mib(64);
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
        conn.query_drop("CREATE DATABASE sbtest").expect("a database");
        Self { server, binary, dir, _area: area, _journal: journal }
    }

    /// The engine for `job`.
    pub fn engine(&self, job: &SqlJob) -> Mysql {
        Mysql::new(self.server.target(Some("sbtest")), job)
    }

    /// Runs `job` until its transactions are done.
    pub fn run(&self, job: &SqlJob) -> stats::TrialResult {
        let timeline = Timeline {
            warm_up: Nanos::ZERO,
            measure: Nanos::from_secs(600),
            interval: Nanos::from_secs(1),
        };
        let trial = TrialSpec {
            timeline,
            stop_on_error: true,
            failures_max: Some(SqlSpec::FAILURES_MAX),
            max_lag: None,
        };
        let spec = SqlSpec { trial, changes: Vec::new() };
        let plan = sql_plan(job, timeline.end());
        let clients = SqlClient::all(&plan, job.clients, Seed(7));
        let stop = AtomicBool::new(false);
        let control = Control { stop: &stop, progress: None, keep: None };
        measure(&self.engine(job), &spec, clients, &control, &|| (), &mut Vec::new)
            .expect("it runs")
    }

    /// The path of the server's socket, for other programs.
    pub fn socket(&self) -> String {
        self.server.address().to_string()
    }
}
