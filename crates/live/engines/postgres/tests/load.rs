//! The contract of SQL engines, and an interrupted load that is continued, on a real server.

use std::sync::atomic::AtomicBool;

use crosspoint_engine_postgres::{Binary, Conn, Postgres, Server, connect_briefly, initialise};
use engine::sql::load;
use engine::{Home, Hosting, Listen, Place, Preload, PrivateServer};
use stack::{Journal, WorkArea};
use study::{SqlJob, sql_plan};
use units::{Bytes, Nanos, Seed};

/// A private server for one test.
struct Private {
    server: Server,
    _area: WorkArea,
    _dir: tempfile::TempDir,
}

impl Private {
    /// Starts it for `job`, with an empty database; `None` if no server is installed.
    fn start(job: &SqlJob) -> Option<Self> {
        let Ok(binary) = Binary::find("auto") else {
            contract::skip("statements of PostgreSQL: postgres");
            return None;
        };
        let dir = tempfile::tempdir().expect("a directory");
        // The journal outlives everything that is in it.
        let journal: &'static Journal =
            Box::leak(Box::new(Journal::new(&dir.path().join("state"), |_, _, _| Ok(()))));
        let area = WorkArea::create(journal, dir.path(), "server").expect("an area");
        let place = area.fresh("database").expect("a directory");
        let never = AtomicBool::new(false);
        let home = Home::make(&binary.path, &place).expect("folders");
        initialise(&binary, &home, (journal.mark(), &never), false).expect("a data directory");
        let log = dir.path().join("server.log");
        let limits = &stack::Limits::default();
        let (pool, preload) = (Bytes::mib(64), Preload::None);
        let private = PrivateServer { place: &place, log: &log, pool, limits, preload, wal: None };
        let hosting = Hosting { journal, stop: &never };
        let server = Server::start(&binary, hosting, (&home, private), (&Listen::Own, job));
        let server = server.expect("it starts");
        server.make_database("sbtest").expect("a database");
        Some(Self { server, _area: area, _dir: dir })
    }

    fn place(&self) -> Place {
        Place::Server(self.server.target(Some("sbtest")))
    }

    fn conn(&self) -> Conn {
        connect_briefly(&self.server.target(Some("sbtest"))).expect("a connection")
    }
}

#[test]
fn postgres_keeps_the_contract_of_sql() {
    let job = contract::sql::job::<Postgres>();
    let Some(private) = Private::start(&job) else { return };
    contract::sql::check::<Postgres>(&private.place(), |job| job);
}

/// The statements as text are the same ones: a server that refused them would be measured as fast.
#[test]
fn postgres_keeps_the_contract_without_prepared_statements() {
    let job = contract::sql::job::<Postgres>();
    let Some(private) = Private::start(&job) else { return };
    contract::sql::check::<Postgres>(&private.place(), |job| SqlJob { prepared: false, ..job });
}

/// A continued load must give identical tables, or runs would differ by when their load was interrupted.
#[test]
fn a_load_that_was_cut_off_goes_on_to_the_same_tables() {
    let job = SqlJob { records: 9000, ..contract::sql::job::<Postgres>() };
    let Some(private) = Private::start(&job) else { return };
    let engine = Postgres::new(private.server.target(Some("sbtest")), &job);
    let (plan, mut conn) = (sql_plan(&job, Nanos::MAX), private.conn());
    let mut sums = || {
        let all = [1, 2].map(|table| {
            conn.one(&format!(
                "SELECT md5(string_agg(t::text, '\n' ORDER BY id)) FROM sbtest{table} t"
            ))
        });
        all.map(|sum| sum.expect("a sum").expect("rows"))
    };
    assert!(load(&engine, &plan, (Seed(5), 2), &mut |_| true).expect("loaded"));
    let whole = sums();
    private.conn().run("DROP TABLE sbtest1, sbtest2").expect("dropped");
    // Interrupted whenever some rows are in, any number of times.
    let mut rounds = 0;
    while !load(&engine, &plan, (Seed(5), 1), &mut |rows| rows == 0).expect("a part") {
        rounds += 1;
        assert!(rounds < 50, "it never ends");
    }
    assert_eq!(sums(), whole);
    // Tables of others are not taken for ours.
    private.conn().run("DELETE FROM sbtest1 WHERE id > 8123").expect("deleted");
    let error = load(&engine, &plan, (Seed(5), 1), &mut |_| true).expect_err("not ours");
    assert!(error.to_string().contains("8123 rows that Crosspoint did not load"), "{error}");
}

/// Accounts and addresses: another one could be measured by mistake, or let others in.
#[test]
fn a_private_server_accepts_nobody_else() {
    let job = contract::sql::job::<Postgres>();
    let Some(private) = Private::start(&job) else { return };
    let mut conn = private.conn();
    assert_eq!(conn.one("SHOW listen_addresses").expect("told").as_deref(), Some(""));
    let users = conn.rows("SELECT rolname FROM pg_roles WHERE rolcanlogin").expect("roles");
    assert_eq!(users, [[Some("crosspoint".to_owned())]]);
    let mut wrong = private.server.target(Some("sbtest"));
    wrong.password = Some(engine::Secret::new("guessed".into()));
    let error = connect_briefly(&wrong).expect_err("a wrong password").to_string();
    assert!(error.contains("password authentication failed"), "{error}");
    assert!(!error.contains("guessed"), "{error}");
}
