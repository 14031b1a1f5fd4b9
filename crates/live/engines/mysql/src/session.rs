//! One connection with the workload's statements, prepared or as text.
//!
//! Invariant: a statement's whole result is read before the next.

use std::os::fd::{AsRawFd, BorrowedFd};

use engine::sql::{prepared_text, texts_of, write_text};
use engine::{EngineError, Exchange, Row, Statements, Target};
use mysql::prelude::Queryable;
use mysql::{Conn, Statement, Value};
use mysql_common::constants::Command;
use mysql_common::packets::ComStmtExecuteRequestBuilder;
use mysql_common::proto::MySerialize;
use study::{SqlDialect, SqlJob};
use units::Seed;
use workload::{OpClass, SqlOp};

use crate::binary::flavour_of;
use crate::options::table_options;
use crate::reach::{connect_with, told};
use crate::wire::{Wire, framed};

/// A prepared statement's request: encoded once, then its fixed-length values at the end are overwritten.
#[derive(Debug)]
struct Prepared {
    /// Keeps the statement alive at the server.
    _statement: Statement,
    request: Vec<u8>,
}

/// Requests of a table, by class.
type OfTable = [Option<Prepared>; OpClass::STATEMENTS.len()];

/// Encoded requests.
#[derive(Debug)]
struct Requests {
    /// By table, then by class; empty when statements are sent as text.
    prepared: Vec<OfTable>,
    text: Vec<u8>,
}

/// A connection.
#[derive(Debug)]
pub struct MysqlSession {
    conn: Conn,
    wire: Wire,
    requests: Requests,
    job: SqlJob,
}

/// Index of a class among the statements.
const fn place(class: OpClass) -> usize {
    class.index() - OpClass::Begin.index()
}

/// The values of an operation, as the library encodes them.
fn values(op: &SqlOp) -> Vec<Value> {
    let number = Value::UInt;
    let text = |bytes: &[u8]| Value::Bytes(bytes.to_vec());
    match op.class {
        OpClass::Begin | OpClass::Commit => Vec::new(),
        OpClass::SimpleRange | OpClass::SumRange | OpClass::OrderRange | OpClass::DistinctRange => {
            vec![number(op.row), number(op.other)]
        }
        OpClass::NonIndexUpdate => vec![text(&texts_of(op).0), number(op.row)],
        OpClass::Insert => {
            let (c, pad) = texts_of(op);
            vec![number(op.row), number(op.other), text(&c), text(&pad)]
        }
        _ => vec![number(op.row)],
    }
}

/// The encoded request of an operation.
fn encoded(statement: u32, op: &SqlOp) -> Vec<u8> {
    let values = values(op);
    let (request, _) = ComStmtExecuteRequestBuilder::new(statement).build(&values);
    let mut payload = Vec::new();
    request.serialize(&mut payload);
    framed(&payload)
}

/// Overwrites the values in a request of the same statement.
fn write_over(request: &mut [u8], op: &SqlOp) {
    let mut end = request.len();
    let mut write = |request: &mut [u8], bytes: &[u8], length: usize| {
        request[end - bytes.len()..end].copy_from_slice(bytes);
        end -= bytes.len() + length;
    };
    // From the last value to the first; texts have a length byte.
    match op.class {
        OpClass::Begin | OpClass::Commit => {}
        OpClass::SimpleRange | OpClass::SumRange | OpClass::OrderRange | OpClass::DistinctRange => {
            write(request, &op.other.to_le_bytes(), 0);
            write(request, &op.row.to_le_bytes(), 0);
        }
        OpClass::NonIndexUpdate => {
            write(request, &op.row.to_le_bytes(), 0);
            write(request, &texts_of(op).0, 1);
        }
        OpClass::Insert => {
            let (c, pad) = texts_of(op);
            write(request, &pad, 1);
            write(request, &c, 1);
            write(request, &op.other.to_le_bytes(), 0);
            write(request, &op.row.to_le_bytes(), 0);
        }
        _ => write(request, &op.row.to_le_bytes(), 0),
    }
}

impl MysqlSession {
    pub(crate) fn open(
        target: &Target,
        job: &SqlJob,
        statements: bool,
    ) -> Result<Self, EngineError> {
        let prepare = statements && job.is_prepared();
        let classes: Vec<OpClass> =
            job.workload.mix().classes().into_iter().filter(|class| class.is_statement()).collect();
        let most = classes.len() * job.tables as usize + 4;
        let mut conn = connect_with(target, if prepare { most } else { 4 })?;
        let mut prepared = Vec::new();
        for table in 1..=if prepare { job.tables } else { 0 } {
            let mut of_table: OfTable = Default::default();
            for &class in &classes {
                let statement = conn.prep(prepared_text(class, table)).map_err(told)?;
                let (first, last) = (false, false);
                let op =
                    SqlOp { class, table, row: 0, other: 0, amount: 0, text: Seed(0), first, last };
                let request = encoded(statement.id(), &op);
                of_table[place(class)] = Some(Prepared { _statement: statement, request });
            }
            prepared.push(of_table);
        }
        let requests = Requests { prepared, text: Vec::with_capacity(512) };
        Ok(Self { conn, wire: Wire::new(), job: job.clone(), requests })
    }
}

/// The command of a statement that is sent as text.
const COM_QUERY: u8 = Command::COM_QUERY as u8;
/// The index already exists.
const DUPLICATE_KEY_NAME: i32 = 1061;

impl Requests {
    /// The request of an operation, with its header.
    fn of(&mut self, op: &SqlOp, job: &SqlJob) -> &[u8] {
        let Some(of_table) = self.prepared.get_mut(op.table as usize - 1) else {
            write_text(op, job.dialect, &mut self.text);
            // The command's byte and the header go before the text.
            let length = self.text.len() + 1;
            let head = [length as u8, (length >> 8) as u8, (length >> 16) as u8, 0, COM_QUERY];
            self.text.splice(..0, head);
            return &self.text;
        };
        let prepared = of_table[place(op.class)].as_mut();
        let prepared = prepared.expect("invariant: the workload's classes were prepared");
        write_over(&mut prepared.request, op);
        &prepared.request
    }
}

impl Exchange for MysqlSession {
    fn begin(&mut self, op: &SqlOp) -> Result<(&[u8], &mut [u8]), EngineError> {
        self.wire.begin();
        Ok((self.requests.of(op, &self.job), self.wire.space()))
    }

    fn space(&mut self) -> &mut [u8] {
        self.wire.space()
    }

    fn received(&mut self, count: usize) -> Result<bool, EngineError> {
        self.wire.received(count)
    }
}

impl Statements for MysqlSession {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the descriptor belongs to the connection, which outlives the borrow.
        Some(unsafe { BorrowedFd::borrow_raw(self.conn.as_raw_fd()) })
    }

    fn send(&mut self, op: &SqlOp) -> Result<(), EngineError> {
        self.wire.send(&self.conn, self.requests.of(op, &self.job))
    }

    fn exchange(&mut self) -> Option<&mut dyn Exchange> {
        Some(self)
    }

    fn receive(&mut self, wait: bool) -> Result<bool, EngineError> {
        self.wire.receive(&self.conn, wait)
    }

    fn roll_back(&mut self) -> Result<(), EngineError> {
        self.conn.query_drop("ROLLBACK").map_err(told)
    }

    fn create_table(&mut self, table: u32) -> Result<u64, EngineError> {
        // The old scripts' numbers are unsigned.
        let number = match self.job.dialect {
            SqlDialect::Sysbench05 => "INTEGER UNSIGNED",
            SqlDialect::Sysbench10 => "INTEGER",
        };
        let version: Option<String> = self.conn.query_first("SELECT VERSION()").map_err(told)?;
        let options = table_options(flavour_of(&version.unwrap_or_default()), &self.job);
        let create = format!(
            "CREATE TABLE IF NOT EXISTS sbtest{table} (id {number} NOT NULL AUTO_INCREMENT, \
             k {number} DEFAULT '0' NOT NULL, c CHAR(120) DEFAULT '' NOT NULL, \
             pad CHAR(60) DEFAULT '' NOT NULL, PRIMARY KEY (id)) ENGINE=InnoDB{options}"
        );
        self.conn.query_drop(create).map_err(told)?;
        let rows = format!("SELECT COUNT(*), COALESCE(MAX(id), 0) FROM sbtest{table}");
        let rows: Option<(u64, u64)> = self.conn.query_first(rows).map_err(told)?;
        match rows.unwrap_or_default() {
            (count, highest) if count == highest => Ok(count),
            (count, highest) => Err(EngineError::refused(
                format!(
                    "table sbtest{table} has {count} rows up to number {highest}, not as it was loaded"
                ),
                "name an empty database, or drop the tables that are not needed",
            )),
        }
    }

    fn insert(&mut self, table: u32, rows: &[Row<'_>]) -> Result<(), EngineError> {
        let mut text = format!("INSERT INTO sbtest{table} (id, k, c, pad) VALUES ");
        for (number, row) in rows.iter().enumerate() {
            let (c, pad) = (String::from_utf8_lossy(row.c), String::from_utf8_lossy(row.pad));
            let comma = if number == 0 { "" } else { "," };
            text.push_str(&format!("{comma}({},{},'{c}','{pad}')", row.id, row.k));
        }
        self.conn.query_drop(text).map_err(told)
    }

    fn create_index(&mut self, table: u32) -> Result<(), EngineError> {
        let create = format!("CREATE INDEX k_{table} ON sbtest{table}(k)");
        match self.conn.query_drop(create).map_err(told) {
            Err(error) if error.code() == DUPLICATE_KEY_NAME => Ok(()),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value patched in at the wrong offset would address another row.
    #[test]
    fn a_request_that_is_written_over_is_the_one_that_the_library_encodes() {
        for class in OpClass::STATEMENTS {
            let (first, last) = (false, false);
            let op = |row: u64, seed: u64| {
                let text = Seed(seed);
                SqlOp { class, table: 2, row, other: row + 99, amount: 0, text, first, last }
            };
            let mut request = encoded(7, &op(1, 1));
            write_over(&mut request, &op(4711, 2));
            assert_eq!(request, encoded(7, &op(4711, 2)), "{class:?}");
        }
    }
}
