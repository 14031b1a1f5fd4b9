//! The contract suite of SQL engines, run by each engine's tests through the contract alone.

use std::sync::atomic::{AtomicBool, Ordering};

use observe::Control;
use stats::Timeline;
use study::{Job, Options, SqlJob, sql_plan};
use units::{Nanos, Seed};
use workload::{OpClass, SQL_C, SQL_PAD, SqlClient, SqlOp, SqlPlan};

use engine::sql::{LOAD_BATCH as BATCH, SqlSpec, load, measure};
use engine::{EngineError, Place, Row, SqlEngine, Statements, TrialSpec};

const TABLES: u32 = 2;
const ROWS: u64 = BATCH + 300;

/// The job of the suite for an engine.
#[must_use]
pub fn job<E: SqlEngine>() -> SqlJob {
    let text = format!(
        "schema = 2\nname = \"contract\"\n[[stack]]\nname = \"d\"\ndevice = \"file\"\n[[experiment]]\nname = \
         \"e\"\n[experiment.job]\nengine = {:?}\nworkload = \"read_write\"\n\
         tables = {TABLES}\nrecords = {ROWS}\nrange_size = 10\nclients = 3\ndurability = \"os\"\n",
        E::DESCRIPTOR.name
    );
    let plan = study::plan(&study::parse(&text, study::Engines::ANY).expect("a study"));
    match &plan.trials[0].job {
        Job::Sql(job) => SqlJob { options: Options::of(E::DESCRIPTOR.options), ..(**job).clone() },
        _ => unreachable!("invariant: a SQL job was written"),
    }
}

fn spec() -> SqlSpec {
    let interval = Nanos::from_millis(50);
    let timeline = Timeline { warm_up: Nanos::ZERO, measure: interval * 4, interval };
    let failures_max = Some(SqlSpec::FAILURES_MAX);
    let trial = TrialSpec { timeline, stop_on_error: true, failures_max, max_lag: None };
    SqlSpec { trial, changes: Vec::new() }
}

/// Runs the whole suite on the empty database at `place`; `change` adapts the suite's job to the place.
///
/// # Panics
/// At the first broken guarantee, naming it.
pub fn check<E: SqlEngine>(place: &Place, change: impl Fn(SqlJob) -> SqlJob) {
    let job = change(job::<E>());
    assert!(!E::probe(Some(&job)).expect("the engine can be used here").is_empty(), "a version");
    check_load::<E>(place, &job).expect("tables load");
    check_clients::<E>(place, &job).expect("clients run at the same time");
    check_errors::<E>(place, &job).expect("errors leave the connection usable");
}

/// An interrupted load continues, and loading again changes nothing.
fn check_load<E: SqlEngine>(place: &Place, job: &SqlJob) -> Result<(), EngineError> {
    let engine = E::open(place, job)?;
    engine.claim()?;
    let plan = sql_plan(job, Nanos::MAX);
    // A load that was interrupted after its first batch.
    let begun = SqlPlan { rows: BATCH, ..plan.clone() };
    assert!(load(&engine, &begun, (Seed(1), 2), &mut |_| true)?, "the first batch is loaded");
    assert!(load(&engine, &plan, (Seed(1), 2), &mut |_| true)?, "everything is loaded");
    assert!(load(&engine, &plan, (Seed(1), 1), &mut |_| true)?, "loaded tables are complete");
    let mut connection = engine.connect(false)?;
    for table in 1..=TABLES {
        assert_eq!(connection.create_table(table)?, ROWS, "every row is there once");
        connection.create_index(table)?;
    }
    assert!(engine.page_bytes() > 0 && engine.table_bytes() > 0, "tables have a size");
    engine.close()
}

fn check_clients<E: SqlEngine>(place: &Place, job: &SqlJob) -> Result<(), EngineError> {
    let engine = E::open(place, job)?;
    assert!(!engine.version().is_empty() && !engine.settings().is_empty(), "version and settings");
    let spec = spec();
    let clients = SqlClient::all(&sql_plan(job, spec.trial.timeline.until()), job.clients, Seed(1));
    let (stop, started) = (AtomicBool::new(false), AtomicBool::new(false));
    let control = Control { stop: &stop, progress: None, keep: None };
    let ready = || started.store(true, Ordering::Relaxed);
    let measured = measure(&engine, &spec, clients, &control, &ready, &mut Vec::new)?;
    assert!(started.into_inner(), "clients report that they are connected");
    assert_eq!(measured.failure, None);
    let ops = |class| measured.recording.total(Some(class)).counts.ops;
    assert!(
        ops(OpClass::Transaction) > 0 && ops(OpClass::PointSelect) > 0,
        "transactions complete"
    );
    engine.close()
}

/// A duplicate key fails its statement only; after a rollback the connection works.
fn check_errors<E: SqlEngine>(place: &Place, job: &SqlJob) -> Result<(), EngineError> {
    let engine = E::open(place, job)?;
    let mut connection = engine.connect(true)?;
    let (c, pad) = ([b'1'; SQL_C], [b'2'; SQL_PAD]);
    let twice = connection.insert(1, &[Row { id: 1, k: 1, c: &c, pad: &pad }]);
    assert!(twice.is_err(), "a row that exists is not inserted again");
    connection.roll_back()?;
    let (first, last) = (true, true);
    let class = OpClass::PointSelect;
    let op = SqlOp { class, table: 1, row: 1, other: 1, amount: 0, text: Seed(1), first, last };
    connection.send(&op)?;
    while !connection.receive(true)? {}
    assert_eq!(connection.create_table(1)?, ROWS, "the failed statement left nothing");
    drop(connection);
    engine.close()
}
