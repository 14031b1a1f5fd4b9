//! One connection with the workload's statements, prepared or as text.
//!
//! Invariant: a statement's whole result is read before the next.

use std::os::fd::{AsFd, BorrowedFd};

use engine::sql::{prepared_text, texts_of, write_text};
use engine::{EngineError, Exchange, Row, Statements, Target};
use study::SqlJob;
use units::Seed;
use workload::{ACCOUNTS, OpClass, SqlOp, TELLERS};

use crate::conn::{Conn, execution};
use crate::reach::connect;

/// A prepared statement's request: encoded once, then its values, whose lengths are fixed, are overwritten.
#[derive(Debug)]
struct Prepared {
    request: Vec<u8>,
    /// Offset of the first value's length.
    values: usize,
}

/// Requests of a table, by class.
type OfTable = [Option<Prepared>; OpClass::STATEMENTS.len()];

/// Encoded requests.
#[derive(Debug)]
struct Requests {
    /// By table, then by class; empty when statements are sent as text.
    prepared: Vec<OfTable>,
    text: Vec<u8>,
    request: Vec<u8>,
}

/// A connection.
#[derive(Debug)]
pub struct PostgresSession {
    conn: Conn,
    job: SqlJob,
    requests: Requests,
}

/// Index of a class among the statements.
const fn place(class: OpClass) -> usize {
    class.index() - OpClass::Begin.index()
}

/// pgbench's tables, with its defaults.
const PGBENCH: &str = "CREATE TABLE IF NOT EXISTS pgbench_accounts (aid INT NOT NULL PRIMARY KEY, bid INT, \
    abalance INT, filler CHAR(84)); \
    CREATE TABLE IF NOT EXISTS pgbench_branches (bid INT NOT NULL PRIMARY KEY, bbalance INT, \
    filler CHAR(88)); \
    CREATE TABLE IF NOT EXISTS pgbench_tellers (tid INT NOT NULL PRIMARY KEY, bid INT, tbalance INT, \
    filler CHAR(84)); \
    CREATE TABLE IF NOT EXISTS pgbench_history (tid INT, bid INT, aid INT, delta INT, mtime TIMESTAMP, \
    filler CHAR(22))";

/// Calls `put` with each value of an operation, in the order of the statement's parameters.
fn each_value(op: &SqlOp, put: &mut dyn FnMut(&[u8])) {
    let number = |value: u64| (value as u32).to_be_bytes();
    match op.class {
        OpClass::Begin | OpClass::Commit => {}
        OpClass::SimpleRange | OpClass::SumRange | OpClass::OrderRange | OpClass::DistinctRange => {
            put(&number(op.row));
            put(&number(op.other));
        }
        OpClass::NonIndexUpdate => {
            put(&texts_of(op).0);
            put(&number(op.row));
        }
        OpClass::AccountUpdate => {
            put(&op.amount.to_be_bytes());
            put(&number(op.row));
        }
        OpClass::TellerUpdate => {
            put(&op.amount.to_be_bytes());
            put(&number(op.other));
        }
        OpClass::BranchUpdate => {
            put(&op.amount.to_be_bytes());
            put(&op.table.to_be_bytes());
        }
        OpClass::HistoryInsert => {
            put(&number(op.other));
            put(&op.table.to_be_bytes());
            put(&number(op.row));
            put(&op.amount.to_be_bytes());
        }
        OpClass::Insert => {
            let (c, pad) = texts_of(op);
            put(&number(op.row));
            put(&number(op.other));
            put(&c);
            put(&pad);
        }
        _ => put(&number(op.row)),
    }
}

impl Prepared {
    fn new(name: &str, op: &SqlOp) -> Result<Self, EngineError> {
        let mut values = Vec::new();
        each_value(op, &mut |value| values.push(value.to_vec()));
        let (request, values) = execution(name, &values)?;
        Ok(Self { request, values })
    }

    /// Overwrites the values with those of another operation of the same class.
    fn write_over(&mut self, op: &SqlOp) {
        let mut at = self.values;
        each_value(op, &mut |value| {
            at += 4;
            self.request[at..at + value.len()].copy_from_slice(value);
            at += value.len();
        });
    }
}

/// The statement of a class with numbered values.
fn numbered(class: OpClass, table: u32) -> String {
    let mut text = String::new();
    for (number, part) in prepared_text(class, table).split('?').enumerate() {
        if number > 0 {
            text.push_str(&format!("${number}"));
        }
        text.push_str(part);
    }
    text
}

impl PostgresSession {
    pub(crate) fn open(
        target: &Target,
        job: &SqlJob,
        statements: bool,
    ) -> Result<Self, EngineError> {
        let prepare = statements && job.is_prepared();
        let classes: Vec<OpClass> =
            job.workload.mix().classes().into_iter().filter(|class| class.is_statement()).collect();
        let mut conn = connect(target)?;
        let mut prepared = Vec::new();
        for table in 1..=if prepare { job.tables } else { 0 } {
            let mut of_table: OfTable = Default::default();
            for &class in &classes {
                let name = format!("t{table}_{}", place(class));
                conn.prepare(&name, &numbered(class, table))?;
                let (first, last) = (false, false);
                let op =
                    SqlOp { class, table, row: 0, other: 0, amount: 0, text: Seed(0), first, last };
                of_table[place(class)] = Some(Prepared::new(&name, &op)?);
            }
            prepared.push(of_table);
        }
        let (text, request) = (Vec::with_capacity(512), Vec::with_capacity(512));
        let requests = Requests { prepared, text, request };
        Ok(Self { conn, job: job.clone(), requests })
    }
}

impl PostgresSession {
    /// Accounts of pgbench; each branch has [`ACCOUNTS`].
    fn insert_accounts(&mut self, rows: &[Row<'_>]) -> Result<(), EngineError> {
        let values: Vec<String> = rows
            .iter()
            .map(|row| format!("({},{},0,'')", row.id, 1 + (row.id - 1) / ACCOUNTS))
            .collect();
        self.conn.run(&format!(
            "INSERT INTO pgbench_accounts (aid, bid, abalance, filler) VALUES {}",
            values.join(",")
        ))
    }

    /// pgbench's other tables, once the accounts are there.
    fn fill_branches(&mut self) -> Result<(), EngineError> {
        let branches = self.job.records / ACCOUNTS;
        self.conn.run(&format!(
            "INSERT INTO pgbench_branches (bid, bbalance) \
             SELECT bid, 0 FROM generate_series(1, {branches}) bid ON CONFLICT DO NOTHING; \
             INSERT INTO pgbench_tellers (tid, bid, tbalance) \
             SELECT tid, (tid - 1) / {TELLERS} + 1, 0 FROM generate_series(1, {}) tid \
             ON CONFLICT DO NOTHING",
            branches * TELLERS
        ))?;
        self.job.table_names().iter().try_for_each(|name| self.vacuum(name))
    }

    /// Without it the first readers would write every page again, to note that its rows are committed.
    fn vacuum(&mut self, table: &str) -> Result<(), EngineError> {
        self.conn.run(&format!("VACUUM (ANALYZE, FREEZE) {table}"))
    }
}

impl Requests {
    /// The request of an operation.
    fn of(&mut self, op: &SqlOp, job: &SqlJob) -> &[u8] {
        // pgbench's branches are rows, not tables.
        let table = if job.workload.is_of_pgbench() { 0 } else { op.table as usize - 1 };
        if let Some(of_table) = self.prepared.get_mut(table) {
            let prepared = of_table[place(op.class)].as_mut();
            let prepared = prepared.expect("invariant: the workload's classes were prepared");
            prepared.write_over(op);
            return &prepared.request;
        }
        write_text(op, job.dialect, &mut self.text);
        // The query message: its type, its length, the text and a zero.
        let length = (self.text.len() + 5) as u32;
        self.request.clear();
        self.request.push(b'Q');
        self.request.extend_from_slice(&length.to_be_bytes());
        self.request.extend_from_slice(&self.text);
        self.request.push(0);
        &self.request
    }
}

impl Exchange for PostgresSession {
    fn begin(&mut self, op: &SqlOp) -> Result<(&[u8], &mut [u8]), EngineError> {
        Ok((self.requests.of(op, &self.job), self.conn.begin().space()))
    }

    fn space(&mut self) -> &mut [u8] {
        self.conn.wire().space()
    }

    fn received(&mut self, count: usize) -> Result<bool, EngineError> {
        self.conn.wire().received(count)
    }

    fn closed(&mut self) -> Result<(), EngineError> {
        self.conn.wire().lost()
    }
}

impl Statements for PostgresSession {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.conn.as_fd())
    }

    fn send(&mut self, op: &SqlOp) -> Result<(), EngineError> {
        self.conn.send(self.requests.of(op, &self.job))
    }

    fn exchange(&mut self) -> Option<&mut dyn Exchange> {
        Some(self)
    }

    fn receive(&mut self, wait: bool) -> Result<bool, EngineError> {
        self.conn.receive(wait)
    }

    fn roll_back(&mut self) -> Result<(), EngineError> {
        self.conn.run("ROLLBACK")
    }

    fn create_table(&mut self, table: u32) -> Result<u64, EngineError> {
        let (name, id) = match self.job.workload.is_of_pgbench() {
            true => ("pgbench_accounts".to_owned(), "aid"),
            false => (format!("sbtest{table}"), "id"),
        };
        self.conn.run(&match id {
            "aid" => PGBENCH.to_owned(),
            _ => format!(
                "CREATE TABLE IF NOT EXISTS {name} (id INTEGER NOT NULL, \
                 k INTEGER DEFAULT 0 NOT NULL, c CHAR(120) DEFAULT '' NOT NULL, \
                 pad CHAR(60) DEFAULT '' NOT NULL, PRIMARY KEY (id))"
            ),
        })?;
        let rows =
            self.conn.rows(&format!("SELECT count(*), coalesce(max({id}), 0) FROM {name}"))?;
        let number = |at: usize| {
            let value = rows.first().and_then(|row| row.get(at)?.as_deref()?.parse::<u64>().ok());
            value.unwrap_or(0)
        };
        match (number(0), number(1)) {
            (count, highest) if count == highest => Ok(count),
            (count, highest) => Err(EngineError::refused(
                format!(
                    "table {name} has {count} rows up to number {highest}, not as it was loaded"
                ),
                "name an empty database, or drop the tables that are not needed",
            )),
        }
    }

    /// By amcheck, where it is installed: every page of the table, and every row in each index.
    fn verify(&mut self, table: u32) -> Result<(), EngineError> {
        let there = "SELECT 1 FROM pg_available_extensions WHERE name = 'amcheck'";
        if self.conn.one(there)?.is_none() {
            return Ok(());
        }
        self.conn.run("CREATE EXTENSION IF NOT EXISTS amcheck")?;
        let damage = format!("SELECT msg FROM verify_heapam('sbtest{table}') LIMIT 1");
        if let Some(damage) = self.conn.one(&damage)? {
            return Err(EngineError::disconnected(format!("sbtest{table}: {damage}")));
        }
        self.conn.run(&format!(
            "SELECT bt_index_check(indexrelid, true) FROM pg_index \
             WHERE indrelid = 'sbtest{table}'::regclass"
        ))
    }

    fn insert(&mut self, table: u32, rows: &[Row<'_>]) -> Result<(), EngineError> {
        if self.job.workload.is_of_pgbench() {
            return self.insert_accounts(rows);
        }
        let mut text = format!("INSERT INTO sbtest{table} (id, k, c, pad) VALUES ");
        for (number, row) in rows.iter().enumerate() {
            let (c, pad) = (String::from_utf8_lossy(row.c), String::from_utf8_lossy(row.pad));
            let comma = if number == 0 { "" } else { "," };
            text.push_str(&format!("{comma}({},{},'{c}','{pad}')", row.id, row.k));
        }
        self.conn.run(&text)
    }

    fn create_index(&mut self, table: u32) -> Result<(), EngineError> {
        if self.job.workload.is_of_pgbench() {
            return self.fill_branches();
        }
        self.conn.run(&format!("CREATE INDEX IF NOT EXISTS k_{table} ON sbtest{table}(k)"))?;
        self.vacuum(&format!("sbtest{table}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value patched in at the wrong offset would address another row.
    #[test]
    fn a_request_that_is_written_over_is_the_one_that_is_encoded() {
        for class in OpClass::STATEMENTS {
            let mut prepared = Prepared::new("t2_7", &op(class, 1)).unwrap();
            prepared.write_over(&op(class, 4711));
            let whole = Prepared::new("t2_7", &op(class, 4711)).unwrap();
            assert_eq!(prepared.request, whole.request, "{class:?}");
        }
    }

    /// An operation whose values differ with `row`.
    fn op(class: OpClass, row: u32) -> SqlOp {
        let (first, last, text) = (false, false, Seed(u64::from(row)));
        let (other, amount) = (u64::from(row) + 99, row as i32 - 5000);
        SqlOp { class, table: 1 + row % 3, row: row.into(), other, amount, text, first, last }
    }

    /// Values in another order would update other rows, as fast.
    #[test]
    fn values_come_in_the_order_of_the_statement() {
        let values = |class| {
            let mut all = Vec::new();
            each_value(&op(class, 7), &mut |value| {
                all.push(i32::from_be_bytes(value.try_into().unwrap()));
            });
            all
        };
        // Branch 2, account 7, teller 106.
        assert_eq!(values(OpClass::AccountUpdate), [-4993, 7]);
        assert_eq!(values(OpClass::AccountSelect), [7]);
        assert_eq!(values(OpClass::TellerUpdate), [-4993, 106]);
        assert_eq!(values(OpClass::BranchUpdate), [-4993, 2]);
        assert_eq!(values(OpClass::HistoryInsert), [106, 2, 7, -4993]);
        assert_eq!(values(OpClass::SimpleRange), [7, 106]);
    }

    #[test]
    fn values_of_a_statement_are_numbered() {
        let insert = "INSERT INTO sbtest3 (id, k, c, pad) VALUES ($1, $2, $3, $4)";
        assert_eq!(numbered(OpClass::Insert, 3), insert);
        assert_eq!(numbered(OpClass::Begin, 3), "BEGIN");
    }
}
