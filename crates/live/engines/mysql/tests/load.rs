//! An interrupted load that is continued on a real server.

mod support;

use crosspoint_engine_mysql::{Mysql, connect_briefly};
use engine::Place;
use engine::sql::load;
use mysql::prelude::Queryable;
use study::sql_plan;
use support::{Private, job, missing};
use units::{Nanos, Seed};

#[test]
fn mariadb_keeps_the_contract_of_sql() {
    if missing(&["mariadbd"]) {
        return;
    }
    let job = contract::sql::job::<Mysql>();
    let private = Private::start(&job, &[]);
    let target = private.server.target(Some("sbtest"));
    contract::sql::check::<Mysql>(&Place::Server(target), |job| job);
}

/// The server's checksums of both tables.
fn sums(conn: &mut mysql::Conn) -> Vec<(String, u64)> {
    conn.query("CHECKSUM TABLE sbtest1, sbtest2").expect("sums")
}

/// A continued load must give identical tables, or runs would differ by when their load was interrupted.
#[test]
fn a_load_that_was_cut_off_goes_on_to_the_same_tables() {
    if missing(&["mariadbd"]) {
        return;
    }
    let job = job("tables = 2\nrows = 9000\nthreads = 1\nkeys = \"gaussian\"\n");
    let private = Private::start(&job, &[]);
    let (engine, plan) = (private.engine(&job), sql_plan(&job, Nanos::MAX));
    let mut conn = connect_briefly(&private.server.target(Some("sbtest"))).expect("a connection");
    assert!(load(&engine, &plan, (Seed(5), 2), &mut |_| true).expect("loaded"));
    let whole = sums(&mut conn);
    conn.query_drop("DROP TABLE sbtest1, sbtest2").expect("dropped");
    // Interrupted whenever some rows are in, any number of times.
    let mut rounds = 0;
    while !load(&engine, &plan, (Seed(5), 1), &mut |rows| rows == 0).expect("a part") {
        rounds += 1;
        assert!(rounds < 50, "it never ends");
    }
    assert_eq!(sums(&mut conn), whole);
    let indexes: Vec<String> = conn
        .query("SELECT index_name FROM information_schema.statistics WHERE table_name = 'sbtest2'")
        .expect("indexes");
    assert!(indexes.contains(&"k_2".to_owned()), "{indexes:?}");
    // Tables of others are not taken for ours.
    conn.query_drop("DELETE FROM sbtest1 WHERE id > 8123").expect("deleted");
    let error = load(&engine, &plan, (Seed(5), 1), &mut |_| true).expect_err("not ours");
    assert!(error.to_string().contains("8123 rows that Crosspoint did not load"), "{error}");
}
