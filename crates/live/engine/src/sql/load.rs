//! Loads sysbench's tables in parallel, and continues partly loaded ones.
//!
//! Rows are inserted in key order, a fixed number per statement; each statement is a transaction. An
//! interrupted load left a whole number of statements, so continuing gives the same tables.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use units::Seed;
use workload::{SQL_C, SQL_PAD, SqlNumbers, SqlPlan, write_digits};

use crate::{EngineError, Row, SqlEngine, Statements};

/// Rows per statement: about 400 KB of text, below every server's default packet limit.
pub const LOAD_BATCH: u64 = 2000;

/// Progress and the end of a load, shared by its threads.
struct LoadShared<'a> {
    plan: &'a SqlPlan,
    seed: Seed,
    /// Number of the next table.
    table: AtomicU32,
    /// Number of inserted rows.
    rows: AtomicU64,
    /// Number of threads still working.
    working: AtomicU32,
    stop: AtomicBool,
    failure: Mutex<Option<EngineError>>,
}

/// Loads all tables of `plan` with `threads` connections. `step` gets the number of rows loaded and returns
/// whether to continue; returns whether all are loaded.
///
/// # Errors
/// The first error of the engine.
pub fn load<E: SqlEngine>(
    engine: &E,
    plan: &SqlPlan,
    (seed, threads): (Seed, u32),
    step: &mut dyn FnMut(u64) -> bool,
) -> Result<bool, EngineError> {
    let threads = threads.clamp(1, plan.tables);
    let shared = LoadShared {
        plan,
        seed,
        table: AtomicU32::new(1),
        rows: AtomicU64::new(0),
        working: AtomicU32::new(threads),
        stop: AtomicBool::new(false),
        failure: Mutex::new(None),
    };
    let shared = &shared;
    std::thread::scope(|scope| {
        let caller = std::thread::current();
        for _ in 0..threads {
            let caller = caller.clone();
            scope.spawn(move || {
                if let Err(error) = load_tables(engine, shared) {
                    shared.stop.store(true, Ordering::Relaxed);
                    if let Ok(mut failure) = shared.failure.lock() {
                        failure.get_or_insert(error);
                    }
                }
                shared.working.fetch_sub(1, Ordering::Relaxed);
                caller.unpark();
            });
        }
        while shared.working.load(Ordering::Relaxed) > 0 {
            std::thread::park_timeout(Duration::from_millis(100));
            if !step(shared.rows.load(Ordering::Relaxed)) {
                shared.stop.store(true, Ordering::Relaxed);
            }
        }
    });
    if let Some(error) = shared.failure.lock().ok().and_then(|mut failure| failure.take()) {
        return Err(error);
    }
    Ok(shared.rows.load(Ordering::Relaxed) == u64::from(plan.tables) * plan.rows)
}

fn load_tables<E: SqlEngine>(engine: &E, shared: &LoadShared<'_>) -> Result<(), EngineError> {
    let mut connection = engine.connect(false)?;
    let numbers = SqlNumbers::new(shared.plan.keys, shared.plan.rows);
    loop {
        let table = shared.table.fetch_add(1, Ordering::Relaxed);
        if table > shared.plan.tables || shared.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let there = connection.create_table(table)?;
        let whole = there == shared.plan.rows || there.is_multiple_of(LOAD_BATCH);
        if there > shared.plan.rows || !whole {
            return Err(EngineError::refused(
                format!(
                    "table sbtest{table} exists with {there} rows that Crosspoint did not load"
                ),
                "name an empty database, or drop the tables that are not needed",
            ));
        }
        shared.rows.fetch_add(there, Ordering::Relaxed);
        if fill(&mut connection, shared, &numbers, (table, there))? {
            connection.create_index(table)?;
        }
    }
}

/// Inserts the rows after the first `there`; returns whether all rows exist now.
fn fill<C: Statements>(
    connection: &mut C,
    shared: &LoadShared<'_>,
    numbers: &SqlNumbers,
    (table, mut there): (u32, u64),
) -> Result<bool, EngineError> {
    let of_table = shared.seed.derive("sql-table", u64::from(table));
    let mut texts = vec![([0u8; SQL_C], [0u8; SQL_PAD], 0u64); LOAD_BATCH as usize];
    while there < shared.plan.rows {
        if shared.stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let count = LOAD_BATCH.min(shared.plan.rows - there) as usize;
        let seed = of_table.derive("batch", there / LOAD_BATCH);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed.0);
        for (c, pad, k) in &mut texts[..count] {
            write_digits(&mut random, c);
            write_digits(&mut random, pad);
            *k = numbers.draw(&mut random);
        }
        let made = texts[..count].iter().zip(there + 1..);
        let rows: Vec<Row<'_>> = made.map(|((c, pad, k), id)| Row { id, k: *k, c, pad }).collect();
        connection.insert(table, &rows)?;
        there += count as u64;
        shared.rows.fetch_add(count as u64, Ordering::Relaxed);
    }
    Ok(true)
}
